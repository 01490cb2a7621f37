// Endpoints that repeat what their pod has, as nearly all do. A checkpoint writes the pods of a
// Service once, and the lines of its Endpoints and EndpointSlices after them refer to these pods:
//
//   {"kind":"object",…,"object":{…,"endpoints":[{…}]},"pods":{"of":57,"parts":[[[15,14],1]]}}
//
// `of` is the number of pods that the lines before have of this namespace. `[15,14]` is 14 of them
// in the order of their lines, from the 15th before the last on. `1` is the next endpoint of
// `object`. An EndpointSlice has one list of parts, and Endpoints have one for each subset.
//
// Endpoints with hints are written whole, as are those of pods that are published as ready.

import { equalAddresses, equalEndpoints } from '../../model/equality.ts';
import { familyOf } from '../../model/ip.ts';
import type {
  AnyObject,
  EndpointAddress,
  EndpointSlice,
  Node,
  Pod,
  Resource,
} from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { isFields, WrongType } from '../decode/json-fields.ts';
import {
  type AnyEndpoint,
  type AnyOutput,
  isReadyFirst,
  listsOf,
  rangeOf,
  withLists,
} from './parts.ts';

/** Endpoints of pods, or as many endpoints of the object. */
type Part = [back: number, count: number] | number;

/** In a line: the number of pods before it, and the parts of each list of the output. */
interface PodParts {
  readonly of: number;
  readonly parts: readonly (readonly Part[])[];
}

/**
 * The most references for each pod so far: without a limit, short lines that refer to all pods
 * would fill the memory.
 */
const mostReferences = 32;

/** The pods of one namespace in the order of their lines, and the zones of all Nodes. */
interface Lines {
  pods: Pod[];
  references: number;
  readonly zones: Map<string, string | null>;
}

const newLines = (): Lines => ({ pods: [], references: 0, zones: new Map() });

/** Takes an object in the order of the lines. Returns whether its namespace begins. */
function addLine(lines: Lines, resource: Resource, object: AnyObject): boolean {
  if (resource === 'nodes') lines.zones.set(object.name, (object as Node).zone || null);
  if (resource !== 'pods') return false;
  const isOther = lines.pods[0]?.namespace !== object.namespace;
  if (isOther) Object.assign(lines, { pods: [], references: 0 });
  lines.pods.push(object as Pod);
  return isOther;
}

export type PodReferences = ReturnType<typeof createPodReferences>;

/** Refers to the pods of a checkpoint while its lines are written. */
export function createPodReferences() {
  const lines = newLines();
  /** By the names of the pods. */
  const places = new Map<string, number>();
  /** The number of the pod whose endpoint this is; -1 without one. */
  const placeOf = (output: AnyOutput, endpoint: AnyEndpoint): number => {
    const place = places.get(endpoint.target?.name ?? '') ?? -1;
    const pod = lines.pods[place];
    if (pod === undefined || lines.references >= mostReferences * lines.pods.length) return -1;
    const ports = 'ports' in endpoint ? endpoint.ports : [];
    const expected = endpointOf(lines, output, pod, ports);
    if (expected === null || !isEqual(endpoint, expected)) return -1;
    lines.references++;
    return place;
  };
  return {
    /** Takes an object in the order of the lines. */
    add(resource: Resource, object: AnyObject): void {
      if (addLine(lines, resource, object)) places.clear();
      if (resource === 'pods') places.set(object.name, lines.pods.length - 1);
    },
    /** The output with only the endpoints that refer to no pod, and the references. */
    split(output: AnyOutput): { readonly rest: AnyOutput; readonly pods: PodParts } {
      const of = lines.pods.length;
      const lists = listsOf(output).map((list) => splitList(list, (it) => placeOf(output, it), of));
      const added = lists.map((it) => it.added);
      return { rest: withLists(output, added), pods: { of, parts: lists.map((it) => it.parts) } };
    },
  };
}

