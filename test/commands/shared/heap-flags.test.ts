import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import {
  growHeapFaster,
  growth,
  smallBytes,
  keepNewObjectsYoung,
} from '../../../src/commands/shared/heap-flags.ts';

const root = join(import.meta.dirname, '../../..');

describe('the heap grows fast', () => {
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

test('what it ends with is what the program is started with', async () => {
  const starts = ['src/main.ts', 'Containerfile'].map((path) => readFile(join(root, path), 'utf8'));
  for (const text of await Promise.all(starts)) {
    expect(text).toContain(`--heap-growing-percent=${growth.then}`);
  }
});

/** What V8 tells of its heap while a program runs that has what heap.ts exports. */
async function traced(flags: readonly string[], program: string): Promise<string> {
  const path = JSON.stringify(join(root, 'src/commands/shared/heap-flags.ts'));
  const code = `import { growHeapFaster, keepNewObjectsYoung } from ${path}; ${program}`;
  const args = [...flags, '--input-type=module', '--eval', code];
  return (await promisify(execFile)(process.execPath, args)).stdout;
}

/** How far V8 lets the heap grow after each of two collections, times what it holds. */
async function factors(isDone: boolean): Promise<number[]> {
  const text = await traced(
    ['--expose-gc', '--trace-gc-verbose'],
    `growHeapFaster(() => ${String(isDone)});
    gc();
    await new Promise((resolve) => setTimeout(resolve, 500));
    gc();`,
  );
  return [...text.matchAll(/HeapController\] factor ([\d.]+)/g)].map(([, factor]) =>
    Number(factor),
  );
}

test('V8 does as it is told', async () => {
  const [first, then] = [1 + growth.first / 100, 1 + growth.then / 100];
  expect(await factors(false)).toEqual([first, first]);
  expect(await factors(true)).toEqual([first, then]);
});

test('what is kept of a first list teaches V8 nothing', async () => {
  const keep = `
    const kept = [];
    const make = (value) => ({ value, more: [value, { value }] });
    for (let round = 0; round < 30; round++) {
      for (let value = 0; value < 30_000; value++) kept.push(make(value));
    }`;
  const flags = ['--max-semi-space-size=4', '--trace-pretenuring-statistics'];
  expect(await traced(flags, keep)).toMatch(/=> tenure/);
  expect(await traced(flags, `${keepNewObjectsYoung.name}(); ${keep}`)).not.toMatch(/tenure/);
});
