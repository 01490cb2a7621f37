// The commands that ask about the past: their answers from a history equal those from the recording
// that it has recorded.

import { createReadStream, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { printDiff } from '../../src/commands/diff.ts';
import { printIncidents } from '../../src/commands/incidents.ts';
import { lag } from '../../src/commands/lag.ts';
import { openFolder } from '../../src/history/files.ts';
import { createAuditorHistory } from '../../src/history/history.ts';
import { listSegments } from '../../src/history/segments.ts';
import { auditorDefaults } from '../build.ts';
import { printed } from '../live-cluster.ts';

const shop = fileURLToPath(new URL('../recordings/shop.ndjson.gz', import.meta.url));
const flags = { settle: 30, maxEndpointsPerSlice: 100, endpoints: true };

let history: string;
let recording: string;

/** Records the recording as the history of a folder, in segments; nothing in `paused`. */
async function recordTo(path: string, paused: readonly [number, number] | null): Promise<void> {
  const note = (finding: Finding): void => recorder?.noteFinding(finding);
  const auditor = createAuditor({ ...auditorDefaults, settle: 30, onOpen: note, onResolve: note });
  const create = () =>
    createAuditorHistory(auditor, {
      files: openFolder(path),
      limits: { size: 1e9, age: paused === null ? 800 : 1e6 },
      now: () => auditor.now() ?? 0,
      pause: () => Promise.resolve(),
      onTrouble: (reason) => expect(reason).toBe(null),
    });
  let recorder: ReturnType<typeof create> | null = create();
  const source = { name: recording, bytes: createReadStream(recording) };
  let written = 0;
  for await (const entry of readRecording(source, () => undefined)) {
    auditor.take(entry);
    const now = auditor.now() ?? 0;
    const isPaused = paused !== null && now >= paused[0] && now < paused[1];
    if (isPaused) await recorder?.close();
    recorder = isPaused ? null : (recorder ?? create());
    recorder?.take(entry);
    if (now < written + 1) continue;
    written = now;
    await recorder?.work();
  }
  await recorder?.close();
  expect((await listSegments(openFolder(path))).length).toBeGreaterThan(1);
}

// The rules of nodes are left out: a history does not have them.
beforeAll(async () => {
  history = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
  recording = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'shop.ndjson');
  const lines = gunzipSync(readFileSync(shop)).toString().split('\n');
  writeFileSync(recording, lines.filter((line) => !line.startsWith('{"kind":"node-')).join('\n'));
  await recordTo(history, null);
});

afterEach(() => {
  vi.restoreAllMocks();
});

/** What a command prints as JSON. */
async function printedBy(command: () => Promise<unknown>): Promise<Record<string, unknown>> {
  const output = printed();
  await command();
  vi.restoreAllMocks();
  return JSON.parse(output.out()) as Record<string, unknown>;
}

const begun = 1_795_258_544;

describe('of a history and of its recording', () => {
  test('incidents are the same', async () => {
    const asked = { ...flags, since: 86_400, output: 'json' as const };
    const [one, other] = [
      await printedBy(() => printIncidents({ ...asked, history })),
      await printedBy(() => printIncidents(asked, [recording])),
    ];
    const shown = ({ incidents }: typeof one) =>
      (incidents as Record<string, unknown>[])
        .map(({ id, since, openedAt, resolvedAt }) => ({ id, since, openedAt, resolvedAt }))
        .sort((a, b) => (String(a.id) < String(b.id) ? -1 : 1));
    expect(shown(one).length).toBeGreaterThan(1);
    expect(shown(one)).toEqual(shown(other));
  });

  test('lag is the same without Endpoints', async () => {
    const output = printed();
    const asked = { ...flags, endpoints: false, output: 'json' as const };
    await lag({ ...asked, history });
    expect(output.err()).toBe('');
    vi.restoreAllMocks();
    const [one, other] = [
      await printedBy(() => lag({ ...asked, history })),
      await printedBy(() => lag(asked, [recording])),
    ];
    expect(one.distributions).toEqual(other.distributions);
  });

  test('incidents are only those of the time span, as text', async () => {
    const output = printed();
    await printIncidents({ ...flags, since: 1, output: 'text', history });
    expect(output.out()).toMatch(/^\d+ incidents? from 2026-11-21T\S+ to 2026-11-21T/);
  });

  test.each([
    [100, 250],
    [0, 60],
  ])('lag from second %d to %d is the same', async (from, to) => {
    const asked = { ...flags, output: 'json' as const, from: begun + from, to: begun + to };
    const [one, other] = [
      await printedBy(() => lag({ ...asked, history })),
      await printedBy(() => lag(asked, [recording])),
    ];
    const of = ({ distributions }: typeof one, name: string) =>
      (distributions as Record<string, unknown>[]).filter((it) => it.lag === name);
    for (const name of ['convergence', 'trigger']) expect(of(one, name)).toEqual(of(other, name));
  });

  test('lag from a time without a recorder is that from its next start', async () => {
    const broken = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
    await recordTo(broken, [begun + 200, begun + 260]);
    const asked = { ...flags, output: 'json' as const, history: broken };
    const inside = await printedBy(() => lag({ ...asked, from: begun + 230 }));
    const after = await printedBy(() => lag({ ...asked, from: begun + 261 }));
    expect(inside.from).toBeGreaterThanOrEqual(begun + 259);
    expect(inside.journeys).toEqual(after.journeys);
    expect(inside.distributions).toEqual(after.distributions);
  });

  test('lag of a part is less than that of the whole', async () => {
    const asked = { ...flags, output: 'json' as const };
    const countOf = ({ distributions }: Record<string, unknown>): number =>
      (distributions as { count: number }[]).reduce((sum, { count }) => sum + count, 0);
    const whole = countOf(await printedBy(() => lag(asked, [recording])));
    const part = countOf(await printedBy(() => lag({ ...asked, from: begun + 100 }, [recording])));
    expect(part).toBeGreaterThan(0);
    expect(part).toBeLessThan(whole);
  });

  test('what is different about a Service is the same', async () => {
    const asked = { ...flags, namespace: 'shop', output: 'json' as const };
    const span = { from: begun + 30, to: begun + 300 };
    const [one, other] = [
      await printedBy(() => printDiff('service/web', { ...asked, ...span, history })),
      await printedBy(() => printDiff('service/web', { ...asked, ...span, input: [recording] })),
    ];
    const sorted = ({ changes }: typeof one) =>
      (changes as object[]).map((it) => JSON.stringify(it)).sort();
    expect(sorted(one).length).toBeGreaterThan(0);
    expect(sorted(one)).toEqual(sorted(other));
  });

  test('nothing is different at one moment', async () => {
    const output = printed();
    const span = { from: begun + 100, to: begun + 100 };
    const asked = { ...flags, ...span, history, output: 'text' as const };
    expect(await printDiff('service/shop/web', asked)).toBe(0);
    expect(output.out()).toContain('Service shop/web from 2026-11-21T10:57');
    expect(output.out()).toContain(': nothing is different');
    const unread = { ...asked, history: `${history}/missing` };
    await expect(printDiff('pod/web', unread)).rejects.toThrow('Expected service/NAME');
    await expect(printDiff('service/none', asked)).rejects.toThrow('no such Service');
  });
});
