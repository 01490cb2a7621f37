// The four verdicts, per Service and output:
//
//   conform    what stands is a state that the controller may leave
//   pending    it differs, for less than the settle window
//   different  it differs for longer: there is a finding
//   unknown    it cannot be judged, and is neither of the others
//
// An output that nobody has to write has no verdict. What other managers wrote is foreign: counted,
// never judged, and it makes nothing unknown.
//
// While an input cannot be seen (cut.ts), what was found with it still stands, but the verdict is
// unknown: the difference may be over, or have come.

import type {
  EndpointSlice,
  UnreadableObject,
  Pod,
  Resource,
  Listers,
} from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { isMirrored } from '../../shadow/mirroring.ts';
import type { Output } from '../finding/catalogue.ts';
import type { UnknownReason, Verdict } from '../finding/verdicts.ts';
import { legal } from '../finding/verdicts.ts';
import { restsOn } from '../pending/progress.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import { slicesOf } from './cache.ts';
import type { ServiceOutput } from './enqueue.ts';
import type { ServiceAudit } from './reconcile.ts';

const needs: Readonly<Record<ServiceOutput, readonly (readonly [Resource, UnknownReason])[]>> = {
  endpoints: [
    ['pods', 'pods-not-known'],
    ['endpoints', 'endpoints-not-known'],
  ],
  endpointslices: [
    ['pods', 'pods-not-known'],
    ['endpointslices', 'endpointslices-not-known'],
    ['nodes', 'nodes-not-known'],
  ],
  mirrored: [
    ['endpoints', 'endpoints-not-known'],
    ['endpointslices', 'endpointslices-not-known'],
  ],
};

export const serviceOutputs: readonly ServiceOutput[] = ['endpoints', 'endpointslices', 'mirrored'];

/** Outputs that have verdicts. */
export type VerdictOutput = ServiceOutput | 'node';

export const verdictOutputs: readonly VerdictOutput[] = [...serviceOutputs, 'node'];

/** Whether an unreadable object could be of the Service's namespace, or of none. */
export const isWithin = ({ namespace }: UnreadableObject, record: ServiceState): boolean =>
  namespace === null || namespace === '' || namespace === record.namespace;

/** The version that is held of an unreadable object has a say too, until it can be read again. */
function heldOf(
  listers: Listers,
  { resource, namespace, name }: UnreadableObject,
): Pod | EndpointSlice | null {
  const key = `${namespace ?? ''}/${name ?? ''}`;
  if (resource === 'pods') return listers.pods.get(key) ?? null;
  return resource === 'endpointslices' ? (listers.slices.get(key) ?? null) : null;
}

/** Whether an unreadable object could have a say in an output of this Service. */
function concerns(
  listers: Listers,
  lost: UnreadableObject,
  record: ServiceState,
  output: ServiceOutput,
): boolean {
  if (!isWithin(lost, record)) return false;
  const held = heldOf(listers, lost);
  if (held !== null && isAbout({ ...lost, labels: held.labels }, record, output)) return true;
  return isAbout(lost, record, output);
}

function isAbout(lost: UnreadableObject, record: ServiceState, output: ServiceOutput): boolean {
  switch (lost.resource) {
    case 'services':
      return lost.name === null || lost.name === record.name;
    case 'endpoints':
      return output !== 'endpointslices' && (lost.name === null || lost.name === record.name);
    case 'endpointslices': {
      const name = lost.labels?.['kubernetes.io/service-name'];
      return output !== 'endpoints' && (name === undefined || name === record.name);
    }
    case 'pods':
      if (output === 'mirrored' || record.service === null) return false;
      return lost.labels === null
        ? isSelected(record.service)
        : selects(record.service.selector, lost.labels);
    case 'nodes':
      // Any pod may come to be on it.
      return output === 'endpointslices';
  }
}

/** Why outputs of a Service cannot be judged; empty when all can. */
export function unknownOutputs(
  listers: Listers,
  record: ServiceState,
  losses: Iterable<UnreadableObject>,
): Map<Output, UnknownReason> {
  const unknown = new Map<Output, UnknownReason>();
  for (const output of serviceOutputs) {
    const missing = needs[output].find(([resource]) => !listers.knows(resource));
    if (missing !== undefined) unknown.set(output, missing[1]);
  }
  for (const lost of losses) {
    for (const output of serviceOutputs) {
      if (concerns(listers, lost, record, output)) unknown.set(output, 'object-unreadable');
    }
  }
  return unknown.size === 0 ? nothingUnknown : unknown;
}

const nothingUnknown = new Map<Output, UnknownReason>();

/** Without Nodes, all but zones and hints can still be judged; otherwise nothing is. */
export function isUnknown(unknown: ReadonlyMap<Output, UnknownReason>, output: Output): boolean {
  const reason = unknown.get(output);
  return reason !== undefined && reason !== 'nodes-not-known';
}

/** Whether somebody has to write this output for the Service, so that it can be judged at all. */
function applies(
  listers: Listers,
  { record, items }: ServiceAudit,
  output: ServiceOutput,
): boolean {
  const { service, endpoints } = record;
  if (output !== 'mirrored') {
    if (service !== null && isSelected(service)) return true;
  } else if (isMirrored(service, endpoints)) return true;
  for (const standing of items.values()) {
    if (standing.some((item) => item.output === output)) return true;
  }
  if (output !== 'mirrored') return false;
  return slicesOf(listers, record, 'mirror').length > 0;
}

/** Resources that cannot be seen at a moment. */
export type StaleResources = ReadonlySet<Resource>;

export const noStaleResources: StaleResources = new Set();

/** A context, with the resources that cannot be seen at its moment; absent: all can. */
export interface VerdictInput extends AuditContext {
  readonly stale?: StaleResources;
}

/** Whether an output rests on something that cannot be seen. */
export const isStale = (output: VerdictOutput, stale: StaleResources): boolean =>
  stale.size > 0 && restsOn[output].some((resource) => stale.has(resource));

/** Why an output cannot be judged; null where it can. */
export function unknownReason(
  audited: ServiceAudit,
  output: ServiceOutput,
  stale: StaleResources = noStaleResources,
): UnknownReason | null {
  return isStale(output, stale) ? 'input-stale' : (audited.unknown.get(output) ?? null);
}

/** The verdict on one output of a Service; null where there is nothing to judge. */
export function verdictOf(
  listers: Listers,
  audited: ServiceAudit,
  output: ServiceOutput,
  stale: StaleResources = noStaleResources,
): Verdict | null {
  if (!applies(listers, audited, output)) return null;
  if (isStale(output, stale)) return 'unknown';
  let verdict: Verdict = 'conform';
  for (const items of audited.items.values()) {
    for (const item of items) {
      if (item.output !== output || legal.has(item.difference.code)) continue;
      if (item.openedAt !== null) verdict = 'different';
      else if (verdict === 'conform') verdict = 'pending';
    }
  }
  const isUnknown = audited.unknown.has(output);
  return isUnknown && verdict !== 'different' ? 'unknown' : verdict;
}

/** Whether somebody else writes endpoints for this Service, or for none: counted, not judged. */
export function isForeign(listers: Listers, { record, unknown }: ServiceAudit): boolean {
  const { service, endpoints } = record;
  if (slicesOf(listers, record, 'foreign').length > 0) return true;
  if (endpoints === null) return false;
  // There may be a Service, which nobody can read.
  if (service === null) return unknown.get('endpoints') !== 'object-unreadable';
  return !isSelected(service) && !isMirrored(service, endpoints);
}
