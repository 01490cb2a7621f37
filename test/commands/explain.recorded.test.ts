// The command as people use it: words and namespaces, dumps and moments of the recording, exit
// codes, and an explanation of every fault that was done to the recorded cluster. The command runs
// in this process, and a recording is decoded once, since nothing changes what was decoded.
// Evaluating the rules of nodes takes most of the time of a replay, so questions about objects are
// asked of a copy without rules. Real processes show that the command line leads to the command.

import { auditorDefaults } from '../build.ts';
import { execFile } from 'node:child_process';
import { createReadStream, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';

import { beforeAll, describe, expect, test, vi } from 'vitest';

import type { Explanation } from '../../src/audit/explain/explanation.ts';
import { causes } from '../../src/audit/finding/causes.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { explainTarget } from '../../src/auditor/explanations.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { explainSubject } from '../../src/commands/explain.ts';
import type { recordingOf } from '../../src/commands/replay.ts';
import { parseOutput, parseTime } from '../../src/commands/shared/flag-values.ts';
import { createApp, listen } from '../../src/output/http/server.ts';
import type { ExplainDocument } from '../../src/output/text/explain.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import { emptySlice, liveCluster, printed } from '../live-cluster.ts';

type Entries = Awaited<ReturnType<typeof recordingOf>>;
type Entry = Entries extends AsyncIterable<infer T> ? T : never;

const kept = new Map<string, Entry[]>();

vi.mock(import('../../src/commands/replay.ts'), async (importOriginal) => {
  const original = await importOriginal();
  async function* reading(path: string, entries: Entries): AsyncGenerator<Entry> {
    const read: Entry[] = [];
    for await (const entry of entries) {
      read.push(entry);
      yield entry;
    }
    kept.set(path, read);
  }
  return {
    ...original,
    async recordingOf(path, auditor, onProblem) {
      const known = kept.get(path);
      if (known !== undefined) return Readable.from(known);
      return reading(path, await original.recordingOf(path, auditor, onProblem));
    },
  };
});

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const recording = fileURLToPath(new URL('../recordings/shop.ndjson.gz', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'explain-'));

/** Writes a copy of the recording without rules and settings of nodes. */
function saveWithoutRules(): string {
  const lines = gunzipSync(readFileSync(recording)).toString().split('\n');
  const kept = lines.filter((line) => !line.startsWith('{"kind":"node-'));
  if (kept.length === lines.length) throw new Error('The recording has no rules of nodes');
  const path = join(folder, 'objects.ndjson');
  writeFileSync(path, kept.join('\n'));
  return path;
}

const objects = saveWithoutRules();

interface Wanted {
  readonly output: string;
  readonly namespace?: string;
  readonly service?: string;
}

interface Fault {
  readonly what: string;
  readonly from: number;
  readonly until: number | null;
  readonly expect: readonly Wanted[];
}

const truth = JSON.parse(
  readFileSync(new URL('../recordings/shop.truth.json', import.meta.url), 'utf8'),
) as { readonly faults: readonly Fault[]; readonly end: number };

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

const usual = {
  settle: 30,
  maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  endpoints: true,
} as const;

const flags = {
  input: { type: 'string', multiple: true },
  recording: { type: 'string' },
  at: { type: 'string' },
  namespace: { type: 'string', short: 'n' },
  output: { type: 'string', short: 'o' },
} as const;

async function ask(args: string[]): Promise<Ran> {
  const { values, positionals } = parseArgs({ args, options: flags, allowPositionals: true });
  const { at, output = 'text', ...named } = values;
  const moment = at === undefined ? {} : { at: parseTime(at) };
  const { out, err } = printed();
  try {
    const options = { ...usual, ...named, ...moment, output: parseOutput(output) };
    const code = await explainSubject(positionals, options);
    return { code, out: out(), err: err() };
  } catch (error) {
    // As the command line has it.
    return { code: 2, out: out(), err: error instanceof Error ? error.message : String(error) };
  } finally {
    vi.restoreAllMocks();
  }
}

const asked = new Map<string, Promise<Ran>>();

/** Runs the command with these words; the same words once. */
function run(...args: string[]): Promise<Ran> {
  const line = args.join(' ');
  let ran = asked.get(line);
  if (ran === undefined) asked.set(line, (ran = ask(args)));
  return ran;
}

/** Runs the command line in a process of its own. */
function runProcess(...args: string[]): Promise<Ran> {
  return new Promise((resolve) => {
    execFile(process.execPath, [main, 'explain', ...args], (error, out, err) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, out, err });
    });
  });
}

