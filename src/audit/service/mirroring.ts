// Judges the output of the endpointslicemirroring controller: all mirrored slices of one name at a
// time, since they are a function of one Endpoints object. What must be there is the business of
// shadow/mirroring.ts.

import { isOfUid } from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, EndpointSlice } from '../../model/objects.ts';
import { portText } from '../../model/objects.ts';
import type { MirroredEndpoint, MirroredGroup } from '../../shadow/mirroring.ts';
import {
  endpointIdentity,
  expectedMirror,
  expectedMirrorAnnotations,
  expectedMirrorLabels,
  isMirrored,
  maxEndpointsPerSubset,
} from '../../shadow/mirroring.ts';
import type { Difference } from '../finding/difference.ts';
import { difference } from '../finding/difference.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import { slicesOf } from './cache.ts';
import { endpointText, isReady, sliceObject } from './compare.ts';
import { compareLabels, differingKeys } from './endpoints.ts';

const groupKey = (of: { addressType: string; portMap: string }): string =>
  `${of.addressType} ${of.portMap}`;

/** All mirrored slices that name this Service or its Endpoints. */
export function judgeMirrored(context: AuditContext, record: ServiceState): Difference[] {
  const { service, endpoints } = record;
  const serving = slicesOf(context.listers, record, 'mirror');
  const strayed = slicesOf(context.listers, record, 'strayed mirror');
  const slices = [...serving, ...strayed];
  if (endpoints === null || !isMirrored(service, endpoints)) {
    return slices.map((slice) =>
      difference(
        'mirror-slice-unexpected',
        sliceObject(slice),
        'metadata',
        null,
        `${slice.name}: ${slice.endpoints.map((one) => endpointText(one, slice)).join('; ')}`,
        { subject: slice.name },
      ),
    );
  }
  const found = slices.flatMap((slice) => judgeMetadata(record, slice));
  const groups = expectedMirror(endpoints);
  found.push(...compareGroups(record, groups, serving));
  // For Endpoints that are being deleted no slices are made.
  if (endpoints.deleting) return found.filter(({ code }) => code !== 'mirror-endpoint-missing');
  if (found.length === 0) return found;
  if (record.relabelledMirrors.size > 0) {
    return found.map((one) => ({ ...one, cause: 'slice-relabelled' }));
  }
  if (!mayFail(groups, serving)) return found;
  return found.map((one) => ({ ...one, cause: 'mirror-recycling-fails' }));
}

/**
 * Whether the next sync may fail for good: slices to create take over the names of slices to
 * delete, but upstream strikes them from its list by a name that none of them has yet. With both
 * address types to create it may strike the wrong one and then create a name that exists.
 */
function mayFail(groups: readonly MirroredGroup[], slices: readonly EndpointSlice[]): boolean {
  const wanted = new Set(groups.map(groupKey));
  const existing = new Set(slices.map(groupKey));
  const created = groups.filter((group) => !existing.has(groupKey(group)));
  const types = new Set(created.map(({ addressType }) => addressType));
  return types.size > 1 && slices.some((slice) => !wanted.has(groupKey(slice)));
}

function judgeMetadata(record: ServiceState, slice: EndpointSlice): Difference[] {
  const { endpoints } = record;
  if (endpoints === null) return [];
  const object = sliceObject(slice);
  const found: Difference[] = [];
  const want = expectedMirrorLabels(endpoints);
  const labels = compareLabels('mirror-labels-different', object, want, slice.labels);
  if (labels !== null) found.push({ ...labels, subject: slice.name });
  const annotations = expectedMirrorAnnotations(endpoints);
  const keys = differingKeys(annotations, slice.annotations);
  if (keys.length > 0) {
    const text = (of: Readonly<Record<string, string>>): string =>
      keys.map((key) => `${key}: ${of[key] ?? 'absent'}`).join(', ');
    found.push(
      difference(
        'mirror-annotations-different',
        object,
        `metadata.annotations ${keys.join(', ')}`,
        text(annotations),
        text(slice.annotations),
        { subject: slice.name },
      ),
    );
  }
  // Only an owner of that name and of an earlier life makes the controller write the slice anew.
  const isStale = slice.owners.some(
    ({ kind, name, uid }) =>
      kind === 'Endpoints' && name === endpoints.name && !isOfUid(uid, endpoints),
  );
  const isOwned = endpoints.uid === '' || slice.owners.some(({ uid }) => uid === endpoints.uid);
  if (isStale || !isOwned) {
    const owners = slice.owners.map(({ kind, name, uid }) => `${kind} ${name} (uid ${uid})`);
    found.push(
      difference(
        'mirror-owner-different',
        object,
        'metadata.ownerReferences',
        `Endpoints ${endpoints.name} (uid ${endpoints.uid})`,
        owners.length === 0 ? 'none' : owners.join(', '),
        isStale
          ? { subject: slice.name }
          : { subject: slice.name, cause: 'hand-edited', severity: 'info' },
      ),
    );
  }
  return found;
}

interface Mirrored {
  readonly slice: EndpointSlice;
  readonly endpoint: Endpoint;
  readonly address: string;
}

const mirroredKey = (address: string, target: Endpoint['target']): string =>
  `${address}|${target?.name ?? ''}`;

