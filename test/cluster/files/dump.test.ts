import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';

import type { Problem } from '../../../src/cluster/decode/problem.ts';
import { problemText } from '../../../src/cluster/decode/problem.ts';
import type { DumpEnd, DumpEntry } from '../../../src/cluster/files/dump.ts';
import { readDump } from '../../../src/cluster/files/dump.ts';
import type { UnreadableObject } from '../../../src/model/objects.ts';
import { chunks } from '../../build.ts';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'dump-'));
});
afterAll(() => rm(folder, { recursive: true }));

interface Got {
  /** `pods shop/web-1`: resource and key. */
  readonly objects: string[];
  readonly entries: DumpEntry[];
  readonly lists: string[];
  readonly lost: UnreadableObject[];
  readonly end: DumpEnd;
  readonly problems: string[];
}

async function readPaths(paths: readonly string[], stdin?: AsyncIterable<Uint8Array>) {
  const entries: DumpEntry[] = [];
  const problems: Problem[] = [];
  for await (const entry of readDump(paths, (problem) => problems.push(problem), stdin)) {
    entries.push(entry);
  }
  const end = entries.at(-1);
  if (end?.kind !== 'end') throw new Error('No end');
  const got: Got = {
    objects: entries.flatMap((entry) =>
      entry.kind === 'object' ? [`${entry.event.resource} ${entry.event.object.key}`] : [],
    ),
    entries,
    lists: entries.flatMap((entry) => (entry.kind === 'list' ? [entry.resource] : [])),
    lost: entries.flatMap((entry) => (entry.kind === 'unreadable' ? [entry.lost] : [])),
    end,
    problems: problems.map((problem) => problemText(problem).replaceAll(folder, '')),
  };
  return got;
}

const read = (content: string | Uint8Array, length = 1000) =>
  readPaths(['-'], chunks(Buffer.from(content), [length]));

async function files(name: string, contents: Record<string, string | Uint8Array>) {
  const root = join(folder, name);
  for (const [path, content] of Object.entries(contents)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), content);
  }
  return root;
}

type Raw = Record<string, unknown>;

const pod = (name: string, more: Raw = {}, meta: Raw = {}): Raw => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: 'shop', ...meta },
  ...more,
});
const service = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', namespace: 'shop' } };
const slice = {
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: { name: 'web-1', namespace: 'shop', managedFields: [{}] },
  addressType: 'IPv4',
};
const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'node-a' } };
const endpoints = {
  apiVersion: 'v1',
  kind: 'Endpoints',
  metadata: { name: 'web', namespace: 'shop' },
};
const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's', namespace: 'shop' } };

const objects = [node, pod('a'), pod('b'), service, secret, slice, endpoints];
const list = { apiVersion: 'v1', items: objects, kind: 'List', metadata: { resourceVersion: '' } };
const podsWithoutKind = [pod('a'), pod('b')].map(({ metadata }) => ({ metadata }));

