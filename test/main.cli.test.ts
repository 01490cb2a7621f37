// The command line as people and pipelines use it: real processes, real files, exit codes.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { version } from '../src/model/program-version.ts';
import { nameOf, newestRelease } from '../src/shadow/release.ts';
import type { AuditReport } from '../src/output/text/report.ts';
import { schemaErrors } from './report-schema.ts';

const main = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const recording = fileURLToPath(new URL('recordings/shop.ndjson.gz', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs the program to its end, or until `until` has been printed and `then` has been done. */
function run(args: readonly string[], input = ''): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [main, ...args], { stdio: 'pipe' });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
    child.on('close', (code) => {
      resolve({ code, out, err });
    });
    child.stdin.end(input);
  });
}

/** The report of a run, which must be as docs/report.schema.json describes it. */
function json(ran: Ran): AuditReport {
  const report = JSON.parse(ran.out) as AuditReport;
  expect(schemaErrors(report)).toEqual([]);
  return report;
}

function save(name: string, content: string | Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const meta = (name: string, more = {}) => ({ name, namespace: 'shop', uid: name, ...more });
const zone = { 'topology.kubernetes.io/zone': 'z1' };
const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a', uid: 'a', labels: zone } };
const service = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: meta('web'),
  spec: {
    clusterIP: '10.96.0.9',
    ipFamilies: ['IPv4'],
    selector: { app: 'web' },
    ports: [{ port: 80, targetPort: 8080, protocol: 'TCP' }],
  },
};
const pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: meta('web-1', { labels: { app: 'web' } }),
  spec: { nodeName: 'a' },
  status: {
    phase: 'Running',
    podIPs: [{ ip: '10.1.0.1' }],
    conditions: [{ type: 'Ready', status: 'True' }],
  },
};
const targetRef = { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'web-1' };
const endpoints = {
  apiVersion: 'v1',
  kind: 'Endpoints',
  metadata: meta('web', {
    labels: { 'endpoints.kubernetes.io/managed-by': 'endpoint-controller' },
  }),
  subsets: [
    {
      addresses: [{ ip: '10.1.0.1', nodeName: 'a', targetRef }],
      ports: [{ port: 8080, protocol: 'TCP' }],
    },
  ],
};
const slice = {
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: meta('web-x', {
    labels: {
      'kubernetes.io/service-name': 'web',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
    },
    ownerReferences: [{ apiVersion: 'v1', kind: 'Service', name: 'web', uid: 'web' }],
  }),
  addressType: 'IPv4',
  ports: [{ name: '', port: 8080, protocol: 'TCP' }],
  endpoints: [
    {
      addresses: ['10.1.0.1'],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: 'a',
      zone: 'z1',
      targetRef,
    },
  ],
};

const listOf = (...items: object[]): string =>
  JSON.stringify({ apiVersion: 'v1', kind: 'List', items });
const well = listOf(node, service, pod, endpoints, slice);

