// Audits the node of a folder and holds the findings against what is known of it: a sound recording
// and a fault that changes no behaviour must yield nothing above information, a violation must be
// found, and at the Service port that it is about where it names one.

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { parse } from 'yaml';

import type { Severity } from '../../src/audit/finding/catalogue.ts';
import type { Difference } from '../../src/audit/finding/difference.ts';
import type { NodeFinding } from '../../src/audit/node/aggregate.ts';
import { aggregateFindings } from '../../src/audit/node/aggregate.ts';
import { auditNode, type NodeAudit } from '../../src/audit/node/audit-node.ts';
import type {
  AgentAnswers,
  NodeInput,
  ReportedBehavior,
} from '../../src/audit/node/observation.ts';
import {
  behaviorOfMaps,
  behaviorOfReport,
  behaviorOfRules,
  configOf,
} from '../../src/audit/node/observation.ts';
import { readCiliumConfig } from '../../src/cluster/decode/cilium-config.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import { readProxyConfig } from '../../src/cluster/decode/proxy-config.ts';
import { addCounts } from '../../src/model/collections.ts';
import { addressIn, parseCIDR } from '../../src/model/ip.ts';
import type { EndpointSlice, Node, ObjectOf, Resource, Service } from '../../src/model/objects.ts';
import type { Packet, ProxyConfig } from '../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import { readBpftoolDump } from '../../src/rules/cilium/bpftool-dump.ts';
import { readLbList } from '../../src/rules/cilium/lb-list.ts';
import { type BalancedFrontend, loadBalancerOf } from '../../src/rules/cilium/load-balancer.ts';
import type { MapEntry } from '../../src/rules/cilium/map-entries.ts';
import { readMapsDump } from '../../src/rules/cilium/maps-dump.ts';
import { ciliumForwarding } from '../../src/shadow/cilium/forwarding.ts';
import type { NodeSenders } from '../../src/rules/report/digest.ts';
import {
  digestOf,
  expectedWordsAt,
  keyOf,
  packetText,
  wordsAt,
  wordsOf,
} from '../../src/rules/report/digest.ts';
import { frontendsInRules } from '../../src/rules/report/frontends.ts';
import { decodeOutcomes, encodeOutcomes } from '../../src/rules/report/outcome-json.ts';
import type { Forwarding } from '../../src/shadow/forwarding.ts';
import { expectedForwarding, slicesByService } from '../../src/shadow/forwarding.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { walk } from '../rules/rulesets.ts';
import type { Folder, PacketCounts } from './folder.ts';
import { checkPackets, ciliumFoldersBelow, foldersBelow, readBytes, readFolder } from './folder.ts';

interface AuditCounts {
  /** Folders that hold a fault. */
  faults: number;
  /** Findings above information where there is nothing to find. */
  falseFindings: number;
  /** Violations without a finding. */
  missed: number;
  /** Violations that are found, but not at the Service port that they are about. */
  misplaced: number;
}

interface ProxyFile {
  readonly version: string;
  readonly nodeName: string;
  readonly objects?: string;
  readonly config: unknown;
}

interface Fault {
  /** A Service port, '' if it is about the node; of several faults, a list. */
  readonly about: string | readonly string[];
  readonly violation: boolean;
  readonly base: string;
  /** Only for counts. */
  readonly class: string;
  readonly harm: 'violation' | 'legal' | 'info';
}

/** A list as the API has it, or its items alone. */
type List = readonly unknown[] | { readonly items: readonly unknown[] };

export type Lists = Readonly<Partial<Record<Resource, List>>>;

const textOf = (path: string): string | null => readBytes(path)?.toString() ?? null;

function faultIn(path: string): Fault | null {
  const text = textOf(join(path, 'fault.json'));
  return text === null ? null : (JSON.parse(text) as Fault);
}

function objectsOf<R extends Resource>(lists: Lists, resource: R): ObjectOf[R][] {
  const list: List = lists[resource] ?? [];
  const items: readonly unknown[] = 'items' in list ? list.items : list;
  return items.map((raw) => {
    const read = project(resource, raw, 0);
    if (read.problem === undefined) return read.object;
    throw new Error(`${read.problem.object}: ${read.problem.message}`);
  });
}

