// Endpoints that are written by the pods that they are of are read back the same.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../src/cluster/decode/json-fields.ts';
import type { AnyOutput } from '../../../src/cluster/files/parts.ts';
import {
  createPodReferences,
  createReferredPods,
} from '../../../src/cluster/files/pod-endpoints.ts';
import type { EndpointSlice, Pod } from '../../../src/model/objects.ts';
import {
  address,
  endpoint,
  endpoints,
  node,
  pod,
  port,
  readLines,
  slice,
  subset,
} from '../../build.ts';

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

type Added = Parameters<ReturnType<typeof createReferredPods>['add']>[1];

/** Both sides of a file with two Nodes and some pods. */
function sidesOf(pods: readonly Added[]) {
  const [writer, reader] = [createPodReferences(), createReferredPods()];
  for (const side of [writer, reader]) {
    side.add('nodes', node({ name: 'node-a', zone: 'zone-a' }));
    side.add('nodes', node({ name: 'node-b', zone: '' }));
    for (const pod of pods) side.add('pods', pod);
  }
  return { writer, reader };
}

const splitOf = (pods: readonly Added[], output: AnyOutput) => sidesOf(pods).writer.split(output);

describe('an output is read back', () => {
  test.each<[string, fc.Arbitrary<AnyOutput>]>([
    ['of slices', anySlice],
    ['of Endpoints', anyEndpoints],
  ])('%s', (_, anyOutput) => {
    fc.assert(
      fc.property(anyPods, anyOutput, (pods, output) => {
        const { writer, reader } = sidesOf(pods);
        const written = writer.split(output);
        const read: unknown = JSON.parse(JSON.stringify(written.pods));
        expect(reader.join(written.rest, read)).toEqual(output);
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
  const { rest, pods: written } = splitOf(pods, slice({ endpoints: list }));
  expect(rest).toEqual(slice({ endpoints: [other, other] }));
  expect(written).toEqual({ of: 5, parts: [[[4, 3], 2, [5, 1], [1, 1]]] });
});

describe('what a controller writes is left out', () => {
  const both = { ips: ['10.0.0.1', '::1'], node: 'node-a' };
  const named = { hostname: 'web-1', subdomain: 'web' };
  const target = pod().ref;
  const inSlice = { ready: true, serving: true, terminating: false, node: 'node-a', target };
  const v4 = { ...inSlice, addresses: ['10.0.0.1'], zone: 'zone-a' };
  const inEndpoints = { ip: '10.0.0.1', node: 'node-a', target, ready: true };
  const v6 = (more: object) => slice({ addressType: 'IPv6', endpoints: [endpoint(more)] });
  const v4Slice = (more: object) => slice({ endpoints: [endpoint({ ...v4, ...more })] });
  const listed = (more: object) => endpoints({ subsets: [subset([address(more)])] });
  const waits = { ready: false, serving: false };
  test.each<[string, Partial<Pod>, AnyOutput]>([
    ['of both families, in IPv4', both, v4Slice({})],
    ['of both families, in IPv6', both, v6({ ...v4, addresses: ['::1'] })],
    ['of both families, in Endpoints', both, listed(inEndpoints)],
    ['with a hostname', { ...both, ...named }, v4Slice({ hostname: 'web-1' })],
    [
      'with a hostname, in Endpoints',
      { ...both, ...named },
      listed({ ...inEndpoints, hostname: 'web-1' }),
    ],
    ['that is not ready', { ...both, ready: false }, v4Slice(waits)],
    [
      'that is not ready, in Endpoints',
      { ...both, ready: false },
      listed({ ...inEndpoints, ready: false }),
    ],
    ['that terminates', { ...both, deleting: true }, v4Slice({ ready: false, terminating: true })],
    ['without a zone', { ...both, node: 'node-b' }, v4Slice({ node: 'node-b', zone: null })],
    ['without a Node', { ...both, node: '' }, v4Slice({ node: null, zone: null })],
  ])('for a pod %s', (_, more, output) => {
    const { pods } = splitOf([pod({ ready: true, ...more })], output);
    expect(pods).toEqual({ of: 1, parts: [[[1, 1]]] });
  });

  test.each<[string, Partial<Pod>, AnyOutput]>([
    ['with hints', both, v4Slice({ forZones: ['zone-a'] })],
    ['that is published as ready', { ...both, ready: false }, v4Slice({ serving: false })],
    ['of another uid', both, v4Slice({ target: { ...target, uid: 'another' } })],
    ['on a Node that is not known', { ...both, node: 'node-z' }, v4Slice({ node: 'node-z' })],
  ])('but not for a pod %s', (_, more, output) => {
    const { pods, rest } = splitOf([pod({ ready: true, ...more })], output);
    expect(pods).toEqual({ of: 1, parts: [[1]] });
    expect(rest).toEqual(output);
  });
});

test('pods of another namespace are forgotten', () => {
  const [web] = podsOf(1);
  if (web === undefined) throw new Error('No pod');
  const other = pod({ namespace: 'bank', name: 'web-0' });
  const output = slice({ endpoints: [endpointOf(web)] });
  expect(splitOf([web, other], output).pods).toEqual({ of: 1, parts: [[1]] });
});

test('there are at most 32 references for each pod', () => {
  const pods = podsOf(2);
  const { writer, reader } = sidesOf(pods);
  const output = slice({ endpoints: pods.map(endpointOf) });
  const empty = slice({ endpoints: [] });
  for (let count = 0; count < 32; count++) {
    expect(writer.split(output).pods).toEqual({ of: 2, parts: [[[2, 2]]] });
    reader.join(empty, { of: 2, parts: [[[2, 2]]] });
  }
  expect(writer.split(output).pods).toEqual({ of: 2, parts: [[2]] });
  expect(() => reader.join(empty, { of: 2, parts: [[[1, 1]]] })).toThrow(WrongType);
});

describe('references that were not written', () => {
  const refused = (rest: AnyOutput, references: unknown, pods = podsOf(2)): void => {
    expect(() => sidesOf(pods).reader.join(rest, references)).toThrow(WrongType);
  };

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
    ['have a third number', [[[1, 1, 1]]], 0],
    ['have no start', [[[null, 1]]], 1],
    ['have more endpoints than the object', [[2]], 1],
    ['leave an endpoint of the object out', [[[2, 2]]], 1],
    ['have fields', [[{ of: 1 }]], 0],
  ])('are refused if their parts %s', (_, parts, count) => {
    refused(slice({ endpoints: podsOf(count).map(endpointOf) }), { of: 2, parts });
  });

  test('are refused if a pod before is missing', () => {
    const parts = [[[1, 1]]];
    for (const count of [1, 3, '2', undefined]) {
      refused(slice({ endpoints: [] }), { of: count, parts });
    }
    refused(slice({ endpoints: [] }), parts);
  });

  test('are refused if the Node before is missing', () => {
    const pods = podsOf(1).map((it) => ({ ...it, node: 'node-z' }));
    refused(slice({ endpoints: [] }), { of: 1, parts: [[[1, 1]]] }, pods);
  });

  test('are refused if a ready address comes after others', () => {
    const waiting = address({ ip: '10.0.0.7', ready: false });
    const rest = endpoints({ subsets: [subset([waiting])] });
    refused(rest, { of: 1, parts: [[1, [1, 1]]] }, podsOf(1));
    const { reader } = sidesOf(podsOf(1));
    expect(reader.join(rest, { of: 1, parts: [[[1, 1], 1]] }).name).toBe('web');
  });
});

describe('in a recording', () => {
  const metadata = { name: 'web-1', namespace: 'shop', uid: 'u1', resourceVersion: '7' };
  const status = { podIPs: [{ ip: '10.0.0.1' }] };
  const spec = {};
  const head = { kind: 'object', at: 1, type: 'SYNC' };
  const web = { ...head, resource: 'pods', object: { metadata, spec, status } };
  const output = {
    ...{ ...head, resource: 'endpointslices', bytes: 700, pods: { of: 1, parts: [[[1, 1]]] } },
    object: {
      ...{ apiVersion: 'discovery.k8s.io/v1', addressType: 'IPv4', endpoints: [], ports: [] },
      metadata: { ...metadata, name: 'web-abc' },
    },
  };

  async function read(...lines: readonly object[]) {
    const { problems, entries } = await readLines(...lines);
    const found = entries.map((it) => (it.kind === 'event' ? it.event.object : it.kind));
    return { problems, found };
  }

  test('a slice has the endpoint of the pod before it', async () => {
    const { problems, found } = await read(web, output);
    expect(problems).toEqual([]);
    const target = { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' };
    expect(found[1]).toMatchObject({
      ...{ name: 'web-abc', bytes: 700 },
      endpoints: [{ addresses: ['10.0.0.1'], ready: false, node: null, target }],
    });
  });

  const expected = 'Expected references to the pods before';
  const ended = { kind: 'synced', at: 1, resource: 'pods' };
  const later = { ...web, type: 'ADDED' };
  const wrong = { ...web, object: { metadata: { ...metadata, name: 1 } } };
  test.each<[string, readonly object[], string[]]>([
    ['without a pod', [output], [expected]],
    ['after the end of the list', [web, ended, output], [expected]],
    ['after a pod that was added later', [later, output], [expected]],
    ['after a pod that cannot be read', [wrong, output], ['Expected a string', expected]],
    [
      'of a resource without endpoints',
      [web, { ...web, pods: output.pods }],
      ['Expected endpoints or endpointslices'],
    ],
  ])('an object is lost %s', async (_, lines, messages) => {
    const { problems, found } = await read(...lines);
    expect(problems).toEqual(messages);
    expect(found.at(-1)).toBe('unreadable');
  });

  test('a line that is no object does no harm', async () => {
    const { problems, found } = await read(web, { kind: 'something', at: 1 }, output);
    expect(problems).toEqual(['Expected a kind of line']);
    expect(found.at(-1)).toMatchObject({ name: 'web-abc' });
  });
});