describe('audit', () => {
  it('ends with 0 where all conform, from a file and from stdin', async () => {
    const file = await run(['audit', save('well.json', well)]);
    expect(file).toMatchObject({ code: 0, err: '' });
    const piped = await run(['audit', '-', '-o', 'json'], well);
    expect(piped.code).toBe(0);
    expect(json(piped).verdicts.endpointslices).toEqual({
      conform: 1,
      pending: 0,
      different: 0,
      unknown: 0,
    });
    expect(piped.out).not.toContain('\u001b');
  });

  it('ends with 1 and names the pod if a finding is open', async () => {
    const without = { ...slice, endpoints: [] };
    const ran = await run(
      ['audit', '-', '-o', 'json'],
      listOf(node, service, pod, endpoints, without),
    );
    expect(ran.code).toBe(1);
    const [finding] = json(ran).findings;
    expect(finding).toMatchObject({ code: 'slice-endpoint-missing', namespace: 'shop' });
    expect(finding?.expected).toContain('web-1');
  });

  it('prints no time that a dump does not have', async () => {
    const items = [node, service, pod, endpoints, { ...slice, endpoints: [] }];
    const ran = await run(['audit', '-', '-o', 'json'], listOf(...items));
    expect(json(ran).input).toMatchObject({ from: null, until: null, complete: null });
    expect(json(ran).findings.map(({ since, openedAt }) => [since, openedAt])).toEqual([
      [null, null],
    ]);
    const created = { ...pod.metadata, creationTimestamp: '2026-11-21T10:56:46Z' };
    const dated = listOf(...items, { ...pod, metadata: { ...created, name: 'other' } });
    const later = await run(['audit', '-', '-o', 'json'], dated);
    expect(json(later).input).toMatchObject({ from: null, until: 1_795_258_606 });
    for (const format of ['wide', 'yaml', 'junit']) {
      expect((await run(['audit', '-', '-o', format], listOf(...items))).out).not.toContain('1970');
    }
  });

  it('ends with 2 if there is nothing to audit, as with a mistyped name', async () => {
    const ran = await run(['audit', '-', '-n', 'other'], well);
    expect(ran.code).toBe(2);
    expect(ran.out).toContain('Namespace other has no Services in the input\n');
  });

  it('ends with 2 where a Service cannot be read, though the others conform', async () => {
    const broken = {
      ...service,
      metadata: { ...service.metadata, name: 'api', uid: 'api' },
      spec: { ...service.spec, ports: 'none' },
    };
    const items = listOf(node, service, broken, pod, endpoints, slice);
    const ran = await run(['audit', '-', '-o', 'json'], items);
    expect(ran.code).toBe(2);
    expect(json(ran).unknown).toEqual({ 'object-unreadable': 1 });
    expect(ran.err).toContain('Service shop/api: spec.ports');
    const other = await run(['audit', '-', '-n', 'other'], items);
    expect(other.out).not.toContain('object-unreadable');
  });

  it('ends with 2 and the reason if something is unknown', async () => {
    const ran = await run(['audit', '-', '-o', 'json'], listOf(node, service, pod, endpoints));
    expect(ran.code).toBe(2);
    expect(json(ran).unknown).toEqual({ 'endpointslices-not-known': 1 });
    const broken = { ...pod, status: { ...pod.status, podIPs: 'none' } };
    const unreadable = await run(['audit', '-'], listOf(node, service, broken, endpoints, slice));
    expect(unreadable.code).toBe(2);
    expect(unreadable.err).toContain('Pod shop/web-1: status.podIPs');
  });

  it.each([
    [
      ['lag', '--server', 'http://127.0.0.1:1', '--settle', '5s'],
      '--settle <duration>',
      '--server',
    ],
    [['audit', 'dump.yaml', '--settle', '5s'], '--settle <duration>', 'a dump'],
    [['audit', '--at', '02:13'], '--at <time>', 'a live cluster'],
  ])('%j: an option without effect is refused', async (args, option, input) => {
    const ran = await run(args);
    expect(ran.code).toBe(64);
    expect(ran.err).toContain(`option '${option}' has no effect on ${input}`);
  });

  it('ends with the code of its report if the reader of the pipe reads only a part', async () => {
    const many = Array.from({ length: 400 }, (_, at) => {
      const name = `web${at}`;
      const ip = `10.1.${at >> 8}.${at & 255}`;
      const labels = { app: name };
      return [
        { ...service, metadata: meta(name), spec: { ...service.spec, selector: labels } },
        { ...pod, metadata: meta(name, { labels }), status: { ...pod.status, podIPs: [{ ip }] } },
      ];
    });
    const dump = save('many.json', listOf(node, ...many.flat(), slice));
    const pipeline = '"$0" "$1" audit --no-endpoints "$2" | head -1; exit ${PIPESTATUS[0]}';
    const args = ['-c', pipeline, process.execPath, main, dump];
    const child = spawn('bash', args, { stdio: ['ignore', 'pipe', 'ignore'] });
    const out = child.stdout.toArray();
    const [code] = (await once(child, 'close')) as [number];
    expect(Buffer.concat((await out) as Buffer[]).length).toBeLessThan(1000);
    expect(code).toBe(1);
  });

  it('does not take an empty file for a cluster', async () => {
    const ran = await run(['audit', save('empty.json', '{}')]);
    expect(ran.code).toBe(2);
    expect(ran.err).toContain('nothing to audit');
  });

  it('names the command for a recording, from a file and from stdin', async () => {
    const want = (path: string) =>
      `endpoint-auditor: ${path} is a recording: use "replay ${path}"\n`;
    expect(await run(['audit', recording])).toEqual({ code: 64, out: '', err: want(recording) });
    const piped = await run(['audit', '--input', '-'], '{"kind":"header","format":1,"at":1}\n');
    expect(piped).toEqual({ code: 64, out: '', err: want('-') });
  });

  it('audits EndpointSlices alone with --no-endpoints', async () => {
    const path = save('slices.json', listOf(node, service, pod, slice));
    expect(json(await run(['audit', path, '-o', 'json'])).unknown).toEqual({
      'endpoints-not-known': 1,
    });
    const ran = await run(['audit', '--input', path, '--no-endpoints', '-o', 'json']);
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(json(ran).verdicts.endpoints).toEqual({
      conform: 0,
      pending: 0,
      different: 0,
      unknown: 0,
    });
    const wrong = { ...endpoints, subsets: [] };
    const ignored = await run(
      ['audit', '-', '--no-endpoints'],
      listOf(node, service, pod, slice, wrong),
    );
    expect(ignored.code).toBe(0);
  });
});

