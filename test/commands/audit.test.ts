// One look at a live cluster: at once where all is well, and after the window where something is
// not. Dumps are tested by the command line.

import { afterEach, describe, expect, test, vi } from 'vitest';

import { auditLive } from '../../src/commands/audit.ts';
import type { AuditReport } from '../../src/output/text/report.ts';
import { virtualClock } from '../apiserver/clock.ts';
import { emptySlice, liveCluster, rawSlice } from '../clusters.ts';
import { printed, usual } from './printed.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

describe('audit of a live cluster', () => {
  test('ends with 0 at once where all conform', async () => {
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

  test('ends with 1 when a difference has stood for the window', async () => {
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

  test('ends with 2 where a permission is missing, and says which', async () => {
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

  test('ends with 2 where Services cannot be read', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    for (const verb of ['list', 'watch']) server.faults.forbidden.add(`${verb} services`);
    const { err } = printed();
    const audited = auditLive(usual, cluster);
    await clock.runUntil(clock.now() + 120);
    expect(await audited).toBe(2);
    expect(err()).toContain('No Services could be read from https://fake.example');
  });
});
