// The event loop of a live cluster: slices, the timer, and fresh reads.

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import type { FreshRead } from '../../src/audit/pending/confirm.ts';
import type { Auditor, AuditorOptions, AuditorEntry } from '../../src/auditor/auditor.ts';
import type { EventLoopOptions } from '../../src/auditor/event-loop.ts';
import { createEventLoop } from '../../src/auditor/event-loop.ts';
import { createClock } from '../../src/commands/shared/clock.ts';
import type { Service } from '../../src/model/objects.ts';
import { virtualClock } from '../apiserver/server.ts';
import { added, auditorOf, lively, progress, rawService, watches } from '../build.ts';

interface Running {
  readonly live: ReturnType<typeof createEventLoop>;
  readonly auditor: Auditor;
  readonly opened: Finding[];
  readonly read: string[];
  /** Sets the clock and has the loop look at it. */
  readonly at: (seconds: number) => void;
}

interface Setting {
  readonly settle?: number;
  readonly reread?: (auditor: Auditor) => Partial<FreshRead>;
  readonly options?: Partial<EventLoopOptions>;
  readonly more?: Partial<AuditorOptions>;
}

function run({ settle = 30, reread = () => ({}), options, more }: Setting = {}): Running {
  const { auditor, opened } = auditorOf(settle, { live: true, ...more });
  const read: string[] = [];
  let now = 100;
  const live = createEventLoop({
    auditor,
    clock: { ...createClock(), now: () => now },
    reread: (namespace, names) => {
      if (namespace === '') return Promise.resolve(nodesOf(auditor));
      read.push(names.map((name) => `${namespace}/${name}`).join(' '));
      const none = { objects: [], version: '1000' };
      const rest = { endpoints: none, endpointslices: none, pods: none, version: '1000' };
      const readOf = (name: string): FreshRead => {
        const key = `${namespace}/${name}`;
        const cached: Service | null = auditor.store.listers.services.get(key) ?? null;
        return { services: listOf(cached), ...rest, ...reread(auditor) };
      };
      return Promise.resolve(new Map(names.map((name) => [name, readOf(name)])));
    },
    hang: () => null,
    onHang: () => undefined,
    skew: () => null,
    onClock: () => undefined,
    onGap: () => undefined,
    onError: (error) => {
      throw error;
    },
    onQuiet: () => undefined,
    ...options,
  });
  const at = (seconds: number): void => {
    now = seconds;
    void live.deliver([]);
  };
  return { live, auditor, opened, read, at };
}

const listOf = (service: Service | null) => ({
  objects: service === null ? [] : [service],
  version: '1000',
});

/** A read of the Nodes that equals the cache. */
const nodesOf = ({ store }: Auditor): Map<string, FreshRead> =>
  new Map([
    [
      '',
      { nodes: { objects: [...store.listers.nodes.values()], version: '1000' }, version: '1000' },
    ],
  ]);

const named = (name: string, resourceVersion: string) => ({
  ...rawService,
  metadata: { ...rawService.metadata, name, uid: name, resourceVersion },
});

describe('delivering', () => {
  test('resolves when all entries are taken in', async () => {
    const { live, auditor } = run();
    await live.deliver(lively());
    expect(auditor.serviceAuditor()).not.toBeNull();
    expect(auditor.now()).toBe(101);
    live.stop();
  });

  test('a long queue yields to other work', async () => {
    const { live, auditor } = run();
    let turns = 0;
    const turn = (): void => {
      turns++;
      if (auditor.serviceAuditor() === null) setImmediate(turn);
    };
    setImmediate(turn);
    const [header, ...rest] = lively();
    const many = Array.from({ length: 3000 }, (_, one): AuditorEntry =>
      added('services', named(`s${one}`, String(one + 1)), 100),
    );
    await live.deliver([...(header === undefined ? [] : [header]), ...many, ...rest]);
    expect(auditor.serviceAuditor()?.audited.size).toBe(3001);
    expect(turns).toBeGreaterThan(3);
    live.stop();
  });

  test('resolves at once after the loop has stopped, as do queued batches', async () => {
    const { live, auditor } = run();
    const queued = live.deliver(lively());
    live.stop();
    await queued;
    await live.deliver(lively());
    expect(auditor.serviceAuditor()).toBeNull();
  });
});

