// A recording of a live cluster and its replay, file by file.

import { auditorDefaults } from '../build.ts';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { constants, gunzipSync } from 'node:zlib';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import { record } from '../../src/commands/record.ts';
import { recordingOf } from '../../src/commands/replay.ts';
import { virtualClock } from '../apiserver/server.ts';
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
  folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
});

afterEach(() => {
  vi.restoreAllMocks();
});

/** What has reached a file so far, which may still be written to. */
function textOf(path: string): string {
  if (!existsSync(path)) return '';
  const bytes = readFileSync(path);
  if (!path.endsWith('.gz') || bytes.length === 0) return bytes.toString();
  return gunzipSync(bytes, { finishFlush: constants.Z_SYNC_FLUSH }).toString();
}

const syncedIn = (path: string): number => textOf(path).split('"kind":"synced"').length - 1;

async function codesIn(path: string): Promise<string[]> {
  const auditor = createAuditor({ ...auditorDefaults, settle: 0 });
  const entries = await recordingOf(path, auditor, ({ message }) => {
    throw new Error(message);
  });
  await replay(auditor, entries, { speed: Infinity, until: null });
  expect(auditor.serviceAuditor()?.audited.size).toBe(1);
  const { findings } = auditor;
  return [
    ...findings.open().map(({ code }) => `open ${code}`),
    ...findings.resolved().map(({ code }) => `resolved ${code}`),
  ];
}

describe('a recording', () => {
  test.each([
    ['plain', 'a.ndjson', false],
    ['compressed', 'a.ndjson.gz', false],
    ['redacted', 'a.ndjson.gz', true],
  ])('%s replays to the recorded findings', async (_name, name, redact) => {
    const { cluster, server } = liveCluster(emptySlice);
    const output = printed();
    const stop = new AbortController();
    const path = join(folder, name);
    const running = record(path, { ...usual, redact }, cluster, stop);
    await expect.poll(() => syncedIn(path)).toBe(5);
    server.objects.put('endpointslices', withUids(server, rawSlice));
    await expect.poll(() => textOf(path)).toContain('"type":"MODIFIED"');
    stop.abort();
    expect(await running).toBe(0);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(output.err().includes('--redact')).toBe(!redact);
    const text = textOf(path);
    expect(text.split('\n')[0]).toMatch(/^\{"kind":"(?:header|watch)"/);
    expect(text.trimEnd().split('\n').at(-1)).toMatch(/^\{"kind":"end"/);
    expect(text.includes('managedFields')).toBe(false);
    expect(text.includes('web-1')).toBe(!redact);
    expect(await codesIn(path)).toEqual(['resolved slice-endpoint-missing']);
  });

  test('that is redacted names nothing on stderr either', async () => {
    const { cluster, server } = liveCluster();
    const metadata = {
      name: 'acme-1',
      namespace: 'shop',
      labels: { team: 7 as unknown as string },
    };
    server.objects.put('pods', { ...structuredClone(rawPod), metadata });
    const output = printed();
    const stop = new AbortController();
    const path = join(folder, 'a.ndjson');
    const options = { ...usual, redactIps: true, namespaces: ['shop'] };
    const capital = cluster.server.replace('fake', 'FAKE');
    const proxied = { ...cluster, server: `${capital}/k8s/clusters/c-m-4711/` };
    const running = record(path, options, proxied, stop);
    await expect.poll(() => syncedIn(path)).toBe(5);
    stop.abort();
    await running;
    expect(output.err()).toMatch(/pods: Pod r[0-9a-f]{12}\/r[0-9a-f]{12}: metadata.labels/);
    expect(output.out()).toMatch(/^Recording https:\/\/r[0-9a-f]{12}\/r[0-9a-f]{12}\/ to /);
    expect(output.err() + output.out()).not.toMatch(/acme|shop|fake\.example|team|4711/i);
    expect(textOf(path)).not.toContain('10.1.0.1');
  });

  test('of some namespaces contains no other objects except Nodes', async () => {
    const { cluster, server } = liveCluster();
    server.objects.put('pods', {
      ...structuredClone(rawPod),
      metadata: { name: 'other-1', namespace: 'bank' },
    });
    printed();
    const stop = new AbortController();
    const path = join(folder, 'a.ndjson');
    const running = record(path, { ...usual, excludeNamespaces: ['bank'] }, cluster, stop);
    await expect.poll(() => syncedIn(path)).toBe(5);
    stop.abort();
    await running;
    expect(textOf(path).includes('other-1')).toBe(false);
    expect(textOf(path).includes('"node-a"')).toBe(true);
    expect(await codesIn(path)).toEqual([]);
  });
});

describe('rotation', () => {
  test.each([
    ['size', { maxSize: 10_000 }],
    ['age', { maxAge: 60 }],
  ])('by %s writes files that replay alone, and overwrites no file', async (name, more) => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(emptySlice, clock);
    printed();
    const path = join(folder, 'a.ndjson');
    writeFileSync(path, 'what was there before');
    const stop = new AbortController();
    const running = record(path, { ...usual, ...more }, cluster, stop);
    const files = (): string[] => readdirSync(folder).sort();
    const step = (seconds: number): Promise<void> => clock.runUntil(clock.now() + seconds);
    const until = (isSo: () => boolean) =>
      expect.poll(() => step(0.001).then(isSo), { interval: 1 }).toBe(true);
    for (const parts of [2, 3, 4]) {
      await until(() => syncedIn(path) === 5);
      if (name === 'age') await step(60);
      await until(() => {
        if (name === 'size') server.objects.put('nodes', rawNode);
        return files().length > parts;
      });
    }
    stop.abort();
    await running;
    const contents = files().map((name) => textOf(join(folder, name)));
    expect(contents.filter((text) => text === 'what was there before')).toHaveLength(1);
    const whole = files().filter((_, index) => contents[index]?.includes('"kind":"synced"'));
    expect(whole.length).toBeGreaterThanOrEqual(3);
    for (const name of whole.slice(0, -1)) {
      expect(name).toMatch(/^a\.(?:\d{8}T\d{6}\.\d{3}Z\.)?ndjson$/);
      expect(await codesIn(join(folder, name))).toEqual(['open slice-endpoint-missing']);
    }
  });

  test('a file that cannot be written ends the command with an error', async () => {
    const { cluster } = liveCluster();
    printed();
    const path = join(folder, 'none', 'a.ndjson.gz');
    await expect(record(path, usual, cluster, new AbortController())).rejects.toThrow('ENOENT');
  });
});
