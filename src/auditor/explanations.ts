// Queries about one Service or one node: its status, its page and its explanation.

import { explain } from '../audit/explain/explain.ts';
import type { Explanation, ExplainTarget } from '../audit/explain/explanation.ts';
import { groupPackets, type NodeLookup } from '../audit/explain/node.ts';
import { unservedDetail } from '../audit/explain/service.ts';
import { serviceTable } from '../audit/explain/service-table.ts';
import { type ParsedTarget, resolveTarget } from '../audit/explain/target.ts';
import { type Finding, severities } from '../audit/finding/catalogue.ts';
import { unservedWord } from '../audit/finding/suppressions.ts';
import { type Verdict, verdicts, worstVerdict } from '../audit/finding/verdicts.ts';
import type { ReportedIncident } from '../audit/incident/report.ts';
import { fillGroups } from '../audit/measure/endpoint-counts.ts';
import type { NodeVerdict } from '../audit/node/node-state.ts';
import { indexHealth, type ServiceHealth, serviceOfPort } from '../audit/node/service-health.ts';
import { slicesOf } from '../audit/service/cache.ts';
import type { ServiceAudit } from '../audit/service/reconcile.ts';
import { unservedReason } from '../audit/service/unserved.ts';
import type { VerdictInput } from '../audit/service/verdict.ts';
import {
  isStale,
  seenVerdicts,
  serviceOutputs,
  unknownReason,
  verdictOf,
} from '../audit/service/verdict.ts';
import { getOrInsert, recordOf } from '../model/collections.ts';
import { canonicalIP, ipOf } from '../model/ip.ts';
import type { Key, Node } from '../model/objects.ts';
import type { Scope } from '../model/scope.ts';
import type { ServiceNumbers } from '../output/metrics/service-rows.ts';
import type { ExplainDocument } from '../output/text/explain.ts';
import type { UnservedRow } from '../output/text/unserved.ts';
import type { Auditor } from './auditor.ts';
import { listIncidents } from './incident-queries.ts';

export const verdictInput = (auditor: Auditor): VerdictInput => ({
  listers: auditor.store.listers,
  release: auditor.released().release,
  maxEndpointsPerSlice: auditor.options.maxEndpointsPerSlice,
  stale: auditor.stale(),
});

/** The verdicts of each node, all unknown while its input is stale; null if none are known. */
function seenNodes(auditor: Auditor): NodeLookup['verdicts'] | null {
  const nodes = auditor.nodes();
  if (nodes === null || !isStale('node', auditor.stale())) return nodes?.verdicts ?? null;
  // Nodes without a difference share their list.
  const unseen = new Map<readonly NodeVerdict[], readonly NodeVerdict[]>();
  const unseenOf = (ports: readonly NodeVerdict[]) => () =>
    ports.map((it): NodeVerdict =>
      it.verdict === 'unknown' ? it : { ...it, verdict: 'unknown', reason: 'input-stale' },
    );
  return new Map(
    [...nodes.verdicts].map(([node, ports]) => [node, getOrInsert(unseen, ports, unseenOf(ports))]),
  );
}

const nodeLookup = (auditor: Auditor): NodeLookup => ({
  verdicts: seenNodes(auditor) ?? new Map<string, NodeVerdict[]>(),
  walked: (node, service, port) => auditor.walked(node, service, port),
  reading(node) {
    const { at = null, proxy = null } = auditor.nodes()?.reading(node) ?? {};
    // A dump has no times.
    const isTimed = at !== null && auditor.begunAt() !== null;
    return { age: isTimed ? (auditor.now() ?? at) - at : null, proxy };
  },
});

/** `null` if the audit has not begun. Throws an Error for people if several objects have a name. */
export function explainTarget(
  auditor: Auditor,
  wanted: ParsedTarget | ExplainTarget,
): ExplainDocument | null {
  const services = auditor.serviceAuditor();
  if (services === null) return null;
  const target = 'kind' in wanted ? wanted : resolveTarget(wanted, auditor.store.listers);
  const lookup = nodeLookup(auditor);
  const explanation = explain(verdictInput(auditor), services, target, lookup);
  const [at, begunAt] = [auditor.now(), auditor.begunAt()];
  const incidents = incidentsOf(auditor, explanation.subject);
  const answer = withinScope(auditor.options.scope, explanation);
  const head = { format: 1, kind: 'explain', at, begunAt } as const;
  return { ...head, ...explanation, answer, history: null, incidents };
}

