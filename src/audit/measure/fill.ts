// How well EndpointSlices are filled: how many slices stand, and how few would do.
//
// Follows what the endpointslice controller counts of itself, metrics/cache.go (numDesiredSlices,
// totals) of k8s.io/endpointslice@v0.36.3: endpoints with equal ports share slices, each of at most
// `max` endpoints, and where there are none at all one empty slice, the placeholder, stands.
// Upstream keeps these numbers per Service and port map, but shows only their sums over the
// cluster.
//
// Two deviations, both on purpose. Upstream counts endpoints as it wants them, this counts them as
// the slices list them, duplicates too: it measures what stands, not what should. And upstream's
// sums of a dual-stack Service are those of the address type that it synced last; here both count,
// and each has its own placeholder.
//
// Left out: whether a surplus matters. The controller never moves an endpoint to save a slice, so a
// surplus is what ordinary churn leaves behind.

import type { AddressType, EndpointSlice, Key, Port } from '../../model/objects.ts';

interface Fill {
  /** Endpoints listed. */
  readonly endpoints: number;
  /** Slices that stand. */
  readonly slices: number;
  /** The fewest slices that could list these endpoints. */
  readonly minimum: number;
}

/** The slices of one Service that share address type and ports. */
export interface PortMapFill extends Fill {
  readonly addressType: AddressType;
  readonly ports: readonly Port[];
  /** As `fillRatio` has it. */
  readonly ratio: number | null;
}

/**
 * The groups of one Service's slices that share address type and ports. `slices` are those of one
 * controller; `max` is its --max-endpoints-per-slice. A group without endpoints needs no slice,
 * unless it is the only one of its address type: then it is the placeholder.
 */
export function fillGroups(slices: Iterable<EndpointSlice>, max: number): PortMapFill[] {
  const groups = new Map<string, { of: EndpointSlice; endpoints: number; slices: number }>();
  const used = new Set<AddressType>();
  for (const slice of slices) {
    const key = `${slice.addressType} ${slice.portMap}`;
    const known = groups.get(key);
    if (known === undefined) {
      groups.set(key, { of: slice, endpoints: slice.endpoints.length, slices: 1 });
    } else {
      known.endpoints += slice.endpoints.length;
      known.slices++;
    }
    if (slice.endpoints.length > 0) used.add(slice.addressType);
  }
  return [...groups.values()].map(({ of: { addressType, ports }, endpoints, slices }) => {
    const isPlaceholder = endpoints === 0 && !used.has(addressType);
    // Of several groups without endpoints, the first is as good a placeholder as any.
    if (isPlaceholder) used.add(addressType);
    const minimum = isPlaceholder ? 1 : Math.ceil(endpoints / max);
    const fill = { endpoints, slices, minimum };
    return { addressType, ports, ...fill, ratio: fillRatio(fill, max) };
  });
}

/** One Service as a whole: the sum of its groups. */
function fillOf(slices: Iterable<EndpointSlice>, max: number): Fill {
  const sum = { endpoints: 0, slices: 0, minimum: 0 };
  for (const group of fillGroups(slices, max)) add(sum, group, 1);
  return sum;
}

/** Slices beyond the fewest that would do. */
export function surplusOf(fill: Fill): number {
  return fill.slices - fill.minimum;
}

/** The share of places that are taken, 0 to 1; more where slices are oversized; null: no slices. */
export function fillRatio(fill: Fill, max: number): number | null {
  return fill.slices === 0 ? null : fill.endpoints / (fill.slices * max);
}

/** The sum over all Services, with what each adds to it. */
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

function add(sum: { -readonly [K in keyof Fill]: number }, fill: Fill, by: 1 | -1): void {
  sum.endpoints += by * fill.endpoints;
  sum.slices += by * fill.slices;
  sum.minimum += by * fill.minimum;
}

/** Puts what a Service adds in place of what it added before; no slices: it adds nothing. */
export function setFill(totals: FillTotals, key: Key, slices: Iterable<EndpointSlice>): void {
  const before = totals.byService.get(key);
  if (before !== undefined) add(totals, before, -1);
  const fill = fillOf(slices, totals.max);
  if (fill.slices === 0) totals.byService.delete(key);
  else totals.byService.set(key, fill);
  add(totals, fill, 1);
}

/** The Services with the largest surplus, at most `count`, those without any left out. */
export function mostSurplus(totals: FillTotals, count: number): [Key, Fill][] {
  return [...totals.byService]
    .filter(([, fill]) => surplusOf(fill) > 0)
    .sort(([a, one], [b, other]) => surplusOf(other) - surplusOf(one) || (a < b ? -1 : 1))
    .slice(0, count);
}
