// Pairs of faults in recorded states. `npm run -s mutate -- --pairs 2000` makes more of them.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { mergeChanges, rules, runPairs } from './pairs.ts';

const data = join(import.meta.dirname, 'data');
const paths = ['v1.33.13-oracle', 'v1.37.2-oracle'].map((name) => join(data, `${name}.ndjson.gz`));

describe('two changes of one snapshot', () => {
  const { pairs, violations, otherService, alike, legal, missed } = runPairs(paths, 300, 1);

  test('show what each shows alone, or a rule says why not', () => {
    expect(missed).toEqual([]);
    expect(pairs).toBe(300);
    expect(alike).toBeGreaterThan(250);
    expect(violations).toBeGreaterThan(150);
    expect(otherService).toBeGreaterThan(50);
  });

  test('are missed if no rule says why', () => {
    const { missed: others } = runPairs(paths, 300, 1, []);
    const explained = [...legal.values()].reduce((sum, count) => sum + count, 0);
    expect(others.length).toBe(explained);
    expect(others.length).toBeGreaterThan(0);
    expect(rules.length).toBeGreaterThan(legal.size);
  });
});

describe('changes of one object', () => {
  const slice = (change: object) => ({
    endpoints: [],
    endpointSlices: [
      {
        metadata: { uid: 'u' },
        endpoints: [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'], nodeName: 'a' }],
        ...change,
      },
    ],
  });

  test('are merged by what identifies the elements of a list', () => {
    const other = { addresses: ['10.0.0.2'], nodeName: 'b' };
    const one = slice({ endpoints: [other, { addresses: ['10.0.0.1'], zone: 'z' }] });
    const shorter = slice({ endpoints: [{ addresses: ['10.0.0.1'] }, other] });
    const labelled = slice({ labels: { app: 'web' } });
    expect(mergeChanges(slice({}), one, labelled)).toEqual(
      slice({
        endpoints: [{ addresses: ['10.0.0.1'], zone: 'z' }, other],
        labels: { app: 'web' },
      }),
    );
    expect(mergeChanges(slice({}), one, shorter)).toBeNull();
  });

  test('are not merged if one drops what the other changes', () => {
    const dropped = slice({ endpoints: [{ addresses: ['10.0.0.1'] }] });
    const changed = slice({
      endpoints: [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'], nodeName: 'b' }],
    });
    expect(mergeChanges(slice({}), dropped, changed)).toBeNull();
    expect(mergeChanges(slice({}), changed, dropped)).toBeNull();
    expect(mergeChanges(slice({}), slice({}), changed)).toBeNull();
  });
});
