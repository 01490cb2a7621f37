// Lags on a control plane of their own, against the clock of the test: what the controllers take
// when they sleep, and what upstream cannot measure.
//
//   sleep     (pause.ts) the controllers sleep for 5, 20 and 40 s
//   removal   pods are deleted, gracefully and at once, which clears upstream's trigger time
//   restart   the controllers are restarted while a pod changes; upstream's trigger time is then as
//             old as the Service, and must not be measured

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { createAccount } from './account.ts';
import type { Auditor } from './auditor.ts';
import { startAuditor } from './auditor.ts';
import type { Tally } from './checks.ts';
import { report, say, secondsSince } from './checks.ts';
import { awaitSettled, clientOf } from './client.ts';
import { addressing, createNodes, deletePod, reportState } from './cluster.ts';
import type { ControlPlane } from './controlplane.ts';
import type { Output } from './pause.ts';
import { createCanary, isFollowed, measureLags, outputs, pausing } from './pause.ts';
import { startProxy } from './proxy.ts';
import type { Stage } from './stage.ts';
import { awaitSoon } from './stage.ts';

/** What a lag may be wrong by; a pod's own time is whole seconds, cut. */
const tolerance = 0.5;
const resolution = 1;

/** Seconds of the settle window. */
const settle = 5;

type Figures = Readonly<Record<string, number>>;

/** Counts and sums of lag, by family and output. */
async function figures({ auditor }: Stage): Promise<Figures> {
  const found: Record<string, number> = {};
  for (const output of outputs) {
    for (const family of ['convergence_lag_seconds', 'removal_lag_seconds']) {
      for (const part of ['count', 'sum']) {
        const key = `${family}_${part}`;
        found[`${key} ${output}`] = await auditor.metric(key, { output });
      }
    }
    const resource = output;
    found[`trigger ${output}`] = await auditor.metric('trigger_lag_seconds_sum', { resource });
    const quality = 'restarted';
    found[`restarted ${output}`] = await auditor.metric('trigger_times_total', {
      resource,
      quality,
    });
  }
  return found;
}

/** What a figure rose by. */
const rise = (was: Figures, now: Figures, key: string): number => (now[key] ?? 0) - (was[key] ?? 0);

/** Seconds until both outputs list no ready endpoint of a Service. */
async function followed(stage: Stage, name: string): Promise<Readonly<Record<Output, number>>> {
  const begun = performance.now();
  const [endpoints = 0, endpointslices = 0] = await Promise.all(
    outputs.map(async (output) => {
      await awaitSoon(() => isFollowed(stage, output, name), 60);
      return secondsSince(begun);
    }),
  );
  return { endpoints, endpointslices };
}

/** Whether a slice of this Service still has upstream's trigger time. */
async function isStamped({ client }: Stage, name: string): Promise<boolean> {
  const path = `/apis/discovery.k8s.io/v1/namespaces/${pausing}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${name}`;
  const { items } = (await client.call('GET', path + query)) as {
    items: { metadata: { annotations?: Readonly<Record<string, string>> } }[];
  };
  const key = 'endpoints.kubernetes.io/last-change-trigger-time';
  return items.some(({ metadata: { annotations } }) => annotations?.[key] !== undefined);
}

/** Pods are deleted while the controllers sleep for three seconds. */
async function checkRemovals(stage: Stage): Promise<void> {
  const { plane, client, tally } = stage;
  const places = addressing(4);
  for (const now of [false, true]) {
    const name = now ? 'deleted-at-once' : 'deleted-gracefully';
    const pod = await createCanary(stage, name, places);
    await awaitSettled(client);
    const was = await figures(stage);
    plane.pauseControllerManager();
    const begun = performance.now();
    await deletePod(client, pod, now);
    await sleep(3000);
    plane.resumeControllerManager();
    const slept = secondsSince(begun);
    const after = await followed(stage, name);
    await sleep(1000);
    const rose = await figures(stage);
    const wrong: string[] = [];
    for (const output of outputs) {
      const want = slept + after[output];
      const count = rise(was, rose, `removal_lag_seconds_count ${output}`);
      const seconds = rise(was, rose, `removal_lag_seconds_sum ${output}`);
      if (count !== 1) wrong.push(`${output}: ${count} samples, not 1`);
      if (seconds < want - tolerance || seconds > want + tolerance + resolution) {
        wrong.push(`${output}: ${seconds} s, not ${want} s`);
      }
    }
    if (await isStamped(stage, name)) wrong.push('the trigger time was not cleared');
    report(tally, `removal lag, ${name}: measured, though the trigger time is cleared`, wrong);
  }
}

/** Seconds after which a trigger time that is the creation of the Service is taken for old. */
const old = 60;

async function checkRestart(stage: Stage): Promise<void> {
  const { plane, client, tally } = stage;
  const name = 'restarted';
  const pod = await createCanary(stage, name, addressing(5));
  await sleep((old + 5) * 1000);
  const was = await figures(stage);
  // A process that has not seen the Service before writes what changed while none was there.
  await plane.killControllerManager();
  const begun = performance.now();
  await reportState(client, pod, 'unready');
  await plane.restartControllerManager();
  const waited = secondsSince(begun);
  const after = await followed(stage, name);
  await sleep(1000);
  const now = await figures(stage);
  const wrong: string[] = [];
  for (const output of outputs) {
    if (rise(was, now, `restarted ${output}`) < 1) wrong.push(`${output}: none is restarted`);
    const trigger = rise(was, now, `trigger ${output}`);
    if (trigger > old) wrong.push(`${output}: trigger lag rose by ${trigger} s`);
    const want = waited + after[output];
    const seconds = rise(was, now, `convergence_lag_seconds_sum ${output}`);
    // Awaiting the restart may have hidden when the output was written; no more than that.
    if (seconds > want + tolerance) wrong.push(`${output}: late by ${seconds} s, not ${want} s`);
    if (seconds === 0) wrong.push(`${output}: no convergence lag`);
  }
  report(tally, 'restart of the controllers: no trigger time as old as its Service', wrong);
}

export async function testLags(plane: ControlPlane, tally: Tally): Promise<void> {
  const folder = join(plane.directory, 'auditor');
  mkdirSync(folder);
  const client = clientOf(plane);
  const proxy = await startProxy(plane.server);
  let auditor: Auditor | null = null;
  try {
    // The controllers must receive the nodes before the pods.
    await createNodes(client);
    await awaitSettled(client);
    const account = await createAccount(plane, client, folder, proxy.server);
    auditor = await startAuditor({ kubeconfig: account.kubeconfig, folder, settle });
    const running = auditor;
    const stage: Stage = { plane, client, proxy, account, auditor, settle, tally };
    const ready = async () => (await running.notReady()) === null;
    report(tally, 'ready', (await awaitSoon(ready, 30)) === null ? [running.tail()] : []);
    await measureLags(stage, [5, 20, 40]);
    await checkRemovals(stage);
    await checkRestart(stage);
  } catch (error) {
    say(auditor?.tail() ?? '');
    throw error;
  } finally {
    await auditor?.stop();
    proxy.close();
    client.close();
  }
}