/** What a kube-proxy sees. */
export interface Input {
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
  readonly node: Node;
  readonly config: ProxyConfig;
}

/** The expected state of the node of a folder; null if the folder does not contain it. */
export function inputOf(
  { path }: Pick<Folder, 'path'>,
  change: (lists: Lists) => Lists = (lists) => lists,
): Input | null {
  const fault = faultIn(path);
  const base = fault === null ? path : resolve(path, fault.base);
  const proxy = parse(textOf(join(base, 'proxy-config.yaml')) ?? '{}') as ProxyFile;
  if (proxy.objects === undefined) return null;
  const own = textOf(join(path, 'objects.json')) ?? textOf(join(base, proxy.objects));
  const lists = change(JSON.parse(own ?? '{}') as Lists);
  const node = objectsOf(lists, 'nodes').find(({ name }) => name === proxy.nodeName);
  if (node === undefined) throw new Error(`${path}: no Node ${proxy.nodeName} in its objects`);
  return {
    services: objectsOf(lists, 'services'),
    slices: objectsOf(lists, 'endpointslices'),
    node,
    config: readProxyConfig(proxy.config, proxy.version),
  };
}

/** What the node must do, given what its kube-proxy sees. */
export function expectedOf(folder: Folder, { services, slices, node, config }: Input): Forwarding {
  const { localAddresses } = folder.node;
  return expectedForwarding(services, slicesByService(slices), node, config, localAddresses);
}

/** Both, as a folder has them. */
export function forwardingOf(folder: Folder): { forwarding: Forwarding; node: Node } | null {
  const input = inputOf(folder);
  return input === null ? null : { forwarding: expectedOf(folder, input), node: input.node };
}

/** A finding, with the Service port and the rule that its texts name. */
interface FindingSummary extends NodeFinding, Difference {
  readonly severity: Severity;
  /** Empty if the finding is about no Service port. */
  readonly ports: ReadonlySet<string>;
  readonly rule: string | null;
}

const summaryOf = (finding: NodeFinding): FindingSummary => ({
  ...finding.difference,
  ...finding,
  ports: new Set(
    finding.nodeWide ? [] : finding.differences.flatMap(({ port }) => port?.name ?? []),
  ),
  rule: / by (?<rule>.*)$/.exec(finding.difference.actual ?? '')?.groups?.rule ?? null,
});

/** Findings and verdicts of one audit. */
export interface NodeAuditSummary {
  /** Worst first. */
  readonly findings: readonly FindingSummary[];
  /** Service ports by verdict. */
  readonly conform: number;
  readonly different: number;
  readonly unknown: number;
}

export const summarizeNode = (input: NodeInput): NodeAuditSummary =>
  summarizeAudit(input, auditNode(input));

/** The summary of an audit that was made. */
export function summarizeAudit(
  { forwarding, node, rules: { frontends } }: NodeInput,
  { differences, coverage, unknown }: NodeAudit,
): NodeAuditSummary {
  const findings = aggregateFindings(node.name, differences, coverage, frontends).map(summaryOf);
  const names = new Set(forwarding.ports.map(({ key }) => key));
  const harmful = differences.filter(({ harmless }) => !harmless);
  const different = new Set(harmful.flatMap(({ port }) => port?.key ?? []));
  const unknowns = [...unknown].filter((name) => !different.has(name)).length;
  const conform = names.size - different.size - unknowns;
  return { findings, conform, different: different.size, unknown: unknowns };
}

/** The configuration of kube-proxy: given, or inferred from the rules. */
type Configured = 'by a file' | 'by its rules';

const behaviors = new WeakMap<Folder, NodeInput['rules']>();

/** What the rules of a folder do: an audit uses the walks of its packets and of other audits. */
export function behaviorIn(folder: Folder): NodeInput['rules'] {
  const { ruleset, node } = folder;
  const rules = behaviors.get(folder) ?? {
    ...behaviorOfRules(ruleset, node),
    walk: (packet: Packet) => walk(ruleset, node, packet),
  };
  behaviors.set(folder, rules);
  return rules;
}

