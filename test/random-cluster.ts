// Random small clusters for property tests: few names and values, so that objects meet. Selected
// pods share addresses, slices name other Services, Nodes come and go, and now and then a sync
// writes what the controllers would write, so that much is as expected too.

import fc from 'fast-check';

import type { AuditContext } from '../src/audit/service/cache.ts';
import type { Store } from '../src/cluster/store/store.ts';
import type {
  AnyObject,
  Endpoint,
  Endpoints,
  EndpointSlice,
  Labels,
  Node,
  Pod,
  Port,
  Resource,
  Service,
  Listers,
  WatchEvent,
} from '../src/model/objects.ts';
import { annotation, label, manager, portMapKey } from '../src/model/objects.ts';
import { selects } from '../src/model/selector.ts';
import { expectedAddress, expectedLabels, isSelected } from '../src/shadow/endpoints.ts';
import {
  addressTypesOf,
  expectedEndpoints,
  expectedSliceLabels,
} from '../src/shadow/endpointslice.ts';
import { expectedHints, hintMode } from '../src/shadow/hints.ts';
import {
  expectedMirror,
  expectedMirrorAnnotations,
  expectedMirrorLabels,
  isMirrored,
} from '../src/shadow/mirroring.ts';
import type { Release } from '../src/shadow/release.ts';
import {
  address,
  endpoint,
  endpoints,
  event,
  node,
  owner,
  pod,
  port,
  resourceOf,
  service as serviceOf,
  servicePort,
  slice,
  subset,
} from './build.ts';

/** What happens to the cluster at one moment. */
export type Step =
  | { readonly kind: 'put'; readonly object: AnyObject }
  | { readonly kind: 'delete'; readonly resource: Resource; readonly key: string }
  | { readonly kind: 'sync'; readonly key: string };

const { constantFrom, boolean, record, option, oneof, array, subarray } = fc;
const nullable = <T>(one: fc.Arbitrary<T>): fc.Arbitrary<T | null> => option(one, { nil: null });
const mostly = <T>(usual: T, ...others: T[]): fc.Arbitrary<T> =>
  oneof({ weight: 4, arbitrary: fc.constant(usual) }, constantFrom(usual, ...others));

const namespaces = mostly('shop', 'bank');
const serviceNames = constantFrom('web', 'api');
const podNames = constantFrom('pod-1', 'pod-2', 'pod-3');
const nodeNames = constantFrom('node-a', 'node-b', 'node-c');
const ips = constantFrom(
  '10.0.0.1',
  '10.0.0.2',
  '10.0.0.3',
  '10.0.0.03',
  'fd00::1',
  '::ffff:10.0.0.2',
);
const zones = constantFrom('zone-a', 'zone-b', '');

/** Lists by reference, as the door interns them. */
const portLists: readonly Pod['ports'][] = [
  [],
  [{ name: 'http', protocol: 'TCP', port: 8080, sidecar: false }],
  [{ name: 'http', protocol: 'TCP', port: 9090, sidecar: true }],
];

const podLabels = constantFrom<Labels>(
  { app: 'web' },
  { app: 'api' },
  { app: 'web', tier: 'x' },
  { tier: 'x' },
  {},
);

const selectors = constantFrom<Labels | null>(
  { app: 'web' },
  { app: 'web' },
  { app: 'api' },
  { tier: 'x' },
  { app: 'web', tier: 'x' },
  null,
);

const slicePorts: readonly (readonly Port[])[] = [
  [port()],
  [port({ port: 9090 })],
  [port({ name: '' })],
  [],
];

/** No two pods have one uid; a second pod of one name has another. */
function podUid(of: { namespace: string; name: string; second: boolean }): string {
  return `uid-${of.namespace}-${of.name}${of.second ? '-second' : ''}`;
}

const pods: fc.Arbitrary<Pod> = record({
  namespace: namespaces,
  name: podNames,
  second: mostly(false, true),
  labels: podLabels,
  node: mostly('node-a', 'node-b', 'node-c', ''),
  hostNetwork: mostly(false, true),
  hostname: mostly('', 'pod-1'),
  subdomain: mostly('', 'web'),
  ports: constantFrom(...portLists),
  terminal: mostly(false, true),
  deleting: mostly(false, true),
  ready: boolean(),
  ips: array(ips, { maxLength: 2 }),
  ipsSince: constantFrom(1, 2, 3),
}).map(({ second, ...fields }) => pod({ ...fields, uid: podUid({ ...fields, second }) }));

