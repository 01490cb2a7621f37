// The queue between a reflector and the event loop. It delivers batches, each before more is read.
// While a batch grows, the cache is behind it, so lookups search the batch first. Decoding yields
// to the event loop after a few milliseconds.

import type { AnyObject, Key } from '../../model/objects.ts';
import type { LiveEntry } from '../decode/entry.ts';
import type { Environment } from './transport/request.ts';
import type { CachedObjects } from './version-filter.ts';

export type DeliverBatch = (entries: readonly LiveEntry[]) => void | Promise<void>;

/** The event loop failed to apply a batch. A reflector cannot recover from that. */
export class Undeliverable extends Error {}

/** Seconds that frames are decoded before others have the loop. */
const sliceSeconds = 0.008;

/** The cache must contain the delivered changes once `deliver` has resolved. */
export function createBatchQueue(
  environment: Pick<Environment, 'monotonic' | 'sleep'>,
  held: CachedObjects,
  deliver: DeliverBatch,
  signal: AbortSignal,
) {
  let changed = new Map<Key, AnyObject | null>();
  let batch: LiveEntry[] = [];
  let began = environment.monotonic();
  /** Hands the batch over; rejects with Undeliverable when it is not taken. */
  const flush = async (): Promise<void> => {
    if (batch.length > 0) {
      const entries = batch;
      batch = [];
      try {
        await deliver(entries);
      } catch (cause) {
        throw new Undeliverable('A batch was not taken', { cause });
      }
      // Not cleared: V8 links what a map was to what it becomes, so that one old piece of it would
      // keep all that ever comes after, until the heap is collected.
      changed = new Map();
    }
    began = environment.monotonic();
  };
  return {
    /** The cached objects with the changes of the batch; `values` is without them. */
    current: {
      get(key: Key) {
        const change = changed.get(key);
        return change === undefined ? held.get(key) : (change ?? undefined);
      },
      values: () => held.values(),
    },
    /** Adds to the batch. */
    add(entry: LiveEntry): void {
      batch.push(entry);
      if (entry.kind !== 'event') return;
      const { object, type } = entry.event;
      changed.set(object.key, type === 'deleted' ? null : object);
    },
    flush,
    /** Whether decoding has lasted long enough. */
    isDue: () => environment.monotonic() - began > sliceSeconds,
    /** Hands the batch over and lets others have the loop. */
    async breathe(): Promise<void> {
      await flush();
      await environment.sleep(0, signal);
      began = environment.monotonic();
    },
  };
}