/** The answer; it names the audited part of the cluster if other parts may have another one. */
function withinScope(scope: Scope, { subject, found, answer }: Explanation): string {
  const { shard, namespaces, excluded } = scope;
  // All Nodes are known, and with all Services of a namespace, its pods can be explained.
  if (subject.kind === 'node' && subject.service === null) return answer;
  const isWhole = found && subject.kind !== 'address';
  if (shard !== null && !(isWhole && subject.kind !== 'pod')) {
    return `Within shard ${shard.index}/${shard.count}: ${answer}`;
  }
  const isAll = namespaces === null && excluded.length === 0;
  return isAll || isWhole ? answer : `Within the audited namespaces: ${answer}`;
}

/** The open incidents that a target belongs to. */
function incidentsOf(auditor: Auditor, target: ExplainTarget): ReportedIncident[] {
  const ip = target.kind === 'address' ? canonicalIP(target.address) : null;
  const isOf = (finding: Finding): boolean => {
    const key = `${finding.namespace}/${finding.service}`;
    if (target.kind === 'service' || target.kind === 'pair') return key === target.service;
    if (target.kind === 'node') return finding.node === target.node;
    return finding.differences.some(({ pod, address }) => {
      if (target.kind === 'pod') return pod === target.pod;
      // On a node, an endpoint with its port.
      const texts = finding.node === null ? address?.split(', ') : [ipOf(address ?? '')];
      return texts?.some((text) => canonicalIP(text) === ip);
    });
  };
  const ids = new Set(
    auditor.findings
      .open()
      .filter(isOf)
      .map((finding) => auditor.incidents.idOf(finding)),
  );
  const name = target.kind === 'service' ? `Service ${target.service}` : null;
  return listIncidents(auditor).filter(({ id, objects }) => {
    return ids.has(id) || (name !== null && objects.includes(name));
  });
}

/** The place of a Service in a list: by findings, then without endpoints, then unknown ones. */
function rankOf({ verdict, severity }: ServiceHealth, isUnserved: boolean): number {
  if (severity === 'critical' || severity === 'warning') return severities.indexOf(severity);
  if (isUnserved) return 2;
  const rank = (['different', 'unknown', 'pending'] as const).findIndex((it) => it === verdict);
  return 3 + (rank >= 0 ? rank : severity === 'info' ? 3 : 4);
}

export interface ListedService extends ServiceNumbers {
  readonly health: ServiceHealth;
}

/** Every Service, those with the worst and most findings first; empty before the audit. */
export function listServices(auditor: Auditor): ListedService[] {
  if (auditor.serviceAuditor() === null) return [];
  const stale = auditor.stale();
  const nodes = auditor.nodes()?.verdicts ?? null;
  const index = indexHealth(auditor.findings.open(), nodes, stale);
  const services = [...auditor.refreshTotals().services].flatMap(([key, numbers]) => {
    const { exists, unserved, verdicts: found } = numbers.share;
    if (!exists) return [];
    const seen = seenVerdicts(found, stale);
    const health = index.healthOf(key, Object.values(seen));
    // All have as many digits, since texts are compared.
    const fewest = severities.map((severity) => 2e6 - health.findings[severity]);
    const order = [rankOf(health, unserved !== null), ...fewest, key].join(' ');
    const share = { ...numbers.share, verdicts: seen };
    return [{ order, service: { ...numbers, share, health } }];
  });
  return services.sort((a, b) => (a.order < b.order ? -1 : 1)).map(({ service }) => service);
}

