// One random life of a cluster after the other: `node test/apiserver/seeds.ts [FIRST] [COUNT]`.
// Every life is watched by all reflectors; what they deliver must be true at every moment, and
// complete in the end. `runSeed` is one of them; a seed that fails can be run alone. Many seeds are
// shared out to threads, as many as there are cores. With --auditor as the first argument, the
// whole auditor is on top of the reflectors, and its findings are compared with the truth
// (auditing.ts).

import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { parentPort, Worker, workerData } from 'node:worker_threads';

import { createReflectors } from '../../src/cluster/api/reflector.ts';
import type { newCounters } from '../../src/cluster/api/watch-result.ts';
import type { LiveEntry } from '../../src/cluster/decode/entry.ts';
import type { Resource } from '../../src/model/objects.ts';
import { auditSeed } from './auditing.ts';
import type { World } from './life.ts';
import { chanceFrom, compared, createWorld, heldIn, live } from './life.ts';

export interface Run {
  /** What was not as it must be. */
  readonly violations: readonly string[];
  readonly counters: ReadonlyMap<Resource, WatchCounters>;
}

/** An object without what depends on the moment of its arrival. */
function contentOf(entry: Extract<LiveEntry, { kind: 'event' }>): string {
  return JSON.stringify({ ...entry.event.object, at: 0, ipsSince: 0 });
}

/** What is wrong with an entry, once it is applied. */
function* violationsOf(
  world: World,
  versions: Map<string, string>,
  entry: LiveEntry,
): Generator<string> {
  if (entry.kind === 'unreadable') yield `unreadable ${JSON.stringify(entry)}`;
  if (entry.kind === 'event' && entry.event.type !== 'deleted') {
    const { resource, object } = entry.event;
    const version = `${resource} ${object.key} ${object.uid} ${object.resourceVersion}`;
    const content = contentOf(entry);
    if ((versions.get(version) ?? content) !== content) yield `two contents of ${version}`;
    versions.set(version, content);
  }
  if (entry.kind === 'progress') {
    // All up to this version has been delivered, and nothing that is newer.
    const { resource, resourceVersion } = entry;
    const want = world.server.objects
      .list(resource, Number(resourceVersion))
      .map(({ key, raw }) => `${key} ${raw.metadata.uid} ${raw.metadata.resourceVersion}`);
    const got = [...heldIn(world.store, resource).values()]
      .map((one) => `${one.key} ${one.uid} ${one.resourceVersion}`)
      .sort();
    if (want.sort().join() !== got.join()) {
      yield `${resource} at ${resourceVersion}: ${got.join()} instead of ${want.join()}`;
    }
  }
}

export async function runSeed(seed: number): Promise<Run> {
  const world = createWorld(seed);
  const violations: string[] = [];
  const versions = new Map<string, string>();
  const reflectors = createReflectors({
    environment: world.environment,
    held: world.held,
    deliver(entries) {
      for (const entry of entries) {
        world.deliver([entry]);
        violations.push(...violationsOf(world, versions, entry));
      }
    },
    onProblem: () => undefined,
    endpoints: true,
    namespaces: null,
    watchList: true,
    raw: false,
  });
  const controller = new AbortController();
  const run = reflectors.run(controller.signal);
  await live(world, chanceFrom(seed + 1_000_000), { onRestore: () => versions.clear() });
  for (const [resource, { state }] of reflectors.status) {
    const { got, want } = compared(world, resource);
    if (got.join() !== want.join()) {
      violations.push(`${resource} in the end: ${got.join()} instead of ${want.join()}`);
    }
    if (state !== 'synced') violations.push(`${resource} is ${state} in the end`);
  }
  controller.abort();
  await world.clock.runUntil(world.clock.now());
  await run;
  if (world.server.watches.size > 0) violations.push('watches are left behind');
  const status = [...reflectors.status];
  const counters = new Map(status.map(([resource, one]) => [resource, one.counters]));
  return { violations, counters };
}

