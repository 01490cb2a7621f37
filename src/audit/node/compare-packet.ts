// One packet: what must come of it (shadow/forwarding.ts) held against what the node's rules make
// of it (rules/walk.ts). Each way in which they differ is one deviation; none means conform.
//
// Where the walk met unknowns, only what holds whatever they are is a deviation: an endpoint that
// no answer reaches, a fate that no answer avoids. What merely may be is `unknown`: not a
// deviation, and not conform either. One exception: a rule of somebody else that sends the packet
// where the dump does not tell stands between the Service and its endpoints, whatever it does; of
// kube-proxy's own it may be the right place, and once the packet is routed it decides no more than
// whether it goes on, as a queue to a program does. So does a rule of somebody else that names the
// very address, though it be for senders that no dump can tell.

import type { Packet } from '../../model/proxy-config.ts';
import type { TraceStep } from '../../rules/walk/match.ts';
import type { Destination, OutcomeShare as Walked, PacketOutcome } from '../../rules/walk/walk.ts';
import type { ExpectedOutcome } from '../../shadow/forwarding.ts';

export type Deviation =
  /** An endpoint that must be used is not. */
  | { readonly kind: 'missing'; readonly endpoint: string }
  /** A destination is used that must not be. */
  | { readonly kind: 'unexpected'; readonly endpoint: string; readonly share: number }
  | {
      readonly kind: 'share';
      readonly endpoint: string;
      readonly share: number;
      readonly want: number;
    }
  /** Some or all packets are rejected, dropped or let pass, and must not be. */
  | { readonly kind: 'reject' | 'drop' | 'pass'; readonly share: number }
  /** Must be rejected or dropped, and is not, or not in that way. */
  | { readonly kind: 'not stopped'; readonly want: 'reject' | 'drop' }
  | { readonly kind: 'not masqueraded' | 'masqueraded'; readonly endpoint: string }
  | { readonly kind: 'affinity'; readonly endpoint: string; readonly seconds: number | null }
  /** A rule translates the packet, and the dump does not tell into what. */
  | { readonly kind: 'shadowed' };

/** A deviation with the rule that makes it; null: the rules as a whole, or what they lack. */
export interface AttributedDeviation {
  readonly deviation: Deviation;
  readonly step: TraceStep | null;
}

export type PacketComparison =
  | { readonly verdict: 'conform' | 'unknown'; readonly deviants: readonly [] }
  | { readonly verdict: 'different'; readonly deviants: readonly AttributedDeviation[] };

const conform: PacketComparison = { verdict: 'conform', deviants: [] };
const unknown: PacketComparison = { verdict: 'unknown', deviants: [] };

/** Probabilities are written with 31 bits, and a set of 1,000 endpoints multiplies them. */
export const rounding = 1e-6;

/** What must be known of rules besides what they do. */
export interface RuleOwnership {
  /** The rule is kube-proxy's, in the mode in which it works. */
  isOwn(step: TraceStep): boolean;
  /** A masquerade that kube-proxy does not ask for is none of its business. */
  isAllowed(endpoint: string, step: TraceStep | null, packet: Packet): boolean;
  /** The rule is somebody else's and asks for just this destination: it is about the Service. */
  isAbout(step: TraceStep, address: string): boolean;
}

/** Compares with whichever of the right fates is nearest. */
export function comparePacket(
  fates: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
  view: RuleOwnership,
  packet: Packet,
): PacketComparison {
  let nearest: {
    readonly fate: ExpectedOutcome;
    readonly deviants: readonly AttributedDeviation[];
  } | null = null;
  for (const fate of fates) {
    const deviants = deviantsOf(fate, outcome, view, packet);
    if (deviants.length === 0) return conform;
    if (nearest === null || deviants.length < nearest.deviants.length) {
      nearest = { fate, deviants };
    }
  }
  if (nearest === null) return unknown;
  const { fate, deviants } = nearest;
  if (outcome.unknown.length === 0) return { verdict: 'different', deviants };
  const isUntold = isSentUntold(outcome, view);
  const certain = deviants.filter(
    ({ deviation, step }) =>
      (step !== null && view.isAbout(step, packet.dst)) ||
      (!isUntold &&
        isCertain(deviation, fate, outcome) &&
        (deviation.kind !== 'shadowed' || isBeforeRouting(step))),
  );
  return certain.length === 0 ? unknown : { verdict: 'different', deviants: certain };
}

const isBeforeRouting = (step: TraceStep | null): boolean =>
  step === null || ['prerouting', 'output'].includes(step.base.base.hook);

/** Whether kube-proxy's own rules may send it anywhere. */
function isSentUntold({ destinations }: PacketOutcome, view: RuleOwnership): boolean {
  const destination = destinations.get('unknown');
  if (destination === undefined || !isPossible(destination)) return false;
  const step = translation(destination);
  return step !== null && view.isOwn(step);
}

