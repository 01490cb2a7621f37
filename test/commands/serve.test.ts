// The server on a live cluster, from its start to SIGTERM. Recordings are served by the command
// line.

import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { afterEach, expect, test, vi } from 'vitest';

import { printed, usual } from './printed.ts';
import { emptySlice, liveCluster, rawSlice, withUids } from '../clusters.ts';
import { serveLive } from '../../src/commands/serve.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** A port that is free now. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

test('tells of a finding and its end, and ends with 0 when it is stopped', async () => {
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
  await expect.poll(() => get('/readyz'), { timeout: 5000 }).toBe('200 ok\n');
  await expect
    .poll(() => get('/metrics'), { timeout: 5000 })
    .toMatch(/endpoint_auditor_findings\{code="slice-endpoint-missing",severity="[a-z]+"\} 1/);
  expect(await get('/metrics')).toContain(
    'endpoint_auditor_watch_state{resource="pods",state="synced"} 1',
  );
  expect(await get('/api/v1/services/shop/web')).toContain('"verdict":"different"');
  server.objects.put('endpointslices', withUids(server, rawSlice));
  await expect
    .poll(() => get('/api/v1/findings?service=web'))
    .toMatch(/"standing":\[\],"resolved":\[\{/);
  const begun = performance.now();
  process.emit('SIGTERM');
  expect(await running).toBe(0);
  expect(performance.now() - begun).toBeLessThan(5000);
  expect(await get('/livez')).toBe('no answer');
  expect(out()).toContain(`Auditing https://fake.example\nServing ${url}/ and /metrics\n`);
  expect(out()).toMatch(/OPEN +\w+ +shop\/web endpointslices slice-endpoint-missing/);
  expect(out()).toMatch(/RESOLVED \w+ +shop\/web endpointslices slice-endpoint-missing/);
});
