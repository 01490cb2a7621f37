// Which Services a slice names, and which pods are the same to every controller.

import { describe, expect, test } from 'vitest';

import { isSamePod, keysNamed } from '../../../src/audit/service/cache-update.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import { label } from '../../../src/model/objects.ts';
import { foreign, owner, pod, slice } from '../../build.ts';

describe('a slice names Services', () => {
  const cases: [string, EndpointSlice | null, string[]][] = [
    ['none if it does not exist', null, []],
    ['by its label', slice(), ['shop/web']],
    [
      'by its label and its owner',
      slice({ owners: [owner({ name: 'api', uid: 'x' })] }),
      ['shop/web', 'shop/api'],
    ],
    [
      'not by an owner of another kind',
      foreign({ labels: {}, owners: [owner({ kind: 'Pod', name: 'api' })] }),
      [],
    ],
    ['not by an empty label', slice({ labels: { [label.serviceName]: '' }, owners: [] }), []],
  ];
  test.each(cases)('%s', (_, one, want) => {
    expect([...keysNamed(one)]).toEqual(want);
  });
});

test('versions of a pod that differ in no field that controllers read are the same', () => {
  expect(isSamePod(pod(), pod({ turnedAt: 5 }))).toBe(true);
  for (const more of [{ ready: false }, { ips: [] }, { labels: {} }, { node: 'x' }, { uid: 'x' }]) {
    expect(isSamePod(pod(), pod(more))).toBe(false);
  }
});