/** Follows the references of the lines of a checkpoint. */
export function createReferredPods() {
  const lines = newLines();
  return {
    /** Takes an object in the order of the lines. */
    add: (resource: Resource, object: AnyObject) => void addLine(lines, resource, object),
    /** Forgets all pods: the list of a recording is complete. */
    clear: () => void Object.assign(lines, { pods: [], references: 0 }),
    /**
     * The whole output, of one without the endpoints of pods. Throws WrongType for references that
     * a checkpoint does not have, also if the line of a pod or of a Node before was lost.
     */
    join(rest: AnyOutput, references: unknown): AnyOutput {
      const { of, parts } = isFields(references) ? references : {};
      const lists = listsOf(rest);
      if (of !== lines.pods.length) throw wrongParts(references);
      if (!Array.isArray(parts) || parts.length !== lists.length) throw wrongParts(references);
      const joined = lists.map((added, index) =>
        joinList(parts[index] as unknown, added, (back, count) => {
          const start = typeof back === 'number' ? lines.pods.length - back : null;
          const pods = rangeOf(lines.pods, start, count);
          lines.references += pods?.length ?? 0;
          if (lines.references > mostReferences * lines.pods.length) return null;
          const ports = 'subsets' in rest ? (rest.subsets[index]?.ports ?? []) : [];
          return pods?.map((pod) => endpointOf(lines, rest, pod, ports)) ?? null;
        }),
      );
      const whole = withLists(rest, joined);
      if (!isReadyFirst(whole)) throw wrongParts(references);
      return whole;
    },
  };
}

const wrongParts = (references: unknown): WrongType =>
  new WrongType('pods', 'references to the pods before', references);

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

/** `endpointsOf` has the endpoints of a range of pods; `null` for one that there is not. */
function joinList(
  parts: unknown,
  added: readonly AnyEndpoint[],
  endpointsOf: (back: unknown, count: unknown) => readonly (AnyEndpoint | null)[] | null,
): AnyEndpoint[] {
  if (!Array.isArray(parts)) throw wrongParts(parts);
  const joined: AnyEndpoint[] = [];
  let next = 0;
  for (const part of parts as unknown[]) {
    const [back, count, ...others] = Array.isArray(part) ? (part as unknown[]) : [];
    const items = Array.isArray(part) ? endpointsOf(back, count) : rangeOf(added, next, part);
    if (items === null || others.length > 0) throw wrongParts(parts);
    for (const item of items) {
      if (item === null) throw wrongParts(parts);
      joined.push(item);
    }
    if (!Array.isArray(part)) next += items.length;
  }
  if (next !== added.length) throw wrongParts(parts);
  return joined;
}

/**
 * The endpoint that a controller writes for a pod, without hints. `null` for a slice if no line
 * before has the Node of the pod: its zone is not known.
 */
function endpointOf(
  { zones }: Lines,
  output: AnyOutput,
  pod: Pod,
  ports: EndpointAddress['ports'],
): AnyEndpoint | null {
  const node = pod.node || null;
  const ready = pod.ready && !pod.deleting;
  const isIn = (service: string | undefined): boolean => pod.subdomain === service;
  if ('subsets' in output) {
    const hostname = isIn(output.name) ? pod.hostname : '';
    return { ip: pod.ips[0] ?? '', ready, ports, node, hostname, target: pod.ref };
  }
  const zone = node === null ? null : zones.get(node);
  if (zone === undefined) return null;
  return {
    addresses: addressesOf(output, pod),
    ready,
    serving: pod.ready,
    terminating: pod.deleting,
    hostname: (isIn(output.labels[label.serviceName]) && pod.hostname) || null,
    node,
    zone,
    target: pod.ref,
    forZones: null,
    forNodes: null,
  };
}

function addressesOf({ addressType }: EndpointSlice, { ips }: Pod): readonly string[] {
  const isOther = (ip: string): boolean => familyOf(ip) !== addressType;
  // Nearly always all are of this family: the list is shared with the pod.
  return ips.some(isOther) ? ips.filter((ip) => !isOther(ip)) : ips;
}

function isEqual(a: AnyEndpoint, b: AnyEndpoint): boolean {
  if ('serving' in a) return 'serving' in b && equalEndpoints(a, b);
  return !('serving' in b) && a.ip === b.ip && equalAddresses(a, b);
}
