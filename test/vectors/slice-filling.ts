// Shadows how the endpointslice controller fills slices: reconcileByPortMapping, getSliceToFill and
// the recycling in finalize, reconciler.go and utils.go of k8s.io/endpointslice@v0.36.3.
//
// One sync keeps every endpoint that is still wanted where it is, deletes emptied slices, fills the
// slices it had to change anyway, fullest first, then puts what is left into the one unchanged
// slice that comes closest to full, and only then makes new slices, which take over the names of
// deleted ones. So from the slices before and the endpoints wanted now, the sizes after are
// determined up to ties, and a state that differs cannot come from one sync.
//
// Left out: which endpoint fills which place (upstream takes any), hints, and syncs of more than
// one step. Whether one sync can explain a change at all is for the caller to know.

import type { EndpointSlice, PortMapKey, Service } from '../../src/model/objects.ts';
import { equalLabels } from '../../src/model/selector.ts';
import { expectedSliceLabels, isOwnedBy } from '../../src/shadow/endpointslice.ts';
import { endpointIdentity } from '../../src/shadow/mirroring.ts';
import type { Release } from '../../src/shadow/release.ts';

/** Endpoints by identity, per port map, of one address type. */
export type WantedEndpoints = ReadonlyMap<PortMapKey, ReadonlySet<string>>;

/** The identities of a slice's endpoints, in the order of the slice. */
export function identities(slice: EndpointSlice): string[] {
  return slice.endpoints.map((endpoint) =>
    endpointIdentity([...endpoint.addresses].sort().join(','), endpoint.hostname, endpoint.target),
  );
}

interface Kept {
  readonly slice: EndpointSlice;
  readonly endpoints: readonly string[];
  readonly changed: boolean;
}

interface Plan {
  /** Slices that stay, with the size they must have; equal kept sizes may swap their sizes. */
  readonly stay: readonly { slice: EndpointSlice; kept: readonly string[]; changed: boolean }[];
  readonly sizes: readonly { kept: number; changed: boolean; size: number }[];
  readonly created: readonly number[];
  readonly deleted: readonly EndpointSlice[];
}

/** Step 1: what each slice keeps; `left` loses what has found its place. */
function keep(service: Service, slices: readonly EndpointSlice[], left: Set<string>): Kept[] {
  const labels = expectedSliceLabels(service);
  return slices.map((slice) => {
    const endpoints: string[] = [];
    let lost = false;
    for (const identity of identities(slice)) {
      if (left.delete(identity)) endpoints.push(identity);
      else lost = true;
    }
    return { slice, endpoints, changed: lost || !equalLabels(slice.labels, labels) };
  });
}

/** Steps 2 and 3 for one port map. */
function plan(kept: readonly Kept[], leftCount: number, wasUpdated: Updated, max: number): Plan {
  const deleted = kept.filter(({ slice, endpoints }) => isEmptied(slice, endpoints));
  const stay = kept
    .filter((one) => !deleted.includes(one))
    .map((one) => ({
      slice: one.slice,
      kept: one.endpoints,
      changed: one.changed || wasUpdated(one.slice, one.endpoints),
    }));
  let left = leftCount;
  const sizes = stay.map(({ kept, changed }) => ({
    kept: kept.length,
    changed,
    size: kept.length,
  }));
  for (const place of sizes.filter(({ changed }) => changed).sort((a, b) => b.kept - a.kept)) {
    const added = Math.max(0, Math.min(left, max - place.size));
    place.size += added;
    left -= added;
  }
  const created: number[] = [];
  while (left > 0) {
    const fitting = sizes
      .filter(({ changed, size }) => !changed && size + left <= max)
      .sort((a, b) => b.size - a.size)[0];
    if (left < max && fitting !== undefined) {
      fitting.size += left;
      left = 0;
    } else {
      created.push(Math.min(left, max));
      left -= Math.min(left, max);
    }
  }
  return { stay, sizes, created, deleted: deleted.map(({ slice }) => slice) };
}

