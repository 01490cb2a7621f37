import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import type { Raw } from '../../../../src/cluster/decode/protobuf/message.ts';
import { readMessage } from '../../../../src/cluster/decode/protobuf/message.ts';

/** A field of at most 127 bytes. */
function field(number: number, ...parts: readonly (string | Buffer)[]): Buffer {
  const inner = Buffer.concat(parts.map((part) => Buffer.from(part)));
  return Buffer.concat([Buffer.from([(number << 3) | 2, inner.length]), inner]);
}

const varint = (number: number, ...bytes: readonly number[]): Buffer =>
  Buffer.from([number << 3, ...bytes]);

function read(name: string, ...parts: readonly Buffer[]): Raw {
  const bytes = Buffer.concat(parts);
  const raw: Raw = {};
  readMessage(name, { bytes, at: 0 }, bytes.length, raw);
  return raw;
}

function fieldOfError(name: string, ...parts: readonly Buffer[]): string {
  try {
    read(name, ...parts);
  } catch (error) {
    if (error instanceof WrongType) return error.field;
  }
  return 'no error';
}

describe('readMessage', () => {
  test('a message that appears twice is merged', () => {
    const [phase, ip] = [field(3, field(1, 'Running')), field(3, field(6, '10.0.0.1'))];
    expect(read('Pod', phase, ip)).toEqual({ status: { phase: 'Running', podIP: '10.0.0.1' } });
  });

  test('a list keeps the order of its items', () => {
    const items = [field(1, '10.0.0.2'), field(3, 'web'), field(1, '10.0.0.1')];
    expect(read('Endpoint', ...items)).toEqual({
      addresses: ['10.0.0.2', '10.0.0.1'],
      hostname: 'web',
    });
  });

  test('a map may have the key __proto__, and an entry without key or value', () => {
    const { labels } = read(
      'ObjectMeta',
      field(11, field(1, '__proto__'), field(2, 'x')),
      field(11),
    );
    expect(Object.entries(labels as Raw)).toEqual([
      ['__proto__', 'x'],
      ['', ''],
    ]);
  });

  test.each([
    ['no bytes', [], null],
    ['the zero time of Go', [0x80, 0x92, 0xb8, 0xc3, 0x98, 0xfe, 0xff, 0xff, 0xff, 0x01], null],
    ['a second', [0xe8, 0x07], new Date('1970-01-01T00:16:40Z')],
    ['a time after the year 9999', [0x80, 0x80, 0x80, 0x80, 0x80, 0x20], 'out of range'],
  ])('a time of %s', (_name, bytes, want) => {
    const time = bytes.length === 0 ? field(8) : field(8, varint(1, ...bytes));
    expect(read('ObjectMeta', time)).toEqual({ creationTimestamp: want });
  });

  test('a quantity is its string, and a target port a number or name', () => {
    const cpu = field(2, field(1, 'cpu'), field(2, field(1, '100m')));
    expect(read('NodeStatus', cpu)).toEqual({ allocatable: { cpu: '100m' } });
    const [number, name] = [field(4, varint(2, 80)), field(4, varint(1, 1), field(3, 'http'))];
    expect(read('ServicePort', number)).toEqual({ targetPort: 80 });
    expect(read('ServicePort', name)).toEqual({ targetPort: 'http' });
  });

  const cut = Buffer.from([0x0a, 0x7f]);
  test.each([
    ['a value', 'Pod', [field(2, Buffer.from([0x52, 0x7f]))], 'spec.nodeName'],
    ['the second item of a list', 'PodSpec', [field(2), field(2, cut)], 'containers[1]'],
    ['the first string of a list', 'Endpoint', [cut], 'addresses[0]'],
    ['a string of a list', 'Endpoint', [field(1, 'a'), cut], 'addresses[1]'],
    ['the wire type of a list', 'Endpoint', [varint(1, 1)], 'addresses'],
    ['a map', 'ObjectMeta', [field(11, cut)], 'labels'],
    ['a time', 'ObjectMeta', [field(8, field(1))], 'creationTimestamp.seconds'],
  ] as const)('an error in %s names the field', (_name, message, parts, want) => {
    expect(fieldOfError(message, ...parts)).toBe(want);
  });

  test('what was read before an error is kept', () => {
    const raw: Raw = {};
    const bytes = field(1, field(1, 'web'), Buffer.from([0x1a, 0x7f]));
    const cursor = { bytes, at: 0 };
    expect(() => {
      readMessage('Pod', cursor, bytes.length, raw);
    }).toThrow(WrongType);
    expect(raw).toEqual({ metadata: { name: 'web' } });
  });
});
