import { describe, expect, test } from 'vitest';

import { denialText, newCounters, outcomeOf } from '../../../src/cluster/api/watch-result.ts';
import { readStatus } from '../../../src/cluster/decode/frame.ts';
import { resources } from '../../../src/model/objects.ts';

const status = (code: number, reason = '', details = {}) =>
  readStatus({ kind: 'Status', code, reason, message: 'said', details }, code);

describe('refusals', () => {
  test.each([
    [status(401), { kind: 'unauthorised' }],
    [status(410, 'Expired'), { kind: 'relist', reason: 'expired' }],
    [status(410, 'Gone'), { kind: 'relist', reason: 'gone' }],
    [status(429), { kind: 'throttled', seconds: null }],
    [status(429, '', { retryAfterSeconds: 0.5 }), { kind: 'throttled', seconds: null }],
    [status(503, '', { retryAfterSeconds: 0.5 }), { kind: 'failed', reason: 'status' }],
    [status(429, '', { retryAfterSeconds: 1 }), { kind: 'throttled', seconds: 1 }],
    [status(429, '', { retryAfterSeconds: 3 }), { kind: 'throttled', seconds: 3 }],
    [status(503, '', { retryAfterSeconds: 3 }), { kind: 'throttled', seconds: 3 }],
    [status(429, '', { retryAfterSeconds: 3e6 }), { kind: 'throttled', seconds: 3600 }],
    [status(503, '', { retryAfterSeconds: 3e6 }), { kind: 'throttled', seconds: 3600 }],
    [status(500), { kind: 'failed', reason: 'status' }],
    [status(422), { kind: 'failed', reason: 'status' }],
    [
      status(504, 'Timeout', { causes: [{ reason: 'ResourceVersionTooLarge' }] }),
      { kind: 'failed', reason: 'older' },
    ],
  ])('%o', (refusal, want) => {
    expect(outcomeOf(refusal, 'watch', false)).toEqual(want);
  });

  test.each([403, 404, 405])('%i is for want of a permission or a resource', (code) => {
    expect(outcomeOf(status(code), 'list', false)).toMatchObject({ kind: 'denied', verb: 'list' });
  });

  test.each([400, 422, 501])('%i: no WatchList', (code) => {
    expect(outcomeOf(status(code), 'watch', true)).toEqual({ kind: 'no-watch-list' });
  });
});

test('a missing permission says what works without it, of every resource', () => {
  const texts = resources.map((resource) => denialText(resource, null, 'list', status(403)));
  expect(new Set(texts).size).toBe(resources.length);
  expect(texts[0]).toBe(
    'Not allowed to list nodes: Without it the zones, hints and missing endpoints of ' +
      'EndpointSlices are unknown',
  );
  const inNamespace = denialText('pods', 'shop', 'watch', status(404));
  expect(inNamespace).toMatch(/^The server has no way to watch pods in namespace shop: /);
});

test('counters begin at zero, each reflector with its own', () => {
  const [one, other] = [newCounters(), newCounters()];
  expect(JSON.stringify(one)).not.toMatch(/[1-9]/);
  one.relists.gone++;
  one.events++;
  expect(JSON.stringify(other)).not.toMatch(/[1-9]/);
});
