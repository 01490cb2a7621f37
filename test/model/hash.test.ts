// The values are those that the authors of FNV publish.

import { expect, test } from 'vitest';

import { fnv1a } from '../../src/model/hash.ts';

test.each([
  ['', 0x811c9dc5],
  ['a', 0xe40c292c],
  ['foobar', 0xbf9cf968],
])('%j', (text, want) => {
  expect(fnv1a(text)).toBe(want);
});
