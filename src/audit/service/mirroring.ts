// Compares the output of the endpointslicemirroring controller, all slices of one name together, as
// shadow/mirroring.ts expects it.

import { isOfUid } from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, Endpoints, EndpointSlice, Labels } from '../../model/objects.ts';
import type { MirroredEndpoint, MirroredGroup } from '../../shadow/mirroring.ts';
import {
  endpointIdentity,
  expectedMirror,
  expectedMirrorAnnotations,
  expectedMirrorLabels,
  isMirrored,
  maxEndpointsPerSubset,
} from '../../shadow/mirroring.ts';
import { type ComparedField, type Difference, difference } from '../finding/difference.ts';
import type { SlicedEndpoint } from './address-index.ts';
import { type AuditContext, type ServiceState, slicesOf } from './cache.ts';
import {
  compareFields,
  compareLabels,
  differingKeys,
  endpointText,
  isReady,
  ownersText,
  portsText,
  readyText,
  sliceObject,
  targetPod,
  unexpectedEntry,
} from './compare.ts';
import { conditionFields } from './endpointslices.ts';

const groupKey = (group: { addressType: string; portMap: string }): string =>
  `${group.addressType} ${group.portMap}`;

/** All mirrored slices that name this Service or its Endpoints. */
export function compareMirrored(context: AuditContext, record: ServiceState): Difference[] {
  const { service, endpoints } = record;
  const serving = slicesOf(context.listers, record, 'mirror');
  const slices = [...serving, ...slicesOf(context.listers, record, 'unmanaged mirror')];
  if (endpoints === null || !isMirrored(service, endpoints)) {
    return slices.map((slice) => {
      const texts = slice.endpoints.map((endpoint) => endpointText(endpoint, slice));
      const got = `${slice.name}: ${texts.join('; ')}`;
      const [code, more] = ['mirror-slice-unexpected', { subject: slice.name }] as const;
      return difference(code, sliceObject(slice), 'metadata', null, got, more);
    });
  }
  const groups = expectedMirror(endpoints);
  const found = [
    ...slices.flatMap((slice) => compareMetadata(endpoints, slice)),
    ...compareGroups(record, groups, serving),
  ];
  // The controller adds no endpoints for Endpoints that are being deleted.
  if (endpoints.deleting) return found.filter(({ code }) => code !== 'mirror-endpoint-missing');
  if (found.length === 0) return found;
  if (record.relabelledMirrors.size > 0) {
    return found.map((item) => ({ ...item, cause: 'slice-relabelled' }));
  }
  if (!mayFail(groups, serving)) return found;
  return found.map((item) => ({ ...item, hindrance: 'mirror-recycling-fails' }));
}

/**
 * Whether every next sync may fail: slices to create reuse the names of slices to delete, and with
 * both address types to create upstream may create a name that exists: `reconciler_helpers.go`
 * recycleSlices removes them from its list by a name that none has yet.
 */
function mayFail(groups: readonly MirroredGroup[], slices: readonly EndpointSlice[]): boolean {
  const wanted = new Set(groups.map(groupKey));
  const existing = new Set(slices.map(groupKey));
  const created = groups.filter((group) => !existing.has(groupKey(group)));
  const types = new Set(created.map(({ addressType }) => addressType));
  return types.size > 1 && slices.some((slice) => !wanted.has(groupKey(slice)));
}

