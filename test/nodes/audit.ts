// Audits the node of a folder and holds the findings against what is known of it: a sound recording
// and a fault that changes no behaviour must yield nothing above information, a violation must be
// found, and at the Service port that it is about where it names one.

import { join, resolve } from 'node:path';

import { parse } from 'yaml';

import type { NodeFinding } from '../../src/audit/node/aggregate.ts';
import { aggregateFindings } from '../../src/audit/node/aggregate.ts';
import { auditNode, behaviorOfRules } from '../../src/audit/node/audit-node.ts';
import type { NodeInput } from '../../src/audit/node/node-behavior.ts';
import { configOf } from '../../src/audit/node/observation.ts';
import { proxiedPortKey } from '../../src/audit/node/probes.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import { readProxyConfig } from '../../src/cluster/decode/proxy-config.ts';
import type { EndpointSlice, Node, ObjectOf, Resource, Service } from '../../src/model/objects.ts';
import type { ProxyConfig } from '../../src/model/proxy-config.ts';
import type { Forwarding } from '../../src/shadow/forwarding.ts';
import { expectedForwarding, slicesByService } from '../../src/shadow/forwarding.ts';
import type { Folder } from './folder.ts';
import { readBytes } from './folder.ts';

export interface AuditCounts {
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
  readonly about: string;
  readonly violation: boolean;
  readonly base: string;
}

/** A list as the API has it, or its items alone. */
type List = readonly unknown[] | { readonly items: readonly unknown[] };

type Lists = Readonly<Partial<Record<Resource, List>>>;

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
export function inputOf({ path }: Folder): Input | null {
  const fault = faultIn(path);
  const base = fault === null ? path : resolve(path, fault.base);
  const proxy = parse(textOf(join(base, 'proxy-config.yaml')) ?? '{}') as ProxyFile;
  if (proxy.objects === undefined) return null;
  const own = textOf(join(path, 'objects.json')) ?? textOf(join(base, proxy.objects));
  const lists = JSON.parse(own ?? '{}') as Lists;
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

/** Findings and verdicts of one audit. */
export interface NodeAuditSummary {
  /** Worst first. */
  readonly findings: readonly NodeFinding[];
  /** Service ports by verdict. */
  readonly conform: number;
  readonly different: number;
  readonly unknown: number;
}

export function summarizeNode(input: NodeInput): NodeAuditSummary {
  const { forwarding, node } = input;
  const { differences, coverage, translated, others, unknown } = auditNode(input);
  const findings = [...aggregateFindings(node.name, differences, coverage, translated), ...others];
  const names = new Set(forwarding.ports.map(proxiedPortKey));
  const harmful = differences.filter(({ harmless }) => !harmless);
  const different = new Set(harmful.flatMap(({ port }) => (port ? proxiedPortKey(port) : [])));
  const unknowns = [...unknown].filter((name) => !different.has(name)).length;
  const conform = names.size - different.size - unknowns;
  return { findings, conform, different: different.size, unknown: unknowns };
}

/** The configuration of kube-proxy: given, or inferred from the rules. */
export type Configured = 'by a file' | 'by its rules';

/** Audits the node of a folder; null: there are no objects to hold it against. */
function auditFolder(folder: Folder, configured: Configured): NodeAuditSummary | null {
  const input = inputOf(folder);
  if (input === null) return null;
  const { node, config: given } = input;
  const config = configured === 'by a file' ? given : configOf(folder.ruleset, given.minor);
  const forwarding = expectedOf(folder, { ...input, config });
  return summarizeNode({ forwarding, node, rules: behaviorOfRules(folder.ruleset, folder.node) });
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
  const counts = { faults: 0, falseFindings: 0, missed: 0, misplaced: 0 };
  const { path } = folder;
  const audit = auditFolder(folder, configured);
  if (audit === null) return counts;
  for (const { code } of audit.findings) codes.add(code);
  const fault = faultIn(path);
  const found = audit.findings.filter(({ severity }) => severity !== 'info');
  if (fault !== null) counts.faults = 1;
  const problem =
    fault?.violation === true
      ? missOf(fault.about, found, folder.hasBothBackends && audit.unknown > 0)
      : null;
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
  about: string,
  found: readonly NodeFinding[],
  isUnknown: boolean,
): 'missed' | 'misplaced' | null {
  const isMet = (): boolean => {
    // One Service port, or no one; a list of many is a node that is not kept up to date.
    if (about === '') return found.length > 0;
    if (about.includes(' ')) return found.length === 1 && found[0]?.service === '';
    return found.some(({ port }) => port === about);
  };
  if (isMet() || (found.length === 0 && isUnknown)) return null;
  return found.length === 0 ? 'missed' : 'misplaced';
}
