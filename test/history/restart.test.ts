// A live auditor that starts again: which findings keep their times, and which begin again.

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { newIncident } from '../../src/audit/incident/open-incident.ts';
import type { ReportedIncident } from '../../src/audit/incident/report.ts';
import { type NumberOf, saveIncident } from '../../src/audit/incident/saved-incidents.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import { readStopState } from '../../src/commands/history-process.ts';
import { readStop } from '../../src/commands/history-reader.ts';
import { createLiveAuditor } from '../../src/commands/shared/cluster.ts';
import { recordHistory } from '../../src/commands/shared/history.ts';
import { framesIn } from '../../src/history/frame.ts';
import type { LiveHistory } from '../../src/history/live-history.ts';
import { searchedIn, type StopState, stopStateOf } from '../../src/history/restart.ts';
import { plainFinding, times } from '../build.ts';
import {
  emptySlice,
  liveCluster,
  printed,
  rawNode,
  rawPod,
  rawSlice,
  usual,
  withUids,
} from '../live-cluster.ts';

let folder: string;

beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'history');
});

afterEach(() => {
  vi.restoreAllMocks();
});

type Read = (path: string, signal: AbortSignal) => Promise<StopState>;

/** Runs an auditor of a cluster with a history until `work` ends. */
async function run(
  { cluster }: ReturnType<typeof liveCluster>,
  settle: number,
  read: Read,
  work: (auditor: Auditor, history: LiveHistory) => Promise<void>,
): Promise<void> {
  const state = { history: null as LiveHistory | null };
  const note = (finding: Finding): void => state.history?.noteFinding(finding);
  const { auditor, run } = createLiveAuditor(cluster, { ...usual, settle }, () => undefined, {
    onOpen: note,
    onResolve: note,
    onTaken: (entry) => state.history?.take(entry),
  });
  const history = recordHistory(auditor, { history: folder }, cluster, read);
  if (history === null) throw new Error('Expected a history');
  state.history = history;
  const stop = new AbortController();
  const running = run(stop);
  await work(auditor, history);
  await history.close();
  stop.abort();
  await running;
}

const openOf = ({ findings }: Auditor): readonly Finding[] => findings.open();

/** Opens the finding of a cluster; `isKilled`: what the process writes at its end is missing. */
async function openOnce(live: ReturnType<typeof liveCluster>, isKilled = false): Promise<Finding> {
  const found: Finding[] = [];
  const copy = `${folder}.copy`;
  await run(live, 0.3, readStop, async (auditor, history) => {
    await expect.poll(() => openOf(auditor).length).toBe(1);
    found.push(...openOf(auditor));
    const at = Date.now() / 1000;
    // Without changes, the next line would be written after ten seconds.
    const written = (): number => {
      live.server.objects.put('nodes', rawNode);
      return history.metrics()?.writtenAt ?? 0;
    };
    await expect.poll(written, { interval: 100 }).toBeGreaterThan(at);
    if (isKilled) cpSync(folder, copy, { recursive: true });
  });
  if (isKilled) {
    rmSync(folder, { recursive: true });
    cpSync(copy, folder, { recursive: true });
  }
  const [finding] = found;
  if (finding === undefined) throw new Error('Expected a finding');
  return finding;
}

/** Longer than a test lasts, so that only a restored clock opens a finding. */
const long = 3000;

