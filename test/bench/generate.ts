// A made-up cluster as the API server would show it: raw JSON objects of Nodes, Services and
// pods, and the Endpoints and EndpointSlices that the controllers of 1.36 write for them when all
// is well.
//
// Nothing is drawn from a stream of random numbers: every name, uid and address is a function of
// the seed and of the object's number, so any object can be made at any time, alone and again.
// What may change (readiness, zones, which pods exist) is a byte per pod or Node, so that the fleet
// itself weighs next to nothing beside the store that is measured.
//
// One Service in ten is headless with the pods of a StatefulSet (a label and a hostname of its own
// for each pod), one in twenty prefers close endpoints, and one in a hundred has topology-mode
// Auto. Two pods in a hundred are not ready. A pod is about 2 KB of JSON, as in the recording.

import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type { Resource, WatchEvent } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import { newestRelease } from '../../src/shadow/release.ts';
import { cpuMicros, heapBytes } from './measure.ts';

export type Raw = Record<string, unknown>;

export interface Shape {
  readonly nodes: number;
  readonly namespaces: number;
  /** How many Services have how many pods; each pod belongs to one Service. */
  readonly sizes: readonly { readonly pods: number; readonly services: number }[];
}

/** A Service; its pods are those numbered from `first` on. */
export interface Plan {
  readonly number: number;
  readonly namespace: string;
  readonly name: string;
  readonly first: number;
  readonly pods: number;
  readonly stateful: boolean;
  readonly ports: 1 | 2;
  readonly hints: 'none' | 'zone' | 'auto';
}

export interface Fleet {
  readonly shape: Shape;
  readonly plans: readonly Plan[];
  readonly pods: number;
  /** By number of the pod. */
  readonly ready: Uint8Array;
  readonly exists: Uint8Array;
  readonly incarnation: Uint8Array;
  /** By number of the Node. */
  readonly zone: Uint8Array;
  /** The latest resourceVersion. */
  version: number;
}

export const zones = ['eu-1a', 'eu-1b', 'eu-1c'] as const;
const seed = 20_261_121;
const maxPerSlice = 100;
const capacity = 1000;
const created = '2026-11-21T08:00:00Z';
const changed = '2026-11-21T10:00:00Z';

/** A 32-bit hash of a number, after MurmurHash3's finalizer. */
function mix(number: number, salt: number): number {
  let hash = seed ^ Math.imul(number + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca77);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

const kindSalt = { node: 1, service: 2, pod: 3, endpoints: 4, slice: 5, owner: 6 } as const;

const scratch = Buffer.alloc(16);

function uid(kind: keyof typeof kindSalt, number: number): string {
  for (let part = 0; part < 4; part++) {
    scratch.writeUInt32BE(mix(number, 16 * kindSalt[kind] + part), 4 * part);
  }
  const hex = scratch.toString('hex');
  const [a, b, c, d] = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20)];
  return `${a}-${b}-${c}-${d}-${hex.slice(20)}`;
}

const alphabet = 'bcdfghjklmnpqrstvwxz2456789';

/** Five letters as in names of pods, different for different numbers below 27^5. */
function suffix(number: number): string {
  let left = (number * 7_368_787 + seed) % alphabet.length ** 5;
  let letters = '';
  for (let place = 0; place < 5; place++) {
    letters += alphabet.charAt(left % alphabet.length);
    left = Math.floor(left / alphabet.length);
  }
  return letters;
}

export function createFleet(shape: Shape): Fleet {
  const plans: Plan[] = [];
  let pods = 0;
  for (const size of shape.sizes) {
    for (let count = 0; count < size.services; count++) {
      const number = plans.length;
      const luck = mix(number, 0) % 100;
      plans.push({
        number,
        namespace: `team-${String(number % shape.namespaces).padStart(3, '0')}`,
        name: `app-${String(number).padStart(5, '0')}`,
        first: pods,
        pods: size.pods,
        stateful: luck < 10 && size.pods <= 250,
        ports: luck % 5 === 0 ? 2 : 1,
        hints: luck >= 95 ? 'zone' : luck === 94 && size.pods >= 30 ? 'auto' : 'none',
      });
      pods += size.pods;
    }
  }
  const byte = (value: (number: number) => number, length: number): Uint8Array =>
    Uint8Array.from({ length }, (_, number) => value(number));
  return {
    shape,
    plans,
    pods,
    ready: byte((pod) => Number(mix(pod, 7) % 50 !== 0), pods),
    exists: byte(() => 1, pods),
    incarnation: byte(() => 0, pods),
    zone: byte((node) => node % zones.length, shape.nodes),
    version: 1000,
  };
}

