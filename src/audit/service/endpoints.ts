// Judges the output of the endpoints controller: the object of a Service as a whole, and each
// address in it. What must be there is the business of shadow/endpoints.ts.
//
// Where the object does not exist, that is the one difference and its addresses are none. Above the
// capacity, addresses may be absent: then the sizes of the subsets are judged instead.

import { isOfUid } from '../../model/equality.ts';
import type { Pod } from '../../model/objects.ts';
import { annotation, label, portKey } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import type { Truncation } from '../../shadow/endpoints.ts';
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
import { listedAt } from './address-index.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import { isMember, isWrittenByController, podsInOrder, portGroups } from './cache.ts';
import type { Leftover, ListedAddress } from './compare.ts';
import { compareAddress } from './compare.ts';

const objectOf = (record: ServiceState): string => `Endpoints ${record.key}`;

/** How the Endpoints must be truncated; null where they fit. */
export function truncationOf(record: ServiceState): Truncation | null {
  // A subset lists a pod at most once, but subsets of different ports may list the same pods.
  const most = Math.max(1, record.service?.ports.length ?? 1);
  if (record.members.length * most <= endpointsCapacity) return null;
  if (record.truncation === undefined) {
    record.truncation = truncation(subsetCounts(portGroups(record)));
  }
  return record.truncation;
}

/** The object as a whole: that it exists, its labels, its truncation. */
export function judgeEndpoints(context: AuditContext, record: ServiceState): Difference[] {
  const { service, endpoints } = record;
  if (service === null) {
    const orphaned = endpoints !== null && isWrittenByController(endpoints);
    if (!orphaned) return [];
    return [
      difference('endpoints-orphaned', objectOf(record), 'metadata', null, 'no such Service'),
    ];
  }
  if (!isSelected(service)) return [];
  if (endpoints === null) {
    const want = `Endpoints ${record.key} of ${String(record.members.length)} selected pods`;
    const found = [difference('endpoints-missing', objectOf(record), 'metadata', want, null)];
    return withLikelyCause(context, record, found);
  }
  return withLikelyCause(context, record, [
    ...judgeLabels(context, record),
    ...judgeCapacity(record),
  ]);
}

function labelsText(labels: Readonly<Record<string, string>>, keys: readonly string[]): string {
  return keys
    .map((key) => (Object.hasOwn(labels, key) ? `${key}=${labels[key] ?? ''}` : `${key} absent`))
    .join(', ');
}

/** The keys in which two label maps differ. */
export function differingKeys(
  a: Readonly<Record<string, string>>,
  b: Readonly<Record<string, string>>,
): string[] {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].filter(
    (key) => Object.hasOwn(a, key) !== Object.hasOwn(b, key) || a[key] !== b[key],
  );
}

/** The difference between two label maps, null when they are equal. */
export function compareLabels(
  code: 'endpoints-labels-different' | 'slice-labels-different' | 'mirror-labels-different',
  object: string,
  want: Readonly<Record<string, string>>,
  got: Readonly<Record<string, string>>,
): Difference | null {
  if (equalLabels(want, got)) return null;
  const keys = differingKeys(want, got);
  const headlessOnly = keys.length === 1 && keys[0] === label.headless;
  return difference(
    code,
    object,
    `metadata.labels ${keys.join(', ')}`,
    labelsText(want, keys),
    labelsText(got, keys),
    // Only the mirroring controller compares this label as it does all others.
    { cause: headlessOnly && code !== 'mirror-labels-different' ? 'headless-label-kept' : null },
  );
}

/** Labels that the controller sets itself. */
const own: readonly string[] = [label.headless, label.endpointsManagedBy];

function judgeLabels({ release }: AuditContext, record: ServiceState): Difference[] {
  const { service, endpoints } = record;
  if (service === null || endpoints === null) return [];
  const found = compareLabels(
    'endpoints-labels-different',
    objectOf(record),
    expectedLabels(service, release),
    endpoints.labels,
  );
  if (found === null) return [];
  const foreign = Object.keys(endpoints.labels).some(
    (key) => !Object.hasOwn(service.labels, key) && !own.includes(key),
  );
  return [foreign ? { ...found, likelyCause: 'hand-edited' } : found];
}

