// Compares the output of the endpointslice controller: each address over all slices of a Service,
// each slice as a whole, and all slices together (placeholder, hints by topology-mode).
// shadow/endpointslice.ts and shadow/hints.ts compute what is expected.
//
// A slice belongs to the Service of its service-name label, as for nodes. Packing is no difference.

import type { AddressType, EndpointSlice, Labels, Pod, Service } from '../../model/objects.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import type { ExpectedEndpoint } from '../../shadow/endpointslice.ts';
import {
  addressTypesOf,
  expectedEndpoints,
  expectedSliceLabels,
  isOwnedBy,
} from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import type { Difference } from '../finding/difference.ts';
import { difference } from '../finding/difference.ts';
import type { AddressEntries, SlicedEndpoint } from './address-index.ts';
import type { AuditContext, Role, ServiceState } from './cache.ts';
import { isWedged, nodeOf, roleOf, slicesOf } from './cache.ts';
import type { Leftover } from './compare.ts';
import { compareEndpoint, ownersText, sliceObject } from './compare.ts';
import { compareLabels, differingKeys, referredPod } from './endpoints.ts';

/** The entries at an address in slices of one role. */
export function entriesInRole(
  { listers }: AuditContext,
  record: ServiceState,
  { sliced }: AddressEntries,
  role: Role,
): readonly SlicedEndpoint[] {
  const slices = slicesOf(listers, record, role);
  return slices.length === record.slices.length
    ? sliced
    : sliced.filter(({ slice }) => slices.includes(slice));
}

/** Adds what keeps the controller from writing any slice of the Service. */
function withHindrance(
  { listers }: AuditContext,
  record: ServiceState,
  found: Difference[],
): Difference[] {
  if (found.length === 0) return found;
  if (isWedged(listers, record)) {
    return found.map((item) => ({ ...item, cause: item.cause ?? 'slice-relabelled' }));
  }
  if (record.stranded === 0) return found;
  return found.map((item) => ({ ...item, hindrance: 'node-missing-retried' }));
}

/** One address over all slices of the controller. */
export function compareSlicesAddress(
  context: AuditContext,
  record: ServiceState,
  entries: AddressEntries,
): Difference[] {
  const { service } = record;
  if (service === null || !isSelected(service)) return [];
  const { listers, release } = context;
  const expected: ExpectedEndpoint[] = [];
  for (const pod of entries.members) {
    for (const endpoint of expectedEndpoints(service, pod, nodeOf(listers, pod), release)) {
      if (endpoint.addresses.includes(entries.ip)) expected.push(endpoint);
    }
  }
  const found = compareEndpoint(
    `EndpointSlices of Service ${record.key}`,
    expected,
    entriesInRole(context, record, entries, 'controller'),
    hintMode(service, release),
    release,
    (entry) => leftoverAt(context, entries, entry),
  );
  // The controller adds no endpoints for a Service that is being deleted.
  const left = service.deleting
    ? found.filter(({ code }) => code !== 'slice-endpoint-missing')
    : found;
  return withHindrance(context, record, left);
}

/** Why an endpoint without a selected pod may still exist. */
function leftoverAt(
  { listers }: AuditContext,
  entries: AddressEntries,
  { endpoint }: SlicedEndpoint,
): Leftover {
  const pod = referredPod(entries, endpoint.target);
  if (pod?.terminal === true) {
    // A terminal pod that is not ready gets no traffic.
    return { cause: 'pod-phase-unnoticed', severity: endpoint.ready === false ? 'info' : null };
  }
  const isNodeGone = pod !== undefined && nodeOf(listers, pod) === null;
  return isNodeGone
    ? { cause: 'node-change-unnoticed', severity: 'warning' }
    : { cause: null, severity: null };
}

/** One slice as a whole. */
export function compareSlice(
  context: AuditContext,
  record: ServiceState,
  slice: EndpointSlice,
): Difference[] {
  const { service } = record;
  const role = roleOf(context.listers, record, slice);
  const object = sliceObject(slice);
  if (service === null) {
    if (role !== 'controller') return [];
    // The garbage collector follows owners, and the controller writes no slice without one.
    const cause = slice.owners.length === 0 ? 'hand-edited' : null;
    return [difference('slice-orphaned', object, 'metadata', null, slice.name, { cause })];
  }
  if (!isSelected(service) || (role !== 'controller' && role !== 'unmanaged')) return [];
  const found: Difference[] = [];
  const want = expectedSliceLabels(service);
  const labels = compareLabels('slice-labels-different', object, want, slice.labels);
  if (labels !== null) {
    const isKept = isPlaceholder(slice) && differOnlyEmpty(want, slice.labels);
    found.push(isKept ? { ...labels, cause: 'placeholder-taken-over' } : labels);
  }
  if (role === 'controller') found.push(...compareShape(context, service, slice));
  return withHindrance(context, record, found);
}

