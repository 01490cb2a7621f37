// The faults of the live test, by class. The classes are those by which the auditor is tested on
// recorded states, and have their names here; harmless changes among them must not be found.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Version } from './binaries.ts';
import type { Found, Stage, Tally } from './auditor.ts';
import { awaitWritten, loudSince, report, textOf } from './auditor.ts';
import {
  addressing,
  bystander,
  createNodes,
  createService,
  crowded,
  inParallel,
  isLater,
} from './cluster.ts';
import type { Client, Thing } from './controlplane.ts';
import { awaitSettled } from './controlplane.ts';
import type { Address, Endpoints, Injected, Shape, Slice } from './faults.ts';
import {
  address,
  allReady,
  dual,
  endpoints,
  first,
  ghost,
  gone,
  headless,
  http,
  inEndpoints,
  inSlice,
  inject,
  managedBy,
  mirrored,
  named,
  namespace,
  notReadyIn,
  planOf,
  readyIn,
  serviceName,
  slice,
  sliceNamed,
  slicesIn,
  steered,
  surplus,
  terminating,
  toNotReady,
  two,
  without,
} from './faults.ts';

const inEndpointsObjects: readonly Injected[] = [
  endpoints('endpoints-address-missing', 'endpoints-address-missing', ({ subsets }) => {
    first(subsets).addresses?.shift();
  }),
  endpoints(
    'endpoints-address-of-another-pod',
    'endpoints-address-missing, endpoints-address-unexpected',
    (object) => {
      address(object).ip = '10.240.0.1';
    },
  ),
  endpoints('endpoints-address-of-deleted-pod', 'endpoints-address-unexpected', (object) => {
    const one = address(object);
    const targetRef = { ...one.targetRef, name: 'ghost', uid: gone };
    first(object.subsets).addresses?.push({ ...one, ip: '10.99.0.1', targetRef });
  }),
  endpoints(
    'endpoints-headless-label-missing',
    'endpoints-labels-different',
    ({ metadata }) => delete metadata.labels?.['service.kubernetes.io/headless'],
    { spec: headless },
  ),
  endpoints('endpoints-label-not-propagated', 'endpoints-labels-different', ({ metadata }) => {
    delete metadata.labels?.team;
  }),
  endpoints('endpoints-managed-by-label-missing', 'endpoints-labels-different', (object) => {
    delete object.metadata.labels?.['endpoints.kubernetes.io/managed-by'];
  }),
  endpoints('endpoints-node-name-wrong', 'endpoints-address-different', (object) => {
    address(object).nodeName = 'node-a0';
  }),
  endpoints('endpoints-not-ready-pod-shown-ready', 'endpoints-readiness-different', (object) => {
    const subset = first(object.subsets);
    subset.addresses = [...(subset.addresses ?? []), ...(subset.notReadyAddresses ?? [])];
    subset.notReadyAddresses = [];
  }),
  endpoints('endpoints-object-missing', 'endpoints-missing', null),
  endpoints(
    'endpoints-over-capacity-annotation-uncalled-for',
    'endpoints-over-capacity-different',
    ({ metadata }) => {
      metadata.annotations = { 'endpoints.kubernetes.io/over-capacity': 'truncated' };
    },
  ),
  endpoints(
    'endpoints-port-missing',
    'endpoints-ports-different',
    ({ subsets }) => void first(subsets).ports?.pop(),
    { spec: { ports: two } },
  ),
  endpoints('endpoints-port-number-wrong', 'endpoints-ports-different', ({ subsets }) => {
    first(first(subsets).ports).port += 1;
  }),
  endpoints('endpoints-ready-pod-stuck-not-ready', 'endpoints-readiness-different', (object) => {
    toNotReady(first(object.subsets));
  }),
  endpoints(
    'endpoints-secondary-family-listed',
    'endpoints-address-unexpected',
    (object) => {
      first(object.subsets).addresses?.push({ ...address(object), ip: 'fd00:10:99::1' });
    },
    dual,
  ),
  endpoints('endpoints-target-uid-of-predecessor', 'endpoints-address-different', (object) => {
    const one = address(object);
    one.targetRef = { ...one.targetRef, uid: gone };
  }),
];

