// Evaluates the conditions under which a Service lists a pod, in the order in which a person checks
// them. Endpoints and the slices of each address type are separate places, because one condition
// can have another effect at each. Conditions fail by the predicates of shadow/endpoints.ts and
// shadow/endpointslice.ts, and a test compares them with the desired state.
//
// Left out, because no controller reads it: the exact phase, the container or readiness gate that
// keeps a pod from being ready, and container ports without a name.

import { parseIP } from '../../model/ip.ts';
import type { AddressType, Node, Pod, Service, ServicePort } from '../../model/objects.ts';
import { selectorText, selects } from '../../model/selector.ts';
import { expectedAddress, isSelected, primaryFamily } from '../../shadow/endpoints.ts';
import { addressTypesOf, expectedEndpoints, isStranded } from '../../shadow/endpointslice.ts';
import { findPort } from '../../shadow/pod.ts';
import type { Release } from '../../shadow/release.ts';
import { type Reason, reason, servicePortText } from './explanation.ts';
import { isNear, missedLabelText, missedPairs, wantedLabels } from './near-miss.ts';

export interface PodAndService {
  readonly service: Service;
  readonly pod: Pod;
  readonly node: Node | null | undefined;
}

export type ListingPlace = 'endpoints' | AddressType;

/** How a place lists a pod, worst first. `fewer-ports`: without some ports of the Service. */
export const stateWords = {
  absent: 'absent',
  'no-ports': 'listed without ports',
  'not-ready': 'listed as not ready',
  'fewer-ports': 'ready on some ports only',
  ready: 'ready',
} as const;

export type EntryState = keyof typeof stateWords;

export const entryStates = Object.keys(stateWords) as EntryState[];

export const placeName = (place: ListingPlace): string =>
  place === 'endpoints' ? 'Endpoints' : `${place} EndpointSlices`;

export type EntryStates = ReadonlyMap<ListingPlace, EntryState>;

export interface Condition {
  readonly name: (typeof checks)[number][0];
  /** Marked `no` if it fails, `unknown` if the input lacks the object that decides. */
  readonly reason: Reason;
  /** What a failed condition does to the pod; empty unless it fails. */
  readonly effects: EntryStates;
}

export type Conditions = ReturnType<typeof evaluateConditions>;

/** It passes without `change`. Without `effects`, a failure makes the pod absent everywhere. */
type Result = Pick<Reason, 'text'> & Partial<Reason> & { readonly effects?: EntryStates };

const pass = (text: string): Result => ({ text });

const fail = (text: string, change: string, effects?: EntryStates): Result =>
  effects === undefined ? { text, change } : { text, change, effects };

type Check = (pair: PodAndService, release: Release) => Result | readonly Result[];

const placesOf = (service: Service): ListingPlace[] => ['endpoints', ...addressTypesOf(service)];

const everywhere = (service: Service, inSlices: EntryState, inEndpoints = inSlices): EntryStates =>
  new Map(placesOf(service).map((place, index) => [place, index === 0 ? inEndpoints : inSlices]));

const utils = 'k8s.io/endpointslice utils.go';
const addresses = `${utils} getEndpointAddresses`;
const controllerUtils = 'k8s.io/endpointslice util/controller_utils.go';
const reconciler = 'k8s.io/endpointslice reconciler.go reconcileByAddressType';
const endpointsController = 'pkg/controller/endpoint/endpoints_controller.go';
const syncService = `${endpointsController} syncService`;
const listing = `${controllerUtils} ShouldPodBeInEndpoints`;
const labelSet = 'k8s.io/apimachinery pkg/labels Set.AsSelectorPreValidated';

/** The name, the kind of the object, its field, the upstream code that reads it, and the check. */
const checks = [
  ['type', 'Service', 'spec.type', syncService, checkType],
  ['selector', 'Service', 'spec.selector', syncService, checkSelector],
  ['namespace', 'Pod', 'metadata.namespace', syncService, checkNamespace],
  ['labels', 'Pod', 'metadata.labels', labelSet, checkLabels],
  ['phase', 'Pod', 'status.phase', listing, checkPhase],
  ['address', 'Pod', 'status.podIPs', listing, checkAddress],
  ['family', 'Pod', 'status.podIPs', addresses, checkFamilies],
  ['node', 'Pod', 'spec.nodeName', reconciler, checkNode],
  ['deletion', 'Pod', 'metadata.deletionTimestamp', listing, checkDeletion],
  ['port', 'Pod', 'spec.containers.ports.name', `${controllerUtils} FindPort`, checkPorts],
  ['port', 'Service', 'spec.ports', syncService, checkPortless],
  ['readiness', 'Pod', 'status.conditions Ready', `${utils} podToEndpoint`, checkReadiness],
] as const satisfies readonly (readonly [...string[], Check])[];

