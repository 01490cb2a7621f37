// What the history costs: two processes of this bundle audit the same load server at the same time,
// one of them with --history. So other work on the machine slows down both.
//
//   npm run -s bench -- history [--share=10] [--rate=20] [--seconds=60]

import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { openFolder } from '../../src/history/files.ts';
import { framesIn, linesOf } from '../../src/history/frame.ts';
import { changesLimit, listSegments } from '../../src/history/segments.ts';
import { round } from './measure.ts';
import { type Auditing, sampleOf, startAuditing, startLoadServer } from './program.ts';

const argument = (name: string, value: number): number =>
  Number(process.argv.find((it) => it.startsWith(`--${name}=`))?.split('=')[1] ?? value);

const [share, rate, seconds] = [
  argument('share', 10),
  argument('rate', 20),
  argument('seconds', 60),
];
const day = 86_400;

/** Bytes on the disk and lines of the frames of one kind. */
async function storedIn(folder: string, kind: 'checkpoint' | 'live') {
  const files = openFolder(folder);
  const sums = { bytes: 0, plain: 0, segments: 0 };
  for (const { name, number } of await listSegments(files)) {
    sums.segments++;
    for (const part of framesIn(await files.read(name), number)) {
      if (!('frame' in part) || part.frame.kind !== kind) continue;
      sums.bytes += part.frame.payload.length;
      sums.plain += (await linesOf(part.frame)).length;
    }
  }
  return sums;
}

/** Waits until both are ready, and the first checkpoint is complete. */
async function warm(programs: readonly Auditing[], folder: string): Promise<void> {
  for (const program of programs) {
    while ((await program.get('/readyz')).status !== 200) await sleep(200);
  }
  while (!(await readdir(folder)).some((name) => name.endsWith('.segment'))) await sleep(200);
}

/** MiB of each program, each second: garbage grows for a minute, and is then collected. */
async function meanMemory(programs: readonly Auditing[]): Promise<number[]> {
  const sums = programs.map(() => 0);
  for (let second = 0; second < seconds; second++) {
    await sleep(1000);
    const usages = await Promise.all(programs.map((program) => program.usage()));
    for (const [index, { rss }] of usages.entries()) sums[index] = (sums[index] ?? 0) + rss;
  }
  return sums.map((sum) => sum / seconds);
}

async function measure(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'endpoint-auditor-history-'));
  const load = await startLoadServer({ share });
  const programs: Auditing[] = [];
  try {
    programs.push(
      await startAuditing(load, null),
      await startAuditing(load, null, ['--history', folder]),
    );
    await Promise.all(programs.map((program) => program.longestTurn()));
    await warm(programs, folder);
    const turns = await Promise.all(programs.map((program) => program.longestTurn()));
    await load.churn(rate);
    await sleep(10_000);
    const before = await Promise.all(programs.map((program) => program.usage()));
    const rss = await meanMemory(programs);
    const after = await Promise.all(programs.map((program) => program.usage()));
    const cpu = after.map((usage, index) => usage.cpu - (before[index]?.cpu ?? 0));
    const checkpoint = await storedIn(folder, 'checkpoint');
    const live = await storedIn(folder, 'live');
    const { text } = (await programs[1]?.get('/metrics')) ?? { text: '' };
    const size = checkpoint.bytes / checkpoint.segments;
    const changes = (live.bytes / (seconds + 10)) * day;
    const perDay = changes + size * Math.max(24, changes / changesLimit(size, Infinity));
    const figures = {
      share,
      'changes per second': rate,
      'CPU, s per minute, without': round(((cpu[0] ?? 0) / seconds) * 60),
      'CPU, s per minute, with': round(((cpu[1] ?? 0) / seconds) * 60),
      'CPU, ratio': round((cpu[1] ?? 0) / (cpu[0] ?? 1)),
      'RSS, MiB, without': round(rss[0] ?? 0),
      'RSS, MiB, with': round(rss[1] ?? 0),
      'longest turn until the first checkpoint, ms CPU, without': round(1000 * (turns[0] ?? 0)),
      'longest turn until the first checkpoint, ms CPU, with': round(1000 * (turns[1] ?? 0)),
      'checkpoint, MB': round(size / 1e6),
      'checkpoint, times packed': round(checkpoint.plain / checkpoint.bytes),
      'changes, times packed': round(live.plain / live.bytes),
      'MB per day': round(perDay / 1e6),
      'dropped lines': sampleOf(text, 'endpoint_auditor_history_dropped_lines_total'),
    };
    for (const [name, figure] of Object.entries(figures)) console.log(`${name}: ${figure}`);
    console.log(JSON.stringify(figures));
  } finally {
    for (const program of programs) await program.stop();
    await load.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

if (import.meta.main) await measure();
