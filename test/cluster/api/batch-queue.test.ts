import { describe, expect, test } from 'vitest';

import { createBatchQueue, Undeliverable } from '../../../src/cluster/api/batch-queue.ts';
import type { LiveEntry } from '../../../src/cluster/decode/entry.ts';
import type { WatchEvent } from '../../../src/model/objects.ts';
import { pod } from '../../build.ts';

const never = new AbortController().signal;

function event(type: WatchEvent['type'], name: string): LiveEntry {
  return { kind: 'event', event: { resource: 'pods', type, object: pod({ name }), at: 1 } };
}

const time = { now: 0, turns: 0 };
const environment = {
  monotonic: () => time.now,
  sleep() {
    time.turns++;
    return Promise.resolve();
  },
};

describe('a batch', () => {
  test('is found before the cached object until it is delivered', async () => {
    const old = pod({ name: 'a', resourceVersion: '1' });
    const held = new Map([[old.key, old]]);
    const batches: (readonly LiveEntry[])[] = [];
    const deliver = (entries: readonly LiveEntry[]) => {
      batches.push(entries);
      held.clear();
    };
    const delivery = createBatchQueue(environment, held, deliver, never);
    delivery.add(event('deleted', 'a'));
    delivery.add(event('added', 'b'));
    expect(delivery.current.get('shop/a')).toBeUndefined();
    expect(delivery.current.get('shop/b')?.name).toBe('b');
    expect([...delivery.current.values()]).toEqual([old]);
    await delivery.flush();
    await delivery.flush();
    expect(batches.map((batch) => batch.length)).toEqual([2]);
    expect(delivery.current.get('shop/b')).toBeUndefined();
  });

  test('waits until the one before it is taken, and what is not taken is an error', async () => {
    let free: () => void = () => undefined;
    let taken = 0;
    const deliver = () => {
      taken++;
      return new Promise<void>((resolve) => (free = resolve));
    };
    const delivery = createBatchQueue(environment, new Map(), deliver, never);
    delivery.add(event('added', 'a'));
    let done = false;
    const flushed = delivery.flush().then(() => (done = true));
    await Promise.resolve();
    expect([taken, done]).toEqual([1, false]);
    free();
    await flushed;
    const refusing = createBatchQueue(
      environment,
      new Map(),
      () => Promise.reject(new Error('no')),
      never,
    );
    refusing.add(event('added', 'a'));
    await expect(refusing.flush()).rejects.toThrow(Undeliverable);
  });

  test('is handed over, and the loop left to others, after 8 ms', async () => {
    const delivery = createBatchQueue(environment, new Map(), () => undefined, never);
    time.now += 0.007;
    expect(delivery.isDue()).toBe(false);
    time.now += 0.002;
    expect(delivery.isDue()).toBe(true);
    // Nothing else runs between a delivery and the next event.
    await delivery.flush();
    delivery.add(event('added', 'a'));
    await delivery.flush();
    expect(delivery.isDue()).toBe(true);
    // Without an event, nothing was delivered.
    await delivery.endChunk(false);
    expect(delivery.isDue()).toBe(true);
    for (const [hasMore, isDue] of [
      [undefined, true],
      [true, true],
      [false, false],
    ] as const) {
      delivery.add(event('added', 'a'));
      await delivery.endChunk(hasMore);
      expect(delivery.isDue()).toBe(isDue);
    }
    time.now += 0.009;
    expect(delivery.isDue()).toBe(true);
    const before = time.turns;
    await delivery.breathe();
    expect([delivery.isDue(), time.turns - before]).toEqual([false, 1]);
  });
});