/** Whether a deviation holds whatever the unknowns of the walk are. */
function isCertain(deviation: Deviation, fate: ExpectedOutcome, outcome: PacketOutcome): boolean {
  switch (deviation.kind) {
    case 'missing':
    case 'shadowed':
      return true;
    case 'not stopped':
      return outcome[deviation.want].probability <= rounding;
    case 'reject':
    case 'drop':
    case 'pass':
      return !isReached(fate, outcome);
    case 'masqueraded':
    case 'not masqueraded':
      return outcome.destinations.get(deviation.endpoint)?.masqueraded !== 'unknown';
    default:
      return false;
  }
}

/** Whether the fate is possible at all. */
function isReached(fate: ExpectedOutcome, outcome: PacketOutcome): boolean {
  if (fate.kind !== 'endpoints') return outcome[fate.kind].probability > rounding;
  return [...fate.endpoints.keys()].some((endpoint) => {
    const destination = outcome.destinations.get(endpoint);
    return destination !== undefined && isPossible(destination);
  });
}

const isPossible = ({ probability, affinity }: Destination): boolean =>
  probability > rounding || affinity;

function deviantsOf(
  fate: ExpectedOutcome,
  outcome: PacketOutcome,
  view: RuleOwnership,
  packet: Packet,
): AttributedDeviation[] {
  if (fate.kind === 'endpoints') return fromEndpoints(fate, outcome, view, packet);
  const found = strangers(new Map(), outcome);
  for (const other of ['reject', 'drop', 'pass'] as const) {
    if (other === fate.kind || outcome[other].probability <= rounding) continue;
    const { probability: share } = outcome[other];
    const step = stopStep(outcome[other]);
    const isStop = fate.kind !== 'pass';
    const deviation: Deviation = isStop
      ? { kind: 'not stopped', want: fate.kind }
      : { kind: other, share };
    found.push({ deviation, step });
  }
  if (found.length > 0 && fate.kind !== 'pass' && !found.some(isNotStopped)) {
    found.push({ deviation: { kind: 'not stopped', want: fate.kind }, step: null });
  }
  return found;
}

const isNotStopped = ({ deviation }: AttributedDeviation): boolean =>
  deviation.kind === 'not stopped';

type Endpoints = Extract<ExpectedOutcome, { kind: 'endpoints' }>;

function fromEndpoints(
  fate: Endpoints,
  outcome: PacketOutcome,
  view: RuleOwnership,
  packet: Packet,
): AttributedDeviation[] {
  const found = strangers(fate.endpoints, outcome);
  for (const endpoint of fate.endpoints.keys()) {
    const destination = outcome.destinations.get(endpoint);
    if (destination === undefined || destination.probability <= rounding) {
      found.push({ deviation: { kind: 'missing', endpoint }, step: null });
    }
  }
  for (const kind of ['reject', 'drop', 'pass'] as const) {
    const { probability: share } = outcome[kind];
    if (share > rounding) found.push({ deviation: { kind, share }, step: stopStep(outcome[kind]) });
  }
  if (found.length === 0) found.push(...skewed(fate, outcome));
  for (const [endpoint, destination] of outcome.destinations) {
    const wanted = fate.endpoints.get(endpoint);
    if (wanted === undefined || destination.probability <= rounding) continue;
    const isAllowed = (step: TraceStep | null): boolean => view.isAllowed(endpoint, step, packet);
    if (!isOwnMask(destination, packet)) {
      found.push(...masqueradeOf(endpoint, wanted, destination, isAllowed));
    }
    found.push(...affinityOf(endpoint, fate.affinitySeconds, destination));
  }
  return found;
}

/** Destinations that are none of the endpoints. */
function strangers(
  endpoints: ReadonlyMap<string, boolean>,
  outcome: PacketOutcome,
): AttributedDeviation[] {
  return [...outcome.destinations].flatMap(([endpoint, destination]) => {
    if (endpoints.has(endpoint) || !isPossible(destination)) return [];
    const step = translation(destination);
    if (endpoint === 'unknown') return { deviation: { kind: 'shadowed' }, step };
    return { deviation: { kind: 'unexpected', endpoint, share: destination.probability }, step };
  });
}

function skewed({ endpoints }: Endpoints, { destinations }: PacketOutcome): AttributedDeviation[] {
  const want = 1 / endpoints.size;
  return [...destinations].flatMap(([endpoint, { probability: share }]) =>
    Math.abs(share - want) <= rounding
      ? []
      : { deviation: { kind: 'share', endpoint, share, want }, step: null },
  );
}

