// Mixed changes of a fleet at a steady rate, as users, kubelets and cloud providers make them:
// rolling updates, scaling, pods that turn not ready and ready again, pods that are relabelled or
// fail, nodes that go, edits of Services, and Endpoints written by hand. Only the
// controllers write their outputs, so there may be no finding while they work.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Stage } from './auditor.ts';
import { awaitSoon, loudSince, report, say, secondsSince } from './auditor.ts';
import { callWitness } from './chaos/oracle.ts';
import type { Fleet, Member, Node, Pod, Size } from './cluster.ts';
import {
  above,
  addNode,
  bindPod,
  createMembersOf,
  createNodesOf,
  deletePod,
  endpointsPath,
  handWritten,
  inParallel,
  newPod,
  reportState,
  servicePath,
} from './cluster.ts';
import type { Client, ControlPlane, Method } from './controlplane.ts';
import { awaitSettled } from './controlplane.ts';

export interface Churn {
  /** Requests that changed something, by what was done. */
  readonly changes: ReadonlyMap<string, number>;
  /** Why it ended before its time; null: it did not. */
  readonly error: () => Error | null;
  /** Ends when all that was begun is done. */
  readonly stop: () => Promise<void>;
}

interface ChurnOptions {
  readonly client: Client;
  readonly fleet: Fleet;
  /** Changes a second. */
  readonly rate: number;
  readonly seed: number;
}

export interface ChurnState {
  /** Waits for its turn, counts, and calls. */
  readonly client: Client;
  readonly fleet: Fleet;
  /** 0 up to below 1. */
  readonly random: () => number;
  readonly end: AbortSignal;
}

/** A generator of numbers that a seed repeats (mulberry32). */
export function randomBy(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export const below = ({ random }: ChurnState, count: number): number =>
  Math.floor(random() * count);

export function oneOf<T>(state: ChurnState, list: readonly [T, ...T[]]): T {
  return list[below(state, list.length)] ?? list[0];
}

function anyNode(state: ChurnState): Node {
  const { nodes } = state.fleet;
  const node = nodes[below(state, nodes.length)];
  if (node === undefined) throw new Error('No node is left');
  return node;
}

/** A pod that a node deletion has taken meanwhile cannot be changed any more. */
export async function ifThere(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!/: (404|409) /.test(String(error))) throw error;
  }
}

export async function startPod(state: ChurnState, member: Member): Promise<void> {
  const { client, fleet } = state;
  const pod = newPod(fleet, member, anyNode(state));
  await bindPod(client, pod);
  member.pods.push(pod);
  await ifThere(reportState(client, pod, 'unready'));
  await ifThere(reportState(client, pod, 'ready'));
}

export async function endPod(
  state: ChurnState,
  member: Member,
  pod: Pod | undefined,
): Promise<void> {
  if (pod === undefined) return;
  const { client } = state;
  member.pods.splice(member.pods.indexOf(pod), 1);
  await ifThere(deletePod(client, pod, false));
  if (state.random() < 0.5) await ifThere(reportState(client, pod, 'unready'));
  await ifThere(deletePod(client, pod, true));
}

async function roll(state: ChurnState, member: Member): Promise<void> {
  for (const pod of member.pods.slice(0, 5)) {
    await startPod(state, member);
    await endPod(state, member, pod);
  }
}

async function scale(state: ChurnState, member: Member): Promise<void> {
  const count = 1 + below(state, 4);
  const more = member.pods.length < 8 || (member.pods.length < 16 && state.random() < 0.5);
  for (let index = 0; index < count; index++) {
    if (more) await startPod(state, member);
    else await endPod(state, member, member.pods[0]);
  }
}

async function flip(state: ChurnState, member: Member): Promise<void> {
  const { client } = state;
  const pod = member.pods[below(state, member.pods.length)];
  if (pod === undefined) return;
  await ifThere(reportState(client, pod, 'unready'));
  await sleep(state.random() * 3000);
  await ifThere(reportState(client, pod, 'ready'));
}

/** It is evicted, stays there for a while, and is replaced. */
async function fail(state: ChurnState, member: Member): Promise<void> {
  const pod = member.pods[0];
  if (pod === undefined) return;
  await ifThere(reportState(state.client, pod, 'failed'));
  await startPod(state, member);
  await endPod(state, member, pod);
}

