// Endpoints that are written by the pods that they are of are read back the same.

import { Readable } from 'node:stream';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../src/cluster/decode/json-fields.ts';
import type { AnyOutput } from '../../../src/cluster/files/parts.ts';
import {
  type CheckpointPods,
  createCheckpointPods,
} from '../../../src/cluster/files/pod-endpoints.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import { address, endpoint, endpoints, node, pod, port, slice, subset } from '../../build.ts';

const names = ['web-1', 'web-2', 'web-3', 'web-4'];

const anyPods = fc.tuple(
  ...names.map((name) =>
    fc
      .record({
        node: fc.constantFrom('', 'node-a', 'node-b'),
        ready: fc.boolean(),
        deleting: fc.boolean(),
        ips: fc.constantFrom([], ['10.0.0.1'], ['10.0.0.1', '::1'], ['::1', '10.0.0.1']),
        hostname: fc.constantFrom('', name),
        subdomain: fc.constantFrom('', 'web'),
      })
      .map((fields) => pod({ name, uid: `uid-${name}`, ...fields })),
  ),
);

/** Endpoints of some of the pods in any order, as written for them or not. */
const anyList = fc.shuffledSubarray(names).chain((some) =>
  fc.tuple(
    ...some.map((name) =>
      fc.record({
        name: fc.constant(name),
        node: fc.constantFrom(null, 'node-a', 'node-b'),
        ready: fc.boolean(),
        serving: fc.boolean(),
        terminating: fc.boolean(),
        zone: fc.constantFrom(null, 'zone-a'),
        hostname: fc.constantFrom('', name),
        ips: fc.constantFrom(['10.0.0.1'], ['::1'], ['10.0.0.2']),
        uid: fc.constantFrom(`uid-${name}`, 'another'),
        forZones: fc.constantFrom(null, ['zone-a']),
      }),
    ),
  ),
);

type AnyItem = typeof anyList extends fc.Arbitrary<(infer T)[]> ? T : never;

const targetOf = ({ name, uid }: AnyItem) => ({ kind: 'Pod', namespace: 'shop', name, uid });

const anySlice = fc.tuple(anyList, fc.constantFrom('IPv4', 'IPv6')).map(([list, addressType]) =>
  slice({
    addressType: addressType as EndpointSlice['addressType'],
    endpoints: list.map((item) => {
      const { ips, hostname, node, ready, serving, terminating, zone, forZones } = item;
      return endpoint({
        ...{ node, ready, serving, terminating, zone, forZones },
        addresses: ips,
        hostname: hostname || null,
        target: targetOf(item),
      });
    }),
  }),
);

const anyEndpoints = fc.array(anyList, { maxLength: 2 }).map((lists) =>
  endpoints({
    subsets: lists.map((list, index) => {
      const sorted = list.toSorted((a, b) => Number(b.ready) - Number(a.ready));
      const addresses = sorted.map((item) => {
        const { ready, hostname, node } = item;
        return address({ ip: item.ips[0], ready, hostname, node, target: targetOf(item) });
      });
      return subset(addresses, [port({ port: 80 + index })]);
    }),
  }),
);

function knownOf(pods: readonly Parameters<CheckpointPods['add']>[1][]): CheckpointPods {
  const known = createCheckpointPods();
  known.add('nodes', node({ name: 'node-a', zone: 'zone-a' }));
  known.add('nodes', node({ name: 'node-b', zone: '' }));
  for (const pod of pods) known.add('pods', pod);
  return known;
}

describe('an output is read back', () => {
  test.each<[string, fc.Arbitrary<AnyOutput>]>([
    ['of slices', anySlice],
    ['of Endpoints', anyEndpoints],
  ])('%s', (_, anyOutput) => {
    fc.assert(
      fc.property(anyPods, anyOutput, (pods, output) => {
        const { rest, parts } = knownOf(pods).split(output);
        const read: unknown = JSON.parse(JSON.stringify(parts));
        expect(knownOf(pods).join(rest, read)).toEqual(output);
      }),
    );
  });
});

const podsOf = (count: number) =>
  Array.from({ length: count }, (_, index) =>
    pod({ name: `web-${index}`, uid: `u${index}`, ips: [`10.0.0.${index}`], node: 'node-a' }),
  );

const endpointOf = ({ ips, node, ref }: ReturnType<typeof pod>) =>
  endpoint({
    ...{ addresses: ips, node, zone: 'zone-a', target: ref },
    ...{ ready: true, serving: true, terminating: false },
  });

test('the endpoints of pods are left out', () => {
  const pods = podsOf(5);
  const all = pods.map(endpointOf);
  const other = endpoint({ addresses: ['10.0.0.9'] });
  const [first, second, , , last] = all;
  const list = [second, ...all.slice(2, 4), other, other, first, last].flatMap((it) => it ?? []);
  const { rest, parts } = knownOf(pods).split(slice({ endpoints: list }));
  expect(rest).toEqual(slice({ endpoints: [other, other] }));
  expect(parts).toEqual([[[4, 3], 2, [5, 1], [1, 1]]]);
});