// --- what follows from a number ---

const nodeOf = (fleet: Fleet, pod: number): number => mix(pod, 8) % fleet.shape.nodes;

const nodeName = (node: number): string => `node-${String(node).padStart(4, '0')}.example.internal`;
const zoneOf = (fleet: Fleet, node: number): string => zones[fleet.zone[node] ?? 0] ?? '';
const addressOf = (pod: number): string =>
  `10.${String((pod >> 16) + 1)}.${String((pod >> 8) & 255)}.${String(pod & 255)}`;
const templateOf = (plan: Plan): string => suffix(plan.number) + suffix(plan.number + 1);

/** The number of a pod in its present incarnation, which names and uids depend on. */
const identity = (fleet: Fleet, pod: number): number =>
  pod + fleet.pods * (fleet.incarnation[pod] ?? 0);

function podName(fleet: Fleet, plan: Plan, pod: number): string {
  if (plan.stateful) return `${plan.name}-${String(pod - plan.first)}`;
  return `${plan.name}-${templateOf(plan)}-${suffix(identity(fleet, pod))}`;
}

/** The numbers of those pods of a Service that exist, `from` and `to` counted in the Service. */
function existing(fleet: Fleet, plan: Plan, from = 0, to = plan.pods): number[] {
  const pods: number[] = [];
  for (let pod = plan.first + from; pod < plan.first + to; pod++) {
    if (fleet.exists[pod] === 1) pods.push(pod);
  }
  return pods;
}

const isReady = (fleet: Fleet, pod: number): boolean => fleet.ready[pod] === 1;

// --- raw objects ---

const nextVersion = (fleet: Fleet): string => String(++fleet.version);

const condition = (type: string, status: boolean, heartbeat: string | null): Raw => ({
  type,
  status: status ? 'True' : 'False',
  ...(heartbeat === null ? { lastProbeTime: null } : { lastHeartbeatTime: heartbeat }),
  lastTransitionTime: changed,
});

export function rawNode(fleet: Fleet, node: number): Raw {
  const name = nodeName(node);
  const amounts = { cpu: '15890m', memory: '61255492Ki', pods: '110' };
  return {
    metadata: {
      name,
      uid: uid('node', node),
      resourceVersion: nextVersion(fleet),
      creationTimestamp: created,
      labels: {
        'kubernetes.io/arch': 'amd64',
        'kubernetes.io/hostname': name,
        'kubernetes.io/os': 'linux',
        'topology.kubernetes.io/region': 'eu-1',
        'topology.kubernetes.io/zone': zoneOf(fleet, node),
      },
      annotations: { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true' },
    },
    spec: { podCIDR: '10.244.0.0/24', podCIDRs: ['10.244.0.0/24'] },
    status: {
      capacity: amounts,
      allocatable: amounts,
      conditions: [
        condition('MemoryPressure', false, changed),
        condition('DiskPressure', false, changed),
        condition('PIDPressure', false, changed),
        condition('Ready', true, changed),
      ],
      addresses: [{ type: 'InternalIP', address: `192.168.${node >> 8}.${node & 255}` }],
      nodeInfo: { kernelVersion: '6.12.0', kubeletVersion: 'v1.36.3', operatingSystem: 'linux' },
    },
  };
}

const serviceLabels = (plan: Plan): Record<string, string> => ({
  app: plan.name,
  'app.kubernetes.io/managed-by': 'Helm',
});

export function rawService(fleet: Fleet, plan: Plan): Raw {
  const auto = { 'service.kubernetes.io/topology-mode': 'Auto' };
  const { number } = plan;
  const clusterIP = plan.stateful
    ? 'None'
    : `172.20.${String(number >> 8)}.${String(number & 255)}`;
  const port = { name: 'http', protocol: 'TCP', port: 80, targetPort: 'http' };
  const metrics = { name: 'metrics', protocol: 'TCP', port: 9090, targetPort: 9090 };
  return {
    metadata: {
      name: plan.name,
      namespace: plan.namespace,
      uid: uid('service', number),
      resourceVersion: nextVersion(fleet),
      creationTimestamp: created,
      labels: serviceLabels(plan),
      annotations: plan.hints === 'auto' ? auto : {},
    },
    spec: {
      type: 'ClusterIP',
      selector: { app: plan.name },
      clusterIP,
      clusterIPs: [clusterIP],
      ports: plan.ports === 1 ? [port] : [port, metrics],
      ipFamilies: ['IPv4'],
      ipFamilyPolicy: 'SingleStack',
      internalTrafficPolicy: 'Cluster',
      sessionAffinity: 'None',
      ...(plan.hints === 'zone' ? { trafficDistribution: 'PreferClose' } : {}),
    },
    status: { loadBalancer: {} },
  };
}

function podLabels(fleet: Fleet, plan: Plan, pod: number): Record<string, string> {
  const name = podName(fleet, plan, pod);
  const index = String(pod - plan.first);
  return plan.stateful
    ? {
        app: plan.name,
        'apps.kubernetes.io/pod-index': index,
        'controller-revision-hash': `${plan.name}-${templateOf(plan)}`,
        'statefulset.kubernetes.io/pod-name': name,
      }
    : { app: plan.name, 'pod-template-hash': templateOf(plan) };
}

function podSpec(fleet: Fleet, plan: Plan, pod: number): Raw {
  const metrics = { name: 'metrics', containerPort: 9090, protocol: 'TCP' };
  const probe = { httpGet: { path: '/ready', port: 'http', scheme: 'HTTP' }, periodSeconds: 10 };
  return {
    containers: [
      {
        name: 'app',
        image: `registry.example/${plan.namespace}/${plan.name}:v1.4.2`,
        ports: [
          { name: 'http', containerPort: 8080, protocol: 'TCP' },
          ...(plan.ports === 2 ? [metrics] : []),
        ],
        env: [{ name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } }],
        resources: { limits: { memory: '256Mi' }, requests: { cpu: '100m', memory: '256Mi' } },
        volumeMounts: [{ name: 'token', readOnly: true, mountPath: '/var/run/secrets/token' }],
        readinessProbe: probe,
        terminationMessagePath: '/dev/termination-log',
        imagePullPolicy: 'IfNotPresent',
      },
    ],
    volumes: [{ name: 'token', projected: { defaultMode: 420, sources: [{ configMap: {} }] } }],
    restartPolicy: 'Always',
    terminationGracePeriodSeconds: 30,
    dnsPolicy: 'ClusterFirst',
    serviceAccountName: 'default',
    nodeName: nodeName(nodeOf(fleet, pod)),
    ...(plan.stateful ? { hostname: podName(fleet, plan, pod), subdomain: plan.name } : {}),
    schedulerName: 'default-scheduler',
    tolerations: [{ key: 'node.kubernetes.io/not-ready', operator: 'Exists', effect: 'NoExecute' }],
  };
}