/** One pod is missing in Endpoints, another in the slice. */
const disagreeing: Injected = {
  namespace,
  plan: planOf('endpoints-and-slices-disagree', allReady),
  finds: ['endpoints endpoints-address-missing', 'endpointslices slice-endpoint-missing'],
  async spoil(client) {
    const key = `${namespace}/endpoints-and-slices-disagree`;
    const undo = await inject(
      client,
      inEndpoints(key, '', '', ({ subsets }) => void first(subsets).addresses?.pop()),
    );
    const other = await inject(client, inSlice(key, '', '', without));
    return () => Promise.all([undo(), other()]);
  },
};

/** A pod is terminating or has ended, and its endpoint shows what it was before. */
const lateForPods: readonly Injected[] = [
  {
    namespace,
    plan: planOf('endpoints-terminating-pod-listed', terminating),
    finds: ['endpoints endpoints-address-unexpected'],
    async spoil(client) {
      const name = 'endpoints-terminating-pod-listed';
      const { endpoints } = await sliceNamed(client, name);
      const ending = first(endpoints?.filter((one) => one.conditions.terminating === true));
      const fault = inEndpoints(`${namespace}/${name}`, '', '', (object) => {
        const { nodeName = '', targetRef = {} } = ending;
        first(object.subsets).addresses?.push({ ip: first(ending.addresses), nodeName, targetRef });
      });
      return inject(client, fault);
    },
  },
  slice(
    'slice-ready-true-for-terminating-pod',
    'slice-conditions-different',
    (object) => {
      const ending = object.endpoints?.filter((one) => one.conditions.terminating === true);
      first(ending).conditions.ready = true;
    },
    terminating,
  ),
  slice(
    'slice-terminating-not-shown',
    'slice-conditions-different',
    (object) => {
      const ending = object.endpoints?.filter((one) => one.conditions.terminating === true);
      first(ending).conditions.terminating = false;
    },
    terminating,
  ),
  {
    namespace,
    plan: planOf('slice-terminal-pod-ready', { pods: { states: ['ready', 'failed'] } }),
    finds: ['endpointslices slice-endpoint-unexpected'],
    async spoil(client) {
      const name = 'slice-terminal-pod-ready';
      const pod = await client.call('GET', `/api/v1/namespaces/${namespace}/pods/${name}-1`);
      const { metadata, status } = pod as Thing & { status: { podIP: string } };
      const fault = inSlice(`${namespace}/${name}`, '', '', (object) => {
        const one = readyIn(object);
        const targetRef = { ...one.targetRef, name: `${name}-1`, uid: String(metadata.uid) };
        object.endpoints?.push({ ...one, addresses: [status.podIP], targetRef });
      });
      return inject(client, fault);
    },
  },
];

const inConditions: readonly Injected[] = [
  slice('slice-conditions-missing', 'slice-conditions-different', (object) => {
    readyIn(object).conditions = {};
  }),
  slice(
    'slice-not-ready-despite-publish-not-ready',
    'slice-conditions-different',
    (object) => {
      readyIn(object).conditions.ready = false;
    },
    { spec: { publishNotReadyAddresses: true } },
  ),
  slice('slice-ready-and-serving-false-for-ready-pod', 'slice-conditions-different', (object) => {
    Object.assign(readyIn(object).conditions, { ready: false, serving: false });
  }),
  slice('slice-ready-false-for-ready-pod', 'slice-conditions-different', (object) => {
    readyIn(object).conditions.ready = false;
  }),
  slice('slice-ready-true-for-not-ready-pod', 'slice-conditions-different', (object) => {
    Object.assign(notReadyIn(object).conditions, { ready: true, serving: true });
  }),
  slice('slice-serving-wrong', 'slice-conditions-different', (object) => {
    readyIn(object).conditions.serving = false;
  }),
  slice('slice-terminating-for-living-pod', 'slice-conditions-different', (object) => {
    readyIn(object).conditions.terminating = true;
  }),
];

