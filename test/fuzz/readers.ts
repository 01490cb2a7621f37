// What reads input that others write, each as one function over bytes, with sound inputs to begin
// with. An input must lead to a result or to an error for people, never to a crash.

import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { gunzipSync, gzipSync } from 'node:zlib';

import { stringify } from 'yaml';

import { readReport } from '../../src/agent/client/report.ts';
import { openAccount } from '../../src/cluster/api/transport/kubeconfig.ts';
import { readProxyConfig } from '../../src/cluster/decode/proxy-config.ts';
import { protobufCodec } from '../../src/cluster/decode/protobuf/codec.ts';
import { readDump } from '../../src/cluster/files/dump.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { resources } from '../../src/model/objects.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { loadBalancerOf } from '../../src/rules/cilium/load-balancer.ts';
import { frontendsInMaps } from '../../src/rules/cilium/packet-outcome.ts';
import { readRulesDump } from '../../src/rules/parse/rules-dump.ts';
import { frontendsInRules } from '../../src/rules/report/frontends.ts';
import { modeIn, settingsIn } from '../../src/rules/report/infer-proxy-config.ts';
import { checkJson, decodeOutcomes, InvalidReport } from '../../src/rules/report/outcome-json.ts';
import { DumpError } from '../../src/rules/ruleset.ts';
import { endpoint, pod, slice } from '../build.ts';
import { answers } from '../protobuf/fixtures.ts';

export interface Reader {
  /** Sound inputs. */
  readonly seeds: () => readonly Buffer[];
  /** Reads an input to its end. Rejects or throws if it cannot. */
  readonly read: (input: Buffer) => unknown;
  /** Whether an error is one for people; readers without it must not throw. */
  readonly isExpected?: (error: Error) => boolean;
}

const file = (path: string): Buffer => {
  const bytes = readFileSync(join(import.meta.dirname, '..', path));
  return path.endsWith('.gz') ? gunzipSync(bytes) : bytes;
};

const ignore = (): void => undefined;

/** A programming error has one of these types; the name of an error for people is `Error`. */
const isForPeople = (error: Error): boolean =>
  !(error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError);

/** The shortest line of each kind of a recording, and of each resource and type. */
function recordedLines(): string[] {
  const lines = file('recordings/shop.ndjson.gz').toString().trimEnd().split('\n');
  const groups = Map.groupBy(lines, (line) => {
    const { kind, resource, type } = JSON.parse(line) as Record<string, unknown>;
    return JSON.stringify([kind, resource, type]);
  });
  return [...groups.values()].map((group) =>
    group.reduce((shortest, line) => (line.length < shortest.length ? line : shortest)),
  );
}

/** The versions before `deltaLines`, of any name. */
const versionsBefore = {
  previousPod: () => pod({ resourceVersion: '7' }),
  previousOutput: () => slice({ resourceVersion: '7', endpoints: [endpoint(), endpoint()] }),
};

const deltaLines = [
  { resource: 'pods', ready: true, turnedAt: 5, ips: ['10.0.0.1'], terminal: false },
  { resource: 'endpointslices', parts: [[[0, 1], { of: 1, ready: false }, 1]], endpoints: [{}] },
].map((fields) => {
  const metadata = { name: 'web', namespace: 'shop', resourceVersion: '8' };
  return JSON.stringify({
    kind: 'delta',
    at: 2e9,
    type: 'MODIFIED',
    base: '7',
    metadata,
    ...fields,
  });
});

const podLines = [
  {
    kind: 'object',
    resource: 'pods',
    type: 'SYNC',
    object: { metadata: { name: 'web', namespace: 'shop', uid: 'u1', resourceVersion: '7' } },
  },
  {
    kind: 'pod',
    base: '7',
    ip: '10.0.0.1',
    nodeName: 'node-a',
    targetRef: { kind: 'Pod', namespace: 'shop', name: 'web-2', uid: 'u2' },
    resourceVersion: '8',
    otherIPs: ['::1'],
    labels: { app: 'web' },
    hostname: 'web-2',
    ready: true,
    turnedAt: 5,
    ipsSince: 5,
    created: 5,
  },
  {
    kind: 'object',
    resource: 'endpointslices',
    type: 'SYNC',
    bytes: 700,
    object: { metadata: { name: 'web', namespace: 'shop' }, endpoints: [{}], addressType: 'IPv4' },
    pods: { of: 2, parts: [[[2, 2], 1, [1, 1]]] },
  },
].map((line) => JSON.stringify({ at: 2e9, ...line }));

