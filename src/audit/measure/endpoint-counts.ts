// Counts the endpoints of one Service: by condition, those listed more than once, the objects that
// reach the limits of their kind, and how well slices are filled.
//
// Conditions have the defaults of kube-proxy (k8s.io/kubernetes@v1.36.3
// pkg/proxy/endpointslicecache.go addEndpoints). It takes one of equal addresses under one port
// map, often by Go's map order, so nodes may differ where the conditions differ.
//
// The fill follows metrics/cache.go (numDesiredSlices, totals) of k8s.io/endpointslice@v0.36.3.
// Unlike upstream, it counts duplicate endpoints, and both families of a dual-stack Service.

import { addCounts, recordOf } from '../../model/collections.ts';
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

const conditionsText = ({ ready, serving, terminating }: Endpoint): string =>
  [ready ?? true, serving ?? true, terminating ?? false].join(' ');

/** Endpoints listed more than once, by whether their conditions agree; an address counts once. */
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

export type Fill = Readonly<ReturnType<typeof fillOf>>;

/** Groups the slices of one Service and controller by address type and port map. */
export function fillGroups(slices: readonly EndpointSlice[], max: number) {
  const groups = Map.groupBy(slices, ({ addressType, portMap }) => `${addressType} ${portMap}`);
  const filled = slices.filter(({ endpoints }) => endpoints.length > 0);
  const used = new Set(filled.map(({ addressType }) => addressType));
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    if (first === undefined) return [];
    const { addressType, ports } = first;
    const endpoints = group.reduce((sum, slice) => sum + slice.endpoints.length, 0);
    // The first group without endpoints is the placeholder, if its address type has no other.
    const isPlaceholder = endpoints === 0 && !used.has(addressType);
    if (isPlaceholder) used.add(addressType);
    const minimum = isPlaceholder ? 1 : Math.ceil(endpoints / max);
    const fill = { endpoints, slices: group.length, minimum };
    return [{ addressType, ports, ...fill, ratio: fillRatio(fill, max) }];
  });
}

export const surplusOf = (fill: Fill): number => fill.slices - fill.minimum;

/** The used share of the places, above 1 if slices are oversized; null without slices. */
export const fillRatio = (fill: Fill, max: number): number | null =>
  fill.slices === 0 ? null : fill.endpoints / (fill.slices * max);

/** `minimum` is the fewest slices that could list these endpoints. */
export function fillOf(slices: readonly EndpointSlice[], max: number) {
  const sum = { endpoints: 0, slices: 0, minimum: 0 };
  for (const { endpoints, slices: count, minimum } of fillGroups(slices, max)) {
    addCounts(sum, { endpoints, slices: count, minimum }, 1);
  }
  return sum;
}

/** At most `count` Services with the largest surplus. */
export const mostSurplus = (fills: Iterable<readonly [key: string, fill: Fill]>, count: number) =>
  [...fills]
    .filter(([, fill]) => surplusOf(fill) > 0)
    .sort(([a, fillA], [b, fillB]) => surplusOf(fillB) - surplusOf(fillA) || (a < b ? -1 : 1))
    .slice(0, count);