function checkType({ service: { type } }: PodAndService): Result {
  if (type !== 'ExternalName') return pass(`the Service is of type ${type}`);
  return fail(
    'the Service is of type ExternalName: it is an alias in DNS and has no endpoints',
    'change the type of the Service to ClusterIP',
  );
}

function checkSelector({ service: { selector }, pod }: PodAndService): Result {
  if (hasSelector(selector)) return pass(`the Service selects pods with ${selectorText(selector)}`);
  return fail(
    'the Service has no selector, so the controllers add no pod to it',
    `add a selector to the Service, such as ${selectorText(selectorFor(pod))}`,
  );
}

function checkNamespace({ service: { namespace }, pod }: PodAndService): Result {
  if (namespace === pod.namespace) return pass(`both are in namespace ${namespace}`);
  return fail(
    `the pod is in namespace ${pod.namespace}, the Service in ${namespace}: a Service ` +
      'selects pods of its own namespace only',
    `create the pod in namespace ${namespace}, or a Service in ${pod.namespace}`,
  );
}

function checkPhase({ pod }: PodAndService): Result {
  if (!pod.terminal) return pass('the pod has not finished');
  return fail(
    'the pod has finished (phase Succeeded or Failed), so nothing runs at its address',
    'create a new pod: a finished one never runs again',
  );
}

const published = 'but the Service publishes pods that are not ready';

function checkDeletion({ service, pod }: PodAndService): Result {
  if (!pod.deleting) return pass('the pod is not terminating');
  if (service.publishNotReadyAddresses) return pass(`the pod is terminating, ${published}`);
  return fail(
    'the pod is terminating: Endpoints leave it out, EndpointSlices list it as terminating',
    'wait for the pod that replaces it: a deletion cannot be undone',
    everywhere(service, 'not-ready', 'absent'),
  );
}

const describePod = ({ namespace, name }: Pod): string =>
  `kubectl -n ${namespace} describe pod ${name}`;

function checkReadiness({ service, pod }: PodAndService): Result {
  if (pod.ready) return pass('its condition Ready is True');
  if (service.publishNotReadyAddresses) return pass(`the pod is not ready, ${published}`);
  return fail(
    'its condition Ready is not True, so it must not receive traffic',
    `make the pod ready: ${describePod(pod)} shows the readiness probe or gate that fails`,
    everywhere(service, 'not-ready'),
  );
}

const hasSelector = (selector: Service['selector']): selector is Record<string, string> =>
  selector !== null && Object.keys(selector).length > 0;

function selectorFor({ name, labels }: Pod): Record<string, string> {
  const usual = ['app.kubernetes.io/name', 'app', 'k8s-app'];
  const key = usual.find((label) => Object.hasOwn(labels, label)) ?? Object.keys(labels)[0];
  return key === undefined ? { app: name } : { [key]: labels[key] ?? '' };
}

function checkLabels({ service: { selector }, pod }: PodAndService): Result[] {
  if (!hasSelector(selector)) return [];
  const missed = missedPairs(selector, pod.labels);
  if (missed.length === 0) return [pass('the pod has every label of the selector')];
  const field = `metadata.labels ${missed.map(({ key }) => key).join(', ')}`;
  const text = missed.map(missedLabelText).join('; ');
  const where = 'in its pod template, if it has one';
  const change = `label the pod ${wantedLabels(missed)} (${where}), or change the selector`;
  return [{ field, text, change }];
}

function checkAddress({ pod }: PodAndService): Result {
  const { ips, node } = pod;
  if (ips.length > 0) return pass(`its IP addresses are ${ips.join(', ')}`);
  const [why, wait] =
    node === ''
      ? ['it is not scheduled to a Node yet', 'wait for the scheduler']
      : [`the kubelet of ${node} has reported none yet`, 'wait for the pod to start'];
  return fail(`the pod has no address: ${why}`, `${wait}; ${describePod(pod)} shows its events`);
}

