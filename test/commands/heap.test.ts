import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { growFast, growth, smallBytes } from '../../src/commands/heap.ts';

const root = join(import.meta.dirname, '../..');

describe('the heap grows fast', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  function grow() {
    const state = { size: 0, isDone: false, set: [] as number[] };
    growFast(() => state.isDone, {
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

/** How far V8 lets the heap grow after each of two collections, times what it holds. */
async function factors(isDone: boolean): Promise<number[]> {
  const code = `
    import { growFast } from ${JSON.stringify(join(root, 'src/commands/heap.ts'))};
    growFast(() => ${String(isDone)});
    gc();
    await new Promise((resolve) => setTimeout(resolve, 500));
    gc();`;
  const flags = ['--expose-gc', '--trace-gc-verbose', '--input-type=module'];
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, '--eval', code]);
  return [...stdout.matchAll(/HeapController\] factor ([\d.]+)/g)].map(([, factor]) =>
    Number(factor),
  );
}

test('V8 does as it is told', async () => {
  const [first, then] = [1 + growth.first / 100, 1 + growth.then / 100];
  expect(await factors(false)).toEqual([first, first]);
  expect(await factors(true)).toEqual([first, then]);
});
