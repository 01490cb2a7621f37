// The processes that answer questions about moments, with the recording of the program.

import { fileURLToPath } from 'node:url';

import { afterEach, describe, expect, test } from 'vitest';

import { createMoments, heapFor, type HistoryMoments } from '../../src/commands/history-process.ts';
import { openQueries } from '../../src/commands/history-reader.ts';
import { createApp, listen } from '../../src/output/http/server.ts';

const source = fileURLToPath(new URL('../recordings/shop.ndjson.gz', import.meta.url));
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

/** While a finding is open. */
const moment = 1_795_258_700;

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
    moments.close();
  });

  test('answer as a replay to that moment does, from one process', async () => {
    moments = createMoments(request);
    for (const path of ['/api/v1/findings', '/api/v1/services', '/api/v1/status']) {
      const { status, body, losses } = await moments.answer(moment, path, json);
      expect([status, losses]).toEqual([200, []]);
      expect(JSON.parse(body.toString())).toEqual(await answerHere(moment, path));
    }
  });

  test('refuse a moment that the recording does not have', async () => {
    moments = createMoments(request);
    const refused = { reason: 'wrong' };
    await expect(moments.answer(9e9, '/', json)).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('The recording ends at 2026-') as string,
    });
    await expect(moments.answer(1000, '/', json)).rejects.toMatchObject(refused);
  });

  test('answer two questions at one time, and a known answer at once', async () => {
    moments = createMoments(request);
    const path = '/api/v1/status';
    const first = moments.answer(moment, path, json);
    const second = moments.answer(moment + 1, path, json);
    const third = moments.answer(moment + 2, path, json);
    await expect(third).rejects.toMatchObject({ reason: 'busy' });
    const known = await first;
    await expect(moments.answer(moment, path, json)).resolves.toBe(known);
    expect((await second).status).toBe(200);
    // The third process takes the place of one that is idle.
    expect((await moments.answer(moment + 2, path, json)).status).toBe(200);
  });
});
