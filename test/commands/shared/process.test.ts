import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import v8 from 'node:v8';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import {
  growHeapFaster,
  growth,
  keepNewObjectsYoung,
  smallBytes,
  stopSignal,
} from '../../../src/commands/shared/process.ts';

const root = join(import.meta.dirname, '../../..');

describe('the heap grows faster', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  function grow() {
    const state = { size: 0, isDone: false, set: [] as number[] };
    growHeapFaster(() => state.isDone, {
      size: () => state.size,
      setGrowth: (percent) => state.set.push(percent),
    });
    return state;
  }

  test.each([
    ['it is no longer small', { size: smallBytes }],
    ['the list is done', { isDone: true }],
  ])('until %s', (_name, then) => {
    const state = grow();
    vi.advanceTimersByTime(10_000);
    expect(state.set).toEqual([growth.first]);
    Object.assign(state, then);
    vi.advanceTimersByTime(100);
    expect(state.set).toEqual([growth.first, growth.then]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

test('the program starts with the growth that a heap has after the first list', async () => {
  const starts = ['src/main.ts', 'Containerfile'].map((path) => readFile(join(root, path), 'utf8'));
  for (const text of await Promise.all(starts)) {
    expect(text).toContain(`--heap-growing-percent=${growth.then}`);
  }
});

describe('flags of V8', () => {
  const set: string[] = [];
  beforeEach(() => {
    vi.useFakeTimers();
    set.length = 0;
    vi.spyOn(v8, 'setFlagsFromString').mockImplementation((flags) => void set.push(flags));
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  test('a first list changes the growth, and then changes it back', () => {
    growHeapFaster(() => true);
    vi.advanceTimersByTime(100);
    expect(set).toEqual([
      `--heap-growing-percent=${growth.first}`,
      `--heap-growing-percent=${growth.then}`,
    ]);
  });

  test('pretenuring is turned off', () => {
    keepNewObjectsYoung();
    expect(set).toEqual(['--no-allocation-site-pretenuring']);
  });

  test('V8 knows the flags', () => {
    const known = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
    expect(known).toMatch(/^ {2}--heap-growing-percent /m);
    expect(known).toMatch(/^ {2}--allocation-site-pretenuring /m);
  });
});

test.each(['SIGTERM', 'SIGINT'] as const)('%s aborts the stop signal', (signal) => {
  const before = process.listenerCount(signal);
  const stop = stopSignal();
  process.emit(signal);
  expect(stop.signal.aborted).toBe(true);
  expect(process.listenerCount(signal)).toBe(before);
});
