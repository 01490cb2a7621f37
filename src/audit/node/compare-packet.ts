// Compares the expected outcomes of one packet (shadow/forwarding.ts) with the outcome of a walk
// through the node's rules (rules/walk/walk.ts), and describes both for people. Each difference is
// one deviation.
//
// If the walk met unknowns, only a deviation that holds for all of their values counts: an endpoint
// that no packet reaches, an outcome that no packet avoids. Anything else is `unknown`, which is
// neither different nor conform. Two exceptions concern rules of other programs. A rule that sends
// the packet to an unknown place before routing keeps it from its endpoints, while a rule of
// kube-proxy may send it to the right place. And a rule that matches exactly this address counts
// even if its source match cannot be evaluated.

import { joinHostPort } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { TraceStep } from '../../rules/walk/match.ts';
import type { Destination, OutcomeShare, PacketOutcome } from '../../rules/walk/walk.ts';
import type { ExpectedOutcome } from '../../shadow/forwarding.ts';

export type Deviation =
  /** An endpoint that must be used is not. */
  | { readonly kind: 'missing'; readonly endpoint: string }
  /** A destination that must not be used is. */
  | { readonly kind: 'unexpected' | 'share'; readonly endpoint: string }
  /** Some or all packets are rejected, dropped or passed, and must not be. */
  | { readonly kind: 'reject' | 'drop' | 'pass' }
  /** Packets must be rejected or dropped, and are not, or not in that way. */
  | { readonly kind: 'not stopped'; readonly want: 'reject' | 'drop' }
  | { readonly kind: 'not masqueraded' | 'masqueraded' | 'affinity'; readonly endpoint: string }
  /** A rule translates the packet to an unknown address. */
  | { readonly kind: 'shadowed' };

export interface AttributedDeviation {
  readonly deviation: Deviation;
  /** The rule that causes it; null if no single rule does. */
  readonly step: TraceStep | null;
}

export interface PacketComparison {
  readonly verdict: 'conform' | 'different' | 'unknown';
  /** Empty unless the verdict is `different`. */
  readonly deviations: readonly AttributedDeviation[];
}

const unknown: PacketComparison = { verdict: 'unknown', deviations: [] };

/** Probabilities are written with 31 bits, and those of 1,000 endpoints are multiplied. */
export const rounding = 1e-6;

/** Which rules belong to kube-proxy, and what rules of other programs may do. */
export interface RuleOwnership {
  /** The rule is kube-proxy's, in the mode in which it works. */
  isOwn(step: TraceStep): boolean;
  /** Another program may masquerade this packet. */
  isAllowed(endpoint: string, step: TraceStep | null, packet: Packet): boolean;
  /** The rule is another program's and matches exactly this destination. */
  isAbout(step: TraceStep, address: string): boolean;
}

/** Compares with the expected outcome that is nearest. */
export function comparePacket(
  expected: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
  ownership: RuleOwnership,
  packet: Packet,
): PacketComparison {
  const comparisons = expected.map((want) => {
    return { want, deviations: deviationsFrom(want, outcome, ownership, packet) };
  });
  const [nearest] = comparisons.sort((a, b) => a.deviations.length - b.deviations.length);
  if (nearest === undefined) return unknown;
  const { want, deviations } = nearest;
  if (deviations.length === 0) return { verdict: 'conform', deviations };
  if (outcome.unknown.length === 0) return { verdict: 'different', deviations };
  const isSentAnywhere = isSentToUnknownByKubeProxy(outcome, ownership);
  const certain = deviations.filter(
    ({ deviation, step }) =>
      (step !== null && ownership.isAbout(step, packet.dst)) ||
      (!isSentAnywhere &&
        isCertain(deviation, want, outcome) &&
        (deviation.kind !== 'shadowed' || isBeforeRouting(step))),
  );
  return certain.length === 0 ? unknown : { verdict: 'different', deviations: certain };
}

const isBeforeRouting = (step: TraceStep | null): boolean =>
  step === null || ['prerouting', 'output'].includes(step.base.base.hook);

function isSentToUnknownByKubeProxy(
  { destinations }: PacketOutcome,
  ownership: RuleOwnership,
): boolean {
  const destination = destinations.get('unknown');
  if (destination === undefined || !isPossible(destination)) return false;
  const step = translationStep(destination);
  return step !== null && ownership.isOwn(step);
}

