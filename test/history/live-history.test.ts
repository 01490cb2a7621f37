// The history of a live auditor in a real folder: written, read at moments, locked.

import { chmodSync, mkdirSync, mkdtempSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { auditMoment } from '../../src/commands/audit.ts';
import { explainSubject } from '../../src/commands/explain.ts';
import type { LiveEntry } from '../../src/cluster/decode/entry.ts';
import { createClock } from '../../src/commands/shared/clock.ts';
import { createLiveAuditor } from '../../src/commands/shared/cluster.ts';
import { openMoment, recordHistory } from '../../src/commands/shared/history.ts';
import { lockFolder } from '../../src/history/lock.ts';
import { type LiveHistory, startHistory } from '../../src/history/live-history.ts';
import type { StopState } from '../../src/history/restart.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
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
      await expect.poll(() => open()).toBe(1);
      await expect.poll(() => segmentsIn().length).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 1200));
      between = Date.now() / 1000;
      // The clock of the auditor may be a millisecond behind, and entries have whole ones.
      await new Promise((resolve) => setTimeout(resolve, 50));
      server.objects.put('endpointslices', withUids(server, rawSlice));
      await expect.poll(() => open()).toBe(0);
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
      await expect.poll(() => open()).toBe(1);
      expect(() => lockFolder(folder)).toThrow('Another process records');
    });
    const { release } = lockFolder(folder);
    const before = segmentsIn().length;
    await live(async (_, open) => {
      await expect.poll(() => open()).toBe(1);
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
      await expect.poll(() => open()).toBe(1);
    });
    expect(output.err()).toContain('The history is not recorded: ENOTDIR');
  });

  test('leaves the mode of a folder that exists, and of its lock', async () => {
    mkdirSync(folder);
    chmodSync(folder, 0o770);
    writeFileSync(join(folder, 'lock'), '');
    chmodSync(join(folder, 'lock'), 0o660);
    await live(async () => {
      await expect.poll(() => segmentsIn().length).toBe(1);
    });
    expect(statSync(folder).mode & 0o777).toBe(0o770);
    expect(statSync(join(folder, 'lock')).mode & 0o777).toBe(0o660);
  });
});

describe('the end of an earlier history', () => {
  const lists: LiveEntry[] = [
    { kind: 'header', at: 1000, kubernetes: 'v1.36.0', resources },
    ...resources.map((resource) => ({ kind: 'synced' as const, at: 1000, resource })),
  ];

  /**
   * Starts a history whose folder has a segment, on a clock that is a hundred times as fast until
   * the history is closed.
   */
  function startAfter(readStop: (signal: AbortSignal) => Promise<StopState>, settle = 60) {
    const clock = createClock();
    let speed = 100;
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, '00000001-1.segment'), '');
    const auditor = createAuditor({ ...auditorDefaults, settle });
    for (const entry of lists) auditor.take(entry);
    const said: (string | null)[] = [];
    const say = (text: string | null): unknown => said.push(text);
    const history = startHistory(auditor, {
      path: folder,
      limits: { size: 1e9, age: 86_400 },
      clock: {
        ...clock,
        monotonic: () => speed * clock.monotonic(),
        after: (seconds, call) => clock.after(seconds / speed, call),
      },
      onTrouble: say,
      onRestart: say,
      readStop,
    });
    const close = (): Promise<boolean> => {
      speed = 1;
      return history.close();
    };
    return { history, said, close };
  }

  test('is not awaited for long, and then recording begins', async () => {
    const signals: AbortSignal[] = [];
    const { history, said, close } = startAfter((signal) => {
      signals.push(signal);
      return new Promise(() => undefined);
    });
    await expect.poll(() => history.metrics()?.writtenAt ?? null).not.toBe(null);
    expect(said).toEqual([
      'The end of the history is read before recording goes on',
      'Findings begin again: The history was not read in the first 30 s of the audit',
    ]);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
    expect(await close()).toBe(true);
  });

  test('is not awaited for longer than the settle window', async () => {
    const { history, said, close } = startAfter(() => new Promise(() => undefined), 4);
    await expect.poll(() => history.metrics()?.writtenAt ?? null).not.toBe(null);
    const late = 'The history was not read in the first 4 s of the audit';
    expect(said.at(-1)).toBe(`Findings begin again: ${late}`);
    await close();
  });

  test('is read when another process has released the folder', async () => {
    mkdirSync(folder);
    const { release } = lockFolder(folder);
    const none = { findings: [], incidents: [] };
    const stop = {
      at: 1000,
      services: [],
      incidents: { open: [], members: [], resolved: [], merged: [] },
      resolved: none,
      open: none,
      unknown: 2,
    };
    let reads = 0;
    const { history, said, close } = startAfter(() => Promise.resolve({ ...stop, at: ++reads }));
    await expect.poll(() => said.length).toBe(1);
    release();
    await expect.poll(() => history.metrics()?.writtenAt ?? null).not.toBe(null);
    expect(reads).toBe(1);
    const unknown = '2 entries about findings, of another version, have unknown codes';
    expect(said).toEqual([expect.stringContaining('Another process records'), null, unknown]);
    await close();
  });

  test('is not used if the folder was not available for long', async () => {
    mkdirSync(folder);
    const { release } = lockFolder(folder);
    const { history, said, close } = startAfter(() => Promise.reject(new Error('Not to be read')));
    await expect.poll(() => said.length).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 320));
    release();
    await expect.poll(() => history.metrics()?.writtenAt ?? null).not.toBe(null);
    const late = 'The history was not read in the first 30 s of the audit';
    expect(said.slice(1)).toEqual([`Findings begin again: ${late}`, null]);
    await close();
  });
});

describe('a history that is closed', () => {
  /** A clock that counts the timers that may still call back. */
  function countingClock() {
    const clock = createClock();
    const timers = new Set<() => void>();
    const after = (seconds: number, call: () => void): (() => void) => {
      timers.add(call);
      const cancel = clock.after(seconds, () => {
        timers.delete(call);
        call();
      });
      return () => {
        timers.delete(call);
        cancel();
      };
    };
    return { timers, clock: { ...clock, after } };
  }

  const start = (clock: ReturnType<typeof countingClock>['clock']) =>
    startHistory(createAuditor(auditorDefaults), {
      path: folder,
      limits: { size: 1e9, age: 86_400 },
      clock,
      onTrouble: (reason) => expect(reason).toBe(null),
    });

  test('leaves no timer, which would delay the exit', async () => {
    const { clock, timers } = countingClock();
    const history = start(clock);
    await expect.poll(() => history.metrics()).not.toBe(null);
    await expect.poll(() => timers.size).toBe(1);
    await history.close();
    expect(timers.size).toBe(0);
  });

  test('reports that the disk does not answer', async () => {
    const { clock } = countingClock();
    const reading = Promise.withResolvers<undefined>();
    const early = (_: number, call: () => void): (() => void) => clock.after(0.1, call);
    mkdirSync(folder);
    writeFileSync(join(folder, '00000001-1.segment'), '');
    const history = startHistory(createAuditor(auditorDefaults), {
      path: folder,
      limits: { size: 1e9, age: 86_400 },
      clock: { ...clock, after: early },
      onTrouble: () => undefined,
      readStop: () => new Promise(() => reading.resolve(undefined)),
    });
    await reading.promise;
    expect(await history.close()).toBe(false);
  });

  test('while it opens the folder does not keep the lock', async () => {
    const { clock, timers } = countingClock();
    expect(await start(clock).close()).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 200));
    lockFolder(folder).release();
    expect(timers.size).toBe(0);
  });
});
