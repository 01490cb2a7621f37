// A random life of a small cluster on the fake API server: Services, pods and Nodes come and change
// and go, and the controllers follow after random delays. Sometimes a controller stops for longer
// than any window, or a user edits its output by hand: those faults must be found.

import type { ServiceOutput } from '../../src/audit/service/enqueue.ts';
import { collectGarbage } from '../scenarios/controllers.ts';
import type { Random } from './chaos.ts';
import { below, oneOf } from './chaos.ts';
import type { VirtualClock } from './clock.ts';
import type { FakeServer } from './server.ts';
import type { Truth } from './truth.ts';
import { outputs, sync } from './truth.ts';

const namespace = 'shop';

/** Every Service there may be; the last has no selector. */
export const names: readonly string[] = ['s0', 's1', 's2', 'manual'];

const nodes = ['node-a', 'node-b'];

export interface Life {
  /** One thing happens. */
  step(): void;
  /** Every controller runs again. */
  recover(): void;
  /** The controller of an output stops for a number of seconds. */
  stop(output: ServiceOutput, seconds: number): void;
  /** The controllers restart, as after a restore of the server from a backup. */
  restored(): void;
}

/** How much there is, and how fast. */
export interface Shape {
  /** Pods there may be at a time. */
  readonly pods: number;
  /** Services with a selector. */
  readonly services: number;
  /** The longest that a controller takes. */
  readonly slowness: number;
}

interface State extends Shape {
  readonly server: FakeServer;
  readonly clock: VirtualClock;
  readonly truth: Truth;
  readonly random: Random;
  readonly queued: Set<string>;
  readonly stoppedUntil: Map<ServiceOutput, number>;
  ips: number;
}

const isReady = (random: Random, likely = 0.8): object[] => [
  { type: 'Ready', status: random() < likely ? 'True' : 'False' },
];

function putNode({ server, random }: State, name: string): void {
  const labels = { 'topology.kubernetes.io/zone': `zone-${below(random, 3)}` };
  const status = { allocatable: { cpu: '4' }, conditions: [{ type: 'Ready', status: 'True' }] };
  server.objects.put('nodes', { metadata: { name, labels }, status });
}

function putService({ server, random }: State, name: string): void {
  const app = name === 'manual' ? {} : { selector: { app: name } };
  server.objects.put('services', {
    metadata: { name, namespace, labels: { team: `team-${below(random, 3)}` } },
    spec: {
      type: 'ClusterIP',
      clusterIP: '10.96.0.9',
      ipFamilies: ['IPv4'],
      ...app,
      ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
    },
  });
}

/** A pod comes, becomes ready or not, or gets an address. */
function putPod(state: State, name: string): void {
  const { server, random, services } = state;
  const before = server.objects.get('pods', `${namespace}/${name}`);
  const status = before?.status as { podIPs: { ip: string }[] } | undefined;
  const ip = status?.podIPs[0]?.ip ?? `10.0.0.${++state.ips}`;
  const app = oneOf(random, names.slice(0, services));
  const { labels = { app } } = before?.metadata ?? {};
  const podIPs = before === undefined && random() < 0.3 ? [] : [{ ip }];
  const fresh = { nodeName: oneOf(random, nodes), containers: [{ name: 'web' }] };
  server.objects.put('pods', {
    metadata: { name, namespace, labels: random() < 0.1 ? { app } : labels },
    spec: before?.spec ?? fresh,
    status: { phase: 'Running', podIPs, conditions: isReady(random) },
  });
}

/** A pod begins to end. */
function drain({ server }: State, name: string): void {
  const before = server.objects.get('pods', `${namespace}/${name}`);
  if (before === undefined) return;
  const deletionTimestamp = '2026-01-01T00:00:00Z';
  server.objects.put('pods', { ...before, metadata: { ...before.metadata, deletionTimestamp } });
}

/** What people write for the Service without selector. */
function putManual({ server, random }: State): void {
  const addresses = ['10.9.0.1', '10.9.0.2', '10.9.0.3'].filter(() => random() < 0.6);
  const ports = [{ name: 'http', port: 8080, protocol: 'TCP' }];
  const subsets =
    addresses.length === 0 ? [] : [{ addresses: addresses.map((ip) => ({ ip })), ports }];
  server.objects.put('endpoints', { metadata: { name: 'manual', namespace }, subsets });
}

