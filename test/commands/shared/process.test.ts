import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import v8 from 'node:v8';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import {
  codeFlags,
  growHeapFaster,
  growHeapFreely,
  growth,
  keepCodeSmall,
  keepNewObjectsYoung,
  smallBytes,
  stopSignal,
} from '../../../src/commands/shared/process.ts';

const root = join(import.meta.dirname, '../../..');

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

const [first, then] = [growth.first, growth.then].map((each) => `--heap-growing-percent=${each}`);

test.each([
  ['it is no longer small', { size: smallBytes }],
  ['the list is done', { isDone: true }],
])('the heap grows faster until %s', (_name, change) => {
  const state = { size: 0, isDone: false };
  const statistics = v8.getHeapStatistics();
  vi.spyOn(v8, 'getHeapStatistics').mockImplementation(() => {
    return { ...statistics, used_heap_size: state.size };
  });
  growHeapFaster(() => state.isDone);
  vi.advanceTimersByTime(10_000);
  expect(set).toEqual([first]);
  Object.assign(state, change);
  vi.advanceTimersByTime(100);
  expect(set).toEqual([first, then]);
  expect(vi.getTimerCount()).toBe(0);
});

test('the heap of a process that ends soon grows freely', () => {
  growHeapFreely();
  expect(set).toEqual([`--heap-growing-percent=${growth.brief}`]);
});

test('the program starts with the growth that a heap has after the first list', async () => {
  const starts = ['src/main.ts', 'Containerfile'].map((path) => readFile(join(root, path), 'utf8'));
  for (const text of await Promise.all(starts)) {
    expect(text).toContain(`--heap-growing-percent=${growth.then}`);
  }
});

test('keepNewObjectsYoung turns pretenuring off', () => {
  keepNewObjectsYoung();
  expect(set).toEqual(['--no-allocation-site-pretenuring']);
});

test('keepCodeSmall waits for the first lists', () => {
  let isDone = false;
  keepCodeSmall(() => isDone);
  vi.advanceTimersByTime(10_000);
  expect(set).toEqual([]);
  isDone = true;
  vi.advanceTimersByTime(100);
  expect(set).toEqual(codeFlags);
});

test('ten minutes after the first lists, V8 optimizes functions only under load', () => {
  let active = 0;
  vi.spyOn(performance, 'eventLoopUtilization').mockImplementation((now, before) => {
    const [of, since] = [now?.active ?? active, before?.active ?? 0];
    return { idle: 0, active: of, utilization: (of - since) / 10_000 };
  });
  const work = (seconds: number, share: number): string[] => {
    set.length = 0;
    for (let each = 0; each < seconds; each += 10) {
      active += 10_000 * share;
      vi.advanceTimersByTime(10_000);
    }
    return [...set];
  };
  keepCodeSmall(() => true);
  expect(work(600, 0.1)).toEqual(codeFlags);
  expect(work(60, 0.1)).toContain('--no-turbofan');
  expect(work(60, 0.1)).toEqual([]);
  expect(work(60, 0.9)).toContain('--turbofan');
  expect(work(60, 0.9)).toEqual([]);
  expect(work(10, 0.2)).toContain('--no-turbofan');
});

test('V8 accepts the flags that the program sets', () => {
  const known = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
  expect(known).toMatch(/^ {2}--heap-growing-percent /m);
  expect(known).toMatch(/^ {2}--allocation-site-pretenuring /m);
  for (const flag of [...codeFlags, '--no-turbofan', '--no-maglev']) {
    const [, name = ''] = /^--(?:no-)?([a-z-]+)/.exec(flag) ?? [];
    expect(known).toContain(`  --${name} (`);
  }
});

test('a command that stops by itself leaves no listener', () => {
  const before = process.listenerCount('SIGINT') + process.listenerCount('SIGTERM');
  stopSignal().abort();
  expect(process.listenerCount('SIGINT') + process.listenerCount('SIGTERM')).toBe(before);
});

test.each(['SIGTERM', 'SIGINT'] as const)('%s aborts the stop signal', (signal) => {
  const before = process.listenerCount(signal);
  const stop = stopSignal();
  process.emit(signal);
  expect(stop.signal.aborted).toBe(true);
  expect(process.listenerCount(signal)).toBe(before);
});
