// When the connection to the API server counts as lost and as restored.

import { expect, test } from 'vitest';

import type { ConnectionChange } from '../../../src/cluster/api/connection-state.ts';
import { createConnectionState } from '../../../src/cluster/api/connection-state.ts';
import type { FailureReason } from '../../../src/model/connection.ts';

function begin() {
  let now = 100;
  const changes: ConnectionChange[] = [];
  const state = createConnectionState(
    () => now,
    (change) => changes.push(change),
  );
  const words = () =>
    changes.splice(0).map((change) => (change.kind === 'lost' ? change.failure.reason : change));
  const fail = (request: Parameters<typeof state.failed>[0], reason: FailureReason) =>
    state.failed(request, { reason, message: `because of ${reason}`, advice: null });
  return { state, words, fail, pass: (seconds: number) => (now += seconds) };
}

test('a loss is reported once per reason, and its end once', () => {
  const { state, words, fail, pass } = begin();
  fail('pods', 'dial');
  pass(5);
  fail('services', 'dial');
  fail('pods', 'timeout');
  fail('pods', 'dial');
  expect(words()).toEqual(['dial', 'timeout']);
  expect(state.lost()).toMatchObject({ reason: 'dial', message: 'because of dial', since: 100 });
  expect(state.hasAnswered()).toBe(false);
  state.succeeded('pods');
  expect(words()).toEqual([]);
  pass(7);
  state.succeeded('services');
  expect(words()).toEqual([{ kind: 'restored', seconds: 12 }]);
  expect(state.lost()).toBeNull();
  state.succeeded('services');
  expect(words()).toEqual([]);
});

test('a missing permission is counted, and is no loss', () => {
  const { state, words, fail } = begin();
  fail('pods', 'forbidden');
  expect([words(), state.lost()]).toEqual([[], null]);
  expect(state.hasAnswered()).toBe(true);
  expect(state.errors.pods.forbidden).toBe(1);
  fail('pods', 'unauthorized');
  fail('pods', 'forbidden');
  expect(words()).toEqual(['unauthorized', { kind: 'restored', seconds: 0 }]);
});

test('a stream of a resource that fails is not restored by another', () => {
  const { state, words } = begin();
  const failure = { reason: 'dial', message: 'refused', advice: null } as const;
  state.failed('pods', failure, 'pods shop');
  state.failed('pods', failure, 'pods bank');
  state.succeeded('pods', 'pods bank');
  expect(words()).toEqual(['dial']);
  state.succeeded('pods', 'pods shop');
  expect(words()).toEqual([{ kind: 'restored', seconds: 0 }]);
  expect(state.errors.pods.dial).toBe(2);
});

test('every request and reason has a count', () => {
  const { state, fail } = begin();
  fail('version', 'tls');
  const counts = Object.values(state.errors).flatMap((reasons) => Object.values(reasons));
  expect(counts.filter((count) => count === 1)).toHaveLength(1);
  expect(new Set(counts)).toEqual(new Set([0, 1]));
});
