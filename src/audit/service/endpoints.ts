// Compares the output of the endpoints controller: the Endpoints of a Service as a whole, and each
// address in it. shadow/endpoints.ts computes what is expected.
//
// If the object does not exist, that is the only difference. Above the capacity, addresses may be
// absent: then the sizes of the subsets are compared instead.

import { isOfUid } from '../../model/equality.ts';
import { getOrInsert } from '../../model/get-or-insert.ts';
import type { EndpointAddress, Endpoints, Labels, Pod } from '../../model/objects.ts';
import { annotation, label, portKey } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import type { ExpectedAddress, Truncation } from '../../shadow/endpoints.ts';
import {
  endpointsCapacity,
  expectedAddress,
  expectedLabels,
  isSelected,
  isTruncationOf,
  subsetCounts,
  truncation,
} from '../../shadow/endpoints.ts';
import type { Difference } from '../finding/difference.ts';
import { difference } from '../finding/difference.ts';
import type { AddressEntries } from './address-index.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import { isWrittenByController, portGroups } from './cache.ts';
import type { Leftover } from './compare.ts';
import { compareAddress } from './compare.ts';

const objectOf = (record: ServiceState): string => `Endpoints ${record.key}`;

/** The expected truncation of the Endpoints; `null` if they fit. */
export function truncationOf(record: ServiceState): Truncation | null {
  // A subset lists a pod at most once, but subsets of different ports may list the same pods.
  const most = Math.max(1, record.service?.ports.length ?? 1);
  if (record.members.size * most <= endpointsCapacity) return null;
  return (record.truncation ??= truncation(subsetCounts(portGroups(record))));
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
    const want = `Endpoints ${record.key} of ${String(record.members.size)} selected pods`;
    const found = [difference('endpoints-missing', object, 'metadata', want, null)];
    return withCause(context, record, found);
  }
  const labels = compareLabels(
    'endpoints-labels-different',
    object,
    expectedLabels(service, context.release),
    endpoints.labels,
  );
  const isForeign = Object.keys(endpoints.labels).some(
    (key) => !Object.hasOwn(service.labels, key) && !ownLabels.includes(key),
  );
  const likelyCause = isForeign ? 'hand-edited' : null;
  return withCause(context, record, [
    ...(labels === null ? [] : [{ ...labels, likelyCause } as const]),
    ...compareCapacity(endpoints, truncationOf(record)),
  ]);
}

/** Labels that the controller sets itself. */
const ownLabels: readonly string[] = [label.headless, label.endpointsManagedBy];

const labelsText = (labels: Labels, keys: readonly string[]): string =>
  keys
    .map((key) => (Object.hasOwn(labels, key) ? `${key}=${labels[key] ?? ''}` : `${key} absent`))
    .join(', ');

/** The keys in which two label maps differ. */
export function differingKeys(a: Labels, b: Labels): string[] {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].filter(
    (key) => Object.hasOwn(a, key) !== Object.hasOwn(b, key) || a[key] !== b[key],
  );
}

/** The difference between two label maps; `null` if they are equal. */
export function compareLabels(
  code: 'endpoints-labels-different' | 'slice-labels-different' | 'mirror-labels-different',
  object: string,
  want: Labels,
  got: Labels,
): Difference | null {
  if (equalLabels(want, got)) return null;
  const keys = differingKeys(want, got);
  const onlyHeadless = keys.length === 1 && keys[0] === label.headless;
  const field = `metadata.labels ${keys.join(', ')}`;
  return difference(code, object, field, labelsText(want, keys), labelsText(got, keys), {
    // Only the mirroring controller compares this label like all others.
    cause: onlyHeadless && code !== 'mirror-labels-different' ? 'headless-label-kept' : null,
  });
}

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
    found.push(difference(code, object, field, e ?? '', a ?? '', { likelyCause }));
  }
  if (truncated === null) return found;
  const sizes = truncated.subsets.map(({ portKeys }) => sizeOf(endpoints.subsets, portKeys));
  if (isTruncationOf(truncated, sizes)) return found;
  const most = `at most ${sizesText(truncated.subsets)}, ${String(endpointsCapacity)} in all`;
  const more = { subject: 'sizes' };
  return [...found, difference(code, object, 'subsets', most, sizesText(sizes), more)];
}

const sizesText = (counts: readonly { ready: number; notReady: number }[]): string =>
  counts
    .map(({ ready, notReady }) => `${String(ready)} ready and ${String(notReady)} not ready`)
    .join('; ');

/** The number of addresses in the subsets with exactly these ports. */
function sizeOf(
  subsets: Endpoints['subsets'],
  portKeys: readonly string[],
): { ready: number; notReady: number } {
  const size = { ready: 0, notReady: 0 };
  for (const { ports, addresses, readyCount } of subsets) {
    const keys = ports.map(portKey);
    if (keys.length !== portKeys.length || !keys.every((key) => portKeys.includes(key))) continue;
    size.ready += readyCount;
    size.notReady += addresses.length - readyCount;
  }
  return size;
}

/** The selected pod that an entry at an address refers to, if the pod has that address. */
export const referredPod = (
  { members }: AddressEntries,
  target: EndpointAddress['target'],
): Pod | undefined => members.find((pod) => isOfUid(target?.uid, pod) && pod.name === target?.name);

/**
 * Whether the object contains what the controller never writes: an address without a pod, or no
 * managed-by label where the release sets one.
 */
function isHandWritten({ release }: AuditContext, { endpoints }: ServiceState): boolean {
  if (endpoints === null) return false;
  if (release.endpointsManagedBy && !isWrittenByController(endpoints)) return true;
  const isOther = ({ target }: EndpointAddress): boolean =>
    target?.kind !== 'Pod' || target.uid === '';
  return getOrInsert(listsOthers, endpoints, () =>
    endpoints.subsets.some(({ addresses }) => addresses.some(isOther)),
  );
}

/** Whether Endpoints list an address without a pod. Asked for each difference in one version. */
const listsOthers = new WeakMap<Endpoints, boolean>();

/** One address of the object. */
export function compareEndpointsAddress(
  context: AuditContext,
  record: ServiceState,
  entries: AddressEntries,
): Difference[] {
  const { service, endpoints } = record;
  if (service === null || endpoints === null || !isSelected(service)) return [];
  const expected: ExpectedAddress[] = [];
  for (const pod of entries.members) {
    const address = expectedAddress(service, pod, context.release);
    if (address?.ip === entries.ip) expected.push(address);
  }
  const isTruncated = truncationOf(record) !== null;
  const leftover = ({ target, ready }: EndpointAddress): Leftover => {
    const isTerminal = referredPod(entries, target)?.terminal === true;
    return {
      cause: isTerminal ? 'pod-phase-unnoticed' : null,
      severity: isTerminal && !ready ? 'info' : null,
    };
  };
  const found = compareAddress(objectOf(record), expected, entries.listed, isTruncated, leftover);
  return withCause(context, record, found);
}

/** Adds the cause of all differences in an object that the controller cannot or did not write. */
function withCause(context: AuditContext, record: ServiceState, found: Difference[]): Difference[] {
  if (found.length === 0) return found;
  if (record.nodeless > 0) {
    // The finding `pod-without-node` of the output `input` states what traffic suffers.
    return found.map((item) => ({ ...item, cause: 'pod-without-node', severity: 'info' }));
  }
  if (!isHandWritten(context, record)) return found;
  return found.map((item) => ({ ...item, likelyCause: item.likelyCause ?? 'hand-edited' }));
}
