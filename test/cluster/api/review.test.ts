import { Readable } from 'node:stream';

import { beforeEach, describe, expect, test } from 'vitest';

import { createReviewer } from '../../../src/cluster/api/review.ts';
import type { ApiAnswer, ApiRequest } from '../../../src/cluster/api/transport/connection.ts';
import type { Environment } from '../../../src/cluster/api/transport/request.ts';
import type { FakeServer, VirtualClock } from '../../apiserver/server.ts';
import { createServer, statusAnswer, virtualClock } from '../../apiserver/server.ts';

let server: FakeServer;
let clock: VirtualClock;
let environment: Environment;
let problems: string[];
const onProblem = (text: string): number => problems.push(text);

const prometheus = 'system:serviceaccount:monitoring:prometheus';

beforeEach(() => {
  problems = [];
  clock = virtualClock();
  server = createServer(clock);
  environment = {
    now: () => clock.now(),
    monotonic: () => clock.now(),
    random: () => 0.5,
    sleep: (seconds, signal) => clock.sleep(seconds, signal),
    ask: server.ask,
    pings: () => true,
  };
  server.tokens.set('good', { username: prometheus, paths: ['/metrics'] });
  const extra = { 'authentication.kubernetes.io/node-name': ['node-a'] };
  server.tokens.set('agent', { username: 'agent', audience: 'endpoint-auditor', extra });
});

/** Access for requests of one client, unless they name another. */
function newAccess(ask = environment.ask) {
  const { access } = createReviewer({ ...environment, ask }, onProblem);
  return (token: string, path: string, client = '10.0.0.1') => access(token, path, client);
}