const services: fc.Arbitrary<Service> = record({
  namespace: namespaces,
  deleting: mostly(false, true),
  name: serviceNames,
  second: mostly(false, true),
  labels: constantFrom<Labels>({}, { team: 'a' }, { [label.headless]: '' }),
  selector: selectors,
  type: mostly<Service['type']>('ClusterIP', 'ExternalName'),
  clusterIP: mostly('10.96.0.1', 'None', ''),
  publishNotReadyAddresses: mostly(false, true),
  ipFamilies: mostly<readonly string[]>(['IPv4'], ['IPv6'], ['IPv4', 'IPv6'], []),
  targetPort: mostly<number | string>(8080, 'http', 9090),
  portless: mostly(false, true),
  trafficDistribution: mostly(null, 'PreferClose', 'PreferSameNode'),
  topologyAuto: mostly(false, true),
}).map(({ second, targetPort, portless, ...fields }) => {
  const one = servicePort({ targetPort });
  const uid = `uid-${fields.name}${second ? '-second' : ''}`;
  return serviceOf({ ...fields, uid, ports: portless ? [] : [one] });
});

const nodes: fc.Arbitrary<Node> = record({
  name: nodeNames,
  zone: zones,
  ready: mostly(true, false),
  controlPlane: mostly(false, true),
  cpuMillis: mostly(4000, 1000, 0),
}).map((fields) => node(fields));

const targets = nullable(
  record({ namespace: namespaces, name: podNames, second: mostly(false, true) }).map(
    ({ namespace, name, second }) => ({
      kind: 'Pod',
      namespace,
      name,
      uid: podUid({ namespace, name, second }),
    }),
  ),
);

const subsets = record({
  addresses: array(
    record({
      ip: ips,
      ready: boolean(),
      node: nullable(nodeNames),
      hostname: mostly('', 'pod-1'),
      target: targets,
    }),
    { minLength: 1, maxLength: 3 },
  ),
  ports: constantFrom(...slicePorts),
}).map(({ addresses, ports }) =>
  subset(
    addresses.map((one) => ({ ...one, ports })),
    ports,
  ),
);

const writtenEndpoints: fc.Arbitrary<Endpoints> = record({
  namespace: namespaces,
  deleting: mostly(false, true),
  name: serviceNames,
  labels: constantFrom<Labels>(
    {},
    { [label.endpointsManagedBy]: manager.endpoints },
    { [label.skipMirror]: 'true' },
  ),
  annotations: mostly<Labels>({}, { note: 'x' }, { [annotation.leader]: 'x' }),
  subsets: array(subsets, { maxLength: 2 }),
  bytes: mostly<number | null>(null, 1_500_000),
}).map((fields) => endpoints(fields));

const sliceEndpoint: fc.Arbitrary<Endpoint> = record({
  addresses: array(ips, { minLength: 1, maxLength: 2 }),
  ready: nullable(boolean()),
  serving: nullable(boolean()),
  terminating: mostly<boolean | null>(false, true, null),
  hostname: mostly<string | null>(null, 'pod-1'),
  node: nullable(nodeNames),
  zone: nullable(constantFrom('zone-a', 'zone-b')),
  target: targets,
  forZones: mostly<readonly string[] | null>(null, ['zone-a'], ['zone-x']),
  forNodes: mostly<readonly string[] | null>(null, ['node-a']),
}).map((fields) => endpoint(fields));

const writtenSlices: fc.Arbitrary<EndpointSlice> = record({
  namespace: namespaces,
  deleting: mostly(false, true),
  name: constantFrom('s1', 's2', 's3'),
  generation: constantFrom(1, 2, 3),
  managedBy: mostly(manager.slices, manager.mirroring, 'somebody', null),
  serviceName: mostly<string | null>('web', 'api', null),
  owners: subarray([
    owner(),
    owner({ uid: 'uid-web-second' }),
    owner({ name: 'api', uid: 'uid-api' }),
    owner({ kind: 'Endpoints' }),
  ]),
  addressType: mostly<'IPv4' | 'IPv6'>('IPv4', 'IPv6'),
  ports: constantFrom(...slicePorts),
  endpoints: array(sliceEndpoint, { maxLength: 3 }),
  bytes: mostly<number | null>(null, 1_500_000),
}).map(({ managedBy, serviceName, ...fields }) => {
  const labels: Record<string, string> = {};
  if (managedBy !== null) labels[label.sliceManagedBy] = managedBy;
  if (serviceName !== null) labels[label.serviceName] = serviceName;
  return slice({ ...fields, labels });
});

const objects: fc.Arbitrary<AnyObject> = oneof(
  { weight: 5, arbitrary: pods },
  { weight: 3, arbitrary: services },
  { weight: 2, arbitrary: nodes },
  { weight: 1, arbitrary: writtenEndpoints },
  { weight: 3, arbitrary: writtenSlices },
);

export const steps: fc.Arbitrary<Step> = oneof(
  { weight: 6, arbitrary: objects.map((object) => ({ kind: 'put' as const, object })) },
  {
    weight: 2,
    arbitrary: objects.map((object) => ({
      kind: 'delete' as const,
      resource: resourceOf(object),
      key: object.key,
    })),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(namespaces, serviceNames)
      .map(([namespace, name]) => ({ kind: 'sync' as const, key: `${namespace}/${name}` })),
  },
);

// What the controllers would write for one Service now.

