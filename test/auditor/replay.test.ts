// The pace of a replay.

import { describe, expect, test } from 'vitest';

import { replay } from '../../src/auditor/replay.ts';
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
} from '../build.ts';

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