describe('replay', () => {
  it('prints findings that open and resolve, and ends with 1', async () => {
    const ran = await run(['replay', recording]);
    expect(ran.code).toBe(1);
    expect(ran.out).toMatch(/OPEN +critical shop\/search endpointslices/);
    expect(ran.out).toMatch(/RESOLVED critical shop\/search endpointslices/);
  });

  it('stops at a moment, before anything was wrong', async () => {
    const ran = await run(['replay', recording, '--until', '1795258560', '-o', 'json']);
    expect(ran.code).toBe(0);
    expect(json(ran).input).toMatchObject({ until: 1_795_258_560, complete: true });
  });

  it('does not take a dump for a recording, in whatever form', async () => {
    const yaml = 'apiVersion: v1\nkind: List\nitems: []\n';
    const pretty = JSON.stringify(JSON.parse(well), null, 4);
    for (const [name, text] of [
      ['one.json', well],
      ['many.json', pretty],
      ['zipped.json.gz', gzipSync(pretty)],
      ['lines.ndjson', `${JSON.stringify(node)}\n${JSON.stringify(service)}\n`],
      ['list.json', `[${JSON.stringify(service)}]`],
      ['dump.yaml', yaml],
      ['documents.yaml', `---\n${yaml}`],
    ] as const) {
      const path = save(name, text);
      const ran = await run(['replay', path]);
      const err = `endpoint-auditor: ${path}: Expected a recording, found API objects`;
      expect(ran).toEqual({ code: 64, out: '', err: `${err}: use "audit ${path}"\n` });
    }
  });

  it('says that its figures are of all namespaces where it reports one', async () => {
    const lines = gunzipSync(readFileSync(recording)).toString();
    const odd = save('odd.ndjson', `${lines}{"kind":"something else","at":1795258745}\n`);
    const ran = await run(['replay', odd, '-n', 'shop']);
    expect(ran.out).toContain('input dropped (all namespaces): ');
    expect(ran.out).toContain('Convergence lag p50 / p99 (all namespaces): ');
    const all = await run(['replay', recording]);
    expect(all.out).not.toContain('all namespaces');
  });

  it('audits the rest of a truncated recording, and reports that it is truncated', async () => {
    const whole = readFileSync(recording);
    const cut = save('cut.ndjson.gz', whole.subarray(0, 1_500_000));
    const ran = await run(['replay', cut, '-o', 'json']);
    expect(ran.code).toBe(1);
    expect(ran.err).toContain('Unexpected end of gzip data');
    expect(json(ran).input.complete).toBe(false);
    const lines = gunzipSync(whole).toString().split('\n');
    const half = save('half.ndjson', lines.slice(0, 600).join('\n').slice(0, -40));
    const early = await run(['replay', half, '-o', 'json']);
    expect(early.code).toBe(2);
    expect(Object.keys(json(early).unknown)).toContain('pods-not-known');
    const text = await run(['replay', half]);
    expect(text.out).toContain('Notes: the recording is incomplete; ');
  });

  it('reports a release that it does not know', async () => {
    const lines = gunzipSync(readFileSync(recording)).toString().replace('v1.36.3', 'v1.99.0');
    const path = save('future.ndjson', lines);
    const ran = await run(['replay', path, '--until', '1795258560']);
    const newest = nameOf(newestRelease);
    expect(ran.err).toContain(`not verified: the cluster is v1.99.0, not ${newest}`);
  });
});

describe('serve', () => {
  it('replays, serves while it does, and ends with 0 when asked to end', async () => {
    const child = spawn(process.execPath, [
      main,
      'serve',
      '--demo',
      '--speed',
      'max',
      '--listen',
      '127.0.0.1:0',
    ]);
    let out = '';
    const address = await new Promise<string>((resolve) => {
      child.stdout.on('data', (chunk: Buffer) => {
        out += chunk.toString();
        const found = /Serving (?<url>http:\S+)/.exec(out)?.groups?.url;
        if (found !== undefined && out.includes('The recording has ended')) resolve(found);
      });
    });
    const metrics = await (await fetch(`${address}metrics`)).text();
    expect(metrics).toContain('endpoint_auditor_outputs{output="endpointslices",verdict="ok"} 16');
    const page = await (await fetch(address)).text();
    expect(page).toContain('left-behind-dead');
    const code = await new Promise((resolve) => {
      child.on('close', resolve);
      child.kill('SIGTERM');
    });
    expect(code).toBe(0);
  });

  it('ends with the recording on --once', async () => {
    const ran = await run([
      'serve',
      '--recording',
      '--once',
      '--speed',
      'max',
      '--listen',
      '127.0.0.1:0',
    ]);
    expect(ran.code).toBe(0);
    expect(ran.out).toContain('left-behind-dead');
  });
});

