// Measures the size of Endpoints and EndpointSlices, and the watch traffic of their changes.
//
// Each change sends the whole object to every watcher, and a kube-proxy watches on every Node
// (KEP-752), so the fan-out is the bytes times the Nodes. It leaves out headless Services and those
// of other proxies, as kube-proxy does (k8s.io/kubernetes@v1.36.3 cmd/kube-proxy/app/server.go).
// For Endpoints, which kube-proxy no longer reads, it is what slices save. Left out: other clients,
// lists, and bookmarks.

import { recordOf } from '../../model/collections.ts';
import type { Change, OutputResource } from '../../model/objects.ts';
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

export type ResourceSizes = ReturnType<typeof createResourceSizes>;

const createResourceSizes = () => ({
  /** The number of existing objects of each size, null for an unknown size. */
  objects: new Map<number | null, number>(),
  versions: createHistogram(sizeBounds),
  /** Changes, and the bytes that they send to one watcher. */
  updates: 0,
  updateBytes: 0,
  /** The same times the number of Nodes at each change. */
  fanoutBytes: 0,
});

export type Sizes = Readonly<Record<OutputResource, ResourceSizes>>;

export const createSizes = (): Sizes => recordOf(outputResources, createResourceSizes);

/**
 * Counts the objects that exist after a change, and what it sends to watchers: the last version
 * after a deletion. `nodes` is the number of Nodes, 0 if unknown; null for the first list.
 */
export function trackSize(sizes: Sizes, change: Change, nodes: number | null): void {
  if (!isOutput(change.resource)) return;
  const { before, after } = change as Change<OutputResource>;
  const resource = sizes[change.resource];
  const { objects } = resource;
  if (before !== null) {
    const left = (objects.get(before.bytes) ?? 0) - 1;
    if (left === 0) objects.delete(before.bytes);
    else objects.set(before.bytes, left);
  }
  if (after !== null) {
    objects.set(after.bytes, (objects.get(after.bytes) ?? 0) + 1);
    if (after.bytes !== null) observe(resource.versions, after.bytes);
  }
  const sent = after ?? before;
  if (nodes === null || sent === null) return;
  const bytes = sent.bytes ?? 0;
  resource.updates++;
  resource.updateBytes += bytes;
  const isIgnored = label.headless in sent.labels || label.serviceProxyName in sent.labels;
  if (!isIgnored) resource.fanoutBytes += bytes * nodes;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

/** The number of existing objects, also of unknown size. */
export const objectCount = ({ objects }: ResourceSizes): number => sum([...objects.values()]);

/** The bytes of the largest existing object; 0 without objects. */
export const largestBytes = ({ objects }: ResourceSizes): number =>
  [...objects.keys()].reduce<number>((largest, bytes) => Math.max(largest, bytes ?? 0), 0);

/** For each of sizeBounds, the number of existing objects of at most this size. */
export const countsByBound = ({ objects }: ResourceSizes): number[] =>
  sizeBounds.map((bound) =>
    sum([...objects].map(([bytes, count]) => (bytes !== null && bytes <= bound ? count : 0))),
  );
