// Measures how well EndpointSlices are filled: the slices that exist, and the fewest that suffice.
//
// Follows metrics/cache.go (numDesiredSlices, totals) of k8s.io/endpointslice@v0.36.3: endpoints
// with equal ports share slices of at most `max` endpoints, and a Service without endpoints has one
// empty slice, the placeholder. Unlike upstream, it counts duplicate endpoints, and both families
// of a dual-stack Service. A surplus is legal: the controller never moves an endpoint to save a
// slice.

import { addCounts } from '../../model/counts.ts';
import type { EndpointSlice, Key } from '../../model/objects.ts';

export interface Fill {
  readonly endpoints: number;
  readonly slices: number;
  /** The fewest slices that could list these endpoints. */
  readonly minimum: number;
}

/** Groups the slices of one Service and controller by address type and ports. */
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

export function fillOf(slices: readonly EndpointSlice[], max: number): Fill {
  const sum = { endpoints: 0, slices: 0, minimum: 0 };
  for (const { endpoints, slices: count, minimum } of fillGroups(slices, max)) {
    addCounts(sum, { endpoints, slices: count, minimum }, 1);
  }
  return sum;
}

/** At most `count` Services with the largest surplus. */
export const mostSurplus = (
  fills: Iterable<readonly [Key, Fill]>,
  count: number,
): (readonly [Key, Fill])[] =>
  [...fills]
    .filter(([, fill]) => surplusOf(fill) > 0)
    .sort(([a, fillA], [b, fillB]) => surplusOf(fillB) - surplusOf(fillA) || (a < b ? -1 : 1))
    .slice(0, count);
