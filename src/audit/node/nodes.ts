// The nodes of a cluster under audit: compares each dump or report of a node's rules with the
// expected forwarding, and opens and resolves findings.
//
// kube-proxy follows the cluster a second or two behind. A difference is pending until every dump
// of a settle window (at least two) has shown it. The first dump without it resolves it. Frontend,
// origin and endpoint identify a difference, so a node that is always slightly late with different
// changes never opens a finding.
//
//   dump or report -> audit-node.ts: differences -> node-findings.ts: findings -> pending.ts
//
// The cluster's state may be newer than the node's. A difference therefore starts at the latest
// change of its Service at the earliest, and every later version of the Service must show it
// (staleness.ts). Without a report a node is unknown: its findings stay open, pending ones restart.
//
// Left out: rules that come and go between two dumps.

import type { Key, Node, Listers } from '../../model/objects.ts';
import type { Packet, ProxyConfig } from '../../model/proxy-config.ts';
import type { RulesDump } from '../../rules/parse/rules-dump.ts';
import type { Lack } from '../../rules/ruleset.ts';
import { expectedForwarding } from '../../shadow/forwarding.ts';
import type { NodeUnknownReason } from '../finding/verdicts.ts';
import type { OwnedDifference, PendingFindings } from '../pending/pending.ts';
import type { ConvergenceSample } from '../service/reconcile.ts';
import type { PacketDifference } from './aggregate.ts';
import { differenceKey } from './aggregate.ts';
import type { NodeAudit, PacketTrace } from './audit-node.ts';
import { auditNodeInSteps, tracePackets } from './audit-node.ts';
import type { NodeClasses } from './node-class.ts';
import { createNodeClasses } from './node-class.ts';
import type { OpenNodeFinding, DesiredFinding } from './node-findings.ts';
import { toPendingItem, toDifference, desiredFindings } from './node-findings.ts';
import type { NodeInput, NodeBehavior } from './node-behavior.ts';
import type { NodeObservation } from './observation.ts';
import { relevantLacks, observeDumps, unreadableReason } from './observation.ts';
import { outliersAmongPeers } from './peers.ts';
import { proxiedPortKey } from './probes.ts';
import type { DifferenceClock, ProgrammingState, NodeReading } from './programming-lag.ts';
import {
  updateClocks,
  readingOf,
  newProgrammingState,
  resetProgrammingState,
} from './programming-lag.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { Divergence, ObservedNode } from './staleness.ts';
import { divergedAt, noteConforming, servicesOfDifference, persistedSince } from './staleness.ts';
import type { NodeVerdict, Ported, PortName } from './verdicts.ts';
import { createPortNames, portVerdicts } from './verdicts.ts';

export interface Nodes {
  /** How kube-proxy is configured; what is not given is as its rules tell, or by default. */
  configure(node: string, given: Partial<ProxyConfig>): void;
  /**
   * Takes in a dump as of this moment and judges the node. `source` tells dumps of one node apart
   * that together are its rules; null: the dump is the same as the last of this source.
   */
  applyDump(node: string, source: string, dump: RulesDump | null, at: number): void;
  /** A dump that cannot be read: the node is unknown until the next. */
  markUnreadable(node: string, source: string, at: number): void;
  /**
   * Takes in what an agent tells of its node as of this moment, in small steps. Returns packets of
   * which the agent must be asked before the node can be judged; none: it was. With `isLast`, what
   * is not known stays unknown.
   */
  applyReport(
    node: string,
    reported: NodeReport,
    at: number,
    isLast: boolean,
  ): Generator<undefined, readonly Packet[]>;
  /** The node cannot be seen any more, for this reason. */
  markUnknown(node: string, reason: NodeUnknownReason): void;
  /** There is no such node any more. */
  remove(node: string, at: number): void;
  summary(now: number): NodesSummary;
  /**
   * Walks the packets of a port of a Service (`name` as Service ports have it) through the rules of
   * a node as they were last seen; null: these, or the node, are not known.
   */
  tracePort(node: string, service: Key, name: string): PacketTrace[] | null;
  /** What stands on the node and its dumps do not tell: it is unknown for that. */
  lacks(node: string): readonly Lack[];
}

