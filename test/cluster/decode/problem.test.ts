import { constants } from 'node:os';

import { expect, test } from 'vitest';

import type { Problem } from '../../../src/cluster/decode/problem.ts';
import {
  boundedProblems,
  countWord,
  problemAt,
  problemText,
  systemErrorText,
  valueText,
} from '../../../src/cluster/decode/problem.ts';

test('a problem is one line for people', () => {
  const problem: Problem = {
    source: 'dump.json',
    line: 12,
    object: 'Pod shop/web-1',
    field: 'status.podIPs',
    value: '"x"',
    message: 'Expected a list',
    lost: null,
  };
  expect(problemText(problem)).toBe(
    'dump.json:12: Pod shop/web-1: status.podIPs: Expected a list: "x"',
  );
});

test('parts that are not known are left out', () => {
  expect(problemText(problemAt('stdin', null, 'Expected JSON'))).toBe('stdin: Expected JSON');
});

test('input cannot forge lines or control a terminal', () => {
  const object = 'Pod shop/a\nb\u001b[2J\u2028';
  const got = problemText(problemAt('stdin', 1, 'Expected a list', { object }));
  expect(got).toBe('stdin:1: Pod shop/a\uFFFDb\uFFFD[2J\uFFFD: Expected a list');
});

test('input cannot reorder or hide what is shown', () => {
  const object = 'Pod shop/\u202eevil\u200b\ufeff\ud800';
  const got = problemText(problemAt('stdin', 1, 'Expected a list', { object }));
  expect(got).toBe('stdin:1: Pod shop/\uFFFDevil\uFFFD\uFFFD\uFFFD: Expected a list');
});

const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)) as unknown;

test.each<[unknown, string | null]>([
  [undefined, null],
  [null, 'null'],
  ['x', '"x"'],
  [1.5, '1.5'],
  [{ a: [1] }, '{"a":[1]}'],
  ['x'.repeat(1000), `"${'x'.repeat(78)}…`],
  [Array.from({ length: 100 }, () => 1), `[${'1,'.repeat(39)}…`],
  [deep, '(too deep to show)'],
])('a value as text: %#', (value, want) => {
  const got = valueText(value);
  expect(got).toBe(want);
  expect((got ?? '').length).toBeLessThanOrEqual(80);
});

test('the first problems of each message are passed on, and one says that there are more', () => {
  const seen: string[] = [];
  const report = boundedProblems((problem) => seen.push(problem.message), 2);
  for (const message of ['a', 'b', 'a', 'a', 'a']) report(problemAt('stdin', 1, message));
  expect(seen).toEqual(['a', 'b', 'a', 'a, like more that are only counted']);
});

test('counted words are cut, and there are not too many of them', () => {
  const counts = new Map<string, number>();
  for (let index = 0; index < 2000; index++) countWord(counts, `${index}`);
  countWord(counts, 'x'.repeat(1000));
  countWord(counts, '7');
  expect(counts.size).toBe(1001);
  expect(counts.get('7')).toBe(2);
  expect(counts.get('…')).toBe(1001);
  countWord(counts, '__proto__');
  expect(counts.get('…')).toBe(1002);
});

test('what the operating system refused is said in words, with the path', () => {
  const refusal = (code: string, errno: number, path?: string): Error =>
    Object.assign(new Error(code), { code, errno, syscall: 'open', path });
  const { EACCES, EISDIR, ENOENT } = constants.errno;
  const cases: [unknown, string | null][] = [
    [refusal('ENOENT', -ENOENT, 'x.json'), 'x.json: Cannot read: no such file or directory'],
    [refusal('EACCES', -EACCES, 'x.json'), 'x.json: Cannot read: permission denied'],
    [refusal('EISDIR', -EISDIR), 'Cannot read: illegal operation on a directory'],
    [new Error('Something else'), null],
    ['no error', null],
  ];
  for (const [error, want] of cases) expect(systemErrorText(error)).toBe(want);
});