function compareMetadata(endpoints: Endpoints, slice: EndpointSlice): Difference[] {
  const object = sliceObject(slice);
  const more = { subject: slice.name };
  const want = expectedMirrorLabels(endpoints);
  const found = compareLabels('mirror-labels-different', object, want, slice.labels, more);
  const annotations = expectedMirrorAnnotations(endpoints);
  const keys = differingKeys(annotations, slice.annotations);
  if (keys.length > 0) {
    const text = (map: Labels): string =>
      keys.map((key) => `${key}: ${map[key] ?? 'absent'}`).join(', ');
    const [e, a] = [text(annotations), text(slice.annotations)];
    const field = `metadata.annotations ${keys.join(', ')}`;
    const fields = keys.map((key): ComparedField => {
      const [w, g] = [annotations[key] ?? null, slice.annotations[key] ?? null];
      return [`metadata.annotations[${key}]`, w, g];
    });
    const all = { ...more, fields };
    found.push(difference('mirror-annotations-different', object, field, e, a, all));
  }
  // The controller rewrites a slice only if it is owned by earlier Endpoints of the same name.
  const isStale = slice.owners.some(
    ({ kind, name, uid }) =>
      kind === 'Endpoints' && name === endpoints.name && !isOfUid(uid, endpoints),
  );
  const isOwned = endpoints.uid === '' || slice.owners.some(({ uid }) => uid === endpoints.uid);
  if (isStale || !isOwned) {
    const expected = `Endpoints ${endpoints.name} (uid ${endpoints.uid})`;
    const all = isStale ? more : ({ ...more, cause: 'hand-edited', severity: 'info' } as const);
    const [code, field] = ['mirror-owner-different', 'metadata.ownerReferences'] as const;
    found.push(difference(code, object, field, expected, ownersText(slice), all));
  }
  return found;
}

interface MirroredEntry extends SlicedEndpoint {
  readonly address: string;
}

const entryKey = (address: string, target: Endpoint['target']): string =>
  `${address}|${target?.name ?? ''}`;

function compareGroups(
  record: ServiceState,
  groups: readonly MirroredGroup[],
  slices: readonly EndpointSlice[],
): Difference[] {
  const found = duplicateSlices(groups, slices);
  const entries = slices.flatMap((slice) =>
    slice.endpoints.map((endpoint): MirroredEntry => {
      return { slice, endpoint, address: canonicalIP(endpoint.addresses[0] ?? '') };
    }),
  );
  const left = Map.groupBy(entries, ({ address, endpoint }) => entryKey(address, endpoint.target));
  const leftFor = ({ address, source }: MirroredEndpoint): MirroredEntry[] =>
    left.get(entryKey(address, source.target)) ?? [];
  const missing: [MirroredGroup, MirroredEndpoint][] = [];
  for (const group of groups) {
    const unmatched: MirroredEndpoint[] = [];
    for (const want of group.endpoints.values()) {
      const all = leftFor(want);
      const index = all.findIndex(({ slice }) => groupKey(slice) === groupKey(group));
      const got = index < 0 ? undefined : all.splice(index, 1)[0];
      if (got === undefined) unmatched.push(want);
      else found.push(...compareEntry(want, got));
    }
    const surplus = Math.max(0, group.endpoints.size - maxEndpointsPerSubset);
    for (const want of unmatched.slice(surplus)) missing.push([group, want]);
  }
  for (const [group, want] of missing) {
    found.push(missingOrMoved(record, group, want, leftFor(want).shift()));
  }
  const surplus = new Set([...left.values()].flat());
  for (const got of surplus) {
    found.push(surplusEntry(got, entries, surplus));
    surplus.delete(got);
  }
  return found;
}

/** Slices of a group that another slice has, and empty slices of no expected group. */
function duplicateSlices(groups: readonly MirroredGroup[], slices: readonly EndpointSlice[]) {
  const wanted = new Set(groups.map(groupKey));
  const seen = new Set<string>();
  return slices.flatMap((slice) => {
    const key = groupKey(slice);
    const isIdle = slice.endpoints.length === 0 && !wanted.has(key);
    const isSurplus = isIdle || seen.has(key);
    seen.add(key);
    if (!isSurplus) return [];
    const [object, more] = [sliceObject(slice), { subject: slice.name }];
    return [difference('mirror-slice-duplicate', object, 'ports', null, slice.name, more)];
  });
}

