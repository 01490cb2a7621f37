import { describe, expect, test } from 'vitest';

import {
  completeListing,
  newListing,
  takeChange,
  takeItem,
} from '../../../src/cluster/api/version-filter.ts';
import type { AnyObject, WatchEvent } from '../../../src/model/objects.ts';
import { pod } from '../../build.ts';

const object = (name: string, version: string, uid = 'uid-1') =>
  pod({ name, resourceVersion: version, uid });

function event(type: WatchEvent['type'], name: string, version: string, uid?: string): WatchEvent {
  return { resource: 'pods', type, object: object(name, version, uid), at: 9 };
}

const heldOf = (...objects: ReturnType<typeof object>[]) =>
  new Map(objects.map((one) => [one.key, one]));

const brief = ({ type, object: { name, uid, resourceVersion }, gap }: WatchEvent) =>
  `${type} ${name} ${uid} ${resourceVersion}${gap === true ? ' gap' : ''}`;

describe('a change, where a has version 10 and all is known up to 20', () => {
  const held = heldOf(object('a', '10'));
  test.each([
    ['newer', event('modified', 'a', '21'), ['modified a uid-1 21']],
    ['late, but newer than what is held', event('modified', 'a', '15'), ['modified a uid-1 15']],
    ['repeated', event('modified', 'a', '10'), 'repeated'],
    ['older', event('modified', 'a', '9'), 'stale'],
    ['deleted', event('deleted', 'a', '21'), ['deleted a uid-1 21']],
    ['deleted, with its last version', event('deleted', 'a', '10'), ['deleted a uid-1 10']],
    ['an old deletion', event('deleted', 'a', '9'), 'stale'],
    [
      'another uid',
      event('modified', 'a', '21', 'uid-2'),
      ['deleted a uid-1 10 gap', 'added a uid-2 21 gap'],
    ],
    [
      'another uid, gone again',
      event('deleted', 'a', '21', 'uid-2'),
      ['deleted a uid-1 10 gap', 'added a uid-2 21 gap', 'deleted a uid-2 21'],
    ],
    [
      'deleted, in a state that was not seen',
      { ...event('deleted', 'a', '21'), object: { ...object('a', '21'), ready: false } },
      ['modified a uid-1 21 gap', 'deleted a uid-1 21'],
    ],
    ['an uid before it', event('deleted', 'a', '9', 'uid-0'), 'stale'],
    ['new', event('added', 'b', '21'), ['added b uid-1 21']],
    ['changed, but not held', event('modified', 'b', '21'), ['added b uid-1 21 gap']],
    [
      'deleted, but not held',
      event('deleted', 'b', '21'),
      ['added b uid-1 21 gap', 'deleted b uid-1 21'],
    ],
    ['an old deletion of what is not held', event('deleted', 'b', '20'), 'repeated'],
    ['not held and behind its time', event('modified', 'b', '20'), 'stale'],
    ['no number', event('modified', 'a', 'x'), ['modified a uid-1 x']],
    ['no number, and new', event('added', 'b', 'x'), ['added b uid-1 x']],
  ])('%s', (_name, change, want) => {
    const taken = takeChange(held, '20', change);
    expect(typeof taken === 'string' ? taken : taken.map(brief)).toEqual(want);
  });
});

describe('a list, where a and b have versions 10 and 11 and all is known up to 20', () => {
  const held = heldOf(object('a', '10'), object('b', '11'));
  const listed = (items: WatchEvent[], known: string | null = '20', doubted = false) => {
    const listing = newListing(held, known, doubted);
    const now = items.flatMap((item) => takeItem(listing, item));
    const place = { resource: 'pods', at: 9 } as const;
    const then = [...completeListing(listing, place, doubted)].filter((one) => one !== null);
    return { now: now.map(brief), then: then.map(brief) };
  };
  const b = event('added', 'b', '11');

  test('an equal object changes nothing, an absent object is deleted', () => {
    expect(listed([b])).toEqual({ now: [], then: ['deleted a uid-1 10 gap'] });
  });

  test.each([
    ['newer than all', event('added', 'a', '21'), ['modified a uid-1 21 gap'], []],
    [
      'newer, another uid',
      event('added', 'a', '21', 'uid-2'),
      ['deleted a uid-1 10 gap', 'added a uid-2 21 gap'],
      [],
    ],
    ['not newer than all', event('added', 'a', '15'), [], ['modified a uid-1 15 gap']],
    ['older than held', event('added', 'a', '9'), [], ['modified a uid-1 9 gap']],
    [
      'an older uid',
      event('added', 'a', '9', 'uid-0'),
      [],
      ['deleted a uid-1 10 gap', 'added a uid-0 9 gap'],
    ],
  ])('%s', (_name, item, now, then) => {
    expect(listed([b, item])).toEqual({ now, then });
  });

  test('an object that is not cached', () => {
    const a = event('added', 'a', '10');
    expect(listed([a, b, event('added', 'c', '21')]).now).toEqual(['added c uid-1 21 gap']);
    expect(listed([a, b, event('added', 'c', '12')]).then).toEqual(['added c uid-1 12 gap']);
    expect(listed([a, b, event('added', 'c', '12')], null).now).toEqual(['added c uid-1 12']);
  });

  test('changes before it is complete take the place of items', () => {
    const a = event('added', 'a', '15');
    const { now, then } = listed([a, b, event('deleted', 'b', '22'), event('modified', 'a', '23')]);
    expect(now).toEqual(['modified a uid-1 23 gap']);
    expect(then).toEqual(['deleted b uid-1 11 gap']);
  });

  test('after a restore of the server, equal versions are no proof', () => {
    const { now, then } = listed([event('added', 'a', '10'), event('added', 'b', '9')], '20', true);
    expect(now).toEqual([]);
    expect(then).toEqual(['modified a uid-1 10 gap', 'modified b uid-1 9 gap']);
  });
});

describe('a first list, when the cache is empty', () => {
  const held = new Map<string, AnyObject>();
  const listing = newListing(held, null, false);
  const take = (item: WatchEvent): string[] => {
    const events = takeItem(listing, item);
    for (const { type, object } of events) {
      if (type === 'deleted') held.delete(object.key);
      else held.set(object.key, object);
    }
    return events.map(brief);
  };

  test('all of it is news, and what was deleted before its end too', () => {
    expect(take(event('added', 'a', '10'))).toEqual(['added a uid-1 10']);
    expect(take(event('added', 'b', '11'))).toEqual(['added b uid-1 11']);
    expect(take(event('deleted', 'c', '12'))).toEqual([]);
    expect(take(event('deleted', 'a', '13'))).toEqual(['deleted a uid-1 10 gap']);
    expect(take(event('added', 'b', '9'))).toEqual([]);
    expect(take(event('added', 'a', '14', 'uid-2'))).toEqual(['added a uid-2 14']);
    const rest = completeListing(listing, { resource: 'pods', at: 9 }, false);
    expect([...rest].map((one) => one && brief(one))).toEqual(['modified b uid-1 9 gap']);
  });
});

test('the end of a long list can be interrupted', () => {
  const names = Array.from({ length: 5000 }, (_, at) => `pod-${String(at)}`);
  const held = new Map(names.map((name) => [`shop/${name}`, pod({ name })]));
  const listing = newListing(held, null, false);
  for (const key of held.keys()) listing.seen?.add(key);
  const found = [...completeListing(listing, { resource: 'pods', at: 1 }, false)];
  expect(new Set(found)).toEqual(new Set([null]));
  expect(found.length).toBeGreaterThan(3);
});
