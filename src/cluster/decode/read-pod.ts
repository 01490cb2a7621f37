// Reads a Pod. A later version shares with the one before all that is equal, to save memory.

import { equalTexts } from '../../model/equality.ts';
import type { ContainerPort, Key, Meta, Pod } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import { internLabels, internList, internWord } from './intern.ts';
import * as json from './json-fields.ts';

export type PreviousPod = (key: Key) => Pod | undefined;

/** `at` is the arrival, Unix seconds. Throws WrongType. */
export function readPod(raw: json.Fields, at: number, previousPod?: PreviousPod): Pod {
  const meta = json.within(raw, 'metadata', json.plainMeta);
  const latest = previousPod?.(meta.key);
  const previous = latest?.uid === meta.uid ? latest : undefined;
  const spec = json.within(raw, 'spec', (spec) => podSpec(spec, previous));
  const { phase, ready, ips } = json.within(raw, 'status', podStatus);
  const hasSameIPs = previous !== undefined && equalTexts(previous.ips, ips);
  const { key, namespace, name, uid } = previous ?? namesOf(meta);
  const hasSameLabels = previous !== undefined && equalLabels(previous.labels, meta.labels);
  // In one order of properties, so that V8 gives all pods one hidden class.
  return {
    key,
    namespace,
    name,
    uid,
    resourceVersion: meta.resourceVersion,
    labels: hasSameLabels ? previous.labels : internLabels(meta.labels),
    created: meta.created,
    deleting: meta.deleting,
    ref: previous?.ref ?? { kind: 'Pod', namespace, name, uid },
    node: spec.node,
    hostNetwork: spec.hostNetwork,
    // The hostname of a pod of a StatefulSet is the name of the pod.
    hostname: spec.hostname === name ? name : spec.hostname,
    subdomain: spec.subdomain,
    ports: spec.ports,
    terminal: phase === 'Succeeded' || phase === 'Failed',
    ready: ready?.status === 'True',
    turnedAt: meta.deleting
      ? json.within(raw, 'metadata', json.deletionAsked)
      : (ready?.since ?? null),
    ips: hasSameIPs ? previous.ips : ips,
    ipsSince: hasSameIPs ? previous.ipsSince : previous === undefined ? (meta.created ?? at) : at,
  };
}

const namesOf = ({
  namespace,
  name,
  uid,
}: Meta): Pick<Meta, 'key' | 'namespace' | 'name' | 'uid'> => ({
  key: json.keyOf(namespace, name),
  namespace: internWord(namespace),
  name,
  uid,
});

function podSpec(spec: json.Fields, previous: Pod | undefined) {
  const containers = json.list(spec, 'containers', containerPorts);
  const sidecars = json.list(spec, 'initContainers', sidecarPorts);
  const [only = []] = containers;
  const isSimple = containers.length <= 1 && sidecars.length === 0;
  const ports = isSimple ? only : [...containers, ...sidecars].flat();
  return {
    node: sharedWord(json.text(spec, 'nodeName'), previous?.node),
    hostNetwork: json.flag(spec, 'hostNetwork'),
    hostname: json.text(spec, 'hostname'),
    subdomain: sharedWord(json.text(spec, 'subdomain'), previous?.subdomain),
    ports: sharedPorts(ports, previous?.ports ?? latestPorts),
  };
}

/** To compare costs less than to intern. */
const sharedWord = (word: string, known: string | undefined): string =>
  word === known ? known : internWord(word);

let latestPorts: Pod['ports'] = [];

/** Pods of one template arrive together, and to compare costs less than to intern. */
function sharedPorts(ports: Pod['ports'], others: Pod['ports']): Pod['ports'] {
  latestPorts = areSamePorts(ports, others) ? others : internList(ports);
  return latestPorts;
}

const areSamePorts = (ports: Pod['ports'], others: Pod['ports']): boolean =>
  ports.length === others.length && ports.every((port, index) => isSamePort(port, others[index]));

const isSamePort = (port: ContainerPort, other: ContainerPort | undefined): boolean =>
  port.name === other?.name &&
  port.port === other.port &&
  port.protocol === other.protocol &&
  port.sidecar === other.sidecar;

const readPort = (sidecar: boolean) => (fields: json.Fields) => ({
  name: json.text(fields, 'name'),
  protocol: json.text(fields, 'protocol') || 'TCP',
  port: json.number(fields, 'containerPort'),
  sidecar,
});
const [containerPort, sidecarPort] = [readPort(false), readPort(true)];

const hasName = ({ name }: ContainerPort): boolean => name !== '';

/** Only ports with a name can be found by it. */
function namedPorts(ports: readonly ContainerPort[]): readonly ContainerPort[] {
  return ports.every(hasName) ? ports : ports.filter(hasName);
}

const containerPorts = (container: json.Fields): Pod['ports'] =>
  namedPorts(json.list(container, 'ports', containerPort));

/** Other init containers do not run with the pod. */
const sidecarPorts = (container: json.Fields): Pod['ports'] =>
  json.text(container, 'restartPolicy') === 'Always'
    ? namedPorts(json.list(container, 'ports', sidecarPort))
    : [];

const podIPOf = (item: json.Fields): string => json.text(item, 'ip');

function podStatus(status: json.Fields) {
  const podIP = json.text(status, 'podIP');
  const podIPs = json.list(status, 'podIPs', podIPOf);
  return {
    phase: json.text(status, 'phase'),
    ready: json.readyCondition(status),
    ips: podIPs.length === 0 && podIP !== '' ? [podIP] : podIPs,
  };
}