describe('forms of a dump', () => {
  test.each<[string, string | Uint8Array]>([
    ['a JSON list', JSON.stringify(list)],
    ['an indented JSON list', JSON.stringify(list, null, 4)],
    ['JSON documents', objects.map((object) => JSON.stringify(object, null, 1)).join('\n')],
    ['a JSON array', JSON.stringify(objects)],
    ['gzip', gzipSync(JSON.stringify(list))],
    ['UTF-16', Buffer.from(`\uFEFF${JSON.stringify(list)}`, 'utf16le')],
    ['a YAML list', stringify(list)],
    ['a YAML list whose dashes are not indented', stringify(list, { indentSeq: false })],
    ['a YAML list after a separator', `---\n${stringify(list, { indentSeq: false })}`],
    ['a YAML list with carriage returns', stringify(list).replaceAll('\n', '\r\n')],
    ['a YAML list in JSON style', `---\n${JSON.stringify(list, null, 2)}`],
    ['YAML documents', objects.map((object) => stringify(object)).join('---\n')],
    ['YAML documents with ends', objects.map((object) => `${stringify(object)}...\n`).join('')],
    ['a YAML sequence', stringify(objects)],
    ['JSON after a warning', `Warning: deprecated\n${JSON.stringify(list)}`],
  ])('%s', async (name, content) => {
    for (const length of [1_000_000, 7]) {
      const got = await read(content, length);
      expect(got.objects).toEqual([
        'nodes node-a',
        'pods shop/a',
        'pods shop/b',
        'services shop/web',
        'endpointslices shop/web-1',
        'endpoints shop/web',
      ]);
      expect(got.lists).toEqual(['nodes', 'pods', 'services', 'endpointslices', 'endpoints']);
      expect(Object.fromEntries(got.end.ignored)).toEqual({ Secret: 1 });
      const warned = name === 'JSON after a warning';
      expect(got.problems).toEqual(warned ? ['stdin:1: Expected JSON: "Warning: deprecated"'] : []);
      expect(got.lost).toEqual([]);
    }
  });

  test.each<[string, string]>([
    ['kind first', JSON.stringify({ kind: 'PodList', apiVersion: 'v1', items: podsWithoutKind })],
    ['kind last', JSON.stringify({ apiVersion: 'v1', items: podsWithoutKind, kind: 'PodList' })],
    ['YAML, kind last', stringify({ apiVersion: 'v1', items: podsWithoutKind, kind: 'PodList' })],
    ['YAML, kind first', stringify({ kind: 'PodList', apiVersion: 'v1', items: podsWithoutKind })],
    [
      'lists in a list',
      JSON.stringify({
        kind: 'List',
        items: [{ apiVersion: 'v1', kind: 'PodList', items: podsWithoutKind }],
      }),
    ],
  ])('items without a kind, %s', async (_, content) => {
    const got = await read(content);
    expect(got.objects).toEqual(['pods shop/a', 'pods shop/b']);
    expect(got.lists).toEqual(['pods']);
    expect(got.problems).toEqual([]);
  });

  test.each<[string, string]>([
    ['JSON', '{"apiVersion":"v1","items":[],"kind":"PodList"}'],
    ['JSON null', '{"apiVersion":"v1","items":null,"kind":"PodList"}'],
    ['YAML', 'apiVersion: v1\nitems: []\nkind: PodList\n'],
    ['YAML null', 'apiVersion: v1\nitems:\nkind: PodList\n'],
    ['slices', '{"apiVersion":"discovery.k8s.io/v1","items":[],"kind":"EndpointSliceList"}'],
  ])('an empty list says that the dump holds the resource: %s', async (name, content) => {
    const got = await read(content);
    expect(got.lists).toEqual([name === 'slices' ? 'endpointslices' : 'pods']);
    expect(got.problems).toEqual([]);
  });

  test('lists of other kinds are ignored', async () => {
    const got = await read('{"kind":"SecretList","apiVersion":"v1","items":[{"metadata":{}}]}');
    expect(got.lists).toEqual([]);
    expect(Object.fromEntries(got.end.ignored)).toEqual({ Secret: 1 });
  });

  test('other groups have Nodes and Services too', async () => {
    const got = await read(
      'apiVersion: config.openshift.io/v1\nkind: Node\nmetadata:\n  name: cluster\n',
    );
    expect(got.objects).toEqual([]);
    expect(Object.fromEntries(got.end.ignored)).toEqual({ Node: 1 });
  });

  test('the lines of problems are those of the objects', async () => {
    const odd = objects.slice(0, 4).map((object) => ({ ...object, metadata: 7 }));
    const linesOf = ({ problems }: Got) => problems.map((text) => Number(text.split(':')[1]));
    const text = JSON.stringify({ ...list, items: odd }, null, 1);
    expect(linesOf(await read(text))).toEqual([4, 9, 14, 19]);
    const yaml = stringify({ ...list, items: odd.slice(0, 3) });
    const all = `# comment\n---\n${yaml}---\n${stringify(odd[3])}`;
    expect(linesOf(await read(all))).toEqual([5, 8, 11, 18]);
  });

  test('sizes are those of compact JSON without managedFields', async () => {
    const got = await read(JSON.stringify(slice, null, 4));
    const metadata = { name: 'web-1', namespace: 'shop' };
    const [entry] = got.entries.filter((entry) => entry.kind === 'object');
    expect(entry?.event.object).toMatchObject({
      bytes: JSON.stringify({ ...slice, metadata }).length,
    });
  });

  test('the newest kubelet of its Nodes', async () => {
    const node = (name: string, kubeletVersion?: string) => ({
      ...{ apiVersion: 'v1', kind: 'Node', metadata: { name } },
      status: { nodeInfo: { kubeletVersion } },
    });
    const versions = ['v1.9.7', 'v1.30.4-eks-1', 'v1.29.0+k3s1', 'kwok-v1.99.0', undefined];
    const nodes = versions.map((version, index) => node(String(index), version));
    expect((await read(JSON.stringify(nodes))).end.kubelet).toBe(30);
    expect((await read(JSON.stringify(nodes.slice(3)))).end.kubelet).toBeNull();
  });

  test('the newest time in its objects', async () => {
    expect((await read(JSON.stringify(pod('a')))).end.newest).toBeNull();
    const at = (seconds: number) => ({
      creationTimestamp: new Date(seconds * 1000).toISOString(),
    });
    const pods = [pod('a', {}, at(100)), pod('b', {}, at(300)), pod('c', {}, at(200))];
    const got = await read(JSON.stringify(pods));
    expect(got.end.newest).toBe(300);
    const events = got.entries.filter((entry) => entry.kind === 'object');
    expect(events.map(({ event }) => [event.type, event.at])).toEqual([
      ['added', 0],
      ['added', 0],
      ['added', 0],
    ]);
  });
});