export function rawPod(fleet: Fleet, plan: Plan, pod: number): Raw {
  const ready = isReady(fleet, pod);
  const ip = addressOf(pod);
  const kind = plan.stateful ? 'StatefulSet' : 'ReplicaSet';
  const owner = { apiVersion: 'apps/v1', kind, name: plan.name, uid: uid('owner', plan.number) };
  return {
    metadata: {
      name: podName(fleet, plan, pod),
      generateName: `${plan.name}-`,
      namespace: plan.namespace,
      uid: uid('pod', identity(fleet, pod)),
      resourceVersion: nextVersion(fleet),
      creationTimestamp: created,
      labels: podLabels(fleet, plan, pod),
      ownerReferences: [{ ...owner, controller: true, blockOwnerDeletion: true }],
    },
    spec: podSpec(fleet, plan, pod),
    status: {
      phase: 'Running',
      conditions: [
        condition('Initialized', true, null),
        condition('Ready', ready, null),
        condition('ContainersReady', ready, null),
        condition('PodScheduled', true, null),
      ],
      hostIP: '192.168.0.1',
      podIP: ip,
      podIPs: [{ ip }],
      startTime: created,
      containerStatuses: [{ name: 'app', ready, restartCount: 0, started: true, lastState: {} }],
      qosClass: 'Burstable',
    },
  };
}

const headless = (plan: Plan): Record<string, string> =>
  plan.stateful ? { 'service.kubernetes.io/headless': '' } : {};

const target = (fleet: Fleet, plan: Plan, pod: number): Raw => ({
  kind: 'Pod',
  namespace: plan.namespace,
  name: podName(fleet, plan, pod),
  uid: uid('pod', identity(fleet, pod)),
});

const hostname = (fleet: Fleet, plan: Plan, pod: number): Raw =>
  plan.stateful ? { hostname: podName(fleet, plan, pod) } : {};

const outputPorts = (plan: Plan): Raw[] =>
  plan.ports === 1
    ? [{ name: 'http', port: 8080, protocol: 'TCP' }]
    : [
        { name: 'http', port: 8080, protocol: 'TCP' },
        { name: 'metrics', port: 9090, protocol: 'TCP' },
      ];