describe('after a restart', () => {
  test.each([
    ['a stop', false, readStop],
    ['a kill', true, readStop],
    ['a stop, read by a process', false, readStopState],
  ] as const)('a finding keeps its times: %s', async (_, isKilled, read) => {
    printed();
    const live = liveCluster(emptySlice);
    const before = await openOnce(live, isKilled);
    await run(live, long, read, async (auditor, history) => {
      await expect.poll(() => openOf(auditor).length).toBe(1);
      const [finding] = openOf(auditor);
      const { code, since, openedAt, cause } = before;
      expect(finding).toMatchObject({ code, since, openedAt, cause });
      const [incident] = auditor.incidents.list();
      expect(incident).toMatchObject({ since, openedAt });
      const queries = createQueries(auditor, 'test');
      expect([queries.status().resolved, queries.incidents().resolved]).toEqual([[], []]);
      await expect.poll(() => history.metrics()?.writtenAt ?? 0).toBeGreaterThan(openedAt);
    });
    // The second restart knows the first times, too.
    const { services } = await readStop(folder);
    const items = services.flatMap(({ saved }) => Object.values(saved.items)).flat();
    expect(items.map(({ findingOpenedAt }) => findingOpenedAt)).toEqual([before.openedAt]);
  });

  test('a finding begins again if an object of its Service has changed', async () => {
    printed();
    const live = liveCluster(emptySlice);
    const before = await openOnce(live);
    live.server.objects.put('pods', withUids(live.server, rawPod));
    await run(live, 2, readStop, async (auditor) => {
      await expect.poll(() => openOf(auditor).length).toBe(1);
      const [finding] = openOf(auditor);
      expect(finding?.since).toBeGreaterThan(before.openedAt);
      // The difference has not ended.
      const queries = createQueries(auditor, 'test');
      expect([queries.status().resolved, queries.incidents().resolved]).toEqual([[], []]);
    });
  });

  test('a finding that has ended meanwhile is shown as resolved, with its incident', async () => {
    printed();
    const live = liveCluster(emptySlice);
    const { code, openedAt } = await openOnce(live);
    live.server.objects.put('endpointslices', withUids(live.server, rawSlice));
    await run(live, long, readStop, async (auditor) => {
      const queries = createQueries(auditor, 'test');
      await expect.poll(() => queries.status().resolved.length).toBe(1);
      expect(queries.status().resolved).toMatchObject([{ code, openedAt }]);
      expect(queries.status().resolved[0]?.resolvedAt).toBeGreaterThan(openedAt);
      expect(queries.incidents().resolved).toMatchObject([{ openedAt }]);
    });
  });

  test('a finding of a node is not shown as resolved before its rules are read', async () => {
    printed();
    const live = liveCluster(emptySlice);
    const finding = { ...(await openOnce(live)), node: 'node-a' };
    live.server.objects.put('endpointslices', withUids(live.server, rawSlice));
    const read: Read = async (path) => {
      const stop = await readStop(path);
      const incidents = stop.open.incidents.map((it) => ({ ...it, findings: [finding] }));
      return { ...stop, open: { findings: [...stop.open.findings, finding], incidents } };
    };
    await run(live, long, read, async (auditor) => {
      const queries = createQueries(auditor, 'test');
      await expect.poll(() => queries.status().resolved.length).toBe(1);
      expect(queries.status().resolved.map(({ node }) => node)).toEqual([null]);
      expect(queries.incidents().resolved).toEqual([]);
    });
  });

  test('what was resolved stays visible', async () => {
    printed();
    const live = liveCluster(emptySlice);
    await run(live, 0.3, readStop, async (auditor, history) => {
      await expect.poll(() => openOf(auditor).length).toBe(1);
      await expect.poll(() => history.metrics()?.writtenAt ?? null).not.toBe(null);
      live.server.objects.put('endpointslices', withUids(live.server, rawSlice));
      await expect.poll(() => auditor.findings.resolved().length).toBe(1);
      await expect.poll(() => auditor.incidents.resolved().length).toBe(1);
    });
    await run(live, long, readStop, async (auditor) => {
      const queries = createQueries(auditor, 'test');
      await expect.poll(() => queries.status().resolved.length).toBe(1);
      const [finding] = queries.status().resolved;
      expect(finding).toMatchObject({ code: 'slice-endpoint-missing', service: 'web' });
      const { open, resolved } = queries.incidents();
      expect([open.length, resolved.length]).toEqual([0, 1]);
      expect(queries.incident(resolved[0]?.id ?? '')).toEqual(resolved[0]);
      expect(queries.service('shop', 'web')?.resolved).toHaveLength(1);
    });
  });

  test('a torn write at the end loses nothing, and damage before it does', async () => {
    printed();
    const live = liveCluster(emptySlice);
    const opened: number[] = [];
    await run(live, 0.3, readStop, async (auditor, history) => {
      await expect.poll(() => openOf(auditor).length).toBe(1);
      await expect.poll(() => history.metrics()?.writtenAt ?? null).not.toBe(null);
      for (let left = 3; left > 0; left--) {
        const { lines = 0 } = history.metrics() ?? {};
        live.server.objects.put('nodes', rawNode);
        await expect.poll(() => history.metrics()?.lines).toBeGreaterThan(lines);
      }
      opened.push(...openOf(auditor).map(({ openedAt }) => openedAt));
    });
    const names = readdirSync(folder).filter((it) => it.endsWith('.segment'));
    const name = join(folder, names.sort().at(-1) ?? '');
    const whole = readFileSync(name);
    writeFileSync(name, whole.subarray(0, -3));
    const { services } = await readStop(folder);
    const items = services.flatMap(({ saved }) => Object.values(saved.items)).flat();
    expect(items.map(({ findingOpenedAt }) => findingOpenedAt)).toEqual(opened);
    // The frame before the last one that has lines.
    const frames = [...framesIn(whole, Number(basename(name).slice(0, 8)))].flatMap((it) =>
      'frame' in it ? [it.frame] : [],
    );
    const at = whole.indexOf(frames.filter(({ kind }) => kind === 'live').at(-2)?.payload ?? '');
    writeFileSync(name, whole.fill(0, at, at + 4));
    await expect(readStop(folder)).rejects.toThrow('The end of the history is damaged');
  });

  test('an incident has the opening time and the resolved findings that notes have', () => {
    const [noted, opening] = [5, 7].map((since) =>
      plainFinding('slice-endpoint-missing', { since, openedAt: 40, resolvedAt: 50 }),
    );
    // A replay opens both too early. The second one has never opened.
    const replayed = [noted, opening].flatMap((it) => (it ? [{ ...it, openedAt: 35 }] : []));
    const claim = { kind: 'cause-unknown', key: 'a', object: 'Service a/b', likely: [] } as const;
    const times = { since: 5, openedAt: 35, evidence: [] };
    const open = ['known', 'unknown'].map((id) => newIncident(id, claim, times));
    open[0]?.resolved.push(...replayed);
    const grouping = { merged: [['old', 'known'] as const] };
    const past = (numberOf: NumberOf) => ({
      open: open.map((it) => saveIncident(it, numberOf)),
      members: [],
      grouping,
    });
    const auditor = { serviceAuditor: () => null, incidents: { past } } as unknown as Auditor;
    const incidents = [{ id: 'known', openedAt: 40 }] as unknown as ReportedIncident[];
    const { incidents: before } = stopStateOf(auditor, 100, new Map(), {
      resolved: { findings: noted ? [noted] : [], incidents: [] },
      open: { findings: [], incidents },
    });
    expect(before.open.map(({ id, openedAt }) => [id, openedAt])).toEqual([
      ['known', 40],
      ['unknown', 100],
    ]);
    expect(before.resolved).toEqual([[0, noted]]);
    expect(before.merged).toEqual(grouping.merged);
  });

  test('all incidents that were open have their opening times, and the latest others', () => {
    const incidents = times(600, (at) => ({
      id: String(at),
      openedAt: at,
      resolvedAt: at < 300 ? at + 1 : null,
    })) as unknown as ReportedIncident[];
    const { open, resolved } = searchedIn({ findings: () => [], incidents: () => incidents });
    expect(open.incidents).toHaveLength(300);
    expect(resolved.incidents.map(({ openedAt }) => openedAt)).toEqual(
      times(200, (at) => 100 + at),
    );
  });

  test('a finding begins again if the end of the history is damaged', async () => {
    const output = printed();
    const live = liveCluster(emptySlice);
    const before = await openOnce(live);
    const failing: Read = () => Promise.reject(new Error('The end of the history is damaged'));
    await run(live, 0.3, failing, async (auditor) => {
      await expect.poll(() => openOf(auditor).length).toBe(1);
      expect(openOf(auditor)[0]?.since).toBeGreaterThan(before.openedAt);
    });
    expect(output.err()).toContain('Findings begin again: The end of the history is damaged');
  });
});
