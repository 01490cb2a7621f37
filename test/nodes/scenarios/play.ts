// The four ways in which a scenario is run: either mode of kube-proxy in either address family. A
// scenario is written for IPv4; its text becomes that of another way line by line, so that errors
// name the lines of the file.

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import type { PendingFindings } from '../../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { NodeRules } from '../../../src/auditor/node-rules.ts';
import { createNodeRules } from '../../../src/auditor/node-rules.ts';
import { project } from '../../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../../src/cluster/store/store.ts';
import { createStore } from '../../../src/cluster/store/store.ts';
import { resources } from '../../../src/model/objects.ts';
import type { Packet, ProxyConfig } from '../../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { readRulesDump } from '../../../src/rules/parse/rules-dump.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import type { PacketOutcome } from '../../../src/rules/walk/walk.ts';
import type { ExpectedOutcome } from '../../../src/model/proxy-config.ts';
import { expectedForwarding, slicesByService } from '../../../src/shadow/forwarding.ts';
import { walk } from '../../rules/rulesets.ts';
import type { Api, NodeObject } from '../../scenarios/api.ts';
import { createApi, epoch } from '../../scenarios/api.ts';
import type { Scenario, Statement, Step } from '../../scenarios/parse.ts';
import { splitWords } from '../../scenarios/parse.ts';
import type { Place } from '../../scenarios/statements.ts';
import { addressAfter, expandName, fail, perform, splitWord } from '../../scenarios/statements.ts';
import type { ProxiedNode, ProxiedService } from './kubeproxy.ts';
import {
  hashOf,
  iptablesDump,
  iptablesLines,
  nftablesDump,
  nftablesLines,
  servicePortsOf,
} from './kubeproxy.ts';

export interface Variant {
  readonly mode: 'iptables' | 'nftables';
  readonly family: 'IPv4' | 'IPv6';
}

export const variants: readonly Variant[] = (['iptables', 'nftables'] as const).flatMap((mode) =>
  (['IPv4', 'IPv6'] as const).map((family) => ({ mode, family })),
);

/** The text of a scenario in this way: no lines for others, and addresses of the family. */
export function textFor(text: string, { mode, family }: Variant): string {
  let dropped = Infinity;
  const lines = text.split('\n').map((line) => {
    const indent = line.length - line.trimStart().length;
    // A line for another way goes with the deeper ones that continue it.
    if (indent > dropped) return '';
    dropped = Infinity;
    const match = /^( *)in (iptables|nftables|IPv4|IPv6) (.*)$/.exec(line);
    if (match === null) return line;
    const [, space = '', way = '', rest = ''] = match;
    if (way === mode || way === family) return `${space}${rest}`;
    dropped = indent;
    return '';
  });
  const own = lines.join('\n');
  return family === 'IPv4' ? own : own.replaceAll(address, inIPv6);
}

const address = /(?<![\d.])((?:\d+\.){3}\d+)(?:\/(\d+)|:(\d+))?(?![\d.])/g;

/** `10.0.1.5` becomes `fd00:10:0:1::5`: each octet is a group; 127.0.0.1 becomes `::1`. */
function inIPv6(_: string, ip: string, bits?: string, port?: string): string {
  const [a = '', b = '', c = '', d = ''] = ip.split('.');
  const groups = ['fd00', a, b, c];
  while (groups.at(-1) === '0') groups.pop();
  const text = a === '127' ? '::1' : `${groups.join(':')}::${d === '0' ? '' : d}`;
  // A prefix ends at an octet, so at a group: 16 bits for `fd00`, then 16 for each octet.
  if (bits !== undefined) return `${text}/${bits === '32' ? 128 : 16 + 2 * Number(bits)}`;
  return port === undefined ? text : `[${text}]:${port}`;
}

// Edits of a node's rules in words, in addition to what kube-proxy writes: rules that are lost,
// changed, or written by others. Each phrase is translated into both languages. The lines are those
// of kubeproxy.ts.

/** The rules of a node, line by line; those of others come first in their chains. */
interface NodeLines {
  readonly own: readonly string[];
  readonly foreign: readonly string[];
}

/** By phrase: the lines that go, in either language. */
const lost: Readonly<Record<string, Readonly<Record<Variant['mode'], RegExp>>>> = {
  'all rules': { iptables: /./, nftables: /./ },
  'the jump from PREROUTING': {
    iptables: /^nat PREROUTING /,
    nftables: /"rule".*"chain":"nat-prerouting"/,
  },
  'the jump from OUTPUT': { iptables: /^nat OUTPUT /, nftables: /"rule".*"chain":"nat-output"/ },
  'the jump to node ports': {
    iptables: /-j KUBE-NODEPORTS$/,
    nftables: /"data":"@service-nodeports"/,
  },
  'the marks': { iptables: /^nat KUBE-MARK-MASQ /, nftables: /"rule".*"mangle".*"\|"/ },
  masquerading: {
    iptables: /^nat KUBE-POSTROUTING .*MASQUERADE/,
    nftables: /"rule".*"masquerade"/,
  },
  rejects: { iptables: /-j REJECT$/, nftables: /"rule".*"reject"/ },
};

