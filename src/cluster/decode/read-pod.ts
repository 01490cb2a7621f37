// Reads a Pod. A later version shares with the one before all that is equal, to save memory.

import { equalTexts } from '../../model/equality.ts';
import type { ContainerPort, Key, Pod } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import { internLabels, internList } from './intern.ts';
import * as json from './json-fields.ts';

export type PreviousPod = (key: Key) => Pod | undefined;

/** `at` is the arrival, Unix seconds. Throws WrongType. */
export function readPod(raw: json.Fields, at: number, previousPod?: PreviousPod): Pod {
  const meta = json.within(raw, 'metadata', json.namespacedMeta);
  const latest = previousPod?.(meta.key);
  const previous = latest?.uid === meta.uid ? latest : undefined;
  const spec = json.within(raw, 'spec', (spec) => podSpec(spec, previous?.ports));
  const { phase, ready, ips } = json.within(raw, 'status', podStatus);
  const hasSameIPs = previous !== undefined && equalTexts(previous.ips, ips);
  const { key, namespace, name, uid } = previous ?? meta;
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

function podSpec(spec: json.Fields, previousPorts: Pod['ports'] | undefined) {
  const ports: ContainerPort[] = [];
  json.list(spec, 'containers', (container) => readPorts(container, false, ports));
  // Other init containers do not run with the pod.
  json.list(spec, 'initContainers', (container) => {
    if (json.text(container, 'restartPolicy') === 'Always') readPorts(container, true, ports);
  });
  return {
    node: json.word(spec, 'nodeName'),
    hostNetwork: json.flag(spec, 'hostNetwork'),
    hostname: json.text(spec, 'hostname'),
    subdomain: json.word(spec, 'subdomain'),
    ports: sharedPorts(ports, previousPorts ?? latestPorts),
  };
}

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

function readPorts(container: json.Fields, sidecar: boolean, ports: ContainerPort[]): void {
  json.list(container, 'ports', (fields) => {
    const port = {
      name: json.text(fields, 'name'),
      protocol: json.text(fields, 'protocol') || 'TCP',
      port: json.number(fields, 'containerPort'),
      sidecar,
    };
    if (port.name !== '') ports.push(port);
  });
}

function podStatus(status: json.Fields) {
  const podIP = json.text(status, 'podIP');
  const podIPs = json.list(status, 'podIPs', (item) => json.text(item, 'ip'));
  return {
    phase: json.text(status, 'phase'),
    ready: json.readyCondition(status),
    ips: podIPs.length === 0 && podIP !== '' ? [podIP] : podIPs,
  };
}
