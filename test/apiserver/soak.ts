// One long life of a cluster on a clock that jumps, watched by the whole auditor:
//
//   npm run -s soak:simulated -- [--hours 72] [--seed 1]
//
// Objects change, watches break, requests fail and controllers stop, as in the short lives of
// auditing.ts, which checks each finding. After each hour all faults cease, the simulation forgets
// what is over, and the heap is measured after a forced collection, which also drops code that is
// not used. In the end the findings equal those of a fresh auditor, and the heap must not have
// grown since the first sixth of the time. The auditor keeps fewer resolved findings and incidents
// than usual, so that it keeps the most of them from the first sixth on, as it must at the count.

import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { calm, createSimulation, endLife, halt, type Simulation, upset } from './auditing.ts';
import { below, chanceFrom, createLife, type Life, oneOf, outputs } from './life.ts';

const hour = 3600;

/** The most MiB by which the heap may grow after the first sixth of the time. */
const mostDrift = 2;

/** Resolved findings and incidents that are kept: fewer than two hours have. */
export const keep = { findings: 20, incidents: 5 };

/** Seconds in which every wait of a reflector, and every window, ends. */
const patience = 200;

/** Lives for some hours of the simulated clock. `onHour` is called after each, when all is calm. */
export async function soak(
  hours: number,
  seed: number,
  onHour: (hours: number) => Promise<void> | void,
) {
  const random = chanceFrom(seed + 3_000_000);
  let life: Life | undefined;
  const prepare = ({ server, clock, truth }: Simulation): void => {
    server.watchList = true;
    server.bookmarkEvery = 60;
    const shape = { pods: 8, services: 3, slowness: 5 };
    life = createLife(server, clock, truth, random, shape);
  };
  const sim = createSimulation(seed, prepare, null, keep);
  if (life === undefined) throw new Error('There is no life');
  const begun = sim.clock.now();
  for (let passed = 1; passed <= hours; passed++) {
    while (sim.clock.now() < begun + passed * hour - 2 * patience) {
      for (let steps = 1 + below(random, 5); steps > 0; steps--) life.step();
      if (random() < 0.2) upset(sim, life, random);
      if (random() < 0.1) halt(life, [oneOf(random, outputs)], random);
      await sim.pass(random() * 60);
    }
    calm(sim);
    life.recover();
    await sim.pass(patience);
    sim.forget(sim.clock.now() - patience);
    await onHour(passed);
    await sim.pass(Math.max(0, begun + passed * hour - sim.clock.now()));
  }
  await endLife(sim, life, false);
  return sim;
}

/** MiB of the heap after a forced collection. */
async function measureHeap(): Promise<number> {
  const collect = () =>
    globalThis.gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  collect();
  // What a collected object leaves behind, such as an AbortSignal, goes in a later task.
  await setTimeout(10);
  collect();
  return process.memoryUsage().heapUsed / 2 ** 20;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      hours: { type: 'string', default: '72' },
      seed: { type: 'string', default: '1' },
    },
  });
  const hours = Number(values.hours);
  const heaps: number[] = [];
  const { violations, counts, server } = await soak(hours, Number(values.seed), async (passed) => {
    const heap = await measureHeap();
    heaps.push(heap);
    if (passed % 12 === 0) console.log(`after ${passed} h: ${heap.toFixed(2)} MiB in the heap`);
  });
  const early = heaps[Math.ceil(hours / 6) - 1] ?? NaN;
  const drift = (heaps.at(-1) ?? NaN) - early;
  for (const violation of violations.slice(0, 10)) console.log(violation);
  const cpu = process.cpuUsage();
  const { opened, resolved } = counts;
  console.log(`${hours} h, objects had ${server.objects.version()} versions`);
  console.log(`${opened} findings opened, ${resolved} resolved, ${violations.length} violations`);
  console.log(`drift ${drift.toFixed(2)} MiB (at most ${mostDrift}) since ${early.toFixed(2)} MiB`);
  console.log(`${((cpu.user + cpu.system) / 1e6).toFixed(0)} s of CPU`);
  process.exitCode = violations.length === 0 && opened > 0 && drift <= mostDrift ? 0 : 1;
}

if (import.meta.main) await main();