/**
 * A process of the node is masqueraded by the address that it has, most likely: without random
 * ports, which old kernels do not draw, nothing shows.
 */
const isOwnMask = (destination: Destination, { from }: Packet): boolean =>
  from === 'node' &&
  destination.masqueraded === 'unknown' &&
  lastOf(destination, ['masquerade']) !== null;

function masqueradeOf(
  endpoint: string,
  wanted: boolean,
  destination: Destination,
  isAllowed: (step: TraceStep | null) => boolean,
): AttributedDeviation[] {
  const { masqueraded } = destination;
  if (masqueraded === wanted) return [];
  if (wanted) {
    return [{ deviation: { kind: 'not masqueraded', endpoint }, step: translation(destination) }];
  }
  const step = lastOf(destination, ['masquerade', 'snat', 'netmap']);
  return isAllowed(step) ? [] : [{ deviation: { kind: 'masqueraded', endpoint }, step }];
}

function affinityOf(
  endpoint: string,
  want: number | null,
  destination: Destination,
): AttributedDeviation[] {
  const { affinity, affinitySeconds } = destination;
  const right = want === null ? !affinity : affinity && affinitySeconds === want;
  const seconds = affinity ? affinitySeconds : null;
  return right ? [] : [{ deviation: { kind: 'affinity', endpoint, seconds }, step: null }];
}

/** The last rule on the way that does one of these things. */
function lastOf(fate: Walked, kinds: readonly string[]): TraceStep | null {
  return (
    fate.trace().findLast(({ rule }) => rule.statements.some(({ kind }) => kinds.includes(kind))) ??
    null
  );
}

/** The rule that said where the packet goes; null: none did. */
export const translation = (fate: Walked): TraceStep | null =>
  lastOf(fate, ['dnat', 'dnat by map', 'redirect', 'netmap', 'unknown verdict']);

/**
 * The rule that stopped a packet, or took it out of NAT before it was translated; null: none did,
 * no rule took notice of it or a policy decided.
 */
export function stopStep(fate: Walked): TraceStep | null {
  const last = fate.trace().at(-1);
  if (last !== undefined && hasAny(last, ['drop', 'reject', 'verdict map'])) return last;
  return fate.trace().findLast(takesOut) ?? null;
}

const takesOut = (step: TraceStep): boolean =>
  (step.base.base.hook === 'prerouting' || step.base.base.hook === 'output') &&
  (hasAny(step, ['accept', 'notrack']) ||
    (hasAny(step, ['return']) && step.chain === step.base.chain.name));

const hasAny = ({ rule }: TraceStep, kinds: readonly string[]): boolean =>
  rule.statements.some(({ kind }) => kinds.includes(kind));

// For people.

const shown = 12;

/** Some of many, for people. */
export function listText(texts: readonly string[]): string {
  const more = texts.length - shown;
  return texts.slice(0, shown).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** Endpoints with the words about each; those that are about all of them are said once. */
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

const words = { reject: 'rejected', drop: 'dropped', pass: 'untranslated' } as const;

/** What should come of a packet, for people. */
export function fateText(fate: ExpectedOutcome): string {
  if (fate.kind !== 'endpoints') return words[fate.kind];
  const { endpoints, affinitySeconds } = fate;
  const texts = [...endpoints].map(([text, masked]): [string, string[]] => [
    text,
    wordsOf(masked, affinitySeconds),
  ]);
  return `${texts.length === 1 ? '' : 'one of '}${endpointsText(texts)}`;
}

const percent = (share: number): string => `${Number((100 * share).toPrecision(3))}%`;

/** What does come of it, for people. */
function outcomeText({ destinations, reject, drop, pass }: PacketOutcome): string {
  const others = { [words.reject]: reject, [words.drop]: drop, [words.pass]: pass };
  const rest = Object.entries(others).filter(([, { probability }]) => probability > 0);
  return endpointsText([
    ...[...destinations].map(
      ([text, { probability, masqueraded, affinitySeconds }]): [string, string[]] => [
        text,
        [percent(probability), ...wordsOf(masqueraded, affinitySeconds)],
      ],
    ),
    ...rest.map(([name, { probability }]): [string, string[]] => [name, [percent(probability)]]),
  ]);
}

/** What was asked, what should have come of it and what did, for people. */
export function describePacket(
  { packet, origin }: { readonly packet: Packet; readonly origin: string },
  fates: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
): Readonly<Record<'frontend' | 'origin' | 'expected' | 'actual', string>> {
  const { dst, dport, protocol } = packet;
  const address = dst.includes(':') ? `[${dst}]` : dst;
  return {
    frontend: `${address}:${dport}/${protocol}`,
    origin,
    expected: fates.map(fateText).join(' or '),
    actual: outcomeText(outcome),
  };
}
