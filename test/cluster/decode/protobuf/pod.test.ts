import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import { project } from '../../../../src/cluster/decode/json-objects.ts';
import { readPod } from '../../../../src/cluster/decode/protobuf/pod.ts';
import type { Pod } from '../../../../src/model/objects.ts';
import { answers, messages } from '../../../protobuf/fixtures.ts';

const pods = messages(answers()).filter(({ resource }) => resource === 'pods');

const read = (bytes: Buffer): Pod => readPod({ bytes, at: 0 }, bytes.length, 5, undefined);

describe('readPod', () => {
  test('reads every pod that Go wrote by itself', () => {
    expect(pods.length).toBeGreaterThan(1000);
    for (const { bytes, json } of pods) {
      const { object } = project('pods', json, 5);
      if (object === undefined) expect(() => read(bytes)).toThrow(WrongType);
      else expect(read(bytes)).toEqual(object);
    }
  });

  test('pods of one template share their labels and ports', () => {
    const [first, ...others] = pods
      .filter(({ json }) => project('pods', json, 5).object?.ports.length === 3)
      .map(({ bytes }) => read(bytes));
    const same = others.filter(({ ports }) => ports === first?.ports);
    const equal = others.filter(
      ({ ports }) => JSON.stringify(ports) === JSON.stringify(first?.ports),
    );
    expect(equal.length).toBeGreaterThan(0);
    expect(same).toEqual(equal);
  });

  test('gives up where a field has another wire type, or comes again', () => {
    const [pod] = pods;
    if (pod === undefined) throw new Error('Expected a pod');
    const { bytes } = pod;
    const again = Buffer.concat([bytes, bytes]);
    const other = Buffer.concat([bytes, Buffer.from([0x10, 0x01])]);
    for (const bytes of [again, other, Buffer.alloc(0)])
      expect(() => read(bytes)).toThrow(WrongType);
  });
});
