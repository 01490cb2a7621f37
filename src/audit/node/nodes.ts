// Compares each dump or report of a node's rules with the expected forwarding, and opens and
// resolves findings.
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
import type { Steps } from '../../model/run-to-end.ts';
import { runToEnd } from '../../model/run-to-end.ts';
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
import type { NodeBehavior } from './node-behavior.ts';
import type { NodeClasses } from './node-class.ts';
import { createNodeClasses } from './node-class.ts';
import type { DesiredFinding, OpenNodeFinding } from './node-findings.ts';
import { desiredFindings, toDifference, toPendingItem } from './node-findings.ts';
import type { NodeObservation } from './observation.ts';
import { observeDumps, relevantLacks, unreadableReason } from './observation.ts';
import { outliersAmongPeers } from './peers.ts';
import { proxiedPortKey } from './probes.ts';
import type { DifferenceClock, NodeReading, ProgrammingState } from './programming-lag.ts';
import {
  newProgrammingState,
  readingOf,
  resetProgrammingState,
  updateClocks,
} from './programming-lag.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { Divergence, ObservedNode } from './staleness.ts';
import { divergedAt, noteConforming, persistedSince, servicesOfDifference } from './staleness.ts';
import type { NodeVerdict } from './verdicts.ts';
import { conformVerdicts, portVerdicts } from './verdicts.ts';

export interface Nodes {
  /** Sets the known configuration of kube-proxy; the rules or the defaults show the rest. */
  configure(node: string, given: Partial<ProxyConfig>): void;
  /**
   * Audits the node with a dump of this moment. The dumps of all sources together are the node's
   * rules. `dump` is null if it is equal to the last one of its source.
   */
  applyDump(node: string, source: string, dump: RulesDump | null, at: number): void;
  /** The dump of a source could not be read; the node is unknown until the next one. */
  markUnreadable(node: string, source: string, at: number): void;
  /**
   * Audits the node with a report of its agent. Returns the packets that the agent must walk first;
   * empty if the audit is complete. With `isLast`, missing outcomes stay unknown.
   */
  applyReport(
    node: string,
    report: NodeReport,
    at: number,
    isLast: boolean,
  ): Steps<readonly Packet[]>;
  /** The node can no longer be observed. */
  markUnknown(node: string, reason: NodeUnknownReason): void;
  /** The node no longer exists. */
  remove(node: string, at: number): void;
  summary(now: number): NodesSummary;
  /**
   * Traces the packets of a Service port through the last rules of a node. `name` is the name in
   * verdicts, without protocol and family. null if the node or its rules are not known.
   */
  tracePort(node: string, service: Key, name: string): PacketTrace[] | null;
  /** Missing parts of the dumps, which make the node unknown. */
  lacks(node: string): readonly Lack[];
}

export interface NodeReport extends Pick<NodeObservation, 'rules' | 'config'> {
  /** Changes with the content of the report. */
  readonly version: string;
  /** Seconds for which the agent may send no other report. */
  readonly lasting: number;
}

export interface NodesSummary {
  /** The verdicts by node, in the order of their names. */
  readonly verdicts: ReadonlyMap<string, readonly NodeVerdict[]>;
  /** When the oldest pending difference began, Unix seconds; null if none is pending. */
  readonly pendingSince: number | null;
}

export interface NodesOptions {
  readonly listers: Listers;
  readonly proxied: ProxyCache;
  readonly settle: PendingFindings;
  /** The settle window in seconds; 0 opens a finding at once. */
  readonly window: number;
  /** Minor version of kube-proxies whose Node does not show the kubelet's. */
  readonly minor: () => number;
  /** Called after each reading. */
  onReading?(reading: NodeReading): void;
  onConvergence?(sample: ConvergenceSample): void;
}

interface Options extends NodesOptions {
  readonly classes: NodeClasses;
  /** The rules of all other nodes that can be observed. */
  readonly peersOf: (state: NodeState) => Iterable<NodeBehavior>;
}

/** Dumps come less regularly than a clock: a window may be this many seconds shorter. */
const jitter = 0.25;

/** Rules are unknown after this many windows, and at least these seconds, without a reading. */
const unseen = { windows: 3, seconds: 60 };

