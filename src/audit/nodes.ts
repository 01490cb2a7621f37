// The nodes of a cluster under audit: what was found in each dump of their rules, and since when.
//
// A dump shows one moment, and kube-proxy follows the cluster a second or two behind. So a
// difference is pending until all dumps of a settle window have shown it, at least two of them, and
// it is gone with the first dump that does not. Differences are told apart by frontend, origin and
// endpoint: a node that is a little late with every one of many changes never differs for long.
//
//   dump ─► node.ts: differences ─► stood for the window? ─► stale.ts, rollup.ts ─► settle.ts
//
// A difference that a finding about the whole node would explain waits for that finding, so that
// one cause does not begin as many.
//
// Left out: rules that come and go between two dumps.

import type { Key, Node, Snapshot } from '../model/objects.ts';
import type { ProxyConfig } from '../model/proxy.ts';
import { defaultProxyConfig } from '../model/proxy.ts';
import type { RulesDump } from '../rules/dumps.ts';
import { localDetectionIn, modeIn } from '../rules/dumps.ts';
import type { RuleSet } from '../rules/ruleset.ts';
import { together } from '../rules/ruleset.ts';
import type { Forwarding } from '../shadow/forwarding.ts';
import { expectedForwarding } from '../shadow/forwarding.ts';
import type { Difference as ShownDifference } from './compare.ts';
import { difference as differenceOf } from './compare.ts';
import type { Code } from './findings.ts';
import type { NodeInput, Observed } from './node.ts';
import { keyOfPort, observeNode } from './node.ts';
import type { Clock, Following, NodeJudgement } from './programming.ts';
import { followClocks, judgementOf, startFollowing, stopFollowing } from './programming.ts';
import type { Proxied } from './proxied.ts';
import type { Difference, NodeFinding } from './rollup.ts';
import { differenceKey, portFinding, rollUp, staleFinding } from './rollup.ts';
import type { Item, Owned, Settle } from './settle.ts';
import type { Left, Observer } from './stale.ts';
import type { ConvergenceSample } from './standing.ts';
import { operationOf } from './standing.ts';
import { leftAt, noteRight, serviceOf, staleness } from './stale.ts';
import type { UnknownOfNode, Verdict } from './verdict.ts';
import type { WalkedPort } from './walked.ts';
import { walkedPort } from './walked.ts';

/** One Service port on one node. */
export interface NodeVerdict {
  /** Name, protocol and family; '' for all of the node. */
  readonly port: string;
  readonly namespace: string;
  readonly verdict: Verdict;
  /** null unless the verdict is unknown. */
  readonly reason: UnknownOfNode | null;
}

export interface Nodes {
  /** How kube-proxy is configured; without it, as the dump tells and the defaults are. */
  configure(node: string, config: ProxyConfig): void;
  /**
   * Takes in a dump as of this moment and judges the node. `source` tells dumps of one node apart
   * that together are its rules; null: the dump is the same as the last of this source.
   */
  take(node: string, source: string, dump: RulesDump | null, at: number): void;
  /** A dump that cannot be read: the node is unknown until the next. */
  lose(node: string, source: string, at: number): void;
  summary(now: number): NodesSummary;
  /**
   * Walks the packets of a port of a Service (`name` as Service ports have it) through the rules of
   * a node as they were last seen; null: these, or the node, are not known.
   */
  walked(node: string, service: Key, name: string): WalkedPort[] | null;
}

export interface NodesSummary {
  /** The verdicts by node, in the order of their names. */
  readonly verdicts: ReadonlyMap<string, readonly NodeVerdict[]>;
  /** When the oldest difference that is pending was first seen; null: none is. */
  readonly pendingSince: number | null;
}

export interface NodesOptions {
  readonly snapshot: Snapshot;
  readonly proxied: Proxied;
  readonly settle: Settle;
  /** Seconds; 0: a difference is a finding at once. */
  readonly window: number;
  /** Minor version of the kube-proxies, where nothing else is known. */
  readonly minor: () => number;
  /** Called after each reading. */
  onJudged?(judgement: NodeJudgement): void;
  onConvergence?(sample: ConvergenceSample): void;
}

/** Dumps are not as regular as clocks: seconds by which a window may be short. */
const jitter = 0.25;

/** Rules that were not seen for so many windows, and seconds, are not known any more. */
const unseen = { windows: 3, seconds: 60 };

/** A finding that is open, and the differences that make it. */
interface Held {
  readonly item: Item;
  readonly wide: boolean;
  keys: ReadonlySet<string>;
}

