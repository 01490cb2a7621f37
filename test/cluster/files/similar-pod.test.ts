// A pod that is written by what differs from another pod is read back the same.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Fields } from '../../../src/cluster/decode/json-fields.ts';
import { readSimilarPod, similarPod } from '../../../src/cluster/files/similar-pod.ts';
import type { Pod } from '../../../src/model/objects.ts';
import { pod, readLines } from '../../build.ts';

const anyPod = fc
  .record({
    name: fc.constantFrom('web-1', 'web-2'),
    uid: fc.constantFrom('u1', 'u2'),
    resourceVersion: fc.constantFrom('7', '8'),
    created: fc.constantFrom(null, 5, 6),
    node: fc.constantFrom('', 'node-a', 'node-b'),
    hostname: fc.constantFrom('', 'web-1', 'web-2', 'db'),
    labels: fc.constantFrom({ app: 'web' }, { app: 'web', index: '1' }, {}),
    ready: fc.boolean(),
    turnedAt: fc.constantFrom(null, 5, 6.25),
    ips: fc.constantFrom([], ['10.0.0.1'], ['10.0.0.1', '::1']),
    ipsSince: fc.constantFrom(3, 4.5),
  })
  .map(pod);

const lineOf = (fields: Fields): Fields => JSON.parse(JSON.stringify(fields)) as Fields;

test('a pod in the same namespace with the same ports is read back', () => {
  fc.assert(
    fc.property(anyPod, anyPod, (after, base) => {
      const fields = similarPod(after, base);
      if (fields === null) throw new Error('It is written whole');
      expect(readSimilarPod(base, lineOf(fields))).toEqual(after);
    }),
  );
});

test('a line has only what differs, and what nearly every pod has of its own', () => {
  const fields = similarPod(pod({ name: 'web-2', uid: 'u2' }), pod({ resourceVersion: '7' }));
  const names = ['base', 'ip', 'nodeName', 'targetRef', 'resourceVersion'];
  expect(Object.keys(lineOf(fields ?? {}))).toEqual(names);
});

test.each<[string, Partial<Pod>, Partial<Pod>]>([
  ['its namespace differs', { namespace: 'bank' }, {}],
  ['its ports differ', { ports: [{ name: 'a', protocol: 'TCP', port: 1, sidecar: false }] }, {}],
  ['its subdomain differs', { subdomain: 'db' }, {}],
  ['it uses the network of its node', { hostNetwork: true }, {}],
  ['it has ended', { terminal: true }, {}],
  ['it is being deleted', { deleting: true }, {}],
  ['the other one is being deleted', {}, { deleting: true }],
  ['the other one has no version', {}, { resourceVersion: '' }],
])('a pod is written whole if %s', (_, after, base) => {
  const build = (more: Partial<Pod>) => ({ ...pod({ resourceVersion: '7' }), ...more });
  expect(similarPod(build(after), build(base))).toBe(null);
});

describe('a line that cannot be read', () => {
  const metadata = { name: 'web-1', namespace: 'shop', uid: 'u1', resourceVersion: '7' };
  const first = { kind: 'object', at: 1, resource: 'pods', type: 'SYNC', object: { metadata } };
  const named = (name?: string) => ({ kind: 'Pod', namespace: 'shop', name, uid: 'u2' });
  const line = { kind: 'pod', at: 1, base: '7', targetRef: named('web-2'), resourceVersion: '8' };

  async function read(...lines: readonly object[]) {
    const { problems, entries } = await readLines(...lines);
    return { problems, kinds: entries.map(({ kind }) => kind) };
  }

  test('is none if the pod before has this version', async () => {
    const { problems, kinds } = await read(first, line);
    expect([problems, kinds]).toEqual([[], ['event', 'event']]);
  });

  test.each<[string, readonly object[], string]>([
    ['no pod is before it', [line], 'The version before it is missing'],
    [
      'another pod is before it',
      [first, { ...line, base: '6' }],
      'The version before it is missing',
    ],
    ['it has no name', [first, { ...line, targetRef: named() }], 'Expected a name'],
    [
      'its name has a slash',
      [first, { ...line, targetRef: named('a/b') }],
      'Expected a name without slashes',
    ],
    [
      'it is in another namespace',
      [first, { ...line, targetRef: { ...named('web-2'), namespace: 'bank' } }],
      'Expected the same namespace',
    ],
    ['it is too old', [first, { ...line, created: 1e300 }], 'Expected a time of RFC 3339'],
    ['an address is a number', [first, { ...line, ip: 1 }], 'Expected a string'],
    ['its labels are a list', [first, { ...line, labels: [] }], 'Expected an object'],
    ['a time is a word', [first, { ...line, turnedAt: 'now' }], 'Expected a number'],
  ])('is a lost pod if %s', async (_, lines, message) => {
    const { problems, kinds } = await read(...lines);
    expect(problems).toEqual([message]);
    expect(kinds.at(-1)).toBe('unreadable');
  });
});