function checkFamilies({ service, pod }: PodAndService): Result[] {
  if (pod.ips.length === 0) return [];
  const primary = primaryFamily(service, pod) === 'IPv6' ? 'IPv6' : 'IPv4';
  const types = addressTypesOf(service).filter((type) => type !== 'FQDN');
  return [...new Set<'IPv4' | 'IPv6'>([primary, ...types])].map((family) => {
    const isPrimary = family === primary;
    const source = isPrimary ? `${endpointsController} podToEndpointAddressForService` : addresses;
    const ip = pod.ips.find((text) => parseIP(text)?.family === family);
    if (ip !== undefined) {
      const which = service.ipFamilies.length > 1 ? `, an IP family of the Service` : '';
      return { source, text: `${ip} is ${family}${which}` };
    }
    const effects = new Map<ListingPlace, EntryState>();
    if (isPrimary) effects.set('endpoints', 'absent');
    if (types.includes(family)) effects.set(family, 'absent');
    const wanted = service.ipFamilies.join(', ') || 'IPv4 and IPv6';
    const has = `the pod has no ${family} address (it has ${pod.ips.join(', ')})`;
    const change = `give the pod an ${family} address, or remove ${family} from the Service`;
    return { source, text: `${has}, the Service needs ${wanted}`, effects, change };
  });
}

function checkNode({ service, pod, node }: PodAndService): Result {
  const isBound = pod.node !== '';
  const name = isBound ? `Node ${pod.node}` : 'the Node';
  if (node === undefined) {
    const text = `it is unknown whether ${name} exists: the input has no Nodes`;
    return { text, mark: 'unknown' };
  }
  if (node !== null) return pass(`${name} exists${node.zone && `, in zone ${node.zone}`}`);
  const missing = isBound ? `${name} does not exist` : 'the pod is not scheduled to a Node';
  if (!isStranded(service, node)) return pass(`${missing}, ${published}`);
  const isFrozen = !isBound && pod.ips.length > 0;
  const refused = '; the API server refuses Endpoints with it, so they stay as they are';
  const end = isFrozen ? refused : '';
  return fail(
    `${missing}: the controller leaves the pod out of EndpointSlices and retries${end}`,
    isBound
      ? `create ${name} again, or move the pod to another Node`
      : 'wait for the scheduler to assign the pod to a Node',
    new Map(addressTypesOf(service).map((type) => [type, 'absent'])),
  );
}

function checkPortless({ service }: PodAndService): Result[] {
  if (service.ports.length > 0) return [];
  if (service.clusterIP === 'None') {
    return [pass('the Service is headless and needs no ports')];
  }
  const effects = everywhere(service, 'no-ports', 'absent');
  return [fail('the Service has no ports', 'add a port to the Service', effects)];
}

/** DNS lists the addresses of a headless Service, also those without a port. */
const isReachedByDNS = ({ clusterIP }: Service): boolean => clusterIP === 'None';

function checkPorts({ service, pod }: PodAndService, release: Release): Result[] {
  const byTarget = Map.groupBy(
    service.ports,
    ({ targetPort, protocol }) => `${typeof targetPort} ${String(targetPort)}/${protocol}`,
  );
  return [...byTarget.values()].map((ports) => {
    const effects = new Map<ListingPlace, EntryState>();
    for (const place of placesOf(service)) {
      const isEndpoints = place === 'endpoints';
      const sidecars = isEndpoints ? release.sidecarPortsInEndpoints : release.sidecarPortsInSlices;
      const isFound = (port: ServicePort): boolean => findPort(pod, port, sidecars) !== null;
      if (ports.every(isFound)) continue;
      const none = isEndpoints ? 'absent' : 'no-ports';
      const isReached = service.ports.some(isFound) || (!isEndpoints && isReachedByDNS(service));
      effects.set(place, isReached ? 'fewer-ports' : none);
    }
    return portResult(pod, ports, effects);
  });
}

