// What an incident does to traffic, the severity that follows from that (docs/impact.md), and how
// much it affects.

import { getOrInsert } from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import {
  type Code,
  type DifferenceDetail,
  type Finding,
  isWorse,
  type Severity,
} from '../finding/catalogue.ts';
import { isUnsuppressed } from '../finding/suppressions.ts';
import type { Impact, NodeImpact } from '../service/impact.ts';
import { type IncidentKind, kinds } from './kinds.ts';

export interface ImpactSource {
  /** `null` if it is not known, or the Service has no open finding. */
  ofService(key: Key): Impact | null;
  /** `null` if the rules of the node are not known. */
  ofNode(name: string): NodeImpact | null;
  /** The number of Nodes. */
  nodes(): number;
}

/** The source if no impact is known. */
export const noImpacts: ImpactSource = {
  ofService: () => null,
  ofNode: () => null,
  nodes: () => 0,
};

export interface IncidentImpact extends Impact {
  /** The largest share of misrouted connections at one place: a Service, on one node if known. */
  readonly worst: number;
}

/** The shares of what changes nothing for connections. */
export const noImpact: Impact = { misrouted: 0, unused: 0 };

/** From this share of misrouted connections at one place on, an incident is critical. */
const critical = 0.05;

/** Codes whose effect on traffic the shares contain. */
const measured: ReadonlySet<Code> = new Set([
  'slice-endpoint-missing',
  'slice-endpoint-unexpected',
  'slice-conditions-different',
  'slice-ports-different',
  'node-frontend-missing',
  'node-frontend-blocked',
  'node-endpoint-missing',
  'node-endpoint-unexpected',
  'node-endpoint-blocked',
  'node-policy-different',
  'node-reject-missing',
  'node-rules-flushed',
  'node-rules-unreachable',
  'node-rules-stale',
]);

export interface IncidentEffect {
  /** The mean over the Services of the findings; `null` if the impact on none is known. */
  readonly impact: IncidentImpact | null;
  /**
   * That of the impact, at least that of the kind, and at least that of each finding whose effect
   * is not part of the impact. Suppressed findings do not count.
   */
  readonly severity: Severity;
  /** Those of the findings, and those that differ on a node if a finding is about all of it. */
  readonly services: ReadonlySet<Key>;
}

type AffectedFinding = Pick<
  Finding,
  'code' | 'namespace' | 'service' | 'node' | 'severity' | 'suppressed'
>;

/** The effect of the findings of an incident, in one pass: there may be thousands. */
export function effectOf(
  kind: IncidentKind,
  findings: readonly AffectedFinding[],
  source: ImpactSource,
): IncidentEffect {
  const all = new Set<Key>();
  const services = new Map<Key, Impact | null>();
  const wide = new Map<string, NodeImpact | null>();
  let severity: Severity = kinds[kind].least;
  let [worst, loud] = [0, 0];
  for (const finding of findings) {
    const { code, namespace, service, node, severity: own } = finding;
    const there = node === null ? null : source.ofNode(node);
    const key = service === '' ? null : `${namespace}/${service}`;
    if (key !== null) all.add(key);
    else for (const it of there?.services.keys() ?? []) all.add(it);
    if (!isUnsuppressed(finding)) continue;
    loud++;
    let known: unknown = there;
    if (key !== null) {
      const share = source.ofService(key);
      known = share;
      // The share may come from findings of the Service in other incidents.
      const isPart = share === null || node !== null || measured.has(code);
      if (isPart) services.set(key, share);
      else getOrInsert(services, key, () => noImpact);
      worst = Math.max(worst, there?.services.get(key)?.misrouted ?? 0);
    } else if (node !== null) wide.set(node, there);
    // Without the rules of a node, the shares do not contain what is wrong on it.
    const isKnown = known !== null && (node === null || there !== null);
    const isMeasured = isKnown && measured.has(code);
    if (!isMeasured && isWorse(own, severity)) severity = own;
  }
  if (findings.length > 0 && loud === 0) return { impact: null, severity: 'info', services: all };
  const impact = meanOf([...services.values()], [...wide.values()], source.nodes(), worst);
  const ofImpact = severityOfImpact(impact);
  return { impact, severity: isWorse(ofImpact, severity) ? ofImpact : severity, services: all };
}

interface ReachingFinding extends Pick<Finding, 'node'> {
  readonly differences: readonly Pick<DifferenceDetail, 'address'>[];
}

/** What an incident affects; `endpoints` are missing, unexpected or different addresses. */
export const reaches = ['services', 'namespaces', 'nodes', 'endpoints'] as const;

/** How much of each it affects. */
export type Reach = Readonly<Record<(typeof reaches)[number], number>>;

/** The names in `Kind name` of objects of a kind: `Node a`, `Service shop/web`. */
export function namesIn(objects: readonly string[], kind: string): string[] {
  const prefix = `${kind} `;
  return objects.flatMap((it) => (it.startsWith(prefix) ? [it.slice(prefix.length)] : []));
}

/** Each Service, node and address counts once. */
export function reachOf(
  findings: readonly ReachingFinding[],
  objects: readonly string[],
  services: ReadonlySet<Key>,
): Reach {
  const nodes = new Set(namesIn(objects, 'Node'));
  const endpoints = new Set<string>();
  for (const { node, differences } of findings) {
    if (node !== null) nodes.add(node);
    for (const { address } of differences) if (address !== null) endpoints.add(address);
  }
  const namespaces = new Set<string>();
  for (const key of services) namespaces.add(key.slice(0, key.indexOf('/')));
  return {
    services: services.size,
    namespaces: namespaces.size,
    nodes: nodes.size,
    endpoints: endpoints.size,
  };
}

function meanOf(
  services: readonly (Impact | null)[],
  wide: readonly (NodeImpact | null)[],
  nodes: number,
  worstOnNode: number,
): IncidentImpact | null {
  const known = services.filter((it) => it !== null);
  const faulty = wide.filter((it) => it !== null);
  const count = known.length + Math.max(0, ...faulty.map((it) => it.services.size));
  if (count === 0) return null;
  let [misrouted, unused, worst] = [0, 0, worstOnNode];
  const add = (impact: Impact, weight: number, worstOf: number): void => {
    misrouted += impact.misrouted * weight;
    unused += impact.unused * weight;
    worst = Math.max(worst, worstOf);
  };
  for (const impact of known) add(impact, 1, impact.misrouted);
  for (const impact of faulty) add(impact, 1 / Math.max(1, nodes), impact.worst);
  return { misrouted: misrouted / count, unused: unused / count, worst };
}

function severityOfImpact(impact: IncidentImpact | null): Severity {
  if (impact === null) return 'info';
  if (impact.worst >= critical) return 'critical';
  return impact.worst + impact.misrouted + impact.unused > 0 ? 'warning' : 'info';
}