const inEndpointsOfSlices: readonly Injected[] = [
  slice(
    'slice-address-of-another-pod',
    'slice-endpoint-missing, slice-endpoint-unexpected',
    (object) => {
      readyIn(object).addresses = ['10.240.0.1'];
    },
  ),
  slice('slice-address-stale', 'slice-endpoint-missing, slice-endpoint-unexpected', (object) => {
    readyIn(object).addresses = ['10.99.0.1'];
  }),
  slice('slice-all-missing', 'slice-endpoint-missing', null),
  slice('slice-endpoint-missing', 'slice-endpoint-missing', without),
  slice('slice-endpoint-of-deleted-pod', 'slice-endpoint-unexpected', (object) => {
    object.endpoints?.push(ghost(readyIn(object)));
  }),
  slice('slice-family-missing', 'slice-endpoint-missing', null, { ...dual, type: 'IPv6' }),
  slice(
    'slice-hostname-missing',
    'slice-endpoint-different',
    (object) => delete readyIn(object).hostname,
    named,
  ),
  slice('slice-hostname-uncalled-for', 'slice-endpoint-different', (object) => {
    readyIn(object).hostname = 'uncalled-for';
  }),
  slice(
    'slice-hostname-wrong',
    'slice-endpoint-different',
    (object) => void (readyIn(object).hostname = 'wrong'),
    named,
  ),
  slice(
    'slice-missing',
    'slice-endpoint-missing',
    null,
    // Two slices, since the pods have different ports.
    {
      spec: { ports: [{ name: 'http', port: 80, targetPort: 'http' }] },
      pods: {
        states: ['ready'],
        ports: (index) => [{ name: 'http', containerPort: 8080 + (index % 2) }],
      },
    },
  ),
  slice('slice-node-name-missing', 'slice-endpoint-different', (object) => {
    delete readyIn(object).nodeName;
  }),
  slice('slice-node-name-wrong', 'slice-endpoint-different', (object) => {
    const one = readyIn(object);
    one.nodeName = one.nodeName?.endsWith('1') === true ? 'node-a2' : 'node-a1';
  }),
  slice('slice-pod-not-selected', 'slice-endpoint-unexpected', (object) => {
    const one = readyIn(object);
    const { namespace, name } = bystander;
    object.endpoints?.push({
      ...one,
      addresses: ['10.240.0.1'],
      targetRef: { ...one.targetRef, namespace, name, uid: gone },
    });
  }),
  slice('slice-target-ref-missing', 'slice-endpoint-different', (object) => {
    delete readyIn(object).targetRef;
  }),
  slice('slice-target-uid-of-predecessor', 'slice-endpoint-different', (object) => {
    const one = readyIn(object);
    one.targetRef = { ...one.targetRef, uid: gone };
  }),
  slice('slice-zone-missing', 'slice-endpoint-different', (object) => {
    delete readyIn(object).zone;
  }),
  slice('slice-zone-wrong', 'slice-endpoint-different', (object) => {
    readyIn(object).zone = 'zone-z';
  }),
];

const placeholder: Injected = {
  namespace,
  plan: planOf('slice-placeholder-missing', { pods: null, spec: { selector: { app: 'nobody' } } }),
  finds: ['endpointslices slice-placeholder-missing'],
  async spoil(client) {
    const { metadata } = await sliceNamed(client, 'slice-placeholder-missing');
    const at = () => Promise.resolve(`${slicesIn}/${metadata.name}`);
    return inject(client, { title: '', finds: [], at, change: null });
  },
};

const inPorts: readonly Injected[] = [
  slice(
    'slice-app-protocol-missing',
    'slice-ports-different',
    ({ ports }) => delete first(ports).appProtocol,
    { spec: { ports: [{ ...http[0], appProtocol: 'kubernetes.io/h2c' }] } },
  ),
  slice('slice-app-protocol-uncalled-for', 'slice-ports-different', ({ ports }) => {
    first(ports).appProtocol = 'kubernetes.io/ws';
  }),
  slice('slice-port-extra', 'slice-ports-different', ({ ports }) => {
    ports.push({ name: 'extra', port: 9999, protocol: 'TCP' });
  }),
  slice('slice-port-missing', 'slice-ports-different', ({ ports }) => void ports.pop(), {
    spec: { ports: two },
  }),
  slice('slice-port-name-wrong', 'slice-ports-different', ({ ports }) => {
    first(ports).name = 'wrong';
  }),
  slice('slice-port-number-wrong', 'slice-ports-different', ({ ports }) => {
    first(ports).port += 1;
  }),
  slice('slice-port-protocol-wrong', 'slice-ports-different', ({ ports }) => {
    first(ports).protocol = 'UDP';
  }),
];

