// Judges the output of the endpointslice controller: each address over all slices of a Service,
// each slice as a whole, and what must be true of them together (placeholder, hints by
// topology-mode). What must be there is the business of shadow/endpointslice.ts and
// shadow/hints.ts.
//
// A slice counts for its Service by its service-name label, as nodes take it. Packing is no
// difference; a duplicate with equal conditions or a surplus empty slice is one that nobody
// suffers.

import { isAt } from '../../model/ip.ts';
import type { AddressType, EndpointSlice, Labels } from '../../model/objects.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import {
  addressTypesOf,
  expectedEndpoints,
  expectedSliceLabels,
  isOwnedBy,
} from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import type { Difference } from '../finding/difference.ts';
import { difference } from '../finding/difference.ts';
import type { AuditContext, Role, ServiceState } from './cache.ts';
import { isMember, isWedged, nodeOf, podsInOrder, roleOf, slicesAt, slicesOf } from './cache.ts';
import type { Leftover, SlicedEndpoint } from './compare.ts';
import { compareEndpoint, sliceObject } from './compare.ts';
import { compareLabels, differingKeys, referredPod } from './endpoints.ts';

const noEntries: readonly SlicedEndpoint[] = [];

/** The entries at an address in slices of one role, in the order of the slices' names. */
export function entriesAt(
  context: AuditContext,
  record: ServiceState,
  address: string,
  role: Role,
): readonly SlicedEndpoint[] {
  if (record.entries !== null) return record.entries.get(role)?.get(address) ?? noEntries;
  const ofRole = slicesOf(context.listers, record, role);
  if (ofRole.length === 0) return noEntries;
  const entries: SlicedEndpoint[] = [];
  for (const slice of slicesAt(record, address)) {
    if (!ofRole.includes(slice)) continue;
    for (const endpoint of slice.endpoints) {
      for (const one of endpoint.addresses) {
        if (!isAt(one, address)) continue;
        entries.push({ slice, endpoint });
        break;
      }
    }
  }
  return entries;
}

/** Names what keeps the controller from putting any slice of the Service right. */
function withHindrance(
  { listers }: AuditContext,
  record: ServiceState,
  found: Difference[],
): Difference[] {
  if (found.length === 0) return found;
  if (isWedged(listers, record)) {
    return found.map((one) => ({ ...one, cause: one.cause ?? 'slice-relabelled' }));
  }
  if (record.stranded === 0) return found;
  return found.map((one) => ({ ...one, hindrance: 'node-missing-retried' }));
}

/** One address over all slices of the controller. */
export function judgeSliceAddress(
  context: AuditContext,
  record: ServiceState,
  address: string,
): Difference[] {
  const { service } = record;
  if (service === null || !isSelected(service)) return [];
  const { listers, release } = context;
  const expected = [];
  for (const pod of podsInOrder(listers, address)) {
    if (!isMember(record, pod)) continue;
    for (const endpoint of expectedEndpoints(service, pod, nodeOf(listers, pod), release)) {
      if (endpoint.addresses.includes(address)) expected.push(endpoint);
    }
  }
  const actual = entriesAt(context, record, address, 'controller');
  const found = compareEndpoint(
    `EndpointSlices of Service ${record.key}`,
    expected,
    actual,
    hintMode(service, release),
    release,
    (entry) => leftover(context, record, address, entry),
  );
  if (found.length === 0) return found;
  // For a Service that is being deleted no slices are made, so what has no room stays out.
  const left = service.deleting
    ? found.filter(({ code }) => code !== 'slice-endpoint-missing')
    : found;
  return withHindrance(context, record, left);
}

/** Why an endpoint may stand that no selected pod is to have. */
function leftover(
  context: AuditContext,
  record: ServiceState,
  address: string,
  { endpoint }: SlicedEndpoint,
): Leftover {
  const pod = referredPod(context, record, address, endpoint.target);
  if (pod?.terminal === true) {
    // A terminal pod that is not ready gets no traffic, however long it stays listed.
    return { cause: 'pod-phase-unnoticed', severity: endpoint.ready === false ? 'info' : null };
  }
  const nodeGone = pod !== null && nodeOf(context.listers, pod) === null;
  return {
    cause: nodeGone ? 'node-change-unnoticed' : null,
    severity: nodeGone ? 'warning' : null,
  };
}