/** What an agent tells of its node. */
export interface NodeReport {
  readonly rules: NodeBehavior;
  /** The same text while what it tells is the same. */
  readonly version: string;
  readonly config: ProxyConfig;
  /** For how many seconds there may be no other report. */
  readonly lasting: number;
}

export interface NodesSummary {
  /** The verdicts by node, in the order of their names. */
  readonly verdicts: ReadonlyMap<string, readonly NodeVerdict[]>;
  /** When the oldest difference that is pending was first seen; null: none is. */
  readonly pendingSince: number | null;
}

export interface NodesOptions {
  readonly listers: Listers;
  readonly proxied: ProxyCache;
  readonly settle: PendingFindings;
  /** Seconds; 0: a difference is a finding at once. */
  readonly window: number;
  /** Minor version of the kube-proxies of which the Node does not tell the kubelet's. */
  readonly minor: () => number;
  /** Called after each reading. */
  onReading?(judgement: NodeReading): void;
  onConvergence?(sample: ConvergenceSample): void;
}

interface Options extends NodesOptions {
  readonly portNames: ReturnType<typeof createPortNames>;
  readonly alike: NodeClasses;
  /** The rules of all other nodes that can be seen. */
  readonly othersThan: (state: NodeState) => Iterable<NodeBehavior>;
}

/** Dumps are not as regular as clocks: seconds by which a window may be short. */
const jitter = 0.25;

/** Rules that were not seen for so many windows, and seconds, are not known any more. */
const unseen = { windows: 3, seconds: 60 };

interface NodeState {
  readonly name: string;
  /** What somebody has said of the configuration of its kube-proxy. */
  given: Partial<ProxyConfig>;
  /** null: it could not be read. */
  readonly dumps: Map<string, RulesDump | null>;
  /** null: they must be made of the dumps. */
  sight: NodeObservation | null;
  /** Of the report that was judged. */
  version: string | null;
  /** For how many seconds the rules are known after they were seen. */
  lasting: number;
  /** Why the node cannot be seen; null: it can. */
  blind: NodeUnknownReason | null;
  observed: NodeAudit | null;
  /** What `observed` was made from. */
  madeFrom: string;
  ports: readonly PortName[];
  /** Services that were not as on nodes that are alike. */
  apart: ReadonlySet<Key>;
  readonly left: Map<Key, Divergence>;
  /** The rules are those of the last time. */
  isSame: boolean;
  /** Services that differed the last time. */
  differing: ReadonlySet<Key>;
  readonly clocks: Map<string, DifferenceClock>;
  /** By Service port, or by code where it is the node's. */
  readonly held: Map<string, OpenNodeFinding>;
  verdicts: readonly NodeVerdict[];
  at: number | null;
  readonly following: ProgrammingState;
}

