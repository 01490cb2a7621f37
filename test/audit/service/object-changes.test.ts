// What a change changed: the fields that a controller reads, as texts of bounded length.

import { expect, test } from 'vitest';

import { changedFields } from '../../../src/audit/service/object-changes.ts';
import type { AnyObject, Change } from '../../../src/model/objects.ts';
import { endpoints, node, pod, resourceOf, service, slice } from '../../build.ts';

const between = (before: AnyObject | null, after: AnyObject | null): Change => ({
  resource: resourceOf(after ?? before ?? pod()),
  before,
  after,
  at: 5,
});

const texts = (before: AnyObject | null, after: AnyObject | null): string[] =>
  changedFields(between(before, after), { app: 'web' }).map(
    ({ kind, field, from, to }) => `${kind} ${field}: ${from ?? '-'} > ${to ?? '-'}`,
  );

const cases: [string, AnyObject | null, AnyObject | null, string[]][] = [
  ['a new object has its uid', null, pod(), ['Pod metadata.uid: - > uid-web-1']],
  ['a deleted object had its uid', node(), null, ['Node metadata.uid: uid-node-a > -']],
  [
    'a recreated one',
    pod(),
    pod({ uid: 'new', ready: false }),
    ['Pod metadata.uid: uid-web-1 > new'],
  ],
  ['the same object changed nothing', pod(), pod(), []],
  [
    'a label that the Service does not select by',
    pod(),
    pod({ labels: { app: 'web', a: '1' } }),
    [],
  ],
  [
    'addresses and Node of a pod',
    pod({ ips: [], node: '' }),
    pod({ ips: ['10.0.0.1', 'fd00::1'] }),
    ['Pod status.podIPs: - > 10.0.0.1, fd00::1', 'Pod spec.nodeName: - > node-a'],
  ],
  [
    'a label of the Service, and a selector that is removed',
    service(),
    service({ labels: { a: '1' }, selector: null }),
    ['Service metadata.labels a: - > 1', 'Service spec.selector: app=web > -'],
  ],
  [
    'a write of Endpoints',
    endpoints({ resourceVersion: '7' }),
    endpoints({ resourceVersion: '8', subsets: [] }),
    ['Endpoints metadata.resourceVersion: 7 > 8'],
  ],
  ['a slice without versions', slice(), slice({ endpoints: [] }), []],
];

test.each(cases)('%s', (_, before, after, want) => {
  expect(texts(before, after)).toEqual(want);
});

test('a value has at most 200 characters', () => {
  const ips = Array.from({ length: 100 }, (_, index) => `10.0.0.${index}`);
  const [change] = changedFields(between(pod(), pod({ ips })), null);
  expect(change?.to).toHaveLength(200);
});