/** A user edits what a controller wrote. */
function edit({ server, truth, random }: State): void {
  if (random() < 0.5) {
    const all = [...truth.held.endpoints.values()].filter(
      ({ metadata }) => metadata.name !== 'manual',
    );
    if (all.length === 0) return;
    const { metadata } = oneOf(random, all);
    const labels = random() < 0.3 ? { ...metadata.labels, edited: 'yes' } : metadata.labels;
    const subsets = random() < 0.5 ? [] : [{ addresses: [{ ip: '10.8.0.1' }] }];
    server.objects.put('endpoints', {
      metadata: { ...metadata, ...(labels && { labels }) },
      subsets,
    });
    return;
  }
  const all = [...truth.held.endpointslices.values()];
  if (all.length === 0) return;
  const slice = oneOf(random, all);
  const key = `${namespace}/${slice.metadata.name}`;
  if (random() < 0.3) server.objects.remove('endpointslices', key);
  else {
    const endpoints = (slice.endpoints as object[] | null) ?? [];
    const edited = endpoints
      .slice(1)
      .map((one) => ({ ...one, conditions: { ready: random() < 0.5 } }));
    server.objects.put('endpointslices', { ...slice, endpoints: edited });
  }
}

/** One sync, unless it is queued already; a stopped controller does it when it continues. */
function queue(state: State, output: ServiceOutput, name: string): void {
  const { clock, random, slowness, queued, stoppedUntil, truth } = state;
  const key = `${output} ${name}`;
  if (queued.has(key)) return;
  queued.add(key);
  const work = (): void => {
    const until = stoppedUntil.get(output) ?? 0;
    if (until > clock.now()) {
      clock.after(until - clock.now() + random(), work);
      return;
    }
    queued.delete(key);
    sync(truth.api, output, name);
  };
  clock.after(0.01 + random() * oneOf(random, [0.1, 1, slowness]), work);
}

function follow(state: State): void {
  const { truth, clock } = state;
  truth.onChange(({ resource, type }, _before, concerned) => {
    for (const name of concerned) {
      if (resource === 'endpoints') queue(state, 'mirrored', name);
      else if (resource !== 'endpointslices')
        for (const output of outputs) queue(state, output, name);
    }
    if (type !== 'DELETED' || (resource !== 'services' && resource !== 'endpoints')) return;
    clock.after(0.5, () => {
      collectGarbage(truth.api);
    });
  });
}

/**
 * Whether a change of a Node is seen at once. The auditor does not read Nodes again, so it cannot
 * know how far behind a stream is that hangs unnoticed (docs/decisions/0010).
 */
const isSeen = ({ watches }: FakeServer): boolean =>
  [...watches].every(({ resource, frozen, spoils }) => {
    return resource !== 'nodes' || !(frozen || spoils.length > 0);
  });

function step(state: State): void {
  const { server, random, truth, pods, services } = state;
  const pod = `p${below(random, pods)}`;
  const name = oneOf(random, [...names.slice(0, services), 'manual']);
  const chance = random();
  if (chance < 0.55) putPod(state, pod);
  else if (chance < 0.65) drain(state, pod);
  else if (chance < 0.75) server.objects.remove('pods', `${namespace}/${pod}`);
  else if (chance < 0.82) putService(state, name);
  else if (chance < 0.86) server.objects.remove('services', `${namespace}/${name}`);
  else if (chance < 0.91) putManual(state);
  else if (chance < 0.93) {
    if (isSeen(server)) putNode(state, oneOf(random, nodes));
  } else if (truth.held.services.size > 0) edit(state);
}

/** `truth` follows the same server. */
export function createLife(
  server: FakeServer,
  clock: VirtualClock,
  truth: Truth,
  random: Random,
  shape: Shape,
): Life {
  const state: State = {
    server,
    clock,
    truth,
    random,
    ...shape,
    queued: new Set(),
    stoppedUntil: new Map(),
    ips: 0,
  };
  follow(state);
  for (const name of nodes) putNode(state, name);
  for (const name of [...names.slice(0, shape.services), 'manual']) {
    if (random() < 0.7) putService(state, name);
  }
  for (let index = 0; index < shape.pods; index++) if (random() < 0.6) putPod(state, `p${index}`);
  return {
    step() {
      step(state);
    },
    stop(output, seconds) {
      state.stoppedUntil.set(output, clock.now() + seconds);
    },
    recover() {
      state.stoppedUntil.clear();
    },
    restored() {
      collectGarbage(truth.api);
      for (const output of outputs) for (const name of names) queue(state, output, name);
    },
  };
}