function missingOrMoved(
  { key }: ServiceState,
  group: MirroredGroup,
  want: MirroredEndpoint,
  got: MirroredEntry | undefined,
): Difference {
  const { address, source } = want;
  const pod = targetPod(source.target);
  const more = { subject: `${address} ${groupKey(group)}`, address, pod };
  if (got === undefined) {
    const object = `EndpointSlices mirrored from Endpoints ${key}`;
    const state = `${readyText(want.ready !== false)}, ${portsText(group.ports)}`;
    const all = { ...more, fields: [['endpoints', state, null]] as const };
    const text = `${address}, ${state}`;
    return difference('mirror-endpoint-missing', object, 'endpoints', text, null, all);
  }
  const [w, g] = [portsText(group.ports), portsText(got.slice.ports)];
  const [e, a] = [`${address}: ${w}`, `${address}: ${g}`];
  const all = { ...more, fields: [['ports', w, g]] as const };
  return difference('mirror-ports-different', sliceObject(got.slice), 'ports', e, a, all);
}

function surplusEntry(
  got: MirroredEntry,
  entries: readonly MirroredEntry[],
  surplus: ReadonlySet<MirroredEntry>,
): Difference {
  const { endpoint, slice, address } = got;
  const isTwice = entries.some(
    (other) =>
      other.slice !== slice &&
      // The first of several entries that are all unexpected is no duplicate.
      !surplus.has(other) &&
      other.address === address &&
      other.endpoint.ready === endpoint.ready &&
      groupKey(other.slice) === groupKey(slice),
  );
  const code = isTwice ? 'mirror-slice-duplicate' : 'mirror-endpoint-unexpected';
  return unexpectedEntry(code, got, {
    subject: `${slice.name} ${endpointIdentity(address, null, endpoint.target)}`,
    severity: isTwice || isReady(endpoint) ? null : 'warning',
  });
}

function compareEntry(want: MirroredEndpoint, { slice, endpoint }: MirroredEntry): Difference[] {
  const object = sliceObject(slice);
  const { address, source } = want;
  const pod = targetPod(source.target);
  const more = { subject: `${address} ${groupKey(slice)}`, address, pod };
  const [from, to] = [source.target, endpoint.target];
  const fields: ComparedField[] = [
    // Each mirrored endpoint has one address; the pairing compared the first of several.
    ['addresses', address, [address, ...endpoint.addresses.slice(1)].join(', ')],
    ['nodeName', source.node, endpoint.node],
    ['hostname', source.hostname === '' ? null : source.hostname, endpoint.hostname],
    ...(['kind', 'namespace', 'uid'] as const).map((key): ComparedField => [
      `targetRef.${key}`,
      from?.[key] ?? null,
      to?.[key] ?? null,
    ]),
    ['zone', null, endpoint.zone],
  ];
  const different = compareFields('mirror-endpoint-different', object, address, fields, more);
  const hasMore = endpoint.serving !== null || endpoint.terminating !== null;
  const isSame = want.ready === null || endpoint.ready === want.ready;
  if (isSame && !hasMore) return different;
  const text = (ready: boolean | null): string => `${address}: ready ${String(ready ?? 'absent')}`;
  const rest = hasMore
    ? `, serving ${String(endpoint.serving)}, terminating ${String(endpoint.terminating)}`
    : '';
  const [e, a] = [text(want.ready), `${text(endpoint.ready)}${rest}`];
  const isWronglyReady = isReady(endpoint) && want.ready === false;
  // Conditions other than a correct `ready` affect no client.
  const severity = isSame ? 'info' : isWronglyReady ? 'critical' : null;
  const ready = isSame ? endpoint.ready : want.ready;
  const expected = { ready, serving: null, terminating: null };
  const all = { ...more, severity, fields: conditionFields(expected, endpoint) } as const;
  const code = 'mirror-conditions-different';
  const conditions = difference(code, object, 'endpoints.conditions', e, a, all);
  return [conditions, ...different];
}
