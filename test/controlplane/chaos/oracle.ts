// Decides whether findings are true and whether any is missing, from recorded data alone: the log
// of the store with its spells (history.ts), the findings with their times, and the injected
// faults.
//
//   false   a finding without a spell of its code that lasted for the settle window when it opened,
//           or whose `since` is before the spell
//   missed  a spell that lasted for two windows and more, and no finding of its code lists it
//   unseen  an object that was spoilt by hand, and stayed so for that long, without a finding
//
// Two windows: an event that is late, or a gap in a watch, restarts the clock of a difference
// (docs/decisions/0010 and 0011). `verify` checks the one window of a replay exactly.

import { createReadStream, rmSync } from 'node:fs';
import { join } from 'node:path';

import type { Finding, Severity } from '../../../src/audit/finding/catalogue.ts';
import { isWorse } from '../../../src/audit/finding/catalogue.ts';
import { createAuditor } from '../../../src/auditor/auditor.ts';
import { replay } from '../../../src/auditor/replay.ts';
import type { Source } from '../../../src/cluster/files/recording.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import { auditorDefaults } from '../../build.ts';
import type { Found } from '../auditor.ts';
import type { ControlPlane } from '../controlplane.ts';
import type { History, Spell, Stamp, Times } from './history.ts';
import { arrivalsOf, readHistory, startStoreLog, timesOf } from './history.ts';

/** An object that was spoilt by hand. */
export interface InjectedFault {
  readonly title: string;
  /** `namespace/name`. */
  readonly service: string;
  readonly output: string;
  /** Any of these may be found. */
  readonly codes: readonly string[];
  /** `resource namespace/name` of the spoilt object. */
  readonly object: string;
  /** The version that spoilt it. */
  readonly revision: number;
}

/** A time in which the auditor could not see the cluster, in Unix seconds. */
export interface Outage {
  readonly from: number;
  readonly to: number;
}

interface Evidence {
  readonly history: History;
  readonly times: Times;
  readonly findings: readonly Found[];
  readonly faults: readonly InjectedFault[];
  readonly outages: readonly Outage[];
  /** Seconds of the settle window. */
  readonly settle: number;
}

export interface Disagreement {
  readonly kind: 'false' | 'missed' | 'unseen';
  /** `namespace/name`. */
  readonly service: string;
  readonly text: string;
}

/** Seconds by which clocks and whole milliseconds may differ. */
const rounding = 0.05;
/** Seconds that confirmation may take (docs/decisions/0010), and more. */
const confirmation = 5;
/** Seconds until all watches are back after an outage, as in churn.ts. */
const recovery = 75;
/** Seconds of an interruption that may go unnoticed (docs/decisions/0010). */
const unnoticed = 1;

const serviceOf = ({ namespace, service }: Found): string => `${namespace}/${service}`;

/** Spells of one unit without a noticeable interruption, in order. */
interface Chain {
  /** Unix seconds; the spells began at this time at the earliest. */
  from: number;
  /** Unix seconds; the spells ended at this time at the latest. */
  to: number;
}

function* chainsOf(spells: readonly Spell[], times: Times): Generator<Chain> {
  let chain: Chain | null = null;
  for (const { start, end } of spells.toSorted((a, b) => a.start - b.start)) {
    const [from, to] = [times.earliest(start), times.latest(end)];
    if (chain !== null && from <= chain.to + unnoticed) chain.to = Math.max(chain.to, to);
    else {
      if (chain !== null) yield chain;
      chain = { from, to };
    }
  }
  if (chain !== null) yield chain;
}

/** The spells that may explain a finding, by the units that they are of. */
function spellsFor(found: Found, spells: readonly Spell[]): Map<string, Spell[]> {
  /** The least harm of each unit: that of the finding is the most of any. */
  const units = new Map<string, Severity>();
  const all = spells.filter(({ output }) => output === found.output);
  for (const { unit, difference, severity } of all) {
    if (difference.code !== found.code) continue;
    const known = units.get(unit);
    if (known === undefined || isWorse(known, severity)) units.set(unit, severity);
  }
  const chosen = all.filter(({ unit, difference, severity: harm }) => {
    if (difference.code === found.code) return true;
    // An address that is wrong in another way, and no less, has been wrong since the first way.
    const own = units.get(unit);
    return unit !== '' && own !== undefined && !isWorse(own, harm);
  });
  return Map.groupBy(chosen, ({ unit }) => unit);
}