interface FolderAudit {
  readonly config: ProxyConfig;
  readonly audit: NodeAudit;
  readonly summary: NodeAuditSummary;
}

/** The audits of a folder that were made, since one with the same configuration is the same. */
const audits = new WeakMap<Folder, readonly FolderAudit[]>();

/** Audits the node of a folder; null: there are no objects to hold it against. */
export function auditFolder(folder: Folder, configured: Configured): FolderAudit | null {
  const input = inputOf(folder);
  if (input === null) return null;
  const { node, config: given } = input;
  const config = configured === 'by a file' ? given : configOf(folder.ruleset, given.minor);
  const made = audits.get(folder) ?? [];
  const known = made.find((one) => isDeepStrictEqual(one.config, config));
  if (known !== undefined) return known;
  const forwarding = expectedOf(folder, { ...input, config });
  const audited = { forwarding, node, rules: behaviorIn(folder) };
  const audit = auditNode(audited);
  const added = { config, audit, summary: summarizeAudit(audited, audit) };
  audits.set(folder, [...made, added]);
  return added;
}

/**
 * Audits one folder and counts what is wrong with the audit; `codes` takes up what was found.
 */
export function checkAudit(
  folder: Folder,
  report: (line: string) => void,
  codes: Set<string>,
  configured: Configured = 'by a file',
): AuditCounts {
  const audit = auditFolder(folder, configured)?.summary;
  if (audit === undefined) return { faults: 0, falseFindings: 0, missed: 0, misplaced: 0 };
  const mayMiss = folder.hasBothBackends && audit.unknown > 0;
  return checkFindings(folder.path, audit, mayMiss, report, codes);
}

/** Compares the findings of a folder with its fault. `mayMiss`: a violation may stay unknown. */
function checkFindings(
  path: string,
  audit: NodeAuditSummary,
  mayMiss: boolean,
  report: (line: string) => void,
  codes: Set<string>,
): AuditCounts {
  const counts = { faults: 0, falseFindings: 0, missed: 0, misplaced: 0 };
  for (const { code } of audit.findings) codes.add(code);
  const fault = faultIn(path);
  const found = audit.findings.filter(({ severity }) => severity !== 'info');
  if (fault !== null) counts.faults = 1;
  const problem = fault?.violation === true ? missOf(fault.about, found, mayMiss) : null;
  if (fault?.violation !== true) counts.falseFindings = found.length;
  else if (problem !== null) counts[problem]++;
  const kind = counts.falseFindings > 0 ? 'false finding' : problem;
  if (kind !== null) {
    // What was rolled up is long, and its ranges of IPv6 are no JSON.
    const texts = found.map((finding) => ({ ...finding, differences: finding.differences.length }));
    report(JSON.stringify({ problem: kind, path, about: fault?.about, found: texts }));
  }
  return counts;
}

/** How a violation was not met; null: it was. Where both backends hold rules, unknown is met. */
function missOf(
  about: Fault['about'],
  found: readonly FindingSummary[],
  isUnknown: boolean,
): 'missed' | 'misplaced' | null {
  const isMet = (): boolean => {
    if (typeof about !== 'string') {
      return about.every((place) =>
        found.some(({ nodeWide, ports }) => (place === '' ? nodeWide : ports.has(place))),
      );
    }
    // One Service port, or no one; a list of many is a node that is not kept up to date.
    if (about === '') return found.length > 0;
    if (about.includes(' ')) return found.length === 1 && found[0]?.service === '';
    return found.some(({ ports }) => ports.has(about));
  };
  if (isMet() || (found.length === 0 && isUnknown)) return null;
  return found.length === 0 ? 'missed' : 'misplaced';
}

// A recorded node as its agent would report it: digests of what its rules answer for, and the
// outcomes of packets that it is asked about, as they come over the wire.