describe('time', () => {
  test('the timer ends a window without entries', async () => {
    const begun = performance.now();
    const now = (): number => 101 + (performance.now() - begun) / 1000;
    const { live, opened, read } = run({
      settle: 0.05,
      options: { clock: { ...createClock(), now } },
    });
    await live.deliver(lively());
    await expect.poll(() => opened.length).toBe(2);
    expect(read).toEqual(['shop/web']);
    live.stop();
  });

  test('a difference that a queued event ends does not open', async () => {
    const { live, opened, at } = run();
    await live.deliver(lively());
    at(110);
    const gone = added('services', rawService, 120) as AuditorEntry & { kind: 'event' };
    const deleted = { ...gone.event, type: 'deleted' as const };
    const taken = live.deliver([{ kind: 'event', event: deleted }]);
    at(200);
    await taken;
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(opened).toEqual([]);
    live.stop();
  });

  test('a timer is kept until it calls back, and then set again', async () => {
    const clock = { seconds: 100, timers: new Map<() => void, number>() };
    const { live } = run({
      options: {
        clock: {
          now: () => clock.seconds,
          monotonic: () => clock.seconds,
          after(seconds, call) {
            clock.timers.set(call, clock.seconds + seconds);
            return () => clock.timers.delete(call);
          },
          soon: (call) => void setImmediate(call),
        },
      },
    });
    await live.deliver([]);
    const [[call] = [() => undefined]] = clock.timers;
    clock.seconds = 100.5;
    await live.deliver([]);
    expect([...clock.timers]).toEqual([[call, 101]]);
    clock.seconds = 101;
    clock.timers.delete(call);
    call();
    expect([...clock.timers.values()]).toEqual([102]);
    live.stop();
    expect(clock.timers.size).toBe(0);
  });

  test('an earlier time replaces the timer', async () => {
    const clock = { seconds: 101, timers: [] as number[] };
    const { live } = run({
      settle: 0.5,
      options: {
        clock: {
          now: () => clock.seconds,
          monotonic: () => clock.seconds,
          after(seconds) {
            clock.timers.push(clock.seconds + seconds);
            return () => undefined;
          },
          soon: (call) => void setImmediate(call),
        },
      },
    });
    await live.deliver([]);
    await live.deliver(lively());
    const [first = 0, second = Infinity] = clock.timers;
    expect(second).toBeLessThan(first);
    live.stop();
  });

  test('the clock is Unix time and follows the monotonic clock', () => {
    const clock = createClock();
    const now = (): number => clock.now();
    expect(Math.abs(now() - Date.now() / 1000)).toBeLessThan(1);
    expect(now()).toBeLessThanOrEqual(now());
  });
});

describe('a process that was stopped', () => {
  test('restarts its windows, although events that waited come before the timer', async () => {
    const texts: string[] = [];
    const clock = { seconds: 100, tick: (): void => undefined };
    const { live, auditor, opened } = run({
      settle: 30,
      options: {
        clock: {
          now: () => clock.seconds,
          monotonic: () => clock.seconds,
          after: (_, call) => {
            clock.tick = call;
            return () => undefined;
          },
          soon: (call) => void setImmediate(call),
        },
        onClock: (text) => texts.push(text),
      },
    });
    await live.deliver(lively());
    clock.seconds = 101;
    clock.tick();
    expect(texts).toEqual([]);
    clock.seconds = 201;
    await live.deliver(progress(201, '60'));
    expect(texts).toEqual(['The process did not run for 100 s: restarting all windows']);
    expect(auditor.findings.open()).toEqual([]);
    expect(opened).toEqual([]);
    live.stop();
  });

  test('has no windows to restart before its first tick', async () => {
    const texts: string[] = [];
    const { live } = run({ options: { onClock: (text) => texts.push(text) } });
    await live.deliver(lively());
    expect(texts).toEqual([]);
    live.stop();
  });
});

describe('a watch that lags', () => {
  const behind = async (setting: Setting = {}): Promise<Running> => {
    const made = run(setting);
    await made.live.deliver([...lively(), ...progress(102, '99', ['nodes'])]);
    made.at(131);
    // The Nodes are read first.
    await expect.poll(() => made.auditor.confirmer.counts.asked).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 1));
    made.at(131.1);
    return made;
  };

  test('is compensated by one fresh read of the Service', async () => {
    const { live, opened, read } = await behind();
    await expect.poll(() => opened.length).toBe(2);
    expect(read).toEqual(['shop/web']);
    live.stop();
  });

  test('delays the finding until its events arrive', async () => {
    const newer = (auditor: Auditor): Partial<FreshRead> => {
      const cached = auditor.store.listers.services.get('shop/web') ?? null;
      return { services: listOf(cached && { ...cached, resourceVersion: '170' }) };
    };
    const { live, opened, auditor, read } = await behind({ reread: newer });
    await expect.poll(() => auditor.confirmer.counts.lagging).toBe(1);
    expect(opened).toEqual([]);
    await live.deliver([added('services', named('web', '170'), 131)]);
    expect(read).toEqual(['shop/web']);
    live.stop();
  });

  test('if fresh reads fail for five minutes, the watches confirm', async () => {
    const { live, opened, auditor, at } = await behind({
      options: { reread: () => Promise.reject(new Error('refused')) },
    });
    await expect.poll(() => auditor.confirmer.counts.failed).toBe(1);
    expect(opened).toEqual([]);
    await live.deliver(progress(132, '99'));
    at(133);
    await expect.poll(() => auditor.now()).toBe(133);
    expect(opened).toEqual([]);
    // None of them can lag any more.
    await live.deliver(progress(431, '99'));
    at(432);
    await expect.poll(() => opened.length).toBe(2);
    live.stop();
  });

  test('causes fresh reads of a few Services at a time', async () => {
    let most = 0;
    let open = 0;
    const reread = async (): Promise<Map<string, FreshRead>> => {
      most = Math.max(most, ++open);
      await new Promise((resolve) => setTimeout(resolve, 1));
      open--;
      throw new Error('refused');
    };
    const made = run({ options: { reread } });
    const services = Array.from({ length: 30 }, (_, one) =>
      added('services', named(`s${one}`, String(one + 1)), 101),
    );
    await made.live.deliver([...lively(), ...services, ...progress(102, '99', ['nodes'])]);
    for (let step = 0; step < 40; step++) {
      made.at(131 + step / 10);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(4);
    made.live.stop();
  });
});

