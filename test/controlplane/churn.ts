// Mixed changes of a fleet at a steady rate, as users, kubelets and cloud providers make them:
// rolling updates, scaling, pods that turn not ready and ready again, pods that are relabelled or
// fail, nodes that go, edits of Services, and Endpoints written by hand. Only the
// controllers write their outputs, so there may be no finding while they work.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Client, Method } from './client.ts';
import type { Node, Pod } from './cluster.ts';
import { bindPod, deletePod, reportState } from './cluster.ts';
import type { Fleet, Member } from './fleet.ts';
import {
  above,
  addNode,
  endpointsPath,
  handWritten,
  inParallel,
  newPod,
  servicePath,
} from './fleet.ts';

export interface Churn {
  /** Requests that changed something, by what was done. */
  readonly changes: ReadonlyMap<string, number>;
  /** Why it ended before its time; null: it did not. */
  readonly error: () => Error | null;
  /** Ends when all that was begun is done. */
  readonly stop: () => Promise<void>;
}

export interface ChurnOptions {
  readonly client: Client;
  readonly fleet: Fleet;
  /** Changes a second. */
  readonly rate: number;
  readonly seed: number;
}

interface State {
  /** Waits for its turn, counts, and calls. */
  readonly client: Client;
  readonly fleet: Fleet;
  /** 0 up to below 1. */
  readonly random: () => number;
  readonly end: AbortSignal;
}

/** A generator of numbers that a seed repeats (mulberry32). */
function randomBy(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

const below = ({ random }: State, count: number): number => Math.floor(random() * count);

function oneOf<T>(state: State, list: readonly [T, ...T[]]): T {
  return list[below(state, list.length)] ?? list[0];
}

function anyNode(state: State): Node {
  const { nodes } = state.fleet;
  const node = nodes[below(state, nodes.length)];
  if (node === undefined) throw new Error('No node is left');
  return node;
}

/** A pod that a node deletion has taken meanwhile cannot be changed any more. */
async function ifThere(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!/: (404|409) /.test(String(error))) throw error;
  }
}

async function startPod(state: State, member: Member): Promise<void> {
  const { client, fleet } = state;
  const pod = newPod(fleet, member, anyNode(state));
  await bindPod(client, pod);
  member.pods.push(pod);
  await ifThere(reportState(client, pod, 'unready'));
  await ifThere(reportState(client, pod, 'ready'));
}

async function endPod(state: State, member: Member, pod: Pod | undefined): Promise<void> {
  if (pod === undefined) return;
  const { client } = state;
  member.pods.splice(member.pods.indexOf(pod), 1);
  await ifThere(deletePod(client, pod, false));
  if (state.random() < 0.5) await ifThere(reportState(client, pod, 'unready'));
  await ifThere(deletePod(client, pod, true));
}

async function roll(state: State, member: Member): Promise<void> {
  for (const pod of member.pods.slice(0, 5)) {
    await startPod(state, member);
    await endPod(state, member, pod);
  }
}

async function scale(state: State, member: Member): Promise<void> {
  const count = 1 + below(state, 4);
  const more = member.pods.length < 8 || (member.pods.length < 16 && state.random() < 0.5);
  for (let index = 0; index < count; index++) {
    if (more) await startPod(state, member);
    else await endPod(state, member, member.pods[0]);
  }
}

async function flip(state: State, member: Member): Promise<void> {
  const { client } = state;
  const pod = member.pods[below(state, member.pods.length)];
  if (pod === undefined) return;
  await ifThere(reportState(client, pod, 'unready'));
  await sleep(state.random() * 3000);
  await ifThere(reportState(client, pod, 'ready'));
}

/** It is evicted, stays there for a while, and is replaced. */
async function fail(state: State, member: Member): Promise<void> {
  const pod = member.pods[0];
  if (pod === undefined) return;
  await ifThere(reportState(state.client, pod, 'failed'));
  await startPod(state, member);
  await endPod(state, member, pod);
}

async function relabel(state: State, member: Member): Promise<void> {
  const pod = member.pods[0];
  if (pod === undefined) return;
  const path = `/api/v1/namespaces/${pod.namespace}/pods/${pod.name}`;
  for (const app of [`${member.name}-debug`, member.name]) {
    await ifThere(state.client.call('PATCH', path, { metadata: { labels: { app } } }));
    await sleep(state.random() * 2000);
  }
}

async function edit(state: State, member: Member): Promise<void> {
  const ports = [{ name: 'http', port: 80, targetPort: 8080 }];
  const more = { name: 'more', port: 81, targetPort: 8081 };
  const change = oneOf<object>(state, [
    { metadata: { labels: { revision: String(below(state, 1000)) } } },
    { metadata: { labels: { revision: null } } },
    { metadata: { annotations: { note: String(below(state, 1000)) } } },
    { spec: { ports } },
    { spec: { ports: [...ports, more] } },
    { spec: { ports: [{ ...more, targetPort: 'http' }] } },
    { spec: { selector: { track: 'stable' } } },
    { spec: { selector: { track: null } } },
    { spec: { publishNotReadyAddresses: state.random() < 0.5 } },
    { spec: { trafficDistribution: state.random() < 0.5 ? 'PreferClose' : null } },
  ]);
  await state.client.call('PATCH', servicePath(member), change);
}

