import { expect, test } from 'vitest';

import type { DifferenceDetail } from '../../../src/audit/finding/catalogue.ts';
import { renderDetails, splitEqual } from '../../../src/output/page/diff.ts';
import { times } from '../../build.ts';
import { hostileNames, tagsIn, wordsIn } from '../samples.ts';

test.each([
  ['a b c', 'a x c', ['a ', 'b ', 'c'], ['a ', 'x ', 'c']],
  ['a a', 'a', ['', 'a ', 'a'], ['', '', 'a']],
  ['same', 'same', ['same', '', ''], ['same', '', '']],
  ['', 'new', ['', '', ''], ['', 'new', '']],
])('of %j and %j only the words between the equal ones differ', (first, second, one, other) => {
  const parts = splitEqual(first, second).map((side) => Object.values(side));
  expect(parts).toEqual([one, other]);
});

const detailOf = (more: Partial<DifferenceDetail> = {}): DifferenceDetail => ({
  code: 'slice-conditions-different',
  address: '10.0.0.1',
  pod: 'shop/web-1',
  field: 'endpoints.conditions.ready',
  expected: 'is true',
  actual: 'is false',
  object: 'EndpointSlice shop/web-abcde',
  ...more,
});

const htmlOf = (...details: DifferenceDetail[]): string => renderDetails(details, 2)?.html ?? '';

test('equal words of both sides are dimmed', () => {
  expect(htmlOf(detailOf())).toContain('<span class="dim">is </span><b>true</b>');
  expect(htmlOf(detailOf())).toContain('<span class="dim">is </span><b>false</b>');
});

test.each([
  [{ actual: null }, '○ missing 10.0.0.1 of pod shop/web-1 is true EndpointSlice shop/web-abcde'],
  [{ expected: null, pod: null }, '● extra 10.0.0.1 is false EndpointSlice shop/web-abcde'],
  [{}, '≠ differs 10.0.0.1 of pod shop/web-1 EndpointSlice shop/web-abcde'],
])('%j is marked', (more, text) => {
  expect(wordsIn(htmlOf(detailOf(more)))).toContain(text);
});

test('equal differences at several fields are one, and the rest is counted', () => {
  const fields = ['a', 'b', 'c', 'd'].map((field) => detailOf({ field, object: 'Node a' }));
  expect(wordsIn(htmlOf(...fields))).toContain('of pod shop/web-1 a, b and 2 more');
  const many = times(5, (index) => detailOf({ address: `10.0.0.${index}` }));
  expect(wordsIn(htmlOf(...many))).toContain('and 3 more');
});

test.each(hostileNames)('the text %j adds no tag', (name) => {
  const tagsOf = (text: string) =>
    tagsIn(htmlOf(detailOf({ expected: text, pod: text, object: text, field: text })));
  expect(tagsOf(name)).toEqual(tagsOf('web'));
});