interface NodeState {
  readonly name: string;
  config: ProxyConfig | null;
  /** null: it could not be read. */
  readonly dumps: Map<string, RulesDump | null>;
  ruleset: RuleSet | null;
  observed: Observed | null;
  /** What `observed` was made from. */
  madeFrom: string;
  forwarding: Forwarding | null;
  readonly left: Map<Key, Left>;
  /** The rules are those of the last time. */
  isSame: boolean;
  /** Services that differed the last time. */
  differing: ReadonlySet<Key>;
  readonly clocks: Map<string, Clock>;
  /** By Service port, or by code where it is the node's. */
  readonly held: Map<string, Held>;
  verdicts: readonly NodeVerdict[];
  at: number | null;
  readonly following: Following;
}

export function createNodes(options: NodesOptions): Nodes {
  const states = new Map<string, NodeState>();
  const of = (name: string): NodeState => {
    const known = states.get(name) ?? newState(name);
    states.set(name, known);
    return known;
  };
  return {
    configure(name, config) {
      const state = of(name);
      state.config = config;
      state.madeFrom = '';
    },
    take(name, source, dump, at) {
      const state = of(name);
      if (dump !== null) {
        state.dumps.set(source, dump);
        state.ruleset = null;
        state.left.clear();
      }
      judge(options, state, at);
    },
    lose(name, source, at) {
      const state = of(name);
      state.dumps.set(source, null);
      state.ruleset = null;
      judge(options, state, at);
    },
    summary: (now) => ({
      verdicts: new Map(
        [...states].sort().flatMap(([name, state]) => verdictsOf(options, name, state, now)),
      ),
      pendingSince: oldestPending(options, states.values()),
    }),
    walked: (node, service, name) => walked(options, states.get(node), service, name),
  };
}

/** Only what is expected of this Service is made: others cost as much as they are many. */
function walked(
  { snapshot, proxied, minor }: NodesOptions,
  state: NodeState | undefined,
  key: Key,
  name: string,
): WalkedPort[] | null {
  const node = snapshot.nodes.get(state?.name ?? '');
  const service = proxied.services.get(key);
  if (state === undefined || node === undefined || state.dumps.size === 0) return null;
  if (unreadable(state) !== null || service === undefined) return null;
  const dumps = [...state.dumps.values()].filter((dump) => dump !== null);
  const ruleset = state.ruleset ?? together(dumps.map((dump) => dump.ruleset));
  const config = state.config ?? configOf(ruleset, minor());
  const { addresses } = node;
  const forwarding = expectedForwarding([service], proxied.slices, node, config, addresses);
  const families = new Set<string>(dumps.flatMap((dump) => dump.families));
  const frontends = forwarding.frontends.filter(({ port }) => families.has(port.family));
  const context = { localAddresses: addresses };
  return walkedPort({ forwarding: { ...forwarding, frontends }, node, ruleset, context }, name);
}

const newState = (name: string): NodeState => ({
  name,
  config: null,
  dumps: new Map(),
  ruleset: null,
  observed: null,
  madeFrom: '',
  forwarding: null,
  left: new Map(),
  isSame: false,
  differing: new Set(),
  clocks: new Map(),
  held: new Map(),
  verdicts: [],
  at: null,
  following: startFollowing(),
});

const unknownNode = (reason: UnknownOfNode): NodeVerdict[] => [
  { port: '', namespace: '', verdict: 'unknown', reason },
];

