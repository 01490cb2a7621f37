import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Fields } from '../../../src/cluster/decode/json-fields.ts';
import {
  clusterMeta,
  deletionAsked,
  flag,
  integer,
  isFields,
  labelMap,
  list,
  namespacedMeta,
  number,
  objectRef,
  oneOf,
  optional,
  optionalFlag,
  optionalList,
  optionalNumber,
  optionalText,
  optionalWord,
  ownerReference,
  quantity,
  readyCondition,
  stringMap,
  text,
  texts,
  unixSeconds,
  within,
  word,
  WrongType,
} from '../../../src/cluster/decode/json-fields.ts';

const created = Date.UTC(2026, 10, 21, 10, 53, 36) / 1000;

/** What a reader throws: the path of the field and what it expected there. */
function wrong(read: () => unknown): [string, string, unknown] | null {
  try {
    read();
    return null;
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    return [error.field, error.expected, error.value];
  }
}

function readOrNull<T>(read: () => T): T | null {
  return wrong(read) === null ? read() : null;
}

const size = (fields: Fields) => number(fields, 'size');

type Read = (fields: Fields, name: string) => unknown;

describe('a field', () => {
  const words = ['one', 'two', 'three'] as const;

  test.each<[string, Read, unknown, readonly unknown[]]>([
    ['text', text, '', ['', 'a']],
    ['optionalText', optionalText, null, ['', 'a']],
    ['word', word, '', ['', 'a']],
    ['optionalWord', optionalWord, null, ['', 'a']],
    ['flag', flag, false, [true, false]],
    ['optionalFlag', optionalFlag, null, [true, false]],
    ['number', number, 0, [0, -1, 2 ** 31 - 1]],
    ['optionalNumber', optionalNumber, null, [0, -(2 ** 31)]],
    ['integer', integer, 0, [0, -1, 2 ** 40]],
    ['texts', texts, [], [[], ['a', '']]],
    ['stringMap', stringMap, {}, [{}, { a: 'b' }]],
    ['labelMap', labelMap, {}, [{}, { a: 'b' }]],
  ])('%s', (_, read, zero, values) => {
    expect(read({}, 'x')).toEqual(zero);
    expect(read({ x: null }, 'x')).toEqual(zero);
    for (const value of values) expect(read({ x: value }, 'x')).toEqual(value);
  });

  test.each<[string, Read, string, readonly unknown[]]>([
    ['text', text, 'a string', [0, false, [], {}]],
    ['optionalText', optionalText, 'a string', [0]],
    ['word', word, 'a string', [0]],
    ['optionalWord', optionalWord, 'a string', [0]],
    ['flag', flag, 'a boolean', ['true', 1, 0]],
    ['optionalFlag', optionalFlag, 'a boolean', ['']],
    ['number', number, 'a 32-bit integer', ['1', 0.5, 2 ** 31, NaN, true]],
    ['optionalNumber', optionalNumber, 'a 32-bit integer', ['']],
    ['integer', integer, 'an integer', ['1', 0.5, Infinity, true]],
    ['texts', texts, 'a list', ['a', {}, 1]],
    ['stringMap', stringMap, 'an object', ['a', [], 1]],
  ])('%s of another type', (_, read, expected, values) => {
    for (const value of values) {
      expect(wrong(() => read({ x: value }, 'x'))).toEqual(['x', expected, value]);
    }
  });

  test('one of a few words', () => {
    expect(oneOf({ x: 'two' }, 'x', words)).toBe('two');
    expect(oneOf({}, 'x', words, 'one')).toBe('one');
    expect(oneOf({ x: '' }, 'x', words, 'one')).toBe('one');
    const expected = 'one, two or three';
    expect(wrong(() => oneOf({}, 'x', words))).toEqual(['x', expected, undefined]);
    expect(wrong(() => oneOf({ x: 'One' }, 'x', words, 'one'))).toEqual(['x', expected, 'One']);
    expect(wrong(() => oneOf({ x: 1 }, 'x', words))).toEqual(['x', 'a string', 1]);
  });

  test('that is an object is read, and other types are refused', () => {
    const fields = { x: { size: 3 }, none: null };
    expect(within(fields, 'x', size)).toBe(3);
    expect(within(fields, 'none', size)).toBe(0);
    expect(within(fields, 'y', size)).toBe(0);
    expect(optional(fields, 'x', size)).toBe(3);
    expect(optional(fields, 'none', size)).toBeNull();
    expect(optional(fields, 'y', size)).toBeNull();
    expect(wrong(() => within({ x: [] }, 'x', size))).toEqual(['x', 'an object', []]);
    expect([{}, [], null, 'a'].map(isFields)).toEqual([true, false, false, false]);
  });

  test('that is a list is read item by item, and other types are refused', () => {
    const fields = { x: [{ size: 3 }, {}], none: null, empty: [] };
    expect(list(fields, 'x', size)).toEqual([3, 0]);
    expect(list(fields, 'none', size)).toEqual([]);
    expect(optionalList(fields, 'x', size)).toEqual([3, 0]);
    expect(optionalList(fields, 'empty', size)).toEqual([]);
    expect(optionalList(fields, 'none', size)).toBeNull();
    expect(optionalList(fields, 'y', size)).toBeNull();
    expect(wrong(() => list({ x: {} }, 'x', size))).toEqual(['x', 'a list', {}]);
    expect(wrong(() => list({ x: [{}, 7] }, 'x', size))).toEqual(['x[1]', 'an object', 7]);
    expect(wrong(() => texts({ x: ['a', null] }, 'x'))).toEqual(['x[1]', 'a string', null]);
  });

  test('the path of what is wrong', () => {
    const read = (item: Fields) => within(item, 'c', (c) => stringMap(c, 'd'));
    const fields = { a: { b: [{}, { c: { d: { 'e/f': 1 } } }] } };
    expect(wrong(() => within(fields, 'a', (a) => list(a, 'b', read)))).toEqual([
      'a.b[1].c.d["e/f"]',
      'a string',
      1,
    ]);
  });

  test('other errors pass through', () => {
    const fail = () => {
      throw new Error('no field');
    };
    expect(() => within({ x: {} }, 'x', fail)).toThrow('no field');
    expect(() => list({ x: [{}] }, 'x', fail)).toThrow('no field');
  });
});

