// What the pages show of one auditor: a Service with its table and its explanation, a node with its
// verdicts and the rules that packets meet. Everything is looked up and nothing is decided here.

import { explain } from '../audit/explain/explain.ts';
import type { NodeLookup } from '../audit/explain/node.ts';
import { worstVerdict } from '../audit/explain/pod-in-service.ts';
import { serviceTable } from '../audit/explain/table.ts';
import { unresolvedTarget, parseTarget, resolveTarget } from '../audit/explain/target.ts';
import type { NodesSummary } from '../audit/node/nodes.ts';
import type { NodeVerdict } from '../audit/node/verdicts.ts';
import type { VerdictInput } from '../audit/service/verdict.ts';
import type { Node } from '../model/objects.ts';
import type { NodeView } from '../output/page/nodes.ts';
import type { ServiceStatus } from '../output/page/service-status.ts';
import type { NodeOfService, ServiceView } from '../output/page/service.ts';
import { mostNodes, rowsPerPage } from '../output/page/service.ts';
import type { ExplainDocument } from '../output/text/explain.ts';
import type { Auditor } from './auditor.ts';

/** What is known of the rules of nodes as of now. */
export const lookOf = (auditor: Auditor): NodeLookup => ({
  verdicts: (node) => auditor.nodes()?.verdicts.get(node) ?? null,
  walked: (node, service, port) => auditor.walked(node, service, port),
});

/**
 * The explanation of what the words name, as a document; null: nothing is judged yet. Throws what
 * is wrong with the words.
 */
export function explainWords(
  auditor: Auditor,
  words: readonly string[],
  namespace: string | null,
): ExplainDocument | null {
  const asked = parseTarget(words, namespace);
  const serviceAuditor = auditor.serviceAuditor();
  if (serviceAuditor === null) return null;
  const { listers } = auditor.store;
  const subject = resolveTarget(asked, listers) ?? unresolvedTarget(asked, listers);
  const explanation = explain(sightOf(auditor), serviceAuditor, subject, lookOf(auditor));
  return { format: 1, kind: 'explain', at: auditor.now(), ...explanation, history: null };
}

/** The context of an explanation as of now. */
export const sightOf = (auditor: Auditor): VerdictInput => ({
  listers: auditor.store.listers,
  release: auditor.release(),
  maxEndpointsPerSlice: auditor.maxEndpointsPerSlice,
  stale: auditor.stale(),
});

const serviceOfPort = (port: string): string => port.split(/[ :]/)[0] ?? '';

/** What each node does with a Service; nodes that do not serve it are left out. */
function nodesOfService(
  auditor: Auditor,
  { verdicts }: NodesSummary,
  key: string,
): NodeOfService[] {
  let walks = 0;
  return [...verdicts].flatMap(([node, ports]): NodeOfService[] => {
    const [whole] = ports;
    if (whole?.port === '') {
      return [{ node, verdict: whole.verdict, reason: whole.reason, walked: [] }];
    }
    const own = ports.filter(({ port }) => serviceOfPort(port) === key);
    if (own.length === 0) return [];
    const verdict = worstVerdict(own.map((one) => one.verdict));
    const reason = own.find((one) => one.verdict === verdict)?.reason ?? null;
    if (verdict === 'conform' || ++walks > mostNodes)
      return [{ node, verdict, reason, walked: [] }];
    const names = new Set(own.map(({ port }) => port.split(' ')[0] ?? ''));
    const walked = [...names].flatMap((name) => auditor.walked(node, key, name) ?? []);
    return [{ node, verdict, reason, walked }];
  });
}

/** The page of a Service; `status` is what is judged of it. */
export function serviceView(
  auditor: Auditor,
  status: ServiceStatus,
  from: number,
): ServiceView | null {
  const key = `${status.namespace}/${status.service}`;
  const serviceAuditor = auditor.serviceAuditor();
  const audited = serviceAuditor?.audited.get(key);
  if (serviceAuditor === null || audited === undefined) return null;
  const sight = sightOf(auditor);
  const nodes = auditor.nodes();
  return {
    status,
    explanation: explain(sight, serviceAuditor, { kind: 'service', service: key }),
    table: serviceTable(sight, audited, from, rowsPerPage),
    from,
    maxEndpointsPerSlice: auditor.maxEndpointsPerSlice,
    nodes: nodes === null ? null : nodesOfService(auditor, nodes, key),
    lag: auditor.measured.history.ofService(key),
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

/** The page of a node; null where there is none, and nothing is told of one. */
export function nodeView(auditor: Auditor, name: string, port: string | null): NodeView | null {
  const node = auditor.store.listers.nodes.get(name);
  const verdicts: readonly NodeVerdict[] | null = auditor.nodes()?.verdicts.get(name) ?? null;
  if (node === undefined && verdicts === null) return null;
  const { findings } = auditor;
  const isIts = (finding: { readonly node: string | null }): boolean => finding.node === name;
  return {
    node: name,
    facts: factsOf(node),
    verdicts,
    standing: findings.open().filter(isIts),
    resolved: findings.resolved().filter(isIts),
    walked: port === null ? null : auditor.walked(name, serviceOfPort(port), port),
    asked: port,
  };
}
