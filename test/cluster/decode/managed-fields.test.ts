import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { withoutManagedFields } from '../../../src/cluster/decode/managed-fields.ts';

const fields = [
  {
    manager: 'kubelet',
    fieldsV1: { 'f:status': { 'k:{"type":"Ready"}': { '.': {}, 'v:["a","]"]': {} } } },
  },
  { manager: 'a \\" ] } backslash \\', time: null },
];

describe('withoutManagedFields', () => {
  test.each([
    ['compact', 0],
    ['pretty', 2],
  ])('empties the list and leaves the rest: %s', (_, indent) => {
    const metadata = { name: 'web', managedFields: fields, uid: 'u' };
    const text = JSON.stringify({ kind: 'Pod', metadata, spec: { a: [1] } }, null, indent);
    const cut = withoutManagedFields(text);
    expect(JSON.parse(cut)).toEqual({
      kind: 'Pod',
      metadata: { ...metadata, managedFields: [] },
      spec: { a: [1] },
    });
    expect(cut).not.toContain('kubelet');
  });

  test.each([
    ['no such field', '{"metadata":{"name":"web"}}'],
    ['in a string', JSON.stringify({ note: '{"managedFields":[1,2]}' })],
    ['as a value', '{"a":"managedFields","b":[1]}'],
    ['as an item', '{"a":["managedFields",[1]]}'],
    ['null', '{"managedFields":null}'],
    ['no JSON', '{"managedFields":'],
    ['cut off', '{"managedFields":[{"a":"b'],
    ['never closed', '{"managedFields":[{}'],
    ['nothing', ''],
  ])('leaves the text alone: %s', (_, text) => {
    expect(withoutManagedFields(text)).toBe(text);
  });

  const list = fc.array(fc.jsonValue());
  property.prop([list, fc.dictionary(fc.string(), fc.jsonValue()), fc.nat(2)], { numRuns: 500 })(
    'whatever stands in it and behind it',
    (managedFields, rest, indent) => {
      const object = { metadata: { managedFields, rest } };
      const cut = withoutManagedFields(JSON.stringify(object, null, indent));
      const want: unknown = JSON.parse(JSON.stringify({ metadata: { managedFields: [], rest } }));
      expect(JSON.parse(cut)).toEqual(want);
    },
  );
});
