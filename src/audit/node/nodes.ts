// Compares each dump or report of a node's rules with the expected forwarding (audit-node.ts), and
// opens and resolves findings (node-findings.ts).
//
// The cluster's state may be newer than the node's, so a difference starts at the latest change of
// its Service at the earliest, and every later version of the Service must show it. Without a
// report a node is unknown: its findings stay open, pending ones restart.
//
// Left out: rules that come and go between two dumps.

import { getOrInsert } from '../../model/collections.ts';
import { joinHostPort } from '../../model/ip.ts';
import type { Key, Listers, Service } from '../../model/objects.ts';
import type { Packet, ProxyConfig } from '../../model/proxy-config.ts';
import { runToEnd, type Steps } from '../../model/run-to-end.ts';
import type { RulesDump } from '../../rules/parse/rules-dump.ts';
import { lackText } from '../../rules/ruleset.ts';
import type { Frontend } from '../../shadow/forwarding.ts';
import { refusedNodePortAddress } from '../../shadow/proxy-node.ts';
import type { NodeUnknownReason } from '../finding/verdicts.ts';
import type { PendingFindings } from '../pending/pending.ts';
import type { Impact, NodeImpact } from '../service/impact.ts';
import type { ConvergenceSample } from '../service/reconcile.ts';
import { nodeForwarding } from '../../shadow/cilium/node-forwarding.ts';
import type { PacketDifference, PacketDifferences } from './packet-difference.ts';
import { auditNodeInSteps, tracePackets } from './audit-node.ts';
import { type ClassAudit, createClassAudit, noteClass } from './node-class.ts';
import {
  applyFindings,
  desiredFindings,
  isPastWindow,
  openKeys,
  restoreFindings,
  settledDifferences,
} from './node-findings.ts';
import type { CurrentReading, LastAudit, NodeState, NodeVerdict, SavedNode } from './node-state.ts';
import {
  completeReading,
  conformVerdicts,
  newNodeState,
  portVerdicts,
  savedVerdicts,
  saveNode,
} from './node-state.ts';
import { type NodeBehavior, type NodeObservation, observeDumps } from './observation.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { NodeReading } from './staleness.ts';
import { noteDivergences, readingOf, serviceOf, updateClocks } from './staleness.ts';

interface NodeReport extends Pick<NodeObservation, 'rules' | 'config'> {
  /** The same text while the rules are the same. */
  readonly etag: string;
  /** The same text while the outcomes of packets are the same too. */
  readonly version: string;
  /** Seconds for which the agent may send no other report. */
  readonly lasting: number;
}

/** The objects that the audit of nodes depends on. */
export type NodeListers = Pick<Listers, 'services' | 'slices' | 'nodes' | 'podsAt'>;

export interface NodesOptions {
  readonly listers: NodeListers;
  readonly proxied: ProxyCache;
  readonly settle: PendingFindings;
  /** The settle window in seconds; 0 opens a finding at once. */
  readonly window: number;
  /** Minor version of kube-proxies whose Node does not show the kubelet's. */
  readonly minor: () => number;
  /** Also called when the rules of a node become unknown, and when it is removed. */
  onReading?(reading: NodeReading): void;
  onConvergence?(sample: ConvergenceSample): void;
}

type Options = NodesOptions & {
  readonly auditByClass: ClassAudit;
  readonly states: Map<string, NodeState>;
  /** The ports of nodes of a history by their configuration, at a revision of the proxy cache. */
  readonly ports: { revision: number; readonly lists: Map<string, readonly NodeVerdict[]> };
};

export type Nodes = ReturnType<typeof createNodes>;

