// Compares walks with what the kernel did with the same packets. What the kernel did must be
// possible by the walk; where the walk knows, the shares must fit too, and everything that it
// calls probable must have been seen when the attempts suffice for that.

import type { Family, Rule, RuleSet } from '../../src/rules/ruleset.ts';
import { rulesOf } from '../../src/rules/ruleset.ts';
import type { Destination, OutcomeShare, PacketOutcome } from '../../src/rules/walk/walk.ts';
import { walk } from '../../src/rules/walk/walk.ts';
import type { Folder, PacketLine, Seen } from './folder.ts';

export interface PacketCounts {
  packets: number;
  wrong: number;
  /** Of dumps with nothing but kube-proxy's rules. */
  unknown: number;
  foreignPackets: number;
  foreignUnknown: number;
}

/** What is asked of counts: this share of sound folders has no count outside of its band. */
const confidence = 0.999;

/** Walks all packets of a folder. */
export function checkPackets(folder: Folder, report: (line: string) => void): PacketCounts {
  const counts = { packets: 0, wrong: 0, unknown: 0, foreignPackets: 0, foreignUnknown: 0 };
  const tests = folder.packets.reduce((sum, { outcomes }) => sum + Object.keys(outcomes).length, 1);
  for (const line of folder.packets) {
    counts.packets++;
    if (folder.isForeign) counts.foreignPackets++;
    const outcomes = walksOf(folder, line);
    const isTracked = tracks(folder.ruleset, line.packet.dst.includes(':') ? 'ip6' : 'ip');
    const problem = problemOf(line, outcomes, (1 - confidence) / tests, isTracked);
    if (problem !== null) {
      counts.wrong++;
      report(describeProblem(folder, line, outcomes, problem));
    }
    if (folder.hasBothBackends || line.inconclusive !== undefined) continue;
    if (!outcomes.some(isUnknown)) continue;
    if (folder.isForeign) counts.foreignUnknown++;
    else counts.unknown++;
  }
  return counts;
}

function walksOf({ ruleset, node }: Folder, { packet, srcs }: PacketLine): PacketOutcome[] {
  const protocol = packet.protocol.toLowerCase() as 'tcp' | 'udp' | 'sctp';
  const sources = srcs ?? [packet.src];
  const { dst, dport } = packet;
  const own = dst.includes(':') ? `[${dst}]:${dport}` : `${dst}:${dport}`;
  return sources.map((src) => asSeen(walk(ruleset, node, { ...packet, src, protocol }), own));
}

/** A translation to where the packet goes anyway leaves no trace in its entry: it passes. */
function asSeen(outcome: PacketOutcome, own: string): PacketOutcome {
  const same = outcome.destinations.get(own);
  if (same === undefined) return outcome;
  const { pass } = outcome;
  const isOne = pass.probability === 0 || pass.masqueraded === same.masqueraded;
  const probability = pass.probability + same.probability;
  return {
    ...outcome,
    destinations: new Map([...outcome.destinations].filter(([name]) => name !== own)),
    pass: { ...same, probability, masqueraded: isOne ? same.masqueraded : 'unknown' },
  };
}

const isUnknown = ({ unknown, destinations, pass }: PacketOutcome): boolean =>
  unknown.length > 0 ||
  (pass.probability > 0 && pass.masqueraded === 'unknown') ||
  [...destinations.values()].some(({ masqueraded }) => masqueraded === 'unknown');

/** The observed packets by outcome. */
function seenOf({ outcomes, attempts, passMasqueraded }: PacketLine): Map<string, Seen> {
  const pass = passMasqueraded === undefined ? {} : { masqueraded: passMasqueraded };
  if (typeof outcomes !== 'string') return new Map(Object.entries(outcomes));
  const seen = { count: attempts, ...(outcomes === 'pass' ? pass : {}) };
  return new Map([[outcomes, seen]]);
}

/** The outcomes of a walk that match this observation. */
function fatesFor(outcome: PacketOutcome, name: string): OutcomeShare[] {
  if (name === 'reject' || name === 'drop' || name === 'pass') return [outcome[name]];
  const port = name.slice(name.lastIndexOf(':') + 1);
  return [name, `node:${port}`, 'unknown'].flatMap((key) => outcome.destinations.get(key) ?? []);
}

const isPossible = (fate: OutcomeShare): boolean =>
  fate.probability > 0 || ('affinity' in fate && (fate as Destination).affinity);

/**
 * Whether anything on the node asks for connection tracking. What went on was seen by its entries:
 * on a node without any rule there are none, and a packet that went on looks dropped, or refused
 * when the node itself refused it.
 */
const tracks = ({ tables }: RuleSet, family: Family): boolean =>
  tables
    .filter((table) => table.family === family || table.family === 'inet')
    .flatMap((table) => [...table.chains.values()])
    .some(
      (chain) =>
        (chain.base?.type === 'nat' && rulesOf(chain).length > 0) ||
        rulesOf(chain).some(asksForState),
    );

