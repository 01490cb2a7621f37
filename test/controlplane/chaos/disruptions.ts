// What goes wrong in the chaos test, one disruption after the other: the controllers sleep, are
// slow or die, the API server dies, etcd forgets, Nodes go and move, and objects are spoilt by
// hand.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Act, ChurnState } from '../churn.ts';
import {
  acts,
  below,
  endPod,
  ifThere,
  loseNode,
  oneOf,
  randomBy,
  recreate,
  startPod,
  writeByHand,
} from '../churn.ts';
import type { Fleet, Member, Node, Pod } from '../cluster.ts';
import {
  bindPod,
  createNode,
  deletePod,
  endpointsPath,
  newPod,
  reportState,
  servicePath,
  setZone,
} from '../cluster.ts';
import type { Client, ControlPlane, Thing } from '../controlplane.ts';
import type { Endpoints, Slice } from '../faults.ts';
import { first, toNotReady } from '../faults.ts';
import { compact } from './history.ts';
import type { InjectedFault, Outage } from './oracle.ts';

export interface Disrupted {
  /** Each disruption with its times, in Unix seconds. */
  readonly log: { readonly name: string; readonly from: number; readonly to: number }[];
  readonly faults: InjectedFault[];
  readonly outages: Outage[];
}

interface Scene {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly state: ChurnState;
  readonly disrupted: Disrupted;
  /** Seconds of the settle window. */
  readonly settle: number;
}

type Disruption = (scene: Scene) => Promise<void>;

interface Spoil {
  readonly title: string;
  readonly output: 'endpoints' | 'endpointslices';
  readonly codes: readonly string[];
  /** null: the object is deleted. */
  readonly change: ((object: Thing) => void) | null;
}

interface Spoilable {
  readonly endpointslices: Slice;
  readonly endpoints: Endpoints;
}

/** Spoils of one output. */
const spoilIn =
  <O extends keyof Spoilable>(output: O, kind: string) =>
  (
    title: string,
    codes: readonly string[],
    change: ((object: Spoilable[O]) => void) | null,
  ): Spoil => ({
    title: `${kind}, ${title}`,
    output,
    codes,
    change: change === null ? null : (object) => change(object as Spoilable[O]),
  });

const inSlice = spoilIn('endpointslices', 'slice');
const inEndpoints = spoilIn('endpoints', 'Endpoints');

/** They stay only while the controllers sleep. */
const sliceSpoils: readonly Spoil[] = [
  inSlice('deleted', ['slice-endpoint-missing'], null),
  inSlice('endpoint removed', ['slice-endpoint-missing'], (slice) => void slice.endpoints?.shift()),
  inSlice('stale address', ['slice-endpoint-unexpected'], (slice) => {
    const address = slice.addressType === 'IPv4' ? '10.99.0.1' : 'fd00:99::1';
    first(slice.endpoints).addresses = [address];
  }),
  inSlice('not ready', ['slice-conditions-different'], (slice) => {
    const { conditions } = first(slice.endpoints);
    conditions.ready = conditions.ready !== true;
  }),
  inSlice('wrong port', ['slice-ports-different'], (slice) => void (first(slice.ports).port += 1)),
  inSlice('label removed', ['slice-labels-different'], ({ metadata }) => {
    delete metadata.labels?.team;
  }),
];

/** An address with several ports may be in several subsets, and only one is spoilt. */
const inPart = ['endpoints-ports-different', 'endpoints-address-unexpected'];

/** The endpoints controller notices no edit of Endpoints. */
const endpointsSpoils: readonly Spoil[] = [
  inEndpoints('address removed', ['endpoints-address-missing', ...inPart], ({ subsets }) => {
    const subset = first(subsets);
    subset.addresses = subset.addresses?.slice(1) ?? [];
  }),
  inEndpoints('not ready', ['endpoints-readiness-different', ...inPart], ({ subsets }) => {
    toNotReady(first(subsets));
  }),
  inEndpoints('label removed', ['endpoints-labels-different'], ({ metadata }) => {
    delete metadata.labels?.team;
  }),
];

