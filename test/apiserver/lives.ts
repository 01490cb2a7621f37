// Random lives of a cluster that the whole auditor watches (auditing.ts), each from a seed: things
// come and go (life.ts) while streams lag, break, freeze and are withheld (chaos.ts), reads fail,
// controllers stop, and the server's history is forgotten or goes back.

import type { ServiceOutput } from '../../src/audit/service/enqueue.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import type { Simulation } from './auditing.ts';
import { createSimulation, noFault, patience, settle } from './auditing.ts';
import type { Random } from './chaos.ts';
import { below, cut, disturb, heal, oneOf, refuse } from './chaos.ts';
import type { Life } from './life.ts';
import { createLife } from './life.ts';
import type { Saved } from './objects.ts';
import { statusAnswer } from './server.ts';
import { chanceFrom } from './simulate.ts';
import { outputs } from './truth.ts';

/** Controllers stop: one, or all. */
function halt(life: Life, among: readonly ServiceOutput[], random: Random): void {
  const seconds = settle * (0.3 + 2 * random());
  for (const output of among) life.stop(output, seconds);
}

function upset(sim: Simulation, life: Life, random: Random): void {
  const { server, lags, clock } = sim;
  const chance = random();
  if (chance < 0.2) halt(life, random() < 0.4 ? outputs : [oneOf(random, outputs)], random);
  else if (chance < 0.45) {
    sim.disturbed();
    disturb(sim, random);
  } else if (chance < 0.53) {
    sim.disturbed();
    refuse(server, random, resources);
    clock.after(random() * 20, () => (server.faults.before = noFault));
  } else if (chance < 0.68) withhold(sim, life, random);
  else if (chance < 0.92) {
    sim.disturbed();
    // The auditor does not read Nodes again, so it cannot know how far behind their stream is.
    const resource = oneOf<Resource>(random, ['pods', 'services', 'endpoints', 'endpointslices']);
    lags.set(resource, random() * oneOf(random, [1, 6, 12, 60]));
    clock.after(random() * 60, () => lags.delete(resource));
  } else server.objects.compact();
}

/**
 * A resource can be neither watched nor listed for a while, in which controllers may stop; then its
 * history may be gone.
 */
function withhold(sim: Simulation, life: Life, random: Random): void {
  const { server, clock } = sim;
  const resource = oneOf(random, [...resources, 'endpoints', 'endpointslices'] as const);
  sim.disturbed();
  server.faults.before = (asked) =>
    asked.resource === resource && !asked.request.path.includes('/namespaces/')
      ? statusAnswer(503, 'ServiceUnavailable')
      : null;
  for (const watch of [...server.watches]) if (watch.resource === resource) watch.stream.end();
  const isForgotten = random() < 0.7;
  const seconds = random() * 2 * settle;
  if (random() < 0.6)
    clock.after(seconds * (0.4 + 0.6 * random()), () => halt(life, outputs, random));
  clock.after(seconds, () => {
    server.faults.before = noFault;
    if (isForgotten) server.objects.compact();
  });
}

function calm(sim: Simulation): void {
  heal(sim.server);
  sim.server.faults.before = noFault;
  sim.readable = true;
  sim.lags.clear();
  sim.disturbed();
}

/**
 * Nothing is written until all must have noticed: versions that pass the known ones before that
 * look like versions that were lost (docs/decisions/0007).
 */
async function restore(sim: Simulation, life: Life, saved: Saved): Promise<void> {
  calm(sim);
  for (const output of outputs) life.stop(output, 3 * patience);
  await sim.pass(patience); // what was sent is read, also on streams that lag
  sim.server.objects.restore(saved);
  sim.restored();
  sim.server.reset();
  await sim.pass(patience);
  life.recover();
  life.restored();
}

/** Much happens in little time. */
async function hurry(sim: Simulation, life: Life, random: Random): Promise<void> {
  for (let steps = 1 + below(random, 4); steps > 0; steps--) {
    life.step();
    await sim.pass(random() * oneOf(random, [1, settle / 2]));
  }
}

/** One life, from a seed; what was not as it must be. */
export async function auditSeed(seed: number): Promise<Simulation> {
  const random = chanceFrom(seed + 1_000_000);
  let life: Life | undefined;
  const sim = createSimulation(seed, (made) => {
    const { server, clock, truth } = made;
    made.pings = random() < 0.7;
    // What controllers write comes late all the time.
    const late = oneOf<Resource>(random, ['endpoints', 'endpointslices']);
    if (random() < 0.3) made.lags.set(late, 1 + random() * 0.8 * settle);
    if (random() < 0.25) {
      made.readable = false;
      clock.after(random() * 12 * settle, () => (made.readable = true));
    }
    server.watchList = random() < 0.5;
    server.bookmarkEvery = oneOf(random, [1, 5, 60, 100_000]);
    server.faults.pageSize = oneOf(random, [1, 2, 500]);
    server.faults.before = noFault;
    if (random() < 0.1) server.faults.chunks = (bytes) => cut(random, bytes);
    const isSmall = random() < 0.5;
    life = createLife(server, clock, truth, random, {
      pods: isSmall ? 2 : 8,
      services: isSmall ? 1 : 3,
      slowness: oneOf(random, [1, 5, settle * 0.8]),
    });
  });
  if (life === undefined) throw new Error('There is no life');
  const isCalm = random() < 0.1;
  const restores = random() < 0.08;
  let saved: Saved | null = null;
  for (let steps = 8 + below(random, 18); steps > 0; steps--) {
    if (isCalm || random() < 0.75) life.step();
    else {
      if (random() < 0.4) await hurry(sim, life, random);
      upset(sim, life, random);
      if (random() < 0.4) {
        await hurry(sim, life, random);
        halt(life, random() < 0.6 ? outputs : [oneOf(random, outputs)], random);
      }
    }
    if (restores && random() < 0.1) {
      if (saved === null) saved = sim.server.objects.save();
      else if (saved.version < sim.server.objects.version()) {
        await restore(sim, life, saved);
        saved = null;
      }
    }
    if (random() < 0.7) await sim.pass(random() * oneOf(random, [0, 1, 5, 2 * settle]));
  }
  calm(sim);
  life.recover();
  await sim.pass(patience);
  life.step();
  await sim.pass(2 * settle);
  await sim.end();
  return sim;
}
