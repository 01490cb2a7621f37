// Suppressions: the fields of a file, the entries of an annotation, and when they end.

import { describe, expect, test } from 'vitest';

import {
  concernsFinding,
  isFault,
  nextStateAt,
  readAnnotation,
  readSuppression,
  stateAt,
  type Suppression,
  suppressedText,
} from '../../../src/audit/finding/suppressions.ts';
import { times } from '../../build.ts';
import { findingOf } from '../../output/samples.ts';

const code = 'slice-endpoint-unexpected';
const fields = { code, owner: 'team-shop', reason: 'a migration', expires: '2026-12-31' };

function suppression(more: Readonly<Record<string, unknown>> = {}): Suppression {
  const read = readSuppression({ ...fields, ...more }, 'file:1');
  if (isFault(read)) throw new Error(read.message);
  return read;
}

const seconds = (text: string): number => Date.parse(text) / 1000;

describe('the fields', () => {
  test.each([
    ['owner', ' ', 'Expected a text'],
    ['owner', 5, 'Expected a text'],
    ['namespace', null, 'Expected a text'],
    ['reason', 'x'.repeat(501), 'Is longer than 500 characters'],
    ['until', '2026-12-31', 'Unknown field'],
    ['expires', '2026-02-30', 'Expected a date such as 2026-12-31'],
    ['expires', '31.12.2026', 'Expected a date such as 2026-12-31'],
    ['expires', '2026-12-31T25:00:00Z', 'Expected a date such as 2026-12-31'],
  ])('%s: %j is reported', (field, value, message) => {
    const read = readSuppression({ ...fields, [field]: value }, 'file:1');
    expect(read).toEqual({ field, message, value });
  });

  test.each(['code', 'owner', 'reason', 'expires'])('%s is required', (field) => {
    const read = readSuppression({ ...fields, [field]: undefined }, 'file:1');
    expect(read).toEqual({ field: null, message: `${field} is missing`, value: undefined });
  });

  test.each([
    ['endpoint-adress-missing', '; did you mean endpoints-address-missing?'],
    ['slice-endpoints-unexpected', '; did you mean slice-endpoint-unexpected?'],
    ['toString', ''],
  ])('an unknown code %s is named, with one that is near', (code, near) => {
    const message = `Unknown code "${code}"${near}`;
    expect(readSuppression({ ...fields, code }, 'file:1')).toMatchObject({ field: null, message });
  });

  test('a date lasts until its end in UTC, and a time until that moment', () => {
    expect(suppression().until).toBe(seconds('2027-01-01T00:00:00Z'));
    const expires = '2026-12-31T12:00:00+02:00';
    expect(suppression({ expires }).until).toBe(seconds('2026-12-31T10:00:00Z'));
    expect(suppressedText(suppression())).toBe('until 2026-12-31 by team-shop: a migration');
  });
});

describe('a suppression', () => {
  const finding = findingOf({ code, namespace: 'shop', service: 'web' });

  test.each([
    [{}, true],
    [{ namespace: 'shop' }, true],
    [{ namespace: 'bank' }, false],
    [{ service: 'web' }, true],
    [{ service: 'we' }, false],
    [{ namespace: '*', service: '*', node: '*' }, true],
    [{ node: 'node-a' }, false],
    [{ code: 'slice-ports-different' }, false],
  ])('with %j concerns shop/web: %s', (more, want) => {
    expect(concernsFinding(suppression(more), finding)).toBe(want);
  });

  test('of a node concerns only that node', () => {
    const onNode = { ...finding, node: 'node-a' };
    expect(concernsFinding(suppression({ node: 'node-a' }), onNode)).toBe(true);
    expect(concernsFinding(suppression({ node: 'node-b' }), onNode)).toBe(false);
  });

  test('expires, and is expiring in the seven days before', () => {
    const it = suppression();
    const [begin, end] = [seconds('2026-12-25T00:00:00Z'), seconds('2027-01-01T00:00:00Z')];
    expect([begin - 1, begin, end - 1, end].map((now) => stateAt(it, now))).toEqual([
      'active',
      'expiring',
      'expiring',
      'expired',
    ]);
    expect([0, begin, end].map((now) => nextStateAt(it, now))).toEqual([begin, end, Infinity]);
  });
});

describe('an annotation', () => {
  const read = (text: string) => readAnnotation(text, 'shop', 'web');
  const entry = `${code} owner=team-shop expires=2026-12-31 reason=a migration, see OPS-12`;

  test('has an entry per line or after a semicolon, about its own Service', () => {
    const other = 'slice-duplicate expires=2027-01-01 owner=b reason=c';
    const want = { namespace: 'shop', service: 'web', node: '*', source: 'Service shop/web' };
    expect(read(`${entry}; ${other}\n\n${entry}`)).toMatchObject([
      { code, owner: 'team-shop', reason: 'a migration, see OPS-12', ...want },
      { code: 'slice-duplicate', owner: 'b', expires: '2027-01-01', ...want },
      { code },
    ]);
    expect(read(`${code} node=node-a owner=b expires=2027-01-01 reason=c`)).toMatchObject([
      { node: 'node-a' },
    ]);
  });

  test.each([
    ['a word that is no field', `${code} team-shop`, null, 'Expected owner=, expires= or reason='],
    ['another Service', `${code} service=api`, null, 'Expected owner=, expires= or reason='],
    ['no reason', `${code} owner=a expires=2026-12-31`, null, 'reason is missing'],
    ['an empty reason', `${code} owner=a expires=2026-12-31 reason=`, 'reason', 'Expected a text'],
    ['no code', 'owner=a expires=2026-12-31 reason=b', null, 'owner is missing'],
    ['an unknown code', 'nope owner=a expires=2026-12-31 reason=b', null, 'Unknown code "nope"'],
  ])('with %s does not suppress', (_, text, field, message) => {
    const [got, ...rest] = read(text);
    expect(rest).toEqual([]);
    expect(got).toMatchObject({ field });
    expect(got).toHaveProperty('message', expect.stringContaining(message));
  });

  test('is bounded', () => {
    expect(read('x'.repeat(4097))).toMatchObject([{ message: 'Is longer than 4096 characters' }]);
    const short = 'slice-duplicate owner=a expires=2026-12-31 reason=b';
    expect(read(times(20, () => short).join(';'))).toHaveLength(20);
    expect(read(times(21, () => short).join(';'))).toMatchObject([
      { message: 'Has more than 20 suppressions' },
    ]);
  });
});
