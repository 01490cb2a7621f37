import { expect, test } from 'vitest';

import { familiesOf, nameFamilies } from '../../../src/output/metrics/exposition.ts';

const { gauge, counter } = familiesOf<{ readonly counts: Record<string, number> }>();

test('a family without labels has one sample', () => {
  const [family] = nameFamilies('p_', { a: gauge('A.', ({ counts }) => counts.a ?? 0) });
  expect(family).toMatchObject({ name: 'p_a', type: 'gauge', labels: {}, stability: 'stable' });
  expect(family?.collect({ counts: { a: 7 } })).toEqual([{ labels: {}, value: 7 }]);
});

test('a family has a sample per combination of labels, except where the value is null', () => {
  const family = counter('B.', ({ counts }, { x, y }) => counts[x + y] ?? null, {
    x: ['1', '2'],
    y: ['3', '4'],
  });
  expect(family.collect({ counts: { 13: 1, 14: 2, 24: 3 } })).toEqual([
    { labels: { x: '1', y: '3' }, value: 1 },
    { labels: { x: '1', y: '4' }, value: 2 },
    { labels: { x: '2', y: '4' }, value: 3 },
  ]);
});

test.each([
  ['lag_seconds', 'seconds'],
  ['bytes_max', 'none'],
  ['object_bytes_max', 'bytes'],
  ['update_bytes_total', 'bytes'],
  ['fill_ratio', 'ratio'],
  ['services', 'none'],
])('the unit of %s is %s', (name, unit) => {
  const [family] = nameFamilies('p_', { [name]: gauge('A.', () => 0) });
  expect(family).toMatchObject({ name: `p_${name}`, unit });
});
