// An incident as every output shows it: with its severity, its reach and its remedy.

import type { Finding } from '../finding/catalogue.ts';
import { fillRemedy, type Remedy, remedyOf } from '../finding/remedies.ts';
import type { Incident } from './incidents.ts';
import { type IncidentKind, kinds } from './kinds.ts';

/** How much an incident affects. */
interface Reach {
  readonly services: number;
  readonly namespaces: number;
  readonly nodes: number;
  /** Addresses that are missing, unexpected or different. */
  readonly endpoints: number;
}

/** What distinguishes a finding from the others that are open. */
type FindingName = Pick<Finding, 'code' | 'cause' | 'output' | 'namespace' | 'service' | 'node'>;

export interface ReportedIncident extends Omit<Incident, 'findings' | 'since' | 'openedAt'> {
  /** `null` for a dump, whose differences have no known age. */
  readonly since: number | null;
  readonly openedAt: number | null;
  readonly title: string;
  readonly reach: Reach;
  readonly remedy: Remedy;
  readonly findings: readonly FindingName[];
}

/** Nodes, Services and namespaces of objects without a finding: `Node a`, `Service shop/web`. */
function namesIn(objects: readonly string[], kind: string): string[] {
  const prefix = `${kind} `;
  return objects.flatMap((it) => (it.startsWith(prefix) ? [it.slice(prefix.length)] : []));
}

/** The Services that a finding of a whole node names in its differences, which are at most 100. */
const servicesOnNode = ({ service, differences }: Finding): string[] =>
  service === ''
    ? differences.flatMap(({ field }) => /^([^/: ]+\/[^/: ]+):/.exec(field)?.[1] ?? [])
    : [];

/** How much an incident affects: each Service, node and address counts once. */
export function reachOf({ findings, objects }: Pick<Incident, 'findings' | 'objects'>): Reach {
  const named = findings.length === 0 ? namesIn(objects, 'Service') : [];
  const owners = findings.filter(({ service }) => service !== '');
  const services = new Set([
    ...named,
    ...owners.map(({ namespace, service }) => `${namespace}/${service}`),
    ...findings.flatMap(servicesOnNode),
  ]);
  const nodes = new Set([...namesIn(objects, 'Node'), ...findings.flatMap((it) => it.node ?? [])]);
  const endpoints = new Set(
    findings.flatMap(({ differences }) => differences.flatMap(({ address }) => address ?? [])),
  );
  return {
    services: services.size,
    namespaces: new Set([...services].map((key) => key.slice(0, key.indexOf('/')))).size,
    nodes: nodes.size,
    endpoints: endpoints.size,
  };
}

/** The remedy of the kind with the names of the incident, or that of its only finding. */
function remedyFor(kind: IncidentKind, { findings, object }: Incident): Remedy {
  const [first] = findings;
  const isKnown = kind === 'service-configuration' || kind === 'upstream-limit';
  if (first !== undefined && isKnown) return remedyOf(first);
  const [objectKind = '', name = ''] = object.split(' ');
  const [namespace = '', service = ''] = objectKind === 'Service' ? name.split('/') : [];
  const node = objectKind === 'Node' ? name : null;
  return fillRemedy(kinds[kind], first ?? { namespace, service, node, differences: [] });
}

/** `timeless` of a dump, which shows one moment. */
export function reportIncident(incident: Incident, timeless = false): ReportedIncident {
  const { kind, since, openedAt, findings, evidence } = incident;
  return {
    ...incident,
    title: kinds[kind].title,
    since: timeless ? null : since,
    openedAt: timeless ? null : openedAt,
    evidence: timeless ? evidence.map(({ text }) => ({ text, at: null })) : evidence,
    reach: reachOf(incident),
    remedy: remedyFor(kind, incident),
    findings: findings.map(({ code, cause, output, namespace, service, node }) => {
      return { code, cause, output, namespace, service, node };
    }),
  };
}
