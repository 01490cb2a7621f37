// What a checkpoint states of a Service is used only if it has the right form.

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { difference } from '../../../src/audit/finding/difference.ts';
import {
  createPendingFindings,
  type PendingDifference,
} from '../../../src/audit/pending/pending.ts';
import { createReopening, readSavedService } from '../../../src/audit/service/checkpoint.ts';

const clock = {
  difference: { code: 'slice-endpoint-missing', subject: '' },
  severity: 'warning',
  cause: null,
  operation: 'add',
  changes: [],
  since: 1,
  unseen: 0,
  causeAt: 1,
  lateSince: 1,
  shown: false,
  proven: false,
  byInput: true,
  openedAt: null,
};
const item = { ...clock, findingOpenedAt: null, lesser: [clock] };
const saved = {
  wokenAt: null,
  slicesChangedAt: 5,
  relabelled: ['uid'],
  relabelledMirrors: [],
  items: { 'endpointslices 10.0.0.1': [item] },
};

test('a state of the right form is read', () => {
  expect(readSavedService(saved)).toEqual(saved);
});

test('when changes were missed while a finding was open is read', () => {
  const doubted = { ...saved, items: { a: [{ ...item, doubtedAt: 7 }] } };
  expect(readSavedService(doubted)).toEqual(doubted);
});

test.each([
  null,
  'text',
  {},
  { ...saved, wokenAt: 'now' },
  { ...saved, relabelled: [1] },
  { ...saved, items: { a: [{ ...item, difference: { code: 'toString' } }] } },
  { ...saved, items: { a: [{ ...item, cause: 'unknown' }] } },
  { ...saved, items: { a: [{ ...item, since: null }] } },
  { ...saved, items: { a: [{ ...item, severity: 'none' }] } },
  { ...saved, items: { a: [{ ...item, doubtedAt: null }] } },
  { ...saved, items: { a: [{ ...item, doubtedAt: '7' }] } },
  { ...saved, items: { a: [{ ...item, lesser: [{}] }] } },
  { ...saved, items: { a: [{ ...item, changes: ['x'] }] } },
  { ...saved, items: { a: item } },
])('another form is refused: %j', (value) => {
  expect(readSavedService(value)).toBe(null);
});

describe('what was open before a restart', () => {
  /** Two differences of one finding, open since 1030 and 1040, which wait to be confirmed. */
  function waiting() {
    const state = { isConfirmed: false };
    const opened: Finding[] = [];
    const reopening = createReopening();
    const settle = createPendingFindings({
      ...{ window: 30, keep: 9, admit: () => state.isConfirmed },
      openedBefore: (due) => reopening.take(due),
      onOpen: (finding) => opened.push(finding),
    });
    const items = [1030, 1040].map((openedAt): PendingDifference => {
      const item = {
        difference: difference('slice-conditions-different', 'object', 'field', 'want', 'got'),
        ...({ output: 'endpointslices', severity: 'warning', cause: null } as const),
        ...{ since: openedAt - 30, unseen: 0, openedAt: null, gone: false },
        ...{ missed: { count: 0, latest: new Map() }, missedCount: 0 },
      };
      reopening.add(item, { finding: 1030, difference: openedAt });
      return item;
    });
    settle.openNow(
      items.map((item) => ({ item, namespace: 'shop', service: 'web' })),
      5000,
    );
    return { state, settle, items, opened };
  }

  test('opens at once with all of its differences when it is confirmed', () => {
    const { state, settle, items, opened } = waiting();
    expect(opened).toEqual([]);
    state.isConfirmed = true;
    settle.retry(5001);
    expect(opened.map((it) => it.openedAt)).toEqual([1030]);
    expect(opened[0]?.differences).toHaveLength(2);
    expect(items.map((it) => it.openedAt)).toEqual([1030, 1040]);
  });

  test('opens as a new finding if changes were missed before it is confirmed', () => {
    const { state, settle, items } = waiting();
    for (const { missed } of items) missed?.latest.set('endpointslices', { at: 5004, count: 1 });
    settle.retry(5005);
    state.isConfirmed = true;
    settle.advance(5034);
    const [finding] = settle.open();
    expect(finding).toMatchObject({ since: 5004, openedAt: 5034 });
    expect(items.map((it) => it.openedAt)).toEqual([5034, 5034]);
  });
});