function verdictsOf(
  { window }: NodesOptions,
  name: string,
  { verdicts, at, dumps }: NodeState,
  now: number,
): [string, readonly NodeVerdict[]][] {
  if (at === null || dumps.size === 0) return [];
  const isUnseen = now - at > Math.max(unseen.windows * window, unseen.seconds);
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

function judge(options: NodesOptions, state: NodeState, at: number): void {
  const node = options.snapshot.nodes.get(state.name);
  const reason = node === undefined ? 'node-not-known' : unreadable(state);
  if (reason !== null || node === undefined) {
    release(options, state, at);
    state.at = at;
    state.verdicts = unknownNode(reason ?? 'node-not-known');
    stopFollowing(state.following);
    options.onJudged?.({ node: state.name, at, before: null, differs: null, programmed: [] });
    return;
  }
  const seen = observe(options, state, node);
  const { observed } = seen;
  const differing = new Set(observed.differences.flatMap((one) => serviceOf(options.proxied, one)));
  remember(state, seen.observer, differing);
  for (const sample of followClocks(state, seen, at)) options.onConvergence?.(sample);
  options.onJudged?.(judgementOf(state, seen, at));
  const ripe = (key: string): boolean => {
    const clock = state.clocks.get(key);
    return clock !== undefined && hasStood(clock, at, options.window);
  };
  const standing = observed.differences.filter((one) => ripe(differenceKey(one)));
  settle(options, state, wantedOf(state, seen, standing, ripe), at);
  state.verdicts = portVerdicts(seen, standing);
  state.at = at;
}

const unreadable = ({ dumps, config }: NodeState): UnknownOfNode | null => {
  if ([...dumps.values()].includes(null)) return 'rules-not-known';
  return config?.mode === 'ipvs' ? 'proxy-mode-not-modelled' : null;
};

/** Versions are many, and kept for a while only: their match is looked for at first sight. */
function remember(state: NodeState, observer: Observer, differing: ReadonlySet<Key>): void {
  for (const key of differing) {
    const isNew = !state.differing.has(key);
    if (state.isSame && isNew && state.at !== null) noteRight(observer, key, state.at);
    leftAt(observer, key);
  }
  state.differing = differing;
}

/** What was seen of the node ends with the sight of it. */
function release({ settle }: NodesOptions, state: NodeState, at: number): void {
  for (const { item } of state.held.values()) settle.drop(item, at);
  state.held.clear();
  state.clocks.clear();
}

interface Sight {
  readonly observed: Observed;
  readonly forwarding: Forwarding;
  readonly observer: Observer;
  readonly families: ReadonlySet<string>;
}

/** Walks the rules, unless neither they nor what is expected of them has changed. */
function observe(options: NodesOptions, state: NodeState, node: Node): Sight {
  const { proxied } = options;
  const dumps = [...state.dumps.values()].filter((dump) => dump !== null);
  state.isSame = state.ruleset !== null;
  const ruleset = (state.ruleset ??= together(dumps.map((dump) => dump.ruleset)));
  const { zone, addresses, podCIDRs } = node;
  const config = state.config ?? configOf(ruleset, options.minor());
  const from = JSON.stringify([proxied.revision(), zone, addresses, podCIDRs, config]);
  const families = new Set<string>(dumps.flatMap((dump) => dump.families));
  const context = { localAddresses: addresses };
  if (from !== state.madeFrom || state.forwarding === null) {
    const services = proxied.services.values();
    state.forwarding = expectedForwarding(services, proxied.slices, node, config, addresses);
    state.observed = null;
    state.madeFrom = from;
  }
  const frontends = state.forwarding.frontends.filter(({ port }) => families.has(port.family));
  const forwarding: Forwarding = { ...state.forwarding, frontends };
  const input: NodeInput = { forwarding, node, ruleset, context };
  if (!state.isSame || state.observed === null) state.observed = observeNode(input);
  const observer: Observer = { input, proxied, left: state.left };
  return { observed: state.observed, forwarding: state.forwarding, observer, families };
}

const configOf = (ruleset: RuleSet, minor: number): ProxyConfig => ({
  ...defaultProxyConfig(modeIn(ruleset), minor),
  ...localDetectionIn(ruleset),
});

/** Whether all dumps of a window have shown it, and more than one where there is a window. */
const hasStood = ({ before, since }: Clock, at: number, window: number): boolean =>
  window === 0 || (at > since && at - before >= window - jitter);

// Findings.

/** A finding that must be open, and since when it has been so. */
interface Wanted {
  readonly finding: NodeFinding;
  readonly since: number;
}

const identityOf = ({ wide, code, port, of }: NodeFinding): string =>
  wide ? code : port || (of[0]?.frontend ?? '');

/** What must be open by identity: what is left behind, what was open before, and what is new. */
function wantedOf(
  state: NodeState,
  { observed, observer }: Sight,
  standing: readonly Difference[],
  ripe: (key: string) => boolean,
): Map<string, Wanted> {
  const { name, held } = state;
  const { asked, claims, differences, others } = observed;
  const { proxied } = observer;
  const stale = staleIn(observer, differences, standing);
  const isLeft = (one: Difference): boolean =>
    stale !== null && serviceOf(proxied, one).some((key) => stale.services.has(key));
  const rest = differences.filter((one) => !isLeft(one));
  const kept = [...held.values()].flatMap(({ wide, keys }) => {
    const own = wide ? [] : rest.filter((one) => keys.has(differenceKey(one)));
    return own.length === 0 ? [] : [portFinding(name, own)];
  });
  const known = new Set(kept.flatMap(({ of }) => of));
  const free = rest.filter((one) => !known.has(one));
  const now = new Set(standing);
  const old = free.filter((one) => now.has(one));
  const soon = rollUp(name, free, asked, claims);
  const fresh = [
    ...admitted(rollUp(name, old, asked, claims), soon, held),
    ...others.filter(({ code }) => ripe(code)),
  ];
  const found = [...fresh, ...kept].map((finding): [string, Wanted] => {
    return [identityOf(finding), { finding, since: beginning(state, observer, finding) }];
  });
  if (stale !== null) {
    const finding = staleFinding(name, standing.filter(isLeft));
    found.push([identityOf(finding), { finding, since: stale.since }]);
  }
  return new Map(found);
}

function staleIn(
  observer: Observer,
  differences: readonly Difference[],
  standing: readonly Difference[],
): ReturnType<typeof staleness> {
  const real = standing.filter(({ harmless }) => !harmless);
  if (real.length === 0) return null;
  const differing = differences.flatMap((one) => serviceOf(observer.proxied, one));
  return staleness(observer, real, new Set(differing));
}

/**
 * Of what has stood for long enough, what is no part of a finding about the whole node that will
 * have stood soon; and what is so of the whole node still.
 */
function admitted(
  now: readonly NodeFinding[],
  soon: readonly NodeFinding[],
  held: ReadonlyMap<string, Held>,
): NodeFinding[] {
  const own = new Set(soon.map(identityOf));
  const going = soon.filter((one) => one.wide && held.has(identityOf(one)));
  return [...now.filter((one) => one.wide || own.has(identityOf(one))), ...going];
}

/** When a finding began: when the expectation left the node, where that is known. */
function beginning({ clocks }: NodeState, observer: Observer, finding: NodeFinding): number {
  const { wide, of, code } = finding;
  const keys = of.length === 0 ? [code] : of.map(differenceKey);
  const seen = Math.min(...keys.map((key) => clocks.get(key)?.since ?? Infinity));
  const [key] = wide || of[0] === undefined ? [] : serviceOf(observer.proxied, of[0]);
  return Math.min(seen, (key === undefined ? null : leftAt(observer, key)) ?? Infinity);
}

/** Opens what is wanted and not open, and resolves what is open and not wanted. */
function settle(
  options: NodesOptions,
  state: NodeState,
  wanted: ReadonlyMap<string, Wanted>,
  at: number,
): void {
  const { held } = state;
  for (const [id, { item }] of held) {
    if (wanted.has(id)) continue;
    options.settle.drop(item, at);
    held.delete(id);
  }
  const opened: Owned[] = [];
  for (const [id, { finding, since }] of wanted) {
    const known = held.get(id);
    const keys = new Set(finding.of.map(differenceKey));
    const difference = shown(finding);
    if (known !== undefined) {
      known.keys = keys;
      known.item.difference = difference;
      known.item.severity = finding.severity;
      options.settle.reweigh(known.item);
      continue;
    }
    const item = itemOf(finding, since, at);
    held.set(id, { item, keys, wide: finding.wide });
    opened.push({ item, namespace: finding.namespace, service: finding.service });
  }
  options.settle.openNow(opened, at);
}

function itemOf(finding: NodeFinding, since: number, at: number): Item {
  return {
    difference: shown(finding),
    output: 'node',
    node: finding.node,
    severity: finding.severity,
    cause: null,
    shown: false,
    proven: false,
    causeAt: at,
    since,
    unseen: 0,
    byInput: false,
    operation: operationOf(finding.code),
    lateSince: since,
    openedAt: null,
    gone: false,
  };
}

function shown({ code, port, object, expected, actual, rule }: NodeFinding): ShownDifference {
  const what = port === '' ? object : `${port} at ${object}`;
  const by = rule === null ? '' : ` by ${rule}`;
  return differenceOf(code, what, fieldOf(code), expected, `${actual}${by}`);
}

/** What of a frontend differs. */
function fieldOf(code: Code): string {
  if (code.startsWith('node-masquerade')) return 'masquerade';
  if (code === 'node-affinity-different') return 'affinity';
  if (code === 'node-share-different') return 'share';
  return code.startsWith('node-endpoint') || code === 'node-policy-different'
    ? 'endpoints'
    : 'fate';
}

// Verdicts.

function portVerdicts(
  { forwarding, families, observed }: Sight,
  standing: readonly Difference[],
): NodeVerdict[] {
  const names = (list: readonly Difference[]): Set<string> =>
    new Set(list.flatMap(({ port, harmless }) => (port && !harmless ? keyOfPort(port) : [])));
  const [different, pending] = [names(standing), names(observed.differences)];
  const verdictOn = (port: string, family: string): [Verdict, UnknownOfNode | null] => {
    if (!families.has(family)) return ['unknown', 'rules-not-known'];
    if (different.has(port)) return ['different', null];
    if (pending.has(port)) return ['pending', null];
    return observed.unknown.has(port) ? ['unknown', 'rules-not-understood'] : ['conform', null];
  };
  return forwarding.ports.map((one) => {
    const port = keyOfPort(one);
    const [verdict, reason] = verdictOn(port, one.family);
    return { port, namespace: one.namespace, verdict, reason };
  });
}
