// What a checkpoint states of a Service is used only if it has the right form.

import { expect, test } from 'vitest';

import { readSavedService } from '../../../src/audit/service/checkpoint.ts';

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