const recorded = (...args: string[]): Promise<Ran> => run(...args, '--input', objects);
const recordedWithRules = (...args: string[]): Promise<Ran> => run(...args, '--input', recording);
/** The text without its line breaks. */
const flat = (text: string): string => text.replace(/\s+/g, ' ');
const json = ({ out }: Ran): ExplainDocument => JSON.parse(out) as ExplainDocument;

interface Case extends Fault {
  readonly want: Wanted;
  readonly moment: number;
}

const cases: readonly Case[] = truth.faults.flatMap((fault) =>
  fault.expect
    .filter(({ output }) => output !== 'node')
    .map((want) => ({
      ...fault,
      want,
      moment: Math.min(fault.until ?? truth.end, fault.from + 45),
    })),
);

/** The explanations of the Services of all faults, each at its moment, in one replay. */
async function explained(): Promise<ReadonlyMap<Case, Explanation>> {
  const auditor = createAuditor({ ...auditorDefaults, ...usual });
  const found = new Map<Case, Explanation>();
  const waiting = [...cases].sort((a, b) => b.moment - a.moment);
  const lookUpTo = (at: number): void => {
    for (let one = waiting.at(-1); one !== undefined && one.moment < at; one = waiting.at(-1)) {
      waiting.pop();
      auditor.advance(one.moment);
      const service = `${String(one.want.namespace)}/${String(one.want.service)}`;
      const explanation = explainTarget(auditor, { kind: 'service', service });
      if (explanation === null) throw new Error('A fault before the beginning');
      found.set(one, explanation);
    }
  };
  const source = { name: objects, bytes: createReadStream(objects) };
  for await (const entry of readRecording(source, () => undefined)) {
    lookUpTo(entry.kind === 'event' ? entry.event.at : entry.at);
    auditor.take(entry);
  }
  lookUpTo(Infinity);
  return found;
}

describe('faults of the recording', () => {
  let explanations: ReadonlyMap<Case, Explanation> = new Map();
  beforeAll(async () => {
    explanations = await explained();
  });

  test.each(cases)('$what: $want.output of $want.service', (one) => {
    const got = explanations.get(one);
    expect(got?.severity).not.toBeNull();
    expect(got?.change).not.toBeNull();
    const words: Readonly<Record<string, RegExp>> = {
      endpoints: /"Endpoints: mismatch/,
      endpointslices: /"EndpointSlices: mismatch/,
      input: /"\d\. (?:critical|warning|info): /,
    };
    expect(JSON.stringify(got?.reasons)).toMatch(words[one.want.output] ?? /^$/);
  });

  test('the command explains the same moment', async () => {
    const one = cases.find(({ want }) => want.service === 'search');
    if (one === undefined) throw new Error('No such fault');
    const got = await recorded('service/shop/search', '--at', String(one.moment), '-o', 'json');
    expect(got.code).toBe(1);
    const { history } = json(got);
    expect(json(got)).toMatchObject({ ...explanations.get(one), at: one.moment, history });
  });

  test('the field manager that edited the Endpoints is named', async () => {
    const { out, code } = await recorded('service/ledger', '-n', 'payments');
    expect(code).toBe(1);
    expect(out).toContain('10.244.99.99');
    expect(flat(out)).toContain('Cause: Another client changed the object');
  });

  test('without a write, the answer points to kube-controller-manager', async () => {
    const at = ['--at', '2026-11-21T10:58:20Z'];
    const { out } = await run('service/search', '-n', 'shop', '--recording', recording, ...at);
    expect(flat(out)).toContain('check that kube-controller-manager is running');
  });

  test('each hop of a pod has its lag', async () => {
    const got = json(await recorded('pod/search-685f69ccdd-2p56x', '-o', 'json'));
    const late = got.history?.filter(({ lag }) => lag !== null && lag > 50) ?? [];
    expect(late.map(({ what }) => what)).toContain('Service shop/search, IPv4 EndpointSlices');
    expect(late.map(({ what }) => what)).toContain('Service shop/search, Endpoints');
  });
});

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

