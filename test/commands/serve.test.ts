// The server on a live cluster, from its start to SIGTERM. Recordings are served by the command
// line.

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createBackend } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, expect, test, vi } from 'vitest';

import { serveLive } from '../../src/commands/serve.ts';
import { lockFolder } from '../../src/history/lock.ts';
import type { Raw } from '../apiserver/server.ts';
import {
  emptySlice,
  liveCluster,
  printed,
  rawEndpoints,
  rawPod,
  rawSlice,
  usual,
  withUids,
} from '../live-cluster.ts';
import { decodeTraces } from '../output/samples.ts';
import { freePort } from '../processes.ts';

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

test('prints findings that open and resolve, and exits with 0 when stopped', async () => {
  const { cluster, server } = liveCluster(emptySlice);
  const { out } = printed();
  const port = await freePort();
  const host = '127.0.0.1';
  const running = serveLive({ ...usual, speed: 1, listen: { host, port } }, cluster);
  const url = `http://${host}:${String(port)}`;
  const get = async (path: string): Promise<string> => {
    try {
      const response = await fetch(`${url}${path}`);
      return `${String(response.status)} ${await response.text()}`;
    } catch {
      return 'no answer';
    }
  };
  await expect.poll(() => get('/readyz')).toBe('200 ok\n');
  await expect
    .poll(() => get('/metrics'))
    .toMatch(/endpoint_auditor_findings\{code="slice-endpoint-missing",severity="[a-z]+"\} 1/);
  expect(await get('/metrics')).toContain(
    'endpoint_auditor_watch_state{resource="pods",state="synced"} 1',
  );
  expect(await get('/api/v1/services/shop/web')).toContain('"verdict":"different"');
  server.objects.put('endpointslices', withUids(server, rawSlice));
  await expect
    .poll(() => get('/api/v1/findings?service=web'))
    .toMatch(/"standing":\[\],"resolved":\[\{/);
  process.emit('SIGTERM');
  expect(await running).toBe(0);
  expect(await get('/livez')).toBe('no answer');
  expect(out()).toContain(`Auditing https://fake.example\nServing ${url}/ and /metrics\n`);
  expect(out()).toMatch(/OPEN +\w+ +shop\/web endpointslices slice-endpoint-missing/);
  expect(out()).toMatch(/RESOLVED \w+ +shop\/web endpointslices slice-endpoint-missing/);
});

const changed = (raw: Raw, from: string, to: string): Raw =>
  JSON.parse(JSON.stringify(raw).replace(from, to)) as Raw;

/** The same objects, with the pod not ready. */
const notReady = {
  pods: changed(rawPod, '"status":"True"', '"status":"False"'),
  endpoints: changed(rawEndpoints, '"addresses"', '"notReadyAddresses"'),
  endpointslices: changed(rawSlice, '"ready":true,"serving":true', '"ready":false,"serving":false'),
};

/** The statuses of requests to one address, by path. */
const statusesAt = (port: number, paths: readonly string[], headers = {}) =>
  Promise.all(
    paths.map(async (path) => {
      const response = await fetch(`http://127.0.0.1:${String(port)}${path}`, { headers });
      await response.text();
      return response.status;
    }),
  );

test('serves metrics at an address of their own, and probes at both', async () => {
  const { cluster } = liveCluster();
  const { out } = printed();
  const [host, pages, metrics] = ['127.0.0.1', await freePort(), await freePort()];
  const at = { listen: { host, port: pages }, metricsListen: { host, port: metrics } };
  const running = serveLive({ ...usual, speed: 1, ...at }, cluster);
  await expect.poll(() => statusesAt(pages, ['/readyz']).catch(() => [])).toEqual([200]);
  const paths = ['/', '/api/v1/findings', '/api/v1/status', '/metrics', '/livez', '/readyz'];
  expect(await statusesAt(pages, paths)).toEqual([200, 200, 200, 404, 200, 200]);
  expect(await statusesAt(metrics, paths)).toEqual([404, 404, 404, 200, 200, 200]);
  const elsewhere = await fetch(`http://127.0.0.1:${String(pages)}/metrics`);
  expect(await elsewhere.text()).toContain('--metrics-listen');
  const page = await (await fetch(`http://127.0.0.1:${String(pages)}/`)).text();
  expect(page).toContain('href="/readyz"');
  expect(page).not.toContain('href="/metrics"');
  expect(out()).toContain(`Serving http://127.0.0.1:${String(pages)}/\n`);
  expect(out()).toContain(`Serving http://127.0.0.1:${String(metrics)}/metrics\n`);
  process.emit('SIGTERM');
  expect(await running).toBe(0);
  await expect(statusesAt(metrics, ['/livez'])).rejects.toThrow();
});

test('stops listening if the second address is in use', async () => {
  const { cluster } = liveCluster();
  printed();
  const [host, pages] = ['127.0.0.1', await freePort()];
  const at = { listen: { host, port: pages }, metricsListen: { host, port: pages } };
  await expect(serveLive({ ...usual, speed: 1, ...at }, cluster)).rejects.toThrow('already in use');
  await expect(statusesAt(pages, ['/livez'])).rejects.toThrow();
});

test('records no history if the address is in use', async () => {
  const { cluster } = liveCluster();
  printed();
  const other = createBackend().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const history = mkdtempSync(join(tmpdir(), 'serve-'));
  const at = { listen: { host: '127.0.0.1', port }, history };
  await expect(serveLive({ ...usual, speed: 1, ...at }, cluster)).rejects.toThrow('already in use');
  // The lock would be kept by what keeps the process alive.
  await new Promise((resolve) => setTimeout(resolve, 300));
  lockFolder(history).release();
  other.close();
  rmSync(history, { recursive: true });
});

test('with --auth-filter, the API server decides who may read', async () => {
  const { cluster, server } = liveCluster();
  const { err } = printed();
  const [host, port] = ['127.0.0.1', await freePort()];
  server.tokens.set('prometheus', { username: 'prometheus', paths: ['/metrics'] });
  const options = { ...usual, speed: 1, listen: { host, port }, authFilter: true };
  const running = serveLive(options, cluster);
  await expect.poll(() => statusesAt(port, ['/readyz']).catch(() => [])).toEqual([200]);
  const paths = ['/', '/metrics', '/api/v1/findings', '/livez'];
  expect(await statusesAt(port, paths)).toEqual([401, 401, 401, 200]);
  const withToken = (token: string) => ({ authorization: `Bearer ${token}` });
  expect(await statusesAt(port, paths, withToken('prometheus'))).toEqual([403, 200, 403, 200]);
  expect(await statusesAt(port, paths, withToken('other'))).toEqual([401, 401, 401, 200]);
  server.faults.before = ({ request }) => (request.body === undefined ? null : 'reset');
  expect(await statusesAt(port, ['/metrics'], withToken('third'))).toEqual([503]);
  expect(err()).toContain('--auth-filter without TLS');
  expect(err()).toContain('The API server cannot review tokens: connection reset');
  process.emit('SIGTERM');
  expect(await running).toBe(0);
});

test('without --auth-filter, no review is sent', async () => {
  const { cluster, server } = liveCluster();
  printed();
  const [host, port] = ['127.0.0.1', await freePort()];
  const running = serveLive({ ...usual, speed: 1, listen: { host, port } }, cluster);
  await expect.poll(() => statusesAt(port, ['/readyz']).catch(() => [])).toEqual([200]);
  const authorization = 'Bearer prometheus';
  expect(await statusesAt(port, ['/metrics', '/'], { authorization })).toEqual([200, 200]);
  expect(server.asked.filter(({ request }) => request.body !== undefined)).toEqual([]);
  process.emit('SIGTERM');
  expect(await running).toBe(0);
});

test('names once the namespaces that have no Services', async () => {
  const { cluster } = liveCluster();
  const { out, err } = printed();
  const port = await freePort();
  const namespaces = ['shop', 'nope'];
  const options = { ...usual, speed: 1, listen: { host: null, port }, namespaces };
  const running = serveLive(options, cluster);
  await expect.poll(err).toContain('nope');
  await expect.poll(out).toContain('Serving');
  process.emit('SIGTERM');
  expect(await running).toBe(0);
  expect(err()).toBe('endpoint-auditor: Namespace nope does not exist\n');
});

test('says that no answer of the API server has come', async () => {
  const { cluster, server } = liveCluster();
  server.faults.before = () => 'hang';
  const { err } = printed();
  const listen = { host: null, port: await freePort() };
  const running = serveLive({ ...usual, speed: 1, listen }, cluster);
  await expect
    .poll(err, { timeout: 5000 })
    .toBe('endpoint-auditor: Waiting for the API server https://fake.example: no answer yet\n');
  process.emit('SIGTERM');
  expect(await running).toBe(0);
});

test('sends the journey of a Pod as a trace if a backend is configured', async () => {
  const spans: string[] = [];
  const backend = createBackend((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      for (const scope of decodeTraces(Buffer.concat(pieces))) {
        spans.push(...scope.spans.map(({ name }) => name));
      }
      response.end();
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => backend.once('listening', resolve));
  const { port: to } = backend.address() as AddressInfo;
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', `http://127.0.0.1:${to}`);
  const { cluster, server } = liveCluster();
  printed();
  const port = await freePort();
  const running = serveLive({ ...usual, speed: 1, listen: { host: '127.0.0.1', port } }, cluster);
  const metrics = async (): Promise<string> => {
    const answer = await fetch(`http://127.0.0.1:${port}/metrics`).catch(() => null);
    return answer === null ? '' : answer.text();
  };
  await expect.poll(metrics).toContain('endpoint_auditor_ready 1');
  for (const resource of ['pods', 'endpoints', 'endpointslices'] as const) {
    server.objects.put(resource, withUids(server, notReady[resource]));
  }
  await expect
    .poll(metrics)
    .toContain('endpoint_auditor_pod_changes_traced_total{choice="ratio"} 1');
  process.emit('SIGTERM');
  expect(await running).toBe(0);
  backend.close();
  expect(spans.sort()).toEqual([
    'EndpointSlice written',
    'Endpoints written',
    'endpoint remove',
    'pod seen',
  ]);
});