/** Whether a slice has the form in which the controller keeps a Service without endpoints. */
const isPlaceholder = (slice: EndpointSlice): boolean =>
  slice.endpoints.length === 0 && slice.portMap === '';

/** Whether label maps differ only in empty values, which upstream ignores in placeholders. */
const differOnlyEmpty = (want: Labels, got: Labels): boolean =>
  differingKeys(want, got).every((key) => (want[key] ?? '') === '' && (got[key] ?? '') === '');

/** The owner, the address type and the size of a slice. */
function compareShape(context: AuditContext, service: Service, slice: EndpointSlice): Difference[] {
  const object = sliceObject(slice);
  const found: Difference[] = [];
  if (service.uid !== '' && !isOwnedBy(slice, service)) {
    const want = `Service ${service.name} (uid ${service.uid})`;
    const field = 'metadata.ownerReferences';
    const all = {
      cause: isPlaceholder(slice) ? 'placeholder-taken-over' : null,
      likelyCause: slice.owners.length === 0 ? 'hand-edited' : null,
    } as const;
    const code = 'slice-owner-different';
    found.push(difference(code, object, field, want, ownersText(slice), all));
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

/** All slices of the controller together. */
export function compareSlices(context: AuditContext, record: ServiceState): Difference[] {
  const { service } = record;
  if (service === null || !isSelected(service)) return [];
  const { listers, release } = context;
  const isAuto = hintMode(service, release) === 'auto';
  const all = slicesOf(listers, record, 'controller');
  const found = addressTypesOf(service).flatMap((type) => {
    const slices = all.filter(({ addressType }) => addressType === type);
    const isListed = (pod: Pod): boolean =>
      expectedEndpoints(service, pod, nodeOf(listers, pod), release).some(
        ({ addressType }) => addressType === type,
      );
    const hasNone = slices.length === 0 && ![...record.members.keys()].some(isListed);
    const object = `EndpointSlices of Service ${record.key}`;
    const want = `an empty slice of address type ${type}`;
    const found = surplusEmpty(slices);
    if (hasNone && !service.deleting) {
      const code = 'slice-placeholder-missing';
      found.push(difference(code, object, 'addressType', want, null, { subject: type }));
    }
    return isAuto ? [...found, ...compareAutoHints(context, record, type, slices)] : found;
  });
  return withHindrance(context, record, found);
}

/** Empty slices next to others; a single one is the placeholder. */
function surplusEmpty(slices: readonly EndpointSlice[]): Difference[] {
  if (slices.length < 2) return [];
  const empty = slices.filter(({ endpoints }) => endpoints.length === 0);
  const surplus = empty.length === slices.length ? empty.slice(1) : empty;
  return surplus.map((slice) => {
    const more = { subject: slice.name };
    const object = sliceObject(slice);
    return difference('slice-surplus-empty', object, 'endpoints', null, 'no endpoints', more);
  });
}

interface HintCounts {
  readonly without: string[];
  readonly zones: Set<string>;
  /** Those of `without` that have hints for Nodes. */
  readonly toNodes: string[];
  ready: number;
  /** Ready endpoints without a zone: a single one prevents all hints. */
  zoneless: number;
}

/** Counts ready endpoints with and without hints, and collects the zones of the hints. */
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
 * Either all ready endpoints of an address type have a hint, or none has. Upstream ignores hints
 * for Nodes next to those for zones, but removes them if they are alone.
 */
function compareAutoHints(
  { listers }: AuditContext,
  record: ServiceState,
  type: AddressType,
  slices: readonly EndpointSlice[],
): Difference[] {
  const { without, zones, toNodes, ready } = countHints(slices);
  if (zones.size === 0 && toNodes.length === 0) return [];
  const [only] = slices.length === 1 ? slices : [];
  const object = only ? sliceObject(only) : `EndpointSlices of Service ${record.key}`;
  const differ = (field: string, want: string, got: string): Difference[] => {
    const more = { subject: `${type} ${field}` };
    const texts = [`${type}: ${want}`, `${type}: ${got}`] as const;
    return [difference('slice-hints-different', object, field, ...texts, more)];
  };
  if (toNodes.length > 0) {
    const got = `hints for Nodes alone at ${toNodes.slice(0, 100).join(', ')}`;
    return differ('endpoints.hints.forNodes', 'hints for zones, or none', got);
  }
  if (without.length > 0) {
    const got = `no hint at ${without.slice(0, 100).join(', ')}`;
    return differ('endpoints.hints', 'a hint at all ready endpoints or at none', got);
  }
  if (!listers.knows('nodes')) return [];
  const never = [...zones].filter((zone) => !listers.zonesSeen.has(zone));
  if (never.length > 0) {
    return differ('endpoints.hints.forZones', 'zones that Nodes have', never.join(', '));
  }
  const reason = whyNoHints(listers.zoneCapacity, ready);
  if (reason === null) return [];
  return differ('endpoints.hints', `no hints: ${reason}`, `hints for ${[...zones].join(', ')}`);
}
