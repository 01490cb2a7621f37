import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import {
  bits,
  pass,
  passRow,
  readMeta,
  readMoment,
  readName,
  readRef,
  readWord,
} from '../../../../src/cluster/decode/protobuf/metadata.ts';
import { readTag } from '../../../../src/cluster/decode/protobuf/wire.ts';

/** A field that holds bytes, or a message of the given fields. */
const field = (number: number, ...parts: readonly (string | Buffer)[]): Buffer => {
  const inner = Buffer.concat(parts.map((part) => Buffer.from(part)));
  const tag = (number << 3) | 2;
  const head = tag < 128 ? [tag] : [(tag & 127) | 128, tag >> 7];
  return Buffer.concat([Buffer.from([...head, inner.length]), inner]);
};

const at = (bytes: Buffer) => ({ bytes, at: 0 });

const entry = (number: number, key: string, value: string): Buffer =>
  field(number, field(1, key), field(2, value));

const meta = Buffer.concat([
  field(1, 'web'),
  field(2, 'web-'),
  field(3, 'shop'),
  field(5, 'u-1'),
  field(6, '12'),
  Buffer.from([0x38, 0x85, 0x01]),
  field(8, Buffer.from([0x08, 0x64, 0x10, 0x00])),
  field(9, Buffer.from([0x08, 0x65])),
  Buffer.from([0x50, 0x1e]),
  entry(11, 'app', 'web'),
  entry(11, 'tier', ''),
  entry(12, 'note', 'ü'),
  field(13, field(1, 'Service'), field(3, 'web'), field(5, 'v1'), Buffer.from([0x30, 0x01])),
  field(13, field(4, 'u-2')),
  field(17, 'what nobody reads'),
]);

describe('readMeta', () => {
  const some = {
    key: 'shop/web',
    namespace: 'shop',
    name: 'web',
    uid: 'u-1',
    resourceVersion: '12',
    labels: { app: 'web', tier: '' },
    created: 100,
    deleting: true,
    deletionAsked: 71,
    generation: 133,
  };
  const owners = [
    { apiVersion: 'v1', kind: 'Service', name: 'web', uid: '', controller: true },
    { apiVersion: '', kind: '', name: '', uid: 'u-2', controller: false },
  ];

  test('has annotations and owners if all is wanted', () => {
    const all = { ...some, annotations: { note: 'ü' }, owners };
    expect(readMeta(at(meta), meta.length, true)).toEqual(all);
    const little = { ...some, annotations: {}, owners: [] };
    expect(readMeta(at(meta), meta.length, false)).toEqual(little);
  });

  test('equal label maps are one, whatever bytes stand around them', () => {
    const more = Buffer.concat([field(1, 'other'), meta.subarray(5)]);
    const [a, b] = [meta, more].map((bytes) => readMeta(at(bytes), bytes.length, false));
    expect(b?.name).toBe('other');
    expect(b?.labels).toBe(a?.labels);
  });

  test.each([
    ['no name', meta.subarray(5)],
    ['no namespace', field(1, 'web')],
    ['a slash', Buffer.concat([field(1, 'a/b'), field(3, 'shop')])],
    ['labels in two places', Buffer.concat([meta, entry(11, 'a', 'b')])],
    ['a number for a name', Buffer.concat([meta, Buffer.from([0x08, 0x01])])],
    ['half a label', Buffer.concat([field(1, 'a'), field(3, 'b'), field(11, '\x0a\x7f')])],
  ])('gives up: %s', (_, bytes) => {
    expect(() => readMeta(at(bytes), bytes.length, true)).toThrow(WrongType);
  });
});

describe('parts', () => {
  test('a reference', () => {
    const bytes = Buffer.concat([
      field(1, 'Pod'),
      field(2, 'shop'),
      field(3, 'web'),
      field(4, 'u'),
    ]);
    const ref = { kind: 'Pod', namespace: 'shop', name: 'web', uid: 'u' };
    expect(readRef(at(bytes), bytes.length)).toEqual(ref);
    expect(readRef(at(bytes), 0)).toEqual({ kind: '', namespace: '', name: '', uid: '' });
  });

  test('a name, and a word', () => {
    const name = field(1, 'zone-a');
    expect(readName(at(name), name.length)).toBe('zone-a');
    expect(readName(at(name), 0)).toBe('');
    const word = Buffer.from('\x06zone-a');
    expect(readWord(at(word), word.length)).toBe('zone-a');
  });

  test('a moment that no text can write is none', () => {
    const seconds = (bytes: readonly number[]) => Buffer.from([bytes.length + 1, 0x08, ...bytes]);
    const far = seconds([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    expect(readMoment(at(far), far.length)).toBeNull();
    const near = seconds([0x05]);
    expect(readMoment(at(near), near.length)).toBe(5);
  });

  test('a row ends where another field begins', () => {
    const row = Buffer.concat([entry(11, 'a', 'b'), entry(11, 'c', 'd')]);
    const bytes = Buffer.concat([row, field(12, 'x'), entry(11, 'e', 'f')]);
    const cursor = at(bytes);
    expect(passRow(cursor, readTag(cursor, bytes.length), bytes.length)).toBe(row.length);
    expect(cursor.at).toBe(row.length);
  });

  test('what is read must not be passed over', () => {
    const bytes = Buffer.from([0x08, 0x01, 0x18, 0x02]);
    const cursor = at(bytes);
    pass(cursor, readTag(cursor, 4), 4, bits(2, 3));
    expect(cursor.at).toBe(2);
    expect(() => pass(cursor, readTag(cursor, 4), 4, bits(2, 3))).toThrow(WrongType);
  });
});