async function pathOf(client: Client, member: Member, spoil: Spoil): Promise<string> {
  if (spoil.output === 'endpoints') return endpointsPath(member);
  const base = `/apis/discovery.k8s.io/v1/namespaces/${member.namespace}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${member.name}`;
  const { items } = (await client.call('GET', base + query)) as { items: Slice[] };
  // Ports of no number belong to pods without the named port.
  const filled = items.filter(
    ({ endpoints, ports }) => first([endpoints ?? []]).length * ports.length,
  );
  return `${base}/${first(filled).metadata.name}`;
}

const versionOf = (answer: unknown): number =>
  Number((answer as { metadata: { resourceVersion: string } }).metadata.resourceVersion);

/** Spoils an object of a Service; nothing, if the Service has none that is so. */
async function spoilOne({ client, disrupted }: Scene, member: Member, spoil: Spoil): Promise<void> {
  const { title, output, codes, change } = spoil;
  try {
    const path = await pathOf(client, member, spoil);
    const object = (await client.call('GET', path)) as Thing;
    let revision: number;
    if (change === null) {
      await client.call('DELETE', path);
      revision = versionOf(await client.call('GET', '/api/v1/nodes?limit=1'));
    } else {
      change(object);
      revision = versionOf(await client.call('PUT', path, object));
    }
    const service = `${member.namespace}/${member.name}`;
    const place = `${output} ${member.namespace}/${object.metadata.name}`;
    disrupted.faults.push({ title, service, output, codes, object: place, revision });
  } catch (error) {
    // Between reading and writing it, the controllers may write it, or delete it.
    if (!/is there to be spoilt|: (404|409) /.test(String(error))) throw error;
  }
}

/** Spoils an object each of some Services that nothing else changes, and returns the Services. */
async function spoilSome(scene: Scene, spoils: readonly Spoil[], count: number): Promise<Member[]> {
  const { state } = scene;
  const taken: Member[] = [];
  for (let index = 0; index < count; index++) {
    const idle = state.fleet.members.filter(({ busy, selectorless }) => !busy && !selectorless);
    const member = idle[below(state, idle.length)];
    const spoil = spoils[below(state, spoils.length)];
    if (member === undefined || spoil === undefined) break;
    member.busy = true;
    taken.push(member);
    await spoilOne(scene, member, spoil);
  }
  return taken;
}

async function sleepWhile(scene: Scene, least: number, most: number): Promise<void> {
  const { state } = scene;
  await rest(state, least + (most - least) * state.random());
}

/** Seconds for which a spoilt object must stay, so that it must be found. */
const longOf = ({ settle }: Scene): number => 2 * settle + 8;

async function pauseBriefly(scene: Scene): Promise<void> {
  await scene.plane.pauseControllerManager();
  await sleepWhile(scene, 1, scene.settle - 2);
  scene.plane.resumeControllerManager();
}

async function pauseForLong(scene: Scene): Promise<void> {
  const { plane } = scene;
  await plane.pauseControllerManager();
  const taken = await spoilSome(scene, [...sliceSpoils, ...endpointsSpoils], 8);
  await sleepWhile(scene, longOf(scene), longOf(scene) + scene.settle);
  plane.resumeControllerManager();
  await release(scene, taken);
}

/** Has the controllers see to Services again that were spoilt. */
async function release({ client }: Scene, members: readonly Member[]): Promise<void> {
  for (const member of members) {
    const metadata = { annotations: { touched: String(Date.now()) } };
    await ifThere(client.call('PATCH', servicePath(member), { metadata }));
    member.busy = false;
  }
}

async function spoilEndpoints(scene: Scene): Promise<void> {
  const taken = await spoilSome(scene, endpointsSpoils, 4);
  await sleepWhile(scene, longOf(scene), longOf(scene) + 5);
  await release(scene, taken);
}

