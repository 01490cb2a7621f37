// Compares the output of the endpointslice controller, as shadow/endpointslice.ts and
// shadow/hints.ts expect it. Packing is no difference.

import { equalRefs } from '../../model/equality.ts';
import type {
  AddressType,
  Endpoint,
  EndpointSlice,
  Listers,
  Pod,
  Service,
} from '../../model/objects.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import type { ExpectedEndpoint } from '../../shadow/endpointslice.ts';
import {
  addressTypesOf,
  expectedEndpoints,
  expectedSliceLabels,
  isOwnedBy,
} from '../../shadow/endpointslice.ts';
import { expectedHints, type HintMode, hintMode, whyNoHints } from '../../shadow/hints.ts';
import type { Release } from '../../shadow/release.ts';
import { type Cause, explains } from '../finding/causes.ts';
import { type ComparedField, type Difference, difference } from '../finding/difference.ts';
import type { AddressEntries, SlicedEndpoint } from './address-index.ts';
import type { AuditContext, Role, ServiceState } from './cache.ts';
import { isRetried, isWedged, nodeOf, podsOf, roleOf, slicesOf } from './cache.ts';
import {
  compareFields,
  compareLabels,
  comparePairs,
  differingKeys,
  entryDifference,
  isReady,
  ownersText,
  portsText,
  referredPod,
  sliceObject,
  stateText,
  targetField,
  targetPod,
  targetText,
  unexpectedEntry,
} from './compare.ts';

/** The entries at an address in slices of one role. */
export function entriesInRole({ listers }: AuditContext, entries: AddressEntries, role: Role) {
  const { record, sliced } = entries;
  const slices = slicesOf(listers, record, role);
  if (slices.length === record.slices.length) return sliced;
  return sliced.filter(({ slice }) => slices.includes(slice));
}

function withHindrance(
  { listers }: AuditContext,
  record: ServiceState,
  found: Difference[],
): Difference[] {
  if (found.length === 0) return found;
  if (record.relabelled.size > 0 && record.service !== null) {
    return found.map((item) => ({ ...item, cause: item.cause ?? 'slice-relabelled' }));
  }
  // Without history, the controller may have been restarted since.
  const hindrance = isWedged(listers, record) ? 'slice-relabelled' : 'node-missing-retried';
  if (hindrance === 'node-missing-retried' && !isRetried(record)) return found;
  return found.map((item) => ({ ...item, hindrance }));
}

/** Without Nodes, the controller may rightly leave out a pod, since its Node may not exist. */
const isNodeCertain = (listers: Listers, service: Service): boolean =>
  listers.knows('nodes') || service.publishNotReadyAddresses;

/** One address over all slices of the controller. */
export function compareSlicesAddress(context: AuditContext, entries: AddressEntries): Difference[] {
  const { record } = entries;
  const { service } = record;
  if (service === null || !isSelected(service)) return [];
  const { listers, release } = context;
  const expected: ExpectedEndpoint[] = [];
  for (const pod of entries.members) {
    for (const endpoint of expectedEndpoints(service, pod, nodeOf(listers, pod), release)) {
      if (endpoint.addresses.includes(entries.ip)) expected.push(endpoint);
    }
  }
  const actual = entriesInRole(context, entries, 'controller');
  const mode = hintMode(service, release);
  const found = comparePairs(
    expected,
    actual,
    scoreEndpoint,
    (want, got) => {
      if (got !== null) return compareEndpoint(want, got, mode, release);
      // The controller adds no endpoints for a Service that is being deleted.
      if (service.deleting || !isNodeCertain(listers, service)) return [];
      return [missingEndpoint(record, want)];
    },
    (got, index, unpaired) => {
      // The first of several entries that are all unexpected is no duplicate.
      const twin = actual.find((other) => isTwin(other, got) && unpaired.indexOf(other) < index);
      if (twin !== undefined) return duplicate(got, twin);
      return unexpectedEndpoint(context, service, entries, got);
    },
  );
  return withHindrance(context, record, found);
}

