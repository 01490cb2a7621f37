// The output of `lag` for a recording and for a running server, and its errors.

import { mkdtempSync, writeFileSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, describe, expect, test, vi } from 'vitest';

import { lag } from '../../src/commands/lag.ts';
import type { LagReport } from '../../src/output/text/lag.ts';
import { lagReport } from '../output/samples.ts';
import { printed } from '../live-cluster.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

const settings = { settle: 30, maxEndpointsPerSlice: 100, endpoints: true };
const t0 = Date.UTC(2026, 0, 1) / 1000;
const rfc3339 = (at: number): string =>
  new Date((t0 + at) * 1000).toISOString().replace('.000Z', 'Z');

const resources = ['nodes', 'services', 'pods', 'endpoints', 'endpointslices'];

const meta = (name: string, version: number, more: object = {}) => ({
  namespace: 'shop',
  name,
  uid: name,
  resourceVersion: String(version),
  ...more,
});

const target = { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'web-1' };

/** A Service with one pod, which turns not ready after 10 s and is written so `late` s later. */
function recording(late: number): string {
  const spec = { clusterIP: '10.96.0.9', ipFamilies: ['IPv4'], selector: { app: 'web' } };
  const ports = [{ port: 80, protocol: 'TCP' }];
  const pod = (version: number, ready: boolean, since: number) => ({
    metadata: meta('web-1', version, { labels: { app: 'web' } }),
    spec: { nodeName: 'a', containers: [] },
    status: {
      phase: 'Running',
      podIPs: [{ ip: '10.0.0.1' }],
      conditions: [
        { type: 'Ready', status: ready ? 'True' : 'False', lastTransitionTime: rfc3339(since) },
      ],
    },
  });
  const address = { ip: '10.0.0.1', nodeName: 'a', targetRef: target };
  const endpoints = (version: number, ready: boolean) => ({
    metadata: meta('web', version, {
      labels: { 'endpoints.kubernetes.io/managed-by': 'endpoint-controller' },
    }),
    subsets: [{ [ready ? 'addresses' : 'notReadyAddresses']: [address], ports }],
  });
  const slice = (version: number, ready: boolean) => ({
    metadata: meta('web-x', version, {
      generation: version,
      labels: {
        'kubernetes.io/service-name': 'web',
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
      },
      ownerReferences: [{ kind: 'Service', name: 'web', uid: 'web', controller: true }],
    }),
    addressType: 'IPv4',
    ports: [{ name: '', port: 80, protocol: 'TCP' }],
    endpoints: [
      {
        addresses: ['10.0.0.1'],
        conditions: { ready, serving: ready, terminating: false },
        nodeName: 'a',
        targetRef: target,
      },
    ],
  });
  const lines: object[] = [{ kind: 'header', format: 1, at: t0, kubernetes: 'v1.36.3', resources }];
  const put = (at: number, type: string, resource: string, object: object): void => {
    lines.push({ kind: 'object', at: t0 + at, resource, type, object });
  };
  put(0, 'SYNC', 'nodes', { metadata: { name: 'a', uid: 'a', resourceVersion: '1' } });
  put(0, 'SYNC', 'services', { metadata: meta('web', 2), spec: { ...spec, ports } });
  put(0, 'SYNC', 'pods', pod(3, true, 0));
  put(0, 'SYNC', 'endpoints', endpoints(4, true));
  put(0, 'SYNC', 'endpointslices', slice(5, true));
  for (const resource of resources) lines.push({ kind: 'synced', at: t0, resource });
  put(11.5, 'MODIFIED', 'pods', pod(6, false, 10));
  put(11.5 + late, 'MODIFIED', 'endpoints', endpoints(7, false));
  put(11.5 + late, 'MODIFIED', 'endpointslices', slice(8, false));
  lines.push({ kind: 'end', at: t0 + 60, complete: true });
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

const file = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'a.ndjson');

