// Faults in a live cluster: with the controllers asleep, objects are spoilt one after the other,
// each at a Service of its own. Each must be found within the settle window and two seconds, by the
// clock of the test, and be gone within two seconds of the repair; harmless changes never. The time
// in which the auditor or the test waited for a CPU does not count: that is the machine's.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Found } from './auditor.ts';
import type { Tally } from './checks.ts';
import { report } from './checks.ts';
import type { Client } from './client.ts';
import { awaitSettled } from './client.ts';
import { addressing, createNodes, createService } from './cluster.ts';
import { crowded, inParallel } from './fleet.ts';
import { injectedFor } from './injected.ts';
import type { Injected } from './injecting.ts';
import type { Stage } from './stage.ts';
import { loudSince, textOf } from './stage.ts';

/** Seconds from the settle window until a fault is found, and from its repair until it is gone. */
const promise = 2;

/** From one fault to the next: so that not everything is to be confirmed in one moment. */
const apart = 200;

/** What became of a fault; seconds. */
interface Outcome {
  readonly injected: Injected;
  readonly foundAfter: number | null;
  readonly goneAfter: number | null;
  /** Without a CPU, until it was found, and until it was gone. */
  readonly waited: { readonly found: number; readonly gone: number };
  /** The last finding while the fault existed. */
  readonly got: readonly string[];
}

/** The open findings at a moment. */
interface Look {
  readonly at: number;
  readonly standing: readonly Found[];
}

const isSame = (a: readonly string[], b: readonly string[]): boolean => a.join() === b.join();

function own({ namespace, plan }: Injected, { standing }: Look): string[] {
  const its = standing.filter((one) => one.namespace === namespace && one.service === plan.name);
  return [...new Set(its.map(({ output, code }) => `${output} ${code}`))].sort();
}

async function play(stage: Stage, injected: Injected, look: () => Promise<Look>): Promise<Outcome> {
  const { client, settle, auditor } = stage;
  const undo = await injected.spoil(client);
  const spoiltAt = performance.now();
  const waitedBefore = auditor.waitedSeconds();
  let waitedFound = 0;
  let foundAfter: number | null = null;
  let got: readonly string[] = [];
  // The test also waits for further findings, and where there may be none.
  for (let after = 0; after < settle + promise + 1;) {
    const seen = await look();
    after = (seen.at - spoiltAt) / 1000;
    got = own(injected, seen);
    if (foundAfter !== null || got.length === 0 || !isSame(got, injected.finds)) continue;
    foundAfter = after;
    waitedFound = auditor.waitedSeconds() - waitedBefore;
  }
  await undo();
  const undoneAt = performance.now();
  const waitedUndone = auditor.waitedSeconds();
  for (;;) {
    const seen = await look();
    const after = (seen.at - undoneAt) / 1000;
    // A look that had begun before does not count.
    const isGone = after > 0 && own(injected, seen).length === 0;
    if (isGone || after > promise + 10) {
      const waited = { found: waitedFound, gone: auditor.waitedSeconds() - waitedUndone };
      return { injected, foundAfter, goneAfter: isGone ? after : null, waited, got };
    }
  }
}

function judge(tally: Tally, settle: number, outcome: Outcome): void {
  const { injected, foundAfter, goneAfter, waited, got } = outcome;
  const { plan, finds } = injected;
  const most = { found: settle + promise + waited.found, gone: promise + waited.gone };
  const wrong: string[] = [];
  if (!isSame(got, finds)) {
    wrong.push(`expected ${finds.join(', ') || 'nothing'}; found ${got.join(', ') || 'nothing'}`);
  }
  const [found, gone] = [foundAfter, goneAfter].map((after) =>
    after === null ? 'never' : `after ${after.toFixed(2)} s`,
  );
  if (finds.length > 0) {
    if (foundAfter === null || foundAfter > most.found) {
      wrong.push(`found ${found}, without a CPU for ${waited.found.toFixed(2)} s`);
    }
  }
  if (goneAfter === null || goneAfter > most.gone) {
    wrong.push(`gone ${gone}, without a CPU for ${waited.gone.toFixed(2)} s`);
  }
  const what = finds.length === 0 ? 'nothing' : `${finds.join(', ')} ${found}, gone ${gone}`;
  report(tally, `${plan.name}: ${what}`, wrong);
}

/** One request at a time answers every caller that asks for the open findings. */
function lookerOf({ auditor }: Stage): () => Promise<Look> {
  let latest: Promise<Look> | null = null;
  const look = async (): Promise<Look> => {
    await sleep(50);
    latest = null;
    const { standing } = await auditor.findings();
    return { at: performance.now(), standing };
  };
  return () => (latest ??= look());
}

/** The Services of faults that are still to be made, as the controllers want them. */
export async function createFaulty(client: Client, all: readonly Injected[]): Promise<void> {
  const addresses = addressing(2);
  await createNodes(client);
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: 'faults' } });
  await inParallel(all, 8, ({ namespace, plan }) =>
    createService(client, namespace, plan, addresses),
  );
  await awaitSettled(client);
}

/** `isCrowded`: whether more than a thousand pods are in one namespace. */
export async function checkFaults(stage: Stage, isCrowded: boolean): Promise<void> {
  const { plane, client, tally, auditor, settle } = stage;
  const all = injectedFor(plane.version, isCrowded);
  await createFaulty(client, all);
  plane.pauseControllerManager();
  const from = Date.now() / 1000;
  const look = lookerOf(stage);
  const outcomes = await Promise.all(
    all.map(async (injected, index) => {
      await sleep(index * apart);
      return play(stage, injected, look);
    }),
  );
  for (const outcome of outcomes) judge(tally, settle, outcome);
  plane.resumeControllerManager();
  // A Service with this many pods would be late with most later changes.
  for (const { namespace, plan } of all) {
    if (namespace !== crowded) continue;
    await client.call('DELETE', `/api/v1/namespaces/${namespace}/services/${plan.name}`);
  }
  await awaitSettled(client);
  const known = new Set(all.map(({ namespace, plan }) => `${namespace}/${plan.name}`));
  const others = (await loudSince(auditor, from)).filter(
    ({ namespace, service, resolvedAt }) =>
      resolvedAt === null || !known.has(`${namespace}/${service}`),
  );
  report(tally, 'faults: nothing else is found, nothing stays', others.map(textOf));
}