/** Whether a deviation holds for all values of the unknowns. */
function isCertain(deviation: Deviation, want: ExpectedOutcome, outcome: PacketOutcome): boolean {
  switch (deviation.kind) {
    case 'missing':
    case 'shadowed':
      return true;
    case 'not stopped':
      return outcome[deviation.want].probability <= rounding;
    case 'reject':
    case 'drop':
    case 'pass':
      return !isReached(want, outcome);
    case 'masqueraded':
    case 'not masqueraded':
      return outcome.destinations.get(deviation.endpoint)?.masqueraded !== 'unknown';
    default:
      return false;
  }
}

/** Whether the expected outcome is possible at all. */
function isReached(want: ExpectedOutcome, outcome: PacketOutcome): boolean {
  if (want.kind !== 'endpoints') return outcome[want.kind].probability > rounding;
  return [...want.endpoints.keys()].some((endpoint) => {
    const destination = outcome.destinations.get(endpoint);
    return destination !== undefined && isPossible(destination);
  });
}

const isPossible = ({ probability, affinity }: Destination): boolean =>
  probability > rounding || affinity;

function deviationsFrom(
  want: ExpectedOutcome,
  outcome: PacketOutcome,
  ownership: RuleOwnership,
  packet: Packet,
): AttributedDeviation[] {
  if (want.kind === 'endpoints') return deviationsFromEndpoints(want, outcome, ownership, packet);
  const found = unexpectedDestinations(new Map(), outcome);
  const { kind } = want;
  for (const other of ['reject', 'drop', 'pass'] as const) {
    if (other === kind || outcome[other].probability <= rounding) continue;
    const step = stopStep(outcome[other]);
    found.push({
      deviation: kind === 'pass' ? { kind: other } : { kind: 'not stopped', want: kind },
      step,
    });
  }
  const isNoted = found.length === 0 || found.some((it) => it.deviation.kind === 'not stopped');
  if (kind !== 'pass' && !isNoted) {
    found.push({ deviation: { kind: 'not stopped', want: kind }, step: null });
  }
  return found;
}

type ExpectedEndpoints = Extract<ExpectedOutcome, { kind: 'endpoints' }>;

function deviationsFromEndpoints(
  { endpoints, affinitySeconds }: ExpectedEndpoints,
  outcome: PacketOutcome,
  ownership: RuleOwnership,
  packet: Packet,
): AttributedDeviation[] {
  const { destinations } = outcome;
  const found = unexpectedDestinations(endpoints, outcome);
  for (const endpoint of endpoints.keys()) {
    if ((destinations.get(endpoint)?.probability ?? 0) <= rounding) {
      found.push({ deviation: { kind: 'missing', endpoint }, step: null });
    }
  }
  for (const kind of ['reject', 'drop', 'pass'] as const) {
    if (outcome[kind].probability <= rounding) continue;
    found.push({ deviation: { kind }, step: stopStep(outcome[kind]) });
  }
  if (found.length === 0) {
    for (const [endpoint, { probability }] of destinations) {
      if (Math.abs(probability - 1 / endpoints.size) <= rounding) continue;
      found.push({ deviation: { kind: 'share', endpoint }, step: null });
    }
  }
  for (const [endpoint, destination] of destinations) {
    const mustMasquerade = endpoints.get(endpoint);
    if (mustMasquerade === undefined || destination.probability <= rounding) continue;
    const isAllowed = (step: TraceStep | null): boolean =>
      ownership.isAllowed(endpoint, step, packet);
    if (!isOwnMasquerade(destination, packet)) {
      found.push(...masqueradeDeviation(endpoint, mustMasquerade, destination, isAllowed));
    }
    const { affinity, affinitySeconds: seconds } = destination;
    const isKept = affinitySeconds === null ? !affinity : affinity && seconds === affinitySeconds;
    if (!isKept) found.push({ deviation: { kind: 'affinity', endpoint }, step: null });
  }
  return found;
}

/** Destinations that are not among the endpoints. */
function unexpectedDestinations(
  endpoints: ReadonlyMap<string, boolean>,
  outcome: PacketOutcome,
): AttributedDeviation[] {
  return [...outcome.destinations].flatMap(([endpoint, destination]) => {
    if (endpoints.has(endpoint) || !isPossible(destination)) return [];
    const step = translationStep(destination);
    if (endpoint === 'unknown') return { deviation: { kind: 'shadowed' }, step };
    return { deviation: { kind: 'unexpected', endpoint }, step };
  });
}

/**
 * A masquerade of a process of the node mostly gives it the address that it has. Only random ports,
 * which old kernels do not support, would show it.
 */
const isOwnMasquerade = (destination: Destination, { from }: Packet): boolean =>
  from === 'node' &&
  destination.masqueraded === 'unknown' &&
  lastStep(destination, ['masquerade']) !== null;