export function createNodes(given: NodesOptions) {
  const states = new Map<string, NodeState>();
  const options: Options = {
    ...given,
    auditByClass: createClassAudit(given.proxied),
    states,
    ports: { revision: -1, lists: new Map() },
  };
  const stateOf = (name: string): NodeState => getOrInsert(states, name, () => newNodeState(name));
  return {
    ...resultsOf(options),
    /** Sets the known configuration of kube-proxy; the rules or the defaults show the rest. */
    configure(name: string, config: Partial<ProxyConfig>): void {
      const state = stateOf(name);
      state.given = config;
      if (state.dumps.size > 0) state.observation = null;
      state.last = null;
    },
    /** The node is not audited before a dump of this source has come. */
    expectDump: (name: string, source: string) => void stateOf(name).sources.add(source),
    /** Takes a dump; null: as the last one. Audits the node when all sources have one. */
    applyDump(
      name: string,
      source: string,
      dump: RulesDump | 'unreadable' | null,
      at: number,
    ): void {
      const state = stateOf(name);
      if (dump !== null) {
        state.dumps.set(source, dump);
        state.observation = null;
        state.divergences.clear();
      }
      const readAt = completeReading(state, source, at);
      if (readAt === null) return;
      const isSame = state.observation !== null;
      runToEnd(readInSteps(options, state, readAt, { isLast: true, isSame, isAnswered: isSame }));
    },
    /** Returns packets that the agent must walk first. With `isLast`, they stay unknown. */
    *applyReport(name: string, report: NodeReport, at: number, isLast: boolean) {
      const { rules, etag, version, config, lasting } = report;
      const state = stateOf(name);
      const isAnswered = state.version === version;
      const isSame = state.etag === etag;
      if (!isSame) state.divergences.clear();
      state.observation = { rules, config, families: allFamilies, lacks: [] };
      state.lasting = lasting;
      const missing = yield* readInSteps(options, state, at, { isLast, isSame, isAnswered });
      state.version = missing.length === 0 && state.refused === null ? version : null;
      if (isLast || missing.length === 0) state.etag = etag;
      return missing;
    },
    markUnknown(name: string, reason: NodeUnknownReason, at: number): void {
      markUnknown(options, stateOf(name), reason, at);
    },
    /** Restarts the clocks of all differences that are no finding yet. */
    restartClocks(): void {
      for (const state of states.values()) restartClocks(state);
    },
    remove(name: string, at: number): void {
      const state = states.get(name);
      if (state === undefined) return;
      dropFindings(options, state, at);
      states.delete(name);
      options.onReading?.(readingOf(state, at, null));
    },
  };
}

const resultsOf = (options: Options) => ({
  /** What the last reading of a node does to connections; null if its rules are unknown. */
  impactOf: (name: string) => impactOf(options.states.get(name)),
  /** The mean of a Service over all Nodes; one without known rules counts as right. */
  impactOn: (service: Key) => impactOn(options, service),
  /** The results of the last reading of a node; null if it is not known. */
  saved(name: string): SavedNode | null {
    const state = options.states.get(name);
    return state === undefined ? null : saveNode(state);
  },
  /** Takes the results of a node from a history; null: it was removed. */
  restore(name: string, saved: SavedNode | null, at: number): void {
    const { states, settle } = options;
    const state = getOrInsert(states, name, () => newNodeState(name));
    restoreFindings(settle, state, saved?.findings ?? [], at);
    if (saved === null) {
      states.delete(name);
      return;
    }
    const { unknownReason, unknownSince, readSince } = saved;
    Object.assign(state, { saved, unknownReason, unknownSince, readSince });
  },
  summary: (now: number) => summaryOf(options, now),
  /** The nodes whose agent does not report, with the reason, and since when. */
  withoutAgent: () =>
    [...options.states.values()].flatMap(({ name, unknownReason: reason, unknownSince: since }) =>
      reason?.startsWith('agent-') === true ? [{ name, reason, since }] : [],
    ),
  /** Since when the rules of the node have been read; null if they are unknown. */
  readSince: (name: string): number | null => options.states.get(name)?.readSince ?? null,
  tracePort: (node: string, service: Key, name: string) =>
    tracePort(options, options.states.get(node), service, name),
  /** What is not known of the node, at the last reading; its message is '' if all is known. */
  obstacle: (name: string) => obstacleOf(options.states.get(name)),
  names: (): Iterable<string> => options.states.keys(),
});

const allFamilies = new Set(['IPv4', 'IPv6']);