async function recreate({ client }: State, member: Member): Promise<void> {
  const path = servicePath(member);
  await client.call('DELETE', path);
  await client.call('POST', above(path), member.manifest);
  if (!member.selectorless) return;
  // The Endpoints of a Service that is deleted go too, as soon as its controller sees to it.
  await ifThere(client.call('DELETE', endpointsPath(member)));
  await sleep(3000);
  await ifThere(client.call('POST', above(endpointsPath(member)), handWritten(member, 0)));
}

async function writeByHand(state: State, member: Member): Promise<void> {
  const { client } = state;
  for (let count = 0; count < 3; count++) {
    await ifThere(client.call('PUT', endpointsPath(member), handWritten(member, below(state, 99))));
  }
}

/** A node goes, then its pods, as their garbage collector would have it; another node comes. */
async function loseNode(state: State): Promise<void> {
  const { client, fleet } = state;
  const node = anyNode(state);
  fleet.nodes.splice(fleet.nodes.indexOf(node), 1);
  await client.call('DELETE', `/api/v1/nodes/${node.name}`);
  const lost = fleet.members.flatMap((member) =>
    member.pods.filter((pod) => pod.node === node).map((pod) => ({ member, pod })),
  );
  await inParallel(lost, 8, async ({ member, pod }) => {
    member.pods.splice(member.pods.indexOf(pod), 1);
    await ifThere(deletePod(client, pod, true));
  });
  fleet.nodes.push(await addNode(client, fleet));
  await inParallel(lost, 4, ({ member }) => startPod(state, member));
}

type Act = (state: State, member: Member) => Promise<void>;

/** Changes of Services with a selector, each as often as it is listed here. */
const acts: Readonly<Record<string, readonly [Act, number]>> = {
  roll: [roll, 3],
  scale: [scale, 4],
  flip: [flip, 8],
  fail: [fail, 1],
  relabel: [relabel, 1],
  edit: [edit, 5],
  recreate: [recreate, 1],
};

const weighted = Object.entries(acts).flatMap(([name, [act, weight]]) =>
  Array.from({ length: weight }, () => ({ name, act })),
) as [{ name: string; act: Act }, ...{ name: string; act: Act }[]];

/** One change after the other, each of a Service that no other worker changes. */
async function work(state: State, counting: (name: string) => State): Promise<void> {
  while (!state.end.aborted) {
    const idle = state.fleet.members.filter(({ busy }) => !busy);
    const member = idle[below(state, idle.length)];
    if (member === undefined) throw new Error('Every Service is busy');
    const { name, act } = member.selectorless
      ? state.random() < 0.9
        ? { name: 'write by hand', act: writeByHand }
        : { name: 'recreate', act: recreate }
      : oneOf(state, weighted);
    member.busy = true;
    try {
      await act(counting(name), member);
    } finally {
      member.busy = false;
    }
  }
}

/** Seconds from one node that goes to the next. */
const betweenNodes = 10;

async function takeNodes(state: State): Promise<void> {
  const next = (): number => performance.now() + betweenNodes * 1000;
  let at = next();
  while (!state.end.aborted) {
    await sleep(50);
    if (performance.now() < at) continue;
    await loseNode(state);
    at = next();
  }
}

/** Begins to change a fleet. */
export function startChurn({ client, fleet, rate, seed }: ChurnOptions): Churn {
  const changes = new Map<string, number>();
  let turn = performance.now();
  const random = randomBy(seed);
  const call = async (name: string, method: Method, path: string, body?: object) => {
    turn = Math.max(turn + 1000 / rate, performance.now() - 1000);
    await sleep(Math.max(0, turn - performance.now()));
    const answer = await client.call(method, path, body);
    changes.set(name, (changes.get(name) ?? 0) + 1);
    return answer;
  };
  const end = new AbortController();
  const state: State = { client, fleet, random, end: end.signal };
  const counting = (name: string): State => ({
    ...state,
    client: { ...client, call: (...given) => call(name, ...given) },
  });
  let error: Error | null = null;
  const onError = (thrown: unknown): void => {
    end.abort();
    error ??= thrown instanceof Error ? thrown : new Error(String(thrown));
  };
  const all = Array.from({ length: 8 }, () => work(state, counting).catch(onError));
  all.push(takeNodes(counting('lose a node')).catch(onError));
  return {
    changes,
    error: () => error,
    stop: async () => {
      end.abort();
      await Promise.all(all);
    },
  };
}