describe('many Services that differ at once', () => {
  /** Quiet streams, and a server that takes 50 ms for an answer; settle is 30 s. */
  const differing = async (count: number, namespaces: number): Promise<Running> => {
    const clock = virtualClock(100);
    const reads: number[] = [];
    const made = run({
      options: {
        clock: { ...clock, monotonic: () => clock.now(), soon: (call) => void setImmediate(call) },
        reread: async (namespace, names) => {
          reads.push(clock.now());
          await clock.sleep(0.05);
          if (namespace === '') return nodesOf(made.auditor);
          const none = { objects: [], version: '1000' };
          const rest = { endpoints: none, endpointslices: none, pods: none, version: '1000' };
          const readOf = (name: string): FreshRead => {
            const key = `${namespace}/${name}`;
            made.read.push(key);
            const service = made.auditor.store.listers.services.get(key) ?? null;
            return { services: listOf(service), ...rest };
          };
          return new Map(names.map((name) => [name, readOf(name)]));
        },
      },
    });
    const inNamespace = (one: number) => {
      const raw = named(`s${one}`, String(one + 1));
      return { ...raw, metadata: { ...raw.metadata, namespace: `n${one % namespaces}` } };
    };
    const services = Array.from({ length: count }, (_, one): AuditorEntry =>
      added('services', inNamespace(one), 101),
    );
    await made.live.deliver([...lively(), ...services, ...progress(102, '99', ['nodes'])]);
    await clock.runUntil(132.9);
    made.live.stop();
    // No second has more reads than the pause allows.
    for (const at of reads) {
      expect(reads.filter((one) => one >= at && one < at + 1).length).toBeLessThanOrEqual(41);
    }
    return made;
  };

  test.each([
    [500, 1],
    [500, 20],
    [60, 60],
  ])('%i in %i namespaces open within 2 s of their windows', async (count, namespaces) => {
    const { opened, read, auditor } = await differing(count, namespaces);
    expect(new Set(opened.map(({ namespace, service }) => `${namespace}/${service}`)).size).toBe(
      count + 1,
    );
    expect(auditor.findings.waiting().size).toBe(0);
    expect(new Set(read).size).toBe(count + 1);
  });

  test('are read one by one if their namespace cannot be read', async () => {
    const refused: (readonly string[])[] = [];
    const { live, auditor, read, at } = run({
      options: {
        reread: (namespace, names) => {
          if (namespace === '') return Promise.resolve(nodesOf(auditor));
          refused.push(names);
          return Promise.reject(new Error('An object cannot be read'));
        },
      },
    });
    const services = Array.from({ length: 9 }, (_, one): AuditorEntry =>
      added('services', named(`s${one}`, String(one + 1)), 101),
    );
    await live.deliver([...lively(), ...services, ...progress(102, '99', ['nodes'])]);
    at(132);
    await expect.poll(() => auditor.confirmer.counts.asked).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 1));
    at(132.1);
    await expect.poll(() => auditor.confirmer.counts.failed).toBe(10);
    at(140);
    await expect.poll(() => auditor.confirmer.counts.failed).toBe(11);
    expect(refused.map(({ length }) => length)).toEqual([10, 1]);
    expect(read).toEqual([]);
    live.stop();
  });
});

test('no finding opens while a watch is lost', async () => {
  const { live, opened, at } = run();
  await live.deliver([...lively(), ...watches(110, 'stale')]);
  at(500);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(opened).toEqual([]);
  live.stop();
});
