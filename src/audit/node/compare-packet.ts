// Compares the expected outcomes of one packet (shadow/forwarding.ts) with the outcome of a walk
// through the node's rules (rules/walk/walk.ts), and finds the rules of other programs in it.
//
// If the walk met unknowns, only a deviation that holds for all of their values counts, with two
// exceptions: a rule of another program that sends the packet to an unknown place before routing,
// and one that matches exactly this address, even if its source match cannot be evaluated.
//
// Chain names show only which program a rule belongs to. Another program may masquerade a packet
// that leaves the pods' ranges, or one of another node's pod that this node forwards again: without
// that, answers would take another way, and such a pod sends to cluster IPs here only if the
// network routes the service range to nodes (pkg/proxy/nftables/proxier.go setupNFTables,
// kubernetes@v1.36.3). A rule that stops what was sent to one endpoint is most likely a network
// policy about that pod (docs/decisions/0024).
//
// Left out: frontends of other programs.

import {
  type Address,
  familyOf,
  formatAddress,
  ipOf,
  isWithin,
  isWithinAny,
  parseCIDR,
  type Range,
} from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { ExpectedOutcome, Packet } from '../../model/proxy-config.ts';
import { ciliumTable } from '../../rules/cilium/packet-outcome.ts';
import type { PacketField } from '../../rules/ruleset.ts';
import { forkedTooOften } from '../../rules/walk/walk-cache.ts';
import type { TraceStep } from '../../rules/walk/walk-state.ts';
import type { Destination, OutcomeShare, PacketOutcome } from '../../rules/walk/walk.ts';
import type { Forwarding } from '../../shadow/forwarding.ts';

/**
 * - missing: an endpoint that must be used is not
 * - unexpected: a destination that must not be used is
 * - reject, drop, pass: some or all packets are, and must not be
 * - not rejected, not dropped: packets must be, and are not, or are stopped in another way
 * - shadowed: a rule translates the packet to an unknown address
 */
export interface Deviation {
  readonly kind:
    | ('missing' | 'unexpected' | 'share' | 'masqueraded' | 'not masqueraded' | 'affinity')
    | ('reject' | 'drop' | 'pass' | 'not rejected' | 'not dropped' | 'shadowed');
  /** null if it is about all packets. */
  readonly endpoint: string | null;
  /** The rule that causes it; null if no single rule does. */
  readonly step: TraceStep | null;
}

/** Probabilities are written with 31 bits, and those of 1,000 endpoints are multiplied. */
export const rounding = 1e-6;

interface ProxySite {
  readonly mode: string;
  readonly mayMasquerade: ReturnType<typeof allowedMasquerade>;
  readonly isCheckedClusterIP: ReturnType<typeof checkedClusterIPs>;
}

/** Compares with the nearest expected outcome, `want`; has deviations only if it is different. */
export function comparePacket(
  expected: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
  packet: Packet,
  site: ProxySite,
) {
  const comparisons = expected.map((want) => ({
    want,
    deviations:
      want.kind === 'endpoints'
        ? deviationsFromEndpoints(want, outcome, packet, site)
        : deviationsFromEnd(want.kind, outcome),
  }));
  const [nearest] = comparisons.sort((a, b) => a.deviations.length - b.deviations.length);
  if (nearest === undefined) return { verdict: 'unknown' as const, want: null, deviations: [] };
  const { want, deviations } = nearest;
  if (deviations.length === 0) return { verdict: 'conform' as const, want, deviations };
  if (isStoppedAsBogon(outcome, packet)) {
    return { verdict: 'unknown' as const, want, deviations: [] };
  }
  if (outcome.unknown.length === 0) return { verdict: 'different' as const, want, deviations };
  const anywhere = outcome.destinations.get('unknown');
  const step = anywhere && isPossible(anywhere) ? translationStep(anywhere) : null;
  const isSentAnywhere =
    step !== null &&
    isKubernetesRule(step) &&
    (site.mode === 'nftables') === (step.base.table.name === 'kube-proxy');
  const isCut = outcome.unknown.some(({ reason }) => reason === forkedTooOften);
  const certain = deviations.filter(
    (deviation) =>
      (deviation.step !== null && isForeignRuleAbout(deviation.step, packet.dst)) ||
      (!isSentAnywhere && !isCut && isCertain(deviation, want, outcome)),
  );
  const verdict = certain.length === 0 ? ('unknown' as const) : ('different' as const);
  return { verdict, want, deviations: certain };
}