/** Does `rules without WORDS` or `rules with WORDS`. */
function edit(place: Place, lines: NodeLines, words: readonly string[], way: Variant): NodeLines {
  const text = words.slice(1).join(' ');
  if (words[0] === 'without') {
    const pattern = lost[text]?.[way.mode];
    if (pattern === undefined) fail(place, `Unknown rules to be without: ${text}`);
    const own = lines.own.filter((line) => !pattern.test(line));
    if (own.length === lines.own.length) fail(place, `There are no such rules: ${text}`);
    return { ...lines, own };
  }
  if (words[0] !== 'with') fail(place, `Expected \`with\` or \`without\`: ${words.join(' ')}`);
  const share = /^(?<percent>\d0)% of (?<name>\S+) to its first endpoint$/.exec(text)?.groups;
  if (share !== undefined) {
    const { percent = '', name = '' } = share;
    const own = lines.own.map((line) => skew(line, name, Number(percent) / 100, way));
    if (own.join() === lines.own.join()) fail(place, `No two endpoints to choose from: ${name}`);
    return { ...lines, own };
  }
  const foreign = drop(text, way) ?? translation(text, way);
  if (foreign === null) fail(place, `Unknown rules to be with: ${text}`);
  // A table of others is declared once.
  return { ...lines, foreign: [...new Set([...lines.foreign, ...foreign])] };
}

/** Of two endpoints the first gets this share. */
function skew(line: string, name: string, share: number, { mode }: Variant): string {
  if (mode === 'iptables') {
    const isOwn = line.startsWith(`nat KUBE-SVC-${hashOf(`${name}tcp`)} `);
    return isOwn ? line.replace('0.50000000000', share.toFixed(11)) : line;
  }
  const pattern = /"mod":2,(.*)"set":\[\[0,(.*)\],\[1,(.*)\]\]/;
  const match = line.includes(`"chain":"service-${name}/`) ? pattern.exec(line) : null;
  if (match === null) return line;
  const [whole, middle = '', first = '', second = ''] = match;
  const tenths = Array.from(
    { length: 10 },
    (_, index) => `[${index},${index < 10 * share ? first : second}]`,
  );
  return line.replace(whole, `"mod":10,${middle}"set":[${tenths.join()}]`);
}

const is = (protocol: string, field: string, right: unknown): unknown => ({
  match: { op: '==', left: { payload: { protocol, field } }, right },
});

/** A table of another program with one chain and one rule. */
function tableOf(
  { family }: Variant,
  name: string,
  base: { readonly type: string; readonly hook: string; readonly prio: number },
  expr: readonly unknown[],
): string[] {
  const own = { family: family === 'IPv4' ? 'ip' : 'ip6', table: name };
  return [
    { table: { family: own.family, name } },
    { chain: { ...own, name: 'first', ...base, policy: 'accept' } },
    { rule: { ...own, chain: 'first', expr } },
  ].map((object) => JSON.stringify(object));
}

/**
 * `a rule of others that drops tcp 8080`: of packets that are forwarded. `of Linux` asks for the
 * fingerprint of the sender, which no dump shows.
 */
function drop(text: string, way: Variant): string[] | null {
  const drops = /^a rule of others that drops (?<protocol>tcp|udp) (?<port>\d+)/;
  const only = /(?: to (?<ip>\S+)| of (?<system>\w+))?$/;
  const groups = new RegExp(drops.source + only.source).exec(text)?.groups;
  if (groups === undefined) return null;
  const { protocol = '', port = '', ip, system } = groups;
  if (way.mode === 'iptables') {
    const to = ip === undefined ? '' : ` -d ${ip}`;
    const from = system === undefined ? '' : ` -m osf --genre ${system}`;
    return [`filter FORWARD${to} -p ${protocol}${from} -m ${protocol} --dport ${port} -j DROP`];
  }
  const to = ip === undefined ? [] : [is(way.family === 'IPv4' ? 'ip' : 'ip6', 'daddr', ip)];
  const osf = { match: { op: '==', left: { osf: { key: 'name' } }, right: system } };
  const from = system === undefined ? [] : [osf];
  const expr = [...to, ...from, is(protocol, 'dport', Number(port)), { drop: null }];
  return tableOf(way, 'firewall', { type: 'filter', hook: 'forward', prio: 0 }, expr);
}

