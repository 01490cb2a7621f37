import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { unixSeconds, WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import {
  isWritable,
  readRaw,
  readTime,
  setEntry,
} from '../../../../src/cluster/decode/protobuf/proto-to-json.ts';
import { messages } from '../../../../src/cluster/decode/protobuf/schema.ts';
import type { Raw } from '../../../protobuf/fixtures.ts';
import { answers, itemOf, messages as written } from '../../../protobuf/fixtures.ts';

/** Without what protobuf does not tell: null lists. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([, inner]) => inner !== null);
  return Object.fromEntries(entries.map(([name, inner]) => [name, withoutNulls(inner)]));
}

describe('readRaw', () => {
  test.each(['endpoints', 'endpointslices'] as const)('%s are the JSON of them', (resource) => {
    for (const { bytes, json } of written(answers())) {
      if (!String(json.kind).toLowerCase().startsWith(resource.slice(0, -1))) continue;
      if (json.kind !== (resource === 'endpoints' ? 'Endpoints' : 'EndpointSlice')) continue;
      const raw: Raw = {};
      readRaw(messages[resource], { bytes, at: 0 }, bytes.length, raw);
      const want = itemOf(json);
      expect(raw).toEqual(withoutNulls(want));
    }
  });

  test('keeps what it read before it failed, and names the place', () => {
    const bytes = Buffer.from('\x0a\x0d\x0a\x03web\x1a\x04shop\x2a\x7f', 'latin1');
    const raw: Raw = {};
    const read = () => readRaw(messages.pods, { bytes, at: 0 }, bytes.length, raw);
    expect(read).toThrow(expect.objectContaining({ field: 'metadata.uid' }) as WrongType);
    expect(raw).toEqual({ metadata: { name: 'web', namespace: 'shop' } });
  });
});

describe('setEntry', () => {
  test('knows no special key', () => {
    const map: Record<string, string> = {};
    for (const key of ['a', '__proto__', 'constructor', '']) setEntry(map, key, `of ${key}`);
    expect(Object.keys(map)).toEqual(['a', '__proto__', 'constructor', '']);
    expect(JSON.stringify(map)).toContain('"__proto__":"of __proto__"');
    expect(Object.getPrototypeOf(map)).toBe(Object.prototype);
  });
});

/** A meta.v1.Time with its length before it. */
function time(seconds: number, more: readonly number[] = []): Buffer {
  const bytes: number[] = [];
  let left = BigInt.asUintN(64, BigInt(seconds));
  for (; left > 127n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  bytes.push(Number(left));
  return Buffer.from([bytes.length + 1 + more.length, 0x08, ...bytes, ...more]);
}

const read = (bytes: Buffer): number | null => readTime({ bytes, at: 0 }, bytes.length);

describe('readTime', () => {
  property.prop([fc.date({ noInvalidDate: true, min: new Date(1000), max: new Date(1e14) })])(
    'is Unix seconds',
    (date) => {
      const seconds = Math.floor(date.getTime() / 1000);
      expect(read(time(seconds))).toBe(seconds);
      expect(read(time(-seconds))).toBe(-seconds);
    },
  );

  test('no bytes and the year 1 are no time; nanoseconds are dropped', () => {
    expect(read(Buffer.from([0]))).toBeNull();
    expect(read(time(-62_135_596_800))).toBeNull();
    expect(read(time(7, [0x10, 0x05]))).toBe(7);
    expect(() => read(Buffer.from([2, 0x0a, 0]))).toThrow(WrongType);
  });

  test('what RFC 3339 can write is what its reader reads', () => {
    for (const text of ['0001-01-01T00:00:01Z', '1969-12-31T23:59:59Z', '9999-12-31T23:59:59Z'])
      expect(isWritable(unixSeconds(text) ?? NaN)).toBe(true);
    expect(isWritable(253_402_300_800)).toBe(false);
    expect(isWritable(-62_135_596_800)).toBe(false);
  });
});