async function relabel(state: ChurnState, member: Member): Promise<void> {
  const pod = member.pods[0];
  if (pod === undefined) return;
  const path = `/api/v1/namespaces/${pod.namespace}/pods/${pod.name}`;
  for (const app of [`${member.name}-debug`, member.name]) {
    await ifThere(state.client.call('PATCH', path, { metadata: { labels: { app } } }));
    await sleep(state.random() * 2000);
  }
}

async function edit(state: ChurnState, member: Member): Promise<void> {
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

export async function recreate({ client }: ChurnState, member: Member): Promise<void> {
  const path = servicePath(member);
  await client.call('DELETE', path);
  await client.call('POST', above(path), member.manifest);
  if (!member.selectorless) return;
  // The Endpoints of a Service that is deleted go too, as soon as its controller sees to it.
  await ifThere(client.call('DELETE', endpointsPath(member)));
  await sleep(3000);
  await ifThere(client.call('POST', above(endpointsPath(member)), handWritten(member, 0)));
}

export async function writeByHand(state: ChurnState, member: Member): Promise<void> {
  const { client } = state;
  for (let count = 0; count < 3; count++) {
    await ifThere(client.call('PUT', endpointsPath(member), handWritten(member, below(state, 99))));
  }
}

/** A node goes, then its pods, as their garbage collector would have it; another node comes. */
export async function loseNode(state: ChurnState): Promise<void> {
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

export type Act = (state: ChurnState, member: Member) => Promise<void>;

/** Changes of Services with a selector, each as often as it is listed here. */
export const acts: Readonly<Record<string, readonly [Act, number]>> = {
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
async function work(state: ChurnState, counting: (name: string) => ChurnState): Promise<void> {
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

async function takeNodes(state: ChurnState): Promise<void> {
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
  const state: ChurnState = { client, fleet, random, end: end.signal };
  const counting = (name: string): ChurnState => ({
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

// Disturbances: what is between the auditor and the truth goes, and comes back. Nothing may be
// found by that, the auditor must see all again soon, and must have counted what happened.
//
// Where only the auditor is cut off, the cluster goes on changing. Where the API server or etcd is
// gone nothing can change, and the controllers, which come back at their own pace, have
// nothing to be late with.

/** Changes a second while the auditor is cut off. */
const rate = 20;

/**
 * Seconds until the auditor must see all again. As upstream's do, its watches wait longer after
 * every failure within two minutes, 30 s and as much again by chance at most.
 */
const within = 75;

interface Disturbance {
  readonly title: string;
  readonly happen: (stage: Stage) => Promise<void>;
  /** Whether the cluster changes meanwhile. */
  readonly churns: boolean;
  /** What must have been counted: the family, and its labels. */
  readonly counted: readonly (readonly [string, Readonly<Record<string, string>>])[];
}

const reconnects: Disturbance['counted'] = [['watch_reconnects_total', {}]];

export const isReachable = async ({ client }: Pick<Stage, 'client'>): Promise<boolean> => {
  try {
    await client.call('GET', '/readyz');
    return true;
  } catch (error) {
    // What /readyz answers is no JSON.
    return error instanceof SyntaxError;
  }
};

const refused = ['watch_refusals_total', { reason: 'unauthorized' }] as const;

const lateToken: Disturbance = {
  title: 'the token is not replaced before it has been refused',
  async happen({ account, proxy, auditor }) {
    await account.revoke('second');
    await sleep(11_000);
    const before = await auditor.metric(...refused);
    proxy.cut();
    // After the failures of before, its watches may wait for a while until they try again.
    await awaitSoon(async () => (await auditor.metric(...refused)) > before, within);
    await sleep(5000);
    account.write(await account.newToken('third'));
  },
  churns: true,
  counted: [refused],
};

const disturbances = (long: boolean): readonly Disturbance[] => [
  {
    title: 'the watches are cut twice',
    async happen({ proxy }) {
      for (let count = 0; count < 2; count++) {
        proxy.cut();
        await sleep(2000);
      }
    },
    churns: true,
    counted: reconnects,
  },
  {
    title: `nothing comes through for ${long ? 50 : 15} s`,
    async happen({ proxy }) {
      proxy.hold();
      await sleep((long ? 50 : 15) * 1000);
      proxy.release();
    },
    churns: true,
    counted: [],
  },
  {
    title: 'the token is replaced, and the old one is no longer valid',
    async happen({ account, proxy }) {
      account.write(await account.newToken('second'));
      await account.revoke('first');
      // The API server believes in a token that was valid for ten seconds more.
      await sleep(11_000);
      proxy.cut();
    },
    churns: true,
    counted: reconnects,
  },
  // What costs time and is not much else than what was there before.
  ...(long ? [lateToken] : []),
  {
    title: 'the API server is gone for 10 s',
    async happen({ plane }) {
      await plane.killApiserver();
      await sleep(10_000);
      await plane.startApiserver();
    },
    churns: false,
    counted: reconnects,
  },
  {
    title: 'etcd is restarted',
    async happen(stage) {
      await stage.plane.restartEtcd();
      await awaitSoon(() => isReachable(stage), 60);
    },
    churns: false,
    counted: [],
  },
];

const synced = { state: 'synced' };

/** Whether every watch is open and up to date. */
async function seesAll({ auditor }: Stage): Promise<boolean> {
  return (await auditor.metric('watch_state', synced)) === 5;
}

async function countedIn({ auditor }: Stage, { counted }: Disturbance): Promise<readonly number[]> {
  return Promise.all(counted.map(([name, labels]) => auditor.metric(name, labels)));
}

/** Every second, whether it is ready: it may only cease to be when it has not seen for a minute. */
function watchReadiness({ auditor }: Stage, wrong: string[]): () => void {
  const look = async (): Promise<void> => {
    const why = await auditor.notReady();
    const unseen = [...(why ?? '').matchAll(/not seen for (\d+) s/g)].map(([, text]) =>
      Number(text),
    );
    if (why !== null && !(Math.max(...unseen) >= 60)) wrong.push(`not ready: ${why}`);
  };
  const timer = setInterval(() => {
    look().catch((error: unknown) => wrong.push(String(error)));
  }, 1000);
  return () => {
    clearInterval(timer);
  };
}

async function check(stage: Stage, fleet: Fleet, one: Disturbance, seed: number): Promise<void> {
  const { plane, client, auditor, tally, settle } = stage;
  const from = Date.now() / 1000;
  const before = await countedIn(stage, one);
  const witness = await callWitness(plane);
  const wrong: string[] = [];
  const stopWatching = watchReadiness(stage, wrong);
  const churn = one.churns ? startChurn({ client, fleet, rate, seed }) : null;
  await one.happen(stage);
  const hasCounted = async (): Promise<boolean> => {
    const now = await countedIn(stage, one);
    return now.every((count, index) => count > (before[index] ?? 0));
  };
  const took = await awaitSoon(async () => (await hasCounted()) && (await seesAll(stage)), within);
  await churn?.stop();
  const error = churn?.error() ?? null;
  if (error !== null) wrong.push(String(error.stack));
  // Long enough for whatever is wrong to be found.
  await sleep((settle + 2) * 1000);
  stopWatching();
  if (!(await hasCounted())) wrong.push('it has not been counted');
  if (took === null) wrong.push(`not all is seen again after ${within} s`);
  const unknown = await auditor.metric('outputs', { verdict: 'unknown' });
  if (unknown !== 0) wrong.push(`${unknown} outputs unknown`);
  wrong.push(...(await witness.falseOf(await loudSince(auditor, from), settle)));
  const seen = took === null ? '' : `, all is seen again after ${took.toFixed(1)} s`;
  report(tally, `${one.title}: no false finding${seen}`, wrong);
}

/** `long`: as long as may be, where the others save time. */
export async function disturb(stage: Stage, fleet: Fleet, long: boolean): Promise<void> {
  for (const [index, one] of disturbances(long).entries()) {
    await check(stage, fleet, one, index + 2);
  }
}

/**
 * Creates the Nodes, Services and pods of a fleet, and waits until the controllers have written.
 *
 * The controllers sleep meanwhile, so that they do not write for every single pod. But they know
 * the Nodes by then: a pod that they receive before its Node they write without a zone, and leave
 * it so, where the Service publishes what is not ready (reconcileByAddressType of
 * k8s.io/endpointslice@v0.36.3 reconciler.go), which is found.
 */
export async function populate(plane: ControlPlane, client: Client, size: Size): Promise<Fleet> {
  const begun = performance.now();
  const fleet = await createNodesOf(client, size);
  await awaitSettled(client);
  await plane.pauseControllerManager();
  await createMembersOf(client, fleet, size);
  plane.resumeControllerManager();
  await awaitSettled(client);
  const took = secondsSince(begun).toFixed(0);
  say(`     ${size.services} Services, ${size.pods} pods, ${size.nodes} nodes after ${took} s`);
  return fleet;
}
