import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import { project } from '../../../../src/cluster/decode/json-objects.ts';
import {
  readEndpoints,
  readEndpointSlice,
} from '../../../../src/cluster/decode/protobuf/endpoints.ts';
import { answers, messages } from '../../../protobuf/fixtures.ts';

const readers = { endpoints: readEndpoints, endpointslices: readEndpointSlice } as const;

describe.each(['endpoints', 'endpointslices'] as const)('the reader of %s', (resource) => {
  const objects = messages(answers()).filter((message) => message.resource === resource);
  const read = (bytes: Buffer) => readers[resource]({ bytes, at: 0 }, bytes.length, 5, 77);

  test('reads all that Go wrote by itself', () => {
    expect(objects.length).toBeGreaterThan(1000);
    for (const { bytes, json } of objects) {
      const { object } = project(resource, json, 5, { bytes: 77 });
      if (object === undefined) expect(() => read(bytes)).toThrow(WrongType);
      else expect(read(bytes)).toEqual(object);
    }
  });

  test('gives up where a field has another wire type', () => {
    const bytes = objects[0]?.bytes ?? Buffer.alloc(0);
    const other = Buffer.concat([bytes, Buffer.from([0x10, 0x01])]);
    expect(() => read(other)).toThrow(WrongType);
  });
});
