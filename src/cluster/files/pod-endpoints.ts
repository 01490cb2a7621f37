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
  joinLists,
  listsOf,
  rangeOf,
  splitList,
  withLists,
} from './parts.ts';

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
  /** The number of the pod whose endpoint this is; `null` without one. */
  const placeOf = (output: AnyOutput, endpoint: AnyEndpoint): number | null => {
    const place = places.get(endpoint.target?.name ?? '') ?? -1;
    const pod = lines.pods[place];
    if (pod === undefined || lines.references >= mostReferences * lines.pods.length) return null;
    const ports = 'ports' in endpoint ? endpoint.ports : [];
    const expected = endpointOf(lines, output, pod, ports);
    if (expected === null || !isEqual(endpoint, expected)) return null;
    lines.references++;
    return place;
  };
  return {
    /** Takes an object in the order of the lines. */
    add(resource: Resource, object: AnyObject): void {
      if (addLine(lines, resource, object)) places.clear();
      if (resource === 'pods') places.set(object.name, lines.pods.length - 1);
    },
    /**
     * The output with only the endpoints that refer to no pod, and for its line the number of pods
     * before it and the parts of each list.
     */
    split(output: AnyOutput) {
      const of = lines.pods.length;
      const lists = listsOf(output).map((list) => splitList(list, (it) => placeOf(output, it)));
      const rest = withLists(
        output,
        lists.map(({ added }) => added),
      );
      const parts = lists.map((list) =>
        list.parts.map((part) => (Array.isArray(part) ? [of - part[0], part[1]] : part)),
      );
      return { rest, pods: { of, parts } };
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
      const wrong = (value: unknown = references): WrongType =>
        new WrongType('pods', 'references to the pods before', value);
      if (of !== lines.pods.length) throw wrong();
      return joinLists(rest, parts, wrong, (part, index) => {
        const [back, count, ...others] = Array.isArray(part) ? (part as unknown[]) : [];
        const start = typeof back === 'number' ? lines.pods.length - back : null;
        const pods = others.length > 0 ? null : rangeOf(lines.pods, start, count);
        lines.references += pods?.length ?? 0;
        if (pods === null || lines.references > mostReferences * lines.pods.length) return null;
        const ports = 'subsets' in rest ? (rest.subsets[index]?.ports ?? []) : [];
        const endpoints = pods.map((pod) => endpointOf(lines, rest, pod, ports));
        return endpoints.every((it) => it !== null) ? endpoints : null;
      });
    },
  };
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
