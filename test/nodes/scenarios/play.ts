// Plays a scenario of a node: its Services, slices and rules, step by step, and what the audit of
// the node finds. README.md describes the notation; Services, slices and nodes are those of
// test/scenarios, with the words that only kube-proxy needs.
//
//   statements ─► API objects ─► store ─► expected forwarding ─┐
//              └► kube-proxy's rules, changed in words ─► dump ┴► audit of the node ─► findings

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import type { PendingFindings } from '../../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { NodeRules } from '../../../src/auditor/node-rules.ts';
import { createNodeRules } from '../../../src/auditor/node-rules.ts';
import { project } from '../../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../../src/cluster/store/store.ts';
import { createStore } from '../../../src/cluster/store/store.ts';
import { resources } from '../../../src/model/objects.ts';
import { readRulesDump } from '../../../src/rules/parse/rules-dump.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import type { Api, NodeObject } from '../../scenarios/api.ts';
import { createApi, epoch } from '../../scenarios/api.ts';
import type { Scenario, Statement, Step } from '../../scenarios/parse.ts';
import { splitWords } from '../../scenarios/parse.ts';
import { perform } from '../../scenarios/statements.ts';
import type { Place } from '../../scenarios/words.ts';
import { addressAfter, expandName, fail, splitWord } from '../../scenarios/words.ts';
import type { NodeLines } from './edits.ts';
import { edit } from './edits.ts';
import { iptablesDump, iptablesLines } from './iptables.ts';
import type { ProxiedNode, ProxiedService } from './kubeproxy.ts';
import { servicePortsOf } from './kubeproxy.ts';
import { nftablesDump, nftablesLines } from './nftables.ts';
import type { PacketStatement } from './packets.ts';
import { parsePacket } from './packets.ts';
import type { Variant } from './variants.ts';

/** A node under audit. */
export interface World {
  readonly scenario: Scenario;
  readonly variant: Variant;
  readonly store: Store;
  readonly nodeRules: NodeRules;
  readonly settle: PendingFindings;
  /** Findings resolved since they were last asked for. */
  readonly resolved: Finding[];
  readonly api: Api;
  /** Statements about objects so far, from which other states are made. */
  readonly statements: Statement[];
  clusterCIDR: string;
  lines: NodeLines;
  /** What was dumped last, and its rules. */
  dumped: string;
  ruleset: RuleSet;
}

export function createWorld(scenario: Scenario, variant: Variant): World {
  const store = createStore(new Set(resources));
  const { window, release } = scenario;
  const resolved: Finding[] = [];
  const settle = createPendingFindings({
    window,
    keep: 100,
    onResolve: (finding) => void resolved.push(finding),
  });
  const nodeRules = createNodeRules({
    listers: store.listers,
    settle,
    window,
    minor: () => release.minor,
    onProblem: ({ source, message }) => {
      throw new Error(`${scenario.file}: ${source}: ${message}`);
    },
  });
  const lines = { own: [], foreign: [] };
  const none = {
    dumped: '',
    ruleset: readRulesDump(dumpOf(lines, variant), variant.family).ruleset,
  };
  const api = createApi();
  const clusterCIDR = '';
  return {
    ...{ scenario, variant, store, nodeRules, settle, resolved, api, statements: [], clusterCIDR },
    ...{ lines, ...none },
  };
}

function dumpOf({ own, foreign }: NodeLines, { mode }: Variant): string {
  const lines = [...foreign, ...own];
  return mode === 'iptables' ? iptablesDump(lines) : nftablesDump(lines);
}

/** The node whose rules are written: the first that has an address. */
export function nodeOf(place: Place): ProxiedNode {
  const nodes = place.api.list('nodes') as (NodeObject & Addressed)[];
  const node = nodes.find(({ status }) => status.addresses !== undefined);
  if (node === undefined) fail(place, 'No node has an address: `node a ip=…`');
  const { name, labels } = node.metadata;
  const zone = labels?.['topology.kubernetes.io/zone'] ?? '';
  return { name, ip: node.status.addresses?.[0]?.address ?? '', zone };
}

interface Addressed {
  spec?: { podCIDRs: string[] };
  status: { addresses?: { type: string; address: string }[] };
}

