// The flags of node agents, and the scraper that they create.

import { auditorDefaults } from '../../build.ts';
import { once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { AuditorEntry } from '../../../src/auditor/auditor.ts';
import { createAuditor } from '../../../src/auditor/auditor.ts';
import type { LiveAuditor } from '../../../src/auditor/live.ts';
import type { Cluster } from '../../../src/commands/shared/cluster.ts';
import { createAgentScraper, createLiveAuditor } from '../../../src/commands/shared/cluster.ts';
import type { AgentsFlags, ClusterFlags } from '../../../src/commands/shared/options.ts';
import { newestRelease } from '../../../src/shadow/release.ts';
import { liveCluster, usual } from '../../live-cluster.ts';

const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-fleet-'));
const empty = join(folder, 'empty');
writeFileSync(empty, '\n');

const auditor = createAuditor({ ...auditorDefaults, release: newestRelease });

const clock = { now: () => 5, after: () => () => undefined, soon: () => undefined };
const cluster = {
  clock,
  environment: { monotonic: () => 5, random: () => 0, sleep: () => Promise.resolve() },
} as unknown as Cluster;

function fleetWith(
  options: Partial<AgentsFlags & ClusterFlags>,
  deliver: (entry: AuditorEntry) => void,
) {
  const live = {
    deliver: (entry: AuditorEntry) => {
      deliver(entry);
      return Promise.resolve();
    },
  } as unknown as LiveAuditor;
  return createAgentScraper(
    { endpoints: true, ...options },
    cluster,
    auditor,
    live,
    () => undefined,
  );
}

const agents = { namespace: 'auditor', name: 'agents' };

describe('refuses', () => {
  test.each<[Partial<AgentsFlags & ClusterFlags>, RegExp]>([
    [{ agents, namespaces: ['shop'] }, /needs the whole cluster/],
    [{ agents, excludeNamespaces: ['shop'] }, /needs the whole cluster/],
    [{ agents, agentsCert: 'a' }, /--agents-cert and --agents-key belong together/],
    [{ agents, agentsTokenFile: empty }, /The token is empty/],
    [{ agents, agentsCa: join(folder, 'absent') }, /ENOENT.*absent/],
  ])('%j', (options, message) => {
    expect(() => fleetWith(options, () => undefined)).toThrow(message);
  });
});

test('without a Service of agents no agent is scraped', () => {
  expect(fleetWith({}, () => undefined)).toBeNull();
});

test('no agent is scraped before the cluster is known', async () => {
  const entries: AuditorEntry[] = [];
  const stop = new AbortController();
  const fleet = fleetWith({ agents }, (entry) => entries.push(entry));
  const running = fleet?.run(stop.signal);
  stop.abort();
  await running;
  expect(entries).toEqual([]);
  expect(fleet?.status().size).toBe(0);
});

test('a review that hangs delays no stop', async () => {
  const server = createServer((_request, response) => {
    response.setHeader('agent-token', 'a token').end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const { cluster: whole, server: api } = liveCluster();
  api.objects.put('endpointslices', {
    metadata: {
      name: 'agents-x',
      namespace: 'auditor',
      labels: { 'kubernetes.io/service-name': 'agents' },
    },
    addressType: 'IPv4',
    ports: [{ name: '', port, protocol: 'TCP' }],
    endpoints: [{ addresses: ['127.0.0.1'], nodeName: 'node-a' }],
  });
  const review = { isAsked: false, ...Promise.withResolvers<never>() };
  const ask: Cluster['environment']['ask'] = (request) => {
    if (!request.path.endsWith('/tokenreviews')) return whole.environment.ask(request);
    review.isAsked = true;
    return review.promise;
  };
  const close = (): void => {
    review.reject(new Error('closed'));
    whole.close();
  };
  const live = { ...whole, environment: { ...whole.environment, ask }, close };
  const flags = { ...usual, agents, agentsServiceAccount: agents };
  const problems: unknown[] = [];
  const { run } = createLiveAuditor(live, flags, (problem) => problems.push(problem));
  const stop = new AbortController();
  const running = run(stop);
  await expect.poll(() => review.isAsked, { timeout: 5000 }).toBe(true);
  const began = performance.now();
  stop.abort();
  await running;
  expect(performance.now() - began).toBeLessThan(1500);
  server.close();
  server.closeAllConnections();
  expect(problems).toEqual([]);
});