const inMetadata: readonly Injected[] = [
  slice(
    'slice-headless-label-missing',
    'slice-labels-different',
    ({ metadata }) => delete metadata.labels?.['service.kubernetes.io/headless'],
    { spec: headless },
  ),
  slice('slice-headless-label-uncalled-for', 'slice-labels-different', ({ metadata }) => {
    metadata.labels = { ...metadata.labels, 'service.kubernetes.io/headless': '' };
  }),
  slice('slice-managed-by-wrong', 'slice-endpoint-missing', ({ metadata }) => {
    metadata.labels = { ...metadata.labels, [managedBy]: 'somebody.example.com' };
  }),
  slice('slice-owned-by-old-service-uid', 'slice-owner-different', ({ metadata }) => {
    metadata.ownerReferences =
      metadata.ownerReferences?.map((one) => ({ ...one, uid: gone })) ?? [];
  }),
  slice('slice-owner-reference-missing', 'slice-owner-different', ({ metadata }) => {
    delete metadata.ownerReferences;
  }),
  slice('slice-propagated-label-missing', 'slice-labels-different', ({ metadata }) => {
    delete metadata.labels?.team;
  }),
  slice('slice-propagated-label-stale', 'slice-labels-different', ({ metadata }) => {
    metadata.labels = { ...metadata.labels, earlier: 'label' };
  }),
  slice(
    'slice-service-name-label-missing',
    'slice-endpoint-missing, slice-labels-different',
    ({ metadata }) => {
      delete metadata.labels?.[serviceName];
    },
  ),
  slice(
    'slice-service-name-label-wrong',
    'slice-endpoint-missing, slice-labels-different',
    ({ metadata }) => {
      metadata.labels = { ...metadata.labels, [serviceName]: 'somebody' };
    },
  ),
];

const inHints = (later: boolean): readonly Injected[] => [
  slice('hint-half-assigned', 'slice-hints-different', (object) => delete readyIn(object).hints, {
    annotations: { 'service.kubernetes.io/topology-mode': 'Auto' },
    pods: { states: ['ready'], count: 12 },
  }),
  slice(
    'hint-missing',
    'slice-hints-different',
    (object) => delete readyIn(object).hints,
    steered('PreferClose'),
  ),
  ...(later
    ? [
        slice(
          'hint-node-missing',
          'slice-hints-different',
          (object) => delete readyIn(object).hints?.forNodes,
          steered('PreferSameNode'),
        ),
      ]
    : []),
  slice('hint-uncalled-for', 'slice-hints-different', (object) => {
    const one = readyIn(object);
    one.hints = { forZones: [{ name: one.zone ?? '' }] };
  }),
  slice(
    'hint-wrong-zone',
    'slice-hints-different',
    (object) => void (readyIn(object).hints = { forZones: [{ name: 'zone-z' }] }),
    steered('PreferClose'),
  ),
];

const wrongSurplus: readonly Injected[] = [
  surplus(
    'slice-duplicate-endpoint-conflicting-conditions',
    'slice-duplicate-conflicting',
    (object) => {
      object.endpoints = [{ ...readyIn(object), conditions: { ready: false } }];
    },
  ),
  surplus('slice-extra-stale-ports', 'slice-endpoint-unexpected', (object) => {
    first(object.ports).port += 1000;
  }),
  surplus('slice-extra-unknown-endpoints', 'slice-endpoint-unexpected', (object) => {
    object.endpoints = [ghost(readyIn(object))];
  }),
  surplus(
    'slice-of-unsupported-family',
    'slice-endpoint-unexpected, slice-family-unexpected',
    (object) => {
      object.addressType = 'IPv6';
      object.endpoints = [{ ...readyIn(object), addresses: ['fd00:10:99::1'] }];
    },
  ),
];

