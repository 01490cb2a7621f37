// An auditor of a live API server: its findings as the cluster changes, and its fresh reads.

import { afterEach, describe, expect, test } from 'vitest';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { LiveAuditor } from '../../src/auditor/live.ts';
import type { FakeServer, Raw, VirtualClock } from '../apiserver/server.ts';
import { virtualClock } from '../apiserver/server.ts';
import { auditorDefaults } from '../build.ts';
import {
  emptySlice,
  liveCluster,
  rawNode,
  rawPod,
  rawSlice,
  runLive,
  withUids,
} from '../live-cluster.ts';

interface Running {
  readonly server: FakeServer;
  readonly auditor: Auditor;
  readonly attached: LiveAuditor;
  readonly problems: string[];
}

let clock: VirtualClock;
let stop = (): Promise<void> => Promise.resolve();

function run(slice: Raw = rawSlice, prepare: (server: FakeServer) => void = () => undefined) {
  clock = virtualClock();
  const { server, cluster } = liveCluster(slice, clock);
  prepare(server);
  const auditor = createAuditor({ ...auditorDefaults, settle: 0.2, live: true });
  const { attached, problems, ...live } = runLive(cluster, auditor);
  ({ stop } = live);
  const running: Running = { server, auditor, attached, problems };
  return running;
}

afterEach(async () => {
  await stop();
});

const codes = ({ auditor }: Running): string[] => auditor.findings.open().map(({ code }) => code);
const pass = (seconds: number): Promise<void> => clock.runUntil(clock.now() + seconds);

describe('an auditor of a live cluster', () => {
  test('without differences, opens no finding and reads nothing again at first', async () => {
    const running = run();
    await pass(9);
    expect(running.auditor.serviceAuditor()).not.toBeNull();
    expect(codes(running)).toEqual([]);
    expect(running.auditor.kubernetes()).toBe(running.server.version);
    expect(running.auditor.confirmer.counts.asked).toBe(0);
    expect(running.attached.stuck()).toBeNull();
  });

  test('reads a Service and the Nodes once before a finding opens, and resolves it', async () => {
    const running = run(emptySlice);
    await pass(0.1);
    expect(running.auditor.serviceAuditor()).not.toBeNull();
    // A change elsewhere, which the other streams have not received.
    running.server.objects.put('nodes', structuredClone(rawNode));
    await pass(5);
    expect(codes(running)).toEqual(['slice-endpoint-missing']);
    expect(running.auditor.confirmer.counts).toMatchObject({ confirmed: 2, lagging: 0, failed: 0 });
    running.server.objects.put('endpointslices', withUids(running.server, rawSlice));
    await pass(5);
    expect(codes(running)).toEqual([]);
    expect(running.auditor.findings.resolved()).toHaveLength(1);
  });

  test('does not trust a silent watch if a fresh read is newer than the cache', async () => {
    const running = run();
    await pass(0.1);
    expect(running.auditor.serviceAuditor()).not.toBeNull();
    const isSlices = ({ resource }: { resource: string }): boolean => resource === 'endpointslices';
    expect([...running.server.watches].some(isSlices)).toBe(true);
    // The watch of slices is silent, and the controller has written what the pods need.
    for (const watch of running.server.watches) if (isSlices(watch)) watch.freeze();
    const moved = structuredClone(rawPod);
    (moved.status as { podIPs: object[] }).podIPs = [{ ip: '10.1.0.2' }];
    running.server.objects.put('pods', moved);
    const written = JSON.parse(JSON.stringify(rawSlice).replace('10.1.0.1', '10.1.0.2')) as Raw;
    running.server.objects.put('endpointslices', withUids(running.server, written));
    await pass(5);
    expect(running.auditor.confirmer.counts.lagging).toBeGreaterThan(0);
    // The Endpoints were not written, and nothing is silent about them.
    const outputs = new Set(running.auditor.findings.open().map(({ output }) => output));
    expect([...outputs]).toEqual(['endpoints']);
  });

  test('names a missing permission, and audits the other outputs', async () => {
    const running = run(emptySlice, ({ faults }) => {
      for (const verb of ['list', 'watch']) faults.forbidden.add(`${verb} endpoints`);
    });
    await pass(5);
    expect(codes(running)).toEqual(['slice-endpoint-missing']);
    expect(running.problems.join('\n')).toMatch(/(?:list|watch) endpoints/i);
    const { audited, listers } = running.auditor.serviceAuditor() ?? {};
    expect(listers?.knows('endpoints')).toBe(false);
    expect(audited?.get('shop/web')?.unknown.get('endpoints')).toBe('endpoints-not-known');
    expect(running.attached.watches.get('endpoints')?.state).toBe('off');
  });
});
