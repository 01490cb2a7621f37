// The streams of several namespaces as one: when the resource is synced, and up to which version.

import { expect, test } from 'vitest';

import { mergedStatus, mergeStreams } from '../../../src/cluster/api/merged-streams.ts';
import { newStatus } from '../../../src/cluster/api/listwatch.ts';
import type { LiveEntry, WatchState } from '../../../src/cluster/decode/entry.ts';
import { project } from '../../../src/cluster/decode/json-objects.ts';

const resource = 'pods';

function start(...namespaces: readonly string[]) {
  const delivered: string[] = [];
  const streams = mergeStreams(resource, namespaces, (entries) => {
    for (const entry of entries) delivered.push(brief(entry));
  });
  const stream = (namespace: string) => {
    const deliver = (...entries: LiveEntry[]) => {
      void streams.get(namespace)?.(entries);
      return delivered.splice(0);
    };
    const enter = (state: WatchState): LiveEntry => ({ kind: 'watch', at: 1, resource, state });
    return {
      enter: (state: WatchState) => deliver(enter(state)),
      /** A WatchList that is complete. */
      list: (version: string) =>
        deliver(
          { kind: 'synced', at: 1, resource },
          { kind: 'progress', at: 1, resource, resourceVersion: version },
          enter('synced'),
        ),
      event(version: string) {
        const metadata = { name: 'a', namespace, uid: 'u', resourceVersion: version };
        const { object } = project(resource, { metadata, spec: {}, status: {} }, 1, {});
        if (object === undefined) throw new Error('No object');
        return deliver({ kind: 'event', event: { resource, type: 'modified', object, at: 1 } });
      },
      bookmark: (version: string) =>
        deliver({ kind: 'progress', at: 1, resource, resourceVersion: version }),
    };
  };
  return namespaces.map(stream) as [ReturnType<typeof stream>, ReturnType<typeof stream>];
}

function brief(entry: LiveEntry): string {
  if (entry.kind === 'event') return `event ${entry.event.object.resourceVersion}`;
  if (entry.kind === 'progress') return `up to ${entry.resourceVersion}`;
  if (entry.kind === 'watch') return entry.state;
  if (entry.kind === 'access') return `${entry.namespace} ${entry.permitted ? 'may' : 'may not'}`;
  return entry.kind;
}

test('a resource is complete and synced when all its streams are', () => {
  const [one, other] = start('one', 'other');
  expect([one.enter('listing'), other.enter('listing')]).toEqual([['listing'], []]);
  expect(one.list('100')).toEqual([]);
  expect(one.event('103')).toEqual(['event 103']);
  expect(other.list('102')).toEqual(['synced', 'up to 102', 'synced']);
});

test('it is known up to the oldest version of its streams', () => {
  const [one, other] = start('one', 'other');
  one.list('100');
  other.list('100');
  expect(one.event('105')).toEqual(['event 105']);
  expect(other.event('103')).toEqual(['event 103', 'up to 103']);
  expect(other.bookmark('110')).toEqual(['up to 105']);
  expect(other.bookmark('111')).toEqual([]);
  expect(one.bookmark('109')).toEqual(['up to 109']);
});

test('one that is interrupted interrupts the resource, whatever the other does', () => {
  const [one, other] = start('one', 'other');
  one.list('100');
  other.list('100');
  expect(one.enter('stale')).toEqual(['stale']);
  expect(other.enter('stale')).toEqual([]);
  expect(other.bookmark('120')).toEqual([]);
  expect(other.enter('synced')).toEqual([]);
  expect(one.enter('relisting')).toEqual(['relisting']);
  // The history of the server went back.
  expect(one.list('90')).toEqual(['synced', 'up to 90', 'synced']);
  expect(one.bookmark('130')).toEqual(['up to 120']);
});

test('an item of a list does not show that its stream has come to its version', () => {
  const [one, other] = start('one', 'other');
  one.list('100');
  other.list('100');
  one.enter('relisting');
  expect(one.event('140')).toEqual(['event 140']);
  expect(other.bookmark('150')).toEqual([]);
  expect(one.list('141')).toEqual(['synced', 'up to 141', 'synced']);
});

test('one that is not permitted is left out until it is permitted', () => {
  const [one, other] = start('one', 'other');
  one.list('100');
  other.enter('listing');
  expect(other.enter('off')).toEqual(['other may not', 'synced', 'up to 100', 'synced']);
  expect(one.bookmark('110')).toEqual(['up to 110']);
  expect(other.list('120')).toEqual(['synced', 'up to 110', 'other may']);
  expect(one.bookmark('130')).toEqual(['up to 120']);
});

test('without any that is permitted, the resource is off, and comes back complete', () => {
  const [one, other] = start('one', 'other');
  expect(one.enter('off')).toEqual(['one may not', 'listing']);
  expect(other.enter('off')).toEqual(['other may not', 'off']);
  expect(one.list('120')).toEqual(['one may', 'synced', 'up to 120', 'synced']);
});

test('the status has the worst state, the latest time and the sums of all counters', () => {
  const streams = [newStatus(1), newStatus(2), newStatus(3)] as const;
  streams.forEach(({ counters }, index) => {
    counters.events = 10 ** index;
    counters.relists.gap = 10 ** index;
    counters.reconnects.eof = 10 ** index;
  });
  const status = mergedStatus(streams);
  const states = (...names: WatchState[]) => {
    streams.forEach((stream, index) => Object.assign(stream, { state: names[index] }));
    return status.state;
  };
  expect(states('synced', 'stale', 'off')).toBe('stale');
  expect(states('relisting', 'stale', 'synced')).toBe('relisting');
  expect(states('synced', 'synced', 'off')).toBe('synced');
  expect(states('off', 'off', 'off')).toBe('off');
  expect(status.since).toBe(3);
  expect(status.counters).toMatchObject({
    events: 111,
    lists: 0,
    relists: { gap: 111, gone: 0 },
    reconnects: { eof: 111 },
  });
});
