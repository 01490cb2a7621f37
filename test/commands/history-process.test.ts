// The processes that answer questions about moments, with a short recording.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterEach, describe, expect, test, vi } from 'vitest';

import { createMoments, heapFor, type HistoryMoments } from '../../src/commands/history-process.ts';
import { openQueries } from '../../src/commands/history-reader.ts';
import { openFolder } from '../../src/history/files.ts';
import { createHistoryRecorder } from '../../src/history/recorder.ts';
import type { MomentAnswer } from '../../src/output/http/moments.ts';
import { createApp, listen } from '../../src/output/http/server.ts';

const recording = '../recordings/chaos/clock-of-a-lesser-harm.ndjson.gz';
const source = fileURLToPath(new URL(recording, import.meta.url));
const flags = { settle: 30, maxEndpointsPerSlice: 100, endpoints: true };
const site = { cluster: 'test', links: [], hasMetrics: false };
const request = { kind: 'moment', source, flags, site } as const;

let moments: HistoryMoments;

/** What a server in this process answers. */
async function answerHere(at: number, path: string): Promise<unknown> {
  const { queries } = await openQueries({ ...request, at });
  const server = await listen(createApp(queries), { host: '127.0.0.1', port: 0 });
  const response = await fetch(`http://127.0.0.1:${String(server.port)}${path}`);
  const document: unknown = await response.json();
  await server.close();
  return document;
}

const json = 'application/json';

/** What a client gets that asks again while the moment is opened. */
async function ask(at: number, path: string): Promise<MomentAnswer> {
  for (;;) {
    try {
      return await moments.answer(at, path, json);
    } catch (error) {
      if (!String(error).includes('ask again')) throw error;
    }
  }
}

/** While a finding is open. */
const moment = 1_795_413_760;

describe('the heap of a process', () => {
  test.each([
    ['a part of the memory that is free', 1096, 400],
    ['not more than is useful', 100_000, 3072],
    ['the least that is enough', 256, 64],
  ])('is %s', (_, free, size) => {
    expect(heapFor(free)).toBe(size);
  });

  test('is refused if the audit needs the memory that is free', () => {
    expect(() => heapFor(250)).toThrow('Too little memory is free');
  });
});

describe('processes for moments', () => {
  afterEach(() => {
    vi.useRealTimers();
    moments.close();
  });

  test('answer as a replay to that moment does, from one process', async () => {
    moments = createMoments(request);
    for (const path of ['/api/v1/findings', '/api/v1/services', '/api/v1/status']) {
      const { status, body, losses } = await ask(moment, path);
      expect([status, losses]).toEqual([200, []]);
      expect(JSON.parse(body.toString())).toEqual(await answerHere(moment, path));
    }
  });

  test('refuse a moment that the recording does not have', async () => {
    moments = createMoments(request);
    const refused = { reason: 'wrong' };
    await expect(ask(9e9, '/')).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('The recording ends at 2026-') as string,
    });
    await expect(ask(1000, '/')).rejects.toMatchObject(refused);
  });

  /** A folder with a history that begins at that moment. */
  async function historyFrom(at: number): Promise<string> {
    const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
    const recorder = createHistoryRecorder({
      files: openFolder(folder),
      limits: { size: 1e9, age: 86_400 },
      now: () => at,
      clock: () => ({ line: `{"kind":"clock","at":${String(at)}}\n`, at }),
      checkpoint: () => ({ at, parts: [`{"kind":"header","at":${String(at)}}\n`] }),
      pause: () => Promise.resolve(),
      onTrouble: (reason) => expect(reason).toBe(null),
    });
    await recorder.work();
    await recorder.close();
    return folder;
  }

  test('refuse a moment before the history, and fail if that cannot be read', async () => {
    const history = await historyFrom(moment);
    moments = createMoments({ ...request, history });
    await expect(ask(moment - 1, '/')).rejects.toMatchObject({
      reason: 'wrong',
      message: expect.stringContaining('The history begins at 2026-') as string,
    });
    for (const name of readdirSync(history)) {
      const bytes = readFileSync(join(history, name));
      if (name.endsWith('.segment')) writeFileSync(join(history, name), bytes.fill(0, 50, 60));
    }
    const damaged = 'No checkpoint before that moment is whole';
    const failed = { reason: 'failed', message: damaged };
    await expect(ask(moment + 1, '/')).rejects.toMatchObject(failed);
    rmSync(history, { recursive: true });
    await expect(ask(moment + 2, '/')).rejects.toMatchObject({
      reason: 'failed',
      message: expect.stringContaining('ENOENT') as string,
    });
  });

  test('say that a moment takes long, and open it on for the next question', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    moments = createMoments(request);
    const path = '/api/v1/status';
    const slow = moments.answer(moment, path, json);
    const other = moments.answer(moment + 1, path, json);
    vi.advanceTimersByTime(44_999);
    // The same question takes no place of another one.
    const again = moments.answer(moment, path, json);
    vi.advanceTimersByTime(1);
    const waiting = { reason: 'busy', message: expect.stringContaining('ask again') as string };
    await expect(slow).rejects.toMatchObject(waiting);
    await expect(other).rejects.toMatchObject(waiting);
    expect((await again).status).toBe(200);
  });

  test('answer two questions at one time, and a known answer at once', async () => {
    moments = createMoments(request);
    const path = '/api/v1/status';
    const first = ask(moment, path);
    const second = ask(moment + 1, path);
    const third = ask(moment + 2, path);
    await expect(third).rejects.toMatchObject({ reason: 'busy' });
    const known = await first;
    await expect(ask(moment, path)).resolves.toBe(known);
    expect((await second).status).toBe(200);
    // The third process takes the place of one that is idle.
    expect((await ask(moment + 2, path)).status).toBe(200);
  });
});
