import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Problem } from '../../../src/cluster/decode/problem.ts';
import { problemText } from '../../../src/cluster/decode/problem.ts';
import { kwokResources, merge, readKwok } from '../../../src/cluster/files/kwok.ts';
import type { RecordingEntry } from '../../../src/cluster/files/recording.ts';
import { chunks } from '../../build.ts';

async function read(content: string | Uint8Array) {
  const entries: RecordingEntry[] = [];
  const problems: Problem[] = [];
  const bytes = Buffer.from(content);
  const found = (await kwokResources(chunks(bytes, [100]))) ?? [];
  const source = { name: 'kwok.yaml', bytes: chunks(bytes, [100]) };
  for await (const entry of readKwok(source, found, (problem) => problems.push(problem))) {
    entries.push(entry);
  }
  const end = entries.at(-1);
  if (end?.kind !== 'end') throw new Error('No end');
  return { entries: entries.slice(0, -1), end, problems: problems.map(problemText) };
}

function brief(entry: RecordingEntry): string {
  switch (entry.kind) {
    case 'event': {
      const { at, type, resource, object } = entry.event;
      return `${at} ${type} ${resource} ${object.key}`;
    }
    case 'unreadable': {
      const { resource, namespace, name } = entry.lost;
      return `${entry.at} lost ${resource} ${String(namespace)}/${String(name)}`;
    }
    case 'synced':
      return `${entry.at} synced ${entry.resource}`;
    case 'header':
      return `${entry.at} header ${entry.resources.join()}`;
    default:
      return `${entry.at} ${entry.kind}`;
  }
}

// As kwokctl writes it: sorted fields, relative times, no resourceVersion.
const pod = `apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: "$(time-offset-nanosecond -3600000000000)"
  labels:
    app: web
  name: web-1
  namespace: shop
  resourceVersion: ""
  uid: u1
spec:
  containers:
  - name: app
    ports:
    - containerPort: 8080
      name: http
      protocol: TCP
  nodeName: node-a
status:
  conditions:
  - lastTransitionTime: "$(time-offset-nanosecond -3500000000000)"
    status: "True"
    type: Initialized
  - lastTransitionTime: "$(time-offset-nanosecond -3400000000000)"
    status: "True"
    type: Ready
  phase: Running
  podIP: 10.0.0.1
  podIPs:
  - ip: 10.0.0.1
`;

const secret = `apiVersion: v1
kind: Secret
metadata:
  name: s
  namespace: shop
`;

function patch(nanoseconds: number | string, method: string, template: string, more = '') {
  const indented = template.trimEnd().replace(/^/gm, '  ');
  return `apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: ${nanoseconds}
kind: ResourcePatch
method: ${method}
resource:
  resource: pods
  version: v1
target:
  name: web-1
  namespace: shop
${template === '' ? '' : `template:\n${indented}\n`}${more}`;
}

const notReady = patch(
  1_500_000_000,
  'patch',
  `status:
  $setElementOrder/conditions:
  - type: Initialized
  - type: Ready
  conditions:
  - lastTransitionTime: "$(time-offset-nanosecond 1000000000)"
    status: "False"
    type: Ready
`,
);

const file = (...documents: string[]) => documents.join('---\n');

test('a recording is read as a list, its changes and an end', async () => {
  const got = await read(
    file(secret, pod, notReady, patch(2e9, 'delete', ''), patch(2.5e9, 'create', pod)),
  );
  expect(got.entries.map(brief)).toEqual([
    '0 header pods',
    '0 added pods shop/web-1',
    '0 synced pods',
    '1.5 modified pods shop/web-1',
    '2 deleted pods shop/web-1',
    '2.5 added pods shop/web-1',
  ]);
  expect(got.problems).toEqual([]);
  expect(got.end).toMatchObject({ at: 2.5, complete: true });
  expect(Object.fromEntries(got.end.skipped)).toEqual({ Secret: 1 });
  const objects = got.entries.flatMap((entry) =>
    entry.kind === 'event' ? [entry.event.object] : [],
  );
  expect(objects[0]).toMatchObject({ created: -3600, ready: true, turnedAt: -3400 });
  expect(objects[1]).toMatchObject({
    created: -3600,
    ready: false,
    turnedAt: 1,
    ips: ['10.0.0.1'],
    ports: [{ name: 'http', port: 8080 }],
  });
  expect(objects[2]).toMatchObject({ ready: false });
});

