// Counts the endpoints of one Service: by condition, those listed more than once, and the objects
// that reach the limits of their kind.
//
// Conditions have the defaults of kube-proxy (k8s.io/kubernetes@v1.36.3
// pkg/proxy/endpointslicecache.go addEndpoints). It takes one of equal addresses under one port
// map, often by Go's map order, so nodes may differ where the conditions differ.

import { recordOf } from '../../model/counts.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, Endpoints, EndpointSlice, OutputResource } from '../../model/objects.ts';
import { annotation } from '../../model/objects.ts';

export const endpointConditions = [
  'ready',
  'terminating-serving',
  'terminating',
  'not-ready',
] as const;

export type ConditionCounts = ReturnType<typeof countConditions>;

/** Counts every entry of some slices by condition, and the ready ones with topology hints. */
export function countConditions(slices: Iterable<EndpointSlice>) {
  const counts = { ...recordOf(endpointConditions, () => 0), hinted: 0 };
  for (const { endpoints } of slices) {
    for (const { ready, serving, terminating, forZones, forNodes } of endpoints) {
      if (ready ?? true) {
        counts.ready++;
        if (forZones !== null || forNodes !== null) counts.hinted++;
      } else if (terminating !== true) counts['not-ready']++;
      else if (serving ?? true) counts['terminating-serving']++;
      else counts.terminating++;
    }
  }
  return counts;
}

export type CapacityCounts = ReturnType<typeof capacityOf>;

/** Counts the Endpoints and slices of one Service; `limits`: the most entries of one object. */
export function capacityOf(
  endpoints: Endpoints | null,
  slices: readonly EndpointSlice[],
  limits: Readonly<Record<OutputResource, number>>,
) {
  const { subsets = [], annotations = {} } = endpoints ?? {};
  const listed = subsets.reduce((sum, { addresses }) => sum + addresses.length, 0);
  const large = slices.filter((slice) => slice.endpoints.length > limits.endpointslices);
  return {
    /** Endpoints with the annotation over-capacity: truncated (since Kubernetes 1.22). */
    truncated: Number(annotations[annotation.overCapacity] === 'truncated'),
    over: { endpoints: Number(listed > limits.endpoints), endpointslices: large.length },
  };
}

/** Endpoints that are listed more than once, by whether their conditions agree. */
export type DuplicateCounts = ReturnType<typeof countDuplicates>;

const conditionsText = ({ ready, serving, terminating }: Endpoint): string =>
  [ready ?? true, serving ?? true, terminating ?? false].join(' ');

/** Counts an address under a port map once, in however many slices it is. */
export function countDuplicates(slices: Iterable<EndpointSlice>) {
  const first = new Map<string, Endpoint>();
  const kinds = new Map<string, 'equal' | 'conflicting'>();
  for (const { endpoints, portMap } of slices) {
    for (const endpoint of endpoints) {
      for (const address of new Set(endpoint.addresses.map(canonicalIP))) {
        const key = `${address} ${portMap}`;
        const before = first.get(key);
        if (before === undefined) first.set(key, endpoint);
        else if (conditionsText(before) !== conditionsText(endpoint)) kinds.set(key, 'conflicting');
        else if (!kinds.has(key)) kinds.set(key, 'equal');
      }
    }
  }
  const counts = { equal: 0, conflicting: 0 };
  for (const kind of kinds.values()) counts[kind]++;
  return counts;
}
