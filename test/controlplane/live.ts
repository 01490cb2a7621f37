// The end-to-end test of the live auditor: it watches a real control plane with the permissions it
// asks for and no other, while the cluster changes, is spoilt, sleeps and is disturbed. All that is
// looked at is what the program serves.
//
//   churn        hundreds of Services and thousands of pods change all the time: no finding
//   faults       with the controllers asleep, objects are spoilt, a class each: found within the
//                settle window and two seconds, gone within two seconds of the repair
//   lag          the controllers sleep for a while: the lag is measured within half a second
//   disturbances (disturb.ts) the API server, etcd, connections and tokens go: no finding

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { createAccount } from './account.ts';
import type { Auditor } from './auditor.ts';
import { startAuditor } from './auditor.ts';
import type { Tally } from './checks.ts';
import { report, say, secondsSince } from './checks.ts';
import { startChurn } from './churn.ts';
import type { Client } from './client.ts';
import { awaitSettled, clientOf } from './client.ts';
import type { ControlPlane } from './controlplane.ts';
import { disturb } from './disturb.ts';
import type { Fleet, Size } from './fleet.ts';
import { createMembersOf, createNodesOf } from './fleet.ts';
import { measureLags } from './pause.ts';
import { startProxy } from './proxy.ts';
import { checkFaults } from './spoil.ts';
import type { Stage } from './stage.ts';
import { awaitSoon, loudSince, textOf } from './stage.ts';

export interface LiveOptions {
  /** Seconds. */
  readonly churn: number;
  /** A smaller cluster, shorter pauses. */
  readonly short: boolean;
}

/** So that the controllers can be as quick as their work allows. */
export const liveFlags = {
  controllerManagerFlags: [
    '--kube-api-qps=5000',
    '--kube-api-burst=10000',
    '--concurrent-endpoint-syncs=20',
    '--concurrent-service-endpoint-syncs=20',
    '--mirroring-concurrent-service-endpoint-syncs=20',
  ],
};

/** Changes a second: what is aimed at, and the least that counts. */
const rate = { aim: 28, least: 20 };

/**
 * Seconds of the settle window, and in which whatever is wrong would be found after it. A
 * controller whose cache is behind tries again after 1, 2 and 4 s, and later where many do; it is
 * not to be found for that.
 */
const settle = 10;
const promise = 2;

export const sizes = {
  whole: { services: 300, pods: 3000, nodes: 60 },
  short: { services: 72, pods: 600, nodes: 20 },
} satisfies Record<string, Size>;

async function checkChurn(stage: Stage, fleet: Fleet, seconds: number): Promise<void> {
  const { client, auditor, tally } = stage;
  const from = Date.now() / 1000;
  const begun = performance.now();
  const cpuBefore = auditor.cpuSeconds();
  const samplesBefore = await auditor.metric('convergence_lag_seconds_count');
  const churn = startChurn({ client, fleet, rate: rate.aim, seed: 1 });
  while (secondsSince(begun) < seconds && churn.error() === null) await sleep(100);
  const lasted = secondsSince(begun);
  const cpu = (auditor.cpuSeconds() - cpuBefore) / lasted;
  await churn.stop();
  await awaitSettled(client);
  await sleep((settle + promise) * 1000);
  const changes = [...churn.changes.values()].reduce((sum, count) => sum + count, 0);
  const perSecond = changes / secondsSince(begun);
  const samples = (await auditor.metric('convergence_lag_seconds_count')) - samplesBefore;
  const wrong = (await loudSince(auditor, from)).map(textOf);
  const error = churn.error();
  if (error !== null) wrong.push(String(error.stack));
  if (changes < rate.least * lasted) wrong.push(`only ${perSecond.toFixed(1)} changes a second`);
  if (samples < changes / 10) wrong.push(`only ${samples} samples of lag`);
  const unknown = await auditor.metric('outputs', { verdict: 'unknown' });
  if (unknown !== 0) wrong.push(`${unknown} outputs unknown`);
  report(tally, `churn: ${changes} changes in ${lasted.toFixed(0)} s, no finding`, wrong);
  const kinds = [...churn.changes].map(([name, count]) => `${name} ${count}`).join(', ');
  say(`     ${kinds}`);
  const mebibytes = (auditor.residentBytes() / 2 ** 20).toFixed(0);
  say(`     ${samples} samples of lag; ${(cpu * 100).toFixed(0)} % of a core, ${mebibytes} MiB`);
}

/** Where the auditor's kubeconfig and log are; both go with the control plane. */
function folderOf({ directory }: ControlPlane): string {
  const folder = join(directory, 'auditor');
  mkdirSync(folder);
  return folder;
}

/**
 * The controllers sleep meanwhile, so that they do not write for every single pod. But they know
 * the Nodes by then: a pod that they receive before its Node they write without a zone, and leave
 * it so, where the Service publishes what is not ready (reconcileByAddressType of
 * k8s.io/endpointslice@v0.36.3 reconciler.go), which is found.
 */
export async function populate(plane: ControlPlane, client: Client, size: Size): Promise<Fleet> {
  const begun = performance.now();
  const fleet = await createNodesOf(client, size);
  await awaitSettled(client);
  plane.pauseControllerManager();
  await createMembersOf(client, fleet, size);
  plane.resumeControllerManager();
  await awaitSettled(client);
  const took = secondsSince(begun).toFixed(0);
  say(`     ${size.services} Services, ${size.pods} pods, ${size.nodes} nodes after ${took} s`);
  return fleet;
}

async function checkAll(stage: Stage, fleet: Fleet, options: LiveOptions): Promise<void> {
  const { auditor, tally, plane } = stage;
  await checkChurn(stage, fleet, options.churn);
  await checkFaults(stage, !options.short);
  const long = options.churn >= 300;
  await measureLags(stage, options.short ? [5] : [5, 20, 40]);
  if (!options.short) await disturb(stage, fleet, long);
  const wrong = auditor.isRunning() ? [] : [auditor.tail()];
  report(tally, `${plane.version}: the auditor still runs`, wrong);
}

export async function testLive(
  plane: ControlPlane,
  options: LiveOptions,
  tally: Tally,
): Promise<void> {
  const folder = folderOf(plane);
  const client = clientOf(plane);
  const proxy = await startProxy(plane.server);
  let auditor: Auditor | null = null;
  try {
    const fleet = await populate(plane, client, options.short ? sizes.short : sizes.whole);
    const account = await createAccount(plane, client, folder, proxy.server);
    auditor = await startAuditor({ kubeconfig: account.kubeconfig, folder, settle });
    const running = auditor;
    const stage: Stage = { plane, client, proxy, account, auditor, settle, tally };
    const ready = async () => (await running.notReady()) === null;
    report(tally, 'ready', (await awaitSoon(ready, 30)) === null ? [running.tail()] : []);
    await checkAll(stage, fleet, options);
  } catch (error) {
    say(auditor?.tail() ?? '');
    throw error;
  } finally {
    await auditor?.stop();
    proxy.close();
    client.close();
  }
}
