// The command as people use it: words and namespaces, dumps and moments of the recording, exit
// codes, and an explanation of every fault that was done to the recorded cluster.

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import type { ExplainDocument } from '../../src/output/explain.ts';
import { causes } from '../../src/audit/causes.ts';
import { parseSubject } from '../../src/commands/explain.ts';

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const recording = fileURLToPath(new URL('../recordings/shop.ndjson.gz', import.meta.url));
const truth = JSON.parse(
  readFileSync(new URL('../recordings/shop.truth.json', import.meta.url), 'utf8'),
) as {
  readonly faults: readonly {
    readonly what: string;
    readonly from: number;
    readonly until: number | null;
    readonly expect: readonly {
      readonly output: string;
      readonly namespace?: string;
      readonly service?: string;
    }[];
  }[];
  readonly end: number;
};

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

function run(...args: string[]): Promise<Ran> {
  return new Promise((resolve) => {
    execFile(process.execPath, [main, 'explain', ...args], (error, out, err) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, out, err });
    });
  });
}

const recorded = (...args: string[]): Promise<Ran> => run(...args, '--recording', recording);
/** The text without its line breaks. */
const flat = (text: string): string => text.replace(/\s+/g, ' ');
const json = ({ out }: Ran): ExplainDocument => JSON.parse(out) as ExplainDocument;

describe('parseSubject', () => {
  const shop = (name: string) => ({ namespace: 'shop', name });
  test.each([
    [['service/web'], { pod: null, service: shop('web'), address: null }],
    [['svc/bank/web'], { pod: null, service: { namespace: 'bank', name: 'web' }, address: null }],
    [['pod/a', 'service/web'], { pod: shop('a'), service: shop('web'), address: null }],
    [['ip/fd00::1'], { pod: null, service: null, address: 'fd00::1' }],
  ])('%j', (words, want) => {
    expect(parseSubject(words, 'shop')).toEqual(want);
  });

  test.each([
    [[]],
    [['web']],
    [['deployment/web']],
    [['pod/']],
    [['pod/a', 'pod/b']],
    [['ip/10.0.0.1', 'pod/a']],
    [['pod/a/b/c']],
  ])('%j is refused', (words) => {
    expect(() => parseSubject(words, null)).toThrow('Expected service/NAME');
  });
});

describe('faults of the recording', () => {
  const faults = truth.faults.flatMap((fault) =>
    fault.expect
      .filter(({ output }) => output !== 'node')
      .map((want) => ({ ...fault, want, at: `${want.output} of ${String(want.service)}` })),
  );

  test.each(faults)('$what: $at', async ({ want, from, until }) => {
    const moment = String(Math.min(until ?? truth.end, from + 45));
    const key = `service/${String(want.namespace)}/${String(want.service)}`;
    const got = await recorded(key, '--at', moment, '-o', 'json');
    const explained = json(got);
    expect(got.code).toBe(explained.severity === 'info' ? 0 : 1);
    expect(explained.severity).not.toBeNull();
    expect(explained.change).not.toBeNull();
    const texts = JSON.stringify(explained.reasons);
    const words: Readonly<Record<string, string>> = {
      endpoints: 'Endpoints: different',
      endpointslices: 'EndpointSlices: different',
      input: 'no controller can put right',
    };
    expect(texts).toContain(words[want.output]);
  });

  test('the hand that edited the Endpoints is named', async () => {
    const { out, code } = await recorded('service/ledger');
    expect(code).toBe(1);
    expect(out).toContain('10.244.99.99');
    expect(flat(out)).toContain('Cause: Somebody else changed the object');
  });

  test('while nobody writes, the answer looks at kube-controller-manager', async () => {
    const { out } = await recorded('service/search', '--at', '2026-11-21T10:58:20Z');
    expect(out).toContain('look whether');
    expect(out).toContain('kube-controller-manager runs');
  });

  test('each hop of a pod has its lag', async () => {
    const got = json(await recorded('pod/search-685f69ccdd-2p56x', '-o', 'json'));
    const late = got.history?.filter(({ lag }) => lag !== null && lag > 50) ?? [];
    expect(late.map(({ what }) => what)).toContain('Service shop/search, IPv4 EndpointSlices');
    expect(late.map(({ what }) => what)).toContain('Service shop/search, Endpoints');
  });
});

describe('near misses of the recording', () => {
  test('a selector that nothing matches, with the label', async () => {
    const { out, code } = await recorded('service/thumbnails', '-n', 'media');
    expect(code).toBe(0);
    expect(out).toContain('Service media/thumbnails selects nothing');
    expect(out).toContain('label app is "resizer", the selector wants "thumbnail"');
  });

  test('a port that no container names, with the ports that are named', async () => {
    const { out, code } = await recorded('service/fraud-metrics');
    expect(code).toBe(0);
    expect(flat(out)).toContain('no container names a port metrics; ports named: http');
    expect(flat(out)).toContain('set targetPort of port metrics 9100/TCP to http');
  });
});

