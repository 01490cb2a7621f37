// Gathers the evidence of incidents (audit/incident) from the audits, as plain data.

import type { Finding } from '../audit/finding/catalogue.ts';
import type { Evidence } from '../audit/incident/classify.ts';
import { createControllerActivity, noControllers } from '../audit/incident/controllers.ts';
import { createIncidents } from '../audit/incident/incidents.ts';
import type { Nodes } from '../audit/node/nodes.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import type { ObjectChange } from '../audit/service/object-changes.ts';
import type { Listers } from '../model/objects.ts';

export interface IncidentLedgerOptions {
  readonly listers: Listers;
  /** The settle window in seconds. */
  readonly window: number;
  /** `null` before the audit has begun. */
  readonly services: () => ServiceAuditor | null;
  /** `null` without rules of nodes. */
  readonly nodes: () => Pick<Nodes, 'readSince'> | null;
}

/** Seconds between two reviews without a change of findings. */
const interval = 1;

/** The incidents of a running auditor, with what the auditor must note for them. */
export function createIncidentLedger(options: IncidentLedgerOptions) {
  const { services, nodes, window } = options;
  const activity = createControllerActivity(window);
  const evidence = (at: number): Evidence => ({
    controllers: activity.assess(services()?.audited ?? new Map(), at),
    changesOf: (finding) => changesOf(services(), finding),
    nodesOf: (finding) => nodesOf(options.listers, finding),
    readSince: (node) => nodes()?.readSince(node) ?? null,
  });
  const incidents = createIncidents({
    // A dump has no history of writes.
    evidence: (at) =>
      window === 0 ? { ...evidence(at), controllers: noControllers } : evidence(at),
    keep: 1000,
  });
  let reviewed = { at: -Infinity, revision: -1 };
  return {
    ...incidents,
    activity,
    evidence,
    /** Reviews the incidents, if findings have changed or a second has passed. */
    reviewAt(at: number): void {
      if (at < reviewed.at + interval && incidents.revision() === reviewed.revision) return;
      incidents.review(at, []);
      reviewed = { at, revision: incidents.revision() };
    },
  };
}

/** The changes that made the open differences of a finding, oldest first. */
function changesOf(services: ServiceAuditor | null, finding: Finding): ObjectChange[] {
  const { namespace, service, code, cause } = finding;
  const audit = services?.audited.get(`${namespace}/${service}`);
  const items = [...(audit?.items.values() ?? [])]
    .flat()
    .filter((it) => it.openedAt !== null && it.difference.code === code && it.cause === cause);
  const changes = new Set(items.flatMap((item) => item.changes));
  return [...changes].sort((a, b) => a.at - b.at);
}

function nodesOf({ pods }: Listers, { differences }: Finding): string[] {
  const nodes = differences.flatMap(({ pod }) => (pod === null ? [] : (pods.get(pod)?.node ?? [])));
  return [...new Set(nodes)].filter((node) => node !== '');
}