/** Who an agent on this node asks for. */
function askingOf(folder: Folder, node: Node, mode: ProxyConfig['mode']): NodeSenders {
  const own = (six: boolean): string | null =>
    folder.node.localAddresses.find((text) => text.includes(':') === six) ?? null;
  const pod = (family: 'IPv4' | 'IPv6'): string | null => {
    const range = node.podCIDRs.map(parseCIDR).find((one) => one?.family === family) ?? null;
    return range === null ? null : addressIn(range, 251n);
  };
  const [four, six] = [own(false), own(true)];
  return {
    ip: { node: four, pod: pod('IPv4'), outside: '198.51.100.7' },
    ip6: { node: six, pod: pod('IPv6'), outside: '2001:db8::7' },
    addresses: [four, six, '127.0.0.1'].filter((address) => address !== null),
    pods: node.podCIDRs,
    strays: mode === 'nftables',
  };
}

/** The report of the agent before it is asked for packets. */
export function firstReportOf(
  folder: Folder,
  node: Node,
  mode: 'iptables' | 'nftables',
): AgentAnswers {
  const asking = askingOf(folder, node, mode);
  const frontends = frontendsInRules(folder.ruleset);
  const digests = frontends.map((frontend): [string, string] => {
    const words = wordsAt(frontend, asking, (packet) => {
      const outcome = walk(folder.ruleset, folder.node, packet);
      return { words: wordsOf(outcome), endpoints: outcome.destinations.keys() };
    });
    return [keyOf(frontend), digestOf(words)];
  });
  return {
    asking,
    frontends,
    digests: new Map(digests),
    outcomes: new Map(),
    localAddresses: folder.node.localAddresses,
  };
}

/** Digests that show nothing, so that every frontend is walked. */
export const noDigests: ReportedBehavior['report'] = {
  asking: {
    ip: { node: null, pod: null, outside: null },
    ip6: { node: null, pod: null, outside: null },
    ...{ addresses: [], pods: [], strays: false },
  },
  digests: new Map(),
  withRanges: [],
  missingPackets: () => [],
  isKnownToServe: () => false,
  restart: () => undefined,
  digestsAt: () => ({ actual: null, expected: null }),
  divergent: () => 0,
};

/** Answers of the agent, over the wire. */
export function answered(
  folder: Folder,
  report: AgentAnswers,
  packets: readonly Packet[],
): AgentAnswers {
  const sent = JSON.stringify(
    encodeOutcomes(packets.map((packet) => walk(folder.ruleset, folder.node, packet))),
  );
  const outcomes = runToEnd(decodeOutcomes(JSON.parse(sent)));
  const pairs = packets.flatMap((packet, at) => {
    const outcome = outcomes[at];
    return outcome === undefined ? [] : [[packetText(packet), outcome] as const];
  });
  return { ...report, outcomes: new Map([...report.outcomes, ...pairs]) };
}

/** The rules of a folder as the auditor knows them after all questions are answered. */
export function rulesReported(
  folder: Folder,
  { forwarding, node }: Pick<NodeInput, 'node'> & { readonly forwarding: Forwarding },
): { readonly rules: ReportedBehavior; readonly asked: number } {
  const mode = forwarding.config.mode === 'nftables' ? 'nftables' : 'iptables';
  const report = firstReportOf(folder, node, mode);
  const first = behaviorOfReport(report);
  auditNode({ forwarding, node, rules: first });
  const needed = first.report.missingPackets();
  return { rules: behaviorOfReport(answered(folder, report, needed)), asked: needed.length };
}

// Compares the digests that a node computes from its rules with those that follow from its objects:
// for every frontend with only one correct outcome for every client.

interface DigestCounts {
  readonly equal: number;
  /** Frontends whose digests differ, with the words of both sides. */
  readonly different: readonly string[];
  /** More than one outcome is correct, or the correct one is unknown. */
  readonly open: number;
}

