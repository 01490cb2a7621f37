// Liveness: a part of the program that hangs makes the probe fail with a reason, and an API server
// that is away, slow or hostile does not.

import { afterEach, expect, test } from 'vitest';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { connectAuditor, type LiveAuditor, type LiveOptions } from '../../src/auditor/live.ts';
import type { ApiAnswer, ApiRequest } from '../../src/cluster/api/transport/connection.ts';
import type { Environment } from '../../src/cluster/api/transport/request.ts';
import type { FakeServer, VirtualClock } from '../apiserver/server.ts';
import { createStream, statusAnswer, virtualClock } from '../apiserver/server.ts';
import { auditorDefaults } from '../build.ts';
import { liveCluster, rawPod, withUids } from '../live-cluster.ts';

interface Running {
  readonly clock: VirtualClock;
  readonly server: FakeServer;
  readonly live: LiveAuditor;
  /** What was reported: the reasons, and `null` where a hang was over. */
  readonly reported: (string | null)[];
  readonly pass: (seconds: number) => Promise<void>;
}

const stops: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

/** An auditor of a live cluster, up to date, whose environment or clock may be replaced. */
async function run(
  replace: (environment: Environment) => Partial<Environment> = () => ({}),
  options: (clock: LiveOptions['clock']) => Partial<LiveOptions['clock']> = () => ({}),
): Promise<Running> {
  const clock = virtualClock();
  const { server, cluster } = liveCluster(undefined, clock);
  const reported: (string | null)[] = [];
  const live = connectAuditor({
    ...cluster,
    environment: { ...cluster.environment, ...replace(cluster.environment) },
    clock: { ...cluster.clock, ...options(cluster.clock) },
    auditor: createAuditor({ ...auditorDefaults, live: true }),
    endpoints: true,
    onProblem: () => undefined,
    onQuiet: () => undefined,
    onHang: (reason) => reported.push(reason),
  });
  const controller = new AbortController();
  const ended = live.run(controller.signal);
  const pass = (seconds: number) => clock.runUntil(clock.now() + seconds);
  stops.push(async () => {
    controller.abort();
    await clock.runUntil(clock.now());
    await ended;
  });
  await pass(10);
  return { clock, server, live, reported, pass };
}

/** Passes time until the probe fails; returns how long that took. */
async function secondsUntilStuck({ live, pass }: Running, most: number): Promise<number> {
  let seconds = 0;
  for (; live.stuck() === null && seconds < most; seconds += 10) await pass(10);
  return seconds;
}

/** Ends only when the program does. */
const untilAborted = ({ signal }: { readonly signal: AbortSignal }): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve()));

test('a reflector whose pause never ends fails liveness, with one report', async () => {
  let isLost = false;
  const running = await run((it) => ({
    // The pause of a reflector after a failure, not the limits of requests.
    sleep: (seconds, signal) =>
      isLost && seconds > 0 && seconds < 2 ? untilAborted({ signal }) : it.sleep(seconds, signal),
  }));
  expect(running.live.stuck()).toBeNull();
  isLost = true;
  running.server.reset();
  expect(await secondsUntilStuck(running, 600)).toBeLessThanOrEqual(140);
  expect(running.live.stuck()).toMatch(
    /^The reflector of \w+ hangs: it waits for a pause for \d+ s/,
  );
  await running.pass(300);
  expect(running.reported).toHaveLength(1);
});

test('a request without an end and without a limit fails liveness', async () => {
  let isLost = false;
  const running = await run((it) => ({
    ask: async (request) => {
      if (isLost) await untilAborted(request);
      return it.ask(request);
    },
    sleep: (seconds, signal) =>
      isLost && seconds > 2 ? untilAborted({ signal }) : it.sleep(seconds, signal),
  }));
  isLost = true;
  running.server.reset();
  expect(await secondsUntilStuck(running, 2000)).toBeLessThanOrEqual(900);
  expect(running.live.stuck()).toContain('it waits for a');
});

test.each<[string, (server: FakeServer) => void]>([
  ['refuses connections', ({ faults }) => (faults.before = () => 'reset')],
  ['never answers', ({ faults }) => (faults.before = () => 'hang')],
  [
    'throttles',
    ({ faults }) => (faults.before = () => statusAnswer(429, 'Slow', '', { 'retry-after': '900' })),
  ],
  [
    'sends nothing on watches',
    ({ faults }) => ['pods', 'nodes'].forEach((it) => faults.starved.add(it as 'pods')),
  ],
  ['forbids all', ({ faults }) => (faults.before = () => statusAnswer(403, 'Forbidden'))],
])('an API server that %s for hours does not fail liveness', async (_, spoil) => {
  const running = await run();
  spoil(running.server);
  running.server.reset();
  expect(await secondsUntilStuck(running, 4 * 3600)).toBe(4 * 3600);
  expect(running.reported).toEqual([]);
});

test('a watch that stays connected and lacks what reads show fails liveness', async () => {
  const running = await run();
  // The watches of pods go on with bookmarks of an old version, also after each new list.
  const { faults, watches, objects } = running.server;
  const { before } = faults;
  faults.before = (asked) =>
    asked.resource === 'pods' && asked.verb === 'watch'
      ? stuckWatch(running, asked.request)
      : before(asked);
  for (const { resource, stream } of watches) if (resource === 'pods') stream.end();
  await running.pass(5);
  const write = (): void => {
    objects.put('pods', withUids(running.server, { ...rawPod, status: {} }));
    running.clock.after(30, write);
  };
  write();
  expect(await secondsUntilStuck(running, 7200)).toBeLessThanOrEqual(3600);
  expect(running.live.stuck()).toContain('The watch of pods lags');
});

/** A watch that is accepted, and whose bookmarks have an old version. */
function stuckWatch({ clock }: Running, { query, signal }: ApiRequest): ApiAnswer {
  const metadata = { resourceVersion: query.resourceVersion ?? '1' };
  const object = { kind: 'Pod', apiVersion: 'v1', metadata };
  const frame = `${JSON.stringify({ type: 'BOOKMARK', object })}\n`;
  const body = createStream(signal);
  const send = (): void => {
    if (body.closed) return;
    body.write(Buffer.from(frame));
    body.onClose(clock.after(60, send));
  };
  send();
  return { status: 200, headers: { 'content-type': 'application/json' }, body };
}

test('a process that was suspended for an hour does not fail liveness', async () => {
  let ahead = 0;
  const running = await run(
    (it) => ({ now: () => it.now() + ahead, monotonic: () => it.monotonic() + ahead }),
    (it) => ({ now: () => it.now() + ahead, monotonic: () => it.monotonic() + ahead }),
  );
  ahead = 3600;
  for (let second = 0; second < 120; second++) {
    await running.pass(1);
    expect(running.reported).toEqual([]);
  }
  expect(running.live.stuck()).toBeNull();
});

test('a timer that is lost fails liveness', async () => {
  let isLost = false;
  const running = await run(undefined, (it) => ({
    after: (seconds, call) => (isLost ? () => undefined : it.after(seconds, call)),
  }));
  isLost = true;
  for (const watch of running.server.watches) watch.freeze();
  expect(await secondsUntilStuck(running, 600)).toBeLessThanOrEqual(120);
  expect(running.live.stuck()).toMatch(/^No timer has run for \d+ s/);
});