/** Two slices become one of more endpoints than the controller puts into one. */
const oversized: Injected = {
  namespace,
  plan: planOf('slice-over-100-endpoints', { pods: { count: 104, states: ['ready'] } }),
  finds: ['endpointslices slice-oversized'],
  async spoil(client) {
    const name = 'slice-over-100-endpoints';
    const query = `?labelSelector=${serviceName}=${name}`;
    const list = await client.call('GET', slicesIn + query);
    const items = (list as { items: Injectable[] }).items;
    const [big, small] = items.sort((a, b) => b.endpoints.length - a.endpoints.length);
    if (big === undefined || small === undefined) throw new Error('There is only one slice');
    const at = (one: Injectable) => () => Promise.resolve(`${slicesIn}/${one.metadata.name}`);
    const undoFirst = await inject(client, {
      title: '',
      finds: [],
      at: at(big),
      change: (object) => void (object as Injectable).endpoints.push(...small.endpoints),
    });
    const undoSecond = await inject(client, { title: '', finds: [], at: at(small), change: null });
    return () => Promise.all([undoFirst(), undoSecond()]);
  },
};

interface Injectable extends Thing {
  endpoints: unknown[];
}

const inMirrored: readonly Injected[] = [
  slice(
    'mirror-address-extra',
    'mirror-endpoint-unexpected',
    ({ endpoints }) =>
      void endpoints?.push({ addresses: ['192.0.2.9'], conditions: { ready: true } }),
    mirrored,
  ),
  slice('mirror-address-missing', 'mirror-endpoint-missing', without, mirrored),
  slice(
    'mirror-label-not-propagated',
    'mirror-labels-different',
    ({ metadata }) => delete metadata.labels?.team,
    mirrored,
  ),
  slice(
    'mirror-not-ready-shown-ready',
    'mirror-conditions-different',
    (object) => void (notReadyIn(object).conditions.ready = true),
    mirrored,
  ),
  slice(
    'mirror-owner-uid-of-old-endpoints',
    'mirror-owner-different',
    ({ metadata }) => {
      const owners = metadata.ownerReferences ?? [];
      metadata.ownerReferences = owners.map((one) => ({ ...one, uid: gone }));
    },
    mirrored,
  ),
  slice(
    'mirror-port-wrong',
    'mirror-ports-different',
    ({ ports }) => void (first(ports).port += 1),
    mirrored,
  ),
  slice(
    'mirror-ready-shown-not-ready',
    'mirror-conditions-different',
    (object) => void (readyIn(object).conditions.ready = false),
    mirrored,
  ),
  slice('mirror-slice-missing', 'mirror-endpoint-missing', null, mirrored),
  endpoints(
    'mirror-despite-leader-annotation',
    'mirrored mirror-slice-unexpected',
    ({ metadata }) => {
      metadata.annotations = { 'control-plane.alpha.kubernetes.io/leader': '{}' };
    },
    mirrored,
  ),
  endpoints(
    'mirror-despite-skip-label',
    'mirrored mirror-slice-unexpected',
    ({ metadata }) => {
      metadata.labels = { 'endpointslice.kubernetes.io/skip-mirror': 'true' };
    },
    mirrored,
  ),
  {
    namespace,
    plan: planOf('mirror-slice-survives-endpoints-deletion', mirrored),
    finds: ['mirrored mirror-slice-unexpected'],
    async spoil(client) {
      const name = 'mirror-slice-survives-endpoints-deletion';
      const { metadata } = await sliceNamed(client, name);
      await client.call('DELETE', `/api/v1/namespaces/${namespace}/endpoints/${name}`);
      return () => client.call('DELETE', `${slicesIn}/${metadata.name}`);
    },
  },
];