function recordedObjects(): unknown[] {
  return recordedLines().flatMap((line) => {
    const { kind, resource, type, object } = JSON.parse(line) as Record<string, unknown>;
    if (kind !== 'object' || type !== 'SYNC') return [];
    const names: Record<string, string> = { nodes: 'Node', services: 'Service', pods: 'Pod' };
    const isSlice = resource === 'endpointslices';
    const apiVersion = isSlice ? 'discovery.k8s.io/v1' : 'v1';
    const name = names[String(resource)] ?? (isSlice ? 'EndpointSlice' : 'Endpoints');
    return [{ apiVersion, kind: name, ...(object as object) }];
  });
}

async function drain(entries: AsyncIterable<unknown>): Promise<void> {
  const iterator = entries[Symbol.asyncIterator]();
  while ((await iterator.next()).done !== true);
}

function* senders(): Generator<Buffer> {
  const key = '10.96.0.1 tcp 443';
  const asking = { node: '172.18.0.2', pod: '10.244.1.1', outside: '203.0.113.1' };
  yield Buffer.from(
    JSON.stringify({
      version: 1,
      node: 'node-a',
      mode: 'iptables',
      nodeIPs: ['172.18.0.2'],
      localAddresses: ['127.0.0.1', 'fd00::1'],
      proxyConfig: {
        text: 'mode: iptables\nclusterCIDR: 10.244.0.0/16\nconntrack: {maxPerCore: 0}\n',
      },
      settings: { detectLocalMode: 'ClusterCIDR', clusterCIDRs: ['10.244.0.0/16'] },
      problems: [],
      asking: {
        addresses: ['10.244.1.1'],
        pods: ['10.244.1.0/24'],
        ip: asking,
        ip6: asking,
        strays: true,
      },
      doubled: [key],
      frontends: { [key]: '0123456789abcdef' },
    }),
  );
  yield Buffer.from(
    JSON.stringify({ rules: [{ chain: 'nat/PREROUTING', text: '-j DNAT' }], outcomes: [] }),
  );
}

const rulesIn = (node: string, name: string): Buffer =>
  file(`nodes/faults/${node}/dnat-port-wrong/${name}`);

function readRules(input: Buffer): void {
  const { ruleset } = readRulesDump(input.toString(), null);
  frontendsInRules(ruleset);
  settingsIn(ruleset, modeIn(ruleset));
}

/** The first and last parts of a long text, cut at lines. */
function shortened(text: string): Buffer {
  const lines = text.split('\n');
  return Buffer.from([...lines.slice(0, 40), ...lines.slice(-30)].join('\n'));
}

const kubeconfig = {
  apiVersion: 'v1',
  kind: 'Config',
  'current-context': 'one',
  clusters: [
    { name: 'c', cluster: { server: 'https://10.0.0.1:6443', 'proxy-url': 'http://10.0.0.2' } },
  ],
  users: [
    { name: 'u', user: { token: 'abc', tokenFile: 'token', username: 'a', password: 'b' } },
    {
      name: 'e',
      user: {
        exec: {
          apiVersion: 'client.authentication.k8s.io/v1',
          command: 'x',
          args: ['y'],
          env: [{ name: 'A', value: 'b' }],
        },
      },
    },
  ],
  contexts: [
    { name: 'one', context: { cluster: 'c', user: 'u', namespace: 'shop' } },
    { name: 'two', context: { cluster: 'c', user: 'e' } },
  ],
};

const kubeconfigPath = join(tmpdir(), `fuzz-kubeconfig-${process.pid}`);

