// Checks the input itself for faults that no controller can fix.

import { isOfUid } from '../../model/equality.ts';
import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP } from '../../model/ip.ts';
import type {
  EndpointAddress,
  Endpoints,
  EndpointSlice,
  Listers,
  ObjectRef,
  Pod,
  Service,
} from '../../model/objects.ts';
import { endpointsCapacity, isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf } from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import { type Difference, difference } from '../finding/difference.ts';
import { objectBytesLimit } from '../measure/size.ts';
import type { AddressEntries, SlicedEndpoint } from './address-index.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import { hasKind, isMember, isWrittenByController, podsOf, roleOf, slicesOf } from './cache.ts';
import { isReady, readyText, sliceObject, targetPod } from './compare.ts';
import { truncationOf } from './endpoints.ts';
import { countHints, entriesInRole } from './endpointslices.ts';

/** The size in bytes from which an object is close to the limit of the API server. */
const nearLimit = 0.8 * objectBytesLimit;

type Target = ObjectRef | null;

/** The controller writes no address without the uid of a pod, so another client wrote that one. */
const isOfPod = (target: Target): target is ObjectRef =>
  target?.kind === 'Pod' && target.uid !== '';

/** Whether any of it remains: a client may have replaced all addresses and kept the label. */
const isLeftOf = (entries: readonly { readonly target: Target }[]): boolean =>
  entries.length === 0 || entries.some(({ target }) => isOfPod(target));

const addressesOf = ({ subsets }: Endpoints): readonly EndpointAddress[] =>
  subsets.flatMap(({ addresses }) => addresses);

function leftBehind({ listers }: AuditContext, record: ServiceState) {
  const { service, endpoints } = record;
  if (service === null || isSelected(service)) return { endpoints: null, slices: [] };
  const isWritten = endpoints !== null && isWrittenByController(endpoints);
  return {
    endpoints: isWritten && isLeftOf(addressesOf(endpoints)) ? endpoints : null,
    slices: slicesOf(listers, record, 'controller').filter((slice) => isLeftOf(slice.endpoints)),
  };
}

/** The addresses in outputs for a selector that is gone, with the uids of their target pods. */
export function leftBehindAddresses(context: AuditContext, record: ServiceState) {
  const addresses = new Map<string, Set<string>>();
  const add = (ip: string, target: Target): void => {
    if (isOfPod(target)) getOrInsert(addresses, canonicalIP(ip), () => new Set()).add(target.uid);
  };
  const { endpoints, slices } = leftBehind(context, record);
  for (const { addresses: ips, target } of slices.flatMap((slice) => slice.endpoints)) {
    for (const ip of ips) add(ip, target);
  }
  if (endpoints !== null) for (const { ip, target } of addressesOf(endpoints)) add(ip, target);
  return addresses;
}

const isAlive = (pod: Pod): boolean => !pod.terminal && !pod.deleting;

/**
 * The addresses of a Service without selector that its controller wrote, and whose pod is gone.
 * Empty if nodes do not program them.
 */
export function deadLeftBehind(context: AuditContext, record: ServiceState): string[] {
  const { listers } = context;
  // Nodes program nothing for an ExternalName Service, so its dead addresses get no traffic.
  if (record.service?.type === 'ExternalName' || !listers.knows('pods')) return [];
  // A running pod of another uid is no excuse: it gets traffic that is not meant for it.
  return [...leftBehindAddresses(context, record)].flatMap(([ip, uids]) => {
    const isTarget = (pod: Pod): boolean => isAlive(pod) && (pod.uid === '' || uids.has(pod.uid));
    return listers.podsAt(ip).some(isTarget) ? [] : [ip];
  });
}

/** Who gets the traffic to an address that another pod had before. */
function newOwner(pods: readonly Pod[]): string {
  // In any order of the pods, the same of several.
  const [alive] = pods
    .filter(isAlive)
    .map(({ key }) => key)
    .sort();
  return alive === undefined ? '' : ` (now Pod ${alive})`;
}