function scoreEndpoint(want: ExpectedEndpoint, { slice, endpoint }: SlicedEndpoint): number {
  if (endpoint.target?.name !== want.pod.name) return 0;
  let score = 1;
  if (slice.portMap === want.portMap) score += 8;
  if (endpoint.target.uid === want.pod.uid) score += 4;
  if (endpoint.ready === want.ready && endpoint.serving === want.serving) score += 2;
  return score;
}

function missingEndpoint(record: ServiceState, want: ExpectedEndpoint): Difference {
  const { addresses, pod, ready, ports } = want;
  const object = `EndpointSlices of Service ${record.key}`;
  return entryDifference('slice-endpoint-missing', object, 'endpoints', 'missing', {
    address: addresses.join(', '),
    whose: `pod ${pod.name}`,
    state: stateText(ready, ports),
    pod: pod.key,
    subject: pod.name,
    quiet: !ready,
  });
}

type Conditions = Pick<Endpoint, 'ready' | 'serving' | 'terminating'>;

const conditionNames = ['ready', 'serving', 'terminating'] as const;

const conditionsText = (conditions: Conditions): string =>
  conditionNames.map((name) => `${name} ${String(conditions[name] ?? 'absent')}`).join(', ');

/** The conditions that differ. */
export function conditionFields(want: Conditions, got: Conditions): ComparedField[] {
  const text = (value: boolean | null): string | null => (value === null ? null : String(value));
  return conditionNames
    .filter((name) => want[name] !== got[name])
    .map((name) => [`endpoints.conditions.${name}`, text(want[name]), text(got[name])]);
}

const equalConditions = (a: Conditions, b: Conditions): boolean =>
  a.ready === b.ready && a.serving === b.serving && a.terminating === b.terminating;

const isTwin = (a: SlicedEndpoint, b: SlicedEndpoint): boolean =>
  a.slice.portMap === b.slice.portMap && a.endpoint.target?.uid === b.endpoint.target?.uid;

function duplicate(got: SlicedEndpoint, twin: SlicedEndpoint): Difference {
  const state = ({ endpoint, slice }: SlicedEndpoint): string =>
    `${slice.name}: ${conditionsText(endpoint)}`;
  const text = (entry: SlicedEndpoint): string =>
    `${entry.endpoint.addresses.join(', ')} of ${targetText(entry.endpoint.target)} in ` +
    state(entry);
  const isSame = equalConditions(got.endpoint, twin.endpoint);
  const code = isSame ? 'slice-duplicate' : 'slice-duplicate-conflicting';
  return difference(code, sliceObject(got.slice), 'endpoints', text(twin), text(got), {
    subject: got.slice.name,
    address: got.endpoint.addresses.join(', '),
    pod: targetPod(got.endpoint.target),
    fields: [['endpoints', state(twin), state(got)]],
  });
}

/** The change of a pod or its Node after which the entry stayed as it had to be before. */
function unnoticedChange(
  { listers, release }: AuditContext,
  service: Service,
  pod: Pod,
  got: SlicedEndpoint,
): Cause | null {
  const isNodeGone = pod.node !== '' && nodeOf(listers, pod) === null;
  // Every update of a terminating pod wakes the controller.
  if (pod.terminal ? pod.deleting : !isNodeGone) return null;
  const before = expectedEndpoints(service, { ...pod, terminal: false }, undefined, release);
  if (!before.some((want) => isSlicedAs(want, got))) return null;
  return pod.terminal ? 'pod-phase-unnoticed' : 'node-change-unnoticed';
}

function unexpectedEndpoint(
  context: AuditContext,
  service: Service,
  entries: AddressEntries,
  got: SlicedEndpoint,
): Difference {
  const { slice, endpoint } = got;
  const pod = referredPod(entries, endpoint.target);
  const isTerminal = pod?.terminal === true;
  const isNodeGone = pod !== undefined && !isTerminal && nodeOf(context.listers, pod) === null;
  const unready = isReady(endpoint) ? null : isTerminal ? 'info' : 'warning';
  return unexpectedEntry('slice-endpoint-unexpected', got, {
    subject: `${slice.name} ${endpoint.target?.uid ?? ''}`,
    likelyCause: pod === undefined ? null : unnoticedChange(context, service, pod, got),
    // A terminal pod that is not ready gets no traffic.
    severity: isNodeGone ? 'warning' : unready,
  });
}

