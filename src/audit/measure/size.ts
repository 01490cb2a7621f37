// Measures the size of Endpoints and EndpointSlices, and the watch traffic of their changes.
//
// Each change sends the whole object to every watcher, and a kube-proxy watches on every Node
// (KEP-752: one endpoint of 20,000 changes on 5,000 Nodes: 10 GB by an Endpoints object, 50 MB by a
// slice of 100). The fan-out is the bytes times the Nodes. It leaves out headless Services and
// those of other proxies, as kube-proxy does (k8s.io/kubernetes@v1.36.3
// cmd/kube-proxy/app/server.go). For Endpoints, which kube-proxy no longer reads, it is what slices
// save.
//
// The bytes of a live object are those of its protobuf message. An object of a dump or recording
// has those of its JSON without managedFields, which are more. Left out: other clients, lists, and
// bookmarks.

import { recordOf } from '../../model/counts.ts';
import type { Change, Endpoints, EndpointSlice, OutputResource } from '../../model/objects.ts';
import { isOutput, label, outputResources } from '../../model/objects.ts';
import { createHistogram, observe } from './histogram.ts';

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

/** Sizes of one resource, in bytes. */
export type ResourceSizes = ReturnType<typeof createResourceSizes>;

const createResourceSizes = () => ({
  /** The number of existing objects of each size. */
  objects: new Map<number, number>(),
  /** Existing objects of unknown size. */
  unmeasured: 0,
  /** Every version that arrived, also those of the first list. */
  versions: createHistogram(sizeBounds),
  /** Changes, and the bytes that they send to one watcher. */
  updates: 0,
  updateBytes: 0,
  /** The same times the number of Nodes at each change. */
  fanoutBytes: 0,
});

export type Sizes = Readonly<Record<OutputResource, ResourceSizes>>;

export const createSizes = (): Sizes => recordOf(outputResources, createResourceSizes);

const isOutputChange = (change: Change): change is Change<OutputResource> =>
  isOutput(change.resource);

function count(sizes: ResourceSizes, { bytes }: Endpoints | EndpointSlice, by: 1 | -1): void {
  if (bytes === null) {
    sizes.unmeasured += by;
    return;
  }
  const objects = (sizes.objects.get(bytes) ?? 0) + by;
  if (objects === 0) sizes.objects.delete(bytes);
  else sizes.objects.set(bytes, objects);
}

/** Counts the existing objects: for every change, also those of the first list. */
export function trackSize(sizes: Sizes, change: Change): void {
  if (!isOutputChange(change)) return;
  const { resource, before, after } = change;
  if (before !== null) count(sizes[resource], before, -1);
  if (after === null) return;
  count(sizes[resource], after, 1);
  if (after.bytes !== null) observe(sizes[resource].versions, after.bytes);
}

const serviceProxyName = 'service.kubernetes.io/service-proxy-name';

/**
 * Counts what a change after the first list sends to watchers. A deletion sends the last version.
 * `nodes` is the number of Nodes, 0 if it is unknown.
 */
export function countUpdate(sizes: Sizes, change: Change, nodes: number): void {
  if (!isOutputChange(change)) return;
  const sent = change.after ?? change.before;
  if (sent === null) return;
  const resource = sizes[change.resource];
  const bytes = sent.bytes ?? 0;
  resource.updates++;
  resource.updateBytes += bytes;
  const isIgnored = label.headless in sent.labels || serviceProxyName in sent.labels;
  if (!isIgnored) resource.fanoutBytes += bytes * nodes;
}

/** The number of existing objects, also of unknown size. */
export const objectCount = ({ objects, unmeasured }: ResourceSizes): number =>
  [...objects.values()].reduce((sum, number) => sum + number, unmeasured);

/** The bytes of the largest existing object; 0 without objects. */
export const largestBytes = ({ objects }: ResourceSizes): number =>
  [...objects.keys()].reduce((largest, bytes) => Math.max(largest, bytes), 0);

/** For each of sizeBounds, the number of existing objects of at most this size. */
export const countsByBound = ({ objects }: ResourceSizes): number[] =>
  sizeBounds.map((bound) =>
    [...objects].reduce((sum, [bytes, number]) => sum + (bytes <= bound ? number : 0), 0),
  );
