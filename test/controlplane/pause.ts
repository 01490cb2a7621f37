// The lag of the controllers, as the auditor measures it, against the clock of the test: they sleep
// for a while, a pod turns not ready meanwhile, and they are woken. Who sleeps for longer than the
// settle window is found, which is true, and the finding ends when they are awake.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Found } from './auditor.ts';
import { report, secondsSince } from './checks.ts';
import { awaitSettled } from './client.ts';
import type { Pod } from './cluster.ts';
import { addressing, createService, reportState } from './cluster.ts';
import type { Stage } from './stage.ts';
import { awaitSoon, loudSince, textOf } from './stage.ts';

/** The namespace of what is looked at while the controllers sleep. */
export const pausing = 'pauses';
const namespace = pausing;
export const outputs = ['endpoints', 'endpointslices'] as const;
export type Output = (typeof outputs)[number];

/** What the lag may be wrong by, and a finding late. */
const tolerance = 0.5;

/** A Service with one ready pod, in the namespace that measureLags makes. */
export async function createCanary(
  { client }: Stage,
  name: string,
  places: ReturnType<typeof addressing>,
): Promise<Pod> {
  let ips: string[] = [];
  const plan = { name, spec: { ports: [{ port: 80 }] }, pods: { count: 1 } };
  await createService(client, namespace, plan, (families) => (ips = places(families)));
  const node = { name: 'node-a1', zone: 'zone-a', number: 1 };
  const pod = { namespace, name: `${name}-0`, node, ips, labels: { app: name } };
  return { ...pod, state: 'ready', spec: {}, ports: [{ containerPort: 8080 }] };
}

/** Whether an output lists no ready endpoint of a Service. */
export async function isFollowed(
  { client }: Stage,
  output: Output,
  name: string,
): Promise<boolean> {
  if (output === 'endpoints') {
    const path = `/api/v1/namespaces/${namespace}/endpoints/${name}`;
    const { subsets } = (await client.call('GET', path)) as { subsets?: object[] };
    return (subsets ?? []).every((subset) => !('addresses' in subset));
  }
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${name}`;
  const { items } = (await client.call('GET', path + query)) as {
    items: { endpoints: { conditions: { ready: boolean } }[] | null }[];
  };
  return items.every(({ endpoints }) =>
    (endpoints ?? []).every(({ conditions }) => !conditions.ready),
  );
}

interface Sample {
  readonly count: number;
  readonly sum: number;
}

const measured = async ({ auditor }: Stage, output: Output): Promise<Sample> => ({
  count: await auditor.metric('convergence_lag_seconds_count', { output }),
  sum: await auditor.metric('convergence_lag_seconds_sum', { output }),
});

/** What the clock of the test says of one Service: seconds from the change to each writing. */
interface Truth {
  readonly name: string;
  readonly lag: Readonly<Record<Output, number>>;
}

/**
 * Has the controllers sleep for the longest of these times; for each, a pod turns not ready that
 * many seconds before they are woken.
 */
export async function measureLags(stage: Stage, pauses: readonly number[]): Promise<void> {
  const { plane, client, auditor } = stage;
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  const places = addressing(3);
  const longest = Math.max(...pauses);
  const canaries: { readonly seconds: number; readonly name: string; readonly pod: Pod }[] = [];
  for (const seconds of pauses) {
    const name = `paused-${seconds}`;
    canaries.push({ seconds, name, pod: await createCanary(stage, name, places) });
  }
  await awaitSettled(client);
  const from = Date.now() / 1000;
  const before = { endpoints: await measured(stage, 'endpoints') };
  const was = { ...before, endpointslices: await measured(stage, 'endpointslices') };
  plane.pauseControllerManager();
  const begun = await Promise.all(
    canaries.map(async ({ seconds, pod }) => {
      await sleep((longest - seconds) * 1000);
      await reportState(client, pod, 'unready');
      return performance.now();
    }),
  );
  const flippedAt = begun[pauses.indexOf(longest)] ?? 0;
  await sleep(Math.max(0, longest * 1000 - (performance.now() - flippedAt)));
  plane.resumeControllerManager();
  const truths = await Promise.all(
    canaries.map(async ({ name }, index): Promise<Truth> => {
      const followed = async (output: Output): Promise<number> => {
        await awaitSoon(() => isFollowed(stage, output, name), 60);
        return secondsSince(begun[index] ?? 0);
      };
      const [endpoints, endpointslices] = await Promise.all(outputs.map(followed));
      return { name, lag: { endpoints: endpoints ?? 0, endpointslices: endpointslices ?? 0 } };
    }),
  );
  await sleep(1000);
  await reportSums(stage, truths, was);
  reportFindings(stage, truths, await loudSince(auditor, from));
}

/** The histogram has one sample more for every Service, which add up to the truth. */
async function reportSums(
  stage: Stage,
  truths: readonly Truth[],
  was: Readonly<Record<Output, Sample>>,
): Promise<void> {
  const lags = truths.map(({ lag }) => lag);
  for (const output of outputs) {
    const now = await measured(stage, output);
    const count = now.count - was[output].count;
    const sum = now.sum - was[output].sum;
    const want = lags.reduce((all, lag) => all + lag[output], 0);
    const wrong: string[] = [];
    if (count !== lags.length) wrong.push(`${count} samples, not ${lags.length}`);
    if (Math.abs(sum - want) > tolerance) wrong.push(`${sum} s, not ${want} s`);
    const figures = lags.map((lag) => `${lag[output].toFixed(2)} s`).join(' and ');
    const title = `lag of ${output} after ${figures}: measured ${sum.toFixed(2)} s in all`;
    report(stage.tally, title, wrong);
  }
}

/** None but those of the Services that the controllers are late with, and their times. */
function reportFindings({ settle, tally }: Stage, truths: readonly Truth[], found: Found[]): void {
  const names = truths.map(({ name }) => name);
  const wrong = found.filter((one) => !names.includes(one.service)).map(textOf);
  for (const { name, lag } of truths) {
    for (const output of outputs) {
      const own = found.filter((one) => one.service === name && one.output === output);
      if (own.length === 0 && lag[output] > settle + 2) wrong.push(`${name} ${output}: not found`);
      if (lag[output] < settle - tolerance) wrong.push(...own.map(textOf));
      for (const { since, resolvedAt } of own) {
        const lasted = (resolvedAt ?? 0) - since;
        const isTrue = Math.abs(lasted - lag[output]) <= tolerance;
        if (!isTrue) wrong.push(`${name} ${output}: found for ${lasted} s, not ${lag[output]} s`);
      }
    }
  }
  report(tally, 'lag: who sleeps for too long is found, with the right times', wrong);
}