/** null: there are no objects to hold the node against. */
export function compareDigests(folder: Folder): DigestCounts | null {
  const expected = forwardingOf(folder);
  if (expected === null) return null;
  const { forwarding, node } = expected;
  const asking = askingOf(folder, node, forwarding.config.mode);
  let [equal, open] = [0, 0];
  const different: string[] = [];
  for (const claim of frontendsInRules(folder.ruleset)) {
    const want = expectedWordsAt(claim, asking, (packet) => forwarding.expect(packet).outcomes);
    if (want === null) {
      open++;
      continue;
    }
    const got = wordsAt(claim, asking, (packet) => {
      const outcome = walk(folder.ruleset, folder.node, packet);
      return { words: wordsOf(outcome), endpoints: outcome.destinations.keys() };
    });
    if (digestOf(want) === digestOf(got)) equal++;
    else different.push(`${keyOf(claim)}: want ${want.join(' | ')} got ${got.join(' | ')}`);
  }
  return { equal, different, open };
}

// Nodes with Cilium: the maps of a recording or of a fault, and what the node must do by the
// objects of its proxy-config.yaml. README.md describes the files.

interface CiliumFile {
  readonly mode?: string;
  readonly nodeName: string;
  readonly objects: string;
  readonly config?: unknown;
  readonly nodeAddresses?: readonly string[];
  readonly nodeAddressesNoNodePort?: readonly string[];
}

/** The configuration of a folder, or of the recording that a fault comes from. */
function ciliumFileOf(path: string): { readonly file: CiliumFile; readonly at: string } | null {
  const own = textOf(join(path, 'proxy-config.yaml'));
  if (own !== null) return { file: parse(own) as CiliumFile, at: path };
  const fault = textOf(join(path, 'fault.json'));
  if (fault === null) return null;
  return ciliumFileOf(resolve(path, (JSON.parse(fault) as { base: string }).base));
}

/** The text of the maps in a folder. */
export const ciliumMaps = (path: string): string => textOf(join(path, 'cilium-maps.json')) ?? '';

/** The objects of a folder, and its configuration. */
export function ciliumObjects(path: string) {
  const config = ciliumFileOf(path);
  if (config === null) throw new Error(`${path}: no proxy-config.yaml`);
  const { file, at } = config;
  const lists = JSON.parse(textOf(resolve(at, file.objects)) ?? '{}') as Lists;
  const node = objectsOf(lists, 'nodes').find(({ name }) => name === file.nodeName);
  if (node === undefined) throw new Error(`${path}: no Node ${file.nodeName} in its objects`);
  const services = objectsOf(lists, 'services');
  return { file, node, services, slices: slicesByService(objectsOf(lists, 'endpointslices')) };
}

/** The maps of a folder, or others, and what they must do. */
export function ciliumInput(path: string, maps: string = ciliumMaps(path)): NodeInput {
  const { file, node, services, slices } = ciliumObjects(path);
  const { nodeAddresses = [], nodeAddressesNoNodePort = [] } = file;
  const cilium = readCiliumConfig(file.config ?? {}, nodeAddresses);
  const localAddresses = [...nodeAddresses, ...nodeAddressesNoNodePort];
  const forwarding = ciliumForwarding(
    services,
    slices,
    node,
    defaultProxyConfig('cilium', 0),
    cilium,
    localAddresses,
  );
  const { entries } = readBpftoolDump(maps);
  const rules = behaviorOfMaps(entries, localAddresses, cilium.nodePortRange);
  return { forwarding, node, rules };
}

/** Keys of frontends that `cilium-maps.json` and another output of the folder show differently. */
export function differentlyRead(path: string): string[] {
  if (textOf(join(path, 'fault.json')) !== null) return [];
  const own = loadBalancerOf(readBpftoolDump(ciliumMaps(path)).entries);
  const keysOf = (
    entries: readonly MapEntry[],
    shown: (frontend?: BalancedFrontend) => unknown,
  ) => {
    const others = loadBalancerOf(entries);
    const keys = [...new Set([...own.masters.keys(), ...others.masters.keys()])];
    const shownBy = ({ frontends }: typeof own, key: string) => shown(frontends.get(key));
    return keys.filter((key) => !isDeepStrictEqual(shownBy(own, key), shownBy(others, key)));
  };
  const dump = textOf(join(path, 'lb-maps.txt'));
  const lists = textOf(join(path, 'lb-list.json'));
  // cilium-dbg prints neither affinity matches nor Maglev tables.
  const listed = (frontend?: BalancedFrontend) => ({ ...frontend, kept: null, places: null });
  return [
    ...(dump === null ? [] : keysOf(readMapsDump(dump).entries, (it) => it)),
    ...(lists === null ? [] : keysOf(readLbList(lists).entries, listed)),
  ];
}

