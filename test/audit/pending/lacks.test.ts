// What the streams owe, as the progress of the watches knows it.

import { describe, expect, test } from 'vitest';

import type { WatchProgress } from '../../../src/audit/pending/progress.ts';
import { createWatchProgress } from '../../../src/audit/pending/progress.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';

function cutOf(merged: readonly Resource[] = []): WatchProgress {
  const cut = createWatchProgress(merged);
  for (const resource of resources) {
    cut.setState(resource, 'listing', 0);
    cut.bookmark(resource, '100', 5);
    cut.setState(resource, 'synced', 5);
  }
  return cut;
}

const observe = (cut: WatchProgress, resourceVersion: string, at: number, key = 'shop/x') =>
  cut.observe('pods', { key, resourceVersion }, at);

const lack = (cut: WatchProgress, version: string, at: number, isDeletion = false): number =>
  cut.lack('pods', 'shop/x', { version, at, isDeletion });

describe('a stream owes what a read has shown', () => {
  test('until it has delivered the newest version of the object', () => {
    const cut = cutOf();
    expect(cut.isBehind('endpoints', 6)).toBe(false);
    lack(cut, '110', 6);
    lack(cut, '120', 7);
    expect([cut.isBehind('endpoints', 8), cut.isBehind('mirrored', 8)]).toEqual([true, false]);
    observe(cut, '105', 8);
    observe(cut, '110', 8);
    expect(cut.isBehind('endpoints', 8)).toBe(true);
    // It claims to have delivered the object as well, so it has lost it.
    observe(cut, '121', 9, 'shop/y');
    expect(cut.isBehind('endpoints', 9)).toBe(true);
    observe(cut, '120', 9);
    expect(cut.isBehind('endpoints', 9)).toBe(false);
  });

  test.each([
    ['the object', (cut: WatchProgress) => observe(cut, '120', 8), false],
    ['a bookmark', (cut: WatchProgress) => cut.bookmark('pods', '120', 8), true],
    ['another object', (cut: WatchProgress) => observe(cut, '121', 8, 'shop/y'), true],
  ])('after %s, if the resource has a stream per namespace: %s', (_, deliver, is) => {
    const cut = cutOf(['pods']);
    lack(cut, '120', 7);
    deliver(cut);
    expect(cut.isBehind('endpoints', 8)).toBe(is);
  });

  test('until the deletion of an object that the read did not have', () => {
    const cut = cutOf();
    lack(cut, '120', 7, true);
    expect(cut.isBehind('endpoints', 8)).toBe(true);
    observe(cut, '101', 8);
    expect(cut.isBehind('endpoints', 8)).toBe(false);
  });

  test('until a list, or for two minutes: then it has lost it', () => {
    const cut = cutOf();
    lack(cut, '120', 7);
    expect([cut.isBehind('endpoints', 126.9), cut.isBehind('endpoints', 127)]).toEqual([
      true,
      false,
    ]);
    lack(cut, '130', 130);
    expect(cut.isBehind('endpoints', 131)).toBe(true);
    cut.setState('pods', 'relisting', 132);
    cut.bookmark('pods', '115', 132);
    expect(cut.isBehind('endpoints', 132)).toBe(false);
  });
});