function judgeCapacity(record: ServiceState): Difference[] {
  const { endpoints } = record;
  if (endpoints === null) return [];
  const found: Difference[] = [];
  const truncated = truncationOf(record);
  const code = 'endpoints-over-capacity-different';
  const want = truncated === null ? null : 'truncated';
  const got = endpoints.annotations[annotation.overCapacity] ?? null;
  if (want !== got) {
    const text = (value: string | null): string =>
      `${annotation.overCapacity}: ${value ?? 'absent'}`;
    const field = `metadata.annotations ${annotation.overCapacity}`;
    // The controller never leaves the annotation on an object that fits.
    const likelyCause = want === null ? 'hand-edited' : null;
    found.push(difference(code, objectOf(record), field, text(want), text(got), { likelyCause }));
  }
  if (truncated === null) return found;
  const sizes = truncated.subsets.map(({ portKeys }) => sizeOf(endpoints.subsets, portKeys));
  if (!isTruncationOf(truncated, sizes)) {
    const text = (counts: readonly { ready: number; notReady: number }[]): string =>
      counts
        .map(({ ready, notReady }) => `${String(ready)} ready and ${String(notReady)} not ready`)
        .join('; ');
    found.push(
      difference(
        code,
        objectOf(record),
        'subsets',
        `at most ${text(truncated.subsets)}, ${String(endpointsCapacity)} in all`,
        text(sizes),
        { subject: 'sizes' },
      ),
    );
  }
  return found;
}

/** What the subsets with exactly these ports hold together. */
function sizeOf(
  subsets: NonNullable<ServiceState['endpoints']>['subsets'],
  portKeys: readonly string[],
): { ready: number; notReady: number } {
  const size = { ready: 0, notReady: 0 };
  for (const subset of subsets) {
    const keys = subset.ports.map(portKey);
    if (keys.length !== portKeys.length || !keys.every((key) => portKeys.includes(key))) continue;
    size.ready += subset.readyCount;
    size.notReady += subset.addresses.length - subset.readyCount;
  }
  return size;
}

/** The selected pod that an entry at an address refers to, if the pod has that address. */
export function referredPod(
  { listers }: AuditContext,
  record: ServiceState,
  address: string,
  target: ListedAddress['target'],
): Pod | null {
  if (target === null) return null;
  for (const pod of listers.podsAt(address)) {
    if (isOfUid(target.uid, pod) && pod.name === target.name && isMember(record, pod)) {
      return pod;
    }
  }
  return null;
}

/**
 * The object holds what the controller never writes, so somebody else wrote it last: an address
 * without a pod, or no managed-by label where the release sets one.
 */
function isHandWritten({ release }: AuditContext, { endpoints }: ServiceState): boolean {
  if (endpoints === null) return false;
  if (release.endpointsManagedBy && !isWrittenByController(endpoints)) return true;
  return endpoints.subsets.some(({ addresses }) =>
    addresses.some(({ target }) => target?.kind !== 'Pod' || target.uid === ''),
  );
}

/** One address of the object. */
export function judgeEndpointsAddress(
  context: AuditContext,
  record: ServiceState,
  ip: string,
): Difference[] {
  const { service, endpoints } = record;
  if (service === null || endpoints === null || !isSelected(service)) return [];
  const { listers, release } = context;
  const expected = [];
  for (const pod of podsInOrder(listers, ip)) {
    if (!isMember(record, pod)) continue;
    const address = expectedAddress(service, pod, release);
    if (address?.ip === ip) expected.push(address);
  }
  const gone = (listed: ListedAddress): Leftover => {
    const terminal = referredPod(context, record, ip, listed.target)?.terminal === true;
    return {
      cause: terminal ? 'pod-phase-unnoticed' : null,
      severity: terminal && !listed.ready ? 'info' : null,
    };
  };
  const listed = listedAt(record, ip);
  const truncated = truncationOf(record) !== null;
  const found = compareAddress(objectOf(record), expected, listed, truncated, gone);
  return withLikelyCause(context, record, found);
}

/** Names what explains differences in a frozen or hand-written object. */
function withLikelyCause(
  context: AuditContext,
  record: ServiceState,
  found: Difference[],
): Difference[] {
  if (found.length === 0) return found;
  if (record.nodeless > 0) {
    // What suffers is told by the finding about the pod itself, at the output `input`.
    return found.map((one) => ({ ...one, cause: 'pod-without-node', severity: 'info' }));
  }
  if (!(record.handWritten ??= isHandWritten(context, record))) return found;
  return found.map((one) => ({ ...one, likelyCause: one.likelyCause ?? 'hand-edited' }));
}