/** Why a finding is false; null: it is true. */
function whyFalse(found: Found, spells: readonly Spell[], times: Times, settle: number) {
  const { since } = found;
  const chains = [...spellsFor(found, spells).values()].flatMap((all) => [...chainsOf(all, times)]);
  const isTrue = chains.some(
    ({ from, to }) => from <= since + rounding && to >= since + settle - rounding,
  );
  if (isTrue) return null;
  const near = chains.filter(({ from, to }) => to > since - 60 && from < found.openedAt + 5);
  const texts = near.map(
    ({ from, to }) => `${(from - since).toFixed(2)} to ${(to - since).toFixed(2)}`,
  );
  return `differed, in seconds after its beginning, from ${texts.join(', ') || 'never'}`;
}

/** The longest part of a time that no outage touches, in seconds. */
function longestSeen(from: number, to: number, outages: readonly Outage[]): number {
  const parts = outages
    .filter((outage) => outage.from < to && outage.to + recovery > from)
    .toSorted((a, b) => a.from - b.from);
  let longest = 0;
  let begin = from;
  for (const outage of parts) {
    longest = Math.max(longest, outage.from - begin);
    begin = Math.max(begin, outage.to + recovery);
  }
  return Math.max(longest, to - begin);
}

/** A finding lists at most this many differences. */
const shownItems = 100;

/** Whether the texts of a finding show a unit, or cannot show all. */
function lists({ object, expected, actual }: Found, unit: string): boolean {
  const text = `${object} ${expected ?? ''} ${actual ?? ''}`;
  return unit === '' || text.includes(unit) || text.split('; ').length > shownItems;
}

function missedOf(evidence: Evidence, found: Map<string, Found[]>): Disagreement[] {
  const { history, times, outages, settle } = evidence;
  const missed: Disagreement[] = [];
  for (const spell of history.spells) {
    const { service, output, unit, difference, severity, start, end } = spell;
    const [from, to] = [times.latest(start), end === null ? history.end : times.earliest(end)];
    if (longestSeen(from, to, outages) < 2 * settle + confirmation) continue;
    const isFound = (found.get(service) ?? []).some(
      (one) =>
        one.code === difference.code &&
        lists(one, unit) &&
        one.openedAt <= times.latest(end) &&
        (one.resolvedAt ?? Infinity) >= times.earliest(start),
    );
    if (isFound) continue;
    const lasted = `${(to - from).toFixed(1)} s from ${from.toFixed(3)} (version ${start})`;
    const text = `${severity} ${output} ${difference.code} ${unit}: ${lasted}`;
    missed.push({ kind: 'missed', service, text: `${service} ${text}` });
  }
  return missed;
}

/** The version that ends a fault. What was deleted comes back under another name. */
function nextVersion({ stamps }: History, { object, service, output, revision }: InjectedFault) {
  const isDeleted = stamps.findLast(
    (it) => it.object === object && it.revision <= revision,
  )?.isDeletion;
  const isNext = (stamp: Stamp): boolean =>
    stamp.object === object ||
    (isDeleted === true && stamp.owner === service && stamp.object.startsWith(`${output} `));
  return stamps.find((stamp) => stamp.revision > revision && isNext(stamp));
}

function unseenOf(evidence: Evidence, found: Map<string, Found[]>): Disagreement[] {
  const { history, times, faults, outages, settle } = evidence;
  const unseen: Disagreement[] = [];
  for (const fault of faults) {
    const { title, service, output, codes, revision } = fault;
    const next = nextVersion(history, fault);
    const from = times.latest(revision);
    const to = next === undefined ? history.end : times.earliest(next.revision);
    if (longestSeen(from, to, outages) < 2 * settle + confirmation) continue;
    const isFound = (found.get(service) ?? []).some(
      (one) =>
        one.output === output &&
        codes.includes(one.code) &&
        one.openedAt >= times.earliest(revision) &&
        one.openedAt <= (next === undefined ? history.end : times.latest(next.revision)),
    );
    if (isFound) continue;
    const what = `${output} ${codes.join(' or ')} for ${(to - from).toFixed(1)} s`;
    const text = `${service} ${title}: ${what}`;
    unseen.push({ kind: 'unseen', service, text });
  }
  return unseen;
}

