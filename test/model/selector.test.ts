// A selector selects by equality of all its pairs; none and an empty one select nothing.

import { describe, expect, test } from 'vitest';

import type { Labels } from '../../src/model/objects.ts';
import { equalLabels, selects } from '../../src/model/selector.ts';

/** An object that inherits a label: JSON never makes one, but a key may be named like a method. */
const inherited = Object.create({ app: 'web' }) as Labels;

describe('selects', () => {
  const cases: [string, Labels | null, Labels, boolean][] = [
    ['one pair', { app: 'web' }, { app: 'web' }, true],
    ['additional labels', { app: 'web' }, { app: 'web', tier: 'x' }, true],
    ['all pairs are needed', { app: 'web', tier: 'x' }, { app: 'web' }, false],
    ['another value', { app: 'web' }, { app: 'api' }, false],
    ['case matters', { app: 'web' }, { app: 'Web' }, false],
    ['an empty value must be there', { app: '' }, {}, false],
    ['an empty value', { app: '' }, { app: '' }, true],
    ['no selector', null, { app: 'web' }, false],
    ['an empty selector', {}, { app: 'web' }, false],
    ['no labels', { app: 'web' }, {}, false],
    ['a key that objects have anyway', { constructor: 'x' }, {}, false],
    ['a label that is only inherited', { app: 'web' }, inherited, false],
  ];
  test.each(cases)('%s', (_, selector, labels, want) => {
    expect(selects(selector, labels)).toBe(want);
  });
});

describe('equalLabels', () => {
  const same = { app: 'web' };
  const cases: [string, Labels, Labels, boolean][] = [
    ['one reference', same, same, true],
    ['equal pairs', { a: '1', b: '2' }, { b: '2', a: '1' }, true],
    ['none', {}, {}, true],
    ['a pair more', { a: '1' }, { a: '1', b: '2' }, false],
    ['a pair less', { a: '1', b: '2' }, { a: '1' }, false],
    ['another value', { a: '1' }, { a: '2' }, false],
    ['another key of the same value', { a: '1' }, { b: '1' }, false],
    ['inherited is not there', { app: 'web' }, inherited, false],
  ];
  test.each(cases)('%s', (_, a, b, want) => {
    expect(equalLabels(a, b)).toBe(want);
  });
});