const hasDuplicates = (names: readonly string[]): boolean =>
  names.length > 1 && new Set(names).size < names.length;

/** The fast path, hints left out. */
const isSlicedAs = (want: ExpectedEndpoint, { slice, endpoint }: SlicedEndpoint): boolean =>
  equalConditions(endpoint, want) &&
  slice.portMap === want.portMap &&
  endpoint.node === want.node &&
  (want.zone === undefined || endpoint.zone === want.zone) &&
  endpoint.hostname === want.hostname &&
  !hasDuplicates(endpoint.addresses) &&
  equalRefs(endpoint.target, want.pod.ref);

function compareEndpoint(
  want: ExpectedEndpoint,
  got: SlicedEndpoint,
  mode: HintMode,
  release: Release,
): Difference[] {
  const hints = mode === 'auto' ? [] : compareHints(want, got, mode, release);
  if (isSlicedAs(want, got)) return hints;
  const { slice, endpoint } = got;
  const object = sliceObject(slice);
  const name = nameOf(want);
  const more = placeOf(want);
  const found: Difference[] = [];
  if (!equalConditions(endpoint, want)) {
    const [e, a] = [want, endpoint].map((side) => `${name}: ${conditionsText(side)}`);
    const severity = isReady(endpoint) && !want.ready ? 'critical' : null;
    const code = 'slice-conditions-different';
    const all = { ...more, severity, fields: conditionFields(want, endpoint) } as const;
    found.push(difference(code, object, 'endpoints.conditions', e ?? '', a ?? '', all));
  }
  if (slice.portMap !== want.portMap) {
    const [w, g] = [portsText(want.ports), portsText(slice.ports)];
    const all = { ...more, fields: [['ports', w, g]] as const };
    const [e, a] = [`${name}: ${w}`, `${name}: ${g}`];
    found.push(difference('slice-ports-different', object, 'ports', e, a, all));
  }
  const addresses = want.addresses.join(', ');
  // Another address is a difference at that address; this one reports duplicates.
  const listed = hasDuplicates(endpoint.addresses) ? endpoint.addresses.join(', ') : addresses;
  const fields: ComparedField[] = [
    targetField(want.pod, endpoint.target),
    ['nodeName', want.node, endpoint.node],
    ['zone', want.zone === undefined ? endpoint.zone : want.zone, endpoint.zone],
    ['addresses', addresses, listed],
    ['hostname', want.hostname, endpoint.hostname],
  ];
  const onlyZone = fields.every(([field, e, a]) => e === a || field === 'zone');
  const rest = compareFields('slice-endpoint-different', object, name, fields, {
    ...more,
    // Without hints nothing reads the zone of an endpoint.
    quiet: onlyZone && mode === 'none',
    likelyCause: onlyZone ? 'node-change-unnoticed' : null,
  });
  return [...found, ...rest, ...hints];
}

/** Where a difference of an expected endpoint is. */
function placeOf({ addresses, pod }: ExpectedEndpoint) {
  return { subject: pod.name, address: addresses.join(', '), pod: pod.key };
}

const nameOf = ({ addresses, pod }: ExpectedEndpoint): string =>
  `${addresses.join(', ')} of pod ${pod.name}`;

/** `null` without names. */
const listText = (names: readonly string[] | null): string | null =>
  names === null || names.length === 0 ? null : names.join(', ');

const hintsText = ({ forZones, forNodes }: Pick<Endpoint, 'forZones' | 'forNodes'>): string =>
  `forZones ${listText(forZones) ?? 'none'}, forNodes ${listText(forNodes) ?? 'none'}`;

