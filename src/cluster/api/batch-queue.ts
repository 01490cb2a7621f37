// The queue between a reflector and the event loop. It delivers each batch before more is read.
// While a batch grows, the cache is behind it, so lookups search the batch first.

import type { AnyObject, Key, UnreadableObject } from '../../model/objects.ts';
import { keyOfLost, unreadableKey } from '../../model/objects.ts';
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
  /** Objects that could not be decoded, until something shows that they are gone. */
  const unread = new Map<string, UnreadableObject>();
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
      if (entry.kind === 'unreadable') noteUnread(unread, entry);
      if (entry.kind !== 'event') return;
      const { object, type, resource } = entry.event;
      changed.set(object.key, type === 'deleted' ? null : object);
      if (unread.size === 0) return;
      const { namespace, name } = object;
      unread.delete(unreadableKey({ resource, namespace, name }));
    },
    /** Adds deletions of the objects that could not be decoded and are not in a complete list. */
    addUnlisted(listed: ReadonlySet<Key> | null, at: number): void {
      if (listed === null) return;
      for (const lost of unread.values()) {
        const key = keyOfLost(lost);
        if (key === null || listed.has(key)) continue;
        batch.push({ kind: 'unreadable', at, type: 'deleted', lost });
        unread.delete(unreadableKey(lost));
      }
    },
    /** Delivers the batch; rejects with Undeliverable when it is not taken. */
    flush,
    /** Whether 8 ms have passed since others had the event loop. */
    isDue: () => environment.monotonic() - began > 0.008,
    /** Delivers the batch unless more has arrived. Then others have had the event loop. */
    async endChunk(hasMore?: boolean): Promise<void> {
      if (hasMore === true || batch.length === 0) return;
      await flush();
      if (hasMore === false) began = environment.monotonic();
    },
    async breathe(): Promise<void> {
      await flush();
      await environment.sleep(0, signal);
      began = environment.monotonic();
    },
  };
}

type UnreadableEntry = LiveEntry & { readonly kind: 'unreadable' };

function noteUnread(unread: Map<string, UnreadableObject>, { type, lost }: UnreadableEntry): void {
  if (type === 'deleted' && keyOfLost(lost) !== null) unread.delete(unreadableKey(lost));
  else unread.set(unreadableKey(lost), lost);
}
