// Random changes of one field of what a controller wrote.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { rules, run } from './mutations.ts';

const path = join(import.meta.dirname, 'data', 'v1.36.3-zoneless.ndjson.gz');

describe('a change of one field of an output', () => {
  const { bases, mutations, found, legal, missed } = run([path], 1000, 1);

  test('is found, or legal by a rule with a name', () => {
    expect(missed).toEqual([]);
    expect(bases).toBeGreaterThan(0);
    const allowed = [...legal.values()].reduce((sum, count) => sum + count, 0);
    expect(found + allowed).toBe(mutations);
    expect(found).toBeGreaterThan(mutations / 2);
  });

  test('is missed if no rule allows it', () => {
    const without = rules.filter(({ name }) => name !== 'name of a slice');
    const { missed: others } = run([path], 1000, 1, without);
    expect(others.length).toBe(legal.get('name of a slice'));
    expect(others.length).toBeGreaterThan(0);
  });
});