/** The Services that cannot receive traffic, by name; empty before the audit has begun. */
export function listUnservedServices(auditor: Auditor): UnservedRow[] {
  const services = auditor.serviceAuditor();
  if (services === null) return [];
  const found = [...auditor.refreshTotals().services].flatMap(([key, { share, ...numbers }]) => {
    const { namespace, name } = numbers;
    const { unserved: reason } = share;
    const audited = services.audited.get(key);
    if (reason === null || audited === undefined) return [];
    const { suppressions } = auditor;
    const target = { code: unservedWord, namespace, service: name, node: null } as const;
    return {
      namespace,
      name,
      reason,
      get detail() {
        return unservedDetail(services.context, audited, reason);
      },
      suppressed: suppressions.suppressedBy(target),
    };
  });
  const keyOf = ({ namespace, name }: UnservedRow): string => `${namespace}/${name}`;
  return found.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

/** The Services without usable endpoints that a suppression accepts. */
export const listSuppressedServices = (auditor: Auditor): readonly UnservedRow[] =>
  // Most clusters have no such suppression, and some have many such Services.
  auditor.suppressions.hasCode(unservedWord)
    ? listUnservedServices(auditor).filter(({ suppressed }) => suppressed !== null)
    : [];

/**
 * The verdicts about a Service on each node that has any, with the first of the worst; `null` if
 * the rules of no node are known. A verdict without a port is about the whole node.
 */
function nodesAbout(auditor: Auditor, key: Key, worstOf: (found: Verdict[]) => Verdict | null) {
  const nodes = seenNodes(auditor);
  if (nodes === null) return null;
  return [...nodes].flatMap(([node, found]) => {
    const ports = found.filter(({ port }) => port === '' || serviceOfPort(port) === key);
    if (ports.length === 0) return [];
    const verdict = worstOf(ports.map((port) => port.verdict)) ?? 'conform';
    const reason = ports.find((port) => port.verdict === verdict)?.reason ?? null;
    return [{ about: { node, verdict, reason }, ports }];
  });
}

export type NodeOfService = NonNullable<ReturnType<typeof nodesOfService>>[number];

/** What each node does with a Service; null if the rules of no node are known. */
function nodesOfService(auditor: Auditor, key: Key) {
  let walks = 0;
  const nodes = nodesAbout(auditor, key, worstVerdict);
  if (nodes === null) return null;
  return nodes.map(({ about, ports }) => {
    const { node, verdict } = about;
    const isWhole = ports.some(({ port }) => port === '');
    const isWalked = !isWhole && verdict !== 'conform' && ++walks <= mostNodes;
    const names = new Set(isWalked ? ports.map(({ port }) => port.split(' ')[0] ?? '') : []);
    /** The traces of packets to its ports, on a few nodes that do not conform; else empty. */
    const walked = [...names].flatMap((name) => auditor.walked(node, key, name) ?? []);
    return { ...about, walked };
  });
}

/** Rows on one page, and nodes that do not conform whose packets the page of a Service shows. */
export const rowsPerPage = 100;
export const mostNodes = 4;

export type ServiceView = NonNullable<ReturnType<typeof serviceView>>;

/** The page of a Service, with the rows of its table from `from`; `null` if it does not exist. */
export function serviceView(auditor: Auditor, key: Key, from: number) {
  const status = serviceStatus(auditor, key);
  const services = auditor.serviceAuditor();
  const audited = services?.audited.get(key);
  if (status === null || services === null || audited === undefined) return null;
  const input = verdictInput(auditor);
  const table = serviceTable(input, audited, from, rowsPerPage);
  return {
    status,
    explanation: explain(input, services, { kind: 'service', service: key }, nodeLookup(auditor)),
    table,
    from: table.from,
    maxEndpointsPerSlice: input.maxEndpointsPerSlice,
    nodes: nodesOfService(auditor, key),
    lag: auditor.samples.history.ofService(key),
  };
}

function unsettledDifferences({ items }: ServiceAudit) {
  return [...items.values()].flat().flatMap((item) => {
    const { difference, openedAt, output, cause, proven, since } = item;
    if (openedAt !== null) return [];
    const { code, object, field, expected, actual } = difference;
    const why = { cause, causeProven: cause !== null && proven };
    return [{ code, output, object, field, expected, actual, ...why, since }];
  });
}

/** Verdicts from the worst to the best; a pending difference is known, so it comes first. */
const worstFirst = ['different', 'pending', 'unknown', 'conform'] as const;

/** Nodes in the status of a Service. */
const listedNodes = 100;

/** Nodes by the worst verdict on a port of the Service, and those that do not conform. */
function countNodes(auditor: Auditor, key: Key) {
  const worstOf = (found: Verdict[]): Verdict | null =>
    worstFirst.find((verdict) => found.includes(verdict)) ?? null;
  const all = nodesAbout(auditor, key, worstOf);
  if (all === null) return { nodes: null, notConform: [] };
  const found = all.map(({ about }) => about);
  const byVerdict = Map.groupBy(found, ({ verdict }) => verdict);
  const notConform = worstFirst
    .filter((verdict) => verdict !== 'conform')
    .flatMap((verdict) => byVerdict.get(verdict) ?? []);
  const nodes = recordOf(verdicts, (verdict) => byVerdict.get(verdict)?.length ?? 0);
  return { nodes, notConform: notConform.slice(0, listedNodes) };
}

/** Times in Unix seconds, ages in seconds; `null` if the Service does not exist. */
export function serviceStatus(auditor: Auditor, key: Key) {
  const audited = auditor.serviceAuditor()?.audited.get(key);
  if (audited === undefined || audited.record.service === null) return null;
  const { namespace, name } = audited.record;
  const now = auditor.now() ?? 0;
  const stale = auditor.stale();
  const { findings, store, progress } = auditor;
  // A resolved finding about a whole node shows by its differences which Services it concerned.
  const concernsService = (finding: Finding): boolean =>
    finding.service === ''
      ? finding.differences.some(({ field }) => field.startsWith(`${key}:`))
      : finding.namespace === namespace && finding.service === name;
  const index = indexHealth(findings.open(), auditor.nodes()?.verdicts ?? null, stale);
  const outputs = serviceOutputs.flatMap((output) => {
    const verdict = verdictOf(store.listers, audited, output, stale);
    if (verdict === null) return [];
    const reason = verdict === 'unknown' ? unknownReason(audited, output, stale) : null;
    return [{ output, verdict, reason }];
  });
  const found = outputs.map((output) => output.verdict);
  const { verdict, severity } = index.healthOf(key, found);
  return {
    format: 1 as const,
    now,
    namespace,
    service: name,
    verdict,
    severity,
    withoutEndpoints: unservedReason(verdictInput(auditor), audited),
    outputs,
    ...countNodes(auditor, key),
    /** The fill of the controller's slices, by address type and ports. */
    fill: fillGroups(
      slicesOf(store.listers, audited.record, 'controller'),
      auditor.options.maxEndpointsPerSlice,
    ),
    /** Differences within the settle window, or without confirmation. */
    pending: unsettledDifferences(audited),
    /** Worst first, with those about whole nodes whose rules for the Service differ. */
    standing: index.findingsOf(key),
    resolved: [...auditor.earlier.findings, ...findings.resolved()].filter(concernsService),
    /** The state of each watch of live input, and the time since it was synced. */
    inputs: Object.fromEntries(
      [...progress.inputs].map(([resource, { state, blindSince }]) => [
        resource,
        { state, unseenSeconds: Math.max(0, now - (blindSince ?? now)) },
      ]),
    ),
  };
}

function factsOf(node: Node | undefined): string[] {
  if (node === undefined) return ['There is no Node of that name'];
  const { zone, ready, addresses, externalIPs, podCIDRs } = node;
  return [
    ready ? 'Ready' : 'not Ready',
    zone === '' ? 'no zone' : `zone ${zone}`,
    ...addresses,
    ...externalIPs,
    podCIDRs.length === 0 ? '' : `pods ${podCIDRs.join(', ')}`,
  ].filter((fact) => fact !== '');
}

export type NodeView = NonNullable<ReturnType<typeof nodeView>>;

/** The page of a node; `null` if there is no such Node and no rules of it are known. */
export function nodeView(auditor: Auditor, name: string, port: string | null) {
  const node = auditor.store.listers.nodes.get(name);
  const verdicts: readonly NodeVerdict[] | null = seenNodes(auditor)?.get(name) ?? null;
  if (node === undefined && verdicts === null) return null;
  const { findings, earlier } = auditor;
  const walked = port === null ? null : auditor.walked(name, serviceOfPort(port), port);
  const concernsNode = (finding: { readonly node: string | null }): boolean =>
    finding.node === name;
  return {
    node: name,
    facts: factsOf(node),
    verdicts,
    standing: findings.open().filter(concernsNode),
    resolved: [...earlier.findings, ...findings.resolved()].filter(concernsNode),
    /** Packets to the port; null if no port is asked about, or the node does not serve it. */
    walked: walked && groupPackets(auditor.store.listers, walked),
    asked: port,
  };
}