function obstacleOf({ observation = null, refused = null, saved }: Partial<NodeState> = {}) {
  const texts = new Set((observation?.lacks ?? []).map(lackText));
  const { findings = [], moreFindings = 0 } = saved ?? {};
  const all = String(findings.length + moreFindings);
  if (moreFindings > 0) texts.add(`The history has only ${findings.length} of ${all} findings`);
  return refused ?? { message: [...texts].join('; ') };
}

const impactOf = (state: NodeState | undefined): NodeImpact | null =>
  state === undefined || state.readSince === null ? null : (state.last?.audit.impact ?? null);

function impactOn({ listers, states }: Options, service: Key): Impact {
  let [misrouted, unused] = [0, 0];
  for (const state of states.values()) {
    const impact = impactOf(state)?.services.get(service);
    misrouted += impact?.misrouted ?? 0;
    unused += impact?.unused ?? 0;
  }
  const count = Math.max(1, listers.nodes.size);
  return { misrouted: misrouted / count, unused: unused / count };
}

function lastReading(options: Options, state: NodeState | undefined) {
  if (state === undefined) return null;
  if (state.saved !== null) return { at: null, proxy: state.saved.config };
  // A copy, since this is a query: the audit has made the observation of the latest dumps.
  const observed = state.dumps.size > 0 ? observe(options, { ...state }) : '';
  return { at: state.at, proxy: typeof observed === 'string' ? null : observed.config };
}

/** Traces the packets of a port, as verdicts name it; null if the rules are unknown. */
function tracePort(options: Options, state: NodeState | undefined, key: Key, name: string) {
  const service = options.proxied.services.get(key);
  if (state === undefined || service === undefined || state.dumps.size === 0) return null;
  // A trace is no reading, which would keep its observation.
  const observed = observe(options, { ...state, observation: null });
  if (typeof observed === 'string') return null;
  const { node, rules } = observed;
  const forwarding = forwardingOf(observed, [service], options.proxied);
  return tracePackets({ forwarding, node, rules }, name);
}

function forwardingOf(observed: Observed, services: Iterable<Service>, { slices }: ProxyCache) {
  const { node, rules, config, families } = observed;
  const all = nodeForwarding(services, slices, node, config, rules.localAddresses);
  return { ...all, frontends: all.frontends.filter(({ port }) => families.has(port.family)) };
}

function observe({ listers, minor }: Options, state: NodeState) {
  const { dumps, given } = state;
  const node = listers.nodes.get(state.name);
  const read = [...dumps.values()].filter((dump) => dump !== 'unreadable');
  if (node === undefined) return 'node-not-known';
  if (read.length < dumps.size) return 'rules-not-known';
  state.observation ??= observeDumps(read, node, minor(), given);
  const { rules, families, lacks } = state.observation;
  const { config: found } = state.observation;
  // A configuration of kube-proxy says nothing about Cilium.
  const merged = found.cilium === null ? { ...found, ...given } : found;
  // Dumps and configurations do not show the minor version; the Node may have the kubelet's.
  const config = { ...merged, minor: node.kubeletMinor ?? merged.minor };
  if (config.mode === 'ipvs') return 'proxy-mode-not-modelled';
  state.refused = refusedNodePortAddress(config);
  if (state.refused !== null) return 'proxy-config-refused';
  if (lacks.length > 0) return 'rules-not-whole';
  return { node, rules, families, config };
}

type Observed = Exclude<ReturnType<typeof observe>, string>;

const unknownNode = (reason: NodeUnknownReason): NodeVerdict[] => [
  { port: '', namespace: '', verdict: 'unknown', reason },
];

export type NodesSummary = ReturnType<typeof summaryOf>;