const documentation = [
  '192.0.2.0/24',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '2001:db8::/32',
].flatMap((text) => parseCIDR(text) ?? []);

/**
 * Whether another program stops the packet for its source. That is an address for documentation,
 * in place of all clients: a rule against bogons says nothing about them.
 */
function isStoppedAsBogon(outcome: PacketOutcome, { from, src }: Packet): boolean {
  if (from !== 'outside' || !isWithinAny(src, documentation)) return false;
  return ends.some((end) => {
    const stop = outcome[end];
    const step = stop.probability > rounding ? stopStep(stop) : null;
    if (step === null || isKubernetesRule(step)) return false;
    const callers = stop.trace().filter((it) => it === step || jumpsTo(it, step.chain));
    return callers.some(asksBogon);
  });
}

const asksBogon = ({ rule }: TraceStep): boolean =>
  rule.statements.some(
    (it) =>
      it.kind === 'field' &&
      it.field === 'source' &&
      !it.negate &&
      it.ranges.some(({ low, high }) =>
        documentation.some((range) => isWithin(low, range) && isWithin(high, range)),
      ),
  );

function isCertain(deviation: Deviation, want: ExpectedOutcome, outcome: PacketOutcome): boolean {
  const { kind, endpoint, step } = deviation;
  const { destinations } = outcome;
  if (kind === 'missing') return true;
  if (kind === 'unexpected' || kind === 'share' || kind === 'affinity') return false;
  if (kind === 'shadowed') return step !== null && isTranslatedElsewhere(step);
  if (kind === 'masqueraded' || kind === 'not masqueraded') {
    return destinations.get(endpoint ?? '')?.masqueraded !== 'unknown';
  }
  if (want.kind !== 'endpoints') return outcome[want.kind].probability <= rounding;
  return ![...destinations].some(([text, it]) => want.endpoints.has(text) && isPossible(it));
}

/** A queue or a target that is not modelled may also let the packet go on as it is. */
const isTranslatedElsewhere = (step: TraceStep): boolean =>
  isBeforeRouting(step) && !hasAny(step, ['unknown verdict']);

const isPossible = ({ probability, affinity }: Destination): boolean =>
  probability > rounding || affinity;

export const ends = ['reject', 'drop', 'pass'] as const;

const endsOf = (outcome: PacketOutcome, except: string) =>
  ends
    .filter((end) => end !== except && outcome[end].probability > rounding)
    .map((kind) => ({ kind, endpoint: null, step: stopStep(outcome[kind]) }));

function deviationsFromEnd(want: 'reject' | 'drop' | 'pass', outcome: PacketOutcome): Deviation[] {
  const sent = unexpectedDestinations(new Map(), outcome);
  const others = endsOf(outcome, want);
  if (want === 'pass') return [...sent, ...others];
  const kind = want === 'reject' ? 'not rejected' : 'not dropped';
  const isOnlySent = others.length === 0 && sent.length > 0;
  const stops = isOnlySent ? [{ endpoint: null, step: null }] : others;
  return [...sent, ...stops.map((stop) => ({ ...stop, kind }) as const)];
}

