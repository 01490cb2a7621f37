import { expect, test } from 'vitest';

import { internLabels, internList, internWord } from '../../../src/cluster/decode/intern.ts';

test('equal values share one object', () => {
  expect(internWord('node-a')).toBe('node-a');
  expect(internWord('')).toBe('');
  expect(internLabels({ a: '1', b: '2' })).toBe(internLabels({ a: '1', b: '2' }));
  expect(internList([{ port: 80 }])).toBe(internList([{ port: 80 }]));
  expect(internList([])).toBe(internList([]));
});

test('different values share no object', () => {
  expect(internLabels({ a: '1' })).not.toEqual(internLabels({ a: '2' }));
  expect(internLabels({ a: '1' })).toEqual({ a: '1' });
  expect(internList([{ port: 80 }])).toEqual([{ port: 80 }]);
  expect(internList([{ port: '80' }])).toEqual([{ port: '80' }]);
  expect(internList([{ targetPort: 80 }])).toEqual([{ targetPort: 80 }]);
});

test('the tables of interned values are emptied, not filled for ever', () => {
  const first = internLabels({ first: '1' });
  for (let index = 0; index < 60_000; index++) internLabels({ x: String(index) });
  expect(internLabels({ first: '1' })).toEqual(first);
  expect(internLabels({ first: '1' })).not.toBe(first);
});

test('long values are not kept, since a client can write any number of them', () => {
  const long = (length: number) => ({ a: 'x'.repeat(length) });
  expect(internLabels(long(1000))).toBe(internLabels(long(1000)));
  const kept = internLabels(long(5000));
  internLabels({ other: '1' });
  expect(internLabels(long(5000))).not.toBe(kept);
  expect(internLabels(long(5000))).toEqual(kept);
  expect(internList([long(1000)])).toBe(internList([long(1000)]));
  expect(internList([long(5000)])).not.toBe(internList([long(5000)]));
  expect(internWord('x'.repeat(5000))).toBe('x'.repeat(5000));
});
