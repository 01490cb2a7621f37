// An audit of a live cluster: at once without differences, else after the window. The tests of the
// command line cover dumps.

import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';

import { auditLive } from '../../src/commands/audit.ts';
import type { AuditReport } from '../../src/output/text/report.ts';
import { parseLabelSelector } from '../../src/model/label-selector.ts';
import { resources } from '../../src/model/objects.ts';
import type { FakeServer } from '../apiserver/server.ts';
import { statusAnswer, virtualClock } from '../apiserver/server.ts';
import { schemaErrors } from '../report-schema.ts';
import { emptySlice, liveCluster, printed, putService, rawSlice, usual } from '../live-cluster.ts';

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
    const report = JSON.parse(out()) as AuditReport;
    expect(schemaErrors(report)).toEqual([]);
    const [finding] = report.findings;
    expect(finding?.differences).toMatchObject([
      { code: 'slice-endpoint-missing', field: 'endpoints', actual: null },
    ]);
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

  test('shows that it waits for the settle window', async () => {
    const clock = virtualClock();
    const { cluster } = liveCluster(emptySlice, clock);
    const { err } = printed();
    const audited = auditLive({ ...usual, settle: 30 }, cluster);
    await clock.runUntil(clock.now() + 5);
    expect(err()).toBe('endpoint-auditor: 1 difference; waiting 30 s to see whether it persists\n');
    await clock.runUntil(clock.now() + 120);
    expect(await audited).toBe(1);
    expect(err().match(/waiting/g)).toHaveLength(1);
  });

  test('shows on a terminal how long it still waits', async () => {
    const { isTTY } = process.stderr;
    process.stderr.isTTY = true;
    onTestFinished(() => {
      process.stderr.isTTY = isTTY;
    });
    const clock = virtualClock();
    const { cluster } = liveCluster(emptySlice, clock);
    const { err } = printed();
    const audited = auditLive({ ...usual, settle: 3 }, cluster);
    await clock.runUntil(clock.now() + 120);
    expect(await audited).toBe(1);
    const [first, ...texts] = err().split('\r\u001b[K');
    expect(first).toBe('');
    expect(texts.slice(0, 3)).toEqual(
      [3, 2, 1].map((left) => `1 difference; waiting ${left} s to see whether it persists`),
    );
    expect(texts.at(-1)).toBe('');
  });

  /** All namespaced resources are forbidden but in shop, and Nodes too. */
  const onlyShop = ({ faults }: FakeServer): void => {
    for (const resource of resources) {
      for (const verb of ['list', 'watch']) {
        for (const place of ['*', 'bank']) faults.forbidden.add(`${verb} ${resource} in ${place}`);
      }
    }
  };

  test.each([
    ['-n', { namespace: 'shop' }],
    ['--namespaces', { namespaces: ['shop'] }],
  ])('needs only the permissions of the namespace (%s)', async (_flag, flags) => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(emptySlice, clock);
    putService(server, 'bank');
    onlyShop(server);
    const { out, err } = printed();
    const audited = auditLive({ ...usual, ...flags }, cluster);
    await clock.runUntil(clock.now() + 120);
    // Whether the endpoint is missing from the slice depends on its Node.
    expect(await audited).toBe(2);
    const report = JSON.parse(out()) as AuditReport;
    expect(report.unknown).toEqual({ 'nodes-not-known': 1 });
    expect(report.verdicts.endpoints).toMatchObject({ conform: 1 });
    expect(report.findings).toEqual([]);
    expect(err().match(/Not allowed to watch nodes/g)).toHaveLength(1);
    expect(err().split('\n')).toHaveLength(2);
  });

  test('names each namespace that is forbidden, has no Services or does not exist', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    onlyShop(server);
    for (const verb of ['list', 'watch']) server.faults.forbidden.delete(`${verb} nodes in *`);
    server.faults.before = ({ request }) =>
      request.path === '/api/v1/namespaces/empty' ? statusAnswer(200, 'Success') : null;
    const { out, err } = printed();
    const namespaces = ['shop', 'bank', 'empty', 'nope'];
    const audited = auditLive({ ...usual, settle: 3600, namespaces }, cluster);
    await clock.runUntil(clock.now() + 120);
    expect(await audited).toBe(2);
    expect((JSON.parse(out()) as AuditReport).unknown).toEqual({ 'namespace-forbidden': 1 });
    expect(err()).toContain('Not allowed to watch services in namespace bank');
    const texts = err()
      .split('\n')
      .filter((line) => line.includes('Namespace '));
    expect(texts).toEqual([
      'endpoint-auditor: Namespace empty has no Services',
      'endpoint-auditor: Namespace nope does not exist',
    ]);
  });

  test('refuses a namespace that is not one of the named ones', async () => {
    const { cluster } = liveCluster();
    const flags = { ...usual, namespace: 'shop', namespaces: ['bank'] };
    await expect(auditLive(flags, cluster)).rejects.toThrow(
      '-n shop is not one of the --namespaces',
    );
  });

  test('does not wait for Services that the selector leaves out', async () => {
    const clock = virtualClock();
    const { cluster } = liveCluster(emptySlice, clock);
    const { out, err } = printed();
    const selector = parseLabelSelector('team=search');
    const audited = auditLive({ ...usual, settle: 3600, output: 'table', selector }, cluster);
    await clock.runUntil(clock.now() + 5);
    expect(await audited).toBe(2);
    expect(err()).toBe('');
    expect(out()).toContain('The input has no Services with the labels team=search');
  });

  const inNamespace = { ...usual, settle: 3600, output: 'table', namespace: 'nope' } as const;

  test('ends at once for a namespace that does not exist', async () => {
    const clock = virtualClock();
    const { cluster } = liveCluster(emptySlice, clock);
    const { out, err } = printed();
    const audited = auditLive(inNamespace, cluster);
    await clock.runUntil(clock.now() + 5);
    expect(await audited).toBe(2);
    expect(err()).toBe('endpoint-auditor: Namespace nope does not exist\n');
    expect(out()).toContain('Namespace nope has no Services in the input');
  });

  test.each(['forbidden', 'listed'])('ends at once without Services (%s)', async (how) => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(emptySlice, clock);
    if (how === 'listed') {
      const metadata = { name: 'a', namespace: 'nope' };
      server.objects.put('pods', { metadata, spec: {}, status: {} });
    }
    server.faults.before = ({ request }) =>
      request.path.endsWith('/namespaces/nope') ? statusAnswer(403, 'Forbidden') : null;
    const { err } = printed();
    const audited = auditLive(inNamespace, cluster);
    await clock.runUntil(clock.now() + 5);
    expect(await audited).toBe(2);
    expect(err()).toBe('endpoint-auditor: Namespace nope has no Services\n');
  });
});