/** Of more than 1,000 addresses, the ready ones go first and the first of those are kept. */
export function rawEndpoints(fleet: Fleet, plan: Plan): Raw {
  const pods = existing(fleet, plan);
  const ready = pods.filter((pod) => isReady(fleet, pod)).slice(0, capacity);
  const others = pods.filter((pod) => !isReady(fleet, pod)).slice(0, capacity - ready.length);
  const address = (pod: number): Raw => ({
    ip: addressOf(pod),
    ...hostname(fleet, plan, pod),
    nodeName: nodeName(nodeOf(fleet, pod)),
    targetRef: target(fleet, plan, pod),
  });
  const subset = {
    ...(ready.length === 0 ? {} : { addresses: ready.map(address) }),
    ...(others.length === 0 ? {} : { notReadyAddresses: others.map(address) }),
    ports: outputPorts(plan),
  };
  const truncated = pods.length > capacity;
  return {
    metadata: {
      name: plan.name,
      namespace: plan.namespace,
      uid: uid('endpoints', plan.number),
      resourceVersion: nextVersion(fleet),
      creationTimestamp: created,
      labels: {
        ...serviceLabels(plan),
        ...headless(plan),
        'endpoints.kubernetes.io/managed-by': 'endpoint-controller',
      },
      annotations: {
        'endpoints.kubernetes.io/last-change-trigger-time': changed,
        ...(truncated ? { 'endpoints.kubernetes.io/over-capacity': 'truncated' } : {}),
      },
    },
    ...(pods.length === 0 ? {} : { subsets: [subset] }),
  };
}

const slicesOf = (plan: Plan): number => Math.ceil(plan.pods / maxPerSlice);

/** The slice of a Service that lists this pod, if the pod exists. */
export const sliceOf = (plan: Plan, pod: number): number =>
  Math.floor((pod - plan.first) / maxPerSlice);

export function rawSlice(fleet: Fleet, plan: Plan, slice: number): Raw {
  const from = slice * maxPerSlice;
  const pods = existing(fleet, plan, from, Math.min(plan.pods, from + maxPerSlice));
  const number = plan.first + slice;
  const version = nextVersion(fleet);
  const owner = { apiVersion: 'v1', kind: 'Service', name: plan.name };
  return {
    metadata: {
      name: `${plan.name}-${suffix(number)}`,
      generateName: `${plan.name}-`,
      namespace: plan.namespace,
      uid: uid('slice', number),
      resourceVersion: version,
      generation: Number(version),
      creationTimestamp: created,
      labels: {
        ...serviceLabels(plan),
        ...headless(plan),
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        'kubernetes.io/service-name': plan.name,
      },
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': changed },
      ownerReferences: [
        { ...owner, uid: uid('service', plan.number), controller: true, blockOwnerDeletion: true },
      ],
    },
    addressType: 'IPv4',
    endpoints: pods.map((pod) => rawEndpoint(fleet, plan, pod)),
    ports: outputPorts(plan),
  };
}

function rawEndpoint(fleet: Fleet, plan: Plan, pod: number): Raw {
  const node = nodeOf(fleet, pod);
  const zone = zoneOf(fleet, node);
  const ready = isReady(fleet, pod);
  const hinted = plan.hints !== 'none' && ready;
  return {
    addresses: [addressOf(pod)],
    conditions: { ready, serving: ready, terminating: false },
    ...hostname(fleet, plan, pod),
    nodeName: nodeName(node),
    zone,
    targetRef: target(fleet, plan, pod),
    ...(hinted ? { hints: { forZones: [{ name: zone }] } } : {}),
  };
}

// Reads a whole fleet as a first list, then audits it: the cost of reading, caching and comparing.
// One run builds everything again; bench.ts starts each run in a process of its own, so that no run
// profits from code that another has warmed up or from strings that another has interned.

/** A fleet in the cache, audited, and the clock of the input in Unix seconds. */
export interface World {
  readonly fleet: Fleet;
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  now: number;
}

/** CPU seconds, samples by name. */
interface FleetSamples {
  readonly parsing: number[];
  readonly projecting: number[];
  readonly holding: number[];
  readonly auditing: number[];
  /** Heap bytes that each resource added, and the service auditor. */
  readonly bytes: Record<string, number[]>;
  /** Bytes of the objects as JSON. */
  readonly json: number;
}

const settleSeconds = 30;
const begun = 1_795_260_000;
const batchSize = 1000;