describe('what is no dump is called what it is', () => {
  test.each<[string, string | Uint8Array, string]>([
    ['nothing', '', 'stdin: Is empty'],
    ['a picture', Buffer.from('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', 'latin1'), 'neither JSON nor YAML'],
  ])('%s', async (_, content, want) => {
    const { problems } = await read(content);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(want);
  });
});

describe('an object that is there twice', () => {
  const version = (resourceVersion: string) => pod('a', {}, { resourceVersion });
  test.each<[string, string, number]>([
    ['9', '10', 2],
    ['10', '9', 1],
    ['10', '10', 1],
    ['', '', 2],
    ['9', '', 2],
    ['x', '3', 2],
  ])('versions %j and then %j', async (first, second, want) => {
    const got = await read(JSON.stringify([version(first), version(second)]));
    const events = got.entries.filter((entry) => entry.kind === 'object');
    expect(events).toHaveLength(want);
    expect(events.at(-1)?.event.object.resourceVersion).toBe(want === 1 ? first : second);
    expect(got.end.duplicates).toBe(1);
  });
});

describe('what is cut off', () => {
  const grouped = [node, service, pod('a'), pod('b'), pod('c')];
  const anyPod = { resource: 'pods', namespace: null, name: null, labels: null };

  test('JSON: every complete item is delivered wherever it ends', async () => {
    const text = JSON.stringify({ apiVersion: 'v1', items: grouped, kind: 'List' }, null, 1);
    const all = (await read(text)).objects;
    for (let length = 1; length < text.length; length += 3) {
      const got = await read(text.slice(0, length));
      expect(got.objects).toEqual(all.slice(0, got.objects.length));
      expect(got.problems).toHaveLength(1);
      expect(got.problems[0]).toContain('Unexpected end');
      if (got.objects.length > 2) expect(got.lost).toContainEqual(anyPod);
    }
  });

  test('a list of a known kind loses only objects of that kind', async () => {
    const got = await read('{"kind":"EndpointsList","apiVersion":"v1","items":[\n{"metadata":{"na');
    expect(got.problems).toEqual(['stdin:2: Endpoints: Unexpected end']);
    expect(got.lost).toEqual([{ ...anyPod, resource: 'endpoints' }]);
    expect(got.lists).toEqual(['endpoints']);
  });

  test('of a list in no order any resource that was there may be missing', async () => {
    const text = JSON.stringify([pod('a'), service, pod('b')]);
    const got = await read(text.slice(0, -1));
    expect(got.lost).toEqual([anyPod, { ...anyPod, resource: 'services' }]);
  });

  const page = (version: string, next: string | undefined, name: string) =>
    JSON.stringify({
      kind: 'PodList',
      apiVersion: 'v1',
      metadata: { resourceVersion: version, continue: next },
      items: [pod(name)],
    });

  test('a page of a list without the next one', async () => {
    const got = await read(page('9', 'token', 'a'));
    expect(got.problems).toEqual(['stdin: Pod: The list goes on, and the next page is missing']);
    expect(got.lost).toEqual([anyPod]);
    const other = await read(page('9', 'token', 'a') + page('10', '', 'b'));
    expect(other.lost).toEqual([anyPod]);
  });

  test.each([
    [page('9', 'token', 'a') + page('9', '', 'b')],
    [page('9', undefined, 'b') + page('9', 'token', 'a')],
  ])('not a list with all of its pages', async (text) => {
    const got = await read(text);
    expect(got.problems).toEqual([]);
    expect(got.lost).toEqual([]);
  });

  test('the item that is cut off says its kind', async () => {
    const got = await read(`[${JSON.stringify(service)},{"apiVersion":"v1","kind":"Pod","me`);
    expect(got.lost).toEqual([anyPod, { ...anyPod, resource: 'services' }]);
  });

  test('gzip: one problem', async () => {
    const items = Array.from({ length: 500 }, (_, index) => pod(`pod-${index * 7919}`));
    for (const text of [
      JSON.stringify({ items, kind: 'List' }),
      stringify({ items, kind: 'List' }),
    ]) {
      const zipped = gzipSync(text);
      const got = await read(zipped.subarray(0, zipped.length >> 1));
      expect(got.objects.length).toBeGreaterThan(100);
      expect(got.problems).toHaveLength(1);
      expect(got.problems[0]).toMatch(/^stdin:\d+: Pod: Unexpected end of gzip data$/);
      expect(got.lost).toEqual([anyPod, anyPod].slice(0, got.lost.length));
    }
  });

  test('gzip between documents: one problem', async () => {
    const zipped = gzipSync(JSON.stringify(pod('a')));
    const got = await read(zipped.subarray(0, -4));
    expect(got.objects).toEqual(['pods shop/a']);
    expect(got.problems).toEqual(['stdin:1: Unexpected end of gzip data']);
  });

  test('YAML: the last item may be half, and is not delivered', async () => {
    const text = stringify({ apiVersion: 'v1', items: grouped, kind: 'List' });
    const all = (await read(text)).objects;
    const end = text.indexOf('kind: List');
    for (let length = text.indexOf('- '); length <= end; length += 3) {
      const got = await read(text.slice(0, length));
      expect(got.objects).toEqual(all.slice(0, got.objects.length));
      expect(got.objects.length).toBeLessThan(grouped.length);
      expect(got.problems).toHaveLength(1);
      expect(got.problems[0]).toContain('Unexpected end');
    }
  });

  test('items whose kind never comes', async () => {
    const got = await read('{"items":[{"metadata":{"name":"a","namespace":"b"}}');
    expect(got.problems).toEqual([
      'stdin:1: Unexpected end',
      'stdin:1: Expected a kind of the list or of its items: 1 objects',
    ]);
  });
});

