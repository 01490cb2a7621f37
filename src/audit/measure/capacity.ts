// Objects of one Service that reach the limits of their kind: Endpoints that the controller cut
// down to its capacity and says so, Endpoints with more addresses than that, and slices with more
// endpoints than the controller puts into one.
//
// The annotation endpoints.kubernetes.io/over-capacity says `truncated` since Kubernetes 1.22;
// before, `warning` said that nothing was cut. Left out: whether an object should have been cut,
// which audit/ judges, and bytes (size.ts).

import type { Endpoints, EndpointSlice, OutputResource } from '../../model/objects.ts';
import { annotation } from '../../model/objects.ts';

/** How many objects reach a limit. */
export interface CapacityCounts {
  /** Endpoints that say that they do not list everything. */
  truncated: number;
  /** Objects that list more than one of their kind should. */
  readonly over: Record<OutputResource, number>;
}

/** The most addresses of Endpoints, and endpoints of a slice. */
export type CapacityLimits = Readonly<Record<OutputResource, number>>;

export function noCapacity(): CapacityCounts {
  return { truncated: 0, over: { endpoints: 0, endpointslices: 0 } };
}

/** Looks at the Endpoints and slices of one Service. */
export function capacityOf(
  endpoints: Endpoints | null,
  slices: readonly EndpointSlice[],
  limits: CapacityLimits,
): CapacityCounts {
  const { subsets = [], annotations = {} } = endpoints ?? {};
  const listed = subsets.reduce((sum, { addresses }) => sum + addresses.length, 0);
  const isLarge = (slice: EndpointSlice): boolean => slice.endpoints.length > limits.endpointslices;
  return {
    truncated: Number(annotations[annotation.overCapacity] === 'truncated'),
    over: {
      endpoints: Number(listed > limits.endpoints),
      endpointslices: slices.filter(isLarge).length,
    },
  };
}

/** Adds the counts of one Service, or takes away what was added. */
export function addCapacity(sum: CapacityCounts, more: CapacityCounts, by: 1 | -1): void {
  sum.truncated += by * more.truncated;
  sum.over.endpoints += by * more.over.endpoints;
  sum.over.endpointslices += by * more.over.endpointslices;
}