const asksForState = ({ statements }: Rule): boolean =>
  statements.some(({ kind }) => kind === 'state');

/** What is wrong with the walks of one line; null: nothing. */
export function problemOf(
  line: PacketLine,
  outcomes: readonly PacketOutcome[],
  allowed: number,
  isTracked = true,
): string | null {
  if (!isTracked && outcomes.every(passes))
    return typeof line.outcomes === 'string' ? null : 'passed';
  if (line.inconclusive !== undefined) {
    const possible = line.inconclusive.some((name) =>
      outcomes.some((outcome) => fatesFor(outcome, name).some(isPossible)),
    );
    return possible ? null : `none of ${line.inconclusive.join(', ')} is possible`;
  }
  for (const [name, { count, masqueraded }] of seenOf(line)) {
    const fates = outcomes.flatMap((outcome) => fatesFor(outcome, name)).filter(isPossible);
    if (fates.length === 0) return `${name} is not possible`;
    if (!fates.some((fate) => mayMasquerade(fate, masqueraded))) {
      return `${name} is masqueraded: ${String(masqueraded)}`;
    }
    if (isCertain(outcomes) && !fits(share(outcomes, name), line.attempts, count, allowed)) {
      return `${name}: ${count} of ${line.attempts} at ${share(outcomes, name)}`;
    }
  }
  return isCertain(outcomes) ? unseenOf(line, outcomes, allowed) : null;
}

const passes = ({ pass }: PacketOutcome): boolean => pass.probability === 1;

const mayMasquerade = ({ masqueraded: may }: OutcomeShare, is: Seen['masqueraded']): boolean =>
  is === undefined || may === 'unknown' || may === (is === 'some' ? true : is);

/** Shares are comparable: nothing is unknown, and no source is bound to one destination. */
const isCertain = (outcomes: readonly PacketOutcome[]): boolean =>
  outcomes.every(
    (outcome) =>
      !isUnknown(outcome) && ![...outcome.destinations.values()].some(({ affinity }) => affinity),
  );

function share(outcomes: readonly PacketOutcome[], name: string): number {
  const shares = outcomes.map((outcome) =>
    fatesFor(outcome, name).reduce((sum, { probability }) => sum + probability, 0),
  );
  return shares.reduce((sum, share) => sum + share, 0) / outcomes.length;
}

function unseenOf(
  line: PacketLine,
  outcomes: readonly PacketOutcome[],
  allowed: number,
): string | null {
  const seen = seenOf(line);
  const possible = new Set(outcomes.flatMap((outcome) => [...outcome.destinations.keys()]));
  for (const name of [...possible, 'reject', 'drop', 'pass']) {
    const isSeen = [...seen.keys()].some((other) =>
      outcomes.some((outcome) => fatesFor(outcome, other).includes(nameFate(outcome, name))),
    );
    if (!isSeen && !fits(share(outcomes, name), line.attempts, 0, allowed)) {
      return `${name} was not seen`;
    }
  }
  return null;
}

const nowhere: OutcomeShare = { probability: 0, masqueraded: false, trace: () => [] };

function nameFate(outcome: PacketOutcome, name: string): OutcomeShare {
  if (name === 'reject' || name === 'drop' || name === 'pass') return outcome[name];
  return outcome.destinations.get(name) ?? nowhere;
}

/** Whether a count out of a total is within the band of a binomial distribution. */
export function fits(share: number, attempts: number, count: number, allowed: number): boolean {
  if (share >= 1 - 1e-9) return count === attempts;
  let below = 0;
  let above = 0;
  let log = attempts * Math.log1p(-share);
  for (let k = 0; k <= attempts; k++) {
    if (k > 0) log += Math.log((attempts - k + 1) / k) + Math.log(share / (1 - share));
    const probability = share === 0 ? Number(k === 0) : Math.exp(log);
    if (k <= count) below += probability;
    if (k >= count) above += probability;
  }
  return Math.min(below, above) >= allowed / 2;
}

function describeProblem(
  { path }: Folder,
  line: PacketLine,
  outcomes: readonly PacketOutcome[],
  problem: string,
): string {
  const walks = outcomes.slice(0, 1).map((outcome) => {
    const { destinations, reject, drop, pass, unknown } = outcome;
    const fates = [...destinations, ['reject', reject], ['drop', drop], ['pass', pass]] as const;
    const likely = fates.filter(([, fate]) => isPossible(fate)).slice(0, 4);
    const ways = likely.map(([name, { probability, masqueraded, trace }]) => {
      const rules = trace().map(({ rule }) => rule.text);
      return { name, probability, masqueraded, rules };
    });
    return { ways, unknown };
  });
  const { about, packet, outcomes: seen } = line;
  return JSON.stringify({ problem, path, about, packet, seen, walks });
}
