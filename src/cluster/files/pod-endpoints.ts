// Endpoints by the pods that they are of. Nearly every endpoint repeats what its pod has, so a
// checkpoint writes the pods of a Service once, and its Endpoints and slices refer to them. A line
// of a recording:
//
//   {"kind":"object",…,"object":{…,"endpoints":[{…}]},"pods":[[[15,14],1]]}
//
// `[15,14]` are the endpoints of 14 pods in the order of their lines, from the 15th on that the
// namespace has before this line, counted from the last one. `1` is the next endpoint that the
// object itself has. An EndpointSlice has one list, and Endpoints have one for each subset.

import { equalAddresses, equalEndpoints } from '../../model/equality.ts';
import { familyOf } from '../../model/ip.ts';
import type {
  AnyObject,
  Endpoint,
  EndpointAddress,
  EndpointSlice,
  Key,
  Node,
  Pod,
  Resource,
} from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { WrongType } from '../decode/json-fields.ts';
import { type AnyEndpoint, type AnyOutput, isReadyFirst, listsOf, withLists } from './parts.ts';

/** Part of a list: endpoints of consecutive pods, or as many endpoints of the object. */
type Part = [back: number, count: number] | number;

/** For each pod: without a limit, short lines that refer to all pods would fill the memory. */
const mostReferences = 32;

export type CheckpointPods = ReturnType<typeof createCheckpointPods>;

/** The Nodes and the pods of a checkpoint, to which its outputs refer. */
export function createCheckpointPods() {
  const zones = new Map<string, string | null>();
  const places = new Map<Key, number>();
  let pods: Pod[] = [];
  let references = 0;
  let isSpoilt = false;
  const clear = (): void => {
    pods = [];
    references = 0;
    places.clear();
  };
  const zoneOf = (pod: Pod): string | null => zones.get(pod.node) ?? null;
  /** The number of the pod whose endpoint this is; -1 without one. */
  const placeOf = (output: AnyOutput, endpoint: AnyEndpoint): number => {
    const { target } = endpoint;
    const place = places.get(`${target?.namespace ?? ''}/${target?.name ?? ''}`) ?? -1;
    const pod = pods[place];
    if (pod === undefined || references >= mostReferences * pods.length) return -1;
    const ports = 'ports' in endpoint ? endpoint.ports : noPorts;
    if (!isEqual(endpoint, endpointOf(output, pod, zoneOf(pod), ports))) return -1;
    references++;
    return place;
  };
  return {
    /** Takes an object in the order of the lines. */
    add(resource: Resource, object: AnyObject): void {
      if (resource === 'nodes') zones.set(object.name, (object as Node).zone || null);
      if (resource !== 'pods') return;
      if (pods[0]?.namespace !== object.namespace) clear();
      places.set(object.key, pods.length);
      pods.push(object as Pod);
    },
    /** Forgets all pods: the list of a recording is complete. */
    clear,
    /** Refuses all parts from now on: an object was lost. */
    spoil(): void {
      isSpoilt = true;
    },
    /** The output with only the endpoints that are no pod's, and the parts of all its lists. */
    split(output: AnyOutput): { readonly rest: AnyOutput; readonly parts: readonly Part[][] } {
      const lists = listsOf(output).map((list) =>
        splitList(list, (it) => placeOf(output, it), pods.length),
      );
      const rest = withLists(
        output,
        lists.map(({ added }) => added),
      );
      return { rest, parts: lists.map(({ parts }) => parts) };
    },
    /** The reverse of `split`. Throws WrongType for parts that it cannot have written. */
    join(rest: AnyOutput, parts: unknown): AnyOutput {
      const lists = listsOf(rest);
      const isKnown = !isSpoilt && Array.isArray(parts) && parts.length === lists.length;
      if (!isKnown) throw wrongParts(parts);
      const endpointAt = (back: number): AnyEndpoint => {
        const pod = pods.at(-back);
        if (pod === undefined || ++references > mostReferences * pods.length) {
          throw wrongParts(parts);
        }
        return endpointOf(rest, pod, zoneOf(pod));
      };
      const joined = lists.map((added, index) =>
        joinList(parts[index] as unknown, added, endpointAt),
      );
      const whole = withLists(rest, joined);
      if (!isReadyFirst(whole)) throw wrongParts(parts);
      return whole;
    },
  };
}

