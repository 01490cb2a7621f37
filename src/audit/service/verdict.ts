// The verdict on each output of a Service. Slices of other managers are foreign: they are counted,
// but not compared, and make no output unknown. While a watch is not connected, known findings stay
// open, but the verdict is unknown: the difference may have ended, or another may have begun.

import { recordOf } from '../../model/collections.ts';
import { label, type Listers, type Resource, type UnreadableObject } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { isMirrored } from '../../shadow/mirroring.ts';
import type { Output } from '../finding/catalogue.ts';
import { legal, type UnknownReason, type Verdict } from '../finding/verdicts.ts';
import type { PendingDifference } from '../pending/pending.ts';
import { restsOn } from '../pending/progress.ts';
import { type AuditContext, type ServiceState, slicesOf } from './cache.ts';
import type { ServiceOutput } from './enqueue.ts';
import type { ServiceAudit } from './reconcile.ts';

export const serviceOutputs: readonly ServiceOutput[] = ['endpoints', 'endpointslices', 'mirrored'];

export type VerdictOutput = ServiceOutput | 'node';

export const verdictOutputs: readonly VerdictOutput[] = [...serviceOutputs, 'node'];

/** Whether an unreadable object could be of the Service's namespace, or of none. */
export const isWithin = ({ namespace }: UnreadableObject, record: ServiceState): boolean =>
  namespace === null || namespace === '' || namespace === record.namespace;

function concerns(
  { pods, slices }: Listers,
  lost: UnreadableObject,
  record: ServiceState,
  output: ServiceOutput,
): boolean {
  if (!isWithin(lost, record)) return false;
  if (isAbout(lost, record, output)) return true;
  const { resource, namespace, name } = lost;
  if (resource !== 'pods' && resource !== 'endpointslices') return false;
  const cached = (resource === 'pods' ? pods : slices).get(`${namespace ?? ''}/${name ?? ''}`);
  return cached !== undefined && isAbout({ ...lost, labels: cached.labels }, record, output);
}

function isAbout(lost: UnreadableObject, record: ServiceState, output: ServiceOutput): boolean {
  const { resource, labels } = lost;
  const { name, service } = record;
  if (!restsOn[output].includes(resource)) return false;
  if (resource === 'nodes') return true; // any pod may come to be on it
  if (resource === 'endpointslices') return (labels?.[label.serviceName] ?? name) === name;
  if (resource !== 'pods') return lost.name === null || lost.name === name;
  if (service === null) return false;
  return labels === null ? isSelected(service) : selects(service.selector, labels);
}

/** Why outputs are unknown that depend on what could not be read. */
export const lossReason = ({ isForbidden }: UnreadableObject): UnknownReason =>
  isForbidden === true ? 'namespace-forbidden' : 'object-unreadable';

/** The outputs of a Service that are unknown, each with the reason. */
export function unknownOutputs(
  listers: Listers,
  record: ServiceState,
  losses: Iterable<UnreadableObject>,
): Map<Output, UnknownReason> {
  const unknown = new Map<Output, UnknownReason>();
  for (const output of serviceOutputs) {
    for (const resource of restsOn[output]) {
      if (resource === 'services' || listers.knows(resource)) continue;
      if (!isUnknown(unknown, output)) unknown.set(output, `${resource}-not-known`);
    }
  }
  for (const lost of losses) {
    for (const output of serviceOutputs) {
      if (concerns(listers, lost, record, output)) unknown.set(output, lossReason(lost));
    }
  }
  return unknown.size === 0 ? nothingUnknown : unknown;
}

const nothingUnknown = new Map<Output, UnknownReason>();

/** Whether nothing of an output can be compared. Without Nodes, only zones and hints cannot. */
export function isUnknown(unknown: ReadonlyMap<Output, UnknownReason>, output: Output): boolean {
  const reason = unknown.get(output);
  return reason !== undefined && reason !== 'nodes-not-known';
}

function applies(listers: Listers, { record, items }: ServiceAudit, output: ServiceOutput) {
  if (restsOn[output].some((resource) => listers.omits(resource))) return false;
  const { service, endpoints } = record;
  const isMirror = output === 'mirrored';
  const isOwned = isMirror ? isMirrored(service, endpoints) : service && isSelected(service);
  if (isOwned === true) return true;
  if ([...items.values()].flat().some((item) => item.output === output)) return true;
  return isMirror && slicesOf(listers, record, 'mirror').length > 0;
}

export type StaleResources = ReadonlySet<Resource>;

export const noStaleResources: StaleResources = new Set();

export interface VerdictInput extends AuditContext {
  readonly stale?: StaleResources;
}

/** Whether an output depends on a stale resource. */
export const isStale = (output: VerdictOutput, stale: StaleResources): boolean =>
  stale.size > 0 && restsOn[output].some((resource) => stale.has(resource));

/** The verdicts on the outputs of a Service: unknown for those that depend on stale resources. */
export const seenVerdicts = (
  verdicts: Readonly<Record<ServiceOutput, Verdict | null>>,
  stale: StaleResources,
): Record<ServiceOutput, Verdict | null> =>
  recordOf(serviceOutputs, (output) => {
    const verdict = verdicts[output];
    return verdict !== null && isStale(output, stale) ? 'unknown' : verdict;
  });

/** `null` if the output is not unknown. */
export function unknownReason(
  audited: ServiceAudit,
  output: ServiceOutput,
  stale: StaleResources = noStaleResources,
): UnknownReason | null {
  return isStale(output, stale) ? 'input-stale' : (audited.unknown.get(output) ?? null);
}

/** The verdict on one output of a Service; `null` if no controller has to write it. */
export function verdictOf(
  listers: Listers,
  audited: ServiceAudit,
  output: ServiceOutput,
  stale: StaleResources = noStaleResources,
): Verdict | null {
  if (!applies(listers, audited, output)) return null;
  return verdictOn(audited, [...audited.items.values()].flat(), output, stale);
}

/** The verdict on some of the differences of an output. */
export function verdictOn(
  { unknown }: ServiceAudit,
  items: readonly PendingDifference[],
  output: ServiceOutput,
  stale: StaleResources = noStaleResources,
): Verdict {
  if (isStale(output, stale)) return 'unknown';
  const wrong = items.filter((item) => item.output === output && !legal.has(item.difference.code));
  if (wrong.some(({ openedAt }) => openedAt !== null)) return 'different';
  if (unknown.has(output)) return 'unknown';
  return wrong.length > 0 ? 'pending' : 'conform';
}

const isLost = (reason: UnknownReason | undefined): boolean =>
  reason === 'object-unreadable' || reason === 'namespace-forbidden';

/** Whether another manager writes endpoints for this Service, or for a name without a Service. */
export function isForeign(listers: Listers, { record, unknown }: ServiceAudit): boolean {
  const { service, endpoints } = record;
  if (slicesOf(listers, record, 'foreign').length > 0) return true;
  if (endpoints === null) return false;
  // A Service may exist that cannot be read.
  if (service === null) return !isLost(unknown.get('endpoints'));
  return !isSelected(service) && !isMirrored(service, endpoints);
}