function deviationsFromEndpoints(
  { endpoints, affinitySeconds }: Extract<ExpectedOutcome, { kind: 'endpoints' }>,
  outcome: PacketOutcome,
  packet: Packet,
  { mayMasquerade, isCheckedClusterIP }: ProxySite,
): Deviation[] {
  const { destinations } = outcome;
  const found = unexpectedDestinations(endpoints, outcome);
  const add = (kind: Deviation['kind'], endpoint: string, step: TraceStep | null = null): void => {
    found.push({ kind, endpoint, step });
  };
  const missing: string[] = [];
  for (const endpoint of endpoints.keys()) {
    const probability = destinations.get(endpoint)?.probability ?? 0;
    if (probability <= rounding) missing.push(endpoint);
  }
  const stops = endsOf(outcome, '').map((stop) => {
    const { kind, step } = stop;
    if (step === null || translationStep(outcome[kind]) === null) return { ...stop, own: [] };
    return { ...stop, own: missing.filter((it) => isCheckedClusterIP(ipOf(it), step)) };
  });
  for (const endpoint of missing) {
    if (!stops.some(({ own }) => own.includes(endpoint))) add('missing', endpoint);
  }
  for (const { own, ...stop } of stops) {
    const rest = outcome[stop.kind].probability - own.length / endpoints.size;
    if (Math.abs(rest) > rounding) found.push(stop);
  }
  if (found.length === 0) {
    for (const [endpoint, { probability }] of destinations) {
      if (Math.abs(probability - 1 / endpoints.size) > rounding) add('share', endpoint);
    }
  }
  for (const [endpoint, destination] of destinations) {
    const mustMasquerade = endpoints.get(endpoint);
    if (mustMasquerade === undefined || destination.probability <= rounding) continue;
    const { masqueraded, affinity, affinitySeconds: seconds } = destination;
    // A masquerade of a process of the node mostly gives it the address that it has.
    const isOpen = packet.from === 'node' && masqueraded === 'unknown';
    const isUnchanged = isOpen && lastStep(destination, ['masquerade']) !== null;
    if (masqueraded !== mustMasquerade && !isUnchanged) {
      const step = lastStep(destination, ['masquerade', 'snat', 'netmap']);
      if (mustMasquerade) add('not masqueraded', endpoint, translationStep(destination));
      else if (!mayMasquerade(endpoint, step, packet)) add('masqueraded', endpoint, step);
    }
    const isKept = affinitySeconds === null ? !affinity : affinity && seconds === affinitySeconds;
    if (!isKept) add('affinity', endpoint);
  }
  return found;
}

const unexpectedDestinations = (
  endpoints: ReadonlyMap<string, boolean>,
  { destinations }: PacketOutcome,
): Deviation[] =>
  [...destinations].flatMap(([endpoint, destination]) => {
    if (endpoints.has(endpoint) || !isPossible(destination)) return [];
    const step = translationStep(destination);
    return endpoint === 'unknown'
      ? { kind: 'shadowed', endpoint: null, step }
      : { kind: 'unexpected', endpoint, step };
  });