async function restartControllers({ plane }: Scene): Promise<void> {
  await plane.restartControllerManager();
}

/** The controllers may write a few objects a second, and fall behind. */
async function slowControllers(scene: Scene): Promise<void> {
  const limit = String(2 + below(scene.state, 8));
  await scene.plane.restartControllerManager([`--kube-api-qps=${limit}`, '--kube-api-burst=5']);
  await sleepWhile(scene, scene.settle, 4 * scene.settle);
  await scene.plane.restartControllerManager();
}

async function killApiserver(scene: Scene): Promise<void> {
  const from = Date.now() / 1000;
  await scene.plane.killApiserver();
  await sleepWhile(scene, 0, 8);
  await scene.plane.startApiserver();
  scene.disrupted.outages.push({ from, to: Date.now() / 1000 });
}

async function restartEtcd(scene: Scene): Promise<void> {
  const from = Date.now() / 1000;
  await scene.plane.restartEtcd();
  await scene.client.call('GET', '/api/v1/nodes?limit=1');
  scene.disrupted.outages.push({ from, to: Date.now() / 1000 });
}

async function compactEtcd({ plane }: Scene): Promise<void> {
  await compact(plane.etcd);
}

function anyNode({ state }: Scene): Node {
  const { nodes } = state.fleet;
  return first(nodes.slice(below(state, nodes.length)));
}

/** A Node moves to another zone, and back. */
async function moveNode(scene: Scene): Promise<void> {
  const node = anyNode(scene);
  const other = `zone-${'abc'.charAt(below(scene.state, 3))}`;
  await setZone(scene.client, node.name, other);
  await sleepWhile(scene, 2, longOf(scene));
  await setZone(scene.client, node.name, node.zone);
}

/** A Node goes without its pods, and comes back. */
async function forgetNode(scene: Scene): Promise<void> {
  const node = anyNode(scene);
  await scene.client.call('DELETE', `/api/v1/nodes/${node.name}`);
  await sleepWhile(scene, 1, 2 * scene.settle);
  await createNode(scene.client, node);
}

/** In a deck, each is as often as it is listed here. */
const disruptions: readonly (readonly [name: string, disruption: Disruption])[] = [
  ['pause for long', pauseForLong],
  ['pause briefly', pauseBriefly],
  ['lose a Node', ({ state }) => loseNode(state)],
  ['spoil Endpoints', spoilEndpoints],
  ['restart the controllers', restartControllers],
  ['move a Node', moveNode],
  ['compact etcd', compactEtcd],
  ['kill the API server', killApiserver],
  ['slow controllers', slowControllers],
  ['pause for long', pauseForLong],
  ['forget a Node', forgetNode],
  ['restart etcd', restartEtcd],
  ['lose a Node', ({ state }) => loseNode(state)],
];

function shuffled<T>(state: ChurnState, list: readonly T[]): T[] {
  const left = [...list];
  return list.map(() => left.splice(below(state, left.length), 1)[0] as T);
}

/** One disruption after the other, in the order that the seed gives, until the end. */
export async function disrupt(scene: Scene): Promise<void> {
  const { state, disrupted } = scene;
  let deck: typeof disruptions = [];
  while (!state.end.aborted) {
    if (deck.length === 0) deck = shuffled(state, disruptions);
    const [next, ...rest] = deck;
    deck = rest;
    if (next === undefined) return;
    const [name, disruption] = next;
    const from = Date.now() / 1000;
    await disruption(scene);
    disrupted.log.push({ name, from, to: Date.now() / 1000 });
    await sleepWhile(scene, 1, 6);
  }
}

// What users, kubelets and cloud providers do to the cluster of the chaos test, one Service at a
// time: the changes of churn.ts, and those that are rarer or leave the controllers a trap. Each
// operation takes its choices from a generator of its own, so that a seed repeats it whatever the
// others do.

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