/** `a rule of others that sends 10.96.0.10:80/tcp to 10.0.0.9:8080`, or to a range of ports. */
function translation(text: string, way: Variant): string[] | null {
  const asks = /^a rule of others that sends (?<ip>\S+):(?<port>\d+)\/(?<protocol>tcp|udp)/;
  const sends = / to (?<goal>\S+):(?<ports>[\d-]+)$/;
  const groups = new RegExp(asks.source + sends.source).exec(text)?.groups;
  if (groups === undefined) return null;
  const { protocol = '', port = '', goal = '', ports = '' } = groups;
  const bare = (address = ''): string => address.replace(/^\[(.*)\]$/, '$1');
  const ip = bare(groups.ip);
  if (way.mode === 'iptables') {
    const asked = `-d ${ip}/${ip.includes(':') ? 128 : 32} -p ${protocol} -m ${protocol}`;
    return [`nat PREROUTING ${asked} --dport ${port} -j DNAT --to-destination ${goal}:${ports}`];
  }
  const [low, high] = ports.split('-').map(Number);
  const dnat = { addr: bare(goal), port: high === undefined ? low : { range: [low, high] } };
  const family = way.family === 'IPv4' ? 'ip' : 'ip6';
  const asked = [is(family, 'daddr', ip), is(protocol, 'dport', Number(port))];
  const base = { type: 'nat', hook: 'prerouting', prio: -110 };
  return tableOf(way, 'other', base, [...asked, { dnat }]);
}

// What a scenario says of packets:
//
//   packet from pod 10.0.1.9 to 10.96.0.1:80 goes to 10.0.1.1:80 0.9, 10.0.2.1:80 0.1
//   packet from outside 192.0.2.1 to 10.96.0.1:53/udp is rejected
//   packet from node 172.18.0.2 to 10.96.0.1:80 must go to 10.0.1.1:8080 masqueraded
//
// Without `must` the line says what the rules do.

interface PacketStatement {
  readonly place: Place;
  readonly packet: Packet;
  /** It is about what must come of the packet, and not about what the rules make of it. */
  readonly isMust: boolean;
  /** Where it goes, in canonical order and words. */
  readonly outcome: string;
}

const form = new RegExp(
  [
    /^packet from (?<from>pod|node|outside) (?<src>\S+)/,
    / to (?<dst>\S+):(?<port>\d+)(?:\/(?<protocol>tcp|udp|sctp))?/,
    / (?<verb>goes to|is|must go to|must be) (?<outcome>.+)$/,
  ]
    .map(({ source }) => source)
    .join(''),
);

const words = ['rejected', 'dropped', 'untranslated'];

function parsePacket(place: Place, all: readonly string[]): PacketStatement {
  const text = all.join(' ');
  const groups = form.exec(text)?.groups;
  if (groups === undefined) {
    fail(place, `Expected \`packet from pod|node|outside IP to IP:PORT goes to …\`: ${text}`);
  }
  const { from, src = '', dst = '', port, protocol = 'tcp', verb = '', outcome = '' } = groups;
  const packet = { from, src, dst: dst.replace(/^\[(.*)\]$/, '$1'), protocol, dport: Number(port) };
  const isMust = verb.startsWith('must');
  const isUnknown = outcome === 'unknown' && verb === 'is';
  const canonical = isUnknown ? outcome : outcomeOf(place, outcome.split(', '));
  return { place, packet: packet as Packet, isMust, outcome: canonical };
}

/** `10.0.0.1:8080 0.5 masqueraded affinity=60s`: shares are even where none is given. */
function outcomeOf(place: Place, parts: readonly string[]): string {
  const texts = parts.map((part) => {
    const [name = '', ...rest] = part.split(' ');
    if (!words.includes(name) && !/:[\d-]+$/.test(name)) {
      fail(place, `Expected ENDPOINT, ${words.join(', ')}: ${part}`);
    }
    const share = rest.find((word) => /^[\d.]+$/.test(word));
    const about = rest.filter((word) => word !== share);
    const unknown = about.find((word) => word !== 'masqueraded' && !/^affinity=\d+s$/.test(word));
    if (unknown !== undefined) fail(place, `Unknown word of a packet: ${unknown}`);
    return entryText(name, Number(share ?? 1 / parts.length), about);
  });
  return texts.sort().join(', ');
}

const entryText = (name: string, share: number, about: readonly string[]): string =>
  [name, Number(share.toFixed(6)), ...[...about].sort()].join(' ');

const about = (masqueraded: boolean | 'unknown', seconds: number | null): string[] => [
  ...(masqueraded === true ? ['masqueraded'] : masqueraded === 'unknown' ? ['masqueraded?'] : []),
  ...(seconds === null ? [] : [`affinity=${seconds}s`]),
];