function checkLeftBehind(context: AuditContext, record: ServiceState): Difference[] {
  const { endpoints, slices } = leftBehind(context, record);
  const names = slices.map(sliceObject);
  if (endpoints !== null) names.unshift(`Endpoints ${endpoints.key}`);
  if (names.length === 0) return [];
  const object = `Service ${record.key}`;
  const found = [difference('left-behind', object, 'spec.selector', null, names.join(', '))];
  const dead = deadLeftBehind(context, record);
  if (dead.length > 0) {
    const texts = dead
      .sort()
      .slice(0, 100)
      .map((ip) => ip + newOwner(context.listers.podsAt(ip)));
    const text = `${names.join(', ')}: ${texts.join(', ')}`;
    found.push(difference('left-behind-dead', object, 'spec.selector', null, text));
  }
  return found;
}

const isLarge = ({ bytes }: EndpointSlice | Endpoints): boolean => (bytes ?? 0) > nearLimit;

function checkSizes({ listers }: AuditContext, record: ServiceState): Difference[] {
  const { endpoints, slices } = record;
  const large: [object: string, bytes: number | null][] = slices
    .filter((slice) => isLarge(slice) && roleOf(listers, record, slice) !== null)
    .map((slice) => [sliceObject(slice), slice.bytes]);
  if (endpoints && isLarge(endpoints)) large.push([`Endpoints ${record.key}`, endpoints.bytes]);
  const most = `at most ${String(objectBytesLimit)} bytes`;
  return large.map(([object, bytes]) => {
    const more = { subject: object };
    const got = `${String(bytes)} bytes`;
    return difference('object-near-size-limit', object, 'bytes', most, got, more);
  });
}

function checkHints({ listers, release }: AuditContext, record: ServiceState, service: Service) {
  if (hintMode(service, release) !== 'auto') return [];
  const all = slicesOf(listers, record, 'controller');
  return addressTypesOf(service).flatMap((type) => {
    const slices = all.filter(({ addressType }) => addressType === type);
    const { zones, toNodes, ready, zoneless } = countHints(slices);
    if (zones.size > 0 || toNodes.length > 0 || ready === 0) return [];
    const reason = !listers.knows('nodes')
      ? 'Nodes are not known'
      : zoneless > 0
        ? `${String(zoneless)} ready endpoints do not have a zone`
        : whyNoHints(listers.zoneCapacity, ready);
    const text = reason ?? 'the input shows no reason; they come back at a later sync';
    return difference(
      'hints-absent',
      `Service ${record.key}`,
      'metadata.annotations service.kubernetes.io/topology-mode',
      `${type}: a hint at each of ${String(ready)} ready endpoints`,
      `${type}: none: ${text}`,
      { subject: type },
    );
  });
}

function checkNodes({ listers }: AuditContext, record: ServiceState): Difference[] {
  if (!hasKind(record, 'nodeless')) return [];
  const { key, members } = record;
  return [...podsOf(listers, record)]
    .filter((pod) => members.get(pod.key)?.nodeless === true)
    .map((pod) => {
      const got = `'' with address ${pod.ips.join(', ')}; Endpoints ${key} cannot be written`;
      const [object, want] = [`Pod ${pod.key}`, 'the name of a Node'];
      const address = pod.ips.join(', ');
      const fields = [['spec.nodeName', want, null]] as const;
      const more = { subject: pod.uid, address, pod: pod.key, fields };
      return difference('pod-without-node', object, 'spec.nodeName', want, got, more);
    });
}

/** Checks the input of a Service as a whole. */
export function checkInput(context: AuditContext, record: ServiceState): Difference[] {
  const { service } = record;
  const found = [...checkLeftBehind(context, record), ...checkSizes(context, record)];
  if (service === null || !isSelected(service)) return found;
  found.push(...checkNodes(context, record));
  const foreign = slicesOf(context.listers, record, 'foreign');
  if (foreign.length > 0) {
    const names = foreign.map(sliceObject).join(', ');
    const object = `Service ${record.key}`;
    found.push(difference('managers-several', object, 'spec.selector', null, names));
  }
  if (truncationOf(record) !== null) {
    const pods = `${String(record.members.size)} selected pods`;
    const most = `${String(endpointsCapacity)} addresses`;
    const object = `Endpoints ${record.key}`;
    found.push(difference('endpoints-truncated', object, 'subsets', pods, most));
  }
  return [...found, ...checkHints(context, record, service)];
}

