// Measures how well EndpointSlices are filled: the slices that exist, and the fewest that suffice.
//
// Follows metrics/cache.go (numDesiredSlices, totals) of k8s.io/endpointslice@v0.36.3: endpoints
// with equal ports share slices of at most `max` endpoints, and a Service without endpoints has one
// empty slice, the placeholder. It deviates in two ways. It counts endpoints as the slices list
// them, with duplicates. And it counts both families of a dual-stack Service; upstream counts the
// one that it synced last.
//
// A surplus is legal: the controller never moves an endpoint to save a slice.

import type { AddressType, EndpointSlice, Key, Port } from '../../model/objects.ts';

interface Fill {
  readonly endpoints: number;
  readonly slices: number;
  /** The fewest slices that could list these endpoints. */
  readonly minimum: number;
}

/** The slices of one Service with one address type and port map. */
export interface PortMapFill extends Fill {
  readonly addressType: AddressType;
  readonly ports: readonly Port[];
  /** As fillRatio returns it. */
  readonly ratio: number | null;
}

/** Groups the slices of one Service and controller by address type and ports. */
export function fillGroups(slices: Iterable<EndpointSlice>, max: number): PortMapFill[] {
  const groups = Map.groupBy(slices, ({ addressType, portMap }) => `${addressType} ${portMap}`);
  const counted = [...groups.values()].map((group) => ({
    group,
    endpoints: group.reduce((sum, slice) => sum + slice.endpoints.length, 0),
  }));
  const filled = counted.filter(({ endpoints }) => endpoints > 0);
  const used = new Set(filled.map(({ group }) => group[0]?.addressType));
  return counted.flatMap(({ group, endpoints }) => {
    const [first] = group;
    if (first === undefined) return [];
    const { addressType, ports } = first;
    // The first group without endpoints is the placeholder, if its address type has no other.
    const isPlaceholder = endpoints === 0 && !used.has(addressType);
    if (isPlaceholder) used.add(addressType);
    const minimum = isPlaceholder ? 1 : Math.ceil(endpoints / max);
    const fill = { endpoints, slices: group.length, minimum };
    return [{ addressType, ports, ...fill, ratio: fillRatio(fill, max) }];
  });
}

/** Slices beyond the minimum. */
export const surplusOf = (fill: Fill): number => fill.slices - fill.minimum;

/** The used share of the places, above 1 if slices are oversized; null without slices. */
export const fillRatio = (fill: Fill, max: number): number | null =>
  fill.slices === 0 ? null : fill.endpoints / (fill.slices * max);

/** The sum over all Services. */
export interface FillTotals {
  readonly max: number;
  readonly byService: Map<Key, Fill>;
  endpoints: number;
  slices: number;
  minimum: number;
}

export function createFillTotals(max: number): FillTotals {
  return { max, byService: new Map(), endpoints: 0, slices: 0, minimum: 0 };
}

type FillSum = { -readonly [K in keyof Fill]: number };

function add(sum: FillSum, fill: Fill, by: 1 | -1): void {
  sum.endpoints += by * fill.endpoints;
  sum.slices += by * fill.slices;
  sum.minimum += by * fill.minimum;
}

/** Replaces what one Service adds. */
export function setFill(totals: FillTotals, key: Key, slices: Iterable<EndpointSlice>): void {
  const before = totals.byService.get(key);
  if (before !== undefined) add(totals, before, -1);
  const fill = { endpoints: 0, slices: 0, minimum: 0 };
  for (const group of fillGroups(slices, totals.max)) add(fill, group, 1);
  if (fill.slices === 0) totals.byService.delete(key);
  else totals.byService.set(key, fill);
  add(totals, fill, 1);
}

/** The Services with the largest surplus, at most `count`; those without surplus are left out. */
export const mostSurplus = (totals: FillTotals, count: number): [Key, Fill][] =>
  [...totals.byService]
    .filter(([, fill]) => surplusOf(fill) > 0)
    .sort(([a, fillA], [b, fillB]) => surplusOf(fillB) - surplusOf(fillA) || (a < b ? -1 : 1))
    .slice(0, count);
