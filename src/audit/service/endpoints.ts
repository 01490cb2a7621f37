// Compares the output of the endpoints controller, as shadow/endpoints.ts expects it.
//
// If the object does not exist, that is the only difference. Above the capacity, addresses may be
// absent, or listed under some of their ports: then the sizes of the subsets are compared instead.

import { equalPorts, equalRefs } from '../../model/equality.ts';
import { getOrInsert } from '../../model/collections.ts';
import type { EndpointAddress, Endpoints, Port } from '../../model/objects.ts';
import { annotation, label, portKey } from '../../model/objects.ts';
import type { ExpectedAddress, Truncation } from '../../shadow/endpoints.ts';
import {
  endpointsCapacity,
  expectedAddress,
  expectedLabels,
  isPacked,
  isSelected,
  isTruncationOf,
  subsetCounts,
  truncation,
} from '../../shadow/endpoints.ts';
import { type ComparedField, type Difference, difference } from '../finding/difference.ts';
import type { AddressEntries } from './address-index.ts';
import { type AuditContext, hasKind, isWrittenByController, type ServiceState } from './cache.ts';
import {
  compareFields,
  compareLabels,
  comparePairs,
  entryDifference,
  portsText,
  readyText,
  referredPod,
  stateText,
  targetField,
  targetPod,
  targetText,
} from './compare.ts';

const objectOf = (record: ServiceState): string => `Endpoints ${record.key}`;

/** `null` if the Endpoints fit. */
export function truncationOf(record: ServiceState): Truncation | null {
  // A subset lists a pod at most once, but subsets of different ports may list the same pods.
  const most = Math.max(1, record.service?.ports.length ?? 1);
  if (record.members.size * most <= endpointsCapacity) return null;
  const groups = record.kinds.filter(({ portMap }) => portMap !== null);
  return (record.truncation ??= truncation(subsetCounts(groups)));
}

/** The object as a whole: whether it exists, its labels, its truncation. */
export function compareEndpoints(context: AuditContext, record: ServiceState): Difference[] {
  const { service, endpoints } = record;
  const object = objectOf(record);
  if (service === null) {
    if (endpoints === null || !isWrittenByController(endpoints)) return [];
    return [difference('endpoints-orphaned', object, 'metadata', null, 'no such Service')];
  }
  if (!isSelected(service)) return [];
  if (endpoints === null) {
    // In a namespace that is being deleted, the API server refuses new objects. A load balancer
    // may keep the Service for minutes after its Endpoints.
    if (service.deleting) return [];
    const want = `Endpoints ${record.key} of ${String(record.members.size)} selected pods`;
    const found = [difference('endpoints-missing', object, 'metadata', want, null)];
    return withCause(context, record, found);
  }
  const isForeign = Object.keys(endpoints.labels).some(
    (key) => !Object.hasOwn(service.labels, key) && !ownLabels.includes(key),
  );
  const want = expectedLabels(service, context.release, endpoints.labels);
  return withCause(context, record, [
    ...compareLabels('endpoints-labels-different', object, want, endpoints.labels, {
      likelyCause: isForeign ? 'hand-edited' : null,
    }),
    ...compareCapacity(endpoints, truncationOf(record)),
    ...(truncationOf(record) === null ? comparePacking(context, endpoints) : []),
  ]);
}

const isPackedIn = new WeakMap<Endpoints, boolean>();

function comparePacking({ release }: AuditContext, endpoints: Endpoints): Difference[] {
  if (release.repacksEndpoints) return [];
  if (getOrInsert(isPackedIn, endpoints, () => isPacked(endpoints))) return [];
  const texts = ['each pod once under each port', 'another packing'] as const;
  const more = { subject: 'packing', likelyCause: 'hand-edited' } as const;
  const object = `Endpoints ${endpoints.key}`;
  return [difference('endpoints-address-different', object, 'subsets', ...texts, more)];
}

const ownLabels: readonly string[] = [label.headless, label.endpointsManagedBy];

function compareCapacity(endpoints: Endpoints, truncated: Truncation | null): Difference[] {
  const object = `Endpoints ${endpoints.key}`;
  const found: Difference[] = [];
  const code = 'endpoints-over-capacity-different';
  const want = truncated === null ? null : 'truncated';
  const got = endpoints.annotations[annotation.overCapacity] ?? null;
  if (want !== got) {
    const [e, a] = [want, got].map((value) => `${annotation.overCapacity}: ${value ?? 'absent'}`);
    const field = `metadata.annotations ${annotation.overCapacity}`;
    // The controller never leaves the annotation on an object that fits.
    const likelyCause = want === null ? 'hand-edited' : null;
    const fields = [[`metadata.annotations[${annotation.overCapacity}]`, want, got]] as const;
    found.push(difference(code, object, field, e ?? '', a ?? '', { likelyCause, fields }));
  }
  if (truncated === null) return found;
  const sizes = truncated.subsets.map(({ portKeys }) => sizeOf(endpoints.subsets, portKeys));
  if (isTruncationOf(truncated, sizes)) return found;
  const most = `at most ${sizesText(truncated.subsets)}, ${String(endpointsCapacity)} in all`;
  const more = { subject: 'sizes' };
  return [...found, difference(code, object, 'subsets', most, sizesText(sizes), more)];
}

const sizesText = (counts: readonly { ready: number; notReady: number }[]): string =>
  counts.map(({ ready, notReady }) => `${ready} ready and ${notReady} not ready`).join('; ');

function sizeOf(subsets: Endpoints['subsets'], portKeys: readonly string[]) {
  const size = { ready: 0, notReady: 0 };
  for (const { ports, addresses, readyCount } of subsets) {
    const keys = ports.map(portKey);
    if (keys.length !== portKeys.length || !keys.every((key) => portKeys.includes(key))) continue;
    size.ready += readyCount;
    size.notReady += addresses.length - readyCount;
  }
  return size;
}

