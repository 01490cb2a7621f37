// The input of the node audit: rules and configurations of nodes from recordings, from files and
// from agents. The last entry of each kind waits until the audit begins.

import type { AgentReport } from '../agent/client/report.ts';
import type { AgentEntry, NodeReportEntry } from '../agent/client/scraper.ts';
import { readSavedNode } from '../audit/node/node-state.ts';
import { createNodes, type Nodes, type NodesOptions } from '../audit/node/nodes.ts';
import { behaviorOfReport, type ReportedBehavior } from '../audit/node/observation.ts';
import { createProxyCache, type ProxyCache } from '../audit/node/proxy-cache.ts';
import type { NodeConfigEntry, NodeRulesEntry } from '../cluster/decode/entry.ts';
import type { NodeStateEntry } from '../cluster/files/recording.ts';
import { WrongType } from '../cluster/decode/json-fields.ts';
import type { OnProblem, Problem } from '../cluster/decode/problem.ts';
import { problemAt, problemText, valueText } from '../cluster/decode/problem.ts';
import { readProxyConfig } from '../cluster/decode/proxy-config.ts';
import { parseYaml } from '../cluster/decode/yaml-text.ts';
import type { Change, Key } from '../model/objects.ts';
import { defaultProxyConfig, type ProxyConfig } from '../model/proxy-config.ts';
import type { Steps } from '../model/run-to-end.ts';
import { readRulesDump } from '../rules/parse/rules-dump.ts';
import { DumpError } from '../rules/ruleset.ts';

/** A file that the command line names. */
export interface GivenRules {
  readonly kind: 'given-rules';
  readonly node: string;
  readonly source: string;
  readonly text: string;
  /** Why there is no text, as a sentence; `null` if there is one. */
  readonly unread: string | null;
  /** A KubeProxyConfiguration; `null` to derive the mode from the rules. */
  readonly config: unknown;
}

export type NodeEntry = NodeConfigEntry | NodeRulesEntry | GivenRules | NodeStateEntry;

export type NodeRules = ReturnType<typeof createNodeRules>;

export interface NodeRulesOptions extends Omit<NodesOptions, 'proxied'> {
  /** Called for rules and configurations of nodes that cannot be read. */
  readonly onProblem: OnProblem;
  /**
   * Called for a programming error that a report has shown, once until that changes; without it,
   * the error is thrown.
   */
  readonly onReportError?: ((node: string, error: unknown) => void) | undefined;
}

/** The last report of an agent. */
interface LastReport {
  readonly version: string;
  readonly rules: ReportedBehavior;
  /** The configuration of kube-proxy and its text; `null` if it cannot be read or was not sent. */
  readonly configText: string | null;
  readonly config: ProxyConfig | null;
  /** Mode and settings, as kube-proxy's rules showed them last. */
  readonly detected: Pick<AgentReport, 'mode' | 'settings'>;
}

type State = ReturnType<typeof createState>;

const createState = (options: NodeRulesOptions) => ({
  options,
  waiting: new Map<string, NodeEntry>(),
  isBegun: false,
  proxied: null as ProxyCache | null,
  nodes: null as Nodes | null,
  unreadable: 0,
  reports: new Map<string, LastReport>(),
  /** What is not known of a node, as it was reported last. */
  obstacles: new Map<string, string>(),
});

export function createNodeRules(options: NodeRulesOptions) {
  const state = createState(options);
  const { waiting, reports } = state;
  return {
    take(entry: NodeEntry, at: number): void {
      const isUnchanged = entry.kind === 'node-rules' && entry.text === null;
      if (state.isBegun) applyEntries(state, [entry], at);
      else if (!isUnchanged) waiting.set(`${entry.kind} ${entry.node} ${sourceOf(entry)}`, entry);
    },
    begin(at: number): void {
      state.isBegun = true;
      for (const entry of waiting.values()) {
        const isDump = entry.kind === 'given-rules' || entry.kind === 'node-rules';
        if (isDump) ensureNodes(state).expectDump(entry.node, sourceOf(entry));
      }
      applyEntries(state, [...waiting.values()], at);
      waiting.clear();
    },
    /** The audit must have begun. */
    takeAgentEntry: (entry: AgentEntry) => takeContained(state, entry),
    /** Frontends whose digest, as the agents report it, differs from the desired one. */
    divergent: () =>
      [...reports.values()].reduce((sum, { rules }) => sum + rules.report.divergent(), 0),
    /** The EndpointSlices of a Service, by their label. The audit must have begun. */
    slicesOf: (service: Key) => ensureProxied(state).slices.get(service) ?? [],
    apply: (change: Change) => state.proxied?.apply(change),
    /** `null` if the audit has not begun or no entry of a node has arrived. */
    nodes: () => state.nodes,
    unreadable: () => state.unreadable,
  };
}