function portResult(pod: Pod, ports: readonly ServicePort[], effects: EntryStates): Result {
  const which = ports.map(servicePortText).join(', ');
  const { targetPort: target = 0, protocol = '' } = ports[0] ?? {};
  const usable = pod.ports.filter((port) => port.protocol === protocol);
  const named = usable.filter(({ name }) => name === target);
  if (effects.size === 0) {
    const to =
      typeof target === 'number'
        ? `${target} of the pod (a number, which no controller checks)`
        : `${String(named[0]?.port)}, the container port ${target}`;
    return pass(`port ${which} goes to ${to}`);
  }
  const other = pod.ports.find((port) => port.name === target && port.protocol !== protocol);
  const names = [...new Set(pod.ports.map(({ name }) => name))].join(', ');
  const list = names === '' ? 'no container port has a name' : `named ports: ${names}`;
  const missing =
    other !== undefined
      ? `container port ${target} is ${other.protocol}, not ${protocol}`
      : `no container has a port named ${target}; ${list}`;
  const sidecar = named.some((port) => port.sidecar)
    ? '; only a sidecar container has it, which this release does not use everywhere'
    : '';
  const others = [...new Set(usable.map(({ name }) => name))];
  const near = others.find((name) => isNear(name, String(target)));
  const meant = near ?? (others.length === 1 ? others[0] : undefined);
  const change = `name a ${protocol} container port ${target} in the pod template`;
  const isOther = meant !== undefined && meant !== target;
  const end = isOther ? `, or set targetPort of port ${which} to ${meant}` : '';
  return fail(`port ${which}: ${missing}${sidecar}`, change + end, effects);
}

/** How each place of the Service must list the pod. */
export function expectedStates(pair: PodAndService, release: Release): EntryStates {
  const { service, pod, node } = pair;
  const { selector, namespace } = service;
  const isMember =
    isSelected(service) && namespace === pod.namespace && selects(selector, pod.labels);
  const address = isMember ? expectedAddress(service, pod, release) : null;
  const endpoints = isMember ? expectedEndpoints(service, pod, node, release) : [];
  return new Map(
    placesOf(service).map((place) => {
      const isAtPlace = ({ addressType }: { addressType: AddressType }): boolean =>
        addressType === place;
      const want = place === 'endpoints' ? address : endpoints.find(isAtPlace);
      return [place, want ? stateOf(service, want.ready, want.ports.length) : 'absent'];
    }),
  );
}

/** The state of an entry with this many ports; `service` is null if it does not exist. */
export function stateOf(service: Service | null, ready: boolean, ports: number): EntryState {
  const wanted = service?.ports.length ?? 0;
  if (ports === 0 && (service === null || !isReachedByDNS(service))) return 'no-ports';
  if (!ready) return 'not-ready';
  return ports < wanted ? 'fewer-ports' : 'ready';
}

/** Evaluates everything that decides whether and how the pod is listed. */
export function evaluateConditions(pair: PodAndService, release: Release) {
  const { service, pod } = pair;
  const conditions = checks.flatMap(([name, kind, field, source, run]): Condition[] => {
    const object = `${kind} ${kind === 'Pod' ? pod.key : service.key}`;
    const since = name === 'readiness' && !pod.deleting ? pod.turnedAt : null;
    return [run(pair, release)].flat().map(({ text, effects, ...rest }) => {
      const mark = rest.change === undefined ? 'yes' : 'no';
      return {
        name,
        reason: reason(mark, text, { object, field, source, since, ...rest }),
        effects: effects ?? (mark === 'yes' ? new Map() : everywhere(service, 'absent')),
      };
    });
  });
  const expected = expectedStates(pair, release);
  const rank = (state: EntryState): number => entryStates.indexOf(state);
  const [best] = [...expected].slice(1).sort(([, a], [, b]) => rank(b) - rank(a));
  return {
    conditions,
    /** The desired state at each place of the Service, and the best one in slices. */
    expected,
    state: best?.[1] ?? 'absent',
    /** The condition that decides `state`; null if the pod gets all traffic. */
    decides: best === undefined ? null : decidingCondition(conditions, best),
  };
}

/** The first condition that causes the state at a place; null if the state is `ready`. */
export const decidingCondition = (
  conditions: readonly Condition[],
  [place, state]: readonly [ListingPlace, EntryState],
): Condition | null => conditions.find(({ effects }) => effects.get(place) === state) ?? null;
