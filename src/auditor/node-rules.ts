// Nodes on their way into the audit: lines of a recording and dumps of the command line become the
// configuration and the rules of a node, and so does what agents tell. What comes before the
// cluster is known waits for it, the last of each kind. A dump is parsed when it changes, and what
// cannot be read makes its node unknown.

import { parse, YAMLParseError } from 'yaml';

import type { AgentReport } from '../agent/client/report.ts';
import type { AgentEntry, NodeReportEntry } from '../agent/client/scraper.ts';
import type { Nodes, NodesOptions } from '../audit/node/nodes.ts';
import { createNodes } from '../audit/node/nodes.ts';
import type { ReportedBehavior } from '../audit/node/observation.ts';
import { behaviorOfReport } from '../audit/node/observation.ts';
import type { ProxyCache } from '../audit/node/proxy-cache.ts';
import { createProxyCache } from '../audit/node/proxy-cache.ts';
import { WrongType } from '../cluster/decode/json-fields.ts';
import type { NodeConfigEntry, NodeRulesEntry } from '../cluster/decode/node-entries.ts';
import type { OnProblem, Problem } from '../cluster/decode/problem.ts';
import { problemAt, valueText } from '../cluster/decode/problem.ts';
import { readProxyConfig } from '../cluster/decode/proxy-config.ts';
import type { Change } from '../model/objects.ts';
import type { ProxyConfig } from '../model/proxy-config.ts';
import { defaultProxyConfig } from '../model/proxy-config.ts';
import { readRulesDump } from '../rules/parse/rules-dump.ts';
import { DumpError, lackText } from '../rules/ruleset.ts';

/** A dump that somebody named, with what is known of it. */
export interface GivenRules {
  readonly kind: 'given-rules';
  readonly node: string;
  /** A path. */
  readonly source: string;
  readonly text: string;
  /** Why there is no text to judge by, as a sentence; null: there is. */
  readonly unread: string | null;
  /** A KubeProxyConfiguration; null: the dump tells the mode, and the defaults the rest. */
  readonly config: unknown;
}

export type NodeEntry = NodeConfigEntry | NodeRulesEntry | GivenRules;

export interface NodeRules {
  take(entry: NodeEntry, at: number): void;
  /** Takes in what comes of an agent, once the cluster is known. */
  takeAgentEntry(entry: AgentEntry): Generator<undefined, void>;
  /** Frontends of all nodes that differ from what their rules should make of them. */
  readonly divergent: () => number;
  /** The cluster is known from now on. */
  begin(at: number): void;
  /** Takes in one change, which the snapshot already holds. */
  apply(change: Change): void;
  /** null: no node has been told of, or the cluster is not known yet. */
  readonly nodes: () => Nodes | null;
  /** Dumps that could not be read. */
  readonly unreadable: () => number;
}

export interface NodeRulesOptions extends Omit<NodesOptions, 'proxied'> {
  readonly onProblem: OnProblem;
}

interface State {
  readonly options: NodeRulesOptions;
  readonly waiting: Map<string, NodeEntry>;
  isBegun: boolean;
  proxied: ProxyCache | null;
  nodes: Nodes | null;
  unreadable: number;
  readonly told: Map<string, ToldNode>;
  /** What the dumps of a node lacked when it was last said. */
  readonly lacking: Map<string, string>;
}

/** What an agent has told last. */
interface ToldNode {
  readonly version: string;
  readonly rules: ReportedBehavior;
  /** From what it was read, and what was read; null: it cannot be. */
  readonly configText: string | null;
  readonly config: ProxyConfig | null;
  /** As kube-proxy's rules showed it while there were any. */
  readonly detected: Pick<AgentReport, 'mode' | 'settings'>;
}

export function createNodeRules(options: NodeRulesOptions): NodeRules {
  const waiting = new Map<string, NodeEntry>();
  const state: State = {
    options,
    waiting,
    isBegun: false,
    proxied: null,
    nodes: null,
    unreadable: 0,
    told: new Map(),
    lacking: new Map(),
  };
  return {
    take(entry, at) {
      const isSame = entry.kind === 'node-rules' && entry.text === null;
      if (state.isBegun) {
        pass(state, entry, at);
        sayLacking(state, [entry]);
      } else if (!isSame) waiting.set(`${entry.kind} ${entry.node} ${sourceOf(entry)}`, entry);
    },
    begin(at) {
      state.isBegun = true;
      for (const entry of waiting.values()) pass(state, entry, at);
      sayLacking(state, waiting.values());
      waiting.clear();
    },
    takeAgentEntry: (entry) => hear(state, entry),
    divergent: () => {
      return [...state.told.values()].reduce((sum, { rules }) => sum + rules.divergent(), 0);
    },
    apply: (change) => state.proxied?.apply(change),
    nodes: () => state.nodes,
    unreadable: () => state.unreadable,
  };
}

function sourceOf(entry: NodeEntry): string {
  if (entry.kind === 'node-config') return '';
  return entry.kind === 'node-rules' ? `${entry.tool} ${entry.family}` : entry.source;
}