/** All objects of a resource as the API server would show them. */
export function* rawObjects(fleet: Fleet, resource: Resource): Generator<Raw> {
  if (resource === 'nodes') {
    for (let node = 0; node < fleet.shape.nodes; node++) yield rawNode(fleet, node);
    return;
  }
  for (const plan of fleet.plans) {
    if (resource === 'services') yield rawService(fleet, plan);
    else if (resource === 'endpoints') yield rawEndpoints(fleet, plan);
    else if (resource === 'pods') {
      for (let pod = plan.first; pod < plan.first + plan.pods; pod++)
        yield rawPod(fleet, plan, pod);
    } else for (let slice = 0; slice < slicesOf(plan); slice++) yield rawSlice(fleet, plan, slice);
  }
}

/** What a door makes of the text of an object. */
export function eventOf(
  store: Store,
  resource: Resource,
  type: WatchEvent['type'],
  raw: unknown,
  bytes: number,
  at: number,
): WatchEvent {
  const previousPod = store.listers.pods.get.bind(store.listers.pods);
  const projection = project(resource, raw, at, { previousPod, bytes });
  if (projection.problem !== undefined) throw new Error(projection.problem.message);
  return { resource, type, object: projection.object, at };
}

interface Spent {
  parsing: number;
  projecting: number;
  holding: number;
  json: number;
}

/** Takes in one batch of a first list; only parsing, projecting and holding are measured. */
function takeBatch(
  world: Omit<World, 'serviceAuditor'>,
  resource: Resource,
  raws: Raw[],
  spent: Spent,
): void {
  const { store } = world;
  const texts = raws.map((raw) => JSON.stringify(raw));
  const asked = cpuMicros();
  const parsed = texts.map((text): unknown => JSON.parse(text));
  const read = cpuMicros();
  const events = parsed.map((raw, index) => {
    world.now += 0.0001;
    return eventOf(store, resource, 'added', raw, texts[index]?.length ?? 0, world.now);
  });
  const projected = cpuMicros();
  for (const event of events) store.apply(event);
  const applied = cpuMicros();
  spent.parsing += (read - asked) / 1e6;
  spent.projecting += (projected - read) / 1e6;
  spent.holding += (applied - projected) / 1e6;
  for (const text of texts) spent.json += text.length;
}

function takeAll(world: Omit<World, 'serviceAuditor'>, resource: Resource, spent: Spent): void {
  let batch: Raw[] = [];
  for (const raw of rawObjects(world.fleet, resource)) {
    if (batch.push(raw) < batchSize) continue;
    takeBatch(world, resource, batch, spent);
    batch = [];
  }
  takeBatch(world, resource, batch, spent);
}

/** Open findings above information. In a correct fleet each of them is a bug. */
export function assertQuiet({ serviceAuditor, now }: World): void {
  serviceAuditor.settle.advance(now + settleSeconds + 1);
  const loud = serviceAuditor.settle.open().filter(({ severity }) => severity !== 'info');
  const [first] = loud;
  if (first === undefined) return;
  throw new Error(`${String(loud.length)} findings, the first: ${JSON.stringify(first)}`);
}

/** A full audit of what the store holds. */
function audit(world: Omit<World, 'serviceAuditor'>, samples: FleetSamples): World {
  const context: AuditContext = {
    listers: world.store.listers,
    release: newestRelease,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  const settle = createPendingFindings({ window: settleSeconds, keep: 0 });
  const serviceAuditor = createServiceAuditor({ context, settle });
  const asked = cpuMicros();
  runToEnd(serviceAuditor.begin(world.now));
  samples.auditing.push((cpuMicros() - asked) / 1e6);
  return Object.assign(world, { serviceAuditor });
}

/**
 * Builds a world and measures it on the way. The first audit is as a start of the program does it;
 * `again` more repeat it, each with a new auditor, and return the last one.
 */
export function buildWorld(fleet: Fleet, again: number): { world: World; samples: FleetSamples } {
  const spent: Spent = { parsing: 0, projecting: 0, holding: 0, json: 0 };
  const bytes: Record<string, number[]> = {};
  const world = { fleet, store: createStore(new Set(resources)), now: begun };
  let heap = heapBytes();
  const weigh = (name: string): void => {
    const before = heap;
    heap = heapBytes();
    bytes[name] = [heap - before];
  };
  for (const resource of ['nodes', 'services', 'pods', 'endpointslices', 'endpoints'] as const) {
    takeAll(world, resource, spent);
    weigh(resource);
  }
  const { parsing, projecting, holding, json } = spent;
  const samples: FleetSamples = {
    parsing: [parsing],
    projecting: [projecting],
    holding: [holding],
    auditing: [],
    bytes,
    json,
  };
  let audited = audit(world, samples);
  weigh('service audit');
  assertQuiet(audited);
  for (let count = 0; count < again; count++) audited = audit(world, samples);
  assertQuiet(audited);
  return { world: audited, samples };
}