/** Whether the object has what the controller never writes: no managed-by label, or no pod. */
function isHandWritten({ release }: AuditContext, { endpoints }: ServiceState): boolean {
  if (endpoints === null) return false;
  if (release.endpointsManagedBy === true && !isWrittenByController(endpoints)) return true;
  const isOther = ({ target }: EndpointAddress): boolean =>
    target?.kind !== 'Pod' || target.uid === '';
  return getOrInsert(listsOthers, endpoints, () =>
    endpoints.subsets.some(({ addresses }) => addresses.some(isOther)),
  );
}

const listsOthers = new WeakMap<Endpoints, boolean>();

/** One address of the object. */
export function compareEndpointsAddress(context: AuditContext, entries: AddressEntries) {
  const { record } = entries;
  const { service, endpoints } = record;
  if (service === null || endpoints === null || !isSelected(service)) return [];
  const expected: ExpectedAddress[] = [];
  for (const pod of entries.members) {
    const address = expectedAddress(service, pod, context.release);
    if (address?.ip === entries.ip) expected.push(address);
  }
  const object = objectOf(record);
  const isTruncated = truncationOf(record) !== null;
  const found = comparePairs(
    expected,
    entries.listed,
    scoreAddress,
    (want, got) => compareAddress(object, want, got, isTruncated),
    (got) => {
      const pod = referredPod(entries, got.target);
      const isTerminal = pod?.terminal === true;
      // Every update of a terminating pod wakes the controller.
      const isAsleep = isTerminal && !pod.deleting;
      const before = isAsleep ? { ...pod, terminal: false } : null;
      const was = before && expectedAddress(service, before, context.release);
      return entryDifference('endpoints-address-unexpected', object, 'subsets', 'unexpected', {
        address: got.ip,
        whose: targetText(got.target),
        state: stateText(got.ready, got.ports),
        pod: targetPod(got.target),
        subject: got.target?.uid ?? '',
        likelyCause: was !== null && isListedAs(was, got) ? 'pod-phase-unnoticed' : null,
        severity: isTerminal && !got.ready ? 'info' : null,
      });
    },
  );
  return withCause(context, record, found);
}

function scoreAddress({ pod }: ExpectedAddress, { target }: EndpointAddress): number {
  if (target?.name !== pod.name) return 0;
  return target.uid === pod.uid ? 2 : 1;
}

/** Repacking drops duplicates, except with an appProtocol, which it compares by pointer. */
function packedPorts(ports: readonly Port[]): string[] {
  const keys = ports.map(portKey);
  return keys
    .filter((key, index) => ports[index]?.appProtocol !== null || keys.indexOf(key) === index)
    .sort();
}

const isListedAs = (want: ExpectedAddress, got: EndpointAddress): boolean =>
  want.ready === got.ready &&
  want.node === got.node &&
  want.hostname === got.hostname &&
  equalRefs(got.target, want.pod.ref) &&
  equalPorts(want.ports, got.ports);

function compareAddress(
  object: string,
  want: ExpectedAddress,
  got: EndpointAddress | null,
  truncated: boolean,
): Difference[] {
  const place = { address: want.ip, pod: want.pod.key };
  const more = { subject: want.pod.name, quiet: got === null && !want.ready, ...place };
  if (got === null) {
    if (truncated) return [];
    return [
      entryDifference('endpoints-address-missing', object, 'subsets', 'missing', {
        whose: `pod ${want.pod.name}`,
        state: stateText(want.ready, want.ports),
        ...more,
      }),
    ];
  }
  if (isListedAs(want, got)) return [];
  const found: Difference[] = [];
  const name = `${want.ip} of pod ${want.pod.name}`;
  if (want.ready !== got.ready) {
    const field = `subsets.${want.ready ? 'notReadyAddresses' : 'addresses'}`;
    const texts = [`${name} ${readyText(want.ready)}`, `${name} ${readyText(got.ready)}`] as const;
    const all = { ...more, fields: [['ready', String(want.ready), String(got.ready)]] as const };
    found.push(difference('endpoints-readiness-different', object, field, ...texts, all));
  }
  const [wantPorts, gotPorts] = [packedPorts(want.ports), packedPorts(got.ports)];
  const isPart = truncated && gotPorts.every((key) => wantPorts.includes(key));
  if (!isPart && wantPorts.join() !== gotPorts.join()) {
    const [w, g] = [portsText(want.ports), portsText(got.ports)];
    const [e, a] = [`${name}: ${w}`, `${name}: ${g}`];
    const all = { ...more, fields: [['subsets.ports', w, g]] as const };
    found.push(difference('endpoints-ports-different', object, 'subsets.ports', e, a, all));
  }
  const fields: ComparedField[] = [
    targetField(want.pod, got.target),
    ['nodeName', want.node, got.node],
    ['hostname', want.hostname, got.hostname],
  ];
  return [...found, ...compareFields('endpoints-address-different', object, name, fields, more)];
}

/** Adds the cause of all differences in an object that the controller cannot or did not write. */
function withCause(context: AuditContext, record: ServiceState, found: Difference[]): Difference[] {
  if (found.length === 0) return found;
  if (hasKind(record, 'nodeless')) {
    // The finding `pod-without-node` of the output `input` states what traffic suffers.
    return found.map((item) => ({ ...item, cause: 'pod-without-node', severity: 'info' }));
  }
  if (!isHandWritten(context, record)) return found;
  return found.map((item) => ({ ...item, likelyCause: item.likelyCause ?? 'hand-edited' }));
}