function sourceOf(entry: NodeEntry): string {
  if (entry.kind === 'node-config' || entry.kind === 'node-state') return '';
  return entry.kind === 'node-rules' ? `${entry.tool} ${entry.family}` : entry.source;
}

const ensureProxied = (state: State): ProxyCache =>
  (state.proxied ??= createProxyCache(state.options.listers));

function ensureNodes(state: State): Nodes {
  const { options } = state;
  return (state.nodes ??= createNodes({ ...options, proxied: ensureProxied(state) }));
}

function applyEntries(state: State, entries: readonly NodeEntry[], at: number): void {
  for (const entry of entries) applyEntry(state, entry, at);
  for (const node of new Set(entries.map((entry) => entry.node))) reportObstacle(state, node);
}

function applyEntry(state: State, entry: NodeEntry, now: number): void {
  const { options } = state;
  const nodes = ensureNodes(state);
  if (entry.kind === 'node-config') {
    const { mode, clusterCIDRs } = entry;
    nodes.configure(entry.node, { mode, ...(clusterCIDRs.length > 0 ? { clusterCIDRs } : {}) });
    return;
  }
  if (entry.kind === 'node-state') {
    const saved = readSavedNode(entry.saved);
    if (saved === null && entry.saved !== null) state.unreadable++;
    else nodes.restore(entry.node, saved, entry.at);
    return;
  }
  const { node, text } = entry;
  const source = sourceOf(entry);
  const isLine = entry.kind === 'node-rules';
  // A dump that waited is as old as it was when it arrived.
  const at = isLine ? Math.max(entry.dumpedAt, now - (entry.at - entry.dumpedAt)) : now;
  try {
    if (!isLine && entry.unread !== null) throw new UnreadFile(entry.unread);
    if (!isLine && entry.config !== null) {
      nodes.configure(node, readProxyConfig(entry.config, versionOf(options)));
    }
    const dump = text === null ? null : readRulesDump(text, isLine ? entry.family : null);
    nodes.applyDump(node, source, dump, at);
  } catch (error) {
    options.onProblem(problemOf(error, source, node));
    state.unreadable++;
    nodes.applyDump(node, source, 'unreadable', at);
  }
}

const versionOf = ({ minor }: NodeRulesOptions): string => `v1.${String(minor())}.0`;

/** Reports what is not known of a node, once until that changes. */
function reportObstacle(
  { options, nodes, obstacles }: State,
  node: string,
  obstacle: { readonly message: string } = nodes?.obstacle(node) ?? { message: '' },
): void {
  const { message, ...details } = obstacle;
  const problem = problemAt(`Node ${node}`, null, message, details);
  const text = problemText(problem);
  if (message !== '' && text !== obstacles.get(node)) options.onProblem(problem);
  obstacles.set(node, text);
}

/** Takes an entry. An error makes the node unknown, since one agent must not end the server. */
function* takeContained(state: State, entry: AgentEntry): Steps {
  const { onReportError } = state.options;
  try {
    yield* takeAgentEntry(state, entry);
  } catch (error) {
    if (onReportError === undefined) throw error;
    const { node, at } = entry;
    state.unreadable++;
    state.reports.delete(node);
    ensureNodes(state).markUnknown(node, 'rules-not-known', at);
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    // The agent sends its report again, so the same error may come each round.
    if (text !== state.obstacles.get(node)) onReportError(node, error);
    state.obstacles.set(node, text);
  }
}