test('pods of another namespace are forgotten, and the zone of an unknown Node is none', () => {
  const [web] = podsOf(1);
  if (web === undefined) throw new Error('No pod');
  const known = knownOf([web]);
  known.add('pods', pod({ namespace: 'bank', name: 'web-0' }));
  const output = slice({ endpoints: [endpointOf(web)] });
  expect(known.split(output).parts).toEqual([[1]]);
  const unknown = createCheckpointPods();
  unknown.add('pods', web);
  expect(unknown.split(output).parts).toEqual([[1]]);
});

test('a pod has a limited number of endpoints', () => {
  const pods = podsOf(2);
  const [writer, reader] = [knownOf(pods), knownOf(pods)];
  const output = slice({ endpoints: pods.map(endpointOf) });
  for (let count = 0; count < 32; count++) {
    expect(writer.split(output).parts).toEqual([[[2, 2]]]);
    reader.join(slice({ endpoints: [] }), [[[2, 2]]]);
  }
  expect(writer.split(output).parts).toEqual([[2]]);
  expect(() => reader.join(slice({ endpoints: [] }), [[[1, 1]]])).toThrow(WrongType);
});

describe('parts that were not written', () => {
  test.each<[string, unknown, number]>([
    ['are no list', 'all', 0],
    ['have no list for the slice', [], 0],
    ['have two lists for a slice', [[], []], 0],
    ['have a list that is none', [1], 1],
    ['refer to a pod before the first', [[[3, 1]]], 0],
    ['refer to more pods than there are', [[[2, 3]]], 0],
    ['refer to no pod', [[[2, 0]]], 0],
    ['have half a pod', [[[1.5, 1]]], 0],
    ['count back', [[[-1, 1]]], 0],
    ['have more endpoints than the object', [[2]], 1],
    ['leave an endpoint of the object out', [[[2, 2]]], 1],
    ['have fields', [[{ of: 1 }]], 0],
  ])('are refused if they %s', (_, parts, count) => {
    const rest = slice({ endpoints: podsOf(count).map(endpointOf) });
    expect(() => knownOf(podsOf(2)).join(rest, parts)).toThrow(WrongType);
  });

  test('are refused if a ready address comes after others', () => {
    const pods = podsOf(1);
    const waiting = address({ ip: '10.0.0.7', ready: false });
    const rest = endpoints({ subsets: [subset([waiting])] });
    expect(() => knownOf(pods).join(rest, [[1, [1, 1]]])).toThrow(WrongType);
    expect(knownOf(pods).join(rest, [[[1, 1], 1]]).name).toBe('web');
  });
});

describe('in a recording', () => {
  const metadata = { name: 'web-1', namespace: 'shop', uid: 'u1', resourceVersion: '7' };
  const status = { podIPs: [{ ip: '10.0.0.1' }] };
  const spec = { nodeName: 'node-a' };
  const head = { kind: 'object', at: 1, type: 'SYNC' };
  const web = { ...head, resource: 'pods', object: { metadata, spec, status } };
  const output = {
    ...{ ...head, resource: 'endpointslices', bytes: 700, pods: [[[1, 1]]] },
    object: {
      ...{ apiVersion: 'discovery.k8s.io/v1', addressType: 'IPv4', endpoints: [], ports: [] },
      metadata: { ...metadata, name: 'web-abc' },
    },
  };

  async function read(...lines: readonly object[]) {
    const header = { kind: 'header', format: 1, at: 1, kubernetes: null, resources: ['pods'] };
    const text = [header, ...lines].map((it) => `${JSON.stringify(it)}\n`).join('');
    const problems: string[] = [];
    const found: unknown[] = [];
    const source = { name: 'x', bytes: Readable.from([Buffer.from(text)]) };
    const entries = readRecording(source, ({ message }) => problems.push(message));
    for await (const entry of entries) {
      found.push(entry.kind === 'event' ? entry.event.object : entry.kind);
    }
    return { problems, found };
  }

  test('a slice has the endpoint of the pod before it', async () => {
    const { problems, found } = await read(web, output);
    expect(problems).toEqual([]);
    const target = { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' };
    expect(found[2]).toMatchObject({
      ...{ name: 'web-abc', bytes: 700 },
      endpoints: [{ addresses: ['10.0.0.1'], ready: false, node: 'node-a', target }],
    });
  });

  const expected = 'Expected parts of the pods before';
  test.each<[string, readonly object[], string[]]>([
    ['without a pod', [output], [expected]],
    [
      'after the end of the list',
      [web, { kind: 'synced', at: 1, resource: 'pods' }, output],
      [expected],
    ],
    [
      'after a line that cannot be read',
      [web, { kind: 'something', at: 1 }, output],
      ['Expected a kind of line', expected],
    ],
    [
      'of a resource without endpoints',
      [web, { ...web, pods: [[[1, 1]]] }],
      ['Expected endpoints or endpointslices'],
    ],
  ])('an object is lost %s', async (_, lines, messages) => {
    const { problems, found } = await read(...lines);
    expect(problems).toEqual(messages);
    expect(found.at(-2)).toBe('unreadable');
  });
});
