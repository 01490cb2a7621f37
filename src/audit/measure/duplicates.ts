// Endpoints that the slices of one Service list more than once.
//
// The API allows it: an endpoint may move between slices and stand in both for a moment. kube-proxy
// takes an address once per port (k8s.io/kubernetes@v1.36.3 pkg/proxy/endpointslicecache.go
// addEndpoints): an entry that is terminating gives way to one that is not, otherwise the slice
// that Go's map happens to yield last has the say. So two equal entries are only bytes, but where
// entries differ in their conditions, nodes may differ in what they do.
//
// An endpoint is an address under a port map here, as it is for traffic; the pod behind it plays no
// role. Left out: how long a duplicate stands, and whether the slices belong together at all, which
// is for the caller to choose.

import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, EndpointSlice, Key } from '../../model/objects.ts';

/** How many endpoints are listed more than once, by whether the entries agree. */
interface Duplicates {
  readonly equal: number;
  readonly conflicting: number;
}

/** The conditions as kube-proxy reads them. */
function conditions({ ready, serving, terminating }: Endpoint): string {
  return `${String(ready ?? true)} ${String(serving ?? true)} ${String(terminating ?? false)}`;
}

/** An entry that repeats its own address is one entry. */
function distinct(addresses: readonly string[]): Iterable<string> {
  const canonical = addresses.map(canonicalIP);
  return canonical.length < 2 ? canonical : new Set(canonical);
}

/** Counts the duplicates of one Service; an endpoint in three slices counts once. */
function duplicatesOf(slices: Iterable<EndpointSlice>): Duplicates {
  const first = new Map<string, Endpoint>();
  const kinds = new Map<string, keyof Duplicates>();
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      for (const address of distinct(endpoint.addresses)) {
        const key = `${address} ${slice.portMap}`;
        const before = first.get(key);
        if (before === undefined) first.set(key, endpoint);
        else if (conditions(before) !== conditions(endpoint)) kinds.set(key, 'conflicting');
        else if (!kinds.has(key)) kinds.set(key, 'equal');
      }
    }
  }
  const counts = { equal: 0, conflicting: 0 };
  for (const kind of kinds.values()) counts[kind]++;
  return counts;
}

/** The sum over all Services, with what each adds to it; Services without any are absent. */
export interface DuplicateTotals {
  readonly byService: Map<Key, Duplicates>;
  equal: number;
  conflicting: number;
}

export function createDuplicateTotals(): DuplicateTotals {
  return { byService: new Map(), equal: 0, conflicting: 0 };
}

/** Puts what a Service adds in place of what it added before. */
export function setDuplicates(
  totals: DuplicateTotals,
  key: Key,
  slices: Iterable<EndpointSlice>,
): void {
  const before = totals.byService.get(key);
  totals.equal -= before?.equal ?? 0;
  totals.conflicting -= before?.conflicting ?? 0;
  const now = duplicatesOf(slices);
  if (now.equal + now.conflicting === 0) totals.byService.delete(key);
  else totals.byService.set(key, now);
  totals.equal += now.equal;
  totals.conflicting += now.conflicting;
}