/** Does the statements of a step, lets the audit see it and returns what is said of packets. */
export function playStep(world: World, step: Step): PacketStatement[] {
  const { scenario, api, variant } = world;
  api.now = step.at;
  const packets: PacketStatement[] = [];
  for (const statement of step.statements) {
    const place: Place = { scenario, api, line: statement.line, index: 0 };
    const words = wordsOf(statement);
    if (words[0] === 'packet') packets.push(parsePacket(place, words));
    else if (words[0] === 'kube-proxy') writeRules(world, place, statement);
    else if (words[0] === 'rules') {
      world.lines = edit(place, world.lines, words.slice(1), variant);
    } else if (words[0] === 'cluster') world.clusterCIDR = clusterCIDROf(place, words);
    else {
      world.statements.push(statement);
      performProxied(scenario, api, statement);
    }
  }
  observe(world, step);
  return packets;
}

const wordsOf = ({ words, under }: Statement): string[] => [
  ...words,
  ...under.flatMap(({ text }) => splitWords(text)),
];

function clusterCIDROf(place: Place, words: readonly string[]): string {
  const [key, value] = splitWord(words[1] ?? '');
  if (key !== 'pods' || words.length > 2)
    fail(place, `Expected \`cluster pods=CIDR\`: ${words.join(' ')}`);
  return value;
}

/** kube-proxy's rules for the state, or for a state in which some lines are otherwise. */
function writeRules(world: World, place: Place, { words, under }: Statement): void {
  const text = words.slice(1).join(' ');
  if (text !== 'syncs' && text !== 'syncs as if') {
    fail(place, `Expected \`kube-proxy syncs\` or \`kube-proxy syncs as if\`: ${words.join(' ')}`);
  }
  if ((text === 'syncs') !== (under.length === 0)) {
    fail(place, 'Expected statements under `kube-proxy syncs as if`, and under no other');
  }
  const others = under.map(({ number, text: line }) => ({
    ...{ line: number, words: splitWords(line), block: [], under: [] },
  }));
  world.lines = { ...world.lines, own: ownLines(world, place, others) };
}

/** What kube-proxy writes once these statements, too, are done. */
export function ownLines(world: World, place: Place, others: readonly Statement[] = []): string[] {
  const { scenario, statements, clusterCIDR } = world;
  const api = createApi();
  for (const statement of [...statements, ...others]) performProxied(scenario, api, statement);
  const node = nodeOf({ ...place, api });
  const write = world.variant.mode === 'iptables' ? iptablesLines : nftablesLines;
  return write(servicePortsOf(api, node), clusterCIDR, node.ip);
}

/** Whether the rules are those that kube-proxy writes, without rules of others. */
export function isInSync(world: World, place: Place): boolean {
  const { own, foreign } = world.lines;
  return foreign.length === 0 && ownLines(world, place).join('\n') === own.join('\n');
}

// --- words that only kube-proxy needs ---

/** Does a statement about an object; the words that test/scenarios does not know, itself. */
function performProxied(scenario: Scenario, api: Api, statement: Statement): void {
  const [verb, key = ''] = statement.words;
  const place: Place = { scenario, api, line: statement.line, index: 0 };
  if (verb !== 'service' && verb !== 'node') {
    perform(scenario, api, statement);
    return;
  }
  const words = wordsOf(statement).slice(2);
  const isOurs = (word: string): boolean =>
    Object.hasOwn(verb === 'node' ? nodeWords : serviceWords, splitWord(word)[0]);
  const known = words.filter((word) => !isOurs(word));
  perform(scenario, api, { ...statement, words: [verb, key, ...known], under: [] });
  const ours = words.filter(isOurs);
  const bare = ours.find((word) => splitWord(word)[1] === '');
  if (bare !== undefined) fail(place, `Expected ${bare}=VALUE`);
  for (const [index, name] of expandName(key).entries()) {
    if (verb === 'node') editNode(api, name, ours);
    else editService({ ...place, index }, name, ours);
  }
}

function editNode(api: Api, name: string, words: readonly string[]): void {
  const node = structuredClone(api.get('nodes', name)) as NodeObject & Addressed;
  for (const [word, value] of words.map(splitWord)) nodeWords[word]?.(node, value);
  api.put('nodes', node);
}

function editService({ api, index }: Place, name: string, words: readonly string[]): void {
  const service = structuredClone(api.get('services', name)) as ProxiedService;
  for (const [word, value] of words.map(splitWord)) {
    serviceWords[word]?.(service, addressAfter(value, index));
  }
  api.put('services', service);
}

const nodeWords: Readonly<Record<string, (node: NodeObject & Addressed, value: string) => void>> = {
  ip: (node, address) => void (node.status.addresses = [{ type: 'InternalIP', address }]),
  pods: (node, cidr) => void (node.spec = { podCIDRs: [cidr] }),
};