export function listText(texts: readonly string[]): string {
  const more = texts.length - 12;
  return texts.slice(0, 12).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

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

const endWords = { reject: 'rejected', drop: 'dropped', pass: 'not forwarded' } as const;

export function expectedText(want: ExpectedOutcome): string {
  if (want.kind !== 'endpoints') return endWords[want.kind];
  const texts = [...want.endpoints].map(
    ([text, masqueraded]) => [text, wordsOf(masqueraded, want.affinitySeconds)] as const,
  );
  return `${texts.length === 1 ? '' : 'one of '}${endpointsText(texts)}`;
}

const percentText = (probability: number): string =>
  `${Number((100 * probability).toPrecision(3))}%`;

/** What a deviation expects of its endpoint, and what happens; `null` without an endpoint. */
export function sidesOf(
  { kind, endpoint }: Deviation,
  want: ExpectedOutcome,
  { destinations }: PacketOutcome,
): readonly [expected: string | null, actual: string | null] | null {
  if (endpoint === null) return null;
  const got = destinations.get(endpoint);
  const shareText = (probability: number): string =>
    `receives ${percentText(probability)} of connections`;
  const affinityText = (seconds: number | null): string =>
    seconds === null ? 'no session affinity' : `session affinity of ${seconds} s`;
  if (kind === 'masqueraded') return ['keeps the source address', 'masqueraded'];
  if (kind === 'not masqueraded') return ['masqueraded', 'keeps the source address'];
  if (want.kind === 'endpoints') {
    const wanted = shareText(1 / want.endpoints.size);
    if (kind === 'missing') return [wanted, null];
    if (kind === 'share') return [wanted, shareText(got?.probability ?? 0)];
    if (kind === 'affinity') {
      const seconds = got?.affinity === true ? got.affinitySeconds : null;
      return [affinityText(want.affinitySeconds), affinityText(seconds)];
    }
  }
  return [null, shareText(got?.probability ?? 0)];
}

export function outcomeText(outcome: PacketOutcome): string {
  const percent = ({ probability }: OutcomeShare): string => percentText(probability);
  return endpointsText([
    ...[...outcome.destinations].map(([text, destination]) => {
      const { masqueraded, affinitySeconds } = destination;
      return [text, [percent(destination), ...wordsOf(masqueraded, affinitySeconds)]] as const;
    }),
    ...ends
      .filter((end) => outcome[end].probability > 0)
      .map((end) => [endWords[end], [percent(outcome[end])]] as const),
  ]);
}

/**
 * Chains of kube-proxy and the kubelet since 1.20; other programs, as kube-router, use the prefix.
 * pkg/proxy/{iptables,ipvs,userspace}/proxier.go, pkg/kubelet/kubelet_network_linux.go.
 */
const kubernetesChains = new RegExp(
  `^KUBE-(?:${[
    'SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|MARK-DROP|FORWARD|FIREWALL',
    'PROXY-FIREWALL|PROXY-CANARY|PORTALS-(?:CONTAINER|HOST)|NODEPORT-(?:CONTAINER|HOST|NON-LOCAL)',
    'LOAD-BALANCER|NODE-PORT|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER',
    'KUBELET-CANARY|IPTABLES-HINT',
    '(?:SVC|SVL|EXT|XLB|FW|SEP)-[A-Z2-7]{16}',
  ].join('|')})$`,
);

export const isKubernetesRule = ({ chain, base }: TraceStep): boolean =>
  base.table.name === 'kube-proxy' ||
  base.table.name === ciliumTable ||
  kubernetesChains.test(chain);

/** The rule is another program's and matches exactly this destination address. */
export function isForeignRuleAbout(step: TraceStep, address: string): boolean {
  if (isKubernetesRule(step)) return false;
  const destination = onlyValue(step, 'destination');
  return destination !== null && formatAddress(destination) === address;
}

/** The one value that a rule matches a field with; null if there are none or several. */
export function onlyValue({ rule }: TraceStep, field: PacketField): Address | null {
  for (const statement of rule.statements) {
    if (statement.kind !== 'field' || statement.field !== field || statement.negate) continue;
    const [range] = statement.ranges;
    if (statement.ranges.length === 1 && range?.low === range?.high) return range?.low ?? null;
  }
  return null;
}

/** Returns a function that says whether a rule of another program may masquerade a packet. */
export function allowedMasquerade({ config, ports }: Forwarding, { podCIDRs }: Node) {
  const ofNode = podCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  const ofCluster = config.clusterCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  const isOnNode = (ip: string): boolean => isWithinAny(ip, ofNode);
  const isPod = (ip: string): boolean => isOnNode(ip) || isWithinAny(ip, ofCluster);
  const clusterIPs = new Set(ports.map(({ clusterIP }) => clusterIP));
  return (endpoint: string, step: TraceStep | null, { from, src, dst }: Packet): boolean => {
    if (step === null || isKubernetesRule(step)) return false;
    const ip = ipOf(endpoint);
    if (!isPod(ip)) return true;
    const isForwarded = from === 'outside' && podCIDRs.length > 0 && isPod(src) && !isOnNode(src);
    return isForwarded && (clusterIPs.has(dst) || !isOnNode(ip));
  };
}

/**
 * Returns a function that says whether kube-proxy's own rule stops what is sent to an address of
 * the service range, also for an endpoint there: in nftables mode the chain cluster-ips-check
 * rejects active cluster IPs and drops the others (setupNFTables in
 * pkg/proxy/nftables/proxier.go, kubernetes@v1.37.2). The range is no part of the objects: it
 * contains all cluster IPs, no pod and no node.
 */
export function checkedClusterIPs({ config, ports }: Forwarding, node: Node) {
  // Such a rule is rare, so nothing is prepared for it.
  const isServiceRange = (ranges: readonly Range[], family: string): boolean =>
    ports.every(({ clusterIP: ip }) => familyOf(ip) !== family || isWithinAny(ip, ranges)) &&
    !node.addresses.some((ip) => isWithinAny(ip, ranges)) &&
    ![...node.podCIDRs, ...config.clusterCIDRs]
      .flatMap((text) => parseCIDR(text) ?? [])
      .some((pod) => ranges.some(({ low, high }) => pod.low <= high && low <= pod.high));
  return (ip: string, { chain, base, rule }: TraceStep): boolean => {
    if (chain !== 'cluster-ips-check' || base.table.name !== 'kube-proxy') return false;
    const match = rule.statements.find((it) => it.kind === 'field' && it.field === 'destination');
    const isActive = ports.some(({ clusterIP }) => clusterIP === ip);
    if (match?.kind !== 'field' || match.negate) return isActive;
    return !isActive && isWithinAny(ip, match.ranges) && isServiceRange(match.ranges, familyOf(ip));
  };
}

/** The rule of another program that stopped a packet to an endpoint; null if another one did. */
export function policyRule(stopped: OutcomeShare, ips: ReadonlySet<string>): TraceStep | null {
  const step = stopStep(stopped);
  const translation = translationStep(stopped);
  if (step === null || translation === null || isKubernetesRule(step)) return null;
  const trace = stopped.trace();
  const isAboutEndpoint = trace
    .slice(trace.indexOf(translation) + 1)
    .filter((it) => it === step || jumpsTo(it, step.chain))
    .some((it) => [...ips].some((ip) => isForeignRuleAbout(it, ip)));
  return isAboutEndpoint ? step : null;
}

const jumpsTo = ({ rule }: TraceStep, chain: string): boolean =>
  rule.statements.some((it) => (it.kind === 'jump' || it.kind === 'goto') && it.chain === chain);

const isBeforeRouting = ({ base }: TraceStep): boolean =>
  base.base.hook === 'prerouting' || base.base.hook === 'output';

const lastStep = (end: OutcomeShare, kinds: readonly string[]): TraceStep | null =>
  end.trace().findLast((step) => hasAny(step, kinds)) ?? null;

/** The rule that chose the destination; null if no rule did. */
export const translationStep = (end: OutcomeShare): TraceStep | null =>
  lastStep(end, ['dnat', 'dnat by map', 'redirect', 'netmap', 'unknown verdict']);

/** The rule that stopped a packet or exempted it from NAT; null if none did or a policy decided. */
function stopStep(end: OutcomeShare): TraceStep | null {
  const last = end.trace().at(-1);
  if (last !== undefined && hasAny(last, ['drop', 'reject', 'verdict map'])) return last;
  return end.trace().findLast(exemptsFromNAT) ?? null;
}

const exemptsFromNAT = (step: TraceStep): boolean =>
  isBeforeRouting(step) &&
  (hasAny(step, ['accept', 'notrack']) ||
    (hasAny(step, ['return']) && step.chain === step.base.chain.name));

export const hasAny = ({ rule }: TraceStep, kinds: readonly string[]): boolean =>
  rule.statements.some(({ kind }) => kinds.includes(kind));
