// Sums over all Services, for metrics and pages. Of a changed Service, what it added is subtracted
// and what it adds now is added (docs/decisions/0017-a-scrape-recounts-only-changed-services.md).
// Changed Services wait for the next `refreshTotals`, since most of them change again.

import type { CapacityCounts } from '../audit/measure/endpoint-counts.ts';
import {
  capacityOf,
  countConditions,
  countDuplicates,
  fillOf,
  surplusOf,
} from '../audit/measure/endpoint-counts.ts';
import { createServiceSums } from '../audit/measure/measurements.ts';
import type { ImpactSource } from '../audit/incident/impact.ts';
import type { Nodes, NodesSummary } from '../audit/node/nodes.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { slicesOf } from '../audit/service/cache.ts';
import { combine, type Impact, impactOf } from '../audit/service/impact.ts';
import type { ServiceAudit } from '../audit/service/reconcile.ts';
import type { StaleResources } from '../audit/service/verdict.ts';
import { addShare, createTotals, shareOf, type Summary, summaryOf } from '../audit/summary.ts';
import { addCounts } from '../model/collections.ts';
import { equalLists } from '../model/equality.ts';
import type { EndpointSlice, Key, Listers } from '../model/objects.ts';
import type { ServiceNumbers } from '../output/metrics/service-rows.ts';
import { type HintCounts, noHintCounts } from '../output/metrics/state.ts';
import { endpointsCapacity } from '../shadow/endpoints.ts';
import { type HintMode, hintMode, reasonOfNoHints } from '../shadow/hints.ts';
import type { Release } from '../shadow/release.ts';

/** Services that may wait to be recounted: some milliseconds of work. */
const mostWaiting = 256;

export interface TotalsOptions {
  /** The input is live, so differences are confirmed before they become findings. */
  readonly live: boolean;
  /** A recording is served while it is replayed, so that a scrape must not have much to count. */
  readonly isServed?: boolean;
}

/** Only functions of this file write the sums. */
export type ServiceTotals = Readonly<ReturnType<typeof createServiceTotals>>;

/**
 * `rulesOf`: what rules of nodes do to a Service; `null` without a finding about them. If
 * only the end is asked for, all Services may wait to be recounted.
 */
export const createServiceTotals = (
  release: Release,
  maxEndpointsPerSlice: number,
  rulesOf: (key: Key) => Impact | null = () => null,
  { live, isServed = live }: TotalsOptions = { live: true },
) => ({
  rulesOf,
  most: isServed ? mostWaiting : Infinity,
  limits: { endpoints: endpointsCapacity, endpointslices: maxEndpointsPerSlice },
  release,
  /** Services to recount, with the number of their audits. */
  waiting: new Map<Key, number>(),
  services: new Map<Key, ServiceCounts>(),
  /** Services with open findings, with pending differences, and that ask for topology hints. */
  open: new Set<Key>(),
  pending: new Set<Key>(),
  hinting: new Set<Key>(),
  verdicts: createTotals(),
  ...createServiceSums(maxEndpointsPerSlice),
});

/** Notes a change of a Service, or of a name without a Service. */
export function markChanged(totals: ServiceTotals, services: ServiceAuditor, key: Key): void {
  const { waiting, most } = totals;
  waiting.set(key, (waiting.get(key) ?? 0) + 1);
  if (waiting.size <= most) return;
  const [oldest] = waiting;
  if (oldest !== undefined) recount(totals, services, ...oldest);
}

/** Recounts all changed Services. */
export function refreshTotals(totals: ServiceTotals, services: ServiceAuditor): void {
  for (const [key, audits] of totals.waiting) recount(totals, services, key, audits);
}

/** What the impacts are computed from. */
interface ImpactState {
  readonly services: ServiceAuditor | null;
  readonly totals: ServiceTotals;
  readonly nodeRules: { readonly nodes: () => Pick<Nodes, 'impactOf'> | null };
  readonly store: { readonly listers: Pick<Listers, 'nodes'> };
}

/** The impacts of Services with open findings, as they were counted last, and of nodes. */
export const impactsOf = (stateOf: () => ImpactState): ImpactSource => ({
  ofService(key) {
    const { services, totals } = stateOf();
    if (services !== null) refreshTotals(totals, services);
    return totals.services.get(key)?.impact ?? null;
  },
  ofNode: (name) => stateOf().nodeRules.nodes()?.impactOf(name) ?? null,
  nodes: () => stateOf().store.listers.nodes.size,
});