interface NodeState {
  readonly name: string;
  /** The known configuration of kube-proxy. */
  given: Partial<ProxyConfig>;
  /** By source; null if the dump could not be read. */
  readonly dumps: Map<string, RulesDump | null>;
  /** null if it must be made from the dumps. */
  observation: NodeObservation | null;
  /** The version of the audited report. */
  version: string | null;
  /** Seconds for which the rules are known after a reading. */
  lasting: number;
  /** Why the node cannot be observed; null if it can. */
  unknownReason: NodeUnknownReason | null;
  last: LastAudit | null;
  readonly divergences: Map<Key, Divergence>;
  /** The rules are equal to those of the last reading. */
  isSame: boolean;
  /** Services that differed in the last reading. */
  differing: ReadonlySet<Key>;
  readonly clocks: Map<string, DifferenceClock>;
  readonly open: Map<string, OpenNodeFinding>;
  verdicts: readonly NodeVerdict[];
  /** The last reading, Unix seconds. */
  at: number | null;
  readonly programming: ProgrammingState;
}

/** The last audit; it is repeated only if its inputs change. */
interface LastAudit {
  readonly audit: NodeAudit;
  /** The conform verdicts of all ports. */
  readonly ports: readonly NodeVerdict[];
  /** Services that the class of the node did not cover. */
  readonly individual: ReadonlySet<Key>;
  /** What it was made from, in addition to the rules. */
  readonly inputs: string;
}

/** The audit of the current rules. */
interface CurrentAudit {
  readonly audit: NodeAudit;
  readonly observed: ObservedNode;
  readonly families: ReadonlySet<string>;
  readonly ports: readonly NodeVerdict[];
}

export function createNodes(given: NodesOptions): Nodes {
  const states = new Map<string, NodeState>();
  function* peersOf(state: NodeState): Generator<NodeBehavior> {
    for (const { name, at, unknownReason, observation, ...sources } of states.values()) {
      if (name === state.name || at === null || unknownReason !== null) continue;
      if (observation === null || relevantLacks({ ...sources, observation }).length > 0) continue;
      yield observation.rules;
    }
  }
  const options: Options = { ...given, classes: createNodeClasses(given.proxied), peersOf };
  const stateOf = (name: string): NodeState => {
    const state = states.get(name) ?? newState(name);
    states.set(name, state);
    return state;
  };
  return {
    configure(name, given) {
      const state = stateOf(name);
      state.given = given;
      if (state.dumps.size > 0) state.observation = null;
      if (state.last !== null) state.last = { ...state.last, inputs: '' };
    },
    applyDump(name, source, dump, at) {
      const state = stateOf(name);
      if (dump !== null) {
        state.dumps.set(source, dump);
        state.observation = null;
        state.divergences.clear();
      }
      runToEnd(readInSteps(options, state, at, true));
    },
    markUnreadable(name, source, at) {
      const state = stateOf(name);
      state.dumps.set(source, null);
      state.observation = null;
      runToEnd(readInSteps(options, state, at, true));
    },
    *applyReport(name, { rules, version, config, lasting }, at, isLast) {
      const state = stateOf(name);
      state.isSame = state.version === version;
      if (!state.isSame) state.divergences.clear();
      state.observation = { rules, config, families: allFamilies, lacks: [] };
      state.lasting = lasting;
      const missing = yield* readInSteps(options, state, at, isLast);
      state.version = missing.length === 0 ? version : null;
      return missing;
    },
    markUnknown(name, reason) {
      stateOf(name).unknownReason = reason;
    },
    remove(name, at) {
      const state = states.get(name);
      if (state !== undefined) dropFindings(options, state, at);
      states.delete(name);
    },
    summary: (now) => ({
      verdicts: new Map(
        [...states].sort().flatMap(([name, state]) => verdictsOf(options, name, state, now)),
      ),
      pendingSince: oldestPending(options, states.values()),
    }),
    tracePort: (node, service, name) => tracePort(options, states.get(node), service, name),
    lacks: (node) => (states.has(node) ? relevantLacks(stateOf(node)) : []),
  };
}

/** Expects the forwarding of this Service only. */
function tracePort(
  { listers, proxied, minor }: NodesOptions,
  state: NodeState | undefined,
  key: Key,
  name: string,
): PacketTrace[] | null {
  const node = listers.nodes.get(state?.name ?? '');
  const service = proxied.services.get(key);
  if (state === undefined || node === undefined || state.dumps.size === 0) return null;
  if (unreadableReason(state) !== null || service === undefined) return null;
  const { rules, families, ...seen } = observeDumps(
    ...[state.dumps.values(), node, minor(), state.given],
  );
  const config = withKubeletMinor(seen.config, node);
  const forwarding = expectedForwarding([service], proxied.slices, node, config, node.addresses);
  const frontends = forwarding.frontends.filter(({ port }) => families.has(port.family));
  return tracePackets({ forwarding: { ...forwarding, frontends }, node, rules }, name);
}

const allFamilies: ReadonlySet<string> = new Set(['IPv4', 'IPv6']);

