// An audit of a live cluster: at once without differences, else after the window. The tests of the
// command line cover dumps.

import { afterEach, describe, expect, test, vi } from 'vitest';

import { auditLive } from '../../src/commands/audit.ts';
import type { AuditReport } from '../../src/output/text/report.ts';
import { virtualClock } from '../apiserver/server.ts';
import { emptySlice, liveCluster, printed, rawSlice, usual } from '../live-cluster.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

describe('audit of a live cluster', () => {
  test('exits with 0 at once if there is no difference', async () => {
    const { cluster, server } = liveCluster();
    const { out } = printed();
    expect(await auditLive({ ...usual, settle: 3600 }, cluster)).toBe(0);
    const report = JSON.parse(out()) as AuditReport;
    expect(report.input).toMatchObject({
      sources: ['https://fake.example'],
      kubernetes: server.version,
    });
    expect(report.verdicts.endpointslices).toMatchObject({ conform: 1, unknown: 0 });
  });

  test('exits with 1 if a difference persists for the window', async () => {
    const clock = virtualClock();
    const { cluster } = liveCluster(emptySlice, clock);
    const { out } = printed();
    const audited = auditLive(usual, cluster);
    await clock.runUntil(clock.now() + 120);
    expect(await audited).toBe(1);
    const [finding] = (JSON.parse(out()) as AuditReport).findings;
    expect(finding?.code).toBe('slice-endpoint-missing');
    expect((finding?.openedAt ?? 0) - (finding?.since ?? 0)).toBeGreaterThan(0.29);
  });

  test('exits with 2 if a permission is missing, and names it', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    for (const verb of ['list', 'watch']) server.faults.forbidden.add(`${verb} endpoints`);
    const { out, err } = printed();
    const audited = auditLive(usual, cluster);
    await clock.runUntil(clock.now() + 120);
    expect(await audited).toBe(2);
    expect((JSON.parse(out()) as AuditReport).unknown).toEqual({ 'endpoints-not-known': 1 });
    expect(err()).toMatch(/(?:list|watch) endpoints/i);
  });

  test('throws an error if Services cannot be read', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    for (const verb of ['list', 'watch']) server.faults.forbidden.add(`${verb} services`);
    printed();
    const audited = expect(auditLive(usual, cluster)).rejects.toThrow(
      'No Services could be read from https://fake.example',
    );
    await clock.runUntil(clock.now() + 120);
    await audited;
  });
});
