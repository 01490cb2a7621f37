// What an incident does to traffic, and the severity that follows from that (docs/impact.md).

import type { Key } from '../../model/objects.ts';
import { type Code, type Finding, isWorse, type Severity } from '../finding/catalogue.ts';
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

const keyOf = ({ namespace, service }: Finding): Key => `${namespace}/${service}`;

/** What a finding about a node does there; `null` for another finding. */
function atNode(finding: Finding, source: ImpactSource): NodeImpact | null {
  return finding.node === null ? null : source.ofNode(finding.node);
}

/** The mean over the Services of findings; `null` if the impact on none is known. */
export function impactOfFindings(
  findings: readonly Finding[],
  source: ImpactSource,
): IncidentImpact | null {
  const known = findings.filter(isUnsuppressed);
  const services = new Set(known.filter(({ service }) => service !== '').map(keyOf));
  let [count, misrouted, unused, worst] = [0, 0, 0, 0];
  for (const key of services) {
    const impact = source.ofService(key);
    if (impact === null) continue;
    count++;
    misrouted += impact.misrouted;
    unused += impact.unused;
    worst = Math.max(worst, impact.misrouted);
  }
  const wide = new Set(known.flatMap((it) => (it.service === '' ? (it.node ?? []) : [])));
  const nodes = [...wide].flatMap((name) => source.ofNode(name) ?? []);
  count += Math.max(0, ...nodes.map((it) => it.services.size));
  for (const impact of nodes) {
    misrouted += impact.misrouted / Math.max(1, source.nodes());
    unused += impact.unused / Math.max(1, source.nodes());
    worst = Math.max(worst, impact.worst);
  }
  for (const finding of known) {
    const there = atNode(finding, source)?.services.get(keyOf(finding));
    worst = Math.max(worst, there?.misrouted ?? 0);
  }
  return count === 0 ? null : { misrouted: misrouted / count, unused: unused / count, worst };
}

/** Whether the impact of an incident contains what a finding does to traffic. */
function isMeasured(finding: Finding, source: ImpactSource): boolean {
  if (!measured.has(finding.code)) return false;
  if (finding.service !== '') return source.ofService(keyOf(finding)) !== null;
  return atNode(finding, source) !== null;
}

function severityOfImpact(impact: IncidentImpact | null): Severity {
  if (impact === null) return 'info';
  if (impact.worst >= critical) return 'critical';
  return impact.worst + impact.misrouted + impact.unused > 0 ? 'warning' : 'info';
}

/**
 * The severity of an incident: that of its impact, at least that of its kind, and at least that of
 * each finding whose effect is not part of the impact. Suppressed findings do not count.
 */
export function severityOf(
  kind: IncidentKind,
  findings: readonly Finding[],
  source: ImpactSource,
): Severity {
  const loud = findings.filter(isUnsuppressed);
  if (findings.length > 0 && loud.length === 0) return 'info';
  let worst: Severity = kinds[kind].least;
  const raise = (severity: Severity): void => {
    if (isWorse(severity, worst)) worst = severity;
  };
  raise(severityOfImpact(impactOfFindings(loud, source)));
  for (const finding of loud) if (!isMeasured(finding, source)) raise(finding.severity);
  return worst;
}
