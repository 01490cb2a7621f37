// The lag of the controllers, as the auditor measures it, against the clock of the test: they sleep
// for a while, a pod turns not ready meanwhile, and they are woken. Who sleeps for longer than the
// settle window is found, which is true, and the finding ends when they are awake.

import { setTimeout as sleep } from 'node:timers/promises';

import { report, secondsSince } from './checks.ts';
import type { Thing } from './client.ts';
import { awaitSettled } from './client.ts';
import type { Pod } from './cluster.ts';
import { addressing, createService, reportState } from './cluster.ts';
import type { Stage } from './stage.ts';
import { awaitSoon, loudSince, textOf } from './stage.ts';

const namespace = 'pauses';
const outputs = ['endpoints', 'endpointslices'] as const;
type Output = (typeof outputs)[number];

/** What the lag may be wrong by, and a finding late. */
const tolerance = 0.5;

async function createCanary({ client }: Stage, name: string): Promise<Pod> {
  const exists = await client.call('GET', '/api/v1/namespaces');
  const { items } = exists as { items: Thing[] };
  if (!items.some(({ metadata }) => metadata.name === namespace)) {
    await client.call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  }
  const ports = [{ port: 80 }];
  const places = addressing(3);
  let ips: string[] = [];
  const plan = { name, spec: { ports }, pods: { count: 1 } };
  await createService(client, namespace, plan, (families) => (ips = places(families)));
  const node = { name: 'node-a1', zone: 'zone-a', number: 1 };
  const pod = { namespace, name: `${name}-0`, node, ips, labels: { app: name } };
  return { ...pod, state: 'ready', spec: {}, ports: [{ containerPort: 8080 }] };
}

async function isFollowed({ client }: Stage, output: Output, name: string): Promise<boolean> {
  if (output === 'endpoints') {
    const path = `/api/v1/namespaces/${namespace}/endpoints/${name}`;
    const { subsets } = (await client.call('GET', path)) as { subsets: object[] };
    return subsets.every((subset) => !('addresses' in subset));
  }
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${name}`;
  const { items } = (await client.call('GET', path + query)) as {
    items: { endpoints: { conditions: { ready: boolean } }[] }[];
  };
  return items.every(({ endpoints }) => endpoints.every(({ conditions }) => !conditions.ready));
}

interface Sample {
  readonly count: number;
  readonly sum: number;
}

const measured = async ({ auditor }: Stage, output: Output): Promise<Sample> => ({
  count: await auditor.metric('convergence_lag_seconds_count', { output }),
  sum: await auditor.metric('convergence_lag_seconds_sum', { output }),
});

/** Pauses the controllers for so long while a pod is no longer ready. */
export async function measureLag(stage: Stage, seconds: number): Promise<void> {
  const { plane, client, auditor, settle, tally } = stage;
  const name = `paused-${seconds}`;
  const pod = await createCanary(stage, name);
  await awaitSettled(client);
  const from = Date.now() / 1000;
  const before = new Map<Output, Sample>();
  for (const output of outputs) before.set(output, await measured(stage, output));
  plane.pauseControllerManager();
  await reportState(client, pod, 'unready');
  const begun = performance.now();
  await sleep(seconds * 1000);
  plane.resumeControllerManager();
  const truth = await Promise.all(
    outputs.map(async (output) => {
      await awaitSoon(() => isFollowed(stage, output, name), 60);
      return secondsSince(begun);
    }),
  );
  await sleep(1000);
  const wrong: string[] = [];
  const figures: string[] = [];
  for (const [index, output] of outputs.entries()) {
    const now = await measured(stage, output);
    const was = before.get(output) ?? now;
    const lag = (now.sum - was.sum) / (now.count - was.count);
    const want = truth[index] ?? 0;
    figures.push(`${output} ${lag.toFixed(2)} s (${want.toFixed(2)} s)`);
    if (!(Math.abs(lag - want) <= tolerance)) wrong.push(`${output}: ${lag} s, not ${want} s`);
  }
  const found = await loudSince(auditor, from);
  wrong.push(...wrongAmong(stage, found, name, seconds > settle + 2, truth));
  report(tally, `lag after ${seconds} s of sleep: ${figures.join(', ')}`, wrong);
}

/** What is wrong with the findings: none but those of the Service, whose times are the truth's. */
function wrongAmong(
  { settle }: Stage,
  found: Awaited<ReturnType<typeof loudSince>>,
  name: string,
  isLong: boolean,
  truth: readonly number[],
): string[] {
  const wrong = found.filter((one) => one.service !== name || one.resolvedAt === null).map(textOf);
  for (const [index, output] of outputs.entries()) {
    const own = found.filter((one) => one.service === name && one.output === output);
    const want = truth[index] ?? 0;
    if (isLong && own.length === 0) wrong.push(`${output}: not found`);
    if (!isLong && want < settle) wrong.push(...own.map(textOf));
    for (const { since, resolvedAt } of own) {
      const lasted = (resolvedAt ?? 0) - since;
      if (Math.abs(lasted - want) > tolerance) wrong.push(`${output}: a finding of ${lasted} s`);
    }
  }
  return wrong;
}