function isEmptied(slice: EndpointSlice, endpoints: readonly string[]): boolean {
  return slice.endpoints.length > 0 && endpoints.length === 0;
}

/** Whether a slice that lost nothing was rewritten in place (conditions, node, zone, targetRef). */
export type Updated = (slice: EndpointSlice, kept: readonly string[]) => boolean;

const bySize = (a: number, b: number): number => a - b;

function sameSizes(a: readonly number[], b: readonly number[]): boolean {
  const left = [...a].sort(bySize);
  const right = [...b].sort(bySize);
  return left.length === right.length && left.every((size, index) => size === right[index]);
}

/** Slices that stay hold what they kept, and slices of one kept size have the planned sizes. */
function staysAsPlanned(made: Plan, after: ReadonlyMap<string, EndpointSlice>): boolean {
  const sizes = new Map<string, { planned: number[]; actual: number[] }>();
  for (const [index, { slice, kept, changed }] of made.stay.entries()) {
    const now = after.get(slice.uid);
    if (now?.portMap !== slice.portMap) return false;
    const held = new Set(identities(now));
    if (kept.some((identity) => !held.has(identity))) return false;
    const group = `${String(kept.length)} ${String(changed)}`;
    const both = sizes.get(group) ?? { planned: [], actual: [] };
    both.planned.push(made.sizes[index]?.size ?? 0);
    both.actual.push(held.size);
    sizes.set(group, both);
  }
  return [...sizes.values()].every(({ planned, actual }) => sameSizes(planned, actual));
}

/**
 * Whether one sync can lead from the slices `before` to the slices `after`, both of one Service and
 * address type. `wanted` are the endpoints expected now; `after` is assumed to hold exactly those.
 */
export function isReachable(
  service: Service,
  before: readonly EndpointSlice[],
  after: readonly EndpointSlice[],
  wanted: WantedEndpoints,
  wasUpdated: Updated,
  { max, release }: { max: number; release: Release },
): boolean {
  const afterByUid = new Map(after.map((slice) => [slice.uid, slice]));
  const all = before.filter((slice) => isOwnedBy(slice, service));
  const stays = ({ portMap }: EndpointSlice): boolean =>
    wanted.has(portMap) && !(release.rebuildsPortless && portMap === '');
  const owned = all.filter(stays);
  const deleted = all.filter((slice) => !stays(slice));
  const created: { portMap: PortMapKey; size: number }[] = [];
  const stayed = new Set<string>();
  for (const [portMap, endpoints] of wanted) {
    const left = new Set(endpoints);
    const kept = keep(
      service,
      owned.filter((slice) => slice.portMap === portMap),
      left,
    );
    const made = plan(kept, left.size, wasUpdated, max);
    if (!staysAsPlanned(made, afterByUid)) return false;
    for (const { slice } of made.stay) stayed.add(slice.uid);
    deleted.push(...made.deleted);
    created.push(...made.created.map((size) => ({ portMap, size })));
  }
  if (stayed.size === 0 && created.length === 0) created.push({ portMap: '', size: 0 });
  return fillsTheRest(afterByUid, stayed, created, deleted);
}

/** The slices that did not stay are the created ones, some of them under names of deleted ones. */
function fillsTheRest(
  after: ReadonlyMap<string, EndpointSlice>,
  stayed: ReadonlySet<string>,
  created: readonly { portMap: PortMapKey; size: number }[],
  deleted: readonly EndpointSlice[],
): boolean {
  const rest = [...after.values()].filter(({ uid }) => !stayed.has(uid));
  const key = (portMap: PortMapKey, size: number): string => `${String(size)} ${portMap}`;
  const planned = created.map(({ portMap, size }) => key(portMap, size)).sort();
  const actual = rest.map((slice) => key(slice.portMap, slice.endpoints.length)).sort();
  if (planned.length !== actual.length) return false;
  if (planned.some((one, index) => one !== actual[index])) return false;
  const recycled = rest.filter(({ uid }) => deleted.some((slice) => slice.uid === uid)).length;
  return recycled === Math.min(created.length, deleted.length);
}
