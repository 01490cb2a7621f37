import { describe, expect, test } from 'vitest';

import type { ApiAnswer, Ask } from '../../../../src/cluster/api/transport/connection.ts';
import { exchange } from '../../../../src/cluster/api/transport/request.ts';
import type { Stream } from '../../../apiserver/server.ts';
import { createStream, virtualClock } from '../../../apiserver/server.ts';

const asked = { path: '/', query: {}, accept: '' };

function world(ask: Ask) {
  const clock = virtualClock();
  const environment = {
    now: () => clock.now(),
    monotonic: () => clock.now(),
    random: () => 0,
    sleep: (seconds: number, signal: AbortSignal) => clock.sleep(seconds, signal),
    ask,
    pings: () => false,
  };
  return { clock, environment };
}

function streaming() {
  const streams: Stream[] = [];
  const made = world(({ signal }) => {
    const body = createStream(signal);
    streams.push(body);
    return Promise.resolve({ status: 200, headers: {}, body });
  });
  return { ...made, stream: () => streams[0] };
}

const hanging: Ask = ({ signal }) =>
  new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new Error('aborted')));
  });

describe('an exchange is given up', () => {
  test('when no answer begins', async () => {
    const { clock, environment } = world(hanging);
    const limits = { silence: () => Infinity, total: 1000 };
    const began = clock.now();
    const sent = exchange(environment, asked, limits, new AbortController().signal, () => null);
    const ended = sent.catch((error: unknown) => [clock.now() - began, String(error)]);
    await clock.runUntil(began + 100);
    expect(await ended).toEqual([45, 'Error: no answer within 45 s']);
  });

  test.each([
    ['when nothing is received', { total: 1000 }, 10, 55, 'no answer within 45 s'],
    [
      'when it lasts too long',
      { silence: () => Infinity, total: 35 },
      10,
      35,
      'no complete answer within 35 s',
    ],
  ])('%s', async (_name, limits, step, after, message) => {
    const { clock, environment, stream } = streaming();
    const began = clock.now();
    const never = new AbortController().signal;
    let bytes = 0;
    const read = async ({ body }: ApiAnswer) => {
      for await (const chunk of body) expect(chunk).toHaveLength(3);
      return null;
    };
    const onBytes = (count: number) => {
      bytes += count;
    };
    const ended = exchange(environment, asked, limits, never, read, onBytes).catch(
      (error: unknown) => [clock.now() - began, (error as Error).message],
    );
    await clock.runUntil(began + step);
    stream()?.write(Buffer.from('abc'));
    await clock.runUntil(began + 25);
    if (limits.total < 100) stream()?.write(Buffer.from('abc'));
    await clock.runUntil(began + 100);
    expect(await ended).toEqual([after, message]);
    expect(bytes).toBe(limits.total < 100 ? 6 : 3);
  });
});

test('a busy reader does not count as silence', async () => {
  const { clock, environment, stream } = streaming();
  const limits = { total: Infinity };
  const never = new AbortController().signal;
  const chunks: string[] = [];
  const ended = exchange(environment, asked, limits, never, async ({ body }) => {
    for await (const chunk of body) {
      chunks.push(Buffer.from(chunk).toString());
      await clock.sleep(100);
    }
  });
  await clock.runUntil(clock.now());
  stream()?.write(Buffer.from('a'));
  await clock.runUntil(clock.now() + 50);
  stream()?.write(Buffer.from('b'));
  stream()?.end();
  await clock.runUntil(clock.now() + 300);
  await ended;
  expect(chunks).toEqual(['a', 'b']);
});

test('an aborted signal rejects a request, and every later one', async () => {
  const controller = new AbortController();
  const { clock, environment } = world(hanging);
  const limits = { total: Infinity };
  const sent = exchange(environment, asked, limits, controller.signal, () => null);
  controller.abort();
  await expect(sent).rejects.toThrow('aborted');
  const late = exchange(environment, asked, limits, controller.signal, () => null);
  await expect(late).rejects.toThrow();
  await clock.runUntil(clock.now());
});
