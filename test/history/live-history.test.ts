// The history of a live auditor in a real folder: written, read at moments, locked.

import { mkdtempSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { auditMoment } from '../../src/commands/audit.ts';
import { explainSubject } from '../../src/commands/explain.ts';
import { createLiveAuditor } from '../../src/commands/shared/cluster.ts';
import { openMoment, recordHistory } from '../../src/commands/shared/history.ts';
import { lockFolder } from '../../src/history/lock.ts';
import type { LiveHistory } from '../../src/history/live-history.ts';
import { emptySlice, liveCluster, printed, rawSlice, usual, withUids } from '../live-cluster.ts';

let folder: string;

beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'history');
});

afterEach(() => {
  vi.restoreAllMocks();
});

/** Runs a live auditor with a history until `work` ends. */
async function live(
  work: (server: ReturnType<typeof liveCluster>['server'], open: () => number) => Promise<void>,
): Promise<void> {
  const { cluster, server } = liveCluster(emptySlice);
  const state = { history: null as LiveHistory | null };
  const { auditor, run } = createLiveAuditor(cluster, usual, () => undefined, {
    onTaken: (entry) => state.history?.take(entry),
  });
  state.history = recordHistory(auditor, { history: folder }, cluster);
  const stop = new AbortController();
  const running = run(stop);
  await work(server, () => auditor.findings.open().length);
  await state.history?.close();
  stop.abort();
  await running;
}

const segmentsIn = (): string[] => readdirSync(folder).filter((name) => name.endsWith('.segment'));

describe('a live auditor', () => {
  test('records what audit and explain show of each moment', async () => {
    const output = printed();
    let between = 0;
    await live(async (server, open) => {
      await expect.poll(() => open(), { timeout: 10_000 }).toBe(1);
      await expect.poll(() => segmentsIn().length, { timeout: 10_000 }).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 1200));
      between = Date.now() / 1000;
      server.objects.put('endpointslices', withUids(server, rawSlice));
      await expect.poll(() => open(), { timeout: 10_000 }).toBe(0);
    });
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    for (const name of readdirSync(folder)) {
      expect([name, statSync(join(folder, name)).mode & 0o777]).toEqual([name, 0o600]);
    }
    expect(await auditMoment(folder, { ...usual, history: folder, at: between })).toBe(1);
    expect(output.out()).toContain('slice-endpoint-missing');
    expect(await auditMoment(folder, { ...usual, history: folder })).toBe(0);
    const words = ['service/web'];
    const asked = { ...usual, history: folder, output: 'text' as const };
    expect(await explainSubject(words, { ...asked, at: between })).toBe(1);
    expect(await explainSubject(words, asked)).toBe(0);
    await expect(openMoment(folder, 1000, () => undefined)).rejects.toThrow('begins at 20');
  });

  test('goes on if another process records to the folder', async () => {
    const output = printed();
    await live(async (_, open) => {
      await expect.poll(() => open(), { timeout: 10_000 }).toBe(1);
      expect(() => lockFolder(folder)).toThrow('Another process records');
    });
    const { release } = lockFolder(folder);
    const before = segmentsIn().length;
    await live(async (_, open) => {
      await expect.poll(() => open(), { timeout: 10_000 }).toBe(1);
    });
    release();
    expect(output.err()).toContain('The history is not recorded');
    expect(segmentsIn()).toHaveLength(before);
  });

  test('goes on if the folder cannot be created', async () => {
    const output = printed();
    const file = mkdtempSync(join(tmpdir(), 'endpoint-auditor-')) + '.file';
    writeFileSync(file, '');
    folder = join(file, 'history');
    await live(async (_, open) => {
      await expect.poll(() => open(), { timeout: 10_000 }).toBe(1);
    });
    expect(output.err()).toContain('The history is not recorded: ENOTDIR');
  });
});
