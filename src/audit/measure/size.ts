// How large Endpoints and EndpointSlices are, and what their changes cost in watch traffic.
//
// Every change sends the whole object to everyone who watches it, and kube-proxy watches on every
// Node. That is the quadratic term slices were invented against (KEP-752: one endpoint of 20,000
// changes on 5,000 Nodes: 10 GB by an Endpoints object, 50 MB by a slice of 100). So an update
// costs its bytes once, and times the number of Nodes if every Node watches. kube-proxy leaves out
// headless Services and those of other proxies (k8s.io/kubernetes@v1.36.3
// cmd/kube-proxy/app/server.go), and so does the fan-out. For Endpoints, which kube-proxy no longer
// reads, the fan-out is what slices save: the figure to hold theirs against.
//
// Bytes of a live object are those of its protobuf message, which etcd stores and watchers receive.
// An object from a dump or recording has those of its JSON without managedFields, which is longer.
// Left out: clients other than one kube-proxy per Node, lists, and bookmarks.

import type { Change, Endpoints, EndpointSlice, OutputResource } from '../../model/objects.ts';
import { isOutput, label } from '../../model/objects.ts';
import type { Histogram } from './histogram.ts';
import { createHistogram, observe } from './lag.ts';

/** What the API server accepts in one request: etcd's default --max-request-bytes, 1.5 MiB. */
export const objectBytesLimit = 1.5 * 1024 * 1024;

/** Upper bounds in bytes; the last two are 80 % of the limit and the limit. */
export const sizeBounds: readonly number[] = [
  1024,
  10 * 1024,
  100 * 1024,
  objectBytesLimit / 3,
  Math.floor(0.8 * objectBytesLimit),
  objectBytesLimit,
];

/** Sizes of one resource; all counts of bytes are bytes. */
export interface ResourceSizes {
  /** How many objects stand, by their bytes. */
  readonly objects: Map<number, number>;
  /** Objects that stand of which the door could not tell the bytes. */
  unmeasured: number;
  /** Versions that arrived, those of the first list too, by their bytes. */
  readonly versions: Histogram;
  /** Changes, and the bytes that each sends to one watcher. */
  updates: number;
  updateBytes: number;
  /** The same times the Nodes there were at each change. */
  fanoutBytes: number;
}

export type Sizes = Readonly<Record<OutputResource, ResourceSizes>>;

const none = (): ResourceSizes => ({
  objects: new Map(),
  unmeasured: 0,
  versions: createHistogram(sizeBounds),
  updates: 0,
  updateBytes: 0,
  fanoutBytes: 0,
});

export function createSizes(): Sizes {
  return { endpoints: none(), endpointslices: none() };
}

type Sized = Endpoints | EndpointSlice;

/** The sizes that a change is about, with its versions; null for the other resources. */
function sized(
  sizes: Sizes,
  change: Change,
): { of: ResourceSizes; before: Sized | null; after: Sized | null } | null {
  const { resource } = change;
  if (!isOutput(resource)) return null;
  const { before, after } = change as Change<OutputResource>;
  return { of: sizes[resource], before, after };
}

function count(of: ResourceSizes, { bytes }: Sized, by: 1 | -1): void {
  if (bytes === null) {
    of.unmeasured += by;
    return;
  }
  const standing = (of.objects.get(bytes) ?? 0) + by;
  if (standing === 0) of.objects.delete(bytes);
  else of.objects.set(bytes, standing);
}

/** Keeps count of the objects that stand: for every change, those of the first list too. */
export function trackSize(sizes: Sizes, change: Change): void {
  const found = sized(sizes, change);
  if (found === null) return;
  if (found.before !== null) count(found.of, found.before, -1);
  if (found.after === null) return;
  count(found.of, found.after, 1);
  if (found.after.bytes !== null) observe(found.of.versions, found.after.bytes);
}

const serviceProxyName = 'service.kubernetes.io/service-proxy-name';

/**
 * Counts what a change sends to watchers; not for the first list, which is no change. A deletion
 * sends the last version whole. `nodes` is the number of Nodes, 0 where they are not known.
 */
export function countUpdate(sizes: Sizes, change: Change, nodes: number): void {
  const found = sized(sizes, change);
  const sent = found?.after ?? found?.before;
  if (found === null || !sent) return;
  const bytes = sent.bytes ?? 0;
  found.of.updates++;
  found.of.updateBytes += bytes;
  const isIgnored = label.headless in sent.labels || serviceProxyName in sent.labels;
  if (!isIgnored) found.of.fanoutBytes += bytes * nodes;
}

/** How many objects stand, measured or not. */
export function objectCount(of: ResourceSizes): number {
  let objects = of.unmeasured;
  for (const standing of of.objects.values()) objects += standing;
  return objects;
}

/** The bytes of the largest object that stands; 0 where none does. */
export function largestBytes(of: ResourceSizes): number {
  let largest = 0;
  for (const bytes of of.objects.keys()) largest = Math.max(largest, bytes);
  return largest;
}

/** How many of the standing objects have at most so many bytes, for each of sizeBounds. */
export function countsByBound(of: ResourceSizes): number[] {
  const counts = sizeBounds.map(() => 0);
  for (const [bytes, standing] of of.objects) {
    for (const [index, bound] of sizeBounds.entries()) {
      if (bytes <= bound) counts[index] = (counts[index] ?? 0) + standing;
    }
  }
  return counts;
}
