// The health of a Service over all its outputs: the worst verdict and the worst finding, whether
// they are about its Endpoints and EndpointSlices, its input, or the rules of a node. Lists,
// badges, explanations and exit codes use it, so they agree.

import { getOrInsert, recordOf } from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import { bySeverity, type Finding, severities, type Severity } from '../finding/catalogue.ts';
import { isUnsuppressed, suppressedLast } from '../finding/suppressions.ts';
import type { Verdict } from '../finding/verdicts.ts';
import { worstSeverity, worstVerdict } from '../finding/verdicts.ts';
import { isStale, type StaleResources } from '../service/verdict.ts';
import type { NodeVerdict } from './node-state.ts';

export interface ServiceHealth {
  /** The worst verdict; null if there is nothing to compare. A node counts unless it is unknown. */
  readonly verdict: Verdict | null;
  /** The worst severity of the open findings that are not suppressed; null without any. */
  readonly severity: Severity | null;
  /** The number of open findings that are not suppressed, by severity. */
  readonly findings: Readonly<Record<Severity, number>>;
}

type VerdictsByNode = ReadonlyMap<string, readonly NodeVerdict[]>;

/** The Service of a Service port: `shop/web` of `shop/web:http TCP IPv4`. */
export const serviceOfPort = (port: string): Key => port.split(/[ :]/)[0] ?? '';

/** Whether a finding is about a whole node, so that it may concern every Service. */
const isOfWholeNode = ({ node, service, object }: Finding): boolean =>
  node !== null && service === '' && object.startsWith(`Node ${node}: `);

/** The nodes whose rules differ from the desired state of a Service, or may soon, by Service. */
function differingNodes(nodes: VerdictsByNode): Map<Key, Map<string, Verdict>> {
  const found = new Map<Key, Map<string, Verdict>>();
  // Nodes without a difference share their list.
  const equal = new Set<readonly NodeVerdict[]>();
  for (const [node, ports] of nodes) {
    if (equal.has(ports)) continue;
    const wrong = ports.filter(({ verdict }) => verdict === 'different' || verdict === 'pending');
    if (wrong.length === 0) equal.add(ports);
    for (const { port, verdict } of wrong) {
      const ofService = getOrInsert(found, serviceOfPort(port), () => new Map<string, Verdict>());
      if (ofService.get(node) !== 'different') ofService.set(node, verdict);
    }
  }
  return found;
}

/** Indexes open findings and the verdicts of nodes (null: none are known) by Service. */
export function indexHealth(
  open: readonly Finding[],
  nodes: VerdictsByNode | null,
  stale: StaleResources,
) {
  const own = Map.groupBy(open, ({ namespace, service }) => `${namespace}/${service}`);
  const wide = Map.groupBy(open.filter(isOfWholeNode), ({ node }) => node ?? '');
  const isKnown = nodes !== null && !isStale('node', stale);
  const differing = isKnown ? differingNodes(nodes) : new Map<Key, Map<string, Verdict>>();
  /**
   * The findings about a Service, and about whole nodes whose rules for it differ; worst first,
   * and suppressed ones last.
   */
  const findingsOf = (key: Key): Finding[] => {
    const onNodes = [...(differing.get(key) ?? [])].flatMap(([node, verdict]) =>
      verdict === 'different' ? (wide.get(node) ?? []) : [],
    );
    return [...(own.get(key) ?? []), ...onNodes].sort(
      (a, b) => suppressedLast(a, b) || bySeverity(a, b),
    );
  };
  return {
    findingsOf,
    /** `verdicts` are those on what the controllers write for the Service. */
    healthOf(key: Key, verdicts: readonly (Verdict | null)[]): ServiceHealth {
      const onNodes = differing.get(key)?.values() ?? [];
      const findings = findingsOf(key).filter(isUnsuppressed);
      const counts = Map.groupBy(findings, ({ severity }) => severity);
      return {
        verdict: worstVerdict([...verdicts, ...onNodes].filter((verdict) => verdict !== null)),
        severity: worstSeverity([...counts.keys()]),
        findings: recordOf(severities, (severity) => counts.get(severity)?.length ?? 0),
      };
    },
  };
}