/** What the rules make of a packet, in the same words. */
function actualOutcome(world: World, { packet, place }: PacketStatement): string {
  const { ip } = nodeOf(place);
  const outcome = walk(world.ruleset, { localAddresses: [ip] }, packet);
  return outcome.unknown.length > 0 ? 'unknown' : outcomeText(outcome);
}

function outcomeText({ destinations, reject, drop, pass }: PacketOutcome): string {
  const others = Object.entries({ rejected: reject, dropped: drop, untranslated: pass });
  return [
    ...[...destinations].map(([name, { probability, masqueraded, affinitySeconds }]) =>
      entryText(name, probability, about(masqueraded, affinitySeconds)),
    ),
    ...others.flatMap(([name, { probability, masqueraded }]) =>
      probability === 0 ? [] : entryText(name, probability, about(masqueraded, null)),
    ),
  ]
    .sort()
    .join(', ');
}

/** What may come of a packet on a node in order: any of these. */
function expectedOutcomes(world: World, { packet, place }: PacketStatement): string[] {
  const { store, variant, clusterCIDR, scenario } = world;
  const { services, slices, nodes } = store.listers;
  const node = nodes.get(nodeOf(place).name);
  if (node === undefined) fail(place, 'No such node');
  const config: ProxyConfig = {
    ...defaultProxyConfig(variant.mode, scenario.release.minor),
    clusterCIDRs: [clusterCIDR],
  };
  const byService = slicesByService(slices.values());
  const { outcomes } = expectedForwarding(services.values(), byService, node, config).expect(
    packet,
  );
  return outcomes.map(expectedText);
}

const kinds = { reject: 'rejected', drop: 'dropped', pass: 'untranslated' } as const;

function expectedText(outcome: ExpectedOutcome): string {
  if (outcome.kind !== 'endpoints') return entryText(kinds[outcome.kind], 1, []);
  const { endpoints, affinitySeconds } = outcome;
  return [...endpoints]
    .map(([name, masked]) => entryText(name, 1 / endpoints.size, about(masked, affinitySeconds)))
    .sort()
    .join(', ');
}

/** What is wrong with what is said of a packet; null: nothing. */
export function problemOf(world: World, statement: PacketStatement): string | null {
  const { outcome, isMust, place } = statement;
  const expected = expectedOutcomes(world, statement);
  if ((isMust || isInSync(world, place)) && !expected.includes(outcome)) {
    return `must be ${expected.join(' or ')}, and not ${outcome}`;
  }
  const actual = isMust ? outcome : actualOutcome(world, statement);
  return actual === outcome ? null : `is ${actual}, and not ${outcome}`;
}

// Plays a scenario of a node: its Services, slices and rules, step by step, and what the audit of
// the node finds. README.md describes the notation; Services, slices and nodes are those of
// test/scenarios, with the words that only kube-proxy needs.
//
//   statements ─► API objects ─► store ─► expected forwarding ─┐
//              └► kube-proxy's rules, changed in words ─► dump ┴► audit of the node ─► findings

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
  /** Of cluster IPs, for kube-proxy's rule about unallocated ones; null: it knows none. */
  serviceCIDR: string | null;
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
  return {
    ...{ scenario, variant, store, nodeRules, settle, resolved, api, statements: [] },
    ...{ clusterCIDR: '', serviceCIDR: null, lines, ...none },
  };
}

function dumpOf({ own, foreign }: NodeLines, { mode }: Variant): string {
  const lines = [...foreign, ...own];
  return mode === 'iptables' ? iptablesDump(lines) : nftablesDump(lines);
}

/** The node whose rules are written: the first that has an address. */
function nodeOf(place: Place): ProxiedNode {
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
    } else if (words[0] === 'cluster') Object.assign(world, clusterOf(place, words));
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

function clusterOf(place: Place, words: readonly string[]) {
  const { pods, services, ...others } = Object.fromEntries(words.slice(1).map(splitWord));
  if (pods === undefined || Object.keys(others).length > 0)
    fail(place, `Expected \`cluster pods=CIDR\`: ${words.join(' ')}`);
  return { clusterCIDR: pods, serviceCIDR: services ?? null };
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
function ownLines(world: World, place: Place, others: readonly Statement[] = []): string[] {
  const { scenario, statements, clusterCIDR, serviceCIDR } = world;
  const api = createApi();
  for (const statement of [...statements, ...others]) performProxied(scenario, api, statement);
  const node = nodeOf({ ...place, api });
  const ports = servicePortsOf(api, node);
  return world.variant.mode === 'iptables'
    ? iptablesLines(ports, clusterCIDR, node.ip)
    : nftablesLines(ports, clusterCIDR, node.ip, serviceCIDR);
}

/** Whether the rules are those that kube-proxy writes, without rules of others. */
function isInSync(world: World, place: Place): boolean {
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
interface Shown {
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