describe('maps of strings', () => {
  const mapOf = (json: string) => stringMap({ x: JSON.parse(json) as unknown }, 'x');

  test('keys of Object.prototype are keys like any other', () => {
    const map = mapOf('{"__proto__":"x","constructor":"y","n":null}');
    expect(Object.entries(map)).toEqual([
      ['__proto__', 'x'],
      ['constructor', 'y'],
      ['n', ''],
    ]);
    expect(Object.getPrototypeOf(map)).toBe(Object.prototype);
  });

  test('are not copied, and label maps are one', () => {
    const map = { a: '1' };
    expect(stringMap({ x: map }, 'x')).toBe(map);
    expect(labelMap({ x: { ...map } }, 'x')).toBe(labelMap({ x: { ...map } }, 'x'));
  });
});

describe('moments', () => {
  test.each<[string, number | null]>([
    ['2026-11-21T10:53:36Z', created],
    ['2026-11-21T10:53:36.25Z', created + 0.25],
    ['2026-11-21T10:53:36.000000Z', created],
    ['2026-11-21T12:53:36+02:00', created],
    ['2026-11-21T05:23:36-05:30', created],
    ['2024-02-29T00:00:00Z', Date.UTC(2024, 1, 29) / 1000],
    ['1969-12-31T23:59:59.5Z', -0.5],
    ['0001-01-01T00:00:00Z', -62_135_596_800],
    ['2025-02-29T00:00:00Z', null],
    ['2026-13-01T00:00:00Z', null],
    ['2026-11-21T24:00:00Z', null],
    ['2026-11-21T10:60:36Z', null],
    ['2026-11-21T10:53:60Z', null],
    ['2026-11-21T10:53:36+24:00', null],
    ['2026-11-21T10:53:36', null],
    ['2026-11-21 10:53:36Z', null],
    ['2026-11-21T10:53:36Z\n', null],
    ['2026-00-21T10:53:36Z', null],
    ['2026-11-00T10:53:36Z', null],
    ['2026-11-31T10:53:36Z', null],
    ['2026-12-31T23:59:59Z', Date.UTC(2027, 0, 1) / 1000 - 1],
    ['1900-02-29T00:00:00Z', null],
    ['0099-12-31T23:59:59Z', -59_011_459_201],
    ['2026-11-21t10:53:36Z', null],
    ['2026-11-2 T10:53:36Z', null],
    ['now', null],
    ['', null],
  ])('%j', (text, want) => {
    expect(unixSeconds(text)).toBe(want);
  });

  test('agrees with Date', () => {
    fc.assert(
      fc.property(
        fc.date({ noInvalidDate: true, min: new Date(0), max: new Date('9999-12-31') }),
        (date) => {
          expect(unixSeconds(date.toISOString())).toBeCloseTo(date.getTime() / 1000, 3);
        },
      ),
    );
  });

  test('without fractions are as those with fractions, whatever the digits', () => {
    const digits = (most: number) => fc.integer({ min: 0, max: most });
    const parts = fc.tuple(digits(9999), digits(13), digits(32), digits(25), digits(61));
    fc.assert(
      fc.property(parts, digits(61), ([year, month, day, hour, minute], second) => {
        const two = (value: number): string => String(value).padStart(2, '0');
        const date = `${String(year).padStart(4, '0')}-${two(month)}-${two(day)}`;
        const text = `${date}T${two(hour)}:${two(minute)}:${two(second)}`;
        expect(unixSeconds(`${text}Z`)).toBe(unixSeconds(`${text}.0Z`));
      }),
      { numRuns: 2000 },
    );
  });
});