const harmless: readonly Injected[] = [
  slice('foreign-annotation', '', ({ metadata }) => {
    metadata.annotations = { ...(metadata.annotations as object), 'example.com/note': 'a note' };
  }),
  slice('order-shuffled', '', ({ endpoints }) => void endpoints?.reverse()),
  slice('target-ref-resource-version', '', (object) => {
    const one = readyIn(object);
    one.targetRef = { ...one.targetRef, resourceVersion: '1' };
  }),
  slice('trigger-time-annotation-differs', '', ({ metadata }) => {
    const time = '2020-01-01T00:00:00Z';
    metadata.annotations = { 'endpoints.kubernetes.io/last-change-trigger-time': time };
  }),
  slice('trigger-time-annotation-absent', '', ({ metadata }) => delete metadata.annotations),
  surplus('slice-duplicate-endpoint-equal-conditions', '', (object) => {
    object.endpoints = [readyIn(object)];
  }),
  slice(
    'hint-auto-removed-from-all',
    '',
    ({ endpoints }) => {
      for (const one of endpoints ?? []) delete one.hints;
    },
    {
      annotations: { 'service.kubernetes.io/topology-mode': 'Auto' },
      pods: { states: ['ready'], count: 12 },
    },
  ),
  surplus('slice-extra-empty', '', (object) => {
    object.endpoints = [];
  }),
  surplus('slice-of-another-manager', '', (object) => {
    object.metadata = {
      name: object.metadata.name,
      labels: { ...object.metadata.labels, [managedBy]: 'somebody.example.com' },
    };
  }),
  slice(
    'mirror-serving-filled-in',
    '',
    (object) => void (readyIn(object).conditions.serving = true),
    mirrored,
  ),
];

interface Pod extends Thing {
  spec: { nodeName: string };
  status: { podIP: string };
}

/** Other slices hold some of the endpoints of a slice, or all, in its place. */
function moved(name: string, count: number): Injected {
  const shape = { pods: { states: ['ready'] as const } };
  const { plan, spoil } = surplus(
    name,
    '',
    (object) => {
      object.endpoints = object.endpoints?.slice(0, count) ?? [];
    },
    shape,
  );
  return {
    namespace,
    plan,
    finds: [],
    async spoil(client) {
      const { metadata, endpoints } = await sliceNamed(client, name);
      const isAll = endpoints?.length === count;
      const at = () => Promise.resolve(`${slicesIn}/${metadata.name}`);
      const change = (object: Thing): void => {
        (object as Slice).endpoints?.splice(0, count);
      };
      const undoOther = await spoil(client);
      const fault = { title: name, finds: [], at, change: isAll ? null : change };
      const undo = await inject(client, fault);
      return async () => {
        await undo();
        await undoOther();
      };
    },
  };
}

/** An object of the user's is changed in a way that the controllers leave as it is. */
function patched(
  name: string,
  path: string,
  there: object,
  back: object,
  shape: Shape = {},
): Injected {
  return {
    namespace,
    plan: planOf(name, shape),
    finds: [],
    async spoil({ call }) {
      await call('PATCH', path, there);
      return () => call('PATCH', path, back);
    },
  };
}

const within = `/api/v1/namespaces/${namespace}`;

const leftAlone: readonly Injected[] = [
  moved('slices-not-packed', 1),
  moved('slice-name-suffix-and-generation-differ', 4),
  // Its Ready condition stays as it is, which is all that the controllers look at.
  patched(
    'slice-terminal-pod-not-ready',
    `${within}/pods/slice-terminal-pod-not-ready-2/status`,
    { status: { phase: 'Failed' } },
    { status: { phase: 'Running' } },
  ),
  patched(
    'leftovers-after-external-name',
    `${within}/services/leftovers-after-external-name`,
    {
      spec: {
        type: 'ExternalName',
        externalName: 'example.com',
        clusterIP: null,
        clusterIPs: null,
      },
    },
    { spec: { type: 'ClusterIP', externalName: null } },
  ),
];

/** A Service that selects more pods than Endpoints hold; the fleet has as many. */
function crowd(
  name: string,
  found: string | null,
  spoilt: (object: Endpoints, client: Client) => void | Promise<void>,
): Injected {
  return {
    namespace: crowded,
    plan: { name, spec: { ports: http, selector: { fleet: 'all' } } },
    finds: found === null ? [] : [`endpoints ${found}`],
    spoil: (client) =>
      inject(client, {
        title: name,
        finds: [],
        at: () => Promise.resolve(`/api/v1/namespaces/${crowded}/endpoints/${name}`),
        change: (object, client) => spoilt(object as Endpoints, client),
      }),
  };
}

const overCapacity = 'endpoints-over-capacity-different';