describe('what is broken', () => {
  test('a JSON item that cannot be parsed is a problem with its line', async () => {
    const got = await read(`{"kind":"PodList","items":[\n${JSON.stringify(pod('a'))},\n{"b" 1}]}`);
    expect(got.objects).toEqual(['pods shop/a']);
    expect(got.problems).toHaveLength(1);
    expect(got.problems[0]).toMatch(/^stdin:3: Pod: Expected JSON: "SyntaxError/);
    expect(got.lost).toEqual([{ resource: 'pods', namespace: null, name: null, labels: null }]);
  });

  test('an object of a wrong type is a problem, and the others are read', async () => {
    const got = await read(JSON.stringify([pod('a', { spec: 1 }), pod('b'), null, 7, {}]));
    expect(got.objects).toEqual(['pods shop/b']);
    expect(got.problems).toEqual([
      'stdin:1: Pod shop/a: spec: Expected an object: 1',
      'stdin:1: Expected an object: null',
      'stdin:1: Expected an object: 7',
      'stdin:1: Expected a kind of the list or of its items: 1 objects',
    ]);
    expect(got.lost).toEqual([{ resource: 'pods', namespace: 'shop', name: 'a', labels: {} }]);
  });

  test('a YAML document between others', async () => {
    const broken = 'apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\n  namespace: shop\n  x: [\n';
    const got = await read(`${stringify(pod('a'))}---\n${broken}---\n${stringify(pod('c'))}`);
    expect(got.objects).toEqual(['pods shop/a', 'pods shop/c']);
    expect(got.problems).toHaveLength(1);
    expect(got.problems[0]).toMatch(/^stdin:1[0-4]: Pod shop\/b: Expected YAML: /);
    expect(got.lost).toEqual([{ resource: 'pods', namespace: 'shop', name: 'b', labels: null }]);
  });

  test('a YAML item between others', async () => {
    const text = stringify({ items: [pod('a'), pod('b'), pod('c')], kind: 'List' });
    const got = await read(text.replace('name: b', 'name: b\n      - "x'));
    expect(got.objects).toEqual(['pods shop/a', 'pods shop/c']);
    expect(got.problems).toHaveLength(1);
    expect(got.lost).toEqual([{ resource: 'pods', namespace: 'shop', name: 'b', labels: null }]);
  });

  test('a YAML document of another kind', async () => {
    const got = await read(`kind: Secret\nx: [\n---\n${stringify(pod('a'))}`);
    expect(got.objects).toEqual(['pods shop/a']);
    expect(got.problems).toEqual([]);
  });

  const level = (index: number) => `a${index}: &a${index} [*a${index - 1}, *a${index - 1}]\n`;
  const levels = Array.from({ length: 20 }, (_, index) => level(index + 1)).join('');
  const multiplying = `kind: Pod\na0: &a0 [x, x]\n${levels}`;

  test.each([
    ['an alias that contains itself', '&a\nkind: Pod\nx: *a\n'],
    ['aliases that multiply', multiplying],
    ['an unknown alias', 'kind: Pod\nx: *a\n'],
    ['brackets without end', `kind: Pod\nx: ${'['.repeat(20_000)}\n`],
    ['a tab', 'kind: Pod\n\tx: 1\n'],
  ])('YAML with %s', async (_, text) => {
    const got = await read(`${text}---\n${stringify(pod('a'))}`);
    expect(got.objects).toEqual(['pods shop/a']);
    expect(got.problems).toHaveLength(1);
  });

  test('lists in lists in lists', async () => {
    const nested = '{"kind":"List","items":['.repeat(5000) + ']}'.repeat(5000);
    const got = await read(nested);
    expect(got.objects).toEqual([]);
  });

  test('no dump at all', async () => {
    for (const content of ['\n\n', '# nothing\n', '---\n---\n']) {
      expect(await read(content)).toMatchObject({ objects: [], problems: [], lists: [] });
    }
    expect((await read('hello')).problems).toEqual(['stdin:1: Expected an object: "hello"']);
    expect((await read(Buffer.from([0, 1, 2, 255, 254]))).problems).toHaveLength(1);
  });
});

describe('YAML', () => {
  test('values that look like structure are text', async () => {
    const text = 'a\n- b\nitems:\n- kind: Pod\n  c\n\n# d\n...\nkind: List\n';
    const odd = pod('a', {}, { labels: { text }, annotations: { ['- x']: text } });
    for (const options of [{}, { indentSeq: false }]) {
      const yaml = stringify({ items: [odd, pod('b')], kind: 'List' }, options);
      const got = await read(yaml);
      expect(got.problems).toEqual([]);
      expect(got.objects).toEqual(['pods shop/a', 'pods shop/b']);
      const [entry] = got.entries.filter((entry) => entry.kind === 'object');
      expect(entry?.event.object.labels).toEqual({ text });
    }
  });

  test('what is not read of a pod does not matter, and the rest is read', async () => {
    const odd = {
      ...pod('a', {}, { labels: { env: 'x', command: 'y' }, annotations: { a: 'b\nc:\n- d\n' } }),
      spec: {
        initContainers: [{ args: ['a', '- b'], name: 'once' }],
        containers: [
          { args: ['-x', 'a:\n  b'], env: [{ name: 'A' }], name: 'app', command: [] },
          { name: 'b', resources: {}, ports: [{ name: 'http', containerPort: 80 }] },
        ],
        nodeName: 'node-a',
        volumes: [{ name: 'x', projected: { sources: [{}] } }],
        subdomain: 'web',
      },
      status: {
        conditions: [{ message: 'env:\n  x: "\n\n- y', status: 'True', type: 'Ready' }],
        containerStatuses: [{ name: 'app', state: { running: {} } }],
        podIPs: [{ ip: '10.0.0.1' }],
      },
    };
    const objectsOf = (got: Got) =>
      got.entries.flatMap((entry) => (entry.kind === 'object' ? [entry.event.object] : []));
    const want = objectsOf(await read(JSON.stringify([odd, odd])));
    expect(want[0]).toMatchObject({ node: 'node-a', ready: true, ips: ['10.0.0.1'] });
    for (const indentSeq of [true, false]) {
      for (const defaultStringType of ['PLAIN', 'QUOTE_DOUBLE', 'BLOCK_LITERAL'] as const) {
        const options = { indentSeq, defaultStringType, defaultKeyType: 'PLAIN' as const };
        const text = stringify({ items: [odd, structuredClone(odd)], kind: 'List' }, options);
        expect(objectsOf(await read(text))).toEqual(want);
        expect(objectsOf(await read(stringify(odd, options)))).toEqual(want.slice(1));
      }
    }
  });
});

describe('files', () => {
  test('a folder of must-gather is read as one dump', async () => {
    const podList = { apiVersion: 'v1', items: [pod('a'), pod('b')], kind: 'PodList' };
    const slices = { apiVersion: 'discovery.k8s.io/v1', items: [slice], kind: 'EndpointSliceList' };
    const root = await files('must-gather', {
      version: 'oc 4.20\n',
      timestamp: '2026-11-21 10:53:36 +0000 UTC start\n',
      'event-filter.html': '<html>',
      'etcd_info/endpoint_health.json': '[{"endpoint":"https://10.0.0.1:2379"},{"health":true}]',
      'etcd_info/number.json': '7 [1]',
      'image/cluster-scoped-resources/core/nodes/node-a.yaml': `---\n${stringify(node)}`,
      'image/namespaces/shop/core/pods.yaml': `---\n${stringify(podList, { indentSeq: false })}`,
      'image/namespaces/shop/core/services.yaml': `---\n${stringify(service)}`,
      'image/namespaces/shop/core/endpoints.yaml.gz': gzipSync(stringify(endpoints)),
      'image/namespaces/shop/core/secrets.yaml': stringify(secret),
      'image/namespaces/shop/discovery.k8s.io/endpointslices.yaml': stringify(slices),
      'image/namespaces/shop/pods/a/a.yaml': `---\n${stringify(pod('a'))}`,
      'image/namespaces/shop/pods/a/app/logs/current.log': '{"kind":"Pod"',
      'image/.hidden/x.yaml': stringify(pod('hidden')),
      image2: JSON.stringify(pod('c')),
    });
    const got = await readPaths([root]);
    expect(got.objects).toEqual([
      'nodes node-a',
      'endpoints shop/web',
      'pods shop/a',
      'pods shop/b',
      'services shop/web',
      'endpointslices shop/web-1',
      'pods shop/a',
      'pods shop/c',
    ]);
    expect(got.problems).toEqual(['/must-gather/etcd_info/number.json:1: Expected JSON: "7 [1]"']);
    expect(Object.fromEntries(got.end.ignored)).toEqual({ Secret: 1, 'no kind': 1 });
    expect(got.end.duplicates).toBe(1);
  });

  test('a name that is no UTF-8 is reported', async () => {
    const text = JSON.stringify(pod('a')).replace('"name":"a"', '"name":"a\u00ff"');
    const got = await read(Buffer.from(text, 'latin1'));
    expect(got.objects).toEqual([]);
    expect(got.problems[0]).toContain('Expected a name in UTF-8');
  });

  test('symbolic links that lead out of the directory are not followed', async () => {
    const root = await files('inside', { 'pod.json': JSON.stringify(pod('a')) });
    const other = await files('inside-not', { 'b/secret.json': 'a secret' });
    await symlink('/etc/passwd', join(root, 'a.json'));
    await symlink(join(other, 'b'), join(root, 'b'));
    await symlink(join(other, 'b/secret.json'), join(root, 'c'));
    const got = await readPaths([root]);
    expect(got.objects).toEqual(['pods shop/a']);
    expect(got.problems).toEqual(
      ['a.json', 'b', 'c'].map((name) => `/inside/${name}: Is a link out of the directory`),
    );
  });

  test('symbolic links that lead back, nowhere and to a file', async () => {
    const root = await files('links', { 'a/pod.json': JSON.stringify(pod('a')) });
    await symlink(root, join(root, 'a/loop'));
    await symlink(join(root, 'a'), join(root, 'b'));
    await symlink('/does/not/exist', join(root, 'c.json'));
    await symlink(join(root, 'a/pod.json'), join(root, 'd.json'));
    const got = await readPaths([root]);
    expect(got.objects).toEqual(['pods shop/a', 'pods shop/a']);
    expect(got.problems).toEqual(['/links/c.json: Cannot read: no such file or directory']);
  });

  test('a file may have any name when it is asked for', async () => {
    const root = await files('names', {
      'pods.txt': JSON.stringify(pod('a')),
      'pods.json': stringify(pod('b')),
    });
    expect((await readPaths([join(root, 'pods.txt')])).objects).toEqual(['pods shop/a']);
    expect((await readPaths([join(root, 'pods.json')])).problems).not.toEqual([]);
    expect((await readPaths([root])).objects).toEqual([]);
  });

  test.each([
    ['that cannot be read', '/does/not/exist'],
    ['behind a link out of the directory', '/etc/passwd'],
  ])('objects of a file %s may be any', async (what, target) => {
    const root = await files(what, { 'a.json': JSON.stringify(pod('a')) });
    await symlink(target, join(root, 'b.txt'));
    expect((await readPaths([root])).lost).toEqual([]);
    await symlink(target, join(root, 'b.json'));
    const anyPod = { resource: 'pods', namespace: null, name: null, labels: null };
    expect((await readPaths([root])).lost).toEqual([anyPod]);
  });

  test.each([
    ['a document', stringify(pod('b')).slice(0, -20), ['pods', 'services']],
    [
      'a list of one kind',
      stringify({ apiVersion: 'v1', kind: 'PodList', items: [pod('b')] }).slice(0, -20),
      ['pods'],
    ],
  ])('what follows the damage in %s may be any object', async (_, cut, resources) => {
    const text = gzipSync(`${stringify(pod('a'))}---\n${cut}`).subarray(0, -12);
    const root = await files('cut', { 'a.yaml.gz': text, 'b.yaml': stringify(service) });
    const got = await readPaths([root]);
    const any = got.lost.filter(({ name }) => name === null).map(({ resource }) => resource);
    expect([...new Set(any)].sort()).toEqual(resources);
  });

  test('a file of many values that are no objects is not read to its end', async () => {
    const lines = '{}\n'.repeat(300_000);
    const root = await files('values', { 'a.json': JSON.stringify(pod('a')), log: lines });
    const got = await readPaths([root]);
    expect(got.objects).toEqual(['pods shop/a']);
    expect(got.lost).toEqual([]);
    expect(got.problems).toEqual([]);
    expect(got.end.ignored.get('no kind')).toBeLessThan(200_000);
  });

  test('several paths are read as one dump', async () => {
    const root = await files('several', {
      'a.json': JSON.stringify(pod('a')),
      'b.yaml': stringify(service),
    });
    const stdin = chunks(Buffer.from(JSON.stringify(node)));
    const got = await readPaths([join(root, 'a.json'), '-', join(root, 'b.yaml')], stdin);
    expect(got.objects).toEqual(['pods shop/a', 'nodes node-a', 'services shop/web']);
  });

  test('a path that does not exist throws', async () => {
    await expect(readPaths([join(folder, 'missing.json')])).rejects.toThrow('ENOENT');
  });
});

test('any bytes are read without an error', async () => {
  const word = fc.constantFrom(
    ...[
      '{',
      '}',
      '[',
      ']',
      '"',
      ':',
      ',',
      ' ',
      '\n',
      '- ',
      'items:',
      'kind: Pod',
      '---',
      '&a',
      '*a',
    ],
    ...['"items"', '"kind"', '"Pod"', 'metadata:\n  name: x', '|', '>', '? ', '!!', '%', '\u0000'],
  );
  const content = fc.oneof(
    fc.array(word, { maxLength: 30 }).map((words) => words.join('')),
    fc.array(word, { maxLength: 30 }).map((words) => `{${words.join('')}`),
    fc.uint8Array(),
  );
  await fc.assert(
    fc.asyncProperty(content, fc.integer({ min: 1, max: 9 }), async (content, length) => {
      await read(content, length);
    }),
    { numRuns: 1000 },
  );
});

test('objects after damage between two documents may be any', async () => {
  const path = join(folder, 'between.json.gz');
  const whole = gzipSync(`${JSON.stringify(pod('a'))}\n`);
  await writeFile(path, Buffer.concat([whole, gzipSync(JSON.stringify(pod('b'))).subarray(0, 12)]));
  const got = await readPaths([path]);
  expect(got.objects).toEqual(['pods shop/a']);
  expect(got.problems).toHaveLength(1);
  expect(got.lost).toEqual([{ resource: 'pods', namespace: null, name: null, labels: null }]);
});

test.each([
  ['json', '1\n'],
  ['yaml', 'a\n---\n'],
])(
  '100,000 values in %s that are no objects end the file',
  async (kind, value) => {
    const text = `${value.repeat(250_000)}${JSON.stringify(pod('a'))}\n`;
    const path = join(folder, `values.${kind}`);
    await writeFile(path, `${JSON.stringify(pod('b'))}\n${kind === 'yaml' ? '---\n' : ''}${text}`);
    const got = await readPaths([path]);
    expect(got.objects).toEqual(['pods shop/b']);
    expect(got.problems.at(-1)).toContain('Too many problems to read the rest');
    expect(got.lost).toEqual([{ resource: 'pods', namespace: null, name: null, labels: null }]);
  },
  60_000,
);
