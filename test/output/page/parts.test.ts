import { expect, test } from 'vitest';

import {
  findingPath,
  formatAge,
  formatDateTime,
  formatQuery,
  formatSubject,
  nodePath,
  renderBar,
  renderMark,
  servicePath,
} from '../../../src/output/page/parts.ts';
import { renderFinding } from '../../../src/output/page/finding-list.ts';
import { findingOf, moment, wordsIn } from '../samples.ts';

test.each([
  [-3, '0 s'],
  [119.4, '119 s'],
  [120, '2 min'],
  [7200, '2 h'],
  [172_800, '2 d'],
])('an age of %d seconds is %s', (seconds, text) => {
  expect(formatAge(seconds)).toBe(text);
});

test('a moment is written in UTC, with the zone', () => {
  expect(formatDateTime(moment)).toBe('2026-11-21 10:56:46 UTC');
});

test('a name is escaped in the address of its page', () => {
  expect(servicePath('a b', '../x')).toBe('/services/a%20b/..%2Fx');
  expect(nodePath('n/1')).toBe('/nodes/n%2F1');
  expect(formatQuery({ q: 'a&b', page: '' })).toBe('?q=a%26b');
  expect(formatQuery({ q: '' })).toBe('');
});

test('a mark has a sign, a word and a class', () => {
  expect(wordsIn(renderMark('different').html).trim()).toBe('✗ mismatch');
  expect(renderMark('different').html).toContain('class="mark different"');
  expect(wordsIn(renderMark('conform', 'synced').html).trim()).toBe('✓ synced');
});

test.each([
  [{}, 'shop/web', '/services/shop/web'],
  [{ node: 'a' }, 'shop/web on a', '/nodes/a'],
  [
    { node: 'a', object: 'shop/web:http at 10.0.0.1:80/tcp from a pod' },
    'shop/web on a',
    '/nodes/a?port=shop%2Fweb%3Ahttp',
  ],
  [{ node: 'a', namespace: '', service: '' }, 'Node a', '/nodes/a'],
] as const)('a finding with %j has its subject and its page', (more, subject, path) => {
  const finding = findingOf(more);
  expect([formatSubject(finding), findingPath(finding)]).toEqual([subject, path]);
});

test('a finding shows its title, its age and its cause', () => {
  const finding = findingOf({ cause: 'hand-edited', expected: 'nothing there' });
  const text = wordsIn(renderFinding(finding, moment).html);
  expect(text).toContain(
    '▲ critical shop/web endpointslices Copy A slice lists an endpoint that no selected pod has ' +
      '≠ differs EndpointSlice shop/web-abcde endpoints ' +
      'expected nothing there found 10.1.2.3 of pod web-1',
  );
  expect(text).toContain('for 30 s, since 2026-11-21 10:56:16 UTC · cause: hand-edited');
  const likely = renderFinding({ ...finding, causeProven: false }, moment);
  expect(wordsIn(likely.html)).toContain('· likely cause: hand-edited');
});

test('a value that is absent is marked as missing', () => {
  const finding = findingOf({ actual: null, expected: '10.0.0.1' });
  expect(wordsIn(renderFinding(finding, moment).html)).toContain('○ missing 10.0.0.1');
});

test('a resolved finding shows when it was resolved and its age then', () => {
  const text = wordsIn(renderFinding(findingOf({ resolvedAt: moment }), moment + 99).html);
  expect(text).toContain('✓ resolved critical');
  expect(text).toContain('resolved at 2026-11-21 10:56:46 UTC after 30 s');
});

test('the shares of a bar fill the bar, and each share is visible', () => {
  const { html } = renderBar({ different: 1, conform: 100_000, unknown: 0 }, 'so');
  const widths = [...html.matchAll(/width="([^"]*)"/g)].map(([, width]) => Number(width));
  expect(widths).toHaveLength(2);
  expect(Math.min(...widths)).toBeGreaterThan(1);
  expect(widths.reduce((sum, width) => sum + width, 0)).toBeCloseTo(100, 1);
  expect(renderBar({}, 'none').html).not.toContain('<rect');
});