describe('usage', () => {
  it.each([
    [['audit', 'x', '--settle', 'soon']],
    [['replay', recording, '-o', 'xml']],
    [['replay', recording, '--speed', '-1']],
    [['replay', recording, '--kubernetes-version', '1.12']],
    [['replay', recording, recording]],
    [['replay']],
    [['replay', folder]],
    [['serve', '--input', folder]],
    [['replay', save('garbage.bin', Buffer.from('\u0001\u0000garbage\nmore\u0000'))]],
    [['dance']],
  ])('ends with 64 and one line: %j', async (args) => {
    const ran = await run(args);
    expect(ran).toMatchObject({ code: 64, out: '' });
    expect(ran.err).not.toMatch(/\n {4}at |\0/);
    expect(
      ran.err
        .trim()
        .split('\n')
        .filter((line) => line !== '(see --help)').length,
    ).toBeLessThanOrEqual(2);
  });

  it.each([[['audit']], [['audit', '/nowhere/at/all.json']]])(
    'ends with 2 without an input: %j',
    async (args) => {
      const ran = await run(args);
      expect(ran.code).toBe(2);
      expect(ran.err).not.toBe('');
      expect(ran.err).not.toMatch(/\n {4}at /);
    },
  );

  it.each([
    ['audit', 'nothing fails the gate'],
    ['replay', 'nothing fails the gate'],
    ['explain', 'controllers and kube-proxy wrote'],
    ['lag', 'the report is complete'],
    ['serve', 'stopped by a signal'],
    ['record', 'stopped by a signal'],
    ['incidents', 'the list is complete'],
    ['diff', 'nothing is different'],
    ['agent', 'stopped by a signal'],
  ])('%s: the help has examples and its own exit codes', async (name, zero) => {
    const { code, out } = await run([name, '--help']);
    expect(code).toBe(0);
    if (name !== 'record' && name !== 'agent') expect(out).toContain('--input <file>');
    const [, examples = '', exits = ''] = out.split(/\nExamples:\n|\nExit codes:\n/);
    expect(examples).toMatch(/^ {2}# /);
    expect(exits).toContain(`  0   ${zero}`);
    expect(exits).toContain('  64  bad usage');
  });

  it.each([
    [['audit', '/nowhere/at/all.json'], '/nowhere/at/all.json: Cannot read: no such file'],
    [['replay', '/nowhere/at/all'], '/nowhere/at/all: Cannot read: no such file'],
    [['audit', `${main}/x`], `${main}/x: Cannot read: not a directory`],
    [['audit', '--config', '/no/config'], '/no/config: Cannot read: no such file or directory'],
    [['audit', '--kubeconfig', '/no/kc'], '/no/kc: Cannot read: no such file or directory'],
  ])('says plainly what cannot be read: %j', async (args, text) => {
    const ran = await run(args);
    expect(ran.code).toBe(2);
    expect(ran.err).toContain(`endpoint-auditor: ${text}`);
    expect(ran.err).not.toMatch(/\bE[A-Z]{4,}\b/);
  });

  it('takes flags from the file of --config, and ends with 64 for its errors', async () => {
    const dump = save('configured.json', JSON.stringify({ kind: 'List', items: [node, service] }));
    const good = save('good.yaml', 'audit:\n  output: json\n  no-endpoints: true\n');
    const want = await run(['audit', dump, '-o', 'json', '--no-endpoints']);
    expect(await run(['audit', dump, '--config', good])).toEqual(want);
    expect(want.out).not.toEqual((await run(['audit', dump, '-o', 'json'])).out);
    const bad = save('bad.yaml', 'audit:\n  output: xml\n');
    const refused = await run(['audit', dump, '--config', bad]);
    expect(refused.code).toBe(64);
    expect(refused.err).toContain(`${bad}:2: audit.output: Expected one of table`);
    const worse = save('worse.yaml', 'audit:\n  output: xml\n  nowhere: 1\n');
    const { err } = await run(['audit', dump, '--config', worse]);
    expect(
      err
        .trim()
        .split('\n')
        .map((line) => line.split(': ')[0]),
    ).toEqual(Array(2).fill('endpoint-auditor'));
  });

  it('lists every command in a group with a purpose', async () => {
    const { code, out } = await run(['--help']);
    expect(code).toBe(0);
    expect(out).toContain('\nAudit once:\n  audit ');
    expect(out).not.toContain('\nCommands:\n');
  });

  it('prints its version', async () => {
    const stated = JSON.parse(
      readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
    ) as { version: string };
    expect(version).toBe(stated.version);
    expect((await run(['--version'])).out.trim()).toBe(version);
  });
});
