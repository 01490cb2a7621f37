// The streams of one resource, one per namespace, as one stream: the entries that a watch of the
// whole cluster would deliver. The resource is synced when all its streams are, and it is known up
// to the oldest of their versions. A stream that is not permitted is left out: what its namespace
// contains is unknown.

import { addCounts } from '../../model/collections.ts';
import type { Resource } from '../../model/objects.ts';
import { compareVersions, newest } from '../../model/resource-version.ts';
import type { LiveEntry, WatchState } from '../decode/entry.ts';
import type { DeliverBatch } from './batch-queue.ts';
import type { WatchStatus } from './listwatch.ts';
import { newCounters } from './watch-result.ts';

type Stream = ReturnType<typeof newStream>;

const newStream = (namespace: string) => ({
  namespace,
  state: 'listing' as WatchState,
  isListed: false,
  /** All up to it has been delivered; empty before the first list. */
  version: '',
});

type Merge = ReturnType<typeof newMerge>;

const newMerge = (resource: Resource, namespaces: readonly string[]) => ({
  resource,
  streams: namespaces.map(newStream),
  /** What was delivered last. */
  state: null as WatchState | null,
  version: '',
  isListed: false,
});

/** For each namespace, what takes the entries of its stream; `deliver` gets those of them all. */
export function mergeStreams(
  resource: Resource,
  namespaces: readonly string[],
  deliver: DeliverBatch,
): ReadonlyMap<string, DeliverBatch> {
  const merge = newMerge(resource, namespaces);
  const takers = merge.streams.map((stream): [string, DeliverBatch] => [
    stream.namespace,
    (entries) => {
      const merged = mergeEntries(merge, stream, entries);
      return merged.length === 0 ? undefined : deliver(merged);
    },
  ]);
  return new Map(takers);
}

function mergeEntries(merge: Merge, stream: Stream, entries: readonly LiveEntry[]): LiveEntry[] {
  const merged: LiveEntry[] = [];
  let last = 0;
  for (const entry of entries) {
    last = entry.kind === 'event' ? entry.event.at : entry.at;
    switch (entry.kind) {
      case 'event':
        // The items of a list are in no order.
        if (stream.state === 'synced') {
          stream.version = newest(stream.version, entry.event.object.resourceVersion);
        }
        merged.push(entry);
        break;
      case 'synced':
        stream.isListed = true;
        merge.isListed = false;
        break;
      case 'progress':
        stream.version = entry.resourceVersion;
        merged.push(...showLists(merge, entry.at));
        break;
      case 'watch':
        merged.push(...enterState(merge, stream, entry));
        break;
      default:
        merged.push(entry);
    }
  }
  return [...merged, ...showVersion(merge, last)];
}

const activeOf = ({ streams }: Merge): Stream[] => streams.filter(({ state }) => state !== 'off');

function enterState(
  merge: Merge,
  stream: Stream,
  { at, resource, state }: LiveEntry & { readonly kind: 'watch' },
): LiveEntry[] {
  const before = stream.state;
  stream.state = state;
  const merged: LiveEntry[] = [];
  if ((before === 'off') !== (state === 'off')) {
    const { namespace } = stream;
    merged.push({ kind: 'access', at, resource, namespace, permitted: state !== 'off' });
  }
  merged.push(...showLists(merge, at));
  const worst = worstState(activeOf(merge));
  if (worst !== merge.state) merged.push({ kind: 'watch', at, resource, state: worst });
  merge.state = worst;
  return merged;
}

const worstFirst: readonly WatchState[] = ['listing', 'relisting', 'stale', 'synced'];

function worstState(streams: readonly Pick<Stream, 'state'>[]): WatchState {
  const states = streams.map(({ state }) => state);
  return worstFirst.find((state) => states.includes(state)) ?? 'off';
}

/** A list was completed, and none is awaited any more: the cache is complete. */
function showLists(merge: Merge, at: number): LiveEntry[] {
  const active = activeOf(merge);
  const isComplete = active.length > 0 && active.every(({ isListed }) => isListed);
  if (merge.isListed || !isComplete) return [];
  merge.isListed = true;
  merge.version = oldestVersion(active);
  const { resource, version: resourceVersion } = merge;
  return [
    { kind: 'synced', at, resource },
    { kind: 'progress', at, resource, resourceVersion },
  ];
}

/** The version up to which all streams have delivered, if it is newer than the last one. */
function showVersion(merge: Merge, at: number): LiveEntry[] {
  if (merge.state !== 'synced') return [];
  const oldest = oldestVersion(activeOf(merge));
  if (compareVersions(oldest, merge.version) !== 1) return [];
  merge.version = oldest;
  return [{ kind: 'progress', at, resource: merge.resource, resourceVersion: oldest }];
}

const oldestVersion = (streams: readonly Stream[]): string =>
  streams.map(({ version }) => version).reduce((a, b) => (compareVersions(b, a) === -1 ? b : a));

/** The state of a resource whose streams have these states, and the sums of their counters. */
export const mergedStatus = (streams: readonly WatchStatus[]): WatchStatus => ({
  get state() {
    return worstState(streams);
  },
  get since() {
    return Math.max(...streams.map(({ since }) => since));
  },
  get counters() {
    const sums = newCounters();
    for (const { counters } of streams) addCounts(sums, counters, 1);
    return sums;
  },
});