const newState = (name: string): NodeState => ({
  name,
  given: {},
  dumps: new Map(),
  observation: null,
  version: null,
  lasting: 0,
  unknownReason: null,
  last: null,
  divergences: new Map(),
  isSame: false,
  differing: new Set(),
  clocks: new Map(),
  open: new Map(),
  verdicts: [],
  at: null,
  programming: newProgrammingState(),
});

const unknownNode = (reason: NodeUnknownReason): NodeVerdict[] => [
  { port: '', namespace: '', verdict: 'unknown', reason },
];

function verdictsOf(
  { window }: NodesOptions,
  name: string,
  { verdicts, at, unknownReason, lasting }: NodeState,
  now: number,
): [string, readonly NodeVerdict[]][] {
  if (unknownReason !== null) return [[name, unknownNode(unknownReason)]];
  if (at === null) return [];
  const isUnseen = now - at > Math.max(unseen.windows * Math.max(window, lasting), unseen.seconds);
  return [[name, isUnseen && window > 0 ? unknownNode('rules-not-known') : verdicts]];
}

function oldestPending({ window }: NodesOptions, states: Iterable<NodeState>): number | null {
  let oldest: number | null = null;
  for (const { clocks, at } of states) {
    for (const clock of clocks.values()) {
      if (isPastWindow(clock, at ?? 0, window)) continue;
      oldest = Math.min(oldest ?? Infinity, clock.since);
    }
  }
  return oldest;
}

/** Audits the node and updates its findings; returns packets that the agent must walk first. */
function* readInSteps(
  options: Options,
  state: NodeState,
  at: number,
  isLast: boolean,
): Steps<readonly Packet[]> {
  const node = options.listers.nodes.get(state.name);
  if (node !== undefined) readDumps(options, state, node);
  const reason = node === undefined ? 'node-not-known' : unreadableReason(state);
  if (reason !== null || node === undefined) {
    dropFindings(options, state, at);
    state.at = at;
    state.verdicts = unknownNode(reason ?? 'node-not-known');
    resetProgrammingState(state.programming);
    options.onReading?.({ node: state.name, at, before: null, differs: null, programmed: [] });
    return [];
  }
  const own = yield* auditInSteps(options, state, node);
  const missing = own.observed.rules.missingPackets();
  if (missing.length > 0 && !isLast) return missing;
  const current = withOutliers(options, state, own);
  const { audit, observed } = current;
  if (state.unknownReason !== null) restartPending(state);
  noteDivergences(state, current, options.proxied);
  for (const sample of updateClocks(state, current, at)) options.onConvergence?.(sample);
  options.onReading?.(readingOf(state, current, at));
  const isSettled = settledKeys(options, state, current, at);
  const settled = audit.differences.filter((it) => isSettled(differenceKey(it)));
  applyFindings(options, state, desiredFindings(state, audit, observed, settled, isSettled), at);
  state.verdicts = portVerdicts(current.ports, current.families, {
    different: portKeys(settled),
    pending: portKeys(audit.differences),
    unknown: audit.unknown,
  });
  state.at = at;
  return [];
}

/** Reads all dumps together if one of them is new. */
function readDumps({ minor }: Options, state: NodeState, node: Node): void {
  const { dumps, given } = state;
  if (dumps.size === 0) return;
  state.isSame = state.observation !== null;
  if ([...dumps.values()].includes(null)) return;
  state.observation ??= observeDumps(dumps.values(), node, minor(), given);
}

/** Restarts the clocks of differences without an open finding. */
function restartPending(state: NodeState): void {
  state.unknownReason = null;
  resetProgrammingState(state.programming);
  const open = openKeys(state);
  for (const key of state.clocks.keys()) if (!open.has(key)) state.clocks.delete(key);
  state.at = null;
}

const openKeys = ({ open }: NodeState): ReadonlySet<string> =>
  new Set([...open.values()].flatMap(({ keys }) => [...keys]));

/**
 * Returns a function that tests whether a difference is past the settle window. Without an open
 * finding, every version of its Service since then must show it.
 */
function settledKeys(
  { proxied, window }: NodesOptions,
  state: NodeState,
  { audit, observed }: CurrentAudit,
  at: number,
): (key: string) => boolean {
  const { clocks } = state;
  const open = openKeys(state);
  const differences = new Map(audit.differences.map((it) => [differenceKey(it), it]));
  const findPersistence = persistedSince(observed);
  return (key) => {
    const clock = clocks.get(key);
    if (clock === undefined || !isPastWindow(clock, at, window)) return false;
    const difference = differences.get(key);
    if (window === 0 || difference === undefined || open.has(key)) return true;
    const [service] = servicesOfDifference(proxied, difference);
    const since = service === undefined ? null : findPersistence(service, key, clock.since);
    if (since === null) return true;
    const restarted = { ...clock, before: since, since };
    clocks.set(key, restarted);
    return isPastWindow(restarted, at, window);
  };
}

