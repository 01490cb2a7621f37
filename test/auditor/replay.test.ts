// The pace of a replay.

import { describe, expect, test } from 'vitest';

import { momentSince, replay } from '../../src/auditor/replay.ts';
import { resources } from '../../src/model/objects.ts';
import {
  added,
  auditorOf,
  clock,
  end,
  header,
  report,
  rawService,
  stream,
  synced,
  watches,
} from '../build.ts';

test('a time of day is the first one since the recording began', () => {
  const begun = Date.parse('2026-11-21T23:50:10.5Z') / 1000;
  const dateOf = (moment: Parameters<typeof momentSince>[0]): string =>
    new Date(momentSince(moment, begun) * 1000).toISOString();
  expect(dateOf({ ofDay: 23 * 3600 + 50 * 60 + 10 })).toBe('2026-11-21T23:50:10.000Z');
  expect(dateOf({ ofDay: 600 })).toBe('2026-11-22T00:10:00.000Z');
  expect(momentSince(7, begun)).toBe(7);
});

describe('a replay', () => {
  const entries = [header(100), added('services', rawService, 100), ...synced(100), end(101)];

  test('stops at `until`', async () => {
    const { auditor } = auditorOf(30);
    await replay(auditor, stream([...entries.slice(0, -1), clock(140), end(150)]), {
      speed: Infinity,
      until: 120,
    });
    expect(auditor.now()).toBe(120);
    expect(report(auditor).findings).toEqual([]);
  });

  test('stops at a time of day', async () => {
    const { auditor } = auditorOf(30);
    const rest = [...entries.slice(0, -1), clock(140), end(150)];
    await replay(auditor, stream(rest), { speed: Infinity, until: { ofDay: 120 } });
    expect(auditor.now()).toBe(120);
  });

  test('ends windows between entries at its speed, and stops when it is aborted', async () => {
    const { auditor, opened } = auditorOf(30);
    const stop = new AbortController();
    // 1,000 times its speed: the window of 30 s is over after 30 ms, the next entry is an hour
    // away.
    const running = replay(auditor, stream([...entries.slice(0, -1), clock(3700)]), {
      speed: 1000,
      until: null,
      signal: stop.signal,
    });
    await expect.poll(() => opened.length).toBe(2);
    expect(auditor.now()).toBe(130);
    stop.abort();
    await running;
    expect(auditor.now()).toBe(130);
  });
});

test.each([
  ['that is served leaves few Services for a scrape to count', true, 256],
  ['whose end alone is asked for counts all Services at the end', false, 600],
])('a replay %s', async (_name, isServed, waiting) => {
  const { auditor } = auditorOf(30, { isServed });
  const pace = { speed: Infinity, until: null };
  await replay(auditor, stream([header(100), ...synced(100), clock(101)]), pace);
  const totals = auditor.refreshTotals();
  const named = [...Array(600).keys()].map((index) => {
    const metadata = { ...rawService.metadata, name: `web-${String(index)}` };
    return added('services', { ...rawService, metadata }, 102);
  });
  await replay(auditor, stream([...named, clock(103)]), pace);
  expect(totals.waiting.size).toBe(waiting);
  expect(auditor.refreshTotals().services.size).toBe(600);
});

describe('a watch that is lost in a recording', () => {
  const start = [
    header(100),
    ...watches(100, 'listing'),
    added('services', rawService, 100),
    ...synced(100),
    ...watches(100, 'synced'),
  ];

  test('for a moment at the end of a window delays the finding until it is back', () => {
    const { auditor, opened } = auditorOf(30);
    const entries = [...start, ...watches(128, 'stale', ['pods']), clock(131)];
    for (const entry of entries) auditor.take(entry);
    expect(opened).toEqual([]);
    for (const entry of watches(132, 'synced', ['pods'])) auditor.take(entry);
    expect(opened.map(({ openedAt }) => openedAt)).toEqual([132, 132]);
  });

  test('because a permission was revoked opens no finding', () => {
    const { auditor, opened } = auditorOf(30);
    for (const entry of [...start, ...watches(120, 'off', ['pods']), end(200)]) auditor.take(entry);
    expect(opened).toEqual([]);
    expect([...auditor.stale()]).toEqual(['pods']);
  });

  test('of Services from the start finds nothing until they are listed', () => {
    const { auditor, opened } = auditorOf(30);
    const others = resources.filter((resource) => resource !== 'services');
    const forbidden = [
      header(100),
      ...watches(100, 'listing'),
      ...watches(100, 'off', ['services']),
      ...synced(100, others),
      ...watches(100, 'synced', others),
      clock(200),
    ];
    for (const entry of forbidden) auditor.take(entry);
    expect(auditor.serviceAuditor()).toBeNull();
    const listed = [added('services', rawService, 201), ...synced(201, ['services'])];
    for (const entry of [...listed, ...watches(201, 'synced', ['services']), clock(230)]) {
      auditor.take(entry);
    }
    expect(opened).toEqual([]);
    auditor.take(clock(231));
    expect(opened).not.toEqual([]);
  });

  test('without a permission from the start leaves no output unseen', () => {
    const { auditor, opened } = auditorOf(30);
    const others = watches(100, 'synced', ['nodes', 'services', 'endpoints', 'endpointslices']);
    const entries = [
      header(100),
      ...watches(100, 'listing'),
      added('services', rawService, 100),
      ...watches(100, 'off', ['pods']),
      ...synced(100, ['pods']),
      ...others,
      end(200),
    ];
    for (const entry of entries) auditor.take(entry);
    expect([...auditor.stale()]).toEqual([]);
    expect(opened).toEqual([]);
  });
});
