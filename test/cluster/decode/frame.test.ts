import { expect, test } from 'vitest';

import { bookmarkFrame, pageFrame, readStatus } from '../../../src/cluster/decode/frame.ts';

test.each([
  [null, { code: 500, reason: '', message: '', retryAfter: null, causes: [] }],
  [
    {
      code: 429,
      reason: 'R',
      message: 'm',
      details: { retryAfterSeconds: 2, causes: [{ reason: 'C' }, 7] },
    },
    { code: 429, reason: 'R', message: 'm', retryAfter: 2, causes: ['C'] },
  ],
])('the status %o', (value, want) => {
  expect(readStatus(value, 500)).toEqual(want);
});

test('a bookmark may end the initial events', () => {
  const annotations = { 'k8s.io/initial-events-end': 'true' };
  const metadata = { resourceVersion: '7', annotations };
  expect(bookmarkFrame({ metadata })).toEqual({ kind: 'bookmark', version: '7', initialEnd: true });
  expect(bookmarkFrame(null)).toEqual({ kind: 'bookmark', version: '', initialEnd: false });
});

test('a page has a version, and the token of the next page', () => {
  const list = { kind: 'PodList', metadata: { resourceVersion: '7', continue: 'more' } };
  const page = { kind: 'page', isOther: false, version: '7', next: 'more' };
  expect(pageFrame(list, 'pods')).toEqual(page);
  expect(pageFrame({ ...list, metadata: {} }, 'pods')).toBeNull();
});

test.each([
  ['ServiceList', { resourceVersion: '7' }, true],
  ['Status', {}, true],
  ['PodList', { resourceVersion: '7' }, false],
  [undefined, { resourceVersion: '7' }, false],
])('%s with %o is no list of pods: %s', (kind, metadata, isOther) => {
  expect(pageFrame({ kind, metadata }, 'pods')).toMatchObject({ isOther });
});