test('a critical finding on a node decides the headline and exit code of its Service', async () => {
  const { out, code } = await recordedWithRules('service/checkout', '-n', 'shop');
  expect(code).toBe(1);
  expect(out).toMatch(/^✗ MISMATCH \(CRITICAL\)/);
  expect(flat(out)).toContain('1. critical: ');
  expect(flat(out)).toContain('Node node-c');
  expect(flat(out)).toContain('3. warning: Two managers list one endpoint');
});

test('an address of a pod is explained as the pod is', async () => {
  const missing = save('missing.json', [
    podOf('shop', 'web'),
    { ...serviceOf('shop'), spec: { ...serviceOf('shop').spec, ports: [{ port: 80 }] } },
    { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a', uid: 'a' } },
    endpointsOf('shop'),
    { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSliceList', items: [] },
  ]);
  const of = await run('pod/web-1', '--input', missing);
  const it = await run('ip/10.0.0.1', '--input', missing);
  expect(of.code).toBe(1);
  expect(it.code).toBe(1);
  expect(it.out).toMatch(/^✗ MISMATCH \(WARNING\)/);
});

test('a finding that --suppressions accepts does not count', async () => {
  const missing = save('accepted.json', [
    podOf('shop', 'web'),
    { ...serviceOf('shop'), spec: { ...serviceOf('shop').spec, ports: [{ port: 80 }] } },
    { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a', uid: 'a' } },
    { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSliceList', items: [] },
  ]);
  const reason = { owner: 'team-a', reason: 'It is created later', expires: '2999-01-01' };
  const path = join(folder, 'accepted.yaml');
  writeFileSync(path, JSON.stringify([{ code: 'slice-endpoint-missing', ...reason }]));
  const line = ['service/web', '-n', 'shop', '--no-endpoints', '--input', missing];
  const found = await runProcess(...line);
  const got = await runProcess(...line, '--suppressions', path);
  expect([found.code, got.code]).toEqual([1, 0]);
  expect(found.out).toMatch(/^✗ MISMATCH \(WARNING\)/);
  expect(flat(got.out)).toContain(
    'slice-endpoint-missing is suppressed until 2999-01-01 by team-a',
  );
});

describe('near misses of the recording', () => {
  test('a selector that nothing matches, with the label', async () => {
    const { out, code } = await recorded('service/thumbnails', '-n', 'media');
    expect(code).toBe(0);
    expect(out).toContain('✗ CANNOT RECEIVE TRAFFIC');
    expect(flat(out)).toContain('Service media/thumbnails selects no pod');
    expect(out).toContain('label app is "resizer", the selector wants "thumbnail"');
  });

  test('a port that no container names, with the ports that are named', async () => {
    const { out, code } = await recorded('service/fraud-metrics', '-n', 'payments');
    expect(code).toBe(0);
    expect(flat(out)).toContain('no container has a port named metrics; named ports: http');
    expect(flat(out)).toContain('set targetPort of port metrics 9100/TCP to http');
  });
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

  test('the namespace of the Pod defaults to that of the Service', async () => {
    const got = json(await run('pod/web-1', 'service/web', '--input', two, '-o', 'json'));
    expect(got.subject).toEqual({ kind: 'pair', pod: 'shop/web-1', service: 'shop/web' });
  });

  test.each<[string, string[], string]>([
    ['a name of two namespaces', ['service/web', '--input', two], 'choose one with -n'],
    ['a dump and a recording', ['service/web', '--input', one, '--input', recording], 'only one'],
    ['a moment of a dump', ['service/web', '--input', one, '--at', '1'], 'a dump shows one moment'],
    ['a word that is none', ['web', '--input', one], 'Expected service/NAME'],
    ['no subject', ['-n', 'shop', '--input', one], 'for a whole namespace, use audit -n shop'],
    ['a bare address', ['10.1.0.12', '--input', one], 'did you mean ip/10.1.0.12?'],
    ['a file that is absent', ['service/web', '--input', join(folder, 'no')], 'no'],
    ['a moment before all', ['service/web', '--input', recording, '--at', '1'], 'before its first'],
  ])('%s exits with 2', async (_, args, want) => {
    const got = await run(...args);
    expect(got.code).toBe(2);
    expect(got.err).toContain(want);
  });

  test('a target that does not exist exits with 2', async () => {
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

  test('shows more than five commands', () => {
    expect(commands.length).toBeGreaterThan(5);
  });

  test.each(commands)('explain %s', async (line) => {
    const named = 'test/recordings/shop.ndjson.gz';
    expect(line).toContain(named);
    expect(join(root, named)).toBe(recording);
    const got = await run(...line.replace(named, objects).split(' '));
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

test('a target with an unknown verdict exits with 2', async () => {
  const bare = save('bare.json', [serviceOf('shop')]);
  const got = await run('service/web', '--input', bare);
  expect(got.code).toBe(2);
  expect(got.out).toContain('UNKNOWN');
});

test('a resource that the recorder could not read exits with 2', async () => {
  const kinds = { services: serviceOf, endpoints: endpointsOf };
  const resources = Object.keys(kinds);
  const lines: unknown[] = [
    { kind: 'header', format: 1, at: 10, kubernetes: 'v1.36.3', resources },
    ...Object.entries(kinds).flatMap(([resource, make]) => [
      { kind: 'object', at: 10, resource, type: 'SYNC', object: make('shop') },
      { kind: 'synced', at: 10, resource },
      { kind: 'watch', at: 10, resource, state: 'synced' },
    ]),
    { kind: 'watch', at: 20, resource: 'services', state: 'stale' },
    { kind: 'end', at: 60 },
  ];
  const path = join(folder, 'stale.ndjson');
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const got = await run('service/web', '--recording', path);
  expect(got.code).toBe(2);
  expect(flat(got.out)).toContain('a watch is interrupted, so the input may be old');
});

test('the history has the moment when a finding opened, also if no event follows', async () => {
  const kinds = { services: serviceOf, pods: (namespace: string) => podOf(namespace, 'web') };
  const resources = [...Object.keys(kinds), 'endpoints'];
  const at = 1_795_258_544;
  const lines: unknown[] = [
    { kind: 'header', format: 1, at, kubernetes: 'v1.36.3', resources },
    ...Object.entries(kinds).map(([resource, make]) => {
      return { kind: 'object', at, resource, type: 'SYNC', object: make('shop') };
    }),
    ...resources.map((resource) => ({ kind: 'synced', at, resource })),
    { kind: 'object', at: at + 500, resource: 'pods', type: 'ADDED', object: podOf('bank', 'x') },
    { kind: 'end', at: at + 900 },
  ];
  const path = join(folder, 'quiet.ndjson');
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const got = await run('service/web', '-n', 'shop', '--input', path, '--output', 'json');
  const ofEndpoints = json(got).history?.filter(({ what }) => what === 'Endpoints');
  expect(ofEndpoints?.map((it) => [it.at - at, it.after])).toEqual([
    [0, 'pending'],
    [30, 'different'],
  ]);
});

describe('a node', () => {
  test('on a recording, with the rules that packets met', async () => {
    const at = ['--at', '2026-11-21T10:58:20Z'];
    const got = await recordedWithRules(
      'node/node-c',
      'service/checkout:http',
      '-n',
      'shop',
      ...at,
    );
    expect(got.code).toBe(1);
    const text = flat(got.out);
    expect(text).toContain('Node node-c does not forward Service shop/checkout:http correctly');
    expect(text).toContain(
      '+ outcome, endpoint 10.244.7.7:8080 (pod shop/checkout-f87cb5594-s6gg5): ' +
        'receives 9.09% of connections',
    );
    expect(text).not.toContain('10.244.9.9:8080');
    expect(text).toContain(
      'kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector ' +
        'spec.nodeName=node-c',
    );
    expect(text).toMatch(/-t nat -A KUBE-SERVICES -d 10\.97\.103\.217/);
    expect(text).toContain('more rules, which the page of the node shows');
  });

  test('without known rules is unknown, with the expected outcome', async () => {
    const at = ['--at', '2026-11-21T10:56:00Z'];
    const got = await recordedWithRules(
      'node/node-a',
      'service/checkout:http',
      '-n',
      'shop',
      ...at,
    );
    expect(got.code).toBe(2);
    expect(flat(got.out)).toContain('no rules have been read from this node');
    expect(flat(got.out)).toContain('is expected to go to: one of 10.244.');
  });
});

describe('a live cluster', () => {
  const live = { ...usual, settle: 0.3, output: 'json' } as const;

  test('is watched while the target is pending', async () => {
    const { cluster } = liveCluster(emptySlice);
    const { out } = printed();
    expect(await explainSubject(['service/web'], live, () => cluster)).toBe(1);
    expect(JSON.parse(out())).toMatchObject({ verdict: 'different', history: null });
    vi.restoreAllMocks();
  });

  test('a target without differences is explained at once', async () => {
    const { cluster } = liveCluster();
    const { out } = printed();
    const patient = { ...live, settle: 3600 };
    expect(await explainSubject(['pod/web-1', 'svc/web'], patient, () => cluster)).toBe(0);
    expect(JSON.parse(out())).toMatchObject({ verdict: 'conform' });
    vi.restoreAllMocks();
  });
});

test('a running server gives the same explanation as the command', async () => {
  const auditor = createAuditor({ ...auditorDefaults, ...usual });
  const source = { name: objects, bytes: createReadStream(objects) };
  for await (const entry of readRecording(source, () => undefined)) {
    auditor.take(entry);
  }
  const at = { host: '127.0.0.1', port: 0 };
  const server = await listen(createApp(createQueries(auditor, objects)), at);
  const { out } = printed();
  const options = {
    ...usual,
    server: `http://127.0.0.1:${String(server.port)}`,
    namespace: 'shop',
    output: 'json',
  } as const;
  const code = await explainSubject(['service/search'], options);
  const got: unknown = JSON.parse(out());
  vi.restoreAllMocks();
  await server.close();
  const want = await recorded('service/search', '-n', 'shop', '-o', 'json');
  expect(code).toBe(want.code);
  expect(got).toEqual({ ...json(want), lost: null, history: null });
});

describe('the command line', () => {
  const one = save('line.json', [podOf('shop', 'wep'), serviceOf('shop'), endpointsOf('shop')]);

  test('explains its target', async () => {
    const line = ['pod/web-1', 'svc/web', '-n', 'shop', '--input', one, '-o', 'json'];
    expect(await runProcess(...line)).toEqual(await run(...line));
  });

  test('takes flags before its target', async () => {
    const line = ['--input', one, '-n', 'shop', '-o', 'json'];
    expect(await runProcess(...line, 'pod/web-1', 'svc/web')).toEqual(
      await run('pod/web-1', 'svc/web', ...line),
    );
  });

  test('explains a moment of a recording with the default window', async () => {
    const at = ['--at', '2026-11-21T10:58:20Z'];
    const line = ['service/search', '-n', 'shop', '--recording', recording, ...at];
    const got = await runProcess(...line);
    expect(got.code).toBe(1);
    expect(got).toEqual(await run(...line));
  });

  test.each([
    ['a word that is none', ['web', '--input', one], 'Expected service/NAME'],
    ['a format that is none', ['service/web', '-o', 'yaml', '--input', one], 'one of text, json'],
    ['a moment of a dump', ['service/web', '--at', '1', '--input', one], 'shows one moment'],
  ])('%s exits with 64', async (_, args, want) => {
    const got = await runProcess(...args);
    expect(got.code).toBe(64);
    expect(got.err).toContain(want);
  });
});
