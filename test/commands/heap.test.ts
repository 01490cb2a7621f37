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

/** Runs code in a process of its own that tells what it collects, and counts full collections. */
async function collections(code: string): Promise<number> {
  const flags = ['--trace-gc', `--heap-growing-percent=${growth.then}`, '--input-type=module'];
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, '--eval', code]);
  return stdout.split('\n').filter((line) => line.includes('Mark-Compact')).length;
}

test('V8 then collects the whole heap less often', async () => {
  const fill = `
    const held = [];
    for (let at = 0; at < 60; at++) {
      for (let one = 0; one < 5000; one++) held.push({ at, one, text: 'text ' + one + ' ' + at });
      await new Promise((resolve) => setTimeout(resolve, 1));
    }`;
  const grown = `import { growFast } from ${JSON.stringify(join(root, 'src/commands/heap.ts'))};
    growFast(() => false);`;
  expect(await collections(grown + fill)).toBeLessThan(await collections(fill));
});