export function createNodes(given: NodesOptions): Nodes {
  const states = new Map<string, NodeState>();
  function* othersThan(state: NodeState): Generator<NodeBehavior> {
    for (const other of states.values()) {
      const isSeen = other !== state && other.blind === null && other.at !== null;
      if (isSeen && other.sight !== null && relevantLacks(other).length === 0)
        yield other.sight.rules;
    }
  }
  const alike = createNodeClasses(given.proxied);
  const options: Options = { ...given, portNames: createPortNames(), alike, othersThan };
  const of = (name: string): NodeState => {
    const known = states.get(name) ?? newState(name);
    states.set(name, known);
    return known;
  };
  return {
    configure(name, given) {
      const state = of(name);
      state.given = given;
      if (state.dumps.size > 0) state.sight = null;
      state.madeFrom = '';
    },
    applyDump(name, source, dump, at) {
      const state = of(name);
      if (dump !== null) {
        state.dumps.set(source, dump);
        state.sight = null;
        state.left.clear();
      }
      judge(options, state, at);
    },
    markUnreadable(name, source, at) {
      const state = of(name);
      state.dumps.set(source, null);
      state.sight = null;
      judge(options, state, at);
    },
    *applyReport(name, { rules, version, config, lasting }, at, isLast) {
      const state = of(name);
      state.isSame = state.version === version;
      if (!state.isSame) state.left.clear();
      Object.assign(state, { sight: { rules, config, families: allFamilies, lacks: [] }, lasting });
      const needed = yield* judging(options, state, at, isLast);
      state.version = needed.length === 0 ? version : null;
      return needed;
    },
    markUnknown(name, reason) {
      of(name).blind = reason;
    },
    remove(name, at) {
      const state = states.get(name);
      if (state !== undefined) release(options, state, at);
      states.delete(name);
    },
    summary: (now) => ({
      verdicts: new Map(
        [...states].sort().flatMap(([name, state]) => verdictsOf(options, name, state, now)),
      ),
      pendingSince: oldestPending(options, states.values()),
    }),
    tracePort: (node, service, name) => walked(options, states.get(node), service, name),
    lacks: (node) => (states.has(node) ? relevantLacks(of(node)) : []),
  };
}

/** Only what is expected of this Service is made: others cost as much as they are many. */
function walked(
  { listers, proxied, minor }: NodesOptions,
  state: NodeState | undefined,
  key: Key,
  name: string,
): PacketTrace[] | null {
  const node = listers.nodes.get(state?.name ?? '');
  const service = proxied.services.get(key);
  if (state === undefined || node === undefined || state.dumps.size === 0) return null;
  if (unreadableReason(state) !== null || service === undefined) return null;
  const seen = observeDumps(state.dumps.values(), node, minor(), state.given);
  const { rules, families } = seen;
  const config = ofKubelet(seen.config, node);
  const { addresses } = node;
  const forwarding = expectedForwarding([service], proxied.slices, node, config, addresses);
  const frontends = forwarding.frontends.filter(({ port }) => families.has(port.family));
  return tracePackets({ forwarding: { ...forwarding, frontends }, node, rules }, name);
}

const allFamilies: ReadonlySet<string> = new Set(['IPv4', 'IPv6']);

const newState = (name: string): NodeState => ({
  name,
  given: {},
  dumps: new Map(),
  sight: null,
  version: null,
  lasting: 0,
  blind: null,
  observed: null,
  madeFrom: '',
  ports: [],
  apart: new Set(),
  left: new Map(),
  isSame: false,
  differing: new Set(),
  clocks: new Map(),
  held: new Map(),
  verdicts: [],
  at: null,
  following: newProgrammingState(),
});

const unknownNode = (reason: NodeUnknownReason): NodeVerdict[] => [
  { port: '', namespace: '', verdict: 'unknown', reason },
];

function verdictsOf(
  { window }: NodesOptions,
  name: string,
  { verdicts, at, blind, lasting }: NodeState,
  now: number,
): [string, readonly NodeVerdict[]][] {
  if (blind !== null) return [[name, unknownNode(blind)]];
  if (at === null) return [];
  const isUnseen = now - at > Math.max(unseen.windows * Math.max(window, lasting), unseen.seconds);
  return [[name, isUnseen && window > 0 ? unknownNode('rules-not-known') : verdicts]];
}

function oldestPending({ window }: NodesOptions, states: Iterable<NodeState>): number | null {
  let oldest = Infinity;
  for (const { clocks, at } of states) {
    for (const clock of clocks.values()) {
      if (!hasStood(clock, at ?? 0, window)) oldest = Math.min(oldest, clock.since);
    }
  }
  return oldest === Infinity ? null : oldest;
}

function judge(options: Options, state: NodeState, at: number): void {
  const steps = judging(options, state, at);
  while (steps.next().done !== true);
}

