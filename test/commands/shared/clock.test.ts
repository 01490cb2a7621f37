// The clock: steps of the wall clock, a suspended machine, a stopped process, and an API server
// with another time lead to no wrong finding and no wrong lag.

import { afterEach, describe, expect, test } from 'vitest';

import { type Auditor, createAuditor } from '../../../src/auditor/auditor.ts';
import type { MonotonicClock } from '../../../src/auditor/event-loop.ts';
import { createClock } from '../../../src/commands/shared/clock.ts';
import type { LiveAuditor } from '../../../src/auditor/live.ts';
import { createQueries } from '../../../src/auditor/queries.ts';
import type { FakeServer, Raw } from '../../apiserver/server.ts';
import { virtualClock } from '../../apiserver/server.ts';
import { auditorDefaults } from '../../build.ts';
import {
  emptySlice,
  liveCluster,
  rawPod,
  rawSlice,
  runLive,
  withUids,
} from '../../live-cluster.ts';

describe('the clock', () => {
  const machine = { wall: 1000, monotonic: 5 };
  const start = () => {
    Object.assign(machine, { wall: 1000, monotonic: 5 });
    return createClock(
      () => machine.wall,
      () => machine.monotonic,
    );
  };

  test('is not changed by a small correction', () => {
    const clock = start();
    Object.assign(machine, { wall: 1011.5, monotonic: 15 });
    expect(clock.follow?.()).toEqual({ jump: 0, held: 0 });
    expect(clock.now()).toBe(1010);
  });

  test('jumps after the wall clock was set forward', () => {
    const clock = start();
    Object.assign(machine, { wall: 1610, monotonic: 15 });
    expect(clock.now()).toBe(1010);
    expect(clock.follow?.()).toEqual({ jump: 600, held: 0 });
    expect(clock.now()).toBe(1610);
  });

  test('waits after the wall clock was set back', () => {
    const clock = start();
    Object.assign(machine, { wall: 410, monotonic: 15 });
    expect(clock.follow?.()).toEqual({ jump: 0, held: 600 });
    expect(clock.now()).toBe(1010);
    Object.assign(machine, { wall: 1009, monotonic: 614 });
    expect(clock.follow?.()).toEqual({ jump: 0, held: 1 });
    expect(clock.now()).toBe(1010);
    Object.assign(machine, { wall: 1012, monotonic: 617 });
    expect(clock.follow?.()).toEqual({ jump: 0, held: 0 });
    expect(clock.now()).toBe(1012);
  });
});

const settle = 10;

/** Seconds by which clocks of the machine differ from the time of the cluster, set by a test. */
interface Machine {
  wall: number;
  monotonic: number;
  /** Seconds by which the clock is ahead of the API server, as its answers show. */
  skew: number | null;
}

interface Running {
  readonly server: FakeServer;
  readonly auditor: Auditor;
  readonly live: LiveAuditor;
  readonly machine: Machine;
  readonly problems: string[];
  readonly pass: (seconds: number) => Promise<void>;
}

const stops: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

/** An auditor of a cluster without differences that has run for two minutes. */
async function run(): Promise<Running> {
  const virtual = virtualClock();
  const machine: Machine = { wall: 0, monotonic: 0, skew: null };
  const { server, cluster } = liveCluster(undefined, virtual);
  const clock: MonotonicClock = {
    ...createClock(
      () => virtual.now() + machine.wall,
      () => virtual.now() + machine.monotonic,
    ),
    after: (seconds, call) => cluster.clock.after(seconds, call),
    soon: (call) => cluster.clock.soon(call),
  };
  const auditor = createAuditor({ ...auditorDefaults, settle, live: true });
  const skewed = { ...cluster.environment, now: () => clock.now(), skew: () => machine.skew };
  const {
    attached: live,
    problems,
    stop,
  } = runLive({ ...cluster, environment: skewed, clock }, auditor);
  stops.push(async () => {
    const stopped = stop();
    await virtual.runUntil(virtual.now());
    await stopped;
  });
  const pass = (seconds: number) => virtual.runUntil(virtual.now() + seconds);
  await pass(120);
  expect(auditor.findings.open()).toEqual([]);
  return { server, auditor, live, machine, problems, pass };
}