/** Checks one address: whether pods share it, and what other managers list at it. */
export function checkInputAddress(context: AuditContext, entries: AddressEntries): Difference[] {
  const { listers } = context;
  const { ip, record } = entries;
  const found = checkShared(listers, entries);
  const foreign = entriesInRole(context, entries, 'foreign');
  if (foreign.length === 0) return found;
  const others = [
    ...entriesInRole(context, entries, 'controller'),
    ...entriesInRole(context, entries, 'mirror'),
  ];
  for (const entry of foreign) {
    const conflict = others.find((other) => isConflict(entry, other));
    if (conflict !== undefined) found.push(conflictDifference(ip, entry, conflict));
    others.push(entry);
    const { target } = entry.endpoint;
    if (target?.kind !== 'Pod' || !listers.knows('pods')) continue;
    // Pods of other namespaces may not be read, and their changes do not enqueue this Service.
    if (target.namespace !== '' && target.namespace !== record.namespace) continue;
    const pod = listers.pods.get(`${record.namespace}/${target.name}`);
    if (pod !== undefined && (target.uid === '' || isOfUid(target.uid, pod))) continue;
    const object = sliceObject(entry.slice);
    const got = `${ip} of pod ${target.name} (uid ${target.uid}), which does not exist`;
    const more = {
      subject: `${entry.slice.name} ${target.name}`,
      address: ip,
      pod: targetPod(target),
      fields: [['endpoints.targetRef', null, `uid ${target.uid}, which does not exist`]] as const,
    };
    found.push(difference('foreign-endpoint-dead', object, 'endpoints.targetRef', null, got, more));
  }
  return found;
}

/** The Services of the later pod have the finding, or those of the earlier if none selects it. */
function checkShared(listers: Listers, { ip, record, pods }: AddressEntries): Difference[] {
  if (pods.length < 2) return [];
  const alive = pods
    .filter(isAlive)
    .sort((a, b) => a.ipsSince - b.ipsSince || (a.uid < b.uid ? -1 : 1));
  const isOurs = (pod: Pod): boolean => isMember(record, pod);
  return alive.flatMap((pod, index) => {
    const earlier = alive
      .slice(0, index)
      .filter((other) => !(pod.hostNetwork && other.hostNetwork && pod.node === other.node));
    const other = isOurs(pod) ? earlier[0] : earlier.find(isOurs);
    if (other === undefined) return [];
    const services = listers.servicesSelecting(pod.namespace, pod.labels);
    if (!isOurs(pod) && services.some(isSelected)) return [];
    const want = `${ip} of pod ${other.key} alone`;
    const got = `${ip} of pods ${other.key} and ${pod.key}`;
    const [w, g] = [`Pod ${other.key} alone`, `Pods ${other.key} and ${pod.key}`];
    const fields = [['status.podIPs', w, g]] as const;
    const more = { subject: pod.uid, address: ip, pod: pod.key, fields };
    return difference('address-shared', `Pod ${pod.key}`, 'status.podIPs', want, got, more);
  });
}

function isConflict(a: SlicedEndpoint, b: SlicedEndpoint): boolean {
  const isShared = a.slice.ports.some((port) =>
    b.slice.ports.some((other) => other.port === port.port && other.protocol === port.protocol),
  );
  if (!isShared) return false;
  const serving = ({ endpoint }: SlicedEndpoint): boolean => endpoint.serving ?? isReady(endpoint);
  return isReady(a.endpoint) !== isReady(b.endpoint) || serving(a) !== serving(b);
}

function conflictDifference(address: string, entry: SlicedEndpoint, other: SlicedEndpoint) {
  const state = ({ endpoint, slice }: SlicedEndpoint): string =>
    `${readyText(isReady(endpoint))} in ${slice.name}`;
  const [w, g] = [state(other), state(entry)];
  const [e, a] = [`${address} ${w}`, `${address} ${g}`];
  const field = 'endpoints.conditions';
  return difference('duplicate-conflicting', sliceObject(entry.slice), field, e, a, {
    subject: entry.slice.name,
    address,
    pod: targetPod(entry.endpoint.target),
    fields: [[field, w, g]],
  });
}