const serviceWords: Readonly<Record<string, (service: ProxiedService, value: string) => void>> = {
  clusterIP({ spec }, value) {
    const ipFamilies = [value.includes(':') ? 'IPv6' : 'IPv4'];
    Object.assign(spec, { clusterIP: value, clusterIPs: [value], ipFamilies });
  },
  nodePort({ spec }, value) {
    for (const port of spec.ports ?? []) port.nodePort = Number(value);
  },
  externalIPs: ({ spec }, value) => void (spec.externalIPs = value.split(',')),
  loadBalancerIP(service, ip) {
    service.status = { loadBalancer: { ingress: [{ ip }] } };
  },
  sourceRanges({ spec }, value) {
    spec.loadBalancerSourceRanges = value === 'none' ? [] : value.split(',');
  },
  internalTrafficPolicy: ({ spec }, value) => void (spec.internalTrafficPolicy = value),
  externalTrafficPolicy: ({ spec }, value) => void (spec.externalTrafficPolicy = value),
  healthCheckNodePort: ({ spec }, value) => void (spec.healthCheckNodePort = Number(value)),
  affinity({ spec }, value) {
    spec.sessionAffinity = value === 'none' ? 'None' : 'ClientIP';
    spec.sessionAffinityConfig = { clientIP: { timeoutSeconds: Number.parseInt(value) } };
  },
};

// --- the audit ---

/** The audit sees the objects as they are, and then the rules. */
function observe(world: World, step: Step): void {
  const { store, nodeRules, api, variant, lines, clusterCIDR, settle, scenario } = world;
  const at = epoch + step.at;
  const isFirst = scenario.steps[0] === step;
  for (const { resource, type, key, raw } of api.takeEvents()) {
    const read = project(resource, raw, at);
    if (read.problem !== undefined) throw new Error(`${key}: ${read.problem.message}`);
    const change = store.apply({ resource, type, object: read.object, at });
    if (change !== null && !isFirst) nodeRules.apply(change);
  }
  const { name: node } = nodeOf({ scenario, api, line: step.line, index: 0 });
  const { mode, family } = variant;
  if (isFirst) {
    const config = { kind: 'node-config', at, node, mode, clusterCIDRs: [clusterCIDR] } as const;
    nodeRules.take(config, at);
    nodeRules.begin(at);
  }
  const text = dumpOf(lines, variant);
  const isSame = text === world.dumped && !isFirst;
  const tool = mode === 'iptables' ? 'iptables-save' : 'nft';
  const dump = { at, dumpedAt: at, node, tool, family };
  nodeRules.take({ kind: 'node-rules', ...dump, text: isSame ? null : text }, at);
  world.dumped = text;
  if (!isSame) world.ruleset = readRulesDump(text, family).ruleset;
  settle.advance(at);
}

/** A finding as a row of an `expect` table, and what it says. */
export interface Shown {
  readonly text: string;
  readonly details: string;
}

function showFinding(finding: Finding, state: string): Shown {
  const { severity, namespace, service, code, since, object, expected, actual } = finding;
  const name = service === '' ? '-' : `${namespace}/${service}`;
  return {
    text: [severity, name, 'node', code, '-', state, `${since - epoch}s`].join(' '),
    details: [object, expected ?? '-', actual ?? '-'].join(' | '),
  };
}

/** Open findings, and those resolved since the last call. */
export function show(world: World): Shown[] {
  const open = world.settle.open().map((finding) => showFinding(finding, 'open'));
  const resolved = world.resolved.splice(0).map((finding) => showFinding(finding, 'resolved'));
  return [...open, ...resolved].sort((a, b) => (a.text < b.text ? -1 : 1));
}

/** The worst verdict on the ports of a Service; `-`: it has none. */
export function showVerdict({ nodeRules, scenario, api }: World, key: string, now: number): string {
  const { name } = nodeOf({ scenario, api, line: 1, index: 0 });
  const verdicts =
    nodeRules
      .nodes()
      ?.summary(epoch + now)
      .verdicts.get(name) ?? [];
  const own = verdicts.filter(({ port }) => /^[^: ]*/.exec(port)?.[0] === key || port === '');
  const order = ['different', 'pending', 'unknown', 'conform'];
  const [worst] = own.toSorted((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict));
  if (worst === undefined) return '-';
  return [worst.verdict, worst.reason].filter((word) => word !== null).join(' ');
}
