import { expect, test } from 'vitest';

import type { Verdict } from '../../../src/audit/finding/verdicts.ts';
import type { UnservedRow } from '../../../src/output/text/unserved.ts';
import {
  renderServices,
  renderUnservedCard,
  renderUnservedPage,
  type ServiceQuery,
} from '../../../src/output/page/service-list.ts';
import { times } from '../../build.ts';
import { hostileNames, listedOf, statusOf, tagsIn, wordsIn } from '../samples.ts';

const nothing: ServiceQuery = { q: '', namespace: '', verdict: '', sort: '', page: 1 };

const serviceOf = (name: string, verdict: Verdict | null) => {
  const listed = listedOf({ name });
  const verdicts = { endpoints: verdict, endpointslices: verdict, mirrored: null };
  const { share, health } = listed;
  return { ...listed, share: { ...share, verdicts }, health: { ...health, verdict } };
};

const services = [
  serviceOf('a-fine', 'conform'),
  serviceOf('b-bare', null),
  serviceOf('c-bad', 'different'),
  serviceOf('d-dim', 'unknown'),
];

const listed = (html: string): string[] =>
  [...html.matchAll(/href="\/services\/shop\/([^"]*)"/g)].map(([, name = '']) => name);

test('the number of a column sorts, the largest first, and its head says so', () => {
  const of = (name: string, slices: number) => listedOf({ name, slices });
  const query = { ...nothing, q: 'shop', sort: 'slices' };
  const html = renderServices(statusOf(), [of('few', 1), of('many', 9)], query);
  expect(listed(html)).toEqual(['many', 'few']);
  expect(html).toContain('aria-sort="descending"');
  expect(html).toContain('href="/services?q=shop&amp;sort=ready"');
});

test.each<[Partial<ServiceQuery>, string[]]>([
  [{}, ['a-fine', 'b-bare', 'c-bad', 'd-dim']],
  [{ verdict: 'unknown' }, ['d-dim']],
  [{ q: 'shop/ BAD' }, ['c-bad']],
  [{ q: 'absent' }, []],
  [{ namespace: 'shop', verdict: 'different' }, ['c-bad']],
  [{ namespace: 'other' }, []],
  [{ sort: 'name' }, ['a-fine', 'b-bare', 'c-bad', 'd-dim']],
])('the worst first, filtered by %j', (query, want) => {
  expect(listed(renderServices(statusOf(), services, { ...nothing, ...query }))).toEqual(want);
});

test('a Service has its verdicts and its endpoints in words', () => {
  const text = wordsIn(renderServices(statusOf(), [serviceOf('web', 'different')], nothing));
  expect(text).toContain('shop/ web ✗ mismatch ✗ mismatch ✗ mismatch 0 2 0 1');
});

test('ten thousand Services are shown a hundred at a time', () => {
  const many = times(10_000, (index) => serviceOf(`s-${index}`, 'conform'));
  const html = renderServices(statusOf(), many, { ...nothing, page: 2 });
  expect(listed(html)).toHaveLength(100);
  expect(wordsIn(html)).toContain('page 2 of 100');
  expect(Buffer.byteLength(html)).toBeLessThan(100 * 1024);
});

test('a Service shows the worst finding of any output, and the number of findings', () => {
  const findings = { critical: 1, warning: 2, info: 0 };
  const health = { verdict: 'different', severity: 'critical', findings } as const;
  const html = renderServices(statusOf(), [listedOf({ health })], nothing);
  expect(wordsIn(html)).toContain('shop/ web ▲ critical ✓ ok ✓ ok 3 2 0 1');
});

const unserved: UnservedRow[] = [
  {
    namespace: 'shop',
    name: 'cart',
    reason: 'no_ready_pod',
    detail: '2 pods are not ready',
    suppressed: null,
  },
  {
    namespace: 'media',
    name: 'cdn',
    reason: 'named_port_missing',
    detail: 'no port is named web',
    suppressed: null,
  },
];

test('Services that cannot receive traffic are listed with their reason', () => {
  const query = { q: '', namespace: '', page: 1 };
  const text = wordsIn(renderUnservedPage(statusOf(), unserved, query));
  expect(text).toContain('shop/ cart no ready pod 2 pods are not ready');
  const media = wordsIn(renderUnservedPage(statusOf(), unserved, { ...query, namespace: 'media' }));
  expect(media).toContain('media/ cdn named port missing no port is named web');
  expect(media).not.toContain('cart');
});

test('suppressed Services without endpoints are marked, and come after the others', () => {
  const suppressed = { owner: 'team', reason: 'planned', expires: '2026-12-31', source: 'a:3' };
  const rows = unserved.map((row, index) => (index === 0 ? { ...row, suppressed } : row));
  const texts = [
    wordsIn(renderUnservedPage(statusOf(), rows, { q: '', namespace: '', page: 1 })),
    wordsIn(renderUnservedCard(rows)?.html ?? ''),
  ];
  for (const text of texts) {
    expect(text).toContain('no ready pod Suppressed until 2026-12-31 by team: planned');
    expect(text.indexOf('cart')).toBeGreaterThan(text.indexOf('cdn'));
  }
});

test('the card of the overview shows the first six', () => {
  const many = times(9, (index) => ({ ...unserved[0], name: `s-${index}` }) as UnservedRow);
  const text = wordsIn(renderUnservedCard(many)?.html ?? '');
  expect(text).toContain('Services that cannot receive traffic 9');
  expect(text).toContain('shop/s-5');
  expect(text).toContain('3 more');
  expect(wordsIn(renderUnservedCard([])?.html ?? '')).toContain('None.');
});

test.each(hostileNames)('the name %j adds no tag', (name) => {
  const of = (one: string) =>
    renderServices(statusOf(), [serviceOf(one, 'conform')], { ...nothing, q: '' });
  expect(tagsIn(of(name))).toEqual(tagsIn(of('web')));
});
