// The endpoints of one Service by condition, as kube-proxy reads the three conditions
// (k8s.io/kubernetes@v1.36.3 pkg/proxy/endpointslicecache.go addEndpoints): what is not said is
// ready and serving, and not terminating. Every endpoint is counted in one place: what is ready
// gets traffic, what still serves while it terminates gets it where nothing is ready (KEP-1669),
// the others get none.
//
// Left out: whether the conditions are true of the pods, which audit/ judges, and duplicates, which
// count as often as they are listed (duplicates.ts).

import type { EndpointSlice } from '../../model/objects.ts';

export const endpointConditions = [
  'ready',
  'terminating-serving',
  'terminating',
  'not-ready',
] as const;

export type EndpointCondition = (typeof endpointConditions)[number];

/** Endpoints by condition, and how many of the ready ones carry topology hints. */
export type ConditionCounts = Record<EndpointCondition | 'hinted', number>;

export function noConditionCounts(): ConditionCounts {
  return { ready: 0, 'terminating-serving': 0, terminating: 0, 'not-ready': 0, hinted: 0 };
}

/** Counts what some slices list. */
export function countConditions(slices: Iterable<EndpointSlice>): ConditionCounts {
  const counts = noConditionCounts();
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

/** Adds the counts of one Service, or takes away what was added. */
export function addConditionCounts(sum: ConditionCounts, more: ConditionCounts, by: 1 | -1): void {
  for (const condition of endpointConditions) sum[condition] += by * more[condition];
  sum.hinted += by * more.hinted;
}
