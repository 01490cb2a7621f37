import { describe, expect, test } from 'vitest';

import { jsonBytes, project } from '../../src/cluster/project.ts';
import { createListReader, createWatchReader } from '../../src/cluster/protobuf-stream.ts';
import { answers } from '../protobuf/fixtures.ts';

const all = answers();

describe('protobuf of an API server', () => {
  test('x', () => {
    let n = 0;
    for (const a of all) {
      if (a.resource === null) continue;
      if (a.items !== null) {
        const reader = createListReader(a.resource);
        const got = reader.read(a.protobuf, 5);
        expect(reader.end()).toBeNull();
        const want = a.items.map((raw) =>
          project(a.resource!, raw, 5, {
            bytes: a.resource!.startsWith('endpoint') ? jsonBytes(raw) : null,
          }),
        );
        expect(got).toEqual(want);
        n += got.length;
      } else {
        const reader = createWatchReader(a.resource);
        const got = reader.read(a.protobuf, 5);
        expect(reader.end()).toBeNull();
        const raw = a.json.object;
        if (a.json.type === 'BOOKMARK') continue;
        const want = project(a.resource, raw, 5, {
          bytes: a.resource.startsWith('endpoint') ? jsonBytes(raw) : null,
        });
        expect(got).toEqual([{ type: String(a.json.type).toLowerCase(), projection: want }]);
        n++;
      }
    }
    console.log(n);
  });
});