export const readers: Readonly<Record<string, Reader>> = {
  dump: {
    seeds: () => {
      const items = recordedObjects();
      const list = { apiVersion: 'v1', kind: 'List', items };
      // YAML is slow to read, and a change in a short text meets more of it.
      const length = (item: unknown): number => JSON.stringify(item).length;
      const few = items.toSorted((a, b) => length(a) - length(b)).slice(0, 3);
      return [
        Buffer.from(JSON.stringify(list)),
        Buffer.from(stringify({ ...list, items: few })),
        Buffer.from(few.map((item) => stringify(item)).join('---\n')),
        Buffer.from(few.map((item) => JSON.stringify(item)).join('\n')),
      ];
    },
    read: (input) => drain(readDump(['-'], ignore, Readable.from([input]))),
  },
  recording: {
    seeds: () => [Buffer.from([...recordedLines(), ...deltaLines, ...podLines].join('\n'))],
    read: (input) =>
      drain(
        readRecording({ name: 'input', bytes: Readable.from([input]) }, ignore, versionsBefore),
      ),
    isExpected: isForPeople,
  },
  rules: {
    seeds: () =>
      ['iptables-save.txt.gz', 'ip6tables-save.txt.gz'].map((name) =>
        shortened(rulesIn('iptables-nft-node-a', name).toString()),
      ),
    read: readRules,
    isExpected: (error) => error instanceof DumpError,
  },
  nft: {
    seeds: () => {
      const { nftables } = JSON.parse(
        file('nodes/recordings/foreign/nftables/node-a/nft.json.gz').toString(),
      ) as {
        nftables: unknown[];
      };
      const some = [...nftables.slice(0, 20), ...nftables.slice(-20)];
      return [Buffer.from(JSON.stringify({ nftables: some }))];
    },
    read: readRules,
    isExpected: (error) => error instanceof DumpError,
  },
  cilium: {
    seeds: () => {
      const folder = 'nodes/cilium/recordings/a-external-clusterip-maglev';
      const lines = file(`${folder}/lb-maps.txt.gz`).toString().split('\n');
      const groups = Map.groupBy(lines, (line) => line.slice(0, line.indexOf(' ')));
      const maps = JSON.parse(file(`${folder}/cilium-maps.json.gz`).toString()) as object;
      // A table of Maglev has a megabyte.
      const few = Object.entries(maps).map(([name, all]) => [
        name,
        name.includes('maglev') ? [] : (all as unknown[]).slice(0, 2),
      ]);
      return [
        Buffer.from([...groups.values()].flatMap((group) => group.slice(0, 2)).join('\n')),
        Buffer.from(JSON.stringify(Object.fromEntries(few))),
      ];
    },
    read(input) {
      const { maps } = readRulesDump(input.toString(), null);
      if (maps !== undefined) frontendsInMaps(loadBalancerOf(maps));
    },
    isExpected: (error) => error instanceof DumpError,
  },
  report: {
    seeds: () => [...senders()],
    read(input) {
      const text = input.toString();
      runToEnd(checkJson(text));
      const raw: unknown = JSON.parse(text);
      const isReport = typeof raw === 'object' && raw !== null && 'version' in raw;
      if (!isReport) return runToEnd(decodeOutcomes(raw));
      const { proxyConfig } = runToEnd(readReport(raw));
      return proxyConfig === null ? null : readProxyConfig(proxyConfig, '1.36');
    },
    isExpected: (error) =>
      error instanceof InvalidReport || error instanceof SyntaxError || error.name === 'Error',
  },
  kubeconfig: {
    seeds: () => [Buffer.from(JSON.stringify(kubeconfig)), Buffer.from(stringify(kubeconfig))],
    read(input) {
      writeFileSync(kubeconfigPath, input);
      openAccount({ kubeconfig: kubeconfigPath, context: null }).close();
    },
    isExpected: isForPeople,
  },
  protobuf: {
    seeds: () =>
      answers()
        .map(({ protobuf }) => protobuf)
        .filter(({ length }) => length < 4000),
    async read(input) {
      for (const resource of resources) {
        for (const verb of ['list', 'watch'] as const) {
          const context = { resource, now: () => 0, previousPod: () => undefined, raw: false };
          await drain(protobufCodec[verb](Readable.from([input]), context));
        }
      }
    },
  },
};

// Hostile inputs by name, for each reader: what attackers and broken programs send.

interface HostileInput {
  readonly name: string;
  readonly bytes: () => Buffer;
}

const mebi = 1024 * 1024;

/** Values in the place of one that a reader expects, as JSON. */
const values: Readonly<Record<string, string>> = {
  null: 'null',
  'a number': '1e400',
  'a huge integer': '9'.repeat(10_000),
  'a long text': `"${'x'.repeat(mebi)}"`,
  'a list': '[]',
  'a deep list': `${'['.repeat(100_000)}${']'.repeat(100_000)}`,
  'a deep object': `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`,
  'a long list': `[${'0,'.repeat(100_000)}0]`,
  'an object of many keys': `{${Array.from({ length: 1e5 }, (_, key) => `"k${key}":1`).join()}}`,
  'a prototype': '{"__proto__":{"polluted":true},"constructor":{"prototype":{}}}',
  escapes: '"\\u001b[31m\\u0000\\u202e\\u2028\\ud800"',
};