/** The sums of all counters, by name. */
export function addCounters(sums: Map<string, number>, counters: object, name = ''): void {
  for (const [key, value] of Object.entries(counters) as [string, unknown][]) {
    if (typeof value === 'number') sums.set(name + key, (sums.get(name + key) ?? 0) + value);
    else if (typeof value === 'object' && value !== null) addCounters(sums, value, `${key}.`);
  }
}

/** The whole auditor, counted as a watch is. */
async function audit(seed: number): Promise<Pick<Run, 'violations'> & { counters: object }> {
  const { violations, counts, auditor, attached } = await auditSeed(
    seed,
    undefined,
    seed % 4 === 3 ? ['shop', 'bank'] : null,
  );
  const sums = new Map<string, number>();
  for (const { counters } of attached.watches.values()) addCounters(sums, counters);
  const noticed = ['relists.gap', 'relists.starved', 'reconnects.endless'];
  const watches = Object.fromEntries([...sums].filter(([name]) => noticed.includes(name)));
  return { violations, counters: { ...counts, ...auditor.confirmer.counts, ...watches } };
}

async function reflect(seed: number): Promise<Pick<Run, 'violations'> & { counters: object }> {
  const { violations, counters } = await runSeed(seed);
  const sums = new Map<string, number>();
  for (const one of counters.values()) addCounters(sums, one);
  return { violations, counters: Object.fromEntries(sums) };
}

type WatchCounters = ReturnType<typeof newCounters>;

interface Share {
  readonly auditor: boolean;
  readonly first: number;
  readonly count: number;
}

/** What became of a share of the seeds. */
interface Result {
  readonly sums: ReadonlyMap<string, number>;
  readonly failed: number;
}

async function runShare({ auditor, first, count }: Share): Promise<Result> {
  const sums = new Map<string, number>();
  let failed = 0;
  for (let seed = first; seed < first + count; seed++) {
    const { violations, counters } = await (auditor ? audit : reflect)(seed);
    addCounters(sums, counters);
    if (violations.length === 0) continue;
    failed++;
    console.log(`seed ${seed}: ${violations.slice(0, 3).join('\n  ')}`);
  }
  return { sums, failed };
}

/** With fewer seeds, a thread is not worth its start. */
const leastShare = 250;

async function main({ auditor, first, count }: Share): Promise<void> {
  const threads = Math.max(1, Math.min(availableParallelism(), Math.floor(count / leastShare)));
  const size = Math.ceil(count / threads);
  const results = await Promise.all(
    Array.from({ length: threads }, async (_, index): Promise<Result> => {
      const begin = first + index * size;
      const share = { auditor, first: begin, count: Math.min(size, first + count - begin) };
      if (threads === 1) return runShare(share);
      const worker = new Worker(new URL(import.meta.url), { workerData: share });
      const [result] = (await once(worker, 'message')) as [Result];
      return result;
    }),
  );
  const sums = new Map<string, number>();
  for (const one of results) addCounters(sums, Object.fromEntries(one.sums));
  const failed = results.reduce((sum, one) => sum + one.failed, 0);
  const { user, system } = process.cpuUsage();
  const seconds = ((user + system) / 1e6).toFixed(1);
  console.log([...sums].map(([name, sum]) => `${name} ${sum}`).join(', '));
  console.log(`${count} seeds, ${failed} failed, ${seconds} s of CPU in ${threads} threads`);
  process.exitCode = failed === 0 ? 0 : 1;
}

const share = workerData as Partial<Share> | null;
// Tests import this file, and may be threads themselves.
if (share?.auditor !== undefined) parentPort?.postMessage(await runShare(share as Share));
else if (import.meta.main) {
  const [, , ...words] = process.argv;
  const [first = 0, count = 10_000] = words.filter((word) => word !== '--auditor').map(Number);
  await main({ auditor: words[0] === '--auditor', first, count });
}
