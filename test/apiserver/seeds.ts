// One random life of a cluster after the other: `node test/apiserver/seeds.ts [FIRST] [COUNT]`.
// Every life is watched by all reflectors; what they deliver must be true at every moment, and
// complete in the end. `runSeed` is one of them; a seed that fails can be run alone. With --auditor
// as the first argument, the whole auditor is on top of them, and what it says is held against the
// truth (auditing.ts).

import { createReflectors } from '../../src/cluster/reflectors.ts';
import { auditSeed } from './auditing.ts';
import { live } from './chaos.ts';
import { chanceFrom, compared, createWorld, heldIn } from './simulate.ts';

import type { LiveEntry } from '../../src/cluster/delivery.ts';
import type { WatchCounters } from '../../src/cluster/counters.ts';
import type { Resource } from '../../src/model/objects.ts';
import type { World } from './simulate.ts';

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
  const { violations, counts, auditor } = await auditSeed(seed);
  return { violations, counters: { ...counts, ...auditor.confirmer.counts } };
}

async function reflect(seed: number): Promise<Pick<Run, 'violations'> & { counters: object }> {
  const { violations, counters } = await runSeed(seed);
  const sums = new Map<string, number>();
  for (const one of counters.values()) addCounters(sums, one);
  return { violations, counters: Object.fromEntries(sums) };
}

async function main(run: typeof audit, first: number, count: number): Promise<void> {
  const sums = new Map<string, number>();
  let failed = 0;
  for (let seed = first; seed < first + count; seed++) {
    const { violations, counters } = await run(seed);
    addCounters(sums, counters);
    if (violations.length === 0) continue;
    failed++;
    console.log(`seed ${seed}: ${violations.slice(0, 3).join('\n  ')}`);
  }
  const { user, system } = process.cpuUsage();
  console.log([...sums].map(([name, sum]) => `${name} ${sum}`).join(', '));
  console.log(`${count} seeds, ${failed} failed, ${((user + system) / 1e6).toFixed(1)} s of CPU`);
  process.exitCode = failed === 0 ? 0 : 1;
}

if (import.meta.main) {
  const [, , ...words] = process.argv;
  const run = words[0] === '--auditor' ? audit : reflect;
  const [first = 0, count = 10_000] = words.filter((word) => word !== '--auditor').map(Number);
  await main(run, first, count);
}