/** Notes when Services diverged at once, since earlier versions are cached for a limited time. */
function noteDivergences(
  state: NodeState,
  { audit, observed }: CurrentAudit,
  proxied: ProxyCache,
): void {
  const differing = new Set(audit.differences.flatMap((it) => servicesOfDifference(proxied, it)));
  for (const key of differing) {
    const isNew = !state.differing.has(key);
    if (state.isSame && isNew && state.at !== null) noteConforming(observed, key, state.at);
    divergedAt(observed, key);
  }
  state.differing = differing;
}

/** Drops all findings and clocks of a node that is no longer observed. */
function dropFindings({ settle }: NodesOptions, state: NodeState, at: number): void {
  for (const { item } of state.open.values()) settle.drop(item, at);
  state.open.clear();
  state.clocks.clear();
}

/** Takes the kubelet's minor version if the Node has one; dumps and configurations have none. */
const withKubeletMinor = (config: ProxyConfig, { kubeletMinor }: Node): ProxyConfig => ({
  ...config,
  minor: kubeletMinor ?? config.minor,
});

/** Audits the rules, unless the rules and the expectation are those of the last audit. */
function* auditInSteps(
  { proxied, classes, minor }: Options,
  state: NodeState,
  node: Node,
): Steps<CurrentAudit> {
  const { given, divergences } = state;
  const { rules, families, ...seen } = state.observation ?? observeDumps([], node, minor(), given);
  const { zone, addresses, externalIPs, podCIDRs } = node;
  const { localAddresses, digest } = rules;
  const config = withKubeletMinor({ ...seen.config, ...given }, node);
  const place = [zone, localAddresses, addresses, externalIPs, podCIDRs];
  const inputs = JSON.stringify([proxied.revision(), place, config]);
  if (!state.isSame || state.last?.inputs !== inputs) {
    const before = state.last?.individual ?? new Set();
    if (digest !== null) {
      const reporting = { node, rules, digest, config, localAddresses, before };
      state.last = { ...(yield* classes.auditInSteps(reporting)), inputs };
    } else {
      const { services, slices } = proxied;
      const all = expectedForwarding(services.values(), slices, node, config, localAddresses);
      const frontends = all.frontends.filter(({ port }) => families.has(port.family));
      const forwarding = { ...all, frontends };
      const audit = yield* auditNodeInSteps({ forwarding, node, rules });
      state.last = { audit, ports: conformVerdicts(all.ports), individual: before, inputs };
    }
  }
  const { audit, ports } = state.last;
  return { audit, ports, families, observed: { node, rules, config, proxied, divergences } };
}

/** Adds frontends with unknown outcomes where the node differs from its peers. */
function withOutliers({ peersOf }: Options, state: NodeState, current: CurrentAudit): CurrentAudit {
  const { audit, observed } = current;
  const outliers = outliersAmongPeers(audit.doubtful, observed.rules, peersOf(state));
  if (outliers.length === 0) return current;
  return { ...current, audit: { ...audit, differences: [...audit.differences, ...outliers] } };
}

/** Whether all dumps of a window have shown it, and at least two if there is a window. */
const isPastWindow = ({ before, since }: DifferenceClock, at: number, window: number): boolean =>
  window === 0 || (at > since && at - before >= window - jitter);

/** Opens desired findings that are not open, and drops open findings that are not desired. */
function applyFindings(
  { settle }: NodesOptions,
  { open }: NodeState,
  desired: ReadonlyMap<string, DesiredFinding>,
  at: number,
): void {
  for (const [id, { item }] of open) {
    if (desired.has(id)) continue;
    settle.drop(item, at);
    open.delete(id);
  }
  const opened: OwnedDifference[] = [];
  for (const [id, finding] of desired) {
    const known = open.get(id);
    const keys = new Set(finding.differences.map(differenceKey));
    if (known !== undefined) {
      known.keys = keys;
      known.item.difference = toDifference(finding);
      known.item.severity = finding.severity;
      settle.reweigh(known.item);
      continue;
    }
    const item = toPendingItem(finding, at);
    open.set(id, { item, keys, nodeWide: finding.nodeWide });
    opened.push({ item, namespace: finding.namespace, service: finding.service });
  }
  settle.openNow(opened, at);
}

/** The keys of Service ports with harmful differences. */
const portKeys = (differences: readonly PacketDifference[]): ReadonlySet<string> =>
  new Set(differences.flatMap((it) => (it.port && !it.harmless ? proxiedPortKey(it.port) : [])));
