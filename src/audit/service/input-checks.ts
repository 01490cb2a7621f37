// Cross checks of the input itself: troubles that no controller can put right, because it does what
// it must with what users and other managers wrote. They are findings of the output `input`, apart
// from the verdicts on what the controllers wrote.

import { isOfUid } from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { EndpointSlice, Pod, Listers } from '../../model/objects.ts';
import { endpointsCapacity, isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf } from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import type { Difference } from '../finding/difference.ts';
import { difference } from '../finding/difference.ts';
import { objectBytesLimit } from '../measure/size.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import { isMember, isWrittenByController, roleOf, slicesOf } from './cache.ts';
import type { SlicedEndpoint } from './compare.ts';
import { isReady, sliceObject } from './compare.ts';
import { truncationOf } from './endpoints.ts';
import { countHints, entriesAt } from './endpointslices.ts';

/** Bytes of an object that comes near what the API server accepts. */
const nearLimit = 0.8 * objectBytesLimit;

/** What is left of a selector that is gone: the controllers' own slices and Endpoints. */
const leftBehind = (context: AuditContext, record: ServiceState): readonly EndpointSlice[] =>
  slicesOf(context.listers, record, 'controller');

/** The addresses that were left behind, each with the uids of the pods it stood for. */
export function leftBehindAddresses(
  context: AuditContext,
  record: ServiceState,
): Map<string, Set<string>> {
  const { service, endpoints } = record;
  const addresses = new Map<string, Set<string>>();
  if (service === null || isSelected(service)) return addresses;
  const add = (address: string, uid: string | undefined): void => {
    addresses.set(address, (addresses.get(address) ?? new Set()).add(uid ?? ''));
  };
  for (const slice of leftBehind(context, record)) {
    for (const endpoint of slice.endpoints) {
      for (const ip of endpoint.addresses) add(canonicalIP(ip), endpoint.target?.uid);
    }
  }
  if (endpoints !== null && isWrittenByController(endpoints)) {
    for (const { addresses } of endpoints.subsets) {
      for (const { ip, target } of addresses) add(canonicalIP(ip), target?.uid);
    }
  }
  return addresses;
}

const isLiving = (pod: Pod): boolean => !pod.terminal && !pod.deleting;

function judgeLeftBehind(context: AuditContext, record: ServiceState): Difference[] {
  const { service, endpoints } = record;
  if (service === null || isSelected(service)) return [];
  const names = leftBehind(context, record).map(sliceObject);
  if (endpoints !== null && isWrittenByController(endpoints)) {
    names.unshift(`Endpoints ${endpoints.key}`);
  }
  if (names.length === 0) return [];
  const object = `Service ${record.key}`;
  const dead: string[] = [];
  for (const [ip, uids] of leftBehindAddresses(context, record)) {
    // A living pod of another uid makes it worse: traffic goes to somebody else.
    const lives = context.listers
      .podsAt(ip)
      .some((pod) => isLiving(pod) && (pod.uid === '' || uids.has(pod.uid)));
    if (!lives) dead.push(ip);
  }
  const found = [difference('left-behind', object, 'spec.selector', null, names.join(', '))];
  // Nodes program nothing for an ExternalName Service, so nothing goes to its dead addresses.
  if (dead.length > 0 && service.type !== 'ExternalName' && context.listers.knows('pods')) {
    const text = `${names.join(', ')}: ${dead.sort().slice(0, 100).join(', ')}`;
    found.push(difference('left-behind-dead', object, 'spec.selector', null, text));
  }
  return found;
}

function judgeSizes(context: AuditContext, record: ServiceState): Difference[] {
  const near: [object: string, bytes: number][] = [];
  for (const slice of record.slices) {
    const bytes = slice.bytes ?? 0;
    if (bytes <= nearLimit || roleOf(context.listers, record, slice) === null) continue;
    near.push([sliceObject(slice), bytes]);
  }
  const { endpoints } = record;
  const bytes = endpoints?.bytes ?? 0;
  if (bytes > nearLimit) near.push([`Endpoints ${record.key}`, bytes]);
  const most = `at most ${String(objectBytesLimit)} bytes`;
  return near.map(([object, bytes]) =>
    difference('object-near-size-limit', object, 'bytes', most, `${String(bytes)} bytes`, {
      subject: object,
    }),
  );
}

function judgeHintsAbsent(context: AuditContext, record: ServiceState): Difference[] {
  const { service } = record;
  const { listers, release } = context;
  if (service === null || hintMode(service, release) !== 'auto') return [];
  const found: Difference[] = [];
  for (const type of addressTypesOf(service)) {
    const slices = slicesOf(listers, record, 'controller').filter(
      ({ addressType }) => addressType === type,
    );
    const { zones, toNodes, ready, zoneless } = countHints(slices);
    // Hints of another kind are told of where the slices are judged.
    if (zones.size > 0 || toNodes.length > 0 || ready === 0) continue;
    const reason = !listers.knows('nodes')
      ? 'Nodes are not known'
      : zoneless > 0
        ? `${String(zoneless)} ready endpoints do not have a zone`
        : whyNoHints(listers.zoneCapacity, ready);
    found.push(
      difference(
        'hints-absent',
        `Service ${record.key}`,
        'metadata.annotations service.kubernetes.io/topology-mode',
        `${type}: a hint at each of ${String(ready)} ready endpoints`,
        `${type}: none: ${reason ?? 'the input shows no reason; they come back at a later sync'}`,
        { subject: type },
      ),
    );
  }
  return found;
}

