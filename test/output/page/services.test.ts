import { expect, test } from 'vitest';

import type { Verdict } from '../../../src/audit/finding/verdicts.ts';
import type { ServiceQuery } from '../../../src/output/page/lists.ts';
import { renderServices } from '../../../src/output/page/lists.ts';
import { times } from '../../build.ts';
import { hostileNames, numbersOf, statusOf, tagsIn, wordsIn } from '../samples.ts';

const nothing: ServiceQuery = { q: '', verdict: '', page: 1 };

const serviceOf = (name: string, verdict: Verdict | null) => {
  const numbers = numbersOf({ name });
  const verdicts = { endpoints: verdict, endpointslices: verdict, mirrored: null };
  return { ...numbers, share: { ...numbers.share, verdicts } };
};

const services = [
  serviceOf('a-fine', 'conform'),
  serviceOf('b-bare', null),
  serviceOf('c-bad', 'different'),
  serviceOf('d-dim', 'unknown'),
];

const listed = (html: string): string[] =>
  [...html.matchAll(/href="\/services\/shop\/([^"]*)"/g)].map(([, name = '']) => name);

test.each<[Partial<ServiceQuery>, string[]]>([
  [{}, ['c-bad', 'd-dim', 'a-fine', 'b-bare']],
  [{ verdict: 'unknown' }, ['d-dim']],
  [{ q: 'shop/ BAD' }, ['c-bad']],
  [{ q: 'nobody' }, []],
])('the worst first, filtered by %j', (query, want) => {
  expect(listed(renderServices(statusOf(), services, { ...nothing, ...query }))).toEqual(want);
});

test('a Service has its verdicts and its endpoints in words', () => {
  const text = wordsIn(renderServices(statusOf(), [serviceOf('web', 'different')], nothing));
  expect(text).toContain('shop/ web ✗ different ✗ different 2 0 1');
});

test('ten thousand Services are shown a hundred at a time', () => {
  const many = times(10_000, (index) => serviceOf(`s-${index}`, 'conform'));
  const html = renderServices(statusOf(), many, { ...nothing, page: 2 });
  expect(listed(html)).toHaveLength(100);
  expect(wordsIn(html)).toContain('page 2 of 100');
  expect(Buffer.byteLength(html)).toBeLessThan(100 * 1024);
});

test.each(hostileNames)('the name %j adds no tag', (name) => {
  const of = (one: string) =>
    renderServices(statusOf(), [serviceOf(one, 'conform')], { ...nothing, q: '' });
  expect(tagsIn(of(name))).toEqual(tagsIn(of('web')));
});