function* judging(
  options: Options,
  state: NodeState,
  at: number,
  isLast = true,
): Generator<undefined, readonly Packet[]> {
  const node = options.listers.nodes.get(state.name);
  if (node !== undefined) look(options, state, node);
  const reason = node === undefined ? 'node-not-known' : unreadableReason(state);
  if (reason !== null || node === undefined) {
    release(options, state, at);
    state.at = at;
    state.verdicts = unknownNode(reason ?? 'node-not-known');
    resetProgrammingState(state.following);
    options.onReading?.({ node: state.name, at, before: null, differs: null, programmed: [] });
    return [];
  }
  const walked = yield* observe(options, state, node);
  const { observer } = walked;
  const needed = observer.rules.missingPackets();
  if (needed.length > 0 && !isLast) return needed;
  const seen = besideOthers(options, state, walked);
  const { observed } = seen;
  if (state.blind !== null) forgetPending(state);
  const differing = new Set(
    observed.differences.flatMap((one) => servicesOfDifference(options.proxied, one)),
  );
  remember(state, observer, differing);
  for (const sample of updateClocks(state, seen, at)) options.onConvergence?.(sample);
  options.onReading?.(readingOf(state, seen, at));
  const ripe = ripeness(options, state, seen, at);
  const standing = observed.differences.filter((one) => ripe(differenceKey(one)));
  settle(options, state, desiredFindings(state, observed, observer, standing, ripe), at);
  state.verdicts = portVerdicts(state.ports, seen.families, portedOf(observed, standing));
  state.at = at;
  return [];
}

/** Dumps are read together when one of them is new. */
function look(options: Options, state: NodeState, node: Node): void {
  if (state.dumps.size === 0) return;
  state.isSame = state.sight !== null;
  const isRead = ![...state.dumps.values()].includes(null);
  if (isRead)
    state.sight ??= observeDumps(state.dumps.values(), node, options.minor(), state.given);
}

/** Differences that a finding does not hold must be seen to stand anew. */
function forgetPending(state: NodeState): void {
  state.blind = null;
  resetProgrammingState(state.following);
  const held = new Set([...state.held.values()].flatMap(({ keys }) => [...keys]));
  for (const key of state.clocks.keys()) if (!held.has(key)) state.clocks.delete(key);
  state.at = null;
}

/**
 * Which differences have stood for long enough. Those that no finding holds yet must have been
 * differences all that time.
 */
function ripeness(
  { proxied, window }: NodesOptions,
  { clocks, held }: NodeState,
  { observed, observer }: Seen,
  at: number,
): (key: string) => boolean {
  const known = new Set([...held.values()].flatMap(({ keys }) => [...keys]));
  const own = new Map(observed.differences.map((one) => [differenceKey(one), one]));
  const stood = persistedSince(observer);
  return (key) => {
    const clock = clocks.get(key);
    if (clock === undefined || !hasStood(clock, at, window)) return false;
    const difference = own.get(key);
    if (window === 0 || difference === undefined || known.has(key)) return true;
    const [service] = servicesOfDifference(proxied, difference);
    const until = service === undefined ? null : stood(service, key, clock.since);
    if (until === null) return true;
    const later = { ...clock, before: until, since: until };
    clocks.set(key, later);
    return hasStood(later, at, window);
  };
}

/** Versions are many, and kept for a while only: their match is looked for at first sight. */
function remember(state: NodeState, observer: ObservedNode, differing: ReadonlySet<Key>): void {
  for (const key of differing) {
    const isNew = !state.differing.has(key);
    if (state.isSame && isNew && state.at !== null) noteConforming(observer, key, state.at);
    divergedAt(observer, key);
  }
  state.differing = differing;
}

/** What was seen of the node ends with the sight of it. */
function release({ settle }: NodesOptions, state: NodeState, at: number): void {
  for (const { item } of state.held.values()) settle.drop(item, at);
  state.held.clear();
  state.clocks.clear();
}

/** Of the release of its kubelet, where the Node tells it: no dump and no configuration does. */
function ofKubelet(config: ProxyConfig, { kubeletMinor: minor }: Node): ProxyConfig {
  return minor === null || minor === config.minor ? config : { ...config, minor };
}