// Holds the walker against real kernels: `npm run -s walk -- DIR…` finds all folders of recordings
// and faults below the given ones (a folder with proxy-config.yaml or fault.json), walks every
// packet of packets.ndjson through the folder's dump, and compares with what the kernel did. One
// line per disagreement with the rules that led there, last a JSON summary. Then it audits the node
// (checkAudit): sound ones must be clean, violations must be found. No check looks at the names of
// folders, at classes of faults or at notes; a line for each harm and class has their number. Of a
// node with Cilium there are no packets: its Service ports are counted instead, and "wrong" are
// frontends that two readers read differently.

interface Summary extends PacketCounts, AuditCounts {
  recordings: number;
}

export const emptySummary = () => ({
  recordings: 0,
  packets: 0,
  wrong: 0,
  unknown: 0,
  foreignPackets: 0,
  foreignUnknown: 0,
  faults: 0,
  falseFindings: 0,
  missed: 0,
  misplaced: 0,
});

/**
 * Walks all folders below these; `codes` takes up what was found on their nodes. `also` is called
 * with each folder of a kube-proxy.
 */
export function walkFolders(
  paths: readonly string[],
  report: (line: string) => void,
  codes = new Set<string>(),
  also: (folder: Folder) => void = () => undefined,
): Summary {
  const summary = emptySummary();
  for (const path of paths.flatMap((path) => foldersBelow(path))) {
    const folder = readFolder(path);
    const counts = checkPackets(folder, report);
    summary.recordings++;
    addCounts<PacketCounts>(summary, counts, 1);
    const audit = checkAudit(folder, report, codes);
    addCounts<AuditCounts>(summary, audit, 1);
    also(folder);
  }
  for (const path of paths.flatMap((path) => ciliumFoldersBelow(path))) {
    const audit = summarizeNode(ciliumInput(path));
    summary.recordings++;
    summary.packets += audit.conform + audit.different + audit.unknown;
    summary.unknown += audit.unknown;
    for (const frontend of differentlyRead(path)) {
      summary.wrong++;
      report(JSON.stringify({ problem: 'the readers differ', path, frontend }));
    }
    const found = checkFindings(path, audit, false, report, codes);
    addCounts<AuditCounts>(summary, found, 1);
  }
  return summary;
}

/** How many folders below these have a fault of each harm and class, and how many have none. */
export function countFaults(paths: readonly string[]) {
  const folders = paths.flatMap((path) => [...foldersBelow(path), ...ciliumFoldersBelow(path)]);
  const groups = Map.groupBy(folders, (path) => {
    const fault = faultIn(path);
    return JSON.stringify({ harm: fault?.harm ?? 'none', class: fault?.class ?? '' });
  });
  return [...groups].sort().map(([group, { length }]) => ({
    ...(JSON.parse(group) as Pick<Fault, 'harm' | 'class'>),
    folders: length,
  }));
}

/** Nothing wrong, and little unknown; rules of others may leave more open. */
export function isTrue(summary: Summary): boolean {
  const { packets, wrong, unknown, foreignPackets, foreignUnknown } = summary;
  if (summary.falseFindings + summary.missed + summary.misplaced > 0) return false;
  const own = packets - foreignPackets;
  return wrong === 0 && unknown <= 0.01 * own && foreignUnknown <= 0.1 * foreignPackets;
}

if (import.meta.main) {
  const paths = process.argv.slice(2);
  const missing = paths.filter((path) => !existsSync(path));
  if (paths.length === 0 || missing.length > 0) {
    console.error(`Usage: walk DIR…${missing.map((path) => `\nNo such folder: ${path}`).join('')}`);
    process.exitCode = 2;
  } else {
    const summary = walkFolders(paths, (line) => console.log(line));
    for (const count of countFaults(paths)) console.log(JSON.stringify(count));
    console.log(JSON.stringify(summary));
    process.exitCode = isTrue(summary) ? 0 : 1;
  }
}
