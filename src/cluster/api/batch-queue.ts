// The queue between a reflector and the event loop. It delivers each batch before more is read.
// While a batch grows, the cache is behind it, so lookups search the batch first.

import type { AnyObject, Key } from '../../model/objects.ts';
import type { LiveEntry } from '../decode/entry.ts';
import type { Environment } from './transport/request.ts';
import type { CachedObjects } from './version-filter.ts';

export type DeliverBatch = (entries: readonly LiveEntry[]) => void | Promise<void>;

/** The event loop failed to apply a batch: a reflector cannot recover from that. */
export class Undeliverable extends Error {}

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
  const flush = async (): Promise<void> => {
    if (batch.length > 0) {
      const entries = batch;
      batch = [];
      try {
        await deliver(entries);
      } catch (cause) {
        throw new Undeliverable('A batch was not taken', { cause });
      }
      // Not cleared: V8 links a map to what it becomes, so one old piece would keep all later ones.
      changed = new Map();
    }
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
    add(entry: LiveEntry): void {
      batch.push(entry);
      if (entry.kind !== 'event') return;
      const { object, type } = entry.event;
      changed.set(object.key, type === 'deleted' ? null : object);
    },
    /** Delivers the batch; rejects with Undeliverable when it is not taken. */
    flush,
    /** Whether 8 ms have passed since others had the event loop. */
    isDue: () => environment.monotonic() - began > 0.008,
    async breathe(): Promise<void> {
      await flush();
      await environment.sleep(0, signal);
      began = environment.monotonic();
    },
  };
}