/** Hints repeat a zone and a Node: those that are expected, or those that the endpoint states. */
function compareHints(
  want: ExpectedEndpoint,
  { slice, endpoint }: SlicedEndpoint,
  mode: 'none' | 'zone' | 'node',
  release: Release,
): Difference[] {
  const { forZones, forNodes } = endpoint;
  if (mode === 'none' && (forZones ?? []).length + (forNodes ?? []).length === 0) return [];
  const { ready, node, zone = endpoint.zone } = want;
  const hints = expectedHints(mode, { ...endpoint, ready, node, zone }, release);
  const expected = hintsText(hints);
  const actual = hintsText(endpoint);
  if (actual === expected) return [];
  if (actual === hintsText(expectedHints(mode, endpoint, release))) return [];
  const name = nameOf(want);
  // Neither the controller nor kube-proxy reads hints of endpoints that are not ready.
  const severity = endpoint.ready === true || mode === 'none' ? null : 'info';
  const [e, a] = [`${name}: ${expected}`, `${name}: ${actual}`];
  const fields = (['forZones', 'forNodes'] as const)
    .map((key): ComparedField => [
      `endpoints.hints.${key}`,
      listText(hints[key]),
      listText(endpoint[key]),
    ])
    .filter(([, wanted, got]) => wanted !== got);
  const more = { ...placeOf(want), subject: name, severity, fields } as const;
  const code = 'slice-hints-different';
  return [difference(code, sliceObject(slice), 'endpoints.hints', e, a, more)];
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
  const want = expectedSliceLabels(service);
  const found = compareLabels('slice-labels-different', object, want, slice.labels);
  if (role === 'controller') found.push(...compareShape(context, service, slice));
  if (found.length === 0 || !isPlaceholder(context, record, service, slice)) {
    return withHindrance(context, record, found);
  }
  const cause = 'placeholder-taken-over';
  return found.map((item) => (explains(cause, item.code) ? { ...item, cause } : item));
}

/**
 * Whether upstream takes a slice for the placeholder of a Service without endpoints: owners and
 * labels of empty value do not count. `reconciler.go` placeholderSliceCompare.
 */
export function isTakenFor(service: Service, slice: EndpointSlice): boolean {
  const { endpoints, portMap, labels } = slice;
  if (endpoints.length > 0 || portMap !== '') return false;
  const want = expectedSliceLabels(service);
  const keys = differingKeys(want, labels);
  return keys.every((key) => (want[key] ?? '') === '' && (labels[key] ?? '') === '');
}

/** Whether the controller keeps a slice as it is, for lack of other slices and of endpoints. */
function isPlaceholder(
  context: AuditContext,
  record: ServiceState,
  service: Service,
  slice: EndpointSlice,
): boolean {
  const { addressType: type } = slice;
  const slices = slicesOf(context.listers, record, 'controller');
  const alike = slices.filter(({ addressType }) => addressType === type);
  if (!isTakenFor(service, slice) || !alike.includes(slice) || alike.length > 1) return false;
  return addressTypesOf(service).includes(type) && !hasEndpoints(context, record, service, type);
}

/** Whether the Service must have endpoints of an address type. */
function hasEndpoints(
  { listers, release }: AuditContext,
  record: ServiceState,
  service: Service,
  type: AddressType,
): boolean {
  // A list of all members would cost more than the first one, which nearly always has some.
  for (const pod of podsOf(listers, record)) {
    const expected = expectedEndpoints(service, pod, nodeOf(listers, pod), release);
    if (expected.some(({ addressType }) => addressType === type)) return true;
  }
  return false;
}

function compareShape(context: AuditContext, service: Service, slice: EndpointSlice): Difference[] {
  const object = sliceObject(slice);
  const found: Difference[] = [];
  if (service.uid !== '' && !isOwnedBy(slice, service)) {
    const want = `Service ${service.name} (uid ${service.uid})`;
    const field = 'metadata.ownerReferences';
    const all = { likelyCause: slice.owners.length === 0 ? 'hand-edited' : null } as const;
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
    const hasNone = slices.length === 0 && !hasEndpoints(context, record, service, type);
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

export function countHints(slices: Iterable<EndpointSlice>) {
  const counts = {
    without: [] as string[],
    zones: new Set<string>(),
    /** Those of `without` that have hints for Nodes. */
    toNodes: [] as string[],
    ready: 0,
    /** Ready endpoints without a zone: a single one prevents all hints. */
    zoneless: 0,
  };
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

/** Upstream ignores hints for Nodes next to those for zones, but removes them if alone. */
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