describe('access', () => {
  test.each([
    ['good', '/metrics', 'allowed', ''],
    ['good', '/endpoint-auditor', 'forbidden', `${prometheus} may not get /endpoint-auditor`],
    ['bad', '/metrics', 'unauthenticated', 'the API server rejects the token'],
    ['agent', '/metrics', 'unauthenticated', 'the API server rejects the token'],
  ])('of token %s to %s: %s', async (token, path, kind, why) => {
    expect(await newAccess()(token, path)).toEqual({ kind, why });
  });

  test('is reviewed once for requests at one time and for a minute', async () => {
    const access = newAccess();
    await Promise.all([access('good', '/metrics'), access('good', '/metrics')]);
    await clock.runUntil(clock.now() + 59);
    expect((await access('good', '/metrics')).kind).toBe('allowed');
    expect(server.asked).toHaveLength(2);
    server.tokens.delete('good');
    await clock.runUntil(clock.now() + 2);
    expect((await access('good', '/metrics')).kind).toBe('unauthenticated');
  });

  test('is refused for ten seconds, then reviewed again', async () => {
    const access = newAccess();
    expect((await access('new', '/metrics')).kind).toBe('unauthenticated');
    server.tokens.set('new', { username: 'new', paths: ['/metrics'] });
    expect((await access('new', '/metrics')).kind).toBe('unauthenticated');
    await clock.runUntil(clock.now() + 11);
    expect((await access('new', '/metrics')).kind).toBe('allowed');
  });

  test('is unavailable if the answer is longer than 1 MiB', async () => {
    const chunk = Buffer.alloc(512 * 1024, ' ');
    const body = () => Readable.from([chunk, chunk, chunk]);
    server.faults.before = () => ({ status: 201, headers: {}, body: body() });
    expect((await newAccess()('good', '/metrics')).kind).toBe('unavailable');
    expect(problems.join()).toContain('the answer is too long');
  });

  test('is unavailable without an answer, and is asked again at once', async () => {
    const access = newAccess();
    const why = 'the API server cannot review the token';
    server.faults.before = () => 'reset';
    expect(await access('good', '/metrics')).toEqual({ kind: 'unavailable', why });
    server.faults.before = () => statusAnswer(403, 'Forbidden', 'may not create tokenreviews');
    expect(await access('good', '/metrics')).toEqual({ kind: 'unavailable', why });
    server.faults.before = () => 'hang';
    const asked = access('good', '/metrics');
    await clock.runUntil(clock.now() + 5);
    expect((await asked).kind).toBe('unavailable');
    server.faults.before = () => null;
    expect((await access('good', '/metrics')).kind).toBe('allowed');
  });

  test('is not reviewed for a reason that is reported once until it changes', async () => {
    const access = newAccess();
    const begin = 'The API server cannot review tokens';
    server.faults.before = () => 'reset';
    for (const token of ['a', 'b', 'c']) await access(token, '/metrics');
    expect(problems).toEqual([`${begin}: connection reset`]);
    server.faults.before = () => statusAnswer(403, 'Forbidden', 'may not create tokenreviews');
    for (const token of ['a', 'b', 'c']) await access(token, '/metrics');
    expect(problems).toHaveLength(2);
    expect(problems[1]).toContain('may not create tokenreviews');
    server.faults.before = () => null;
    await access('good', '/metrics');
    server.faults.before = () => 'reset';
    await access('d', '/metrics');
    expect(problems.slice(2)).toEqual([`${begin}: connection reset`]);
  });

  test('to another path is not given by an earlier review of the token', async () => {
    server.tokens.set('both', { username: 'both', paths: ['/metrics', '/endpoint-auditor'] });
    const access = newAccess();
    expect((await access('both', '/endpoint-auditor')).kind).toBe('allowed');
    server.tokens.delete('both');
    await clock.runUntil(clock.now() + 59);
    expect((await access('both', '/metrics')).kind).toBe('unauthenticated');
  });

  test('ends a minute after the review began, also if the answers are slow', async () => {
    const ask = async (request: ApiRequest): Promise<ApiAnswer> => {
      await clock.sleep(3);
      return server.ask(request);
    };
    const access = newAccess(ask);
    const asked = [access('good', '/metrics')];
    await clock.runUntil(clock.now() + 5);
    asked.push(access('good', '/metrics'));
    await clock.runUntil(clock.now() + 2);
    expect((await Promise.all(asked)).map(({ kind }) => kind)).toEqual(['allowed', 'allowed']);
    server.tokens.delete('good');
    await clock.runUntil(clock.now() + 54);
    const last = access('good', '/metrics');
    await clock.runUntil(clock.now() + 4);
    expect((await last).kind).toBe('unauthenticated');
  });

  test('continues for ten minutes while the API server does not answer', async () => {
    const access = newAccess();
    expect((await access('good', '/metrics')).kind).toBe('allowed');
    expect((await access('bad', '/metrics')).kind).toBe('unauthenticated');
    server.faults.before = () => 'reset';
    await clock.runUntil(clock.now() + 599);
    expect((await access('good', '/metrics')).kind).toBe('allowed');
    expect((await access('bad', '/metrics')).kind).toBe('unavailable');
    await clock.runUntil(clock.now() + 2);
    expect((await access('good', '/metrics')).kind).toBe('unavailable');
  });

  describe('with random tokens', () => {
    const path = '/metrics';
    const busy = { kind: 'unavailable', why: 'too many reviews at one time' };

    /** The answers that exist without any answer of the API server, and how often it was asked. */
    const answersOf = async (asked: readonly Promise<unknown>[]) => {
      const answers: unknown[] = [];
      for (const answer of asked) void answer.then((one) => answers.push(one));
      await clock.runUntil(clock.now() + 1);
      return { answers, reviews: server.asked.length };
    };

    test.each([
      ['one client', 4, () => '10.0.0.1'],
      ['many clients', 16, (n: number) => `10.0.0.${n}`],
    ])('of %s: only %d are reviewed at one time', async (_name, most, clientOf) => {
      const access = newAccess();
      server.faults.before = () => 'hang';
      const asked = Array.from({ length: 100 }, (_, n) => access(`random ${n}`, path, clientOf(n)));
      const others = Array<unknown>(100 - most).fill(busy);
      expect(await answersOf(asked)).toEqual({ answers: others, reviews: most });
      await clock.runUntil(clock.now() + 5);
      server.faults.before = () => null;
      expect((await access('random 100', path)).kind).toBe('unauthenticated');
    });

    test('of one client, another client is reviewed', async () => {
      const access = newAccess();
      server.faults.before = () => 'hang';
      const asked = Array.from({ length: 100 }, (_, n) => access(`random ${n}`, path));
      expect((await answersOf(asked)).reviews).toBe(4);
      server.faults.before = () => null;
      expect((await access('good', path, '10.0.0.2')).kind).toBe('allowed');
    });

    test('of many clients, an accepted token is reviewed again', async () => {
      const access = newAccess();
      expect((await access('good', path)).kind).toBe('allowed');
      for (let n = 0; n < 1000; n++) await access(`bad ${n}`, path);
      await clock.runUntil(clock.now() + 61);
      server.asked.length = 0;
      server.faults.before = () => 'hang';
      const asked = Array.from({ length: 100 }, (_, n) => access(`random ${n}`, path, `${n}`));
      expect((await answersOf(asked)).reviews).toBe(16);
      server.faults.before = () => null;
      const again = access('good', path);
      expect((await answersOf([again])).answers).toEqual([{ kind: 'allowed', why: '' }]);
      expect(server.asked).toHaveLength(18);
    });
  });

  test('remembers a limited number of refused tokens', async () => {
    const access = newAccess();
    for (let n = 0; n < 1001; n++) await access(`bad ${n}`, '/metrics');
    const before = server.asked.length;
    await access('bad 1000', '/metrics');
    expect(server.asked.length).toBe(before);
    await access('bad 0', '/metrics');
    expect(server.asked.length).toBeGreaterThan(before);
  });
});

describe('the owner', () => {
  const ownerOf = (token: string, ask = environment.ask) =>
    createReviewer({ ...environment, ask }, onProblem).owner(token, 'endpoint-auditor');

  test('of a token for an audience is named, with the facts about its pod', async () => {
    expect(await ownerOf('agent')).toMatchObject({
      kind: 'allowed',
      owner: {
        username: 'agent',
        extra: { 'authentication.kubernetes.io/node-name': ['node-a'] },
      },
    });
  });

  test('of a token for the API server is unknown to another audience', async () => {
    expect((await ownerOf('good')).kind).toBe('unauthenticated');
  });

  test('is unknown if the server does not check audiences', async () => {
    const withoutAudiences = async (request: ApiRequest): Promise<ApiAnswer> => {
      const { body = '' } = request;
      return server.ask({ ...request, body: body.replace(/,"audiences":\[[^\]]*\]/, '') });
    };
    expect(await ownerOf('good', withoutAudiences)).toEqual({
      kind: 'unauthenticated',
      why: 'the API server has not checked the audience',
    });
  });
});
