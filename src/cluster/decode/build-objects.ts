// Puts the parts of a model object together, for both doors that read them: JSON (project.ts) and
// protobuf (protobuf.ts).
//
// What is decided from more than one field of an object is decided here, once. And every object of
// a kind has its properties in one order from one place, so that V8 gives all of them one hidden
// class: code that reads them stays fast, and each object is as small as it can be.

import { equalTexts } from '../../model/equality.ts';
import type {
  ContainerPort,
  Endpoint,
  EndpointAddress,
  Endpoints,
  EndpointSlice,
  EndpointSubset,
  Key,
  Labels,
  OwnerReference,
  Pod,
  Port,
} from '../../model/objects.ts';
import { portMapKey } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import { internWord } from './intern.ts';
import type { Meta, ReadyCondition } from './json-fields.ts';

/** What the spec of a pod tells. */
export interface PodSpec {
  readonly node: string;
  readonly hostNetwork: boolean;
  readonly hostname: string;
  readonly subdomain: string;
  readonly ports: readonly ContainerPort[];
}

/** What the status of a pod tells, as written. */
export interface PodStatus {
  readonly phase: string;
  readonly ready: ReadyCondition | undefined;
  readonly podIP: string;
  readonly podIPs: readonly string[];
}

/**
 * A pod that arrived `at`; `previousPod` gives the version of its key before this, which it shares
 * all with that does not change: outputs share the same parts (share.ts).
 */
export function podOf(
  meta: Meta,
  at: number,
  spec: PodSpec,
  status: PodStatus,
  previousPod: ((key: Key) => Pod | undefined) | undefined,
): Pod {
  const { phase, ready, podIP, podIPs } = status;
  const ips = podIPs.length === 0 && podIP !== '' ? [podIP] : podIPs;
  const latest = previousPod?.(meta.key);
  const previous = latest?.uid === meta.uid ? latest : undefined;
  const same = previous !== undefined && equalTexts(previous.ips, ips);
  const { key, namespace, name, uid } = previous ?? meta;
  const isRelabelled = previous === undefined || !equalLabels(previous.labels, meta.labels);
  return {
    key,
    namespace,
    name,
    uid,
    resourceVersion: meta.resourceVersion,
    labels: isRelabelled ? meta.labels : previous.labels,
    created: meta.created,
    deleting: meta.deleting,
    ref: previous?.ref ?? { kind: 'Pod', namespace, name, uid },
    node: spec.node,
    hostNetwork: spec.hostNetwork,
    // StatefulSets call the host like the pod.
    hostname: spec.hostname === name ? name : spec.hostname,
    subdomain: spec.subdomain,
    ports: spec.ports,
    terminal: phase === 'Succeeded' || phase === 'Failed',
    ready: ready?.status === 'True',
    turnedAt: meta.deleting ? meta.deletionAsked : (ready?.since ?? null),
    ips: same ? previous.ips : ips,
    ipsSince: same ? previous.ipsSince : previous === undefined ? (meta.created ?? at) : at,
  };
}

export function endpointsOf(
  meta: Meta,
  at: number,
  annotations: Labels,
  subsets: readonly EndpointSubset[],
  bytes: number | null,
): Endpoints {
  return {
    key: meta.key,
    namespace: meta.namespace,
    name: meta.name,
    uid: meta.uid,
    resourceVersion: meta.resourceVersion,
    labels: meta.labels,
    created: meta.created,
    deleting: meta.deleting,
    at,
    annotations,
    subsets,
    bytes,
  };
}

/** A subset; its addresses are those that are ready and then the others. */
export function subsetOf(
  ports: readonly Port[],
  ready: readonly EndpointAddress[],
  notReady: readonly EndpointAddress[],
): EndpointSubset {
  return {
    ports,
    addresses: notReady.length === 0 ? ready : [...ready, ...notReady],
    readyCount: ready.length,
  };
}

/** What the metadata of a slice tell. */
export interface SliceMeta extends Meta {
  readonly generation: number;
  readonly annotations: Labels;
  readonly owners: readonly OwnerReference[];
}

export function endpointSliceOf(
  meta: SliceMeta,
  at: number,
  addressType: EndpointSlice['addressType'],
  ports: readonly Port[],
  endpoints: readonly Endpoint[],
  bytes: number | null,
): EndpointSlice {
  return {
    key: meta.key,
    namespace: meta.namespace,
    name: meta.name,
    uid: meta.uid,
    resourceVersion: meta.resourceVersion,
    labels: meta.labels,
    created: meta.created,
    deleting: meta.deleting,
    generation: meta.generation,
    annotations: meta.annotations,
    owners: meta.owners,
    at,
    addressType,
    ports,
    portMap: internWord(portMapKey(ports)),
    endpoints,
    bytes,
  };
}