/** Whole inputs that are of no form. */
const blobs: Readonly<Record<string, () => Buffer>> = {
  nothing: () => Buffer.alloc(0),
  zeros: () => Buffer.alloc(mebi),
  newlines: () => Buffer.alloc(2 * mebi, '\n'),
  spaces: () => Buffer.alloc(2 * mebi, ' '),
  'opening brackets': () => Buffer.alloc(mebi, '['),
  'opening braces': () => Buffer.alloc(mebi, '{'),
  quotes: () => Buffer.alloc(mebi, '"'),
  commas: () => Buffer.alloc(mebi, ','),
  'a YAML list of commas': () => Buffer.from(`a: [${','.repeat(mebi)}`),
  'a YAML list with a brace too many': () =>
    Buffer.from(
      [
        'apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod',
        '  metadata: {namespace: shop, name: a}',
        '  spec: {nodeName: n1, containers: [{name: c}]}}\n  status: {phase: Running}\n',
      ].join('\n'),
    ),
  'braces after a YAML document': () => Buffer.from(`a: {}\n${'}\n'.repeat(mebi / 2)}`),
  'dashes of a YAML list': () => Buffer.from('- '.repeat(mebi / 4)),
  'YAML documents': () => Buffer.from('a\n---\n'.repeat(mebi / 8)),
  'a YAML bomb': () =>
    Buffer.from(
      [
        'a: &a [x,x,x,x,x,x,x,x,x]',
        ...'bcdefghi'.split('').map((name, index) => {
          const before = String.fromCharCode(97 + index);
          return `${name}: &${name} [${Array.from({ length: 9 }, () => `*${before}`).join()}]`;
        }),
      ].join('\n'),
    ),
  'a YAML alias of itself': () => Buffer.from('a: &a\n  b: *a\n'),
  'invalid UTF-8': () => Buffer.from([0xff, 0xfe, 0xc3, 0x28, 0xed, 0xa0, 0x80]),
  'UTF-16': () => Buffer.from('\ufeff{"kind":"List"}', 'utf16le'),
  'gzip of zeros': () => gzipSync(Buffer.alloc(24 * mebi)),
  'gzip of newlines': () => gzipSync(Buffer.alloc(24 * mebi, '\n')),
  'gzip that is cut off': () => gzipSync(Buffer.alloc(mebi, 'x')).subarray(0, 500),
  'gzip in gzip': () => gzipSync(gzipSync(Buffer.alloc(4 * mebi))),
};

/** Every value in the places of some fields of a sound JSON. */
function replaced(seed: Buffer): HostileInput[] {
  const text = seed.toString();
  const fields = [...text.matchAll(/"(\w+)":(?=["[{\d])/g)].map(([, field = '']) => field);
  return [...new Set(fields)].slice(0, 4).flatMap((field) =>
    Object.entries(values).map(([name, value]) => ({
      name: `${name} in the place of ${field}`,
      bytes: () =>
        Buffer.from(text.replace(`"${field}":`, () => `"${field}":${value},"${field}-before":`)),
    })),
  );
}

/** The whole value of a reader that takes JSON, cut off at some places and repeated. */
function damaged(seed: Buffer): HostileInput[] {
  const parts = [0.1, 0.5, 0.9, 0.999].map((part) => ({
    name: `sound input, cut off at ${part * 100} %`,
    bytes: () => seed.subarray(0, Math.floor(seed.length * part)),
  }));
  const twice = { name: 'sound input, twice', bytes: () => Buffer.concat([seed, seed]) };
  const reversed = { name: 'sound input, reversed', bytes: () => Buffer.from(seed).reverse() };
  const packed = { name: 'sound input as gzip', bytes: () => gzipSync(seed) };
  return [...parts, twice, reversed, packed];
}

/** Short lines that refer to all of many pods, as often as they may and more often. */
function manyReferences(): Buffer {
  const [first = '', second = '', slice = ''] = podLines;
  const count = 20_000;
  const pods = Array.from({ length: count - 1 }, (_, index) =>
    second.replace('"name":"web-2"', `"name":"web-${index}"`),
  );
  const whole = slice.replace('"endpoints":[{}]', '"endpoints":[]');
  const lines = [1, 16, 31, 40].map((length) => {
    const parts = Array.from({ length }, () => `[${count},${count}]`).join();
    return whole.replace(/"pods":.*/, `"pods":{"of":${count},"parts":[[${parts}]]}}`);
  });
  return Buffer.from([recordedLines()[0], first, ...pods, ...lines].join('\n'));
}

/** All hostile inputs of a reader. */
export function hostileInputs(reader: string): readonly HostileInput[] {
  const [seed = Buffer.alloc(0)] = readers[reader]?.seeds() ?? [];
  const whole = Object.entries(blobs).map(([name, bytes]) => ({ name, bytes }));
  const json = reader === 'protobuf' || reader === 'rules' ? [] : replaced(seed);
  const own = { name: 'many references to pods', bytes: manyReferences };
  return [...whole, ...damaged(seed), ...json, ...(reader === 'recording' ? [own] : [])];
}