test('a dump is refused as a recording', async () => {
  const isRecording = async (text: string | Uint8Array) =>
    (await kwokResources(chunks(Buffer.from(text), [100]))) !== null;
  expect(await isRecording(file(pod, secret))).toBe(false);
  expect(await isRecording(file(pod, notReady))).toBe(true);
  expect(await isRecording(gzipSync(file(pod, notReady)))).toBe(true);
  expect(await isRecording('')).toBe(false);
  const shop = readFileSync(new URL('../../recordings/shop.ndjson.gz', import.meta.url));
  expect(await isRecording(shop.subarray(0, 100_000))).toBe(false);
});

test('the resources are those that occur', async () => {
  const resources = (text: string) => kwokResources(chunks(Buffer.from(text), [100]));
  expect(await resources(file(pod, notReady))).toEqual(['pods']);
  const other = notReady.replace('resource: pods', 'resource: endpoints');
  expect(await resources(file(pod, other))).toEqual(['pods', 'endpoints']);
  expect(await resources(file(secret, 'kind: Node\n', notReady))).toEqual(['nodes', 'pods']);
  expect(await resources(file(pod))).toBeNull();
});

test('without a patch all objects are those of the beginning', async () => {
  const got = await read(pod);
  expect(got.entries.map(brief)).toEqual(['0 header ', '0 added pods shop/web-1']);
});

describe('what is wrong', () => {
  test.each<[string, string, string[], string[]]>([
    [
      'a patch of an unknown object',
      notReady.replace('name: web-1', 'name: web-2'),
      ['1.5 lost pods shop/web-2'],
      ['kwok.yaml:32: Pod shop/web-2: method: Expected a patch of a known object: "patch"'],
    ],
    [
      'another method',
      patch(1e9, 'apply', ''),
      ['1 lost pods shop/web-1'],
      ['kwok.yaml:32: Pod shop/web-1: method: Expected create, patch or delete: "apply"'],
    ],
    ['another resource', notReady.replace('resource: pods', 'resource: leases'), ['1.5 clock'], []],
    [
      'no time',
      notReady.replace('durationNanosecond: 1500000000', 'durationNanosecond: soon'),
      ['0 modified pods shop/web-1'],
      ['kwok.yaml:32: durationNanosecond: Expected a number: "soon"'],
    ],
    [
      'a patch that makes the object unreadable',
      patch(1e9, 'patch', 'status:\n  podIPs: 7\n'),
      ['1 lost pods shop/web-1'],
      ['kwok.yaml:32: Pod shop/web-1: status.podIPs: Expected a list: 7'],
    ],
    [
      'no YAML',
      notReady.replace('template:', 'template: ['),
      ['0 lost pods shop/web-1'],
      [expect.stringMatching(/^kwok.yaml:\d+: Pod shop\/web-1: Expected YAML: /) as string],
    ],
  ])('%s', async (_, document, wantEntries, wantProblems) => {
    const got = await read(file(pod, document, patch(9e9, 'patch', 'status: {podIPs: null}')));
    const [last, ...rest] = got.entries.slice(3).map(brief).reverse();
    expect(rest.reverse()).toEqual(wantEntries);
    expect(last).toBe('9 modified pods shop/web-1');
    expect(got.problems).toEqual(wantProblems);
  });

  test('changes out of order have the time of the one before', async () => {
    const late = notReady.replace('1500000000', '1000000');
    const got = await read(file(pod, notReady, late));
    expect(got.entries.map(brief).slice(-2)).toEqual([
      '1.5 modified pods shop/web-1',
      '1.5 modified pods shop/web-1',
    ]);
  });

  test('a file that is cut off', async () => {
    const whole = gzipSync(file(pod, notReady, ...Array.from({ length: 500 }, () => notReady)));
    const got = await read(whole.subarray(0, -20));
    expect(got.problems).toHaveLength(1);
    expect(got.problems[0]).toMatch(/^kwok.yaml:\d+: Unexpected end of gzip data$/);
    expect(got.end.complete).toBe(false);
    expect(got.entries.length).toBeGreaterThan(400);
  });
});

