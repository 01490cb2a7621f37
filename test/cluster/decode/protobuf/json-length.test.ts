import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import { jsonLength } from '../../../../src/cluster/decode/protobuf/json-length.ts';
import { messages } from '../../../../src/cluster/decode/protobuf/schema.ts';
import { answers, itemOf, messages as written } from '../../../protobuf/fixtures.ts';

const lengthOf = (resource: 'endpoints' | 'endpointslices', bytes: Buffer): number =>
  jsonLength(messages[resource], { bytes, at: 0 }, bytes.length);

describe('jsonLength', () => {
  test.each(['endpoints', 'endpointslices'] as const)('of %s is that of the JSON', (resource) => {
    const objects = written(answers()).filter((message) => message.resource === resource);
    expect(objects.length).toBeGreaterThan(1000);
    for (const { bytes, json } of objects) {
      const item = itemOf(json);
      expect(lengthOf(resource, bytes)).toBe(Buffer.byteLength(JSON.stringify(item)));
    }
  });

  property.prop([fc.string({ unit: 'binary', maxLength: 40 })])('of any string', (text) => {
    const value = Buffer.from(text.slice(0, 30));
    const inner = Buffer.concat([Buffer.from([0x0a, value.length]), value]);
    const bytes = Buffer.concat([Buffer.from([0x0a, inner.length]), inner]);
    const json = JSON.stringify({ metadata: value.length === 0 ? {} : { name: value.toString() } });
    expect(lengthOf('endpoints', bytes)).toBe(Buffer.byteLength(json));
  });

  test('of nothing has what JSON always has', () => {
    const nothing = Buffer.alloc(0);
    expect(lengthOf('endpoints', nothing)).toBe('{"metadata":{}}'.length);
    const slice = '{"metadata":{},"endpoints":null,"ports":null,"addressType":""}';
    expect(lengthOf('endpointslices', nothing)).toBe(slice.length);
  });

  test('of a field of another wire type there is none', () => {
    expect(() => lengthOf('endpoints', Buffer.from([0x08, 0x01]))).toThrow(WrongType);
  });
});