/** One slice as a whole. */
export function judgeSlice(
  context: AuditContext,
  record: ServiceState,
  slice: EndpointSlice,
): Difference[] {
  const { service } = record;
  const role = roleOf(context.listers, record, slice);
  if (service === null) {
    if (role !== 'controller') return [];
    // The garbage collector follows owners, and the controller writes no slice without one.
    const cause = slice.owners.length === 0 ? 'hand-edited' : null;
    const object = sliceObject(slice);
    return [difference('slice-orphaned', object, 'metadata', null, slice.name, { cause })];
  }
  if (!isSelected(service) || (role !== 'controller' && role !== 'strayed')) return [];
  const found: Difference[] = [];
  const labels = compareLabels(
    'slice-labels-different',
    sliceObject(slice),
    expectedSliceLabels(service),
    slice.labels,
  );
  if (labels !== null) {
    const kept =
      isPlaceholder(slice) && isEmptyLabelKept(expectedSliceLabels(service), slice.labels);
    found.push(kept ? { ...labels, cause: 'placeholder-taken-over' } : labels);
  }
  if (role === 'controller') found.push(...judgeShape(context, record, slice));
  return withHindrance(context, record, found);
}

/** The form in which the controller keeps a Service without endpoints. */
const isPlaceholder = (slice: EndpointSlice): boolean =>
  slice.endpoints.length === 0 && slice.portMap === '';

/** Whether label maps differ only by labels of empty value, which placeholders are not told by. */
function isEmptyLabelKept(want: Labels, got: Labels): boolean {
  return differingKeys(want, got).every(
    (key) => (want[key] ?? '') === '' && (got[key] ?? '') === '',
  );
}

function judgeShape(
  context: AuditContext,
  record: ServiceState,
  slice: EndpointSlice,
): Difference[] {
  const { service } = record;
  if (service === null) return [];
  const object = sliceObject(slice);
  const found: Difference[] = [];
  if (service.uid !== '' && !isOwnedBy(slice, service)) {
    const owners = slice.owners.map(({ kind, name, uid }) => `${kind} ${name} (uid ${uid})`);
    found.push(
      difference(
        'slice-owner-different',
        object,
        'metadata.ownerReferences',
        `Service ${service.name} (uid ${service.uid})`,
        owners.length === 0 ? 'none' : owners.join(', '),
        {
          cause: isPlaceholder(slice) ? 'placeholder-taken-over' : null,
          likelyCause: owners.length === 0 ? 'hand-edited' : null,
        },
      ),
    );
  }
  const types = addressTypesOf(service);
  if (!types.includes(slice.addressType)) {
    const code = 'slice-family-unexpected';
    found.push(difference(code, object, 'addressType', types.join(', '), slice.addressType));
  }
  if (slice.endpoints.length > context.maxEndpointsPerSlice) {
    const most = `at most ${String(context.maxEndpointsPerSlice)} endpoints`;
    const size = `${String(slice.endpoints.length)} endpoints`;
    found.push(difference('slice-oversized', object, 'endpoints', most, size));
  }
  return found;
}

/** What must be true of the slices together. */
export function judgeSlices(context: AuditContext, record: ServiceState): Difference[] {
  const { service } = record;
  if (service === null || !isSelected(service)) return [];
  const found: Difference[] = [];
  for (const type of addressTypesOf(service)) {
    const slices = slicesOf(context.listers, record, 'controller').filter(
      ({ addressType }) => addressType === type,
    );
    const isAuto = hintMode(service, context.release) === 'auto';
    const empty = !record.kinds.some(({ types }) => types.includes(type));
    if (slices.length === 0 && empty && !service.deleting) {
      found.push(
        difference(
          'slice-placeholder-missing',
          `EndpointSlices of Service ${record.key}`,
          'addressType',
          `an empty slice of address type ${type}`,
          null,
          { subject: type },
        ),
      );
    }
    found.push(...judgeEmpty(slices));
    if (isAuto) {
      found.push(...judgeAutoHints(context, record, type, slices));
    }
  }
  return withHindrance(context, record, found);
}