function summaryOf(options: Options, now: number) {
  const { window, states } = options;
  const verdicts = new Map<string, readonly NodeVerdict[]>();
  /** When the oldest pending difference began, Unix seconds; null if none is pending. */
  let pendingSince: number | null = null;
  for (const [name, state] of [...states].sort()) {
    const { at, readSince, unknownReason, lasting, clocks } = state;
    // Rules are unknown after 3 windows without a reading, and after 60 seconds at the earliest.
    const longest = Math.max(3 * Math.max(window, lasting), 60);
    // If the clocks were restarted, there is no reading by the new clock yet.
    const isRestarted = at === null && readSince !== null;
    const isUnseen = isRestarted || (at !== null && now - at > longest && window > 0);
    const reason = unknownReason ?? (isUnseen && state.saved === null ? 'rules-not-known' : null);
    // Those of a node that is unknown begin again with its next reading.
    for (const clock of reason === null ? clocks.values() : []) {
      if (isPastWindow(clock, at ?? 0, window)) continue;
      pendingSince = Math.min(pendingSince ?? Infinity, clock.since);
    }
    if (reason !== null) verdicts.set(name, unknownNode(reason));
    else if (state.saved !== null)
      verdicts.set(name, savedVerdicts(state.saved, savedPorts(options, state)));
    else if (at !== null || state.verdicts.length > 0) verdicts.set(name, state.verdicts);
  }
  return {
    verdicts,
    pendingSince,
    /** When the rules of a node were read last, and its kube-proxy; null if unknown. */
    reading: (name: string) => lastReading(options, states.get(name)),
  };
}

/** The ports of a node of a history: one list for all nodes of one configuration. */
function savedPorts(options: Options, { name, saved }: NodeState): readonly NodeVerdict[] {
  const { listers, proxied, ports } = options;
  const { config = null } = saved ?? {};
  const node = listers.nodes.get(name);
  if (config === null || node === undefined) return [];
  if (ports.revision !== proxied.revision()) ports.lists.clear();
  ports.revision = proxied.revision();
  return getOrInsert(ports.lists, JSON.stringify(config), () => {
    const all = [proxied.services.values(), proxied.slices, node, config, node.addresses] as const;
    return conformVerdicts(nodeForwarding(...all).ports);
  });
}

interface Round {
  /** The agent is asked for no more packets. */
  readonly isLast: boolean;
  /** The rules are those of the last reading. */
  readonly isSame: boolean;
  /** The outcomes are too. */
  readonly isAnswered: boolean;
}

/** Updates the findings of a node; returns packets that the agent must walk first. */
function* readInSteps(
  options: Options,
  state: NodeState,
  at: number,
  { isLast, isSame, isAnswered }: Round,
): Steps<readonly Packet[]> {
  const { proxied, window } = options;
  const observed = observe(options, state);
  if (typeof observed === 'string') {
    dropFindings(options, state, at);
    Object.assign(state, { at, readSince: null, unknownReason: null });
    state.verdicts = unknownNode(observed);
    state.programming = null;
    options.onReading?.(readingOf(state, at, null));
    return [];
  }
  const { report } = observed.rules;
  if (report !== null) noteClass(state, { ...observed, rules: { ...observed.rules, report } }, at);
  if (state.refused !== null) {
    // Its findings remain, since they may be true.
    markUnknown(options, state, 'rules-not-known', at);
    state.last = null;
    return [];
  }
  const { rules, families } = observed;
  const last = yield* auditInSteps(options, state, observed, isAnswered);
  const missing = rules.report?.missingPackets() ?? [];
  if (missing.length > 0 && !isLast) return missing;
  const outliers = outliersAmongPeers(last.audit.doubtful, rules, peersOf(options, state));
  const differences = [...last.audit.differences, ...outliers];
  const reading: CurrentReading = {
    ...observed,
    proxied,
    divergences: state.divergences,
    audit: { ...last.audit, differences },
    byService: Map.groupBy(differences, (it) => serviceOf(proxied, it)),
    isSame,
    at,
  };
  if (state.unknownReason !== null) {
    state.unknownReason = null;
    restartClocks(state);
  }
  state.readSince ??= at;
  noteDivergences(reading, state.at);
  for (const sample of updateClocks(state, reading)) options.onConvergence?.(sample);
  options.onReading?.(readingOf(state, at, reading));
  const settled = settledDifferences(state, reading, window);
  applyFindings(options, state, desiredFindings(state, reading, settled), at);
  state.verdicts = portVerdicts(last.ports, families, {
    different: portKeys(settled),
    pending: portKeys(differences),
    unknown: last.audit.unknown,
  });
  state.at = at;
  return [];
}

