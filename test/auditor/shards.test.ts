// Shards with node agents: each node is audited by one shard, with the Services of all shards, so
// that the findings of all shards are those of an auditor of the whole cluster.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { NodeReportEntry } from '../../src/agent/client/scraper.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { isNodeInScope, type Scope, wholeCluster } from '../../src/model/scope.ts';
import { settingsIn } from '../../src/rules/report/infer-proxy-config.ts';
import { auditorOf, event, header, service, synced } from '../build.ts';
import { readFolder } from '../nodes/folder.ts';
import { answered, firstReportOf, inputOf } from '../nodes/walk.ts';

const recorded = (name: string) => {
  const folder = readFolder(join(import.meta.dirname, '../nodes', name));
  const input = inputOf(folder);
  if (input === null) throw new Error(`${name}: no objects`);
  return { folder, ...input };
};

type Recorded = ReturnType<typeof recorded>;

const shardOf = (index: number): Scope => ({
  ...wholeCluster,
  agents: true,
  shard: { index, count: 2 },
});

/** An auditor of the objects of a recorded node, in some scope. */
function auditorIn(scope: Scope, { services, slices, node, config }: Recorded): Auditor {
  const { auditor } = auditorOf(0, { scope });
  const version = `v1.${config.minor}.0`;
  auditor.take(header(100, version));
  for (const object of [node, ...services, ...slices]) {
    auditor.take({ kind: 'event', event: event('added', object, 100) });
  }
  for (const entry of synced(101)) auditor.take(entry);
  return auditor;
}

/** The reports of the agent of a node, as often as the auditor asks for packets. */
function takeReport(auditor: Auditor, { folder, node, config }: Recorded, at = 102): void {
  const mode = config.mode === 'nftables' ? 'nftables' : 'iptables';
  const first = firstReportOf(folder, node, mode);
  const { localAddresses, asking, frontends, digests } = first;
  const settings = settingsIn(folder.ruleset, mode);
  const report: NodeReportEntry['report'] = {
    ...{ node: node.name, mode, proxyConfig: null, settings, problems: [], asking },
    localAddresses: [...localAddresses],
    frontends: [...frontends],
    digests: new Map(digests),
  };
  let needed: readonly Packet[] = [];
  const visit = (outcomes: NodeReportEntry['outcomes']): void => {
    const onNeed = (packets: readonly Packet[]): void => void (needed = packets);
    const seen = { at, seenAt: at, etag: '1', version: '1', lasting: 30, outcomes, onNeed };
    auditor.take({ kind: 'node-report', node: node.name, report, ...seen });
  };
  visit(null);
  visit(answered(folder, first, needed).outcomes);
}

const nodeFindings = ({ findings }: Auditor): string[] =>
  findings
    .open()
    .filter(({ node }) => node !== null)
    .map(({ code, severity, node, namespace, service, differences }) =>
      [severity, code, node, `${namespace}/${service}`, JSON.stringify(differences)].join(' '),
    )
    .sort();

const recordings = [
  'recordings/main/iptables-nft/node-a',
  'recordings/main/nftables/node-b',
  'faults/iptables-nft-node-a/service-missing',
  'faults/iptables-nft-node-a/all-tables-flushed',
  'faults/iptables-nft-node-a/endpoint-stale',
  'faults/iptables-nft-node-a/service-stale',
  'faults/iptables-nft-node-a/service-crossed',
  'faults/nftables-node-a/endpoint-stale',
];

describe('two shards and the agent of a recorded node', () => {
  test.each(recordings)('%s', (name) => {
    const one = recorded(name);
    const whole = auditorIn(wholeCluster, one);
    takeReport(whole, one);
    const harmful = nodeFindings(whole).filter((text) => !text.startsWith('info'));
    expect(harmful.length > 0).toBe(name.startsWith('faults'));
    const shards = [0, 1].map((index) => auditorIn(shardOf(index), one));
    // Each shard has Services of its own, and the node has rules for all of them.
    for (const { store } of shards) {
      expect(store.listers.services.size).toBeGreaterThan(0);
      expect(store.listers.services.size).toBeLessThan(one.services.length);
    }
    for (const shard of shards) {
      takeReport(shard, one);
      expect(nodeFindings(shard)).toEqual(nodeFindings(whole));
    }
    for (const index of [0, 1]) {
      const status = createQueries(shards[index] ?? whole, '').status();
      const isOwn = isNodeInScope(shardOf(index), one.node.name);
      expect(status).toMatchObject({ shard: `${index}/2`, clusterNodes: isOwn ? 1 : 0 });
      expect(status.metrics.shard).toEqual({ index, count: 2 });
    }
    const asked = [0, 1].filter((index) => isNodeInScope(shardOf(index), one.node.name));
    expect(asked).toHaveLength(1);
  });
});

test.each([
  [0, 'edge/np'],
  [1, 'edge/np-local-dual'],
])('shard %i sees the deletion of %s, which another shard audits', (index, name) => {
  const one = recorded('recordings/main/iptables-nft/node-a');
  const shard = auditorIn(shardOf(index), one);
  takeReport(shard, one);
  const found = () => nodeFindings(shard).filter((text) => text.includes('frontend-unexpected'));
  expect(found()).toEqual([]);
  const foreign = shard.held('services').get(name);
  if (foreign === undefined) throw new Error(`No Service ${name}`);
  expect(shard.store.listers.services.get(name)).toBeUndefined();
  const deleted = { ...foreign, resourceVersion: '999999999' };
  shard.take({ kind: 'event', event: event('deleted', deleted, 103) });
  takeReport(shard, one, 104);
  expect(found().length).toBeGreaterThan(0);
});

test.each([0, 1])('shard %i takes lower versions after a list of a restored cluster', (index) => {
  const { auditor } = auditorOf(0, { scope: shardOf(index) });
  for (const entry of [header(100), ...synced(101)]) auditor.take(entry);
  const take = (type: 'added' | 'deleted', resourceVersion: string, at: number): void => {
    auditor.take({ kind: 'event', event: event(type, service({ resourceVersion }), at) });
  };
  take('added', '2000', 102);
  take('deleted', '2001', 103);
  auditor.take({ kind: 'synced', at: 104, resource: 'services' });
  take('added', '1600', 105);
  expect(auditor.held('services').get('shop/web')?.resourceVersion).toBe('1600');
});