interface Seen {
  readonly observed: NodeAudit;
  readonly observer: ObservedNode;
  readonly families: ReadonlySet<string>;
}

/** Walks the rules, unless neither they nor what is expected of them has changed. */
function* observe(options: Options, state: NodeState, node: Node): Generator<undefined, Seen> {
  const { proxied } = options;
  const sight = state.sight ?? observeDumps([], node, options.minor(), state.given);
  const { rules, families } = sight;
  const { zone, addresses, externalIPs, podCIDRs } = node;
  const config = ofKubelet({ ...sight.config, ...state.given }, node);
  const observer: ObservedNode = { node, rules, config, proxied, left: state.left };
  const own = rules.localAddresses;
  const ips = [addresses, externalIPs];
  const from = JSON.stringify([proxied.revision(), zone, own, ips, podCIDRs, config]);
  if (state.isSame && from === state.madeFrom && state.observed !== null) {
    return { observed: state.observed, observer, families };
  }
  if (rules.digest !== null) {
    const on = { node, rules, brief: rules.digest, config, own, before: state.apart };
    const { observed: seen, ports, apart } = yield* options.alike.observing(on);
    Object.assign(state, { observed: seen, madeFrom: from, ports, apart });
    return { observed: seen, observer, families };
  }
  const { services, slices } = proxied;
  const whole = expectedForwarding(services.values(), slices, node, config, own);
  const frontends = whole.frontends.filter(({ port }) => families.has(port.family));
  const input: NodeInput = { forwarding: { ...whole, frontends }, node, rules };
  const observed = sized(yield* auditNodeInSteps(input));
  Object.assign(state, { observed, madeFrom: from, ports: options.portNames(whole) });
  return { observed, observer, families };
}

/** What others do tells more of what is unknown. */
function besideOthers({ othersThan }: Options, state: NodeState, seen: Seen): Seen {
  const { observed, observer } = seen;
  const unlike = outliersAmongPeers(observed.doubtful, observer.rules, othersThan(state));
  if (unlike.length === 0) return seen;
  return { ...seen, observed: { ...observed, differences: [...observed.differences, ...unlike] } };
}

/** How much was asked for says enough. */
function sized(observed: NodeAudit): NodeAudit {
  const sizes = [...observed.coverage].map(([key, { size }]) => [key, { size }] as const);
  return { ...observed, coverage: new Map(sizes) };
}

/** Whether all dumps of a window have shown it, and more than one where there is a window. */
const hasStood = ({ before, since }: DifferenceClock, at: number, window: number): boolean =>
  window === 0 || (at > since && at - before >= window - jitter);

/** Opens what is wanted and not open, and resolves what is open and not wanted. */
function settle(
  options: NodesOptions,
  state: NodeState,
  wanted: ReadonlyMap<string, DesiredFinding>,
  at: number,
): void {
  const { held } = state;
  for (const [id, { item }] of held) {
    if (wanted.has(id)) continue;
    options.settle.drop(item, at);
    held.delete(id);
  }
  const opened: OwnedDifference[] = [];
  for (const [id, { finding, since }] of wanted) {
    const known = held.get(id);
    const keys = new Set(finding.differences.map(differenceKey));
    const difference = toDifference(finding);
    if (known !== undefined) {
      known.keys = keys;
      known.item.difference = difference;
      known.item.severity = finding.severity;
      options.settle.reweigh(known.item);
      continue;
    }
    const item = toPendingItem(finding, since, at);
    held.set(id, { item, keys, wide: finding.nodeWide });
    opened.push({ item, namespace: finding.namespace, service: finding.service });
  }
  options.settle.openNow(opened, at);
}

/** Those of which it is known, and those that are in doubt. */
function portedOf(observed: NodeAudit, standing: readonly PacketDifference[]): Ported {
  const names = (list: readonly PacketDifference[]): Set<string> =>
    new Set(list.flatMap(({ port, harmless }) => (port && !harmless ? proxiedPortKey(port) : [])));
  const { differences, unknown } = observed;
  return { different: names(standing), pending: names(differences), unknown };
}
