// The flags of node agents, and the scraper that they create.

import { auditorDefaults } from '../../build.ts';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { AuditorEntry } from '../../../src/auditor/auditor.ts';
import { createAuditor } from '../../../src/auditor/auditor.ts';
import type { LiveAuditor } from '../../../src/auditor/live.ts';
import type { Cluster } from '../../../src/commands/shared/cluster.ts';
import { createAgentScraper } from '../../../src/commands/shared/cluster.ts';
import type { AgentsFlags, ClusterFlags } from '../../../src/commands/shared/options.ts';
import { newestRelease } from '../../../src/shadow/release.ts';

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