function writeEndpoints(listers: Listers, service: Service, release: Release): Endpoints {
  const selected = [...listers.podsIn(service.namespace)]
    .filter((one) => selects(service.selector, one.labels))
    .flatMap((one) => expectedAddress(service, one, release) ?? []);
  return endpoints({
    namespace: service.namespace,
    name: service.name,
    labels: expectedLabels(service, release),
    subsets: selected.map(({ ip, ready, node, hostname, pod, ports }) => {
      const { namespace, name, uid } = pod;
      const target = { kind: 'Pod', namespace, name, uid };
      return subset([address({ ip, ready, node, hostname, target })], ports);
    }),
  });
}

function writeSlices(listers: Listers, service: Service, release: Release): EndpointSlice[] {
  const groups = new Map<
    string,
    { type: 'IPv4' | 'IPv6'; ports: readonly Port[]; all: Endpoint[] }
  >();
  for (const type of addressTypesOf(service)) {
    if (type !== 'FQDN') groups.set(type, { type, ports: [], all: [] });
  }
  for (const one of listers.podsIn(service.namespace)) {
    if (!selects(service.selector, one.labels)) continue;
    const at = listers.knows('nodes') ? (listers.nodes.get(one.node) ?? null) : undefined;
    for (const want of expectedEndpoints(service, one, at, release)) {
      if (want.addressType === 'FQDN') continue;
      const { namespace, name, uid } = one;
      const made = endpoint({
        ...want,
        zone: want.zone ?? null,
        target: { kind: 'Pod', namespace, name, uid },
      });
      const mode = hintMode(service, release);
      const hints = mode === 'auto' ? {} : expectedHints(mode, made, release);
      const key = `${want.addressType} ${want.portMap}`;
      const group = groups.get(key) ?? { type: want.addressType, ports: want.ports, all: [] };
      groups.set(key, group);
      group.all.push({ ...made, ...hints });
    }
  }
  const filled = [...groups.values()].filter(
    ({ all, type }) =>
      all.length > 0 ||
      ![...groups.values()].some((one) => one.type === type && one.all.length > 0),
  );
  return filled.map(({ type, ports, all }, index) =>
    slice({
      namespace: service.namespace,
      name: `${service.name}-sync-${index}`,
      labels: expectedSliceLabels(service),
      owners: [owner({ name: service.name, uid: service.uid })],
      addressType: type,
      ports,
      endpoints: all,
    }),
  );
}

function writeMirror(of: Endpoints): EndpointSlice[] {
  return expectedMirror(of).map((group, index) => {
    const made = slice({
      namespace: of.namespace,
      name: `${of.name}-sync-${index}`,
      labels: expectedMirrorLabels(of),
      annotations: expectedMirrorAnnotations(of),
      owners: [owner({ kind: 'Endpoints', name: of.name, uid: of.uid })],
      addressType: group.addressType,
      ports: group.ports,
      endpoints: [...group.endpoints.values()].map(({ address, ready, source }) =>
        endpoint({
          addresses: [address],
          ready,
          serving: null,
          terminating: null,
          zone: null,
          hostname: source.hostname === '' ? null : source.hostname,
          node: source.node,
          target: source.target,
        }),
      ),
    });
    return { ...made, portMap: portMapKey(group.ports) };
  });
}

/** Objects to write and keys of slices to delete, in that order. */
export function syncOf(
  listers: Listers,
  key: string,
  release: Release,
): { put: AnyObject[]; remove: string[] } {
  const service = listers.services.get(key) ?? null;
  const existing = listers.endpoints.get(key) ?? null;
  const selected = service !== null && isSelected(service);
  const put: AnyObject[] = selected
    ? [writeEndpoints(listers, service, release), ...writeSlices(listers, service, release)]
    : existing !== null && isMirrored(service, existing)
      ? writeMirror(existing)
      : [];
  const [namespace, name] = key.split('/');
  const remove = [...listers.slices.values()]
    .filter((one) => one.namespace === namespace && one.labels[label.serviceName] === name)
    .filter((one) => !put.some((made) => 'addressType' in made && made.key === one.key))
    .map((one) => one.key);
  return { put, remove };
}

/** The events of one step, each with the state of the store at its arrival. */
export function* eventsOf(
  store: Store,
  context: AuditContext,
  step: Step,
  at: number,
): Generator<WatchEvent> {
  const { listers } = store;
  const cached = {
    services: listers.services,
    pods: listers.pods,
    nodes: listers.nodes,
    endpoints: listers.endpoints,
    endpointslices: listers.slices,
  } as const;
  function* remove(resource: Resource, key: string): Generator<WatchEvent> {
    const object: AnyObject | undefined = cached[resource].get(key);
    if (object !== undefined) yield event('deleted', object, at);
  }
  if (step.kind === 'put') yield event('modified', step.object, at);
  else if (step.kind === 'delete') yield* remove(step.resource, step.key);
  else {
    const { put, remove: gone } = syncOf(listers, step.key, context.release);
    for (const object of put) yield event('modified', object, at);
    for (const key of gone) yield* remove('endpointslices', key);
  }
}
