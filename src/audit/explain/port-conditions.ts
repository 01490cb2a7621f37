// Which container ports a Service wants of a pod, and which of them the pod has: the steps of a
// chain that ask for ports. findPort of shadow/pod.ts decides; a number as targetPort is taken
// unchecked, and ports that no container names are not held, so nothing can be said of them.

import type { Pod, Service, ServicePort } from '../../model/objects.ts';
import { findPort } from '../../shadow/pod.ts';
import type { Release } from '../../shadow/release.ts';
import type {
  PodAndService,
  ListingPlace,
  ConditionQuestion,
  EntryState,
  Condition,
} from './condition.ts';
import {
  endpointsController,
  everywhere,
  failing,
  objectOf,
  passing,
  placesOf,
  podOf,
} from './condition.ts';
import { isNear } from './near-miss.ts';

/** Service ports that want one and the same container port. */
interface Wanted {
  readonly target: number | string;
  readonly protocol: string;
  readonly servicePorts: ServicePort[];
}

function wantedPorts(service: Service): Wanted[] {
  const wanted = new Map<string, Wanted>();
  for (const port of service.ports) {
    const key = `${typeof port.targetPort} ${String(port.targetPort)}/${port.protocol}`;
    const there = wanted.get(key);
    if (there !== undefined) there.servicePorts.push(port);
    else {
      const { targetPort: target, protocol } = port;
      wanted.set(key, { target, protocol, servicePorts: [port] });
    }
  }
  return [...wanted.values()];
}

const servicePortText = ({ name, port, protocol }: ServicePort): string =>
  `${name === '' ? '' : `${name} `}${String(port)}/${protocol}`;

/** One step per container port that the Service wants of the pod. */
export function portConditions(pair: PodAndService, release: Release): Condition[] {
  const { service } = pair;
  if (service.ports.length > 0) {
    return wantedPorts(service).map((wanted) => portStep(pair, wanted, release));
  }
  const question: ConditionQuestion = {
    name: 'port',
    object: objectOf(service),
    field: 'spec.ports',
    source: `${endpointsController} syncService`,
  };
  if (service.clusterIP === 'None') {
    return [passing(question, 'the Service is headless and has no ports: addresses are enough')];
  }
  const effects = everywhere(service, 'no-ports');
  effects.set('endpoints', 'absent');
  const one: ServicePort = {
    name: '',
    protocol: 'TCP',
    port: 80,
    targetPort: 80,
    appProtocol: null,
    nodePort: 0,
  };
  return [
    failing(question, 'the Service has no ports', {
      effects,
      change: 'give the Service a port',
      fix: (now) => ({ ...now, service: { ...now.service, ports: [one] } }),
    }),
  ];
}

/** Where a port is looked for, and whether restartable init containers count there. */
function sidecarsAt(place: ListingPlace, release: Release): boolean {
  return place === 'endpoints' ? release.sidecarPortsInEndpoints : release.sidecarPortsInSlices;
}

function portStep(pair: PodAndService, wanted: Wanted, release: Release): Condition {
  const { service, pod } = pair;
  const { target, protocol, servicePorts } = wanted;
  const question: ConditionQuestion = {
    name: 'port',
    object: podOf(pod),
    field: 'spec.containers.ports.name',
    source: 'k8s.io/endpointslice util/controller_utils.go FindPort',
  };
  const name = servicePorts.map(servicePortText).join(', ');
  const effects = new Map<ListingPlace, EntryState>();
  for (const place of placesOf(service)) {
    const has = (port: ServicePort): boolean =>
      findPort(pod, port, sidecarsAt(place, release)) !== null;
    if (servicePorts.every(has)) continue;
    const none = !service.ports.some(has);
    effects.set(place, none ? (place === 'endpoints' ? 'absent' : 'no-ports') : 'fewer-ports');
  }
  if (effects.size === 0) return passing(question, passingPort(pair, wanted, name));
  return failing(
    question,
    `port ${name}: ${missingPort(pod, wanted)}${sidecarNote(pair, wanted)}`,
    {
      effects,
      change: portChange(pod, wanted),
      fix: (now) => {
        const port = servicePorts[0]?.port ?? 0;
        const added = { name: String(target), protocol, port, sidecar: false };
        return { ...now, pod: { ...now.pod, ports: [...now.pod.ports, added] } };
      },
    },
  );
}

function passingPort(
  { pod }: PodAndService,
  { target, servicePorts }: Wanted,
  name: string,
): string {
  const [first] = servicePorts;
  const found = first === undefined ? null : findPort(pod, first, true);
  return typeof target === 'number'
    ? `port ${name} goes to ${String(target)} of the pod, a number that is taken unchecked`
    : `port ${name} goes to ${String(found)}, which a container names ${target}`;
}

const portNames = (pod: Pod, protocol: string): string[] => [
  ...new Set(pod.ports.filter((port) => port.protocol === protocol).map(({ name }) => name)),
];

function missingPort(pod: Pod, { target, protocol }: Wanted): string {
  const other = pod.ports.find((port) => port.name === target && port.protocol !== protocol);
  if (other !== undefined) {
    return `a container names a port ${target} for ${other.protocol}, not for ${protocol}`;
  }
  const names = [...new Set(pod.ports.map(({ name }) => name))];
  const named =
    names.length === 0 ? 'no ports are named at all' : `ports named: ${names.join(', ')}`;
  return `no container names a port ${target}; ${named}`;
}

/** A port of a restartable init container counts in some releases only. */
function sidecarNote({ pod }: PodAndService, { target, protocol }: Wanted): string {
  const sidecar = pod.ports.some(
    (port) => port.sidecar && port.name === target && port.protocol === protocol,
  );
  return sidecar
    ? ', but for a restartable init container, which this release does not look at everywhere'
    : '';
}

function portChange(pod: Pod, { target, protocol, servicePorts }: Wanted): string {
  const names = portNames(pod, protocol);
  const meant =
    names.find((name) => isNear(name, String(target))) ??
    (names.length === 1 ? names[0] : undefined);
  const named = `name a container port ${target} (${protocol}) in the pod template`;
  if (meant === undefined || meant === target) return named;
  const which = servicePorts.map(servicePortText).join(', ');
  return `${named}, or set targetPort of port ${which} to ${meant}`;
}