/** The addresses that Endpoints have no room for. */
async function truncatedOf({ subsets }: Endpoints, { call }: Client): Promise<Address[]> {
  const listed = new Set(first(subsets).addresses?.map(({ ip }) => ip));
  const path = `/api/v1/namespaces/${crowded}/pods?labelSelector=fleet=all`;
  const { items } = (await call('GET', path)) as { items: Pod[] };
  const left = items.filter(({ status }) => !listed.has(status.podIP));
  return left.map(({ metadata, spec, status }) => {
    const { name, uid } = metadata;
    const targetRef = { kind: 'Pod', namespace: crowded, name, uid: String(uid) };
    return { ip: status.podIP, nodeName: spec.nodeName, targetRef };
  });
}

const crowds: readonly Injected[] = [
  crowd('endpoints-over-1000-not-truncated', overCapacity, async (object, client) => {
    object.metadata.annotations = {};
    first(object.subsets).addresses?.push(...(await truncatedOf(object, client)));
  }),
  // Which of the addresses are left is arbitrary.
  crowd('endpoints-truncation-other-subset-chosen', null, async (object, client) => {
    const { addresses } = first(object.subsets);
    addresses?.splice(0, 3, ...(await truncatedOf(object, client)).slice(0, 3));
  }),
  crowd('endpoints-over-capacity-annotation-missing', overCapacity, ({ metadata }) => {
    delete metadata.annotations;
  }),
];

/** `isCrowded`: whether the fleet has more than a thousand pods in one namespace. */
export const injectedFor = (version: Version, isCrowded: boolean): readonly Injected[] => [
  ...inEndpointsObjects,
  disagreeing,
  ...lateForPods,
  ...inConditions,
  ...inEndpointsOfSlices,
  placeholder,
  ...inPorts,
  ...inMetadata,
  ...inHints(isLater(version)),
  ...wrongSurplus,
  oversized,
  ...inMirrored,
  ...harmless,
  ...leftAlone,
  ...(isCrowded ? crowds : []),
];

// Faults in a live cluster: with the controllers asleep, objects are spoilt one after the other,
// each at a Service of its own. Each must be found within the settle window and two seconds, by the
// clock of the test, and be gone within two seconds of the repair; harmless changes never. The time
// in which the auditor or the test waited for a CPU does not count: that is the machine's.

/** Seconds from the settle window until a fault is found, and from its repair until it is gone. */
const promise = 2;

/** From one fault to the next: so that not everything is to be confirmed in one moment. */
const apart = 200;

/** What became of a fault; seconds. */
interface Outcome {
  readonly injected: Injected;
  readonly foundAfter: number | null;
  readonly goneAfter: number | null;
  /** Without a CPU, until it was found, and until it was gone. */
  readonly waited: { readonly found: number; readonly gone: number };
  /** The last finding while the fault existed. */
  readonly got: readonly string[];
}

/** The open findings at a moment between two times. */
interface Look {
  readonly askedAt: number;
  readonly at: number;
  /** Seconds without a CPU until then. */
  readonly waited: number;
  readonly standing: readonly Found[];
}

const isSame = (a: readonly string[], b: readonly string[]): boolean => a.join() === b.join();

function own({ namespace, plan }: Injected, { standing }: Look): string[] {
  const its = standing.filter((one) => one.namespace === namespace && one.service === plan.name);
  return [...new Set(its.map(({ output, code }) => `${output} ${code}`))].sort();
}

async function play(stage: Stage, injected: Injected, look: () => Promise<Look>): Promise<Outcome> {
  const { client, settle, auditor } = stage;
  const undo = await injected.spoil(client);
  const spoiltAt = performance.now();
  const waitedBefore = auditor.waitedSeconds();
  let waited = 0;
  let waitedFound = 0;
  let foundAfter: number | null = null;
  let got: readonly string[] = [];
  // The test also waits for further findings, and where there may be none. The last look begins
  // after the time that the auditor has, which the time without a CPU extends.
  for (let asked = 0; asked < settle + promise + 1 + waited;) {
    const seen = await look();
    asked = (seen.askedAt - spoiltAt) / 1000;
    waited = seen.waited - waitedBefore;
    got = own(injected, seen);
    if (foundAfter !== null || got.length === 0 || !isSame(got, injected.finds)) continue;
    foundAfter = (seen.at - spoiltAt) / 1000;
    waitedFound = waited;
  }
  await undo();
  const undoneAt = performance.now();
  const waitedUndone = auditor.waitedSeconds();
  for (;;) {
    const seen = await look();
    const [asked, after] = [(seen.askedAt - undoneAt) / 1000, (seen.at - undoneAt) / 1000];
    const gone = seen.waited - waitedUndone;
    // A look that had begun before does not count.
    const isGone = asked > 0 && own(injected, seen).length === 0;
    if (isGone || asked > promise + 10 + gone) {
      const found = foundAfter === null ? waited : waitedFound;
      const goneAfter = isGone ? after : null;
      return { injected, foundAfter, goneAfter, waited: { found, gone }, got };
    }
  }
}

