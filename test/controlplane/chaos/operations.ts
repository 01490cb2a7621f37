// What users, kubelets and cloud providers do to the cluster of the chaos test, one Service at a
// time: the changes of churn.ts, and those that are rarer or leave the controllers a trap. Each
// operation takes its choices from a generator of its own, so that a seed repeats it whatever the
// others do.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Act, ChurnState } from '../churn.ts';
import {
  acts,
  below,
  endPod,
  ifThere,
  oneOf,
  randomBy,
  recreate,
  startPod,
  writeByHand,
} from '../churn.ts';
import type { Fleet, Member, Pod } from '../cluster.ts';
import { bindPod, deletePod, endpointsPath, newPod, reportState, servicePath } from '../cluster.ts';
import type { Client } from '../controlplane.ts';

const slicesOf = ({ namespace }: Member): string =>
  `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

const podPath = ({ namespace, name }: Pod): string =>
  `/api/v1/namespaces/${namespace}/pods/${name}`;

/** Waits for a number of seconds, or until the test ends. */
export async function rest({ end }: ChurnState, seconds: number): Promise<void> {
  await sleep(seconds * 1000, undefined, { signal: end }).catch(() => undefined);
}

const restUpTo = (state: ChurnState, seconds: number): Promise<void> =>
  rest(state, state.random() * seconds);

/** Its selector goes for a while, and what the controllers wrote stays. */
async function unselect(state: ChurnState, member: Member): Promise<void> {
  const { call } = state.client;
  await call('PATCH', servicePath(member), { spec: { selector: null } });
  await restUpTo(state, 20);
  await call('PATCH', servicePath(member), { spec: { selector: { app: member.name } } });
}

/** A pod is labelled for another Service of its namespace, and comes back. */
async function lend(state: ChurnState, member: Member): Promise<void> {
  const others = state.fleet.members.filter(
    (other) => other !== member && other.namespace === member.namespace && !other.selectorless,
  );
  const other = others[below(state, others.length)];
  const pod = member.pods[0];
  if (pod === undefined || other === undefined) return;
  for (const app of [other.name, member.name]) {
    const change = { metadata: { labels: { app } } };
    await ifThere(state.client.call('PATCH', podPath(pod), change));
    await restUpTo(state, 10);
  }
}

/**
 * A pod dies and comes back under its name and address, as of a StatefulSet with fixed addresses.
 */
async function rebirth(state: ChurnState, member: Member): Promise<void> {
  const pod = member.pods[0];
  if (pod === undefined) return;
  const { client } = state;
  await ifThere(deletePod(client, pod, true));
  if (state.random() < 0.5) await restUpTo(state, 3);
  await ifThere(bindPod(client, pod));
  await ifThere(reportState(client, pod, 'unready'));
  await ifThere(reportState(client, pod, 'ready'));
}

/** A pod gets the address of one that has just gone. */
async function inherit(state: ChurnState, member: Member): Promise<void> {
  const old = member.pods[0];
  if (old === undefined) return;
  await endPod(state, member, old);
  const pod = { ...newPod(state.fleet, member, old.node), ips: old.ips };
  await ifThere(bindPod(state.client, pod));
  await ifThere(reportState(state.client, pod, 'ready'));
  member.pods.push(pod);
}

/** A new pod stays not ready for long, turns ready, not ready, and ready again. */
async function startSlowly(state: ChurnState, member: Member): Promise<void> {
  await startPod(state, member);
  const pod = member.pods.at(-1);
  if (pod === undefined) return;
  for (const next of ['unready', 'ready', 'unready', 'ready'] as const) {
    await ifThere(reportState(state.client, pod, next));
    await restUpTo(state, 8);
  }
}

async function changePolicy(state: ChurnState, member: Member): Promise<void> {
  const change = oneOf<object>(state, [
    { internalTrafficPolicy: 'Local' },
    { internalTrafficPolicy: 'Cluster' },
    { sessionAffinity: 'ClientIP' },
    { sessionAffinity: 'None' },
    { trafficDistribution: 'PreferClose' },
    { trafficDistribution: 'PreferSameNode' },
    { trafficDistribution: null },
  ]);
  await state.client.call('PATCH', servicePath(member), { spec: change });
}

/** All slices of a Service are deleted by hand. */
async function deleteSlices(state: ChurnState, member: Member): Promise<void> {
  const selector = `labelSelector=kubernetes.io/service-name=${member.name}`;
  await ifThere(state.client.call('DELETE', `${slicesOf(member)}?${selector}`));
}

async function deleteEndpoints(state: ChurnState, member: Member): Promise<void> {
  await ifThere(state.client.call('DELETE', endpointsPath(member)));
}

/** Operations on Services with a selector, each as often as it is listed here. */
const rare: Readonly<Record<string, readonly [Act, number]>> = {
  unselect: [unselect, 1],
  lend: [lend, 1],
  rebirth: [rebirth, 1],
  inherit: [inherit, 1],
  'start slowly': [startSlowly, 2],
  'change policy': [changePolicy, 2],
  'delete slices': [deleteSlices, 1],
  'delete Endpoints': [deleteEndpoints, 1],
};

type Named = readonly [name: string, act: Act];

const weighted = Object.entries({ ...acts, ...rare }).flatMap(([name, [act, weight]]) =>
  Array.from({ length: weight }, (): Named => [name, act]),
) as [Named, ...Named[]];

const byHand: Named = ['write by hand', writeByHand];
const again: Named = ['recreate', recreate];

/** The operation of this number: what is done, and to which Service. */
function operationAt(state: ChurnState): readonly [Named, Member] {
  const { members } = state.fleet;
  const member = members[below(state, members.length)];
  if (member === undefined) throw new Error('A fleet needs Services');
  if (!member.selectorless) return [oneOf(state, weighted), member];
  return [state.random() < 0.9 ? byHand : again, member];
}

interface OperationsOptions {
  /** Waits for its turn, counts, and calls. */
  readonly counting: (name: string) => Client;
  readonly fleet: Fleet;
  readonly seed: number;
  readonly end: AbortSignal;
}

/** Operations at one time. */
const workers = 8;

/** Runs operations until the end. Those on a Service that is busy are left out. */
export async function runOperations(options: OperationsOptions): Promise<void> {
  const { counting, fleet, seed, end } = options;
  let number = 0;
  const work = async (): Promise<void> => {
    while (!end.aborted) {
      const random = randomBy(seed * 1_000_003 + number++);
      const state: ChurnState = { client: counting(''), fleet, random, end };
      const [[name, act], member] = operationAt(state);
      if (member.busy) {
        await sleep(1);
        continue;
      }
      member.busy = true;
      try {
        await act({ ...state, client: counting(name) }, member);
      } finally {
        member.busy = false;
      }
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
}