function masqueradeDeviation(
  endpoint: string,
  mustMasquerade: boolean,
  destination: Destination,
  isAllowed: (step: TraceStep | null) => boolean,
): AttributedDeviation[] {
  if (destination.masqueraded === mustMasquerade) return [];
  if (mustMasquerade) {
    const step = translationStep(destination);
    return [{ deviation: { kind: 'not masqueraded', endpoint }, step }];
  }
  const step = lastStep(destination, ['masquerade', 'snat', 'netmap']);
  return isAllowed(step) ? [] : [{ deviation: { kind: 'masqueraded', endpoint }, step }];
}

/** The last rule of the trace with one of these statements. */
const lastStep = (end: OutcomeShare, kinds: readonly string[]): TraceStep | null =>
  end.trace().findLast((step) => hasAny(step, kinds)) ?? null;

/** The rule that chose the destination; null if no rule did. */
export const translationStep = (end: OutcomeShare): TraceStep | null =>
  lastStep(end, ['dnat', 'dnat by map', 'redirect', 'netmap', 'unknown verdict']);

/**
 * The rule that stopped a packet, or exempted it from NAT before it was translated; null if no rule
 * matched it or a policy decided.
 */
export function stopStep(end: OutcomeShare): TraceStep | null {
  const last = end.trace().at(-1);
  if (last !== undefined && hasAny(last, ['drop', 'reject', 'verdict map'])) return last;
  return end.trace().findLast(exemptsFromNAT) ?? null;
}

const exemptsFromNAT = (step: TraceStep): boolean =>
  (step.base.base.hook === 'prerouting' || step.base.base.hook === 'output') &&
  (hasAny(step, ['accept', 'notrack']) ||
    (hasAny(step, ['return']) && step.chain === step.base.chain.name));

const hasAny = ({ rule }: TraceStep, kinds: readonly string[]): boolean =>
  rule.statements.some(({ kind }) => kinds.includes(kind));

const maxListed = 12;

/** The first of these texts, and how many more there are. */
export function listText(texts: readonly string[]): string {
  const more = texts.length - maxListed;
  return texts.slice(0, maxListed).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** Endpoints with the words about each; words about all of them come once. */
function endpointsText(entries: readonly (readonly [string, readonly string[]])[]): string {
  const all = entries.length < 2 ? [] : (entries[0]?.[1] ?? []);
  const shared = all.filter((word) => entries.every(([, words]) => words.includes(word)));
  const texts = entries.map(([endpoint, words]) =>
    [endpoint, ...words.filter((word) => !shared.includes(word))].join(' '),
  );
  const each = shared.length === 0 ? '' : `, each ${shared.join(', ')}`;
  return `${listText(texts.sort())}${each}`;
}

const wordsOf = (masqueraded: boolean | 'unknown', affinitySeconds: number | null): string[] => [
  ...(masqueraded === true ? ['masqueraded'] : []),
  ...(affinitySeconds === null ? [] : [`affinity ${affinitySeconds}s`]),
];

const endWords = { reject: 'rejected', drop: 'dropped', pass: 'untranslated' } as const;

/** The expected outcome of a packet, for people. */
export function expectedText(want: ExpectedOutcome): string {
  if (want.kind !== 'endpoints') return endWords[want.kind];
  const { endpoints, affinitySeconds } = want;
  const texts = [...endpoints].map(
    ([text, masqueraded]) => [text, wordsOf(masqueraded, affinitySeconds)] as const,
  );
  return `${texts.length === 1 ? '' : 'one of '}${endpointsText(texts)}`;
}

/** The actual outcome of a packet, for people. */
function outcomeText(outcome: PacketOutcome): string {
  const percent = (share: number): string => `${Number((100 * share).toPrecision(3))}%`;
  const ends = (['reject', 'drop', 'pass'] as const).filter((end) => outcome[end].probability > 0);
  return endpointsText([
    ...[...outcome.destinations].map(
      ([text, { probability, masqueraded, affinitySeconds }]) =>
        [text, [percent(probability), ...wordsOf(masqueraded, affinitySeconds)]] as const,
    ),
    ...ends.map((end) => [endWords[end], [percent(outcome[end].probability)]] as const),
  ]);
}

/** The packet, its expected outcomes and its actual outcome, for people. */
export function describePacket(
  { packet, origin }: { readonly packet: Packet; readonly origin: string },
  expected: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
): Readonly<Record<'frontend' | 'origin' | 'expected' | 'actual', string>> {
  const { dst, dport, protocol } = packet;
  return {
    frontend: `${joinHostPort(dst, dport)}/${protocol}`,
    origin,
    expected: expected.map(expectedText).join(' or '),
    actual: outcomeText(outcome),
  };
}