function reportOutcome(tally: Tally, settle: number, outcome: Outcome): void {
  const { injected, foundAfter, goneAfter, waited, got } = outcome;
  const { plan, finds } = injected;
  const most = { found: settle + promise + waited.found, gone: promise + waited.gone };
  const wrong: string[] = [];
  if (!isSame(got, finds)) {
    wrong.push(`expected ${finds.join(', ') || 'nothing'}; found ${got.join(', ') || 'nothing'}`);
  }
  const [found, gone] = [foundAfter, goneAfter].map((after) =>
    after === null ? 'never' : `after ${after.toFixed(2)} s`,
  );
  if (finds.length > 0) {
    if (foundAfter === null || foundAfter > most.found) {
      wrong.push(`found ${found}, without a CPU for ${waited.found.toFixed(2)} s`);
    }
  }
  if (goneAfter === null || goneAfter > most.gone) {
    wrong.push(`gone ${gone}, without a CPU for ${waited.gone.toFixed(2)} s`);
  }
  const what = finds.length === 0 ? 'nothing' : `${finds.join(', ')} ${found}, gone ${gone}`;
  report(tally, `${plan.name}: ${what}`, wrong);
}

/** One request at a time answers every caller that asks for the open findings. */
function lookerOf({ auditor }: Stage): () => Promise<Look> {
  let latest: Promise<Look> | null = null;
  const look = async (): Promise<Look> => {
    await sleep(50);
    latest = null;
    const askedAt = performance.now();
    const { standing } = await auditor.findings();
    return { askedAt, at: performance.now(), waited: auditor.waitedSeconds(), standing };
  };
  return () => (latest ??= look());
}

/** The Services of faults that are still to be made, as the controllers want them. */
export async function createFaulty(client: Client, all: readonly Injected[]): Promise<void> {
  const addresses = addressing(2);
  await createNodes(client);
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: 'faults' } });
  await inParallel(all, 8, ({ namespace, plan }) =>
    createService(client, namespace, plan, addresses),
  );
  await awaitSettled(client);
}

/** `isCrowded`: whether more than a thousand pods are in one namespace. */
export async function checkFaults(stage: Stage, isCrowded: boolean): Promise<void> {
  const { plane, client, tally, auditor, settle } = stage;
  const all = injectedFor(plane.version, isCrowded);
  await createFaulty(client, all);
  await awaitWritten(stage);
  await plane.pauseControllerManager();
  const from = Date.now() / 1000;
  const errorsBefore = await auditor.metric('watch_errors_total');
  const look = lookerOf(stage);
  const outcomes = await Promise.all(
    all.map(async (injected, index) => {
      await sleep(index * apart);
      return play(stage, injected, look);
    }),
  );
  for (const outcome of outcomes) reportOutcome(tally, settle, outcome);
  const errors = (await auditor.metric('watch_errors_total')) - errorsBefore;
  report(tally, 'faults: no watch ended in an error', errors > 0 ? [`${errors} errors`] : []);
  plane.resumeControllerManager();
  // A Service with this many pods would be late with most later changes.
  for (const { namespace, plan } of all) {
    if (namespace !== crowded) continue;
    await client.call('DELETE', `/api/v1/namespaces/${namespace}/services/${plan.name}`);
  }
  await awaitSettled(client);
  const known = new Set(all.map(({ namespace, plan }) => `${namespace}/${plan.name}`));
  const others = (await loudSince(auditor, from)).filter(
    ({ namespace, service, resolvedAt }) =>
      resolvedAt === null || !known.has(`${namespace}/${service}`),
  );
  report(tally, 'faults: nothing else is found, nothing stays', others.map(textOf));
}
