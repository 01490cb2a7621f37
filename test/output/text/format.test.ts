import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import {
  formatClock,
  truncate,
  formatDetail,
  escapeMarkup,
  formatLag,
  formatCount,
  escapeInvisible,
  formatTime,
} from '../../../src/output/text/format.ts';
import { findingOf, hostileFinding, hostileText, invisible, moment } from '../samples.ts';

describe('texts', () => {
  test.each<[string, string]>([
    ['web', 'web'],
    ['a\u001b[31mb', 'a\\u001b[31mb'],
    ['a\nb\r', 'a\\u000ab\\u000d'],
    ['\u202egnp.exe', '\\u202egnp.exe'],
    ['half \ud800', 'half \\ud800'],
    ['\u{e0041}', '\\u{e0041}'],
    ['Grüße 😀', 'Grüße 😀'],
  ])('%j is printed as %s', (text, want) => {
    expect(escapeInvisible(text)).toBe(want);
  });

  test('escapes every invisible character and no other', () => {
    fc.assert(
      fc.property(hostileText, (text) => {
        expect(escapeInvisible(text)).not.toMatch(invisible);
        expect(escapeInvisible(escapeInvisible(text))).toBe(escapeInvisible(text));
        expect(escapeMarkup(text)).not.toMatch(/[<>"']|&(?!(?:amp|lt|gt|quot|#39);)/);
      }),
    );
  });

  test.each<[string, number, string]>([
    ['short', 5, 'short'],
    ['longer', 5, 'long…'],
    ['😀😀😀', 3, '😀😀😀'],
    ['😀😀😀😀', 3, '😀😀…'],
  ])('%s in %i characters', (text, length, want) => {
    expect(truncate(text, length)).toBe(want);
  });

  test.each<[number | null, string]>([
    [null, '-'],
    [0, '0 ms'],
    [0.0214, '21 ms'],
    [0.9996, '1 s'],
    [1.23, '1.2 s'],
    [9.96, '9.96 s'],
    [58.09, '58.1 s'],
    [99.99, '1.7 min'],
    [600, '10 min'],
  ])('a lag of %s s is %s', (seconds, want) => {
    expect(formatLag(seconds)).toBe(want);
  });

  test('times are UTC, and a missing time is a dash', () => {
    expect(formatTime(moment)).toBe('2026-11-21T10:56:46Z');
    expect(formatClock(moment + 0.9)).toBe('10:56:46');
    for (const none of [null, Number.NaN, Infinity, 1e300]) expect(formatClock(none)).toBe('-');
  });
});

describe('the details of a finding in one line', () => {
  test.each<[Partial<Finding>, string]>([
    [{ difference: 'unexpected', actual: '10.1.2.3' }, '10.1.2.3'],
    [{ difference: 'missing', expected: '10.1.2.3', actual: null }, 'missing: 10.1.2.3'],
    [
      { difference: 'missing', expected: '10.1.2.3', actual: '10.9.9.9' },
      '10.9.9.9 instead of 10.1.2.3',
    ],
    [
      { difference: 'different', expected: 'ready', actual: 'not ready' },
      'not ready instead of ready',
    ],
    [{ difference: 'different', expected: null, actual: null }, 'missing: nothing'],
  ])('%j', (more, want) => {
    expect(formatDetail(findingOf(more), 200)).toBe(want);
  });

  test('a line without a limit has both sides in full', () => {
    const [expected, actual] = ['Service web (uid 2222)', 'none'];
    const finding = findingOf({ difference: 'different', expected, actual });
    expect(formatDetail(finding, Infinity)).toBe(`${actual} instead of ${expected}`);
  });

  test('both sides keep their beginning where there is no room for all', () => {
    const long = (letter: string): string => letter.repeat(100);
    const of = (expected: string, actual: string, length: number): string =>
      formatDetail(findingOf({ difference: 'different', expected, actual }), length);
    expect(of(long('e'), long('a'), 32)).toBe('aaaaaaaaa… instead of eeeeeeeee…');
    expect(of('e', long('a'), 32)).toBe(`${'a'.repeat(18)}… instead of e`);
    expect(of(long('e'), 'a', 32)).toBe(`a instead of ${'e'.repeat(18)}…`);
  });

  const same = '10.244.0.3 of pod web-1: ready true, ';
  test.each<[number, string]>([
    [102, `${same}port 8080 instead of ${same}port 80`],
    [101, '10.244.0.3 of pod web-1: ready true, port 8080 instead of 80'],
    [60, '10.244.0.3 of pod web-1: ready true, port 8080 instead of 80'],
    [46, '10.244.0.3 of pod web-…port 8080 instead of 80'],
    [24, '…port 8080 instead of 80'],
    [23, '…port 80… instead of 80'],
  ])('in %i characters, what both sides share is said once and cut first', (length, want) => {
    const of = (port: number): string => `10.244.0.3 of pod web-1: ready true, port ${port}`;
    const finding = findingOf({ difference: 'different', expected: of(80), actual: of(8080) });
    expect(formatDetail(finding, length)).toBe(want);
  });

  test.each<[string, string, string]>([
    [
      '10.244.0.31 of pod web-1',
      '10.244.0.4 of pod web-1',
      '10.244.0.31 o… instead of 10.244.0.4 of…',
    ],
    [
      'is ready true, serving true',
      'is ready false, serving true',
      '…ready true, … instead of false, servin…',
    ],
    [
      'a b c',
      'a b c and many more words than there is room for',
      '…b c instead of c and many more words t…',
    ],
  ])('%s instead of %s', (actual, expected, want) => {
    const finding = findingOf({ difference: 'different', expected, actual });
    expect(formatDetail(finding, 40)).toBe(want);
  });

  test('two different sides stay different, for any common beginning', () => {
    const word = fc.stringMatching(/^[a-z0-9.]{1,12}$/);
    const shared = fc.array(word, { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(shared, word, word, (words, expected, actual) => {
        fc.pre(expected !== actual);
        const of = (last: string) => [...words, last].join(' ');
        const finding = findingOf({
          difference: 'different',
          expected: of(expected),
          actual: of(actual),
        });
        const text = formatDetail(finding, 52);
        expect(text.endsWith(expected)).toBe(true);
        expect(text).toContain(`${actual} instead of `);
      }),
    );
  });

  test('never longer than it may be', () => {
    fc.assert(
      fc.property(hostileFinding, fc.integer({ min: 30, max: 90 }), (finding, length) => {
        expect(Array.from(formatDetail(finding, length)).length).toBeLessThanOrEqual(length);
      }),
    );
  });
});

test('one has the singular, every other number the plural', () => {
  expect([0, 1, 2].map((count) => formatCount(count, 'finding'))).toEqual([
    '0 findings',
    '1 finding',
    '2 findings',
  ]);
});