const folder = mkdtempSync(join(tmpdir(), 'explain-'));
const save = (name: string, items: unknown[]): string => {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  return path;
};
const meta = (name: string, namespace: string, labels = {}) => ({
  name,
  namespace,
  labels,
  uid: name,
});
const podOf = (namespace: string, app: string) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: meta('web-1', namespace, { app }),
  spec: { nodeName: 'a', containers: [] },
  status: { podIPs: [{ ip: '10.0.0.1' }], conditions: [{ type: 'Ready', status: 'True' }] },
});
const serviceOf = (namespace: string) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: meta('web', namespace),
  spec: { clusterIP: '10.96.0.1', ipFamilies: ['IPv4'], selector: { app: 'web' }, ports: [] },
});
const endpointsOf = (namespace: string) => ({
  apiVersion: 'v1',
  kind: 'Endpoints',
  metadata: meta('web', namespace),
});

describe('a dump', () => {
  const one = save('one.json', [podOf('shop', 'wep'), serviceOf('shop'), endpointsOf('shop')]);
  const two = save('two.json', [
    podOf('shop', 'wep'),
    serviceOf('shop'),
    serviceOf('bank'),
    endpointsOf('shop'),
  ]);

  test('has no history', async () => {
    const got = json(await run('pod/web-1', 'service/web', '--input', one, '-o', 'json'));
    expect(got.answer).toContain('label app is "wep", the selector wants "web"');
    expect(got.history).toBeNull();
  });

  test('the namespace of the pod is that of the Service where nothing is said', async () => {
    const got = json(await run('pod/web-1', 'service/web', '--input', two, '-o', 'json'));
    expect(got.subject).toEqual({ kind: 'pair', pod: 'shop/web-1', service: 'shop/web' });
  });

  test.each<[string, string[], string]>([
    ['a name of two namespaces', ['service/web', '--input', two], 'say which with -n'],
    ['no input', ['service/web'], 'either --input PATH or --recording FILE'],
    ['both', ['service/web', '--input', one, '--recording', recording], 'either --input'],
    ['a moment of a dump', ['service/web', '--input', one, '--at', '1'], 'a dump is one moment'],
    ['a word that is none', ['web', '--input', one], 'Expected service/NAME'],
    ['a format that is none', ['service/web', '-o', 'yaml', '--input', one], 'one of text, json'],
    ['a file that is absent', ['service/web', '--input', join(folder, 'no')], 'no'],
    [
      'a moment before all',
      ['service/web', '--recording', recording, '--at', '1'],
      'before its first',
    ],
  ])('%s exits with 2', async (_, args, want) => {
    const got = await run(...args);
    expect(got.code).toBe(2);
    expect(got.err).toContain(want);
  });

  test('what does not exist exits with 2', async () => {
    const got = await run('service/wep', '--input', one);
    expect(got.code).toBe(2);
    expect(got.out).toContain('there is shop/web');
  });
});

describe('docs/upstream-blind-spots.md', () => {
  const page = fileURLToPath(new URL('../../docs/upstream-blind-spots.md', import.meta.url));
  const text = readFileSync(page, 'utf8');
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const commands = [...text.matchAll(/^endpoint-auditor explain (?<args>.+)$/gm)].map(
    ({ groups }) => groups?.args ?? '',
  );

  test('has commands', () => {
    expect(commands.length).toBeGreaterThan(5);
  });

  test.each(commands)('explain %s', async (line) => {
    const args = line.split(' ').map((arg) => (arg.startsWith('test/') ? join(root, arg) : arg));
    const got = await run(...args);
    expect(got.err).toBe('');
    expect([0, 1]).toContain(got.code);
  });

  test('names scenarios that exist', () => {
    const names = [...text.matchAll(/`-t (?<name>[a-z0-9-]+)`/g)].map(({ groups }) => groups?.name);
    expect(names.length).toBeGreaterThan(10);
    for (const name of names) {
      expect(existsSync(join(root, 'test/scenarios', `${name ?? ''}.txt`)), name).toBe(true);
    }
  });

  test('has a section for every cause', () => {
    for (const cause of Object.keys(causes)) expect(text).toContain(`\`${cause}\``);
  });
});

test('what cannot be judged exits with 2', async () => {
  const bare = save('bare.json', [serviceOf('shop')]);
  const got = await run('service/web', '--input', bare);
  expect(got.code).toBe(2);
  expect(got.out).toContain('UNKNOWN');
});