/** Endpoints are looked for in their own group first, then under other ports. */
function compareGroups(
  record: ServiceState,
  groups: readonly MirroredGroup[],
  slices: readonly EndpointSlice[],
): Difference[] {
  const found: Difference[] = [];
  const left = new Map<string, Mirrored[]>();
  const groupsSeen = new Set<string>();
  const wanted = new Set(groups.map(groupKey));
  for (const slice of slices) {
    const isIdle = slice.endpoints.length === 0 && !wanted.has(groupKey(slice));
    if (isIdle || groupsSeen.has(groupKey(slice))) {
      found.push(
        difference('mirror-slice-duplicate', sliceObject(slice), 'ports', null, slice.name, {
          subject: slice.name,
        }),
      );
    }
    groupsSeen.add(groupKey(slice));
    for (const endpoint of slice.endpoints) {
      const address = canonicalIP(endpoint.addresses[0] ?? '');
      const key = mirroredKey(address, endpoint.target);
      left.set(key, [...(left.get(key) ?? []), { slice, endpoint, address }]);
    }
  }
  const where = `EndpointSlices mirrored from Endpoints ${record.key}`;
  const missing: { group: MirroredGroup; want: MirroredEndpoint }[] = [];
  for (const group of groups) {
    const ofGroup: MirroredEndpoint[] = [];
    for (const want of group.endpoints.values()) {
      const entries = left.get(mirroredKey(want.address, want.source.target)) ?? [];
      const index = entries.findIndex(({ slice }) => groupKey(slice) === groupKey(group));
      const got = index < 0 ? undefined : entries.splice(index, 1)[0];
      if (got === undefined) ofGroup.push(want);
      else compareMirrored(found, want, got);
    }
    const surplus = Math.max(0, group.endpoints.size - maxEndpointsPerSubset);
    for (const want of ofGroup.slice(surplus)) missing.push({ group, want });
  }
  for (const { group, want } of missing) {
    const got = left.get(mirroredKey(want.address, want.source.target))?.shift();
    found.push(missingOrMoved(where, group, want, got));
  }
  for (const entries of left.values()) found.push(...entries.map((got) => stray(got, slices)));
  return found;
}

function missingOrMoved(
  where: string,
  group: MirroredGroup,
  want: MirroredEndpoint,
  got: Mirrored | undefined,
): Difference {
  const ports = group.ports.map(portText).join(', ') || 'no ports';
  const readiness = want.ready === false ? 'not ready' : 'ready';
  const more = { subject: `${want.address} ${groupKey(group)}` };
  if (got === undefined) {
    const text = `${want.address}, ${readiness}, ${ports}`;
    return difference('mirror-endpoint-missing', where, 'endpoints', text, null, more);
  }
  const actual = got.slice.ports.map(portText).join(', ') || 'no ports';
  const [e, a] = [`${want.address}: ${ports}`, `${want.address}: ${actual}`];
  return difference('mirror-ports-different', sliceObject(got.slice), 'ports', e, a, more);
}

function stray(got: Mirrored, slices: readonly EndpointSlice[]): Difference {
  const twice = slices.some(
    (other) =>
      other !== got.slice &&
      groupKey(other) === groupKey(got.slice) &&
      other.endpoints.some(
        ({ addresses, ready }) => addresses[0] === got.address && ready === got.endpoint.ready,
      ),
  );
  return difference(
    twice ? 'mirror-slice-duplicate' : 'mirror-endpoint-unexpected',
    sliceObject(got.slice),
    'endpoints',
    null,
    endpointText(got.endpoint, got.slice),
    {
      subject: `${got.slice.name} ${endpointIdentity(got.address, null, got.endpoint.target)}`,
      severity: twice ? null : isReady(got.endpoint) ? null : 'warning',
    },
  );
}

function compareMirrored(found: Difference[], want: MirroredEndpoint, got: Mirrored): void {
  const object = sliceObject(got.slice);
  const { endpoint } = got;
  const more = { subject: `${want.address} ${groupKey(got.slice)}` };
  const extra = endpoint.serving !== null || endpoint.terminating !== null;
  const agrees = want.ready === null || endpoint.ready === want.ready;
  if (!agrees || extra) {
    const text = (ready: boolean | null): string =>
      `${want.address}: ready ${ready === null ? 'absent' : String(ready)}`;
    const astray = isReady(endpoint) && want.ready === false;
    const also = extra
      ? `, serving ${String(endpoint.serving)}, terminating ${String(endpoint.terminating)}`
      : '';
    found.push(
      difference(
        'mirror-conditions-different',
        object,
        'endpoints.conditions',
        text(want.ready),
        `${text(endpoint.ready)}${also}`,
        // Conditions beside a right `ready` change nothing for anybody.
        { ...more, severity: agrees ? 'info' : astray ? 'critical' : null },
      ),
    );
  }
  const source = want.source;
  const [from, to] = [source.target, endpoint.target];
  // Each mirrored endpoint has one address; the first of several has led here.
  const addresses = [want.address, ...endpoint.addresses.slice(1)].join(', ');
  const fields: [string, string | null, string | null][] = [
    ['addresses', want.address, addresses],
    ['nodeName', source.node, endpoint.node],
    ['hostname', source.hostname === '' ? null : source.hostname, endpoint.hostname],
    ['targetRef.kind', from?.kind ?? null, to?.kind ?? null],
    ['targetRef.namespace', from?.namespace ?? null, to?.namespace ?? null],
    ['targetRef.uid', from?.uid ?? null, to?.uid ?? null],
    ['zone', null, endpoint.zone],
  ];
  const differing = fields.filter(([, e, a]) => e !== a);
  if (differing.length === 0) return;
  const text = (index: 1 | 2): string =>
    `${want.address}: ${differing.map((one) => `${one[0]} ${one[index] ?? 'absent'}`).join(', ')}`;
  const names = differing.map(([name]) => name).join(', ');
  found.push(difference('mirror-endpoint-different', object, names, text(1), text(2), more));
}