const wrongParts = (parts: unknown): WrongType =>
  new WrongType('pods', 'parts of the pods before', parts);

function splitList(
  list: readonly AnyEndpoint[],
  placeOf: (endpoint: AnyEndpoint) => number,
  length: number,
) {
  const parts: Part[] = [];
  const added: AnyEndpoint[] = [];
  let next = -1;
  for (const item of list) {
    const place = placeOf(item);
    const last = parts.at(-1);
    if (place < 0) {
      added.push(item);
      if (typeof last === 'number') parts[parts.length - 1] = last + 1;
      else parts.push(1);
    } else if (place === next && Array.isArray(last)) last[1]++;
    else parts.push([length - place, 1]);
    next = place + 1;
  }
  return { parts, added };
}

function joinList(
  parts: unknown,
  added: readonly AnyEndpoint[],
  endpointAt: (back: number) => AnyEndpoint,
): AnyEndpoint[] {
  if (!Array.isArray(parts)) throw wrongParts(parts);
  const joined: AnyEndpoint[] = [];
  let next = 0;
  for (const part of parts as unknown[]) {
    const [back, count] = Array.isArray(part) ? (part as unknown[]) : [null, part];
    if (!isCount(count)) throw wrongParts(parts);
    if (back === null) {
      const items = added.slice(next, next + count);
      if (items.length < count) throw wrongParts(parts);
      for (const item of items) joined.push(item);
      next += count;
      continue;
    }
    if (!isCount(back) || count > back) throw wrongParts(parts);
    for (let index = 0; index < count; index++) joined.push(endpointAt(back - index));
  }
  if (next !== added.length) throw wrongParts(parts);
  return joined;
}

const isCount = (value: unknown): value is number => Number.isInteger(value) && Number(value) > 0;

/** The endpoint that a controller writes for a pod, without hints. */
const endpointOf = (
  output: AnyOutput,
  pod: Pod,
  zone: string | null,
  ports = noPorts,
): AnyEndpoint =>
  'subsets' in output ? addressOf(output.name, pod, ports) : sliced(output, pod, zone);

const addressOf = (service: string, pod: Pod, ports: Ports): EndpointAddress => ({
  ip: pod.ips[0] ?? '',
  ready: isReady(pod),
  ports,
  node: pod.node || null,
  hostname: hostnameOf(service, pod),
  target: pod.ref,
});

type Ports = EndpointAddress['ports'];

/** Addresses of a line have the ports of its subset. */
const noPorts: Ports = [];

const isReady = ({ ready, deleting }: Pod): boolean => ready && !deleting;

const hostnameOf = (service: string, { hostname, subdomain }: Pod): string =>
  subdomain === service ? hostname : '';

function sliced(slice: EndpointSlice, pod: Pod, zone: string | null): Endpoint {
  return {
    addresses: addressesOf(slice, pod),
    ready: isReady(pod),
    serving: pod.ready,
    terminating: pod.deleting,
    hostname: hostnameOf(slice.labels[label.serviceName] ?? '', pod) || null,
    node: pod.node || null,
    zone,
    target: pod.ref,
    forZones: null,
    forNodes: null,
  };
}

function addressesOf({ addressType }: EndpointSlice, { ips }: Pod): readonly string[] {
  const isOther = (ip: string): boolean => familyOf(ip) !== addressType;
  // The common case shares the list of the pod.
  return ips.some(isOther) ? ips.filter((ip) => !isOther(ip)) : ips;
}

function isEqual(a: AnyEndpoint, b: AnyEndpoint): boolean {
  if ('serving' in a) return 'serving' in b && equalEndpoints(a, b);
  return !('serving' in b) && a.ip === b.ip && equalAddresses(a, b);
}