function nodesOf(state: State): Nodes {
  const { options } = state;
  state.proxied ??= createProxyCache(options.listers);
  return (state.nodes ??= createNodes({ ...options, proxied: state.proxied }));
}

function pass(state: State, entry: NodeEntry, now: number): void {
  const { options } = state;
  const nodes = nodesOf(state);
  if (entry.kind === 'node-config') {
    const { mode, clusterCIDRs } = entry;
    nodes.configure(entry.node, { mode, ...(clusterCIDRs.length > 0 ? { clusterCIDRs } : {}) });
    return;
  }
  const { node, text } = entry;
  const source = sourceOf(entry);
  const isLine = entry.kind === 'node-rules';
  // What waited is as old as it is, but was judged by nothing.
  const at = isLine ? Math.max(entry.dumpedAt, now - (entry.at - entry.dumpedAt)) : now;
  try {
    if (!isLine && entry.unread !== null) throw new Unread(entry.unread);
    if (!isLine && entry.config !== null) {
      nodes.configure(node, readProxyConfig(entry.config, `v1.${String(options.minor())}.0`));
    }
    const dump = text === null ? null : readRulesDump(text, isLine ? entry.family : null);
    nodes.applyDump(node, source, dump, at);
  } catch (error) {
    options.onProblem(problemOf(error, source, `Node ${node}`));
    state.unreadable++;
    nodes.markUnreadable(node, source, at);
  }
}

/** Says what the dumps of these nodes, all that were passed, do not tell: once while it is so. */
function sayLacking(state: State, entries: Iterable<NodeEntry>): void {
  for (const node of new Set([...entries].map((entry) => entry.node))) {
    const texts = (state.nodes?.lacks(node) ?? []).map(lackText);
    const text = [...new Set(texts)].join('; ');
    if (text !== '' && text !== state.lacking.get(node)) {
      state.options.onProblem(
        problemAt(`rules of ${node}`, null, text, { object: `Node ${node}` }),
      );
    }
    state.lacking.set(node, text);
  }
}

function* hear(state: State, entry: AgentEntry): Generator<undefined, void> {
  const nodes = nodesOf(state);
  const { node, at } = entry;
  if (entry.kind === 'node-unseen') {
    if (entry.state === null) nodes.remove(node, at);
    else nodes.markUnknown(node, `agent-${entry.state}`);
    if (entry.state === null || entry.state === 'absent') state.told.delete(node);
    return;
  }
  const told = toldBy(state, entry);
  state.told.set(node, told);
  const { rules, version, config } = told;
  if (entry.report.problems.length > 0 || config === null) {
    nodes.markUnknown(node, 'rules-not-known');
    return;
  }
  const { lasting, seenAt, outcomes, onNeed } = entry;
  const isLast = outcomes !== null;
  onNeed(yield* nodes.applyReport(node, { rules, version, config, lasting }, seenAt, isLast));
}

function toldBy(state: State, { node, report, version, outcomes }: NodeReportEntry): ToldNode {
  const before = state.told.get(node);
  const isSame = before?.version === version && outcomes === null;
  const { asking, claims, digests, localAddresses, proxyConfig: configText } = report;
  const known = { asking, claims, digests, localAddresses, outcomes: outcomes ?? new Map() };
  const rules = isSame ? before.rules : behaviorOfReport(known);
  const detected = report.mode === null ? (before?.detected ?? report) : report;
  if (configText !== null) {
    const isRead = before?.configText === configText;
    const config = isRead ? before.config : configOf(state, node, configText);
    return { version, rules, configText, config, detected };
  }
  const { mode, settings } = detected;
  const usual = defaultProxyConfig(mode ?? 'iptables', state.options.minor());
  return { version, rules, configText, config: { ...usual, ...settings }, detected };
}

/** What kube-proxy's configuration says; null: it cannot be read, which is told. */
function configOf({ options }: State, node: string, text: string): ProxyConfig | null {
  const source = `kube-proxy's configuration on ${node}`;
  try {
    return readProxyConfig(parse(text), `v1.${String(options.minor())}.0`);
  } catch (error) {
    const isYaml = error instanceof YAMLParseError;
    options.onProblem(
      isYaml
        ? problemAt(source, null, error.message, { object: `Node ${node}` })
        : problemOf(error, source, `Node ${node}`),
    );
    return null;
  }
}

/** A file of which there is nothing to judge. */
class Unread extends Error {}

/** What is wrong with a dump, or with the configuration; throws what is neither. */
function problemOf(error: unknown, source: string, object: string): Problem {
  if (error instanceof DumpError) return problemAt(source, error.line, error.message, { object });
  if (error instanceof Unread) return problemAt(source, null, error.message, { object });
  if (!(error instanceof WrongType)) throw error;
  const { expected, field, value } = error;
  const more = { object, field, value: valueText(value) };
  return problemAt(source, null, `Expected ${expected} in the configuration`, more);
}