const put = ({ server }: Running, slice: Raw): void =>
  void server.objects.put('endpointslices', withUids(server, slice));
const codes = ({ auditor }: Running): string[] => auditor.findings.open().map(({ code }) => code);
const lagCount = ({ auditor }: Running): number =>
  auditor.samples.history.series().changes.reduce((sum, changes) => sum + changes, 0);

/** What happens to the clocks, and how long verdicts stay unknown afterwards. */
const steps: [string, (running: Running) => void, number][] = [
  ['the wall clock is set forward', ({ machine }) => (machine.wall += 600), 0],
  ['the wall clock is set back', ({ machine }) => (machine.wall -= 600), 600],
  [
    'the process is stopped',
    ({ machine }) => {
      machine.wall += 600;
      machine.monotonic += 600;
    },
    0,
  ],
];

describe.each(steps)('if %s by ten minutes', (_, step, unknown) => {
  test('a pending difference has the full window after it', async () => {
    const running = await run();
    put(running, emptySlice);
    await running.pass(5);
    step(running);
    await running.pass(2);
    expect(running.problems).toHaveLength(1);
    if (unknown > 0) {
      expect(running.auditor.stale().size).toBe(5);
      expect(createQueries(running.auditor, 'test').notReady()).toContain('The clock was set back');
    }
    await running.pass(Math.max(0, unknown - 2));
    for (let second = 0; second < settle - 3; second++) {
      expect(codes(running)).toEqual([]);
      await running.pass(1);
    }
    await running.pass(8);
    expect(codes(running)).toEqual(['slice-endpoint-missing']);
    expect(running.auditor.stale().size).toBe(0);
    expect(createQueries(running.auditor, 'test').notReady()).toBeNull();
  });

  test('a difference that ends afterwards is no finding and no sample of lag', async () => {
    const running = await run();
    const before = lagCount(running);
    running.server.objects.remove('pods', 'shop/web-1');
    await running.pass(5);
    step(running);
    await running.pass(2);
    put(running, emptySlice);
    await running.pass(unknown + 60);
    expect(codes(running)).toEqual(['endpoints-address-unexpected']);
    expect(lagCount(running)).toBe(before);
  });

  test('an open finding stays open', async () => {
    const running = await run();
    put(running, emptySlice);
    await running.pass(settle + 5);
    expect(codes(running)).toEqual(['slice-endpoint-missing']);
    step(running);
    await running.pass(unknown + 60);
    expect(codes(running)).toEqual(['slice-endpoint-missing']);
    expect(running.auditor.findings.resolved()).toEqual([]);
  });
});

test('without a step, the same difference is a sample of lag', async () => {
  const running = await run();
  running.server.objects.remove('pods', 'shop/web-1');
  await running.pass(7);
  put(running, emptySlice);
  await running.pass(60);
  expect(lagCount(running)).toBe(1);
});

test('a clock that was set back by a day fails liveness', async () => {
  const running = await run();
  running.machine.wall -= 86_400;
  await running.pass(2);
  expect(running.live.stuck()).toMatch(/^The clock was set back: it waits for 863\d\d s/);
});

describe('if the API server has another time', () => {
  const triggered = (time: number): Raw => ({
    ...rawSlice,
    metadata: {
      ...rawSlice.metadata,
      annotations: {
        'endpoints.kubernetes.io/last-change-trigger-time': new Date(time * 1000).toISOString(),
      },
    },
  });

  test.each([
    [600, 'skewed'],
    [-600, 'skewed'],
    [1, 'ok'],
    [null, 'ok'],
  ] as const)('%s s behind, a trigger lag is %s', async (skew, quality) => {
    const running = await run();
    running.machine.skew = skew;
    await running.pass(2);
    const now = running.auditor.now() ?? 0;
    put(running, triggered(now - 5));
    await running.pass(2);
    expect(running.auditor.samples.trigger.counts.endpointslices).toMatchObject({ [quality]: 1 });
  });

  test('findings do not depend on it', async () => {
    const running = await run();
    running.machine.skew = 600;
    put(running, emptySlice);
    running.server.objects.put('pods', withUids(running.server, rawPod));
    await running.pass(settle - 1);
    expect(codes(running)).toEqual([]);
    await running.pass(5);
    expect(codes(running)).toEqual(['slice-endpoint-missing']);
  });
});
