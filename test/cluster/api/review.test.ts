import { beforeEach, describe, expect, test } from 'vitest';

import { createReviewer } from '../../../src/cluster/api/review.ts';
import type { ApiAnswer, ApiRequest } from '../../../src/cluster/api/transport/connection.ts';
import type { Environment } from '../../../src/cluster/api/transport/request.ts';
import type { FakeServer, VirtualClock } from '../../apiserver/server.ts';
import { createServer, statusAnswer, virtualClock } from '../../apiserver/server.ts';

let server: FakeServer;
let clock: VirtualClock;
let environment: Environment;

const prometheus = 'system:serviceaccount:monitoring:prometheus';

beforeEach(() => {
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

describe('access', () => {
  test.each([
    ['good', '/metrics', 'allowed', ''],
    ['good', '/endpoint-auditor', 'forbidden', `${prometheus} may not get /endpoint-auditor`],
    ['bad', '/metrics', 'unauthenticated', 'the API server rejects the token'],
    ['agent', '/metrics', 'unauthenticated', 'the API server rejects the token'],
  ])('of token %s to %s: %s', async (token, path, kind, why) => {
    expect(await createReviewer(environment).access(token, path)).toEqual({ kind, why });
  });

  test('is reviewed once for requests at one time and for a minute', async () => {
    const { access } = createReviewer(environment);
    await Promise.all([access('good', '/metrics'), access('good', '/metrics')]);
    await clock.runUntil(clock.now() + 59);
    expect((await access('good', '/metrics')).kind).toBe('allowed');
    expect(server.asked).toHaveLength(2);
    server.tokens.delete('good');
    await clock.runUntil(clock.now() + 2);
    expect((await access('good', '/metrics')).kind).toBe('unauthenticated');
  });

  test('is refused for ten seconds, then reviewed again', async () => {
    const { access } = createReviewer(environment);
    expect((await access('new', '/metrics')).kind).toBe('unauthenticated');
    server.tokens.set('new', { username: 'new', paths: ['/metrics'] });
    expect((await access('new', '/metrics')).kind).toBe('unauthenticated');
    await clock.runUntil(clock.now() + 11);
    expect((await access('new', '/metrics')).kind).toBe('allowed');
  });

  test('is unavailable without an answer, and is asked again at once', async () => {
    const { access } = createReviewer(environment);
    server.faults.before = () => 'reset';
    const why = 'the API server cannot review the token: connection reset';
    expect(await access('good', '/metrics')).toEqual({ kind: 'unavailable', why });
    server.faults.before = () => statusAnswer(403, 'Forbidden', 'may not create tokenreviews');
    const refused = await access('good', '/metrics');
    expect(refused.kind).toBe('unavailable');
    expect(refused.why).toContain('may not create tokenreviews');
    server.faults.before = () => 'hang';
    const asked = access('good', '/metrics');
    await clock.runUntil(clock.now() + 11);
    expect((await asked).why).toContain('no complete answer within 10 s');
    server.faults.before = () => null;
    expect((await access('good', '/metrics')).kind).toBe('allowed');
  });

  test('remembers a limited number of tokens', async () => {
    const { access } = createReviewer(environment);
    await access('good', '/metrics');
    for (let n = 0; n < 1000; n++) await access(`bad ${n}`, '/metrics');
    const before = server.asked.length;
    await access('bad 999', '/metrics');
    expect(server.asked.length).toBe(before);
    await access('good', '/metrics');
    expect(server.asked.length).toBeGreaterThan(before);
  });
});

describe('the owner', () => {
  test('of a token for an audience is named, with the facts about its pod', async () => {
    const reviewed = await createReviewer(environment).owner('agent', 'endpoint-auditor');
    expect(reviewed).toMatchObject({
      kind: 'allowed',
      owner: {
        username: 'agent',
        extra: { 'authentication.kubernetes.io/node-name': ['node-a'] },
      },
    });
  });

  test('of a token for the API server is unknown to another audience', async () => {
    const reviewed = await createReviewer(environment).owner('good', 'endpoint-auditor');
    expect(reviewed.kind).toBe('unauthenticated');
  });

  test('is unknown if the server does not check audiences', async () => {
    const withoutAudiences = async (request: ApiRequest): Promise<ApiAnswer> => {
      const { body = '' } = request;
      return server.ask({ ...request, body: body.replace(/,"audiences":\[[^\]]*\]/, '') });
    };
    const { owner } = createReviewer({ ...environment, ask: withoutAudiences });
    expect(await owner('good', 'endpoint-auditor')).toEqual({
      kind: 'unauthenticated',
      why: 'the API server has not checked the audience',
    });
  });
});