/** Empty slices beside others; one that stands alone is the placeholder. */
function judgeEmpty(slices: readonly EndpointSlice[]): Difference[] {
  if (slices.length < 2) return [];
  const empty = slices.filter(({ endpoints }) => endpoints.length === 0);
  // All but one of them are too many where there is nothing else.
  const surplus = empty.length === slices.length ? empty.slice(1) : empty;
  return surplus.map((slice) =>
    difference('slice-surplus-empty', sliceObject(slice), 'endpoints', null, 'no endpoints', {
      subject: slice.name,
    }),
  );
}

interface HintCounts {
  readonly without: string[];
  readonly zones: Set<string>;
  /** Those of `without` that are hinted to Nodes. */
  readonly toNodes: string[];
  ready: number;
  /** Ready endpoints without a zone, one of which is enough to have no hints. */
  zoneless: number;
}

/** Ready endpoints without a hint by address, and the zones that the others are hinted to. */
export function countHints(slices: Iterable<EndpointSlice>): HintCounts {
  const counts: HintCounts = { without: [], zones: new Set(), toNodes: [], ready: 0, zoneless: 0 };
  for (const slice of slices) {
    for (const { ready, addresses, forZones, forNodes, zone } of slice.endpoints) {
      if (ready !== true) continue;
      counts.ready++;
      if (zone === null || zone === '') counts.zoneless++;
      for (const name of forZones ?? []) counts.zones.add(name);
      if (forZones !== null && forZones.length > 0) continue;
      counts.without.push(addresses.join(', '));
      if (forNodes !== null && forNodes.length > 0) counts.toNodes.push(addresses.join(', '));
    }
  }
  return counts;
}

/**
 * All ready endpoints of an address type have a hint, or none has. Hints for Nodes beside those
 * for zones are not seen upstream, so they stay; alone they count as none and do not.
 */
function judgeAutoHints(
  context: AuditContext,
  record: ServiceState,
  type: AddressType,
  slices: readonly EndpointSlice[],
): Difference[] {
  const { without, zones, toNodes, ready } = countHints(slices);
  if (zones.size === 0 && toNodes.length === 0) return [];
  const object = slices.length === 1 && slices[0] ? sliceObject(slices[0]) : `${type} slices`;
  const where = slices.length === 1 ? object : `EndpointSlices of Service ${record.key}`;
  const say = (field: string, want: string, got: string): Difference =>
    difference('slice-hints-different', where, field, want, got, { subject: `${type} ${field}` });
  if (toNodes.length > 0) {
    const got = `${type}: hints for Nodes alone at ${toNodes.slice(0, 100).join(', ')}`;
    return [say('endpoints.hints.forNodes', `${type}: hints for zones, or none`, got)];
  }
  if (without.length > 0) {
    const got = `${type}: no hint at ${without.slice(0, 100).join(', ')}`;
    return [say('endpoints.hints', `${type}: a hint at all ready endpoints or at none`, got)];
  }
  const { listers } = context;
  const never = [...zones].filter((zone) => listers.knows('nodes') && !listers.zonesSeen.has(zone));
  if (never.length > 0) {
    const got = `${type}: ${never.join(', ')}`;
    return [say('endpoints.hints.forZones', `${type}: zones that Nodes have`, got)];
  }
  const reason = listers.knows('nodes') ? whyNoHints(listers.zoneCapacity, ready) : null;
  if (reason === null) return [];
  const got = `${type}: hints for ${[...zones].join(', ')}`;
  return [say('endpoints.hints', `${type}: no hints: ${reason}`, got)];
}