describe('quantities, in thousandths', () => {
  test.each<[unknown, number | null]>([
    [undefined, 0],
    [null, 0],
    ['4', 4000],
    [4, 4000],
    [0.5, 500],
    ['0', 0],
    ['500m', 500],
    ['0.1', 100],
    ['.5', 500],
    ['1.', 1000],
    ['+2', 2000],
    ['-1', -1000],
    ['100u', 1],
    ['1n', 1],
    ['1500001u', 1501],
    ['2k', 2_000_000],
    ['1M', 1_000_000_000],
    ['1Ki', 1_024_000],
    ['1.5Ki', 1_536_000],
    ['1e3', 1_000_000],
    ['12E-1', 1200],
    ['1E', Number.MAX_SAFE_INTEGER],
    ['1e999', Number.MAX_SAFE_INTEGER],
    ['1e-999', 1],
    ['', null],
    ['.', null],
    ['m', null],
    ['1 ', null],
    ['1kk', null],
    ['1e', null],
    ['1e9999', null],
    ['0x10', null],
    [true, null],
    [[4], null],
    [{}, null],
  ])('%j', (cpu, want) => {
    expect(readOrNull(() => quantity({ cpu }, 'cpu'))).toBe(want);
  });
});

test('quantities of another form are refused', () => {
  expect(wrong(() => quantity({ cpu: '4 cores' }, 'cpu'))).toEqual([
    'cpu',
    'a quantity',
    '4 cores',
  ]);
});

describe('what kinds have in common', () => {
  test('missing metadata has defaults, and wrong types are refused', () => {
    const common = {
      name: 'a',
      uid: '',
      resourceVersion: '',
      labels: {},
      created: null,
      deleting: false,
    };
    expect(clusterMeta({ name: 'a', namespace: 'shop' })).toEqual({
      ...common,
      key: 'a',
      namespace: '',
    });
    expect(namespacedMeta({ name: 'a', namespace: 'shop' })).toEqual({
      ...common,
      key: 'shop/a',
      namespace: 'shop',
    });
    const full = {
      name: 'a',
      namespace: 'shop',
      uid: 'u1',
      resourceVersion: '42',
      labels: { app: 'web' },
    };
    const times = { creationTimestamp: '2026-11-21T10:53:36Z', deletionTimestamp: 'soon' };
    expect(namespacedMeta({ ...full, ...times })).toEqual({
      ...full,
      key: 'shop/a',
      created,
      deleting: true,
    });
  });

  test('a deletion was asked for a grace period before its timestamp', () => {
    const deletionTimestamp = '2026-11-21T10:53:36Z';
    expect(deletionAsked({ deletionTimestamp, deletionGracePeriodSeconds: 30 })).toBe(created - 30);
    expect(deletionAsked({ deletionTimestamp, deletionGracePeriodSeconds: 0 })).toBe(created);
    expect(deletionAsked({ deletionTimestamp })).toBeNull();
    expect(deletionAsked({ deletionGracePeriodSeconds: 30 })).toBeNull();
    const most = 9_223_372_036;
    expect(deletionAsked({ deletionTimestamp, deletionGracePeriodSeconds: most })).toBe(
      created - most,
    );
    for (const deletionGracePeriodSeconds of [most + 1, 2 ** 63, -(2 ** 63)]) {
      expect(deletionAsked({ deletionTimestamp, deletionGracePeriodSeconds })).toBeNull();
    }
    expect(
      wrong(() => deletionAsked({ deletionTimestamp, deletionGracePeriodSeconds: '30' })),
    ).toEqual(['deletionGracePeriodSeconds', 'an integer', '30']);
  });

  test('a strange time is none', () => {
    expect(clusterMeta({ name: 'a', creationTimestamp: 'yesterday' }).created).toBeNull();
    expect(wrong(() => clusterMeta({ name: 'a', creationTimestamp: 1 }))).toEqual([
      'creationTimestamp',
      'a string',
      1,
    ]);
  });

  test('an object must have a name', () => {
    expect(wrong(() => clusterMeta({}))).toEqual(['name', 'a name', undefined]);
    expect(wrong(() => clusterMeta({ name: '' }))).toEqual(['name', 'a name', undefined]);
    expect(wrong(() => namespacedMeta({ name: 'a' }))).toEqual([
      'namespace',
      'a namespace',
      undefined,
    ]);
    expect(wrong(() => clusterMeta({ name: 'a/b' }))).toEqual([
      'name',
      'a name without slashes',
      'a/b',
    ]);
  });

  test('missing fields of references have defaults', () => {
    const reference = { kind: 'Pod', name: 'a', uid: 'u1' };
    expect(objectRef({ ...reference, fieldPath: 7 })).toEqual({ ...reference, namespace: '' });
    expect(ownerReference({ ...reference, controller: true })).toEqual({
      ...reference,
      apiVersion: '',
      controller: true,
    });
  });

  test('the first condition Ready', () => {
    const lastTransitionTime = '2026-11-21T10:53:36Z';
    const conditions = [
      { type: 'Initialized', status: 'False' },
      { type: 'Ready', status: 'True', lastTransitionTime },
      { type: 'Ready', status: 'False' },
    ];
    expect(readyCondition({ conditions })).toEqual({ status: 'True', since: created });
    expect(readyCondition({ conditions: conditions.slice(0, 1) })).toBeUndefined();
    expect(readyCondition({})).toBeUndefined();
  });
});