/** Findings remain, and no difference of before becomes one. */
function markUnknown(
  options: Options,
  state: NodeState,
  reason: NodeUnknownReason,
  at: number,
): void {
  const wasRead = state.readSince !== null;
  if (state.unknownReason === null) state.unknownSince = at;
  Object.assign(state, { unknownReason: reason, readSince: null });
  if (wasRead) options.onReading?.(readingOf(state, at, null));
}

/** Forgets since when the node differs, except for open findings. */
function restartClocks(state: NodeState): void {
  state.programming = null;
  state.at = null;
  const open = openKeys(state);
  for (const key of state.clocks.keys()) if (!open.has(key)) state.clocks.delete(key);
}

function* peersOf({ states }: Options, state: NodeState): Generator<NodeBehavior> {
  for (const other of states.values()) {
    const { at, unknownReason, observation } = other;
    if (other === state || at === null || unknownReason !== null) continue;
    if (observation?.lacks.length === 0) yield observation.rules;
  }
}

function* auditInSteps(
  { proxied, auditByClass }: Options,
  state: NodeState,
  observed: Observed,
  isAnswered: boolean,
): Steps<LastAudit> {
  const { node, rules, config } = observed;
  const { zone, addresses, externalIPs, podCIDRs } = node;
  const { localAddresses, report } = rules;
  const place = [zone, localAddresses, addresses, externalIPs, podCIDRs];
  const inputs = JSON.stringify([proxied.revision(), place, config]);
  if (isAnswered && state.last?.inputs === inputs) return state.last;
  if (report !== null) {
    report.restart();
    const audit = yield* auditByClass(
      { node, rules: { ...rules, report }, config },
      state.signature,
    );
    return (state.last = { ...audit, inputs });
  }
  const forwarding = forwardingOf(observed, proxied.services.values(), proxied);
  const audit = yield* auditNodeInSteps({ forwarding, node, rules });
  return (state.last = { audit, ports: conformVerdicts(forwarding.ports), inputs });
}

function dropFindings(options: NodesOptions, state: NodeState, at: number): void {
  applyFindings(options, state, [], at);
  state.clocks.clear();
}

const portKeys = (differences: PacketDifferences): ReadonlySet<string> =>
  new Set(differences.flatMap((it) => (it.port && !it.harmless ? it.port.key : [])));

/** Doubtful frontends where the digest differs from that of most peers, which may be wrong too. */
export function outliersAmongPeers(
  doubtful: ReadonlySet<Frontend>,
  rules: NodeBehavior,
  peers: Iterable<NodeBehavior>,
): PacketDifference[] {
  if (doubtful.size === 0) return [];
  const compared = [...peers].slice(0, 100);
  return [...doubtful]
    .slice(0, 256)
    .filter((frontend) => isOutlier(frontend, rules, compared))
    .map(({ port, kind, address, protocol, dport }) => ({
      code: 'node-unlike-others',
      port,
      kind,
      frontend: `${joinHostPort(address, dport)}/${protocol}`,
      key: `${joinHostPort(address, dport)}/${protocol} anywhere unlike`,
      origin: 'anywhere',
      effect: '',
      properties: [],
      endpoint: null,
      sides: null,
      expected: 'the same as on most nodes',
      actual: 'something else, by rules that the auditor cannot evaluate',
      rule: null,
      harmless: true,
    }));
}

function isOutlier(frontend: Frontend, rules: NodeBehavior, peers: NodeBehavior[]): boolean {
  const digests = rules.report?.digestsAt(frontend);
  if (typeof digests?.expected !== 'string') return false;
  const others = peers
    .map((peer) => peer.report?.digestsAt(frontend))
    .filter((other) => other?.expected === digests.expected);
  const groups = Map.groupBy(others, (other) => other?.actual ?? null);
  groups.delete(digests.actual);
  const largest = Math.max(0, ...[...groups.values()].map(({ length }) => length));
  // At least 3 peers, and three quarters of all nodes, must do the same.
  return largest >= 3 && largest >= 0.75 * (others.length + 1);
}