/** Pods by which the API server refuses the Endpoints of the Service. */
function judgeNodeless(record: ServiceState): Difference[] {
  const pods = record.members.filter((_, at) => record.memberKinds[at]?.nodeless === true);
  return pods.map((pod) =>
    difference(
      'pod-without-node',
      `Pod ${pod.key}`,
      'spec.nodeName',
      'the name of a Node',
      `'' with address ${pod.ips.join(', ')}; Endpoints ${record.key} cannot be written`,
      { subject: pod.uid },
    ),
  );
}

/** What is true of a Service's input altogether. */
export function judgeInput(context: AuditContext, record: ServiceState): Difference[] {
  const { service } = record;
  const found = [...judgeLeftBehind(context, record), ...judgeSizes(context, record)];
  if (service === null || !isSelected(service)) return found;
  if (record.nodeless > 0) found.push(...judgeNodeless(record));
  const foreign = slicesOf(context.listers, record, 'foreign');
  if (foreign.length > 0) {
    const names = foreign.map(sliceObject).join(', ');
    const object = `Service ${record.key}`;
    found.push(difference('managers-several', object, 'spec.selector', null, names));
  }
  if (truncationOf(record) !== null) {
    const pods = `${String(record.members.length)} selected pods`;
    const most = `${String(endpointsCapacity)} addresses`;
    const object = `Endpoints ${record.key}`;
    found.push(difference('endpoints-truncated', object, 'subsets', pods, most));
  }
  return [...found, ...judgeHintsAbsent(context, record)];
}

/** One address: whether pods share it, and what other managers say of it. */
export function judgeInputAddress(
  context: AuditContext,
  record: ServiceState,
  address: string,
): Difference[] {
  const found = judgeShared(context.listers, record, address);
  const foreign = entriesAt(context, record, address, 'foreign');
  if (foreign.length === 0) return found;
  const others = [
    ...entriesAt(context, record, address, 'controller'),
    ...entriesAt(context, record, address, 'mirror'),
  ];
  for (const entry of foreign) {
    const conflict = others.find((other) => conflicts(entry, other));
    if (conflict !== undefined) found.push(conflicting(address, entry, conflict));
    others.push(entry);
    const { target } = entry.endpoint;
    if (target?.kind !== 'Pod' || !context.listers.knows('pods')) continue;
    const pod = context.listers.pods.get(`${record.namespace}/${target.name}`);
    if (pod !== undefined && (target.uid === '' || isOfUid(target.uid, pod))) continue;
    const object = sliceObject(entry.slice);
    const text = `${address} of pod ${target.name} (uid ${target.uid}), which does not exist`;
    found.push(
      difference('foreign-endpoint-dead', object, 'endpoints.targetRef', null, text, {
        subject: `${entry.slice.name} ${target.name}`,
      }),
    );
  }
  return found;
}

/**
 * Living pods that report one address; pods on the host network of one Node share it by right. It
 * is told once, at the Services of the pod that came later; where none selects that pod, at those
 * of the pod that was there first, since what is sent to it may go astray.
 */
function judgeShared(listers: Listers, record: ServiceState, address: string): Difference[] {
  const pods = listers.podsAt(address);
  if (pods.length < 2) return [];
  const living = pods
    .filter(isLiving)
    .sort((a, b) => a.ipsSince - b.ipsSince || (a.uid < b.uid ? -1 : 1));
  const found: Difference[] = [];
  for (const [index, pod] of living.entries()) {
    const elders = living
      .slice(0, index)
      .filter((other) => !(pod.hostNetwork && other.hostNetwork && pod.node === other.node));
    const isOurs = (one: Pod): boolean => isMember(record, one);
    const elder = isOurs(pod) ? elders[0] : elders.find(isOurs);
    if (elder === undefined || (!isOurs(pod) && isServed(listers, pod))) continue;
    found.push(
      difference(
        'address-shared',
        `Pod ${pod.key}`,
        'status.podIPs',
        `${address} of pod ${elder.key} alone`,
        `${address} of pods ${elder.key} and ${pod.key}`,
        { subject: pod.uid },
      ),
    );
  }
  return found;
}

/** Whether any Service selects the pod. */
const isServed = (listers: Listers, { namespace, labels }: Pod): boolean =>
  listers.servicesSelecting(namespace, labels).some(isSelected);

function conflicts(a: SlicedEndpoint, b: SlicedEndpoint): boolean {
  const shared = a.slice.ports.some((port) =>
    b.slice.ports.some((other) => other.port === port.port && other.protocol === port.protocol),
  );
  if (!shared) return false;
  const serving = ({ endpoint }: SlicedEndpoint): boolean => endpoint.serving ?? isReady(endpoint);
  return isReady(a.endpoint) !== isReady(b.endpoint) || serving(a) !== serving(b);
}

function conflicting(address: string, entry: SlicedEndpoint, other: SlicedEndpoint): Difference {
  const text = ({ endpoint, slice }: SlicedEndpoint): string =>
    `${address} ${isReady(endpoint) ? 'ready' : 'not ready'} in ${slice.name}`;
  return difference(
    'duplicate-conflicting',
    sliceObject(entry.slice),
    'endpoints.conditions',
    text(other),
    text(entry),
    { subject: entry.slice.name },
  );
}