export function summaryOfTotals(
  { verdicts, pending, services: counts }: ServiceTotals,
  services: ServiceAuditor,
  stale: StaleResources,
  nodes: NodesSummary | null,
): Omit<Summary, 'findings'> {
  const shares = [...pending].flatMap((key) => counts.get(key)?.share ?? []);
  return summaryOf(services, verdicts, shares, { stale, nodes });
}

function recount(totals: ServiceTotals, services: ServiceAuditor, key: Key, audits: number): void {
  totals.waiting.delete(key);
  const before = totals.services.get(key) ?? null;
  const audited = services.audited.get(key);
  const after = audited ? countService(totals, services, audited, before, audits) : null;
  if (before !== null) add(totals, before, -1);
  if (after === null) totals.services.delete(key);
  else {
    add(totals, after, 1);
    totals.services.set(key, after);
  }
  setMember(totals.open, key, after !== null && (after.share.open || after.rules !== null));
  setMember(totals.pending, key, after?.share.hasPending === true);
  setMember(totals.hinting, key, after !== null && after.hintMode !== 'none');
}

function setMember(keys: Set<Key>, key: Key, isMember: boolean): void {
  if (isMember) keys.add(key);
  else keys.delete(key);
}

function add(totals: ServiceTotals, counts: ServiceCounts, by: 1 | -1): void {
  addShare(totals.verdicts, counts.share, by);
  for (const name of ['conditions', 'capacity', 'duplicates', 'fill'] as const) {
    addCounts(totals[name], counts[name], by);
  }
}

/** `slices` are those of the controller and then the mirrored ones. */
function countSlices(
  slices: readonly EndpointSlice[],
  controllerSlices: readonly EndpointSlice[],
  max: number,
) {
  const fill = fillOf(controllerSlices, max);
  return {
    slicesCounted: slices,
    slices: slices.length,
    sliceBytes: slices.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0),
    conditions: countConditions(slices),
    fill,
    surplus: surplusOf(fill),
    duplicates: countDuplicates(controllerSlices),
  };
}

/** What one Service adds. */
interface ServiceCounts extends ServiceNumbers, Readonly<ReturnType<typeof countSlices>> {
  readonly capacity: CapacityCounts;
  /** What rules of nodes do to it; null without a finding about them. */
  readonly rules: Impact | null;
  readonly hintMode: HintMode;
}

function countService(
  totals: ServiceTotals,
  { context, listers }: ServiceAuditor,
  audited: ServiceAudit,
  before: ServiceCounts | null,
  audits: number,
): ServiceCounts {
  const { record } = audited;
  const { namespace, name, service, endpoints } = record;
  const controllerSlices = slicesOf(listers, record, 'controller');
  const mirrored = slicesOf(listers, record, 'mirror');
  const all = mirrored.length === 0 ? controllerSlices : [...controllerSlices, ...mirrored];
  // Objects never change, so lists of the same objects are equal.
  const isKnown = before !== null && equalLists(before.slicesCounted, all, Object.is);
  const counts = isKnown ? before : countSlices(all, controllerSlices, totals.fill.max);
  const share = shareOf(context, audited);
  const rules = totals.rulesOf(`${namespace}/${name}`);
  const slices = share.open || rules !== null ? impactOf(context, audited) : null;
  return {
    ...counts,
    namespace,
    name,
    share,
    rules,
    impact: combine(slices, rules),
    bytes: { endpoints: endpoints?.bytes ?? 0, endpointslices: counts.sliceBytes },
    capacity: capacityOf(endpoints, all, totals.limits),
    hintMode: service === null ? 'none' : hintMode(service, totals.release),
    audits: (before?.audits ?? 0) + audits,
  };
}

/** Not part of `recount`: why hints are absent depends on Nodes, which belong to no Service. */
export function countHints(totals: ServiceTotals, auditor: ServiceAuditor): HintCounts {
  const { hinting, services: counts } = totals;
  const { listers } = auditor;
  const counted = noHintCounts();
  for (const key of hinting) {
    const { hintMode: mode = 'none', conditions } = counts.get(key) ?? {};
    if (mode === 'none' || conditions === undefined) continue;
    const { ready, hinted } = conditions;
    if (hinted > 0 && hinted === ready) counted[mode].all++;
    else if (hinted > 0) counted[mode].some++;
    else {
      const isAuto = mode === 'auto' && listers.knows('nodes');
      const known = isAuto ? reasonOfNoHints(listers.zoneCapacity, ready) : null;
      const reason = ready === 0 ? 'no-ready-endpoints' : (known ?? 'none');
      counted[mode].absent[reason] = (counted[mode].absent[reason] ?? 0) + 1;
    }
  }
  return counted;
}