test('of a recording contains its worst journeys', async () => {
  writeFileSync(file, recording(4));
  const { out, err } = printed();
  expect(await lag({ ...settings, recording: file, output: 'json' })).toBe(0);
  expect(err()).toBe('');
  const report = JSON.parse(out()) as LagReport;
  expect(report.worst.journeys).toMatchObject([
    { pod: 'web-1', operation: 'remove', quality: 'ok', seconds: 5.5, end: 'complete' },
  ]);
  const converged = report.distributions.filter(({ lag: of, count }) => {
    return of === 'convergence' && count > 0;
  });
  expect(converged.map(({ output, of, max }) => [output, of, max])).toEqual([
    ['endpoints', 'update', 4],
    ['endpointslices', 'update', 4],
  ]);
});

test('of a recording without Services fails with its reason', async () => {
  writeFileSync(file, '{"kind":"object"}\n');
  printed();
  const failed = lag({ ...settings, recording: file, output: 'json' });
  await expect(failed).rejects.toThrow('a.ndjson: Nothing was measured');
});

/** What the command prints, or the message of its error, with a server that answers so. */
async function ofServer(answer: RequestListener): Promise<{ out: string; err: string }> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  const { out } = printed();
  try {
    const url = `http://127.0.0.1:${String(port)}`;
    const err = await lag({ ...settings, server: url, output: 'table' }).then(
      () => '',
      (error: unknown) => (error instanceof Error ? error.message : ''),
    );
    return { out: out(), err };
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

describe('of a server', () => {
  test('prints its report', async () => {
    const asked: (string | undefined)[] = [];
    const got = await ofServer((request, response) => {
      asked.push(request.url);
      response.end(JSON.stringify(lagReport));
    });
    expect([got.err, asked]).toEqual(['', ['/api/v1/lag']]);
    expect(got.out).toMatch(/^Lag from 2026-11-21/);
  });

  const { worst, journeys } = lagReport;
  const cases: [string, number, string, string][] = [
    ['an error', 500, 'oops', 'it answers 500'],
    ['another program', 200, '<html>', 'its answer is no JSON'],
    ['another format', 200, '{"format":2}', 'no lag document'],
    ['null', 200, 'null', 'no lag document'],
    ['parts only', 200, '{"format":1}', 'no lag document'],
    [
      'numbers that are none',
      200,
      JSON.stringify({ ...lagReport, journeys: { ...journeys, open: 'many' } }),
      'no lag document',
    ],
    [
      'stages that are none',
      200,
      JSON.stringify({
        ...lagReport,
        worst: { ...worst, journeys: [{ ...worst.journeys[0], stages: [{ stage: 1 }] }] },
      }),
      'no lag document',
    ],
    ['too much', 200, ' '.repeat(17 * 1024 * 1024), 'longer than'],
  ];
  test.each(cases)('that answers %s', async (_, status, body, want) => {
    const got = await ofServer((_request, response) => {
      response.writeHead(status).end(body);
    });
    expect(got.out).toBe('');
    expect(got.err).toContain(want);
  });

  test('that does not answer', async () => {
    const failed = lag({ ...settings, server: 'http://127.0.0.1:1', output: 'table' });
    await expect(failed).rejects.toThrow(/^http:\/\/127\.0\.0\.1:1\/api\/v1\/lag: /);
  });
});

describe('bad usage', () => {
  const cases: [string, object, string][] = [
    [
      'neither',
      {},
      'Expected one recording, as FILE or --input FILE, or --history FOLDER, or --server URL',
    ],
    ['two recordings', { input: ['a', 'b'] }, 'Expected one recording'],
    ['both', { input: ['a'], server: 'http://b' }, 'Expected one recording'],
    ['no URL', { server: 'localhost' }, 'Expected a URL such as http://127.0.0.1:9465: localhost'],
    ['another protocol', { server: 'file:///etc/passwd' }, 'Expected a URL'],
  ];
  test.each(cases)('%s', async (_, options, want) => {
    await expect(lag({ ...settings, output: 'table', ...options })).rejects.toThrow(want);
  });
});