/** Characters of a text that are shown. */
const shownText = 300;

function textOf(found: Found): string {
  const { code, severity, output, since, openedAt, resolvedAt, cause, expected, actual } = found;
  const times = `since ${since.toFixed(3)}, opened ${openedAt.toFixed(3)}`;
  const end = resolvedAt === null ? 'open' : `resolved ${resolvedAt.toFixed(3)}`;
  const texts = [expected, actual].map((text) => (text ?? 'nothing').slice(0, shownText));
  const what = `${severity} ${serviceOf(found)} ${output} ${code} (${cause ?? 'no cause'})`;
  return `${what} ${times}, ${end}, expected ${texts.join(', actual ')}`;
}

/** All disagreements of what was found with what was the case. */
export function disagreements(evidence: Evidence): Disagreement[] {
  const { history, times, findings, settle } = evidence;
  const spells = Map.groupBy(history.spells, ({ service }) => service);
  const onServices = findings.filter(({ output }) => output !== 'node');
  const found = Map.groupBy(onServices, serviceOf);
  const wrong = onServices.flatMap((one): Disagreement[] => {
    const why = whyFalse(one, spells.get(serviceOf(one)) ?? [], times, settle);
    const service = serviceOf(one);
    return why === null ? [] : [{ kind: 'false', service, text: `${textOf(one)}: ${why}` }];
  });
  return [...wrong, ...missedOf(evidence, found), ...unseenOf(evidence, found)];
}

// Whether findings are true, for tests in which the controllers may be late without being
// disturbed, as on a busy machine: the log of the store decides.

interface Witness {
  /** Ends the log; returns a text for each finding that is false. */
  readonly falseOf: (findings: readonly Found[], settle: number) => Promise<string[]>;
}

/** Begins to log what is stored, before anything of it can be found. */
export async function callWitness(plane: ControlPlane): Promise<Witness> {
  const path = join(plane.directory, 'witness.ndjson.gz');
  rmSync(path, { force: true });
  const log = await startStoreLog(plane.etcd, path, plane.version);
  return {
    async falseOf(findings, settle) {
      const probes = await log.stop();
      if (findings.length === 0) return [];
      const history = await readHistory({ name: path, bytes: createReadStream(path) }, true);
      const times = timesOf(history, probes);
      const evidence = { history, times, findings, faults: [], outages: [], settle };
      return disagreements(evidence).flatMap(({ kind, text }) => (kind === 'false' ? [text] : []));
    },
  };
}

// Compares the findings of a replay with what the recording says was the case (oracle.ts). Here all
// times are those of the recording, so the result is the same on every machine.

interface Replayed {
  readonly findings: readonly Found[];
  readonly wrong: readonly Disagreement[];
}

/** A finding keeps these while it is open. */
const identityOf = ({ namespace, service, output, code, cause, openedAt }: Finding): string =>
  [namespace, service, output, code, cause, openedAt].join(' ');

/** All findings of a replay: as they were last, with the time that they said first. */
async function findingsOf(source: Source, settle: number): Promise<Found[]> {
  const found = new Map<string, Finding>();
  const update = (finding: Finding): void => {
    const id = identityOf(finding);
    found.set(id, { ...finding, since: found.get(id)?.since ?? finding.since });
  };
  const options = { ...auditorDefaults, settle, onOpen: update, onResolve: update };
  const auditor = createAuditor(options);
  const previousPod = (key: string) => auditor.store.listers.pods.get(key);
  const entries = readRecording(source, () => undefined, { previousPod });
  await replay(auditor, entries, { speed: Infinity, until: null });
  for (const finding of auditor.findings.open()) update(finding);
  return [...found.values()];
}

/** `open` gives the recording, each time from its beginning. */
export async function checkReplay(
  open: () => Source,
  settle: number,
  outages: readonly Outage[] = [],
): Promise<Replayed> {
  const findings = await findingsOf(open(), settle);
  const history = await readHistory(open(), false);
  const times = arrivalsOf(history);
  return {
    findings,
    wrong: disagreements({ history, times, findings, faults: [], outages, settle }),
  };
}