describe('strategic merge patches', () => {
  const conditions = [
    { type: 'Initialized', status: 'True' },
    { type: 'Ready', status: 'True', reason: 'x' },
  ];
  test.each<[string, unknown, unknown, unknown]>([
    ['maps are merged', { a: { b: 1, c: 2 } }, { a: { c: 3, d: 4 } }, { a: { b: 1, c: 3, d: 4 } }],
    ['null deletes', { a: 1, b: { c: 1 } }, { a: null, b: { c: null, d: null } }, { b: {} }],
    [
      'lists are replaced',
      { subsets: [{ a: 1 }] },
      { subsets: [{ b: 2 }] },
      { subsets: [{ b: 2 }] },
    ],
    ['a value becomes a map', { a: 1 }, { a: { b: 1, c: null } }, { a: { b: 1 } }],
    ['$patch: replace', { a: { b: 1 } }, { a: { $patch: 'replace', c: 2 } }, { a: { c: 2 } }],
    ['$patch: delete', { a: { b: 1 }, c: 1 }, { a: { $patch: 'delete' } }, { c: 1 }],
    [
      'items of the same key are merged',
      { status: { conditions } },
      { status: { conditions: [{ type: 'Ready', status: 'False', reason: null }] } },
      { status: { conditions: [conditions[0], { type: 'Ready', status: 'False' }] } },
    ],
    [
      'items of another key are added, in the order that is asked for',
      { status: { conditions } },
      {
        status: {
          '$setElementOrder/conditions': [
            { type: 'New' },
            { type: 'Ready' },
            { type: 'Initialized' },
          ],
          conditions: [{ type: 'New', status: 'True' }],
        },
      },
      { status: { conditions: [{ type: 'New', status: 'True' }, conditions[1], conditions[0]] } },
    ],
    [
      'an order alone',
      { spec: { ports: [{ port: 1 }, { port: 2 }], volumes: [1] } },
      { spec: { '$setElementOrder/ports': [{ port: 2 }], '$setElementOrder/volumes': [] } },
      { spec: { ports: [{ port: 2 }, { port: 1 }], volumes: [1] } },
    ],
    [
      'an item is deleted',
      { status: { podIPs: [{ ip: 'a' }, { ip: 'b' }] } },
      {
        status: {
          '$setElementOrder/podIPs': [{ ip: 'b' }],
          podIPs: [
            { ip: 'a', $patch: 'delete' },
            { ip: 'c', $patch: 'delete' },
          ],
        },
      },
      { status: { podIPs: [{ ip: 'b' }] } },
    ],
    [
      'all items are replaced',
      { status: { podIPs: [{ ip: 'a' }] } },
      { status: { podIPs: [{ $patch: 'replace' }, { ip: 'b' }] } },
      { status: { podIPs: [{ ip: 'b' }] } },
    ],
    [
      'a list is deleted',
      { status: { conditions } },
      { status: { conditions: null } },
      { status: {} },
    ],
    [
      'lists in lists',
      { spec: { containers: [{ name: 'a', ports: [{ containerPort: 1 }] }] } },
      { spec: { containers: [{ name: 'a', ports: [{ containerPort: 2, name: 'x' }] }] } },
      {
        spec: {
          containers: [
            { name: 'a', ports: [{ containerPort: 1 }, { containerPort: 2, name: 'x' }] },
          ],
        },
      },
    ],
  ])('%s', (_, base, change, want) => {
    const before = structuredClone(base);
    expect(merge(base, change)).toEqual(want);
    expect(base).toEqual(before);
  });

  test('__proto__ is a key like any other', () => {
    const change = JSON.parse('{"__proto__":{"a":1}}') as unknown;
    const got = merge({}, change) as object;
    expect(Object.keys(got)).toEqual(['__proto__']);
    expect('a' in got).toBe(false);
  });

  test('never throw, and leave the base as it is', () => {
    const name = fc.constantFrom('status', 'conditions', 'spec', 'ports', 'a', '$patch');
    const value = fc.letrec((tie) => ({
      leaf: fc.constantFrom(null, 1, 'replace', 'delete', true),
      list: fc.array(tie('any'), { maxLength: 3 }),
      map: fc.dictionary(
        fc.oneof(
          name,
          name.map((name) => `$setElementOrder/${name}`),
        ),
        tie('any'),
        { maxKeys: 4 },
      ),
      any: fc.oneof({ depthSize: 'small' }, tie('leaf'), tie('list'), tie('map')),
    })).map;
    fc.assert(
      fc.property(value, value, (base, change) => {
        const before = structuredClone(base);
        merge(base, change);
        expect(base).toEqual(before);
      }),
      { numRuns: 500 },
    );
  });
});

test('any bytes are read without an error', async () => {
  const line = fc.constantFrom(
    ...[...new Set(file(pod, notReady, patch(2e9, 'delete', ''), secret).split('\n')), '---'],
  );
  await fc.assert(
    fc.asyncProperty(fc.array(line, { maxLength: 40 }), async (lines) => {
      await read(lines.join('\n'));
    }),
    { numRuns: 300 },
  );
});