function* takeAgentEntry(state: State, entry: AgentEntry): Steps {
  const nodes = ensureNodes(state);
  const { node, at } = entry;
  if (entry.kind === 'node-unseen') {
    if (entry.state === null) {
      nodes.remove(node, at);
      state.obstacles.delete(node);
    } else nodes.markUnknown(node, `agent-${entry.state}`, at);
    if (entry.state === null || entry.state === 'absent') state.reports.delete(node);
    return;
  }
  const report = readReport(state, entry);
  state.reports.set(node, report);
  const { rules, version, config } = report;
  const { problems, mode } = entry.report;
  // Rules are not read of a node with many addresses, which one in IPVS mode has.
  const isUnread = problems.length > 0 && config?.mode !== 'ipvs';
  if (isUnread || config === null) {
    nodes.markUnknown(node, 'rules-not-known', at);
    const hasNone = problems.length === 0 && mode === null && report.configText === null;
    const why = hasNone ? [noRules] : problems;
    reportObstacle(state, node, { message: why.join('; ').slice(0, longestReason) });
    return;
  }
  const { lasting, seenAt, etag, outcomes, onNeed } = entry;
  const isLast = outcomes !== null;
  const seen = { rules, etag, version, config, lasting };
  onNeed(yield* nodes.applyReport(node, seen, seenAt, isLast));
  reportObstacle(state, node);
}

const noRules =
  'There are no rules of kube-proxy. With Cilium, set agent.dataplane=cilium (--dataplane cilium)';

/** Any agent may have sent it. */
const longestReason = 500;

function readReport(state: State, entry: NodeReportEntry): LastReport {
  const { node, report, version, outcomes } = entry;
  const before = state.reports.get(node);
  const isSame = before?.version === version && outcomes === null;
  const answers = { ...report, outcomes: outcomes ?? new Map() };
  const rules = isSame ? before.rules : behaviorOfReport(answers);
  const detected = report.mode === null ? (before?.detected ?? report) : report;
  const { proxyConfig: configText } = report;
  // A configuration of kube-proxy says nothing about a node that has, or has lost, Cilium's maps.
  if (configText !== null && detected.mode !== 'cilium') {
    const isKnown = before?.configText === configText;
    const config = isKnown ? before.config : parseConfig(state, node, configText);
    return { version, rules, configText, config, detected };
  }
  const { mode, settings } = detected;
  // A node that had rules of kube-proxy has lost them. Without the maps of Cilium nothing is known,
  // and without both another program may forward here, such as OVN.
  const isUnknown = mode === null || (mode === 'cilium' && report.mode === null);
  if (isUnknown) return { version, rules, configText, config: null, detected };
  const defaults = defaultProxyConfig(mode, state.options.minor());
  return { version, rules, configText, config: { ...defaults, ...settings }, detected };
}

/** The configuration of kube-proxy; `null`, after a problem, if it cannot be read. */
function parseConfig({ options }: State, node: string, text: string): ProxyConfig | null {
  try {
    return readProxyConfig(configIn(text), versionOf(options));
  } catch (error) {
    options.onProblem(problemOf(error, `kube-proxy's configuration on ${node}`, node));
    return null;
  }
}

/** Throws UnreadFile for a text that is no YAML, or that names what it does not contain. */
function configIn(text: string): unknown {
  try {
    return parseYaml(text);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new UnreadFile(message, { cause: error });
  }
}

class UnreadFile extends Error {}

/** Throws other errors than those of dumps and configurations again. */
function problemOf(error: unknown, source: string, node: string): Problem {
  const object = `Node ${node}`;
  if (error instanceof DumpError) return problemAt(source, error.line, error.message, { object });
  if (error instanceof UnreadFile) return problemAt(source, null, error.message, { object });
  if (!(error instanceof WrongType)) throw error;
  const { expected, field, value } = error;
  const details = { object, field, value: valueText(value) };
  return problemAt(source, null, `Expected ${expected} in the configuration`, details);
}
