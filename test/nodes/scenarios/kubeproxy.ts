// What kube-proxy knows of each Service port before it writes rules: a second, simple opinion,
// read from kubernetes@v1.36.3 and not from the code under test. The sources are newBaseServiceInfo
// of pkg/proxy/serviceport.go and CategorizeEndpoints of pkg/proxy/topology.go.
//
// Left out: address families beside the first, doubled addresses, labels that hide a Service.

import { createHash } from 'node:crypto';

import type { Api, EndpointEntry, ServiceObject, ServicePort } from '../../scenarios/api.ts';

/** The fields of a Service that only kube-proxy reads. */
export interface ProxiedService extends ServiceObject {
  spec: ServiceObject['spec'] & {
    ports?: (ServicePort & { nodePort?: number })[];
    externalIPs?: string[];
    loadBalancerSourceRanges?: string[];
    internalTrafficPolicy?: string;
    externalTrafficPolicy?: string;
    healthCheckNodePort?: number;
    sessionAffinity?: string;
    sessionAffinityConfig?: { clientIP: { timeoutSeconds: number } };
  };
  status?: { loadBalancer: { ingress: { ip: string }[] } };
}

/** The node whose rules are written. */
export interface ProxiedNode {
  readonly name: string;
  readonly ip: string;
  readonly zone: string;
}

export interface EndpointInfo {
  readonly ip: string;
  readonly port: number;
  /** `ip:port`, or `[ip]:port`. */
  readonly text: string;
  readonly isLocal: boolean;
}

export interface ServicePortInfo {
  /** `shop/web:http`; without a colon where the port has no name. */
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
  readonly nodePort: number;
  readonly healthCheckNodePort: number;
  readonly clusterIP: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  readonly sourceRanges: readonly string[];
  /** null: no session affinity. */
  readonly affinitySeconds: number | null;
  readonly internalLocal: boolean;
  readonly externalLocal: boolean;
  readonly externallyAccessible: boolean;
  readonly clusterEndpoints: readonly EndpointInfo[];
  readonly localEndpoints: readonly EndpointInfo[];
  readonly reachableEndpoints: readonly EndpointInfo[];
  readonly hasEndpoints: boolean;
}

/** Every Service port that the node serves, in the order in which Services came to be. */
export function servicePortsOf(api: Api, node: ProxiedNode): ServicePortInfo[] {
  return api.list('services').flatMap((object) => {
    const service = object as ProxiedService;
    const { clusterIP, ports = [] } = service.spec;
    if (clusterIP === undefined || clusterIP === 'None') return [];
    return ports.map((port) => servicePortOf(api, node, service, clusterIP, port));
  });
}

function servicePortOf(
  api: Api,
  node: ProxiedNode,
  { metadata, spec, status }: ProxiedService,
  clusterIP: string,
  port: ServicePort & { nodePort?: number },
): ServicePortInfo {
  const { type, externalIPs = [], loadBalancerSourceRanges = [], sessionAffinity } = spec;
  const loadBalancerIPs = (status?.loadBalancer.ingress ?? []).map(({ ip }) => ip);
  const nodePort = port.nodePort ?? 0;
  const isExternal = type === 'NodePort' || type === 'LoadBalancer' || externalIPs.length > 0;
  const externalLocal = isExternal && spec.externalTrafficPolicy === 'Local';
  const internalLocal = spec.internalTrafficPolicy === 'Local';
  const externallyAccessible = nodePort !== 0 || loadBalancerIPs.length + externalIPs.length > 0;
  const uses = {
    cluster: !internalLocal || externallyAccessible,
    local: internalLocal || (externalLocal && externallyAccessible),
  };
  const key = `${metadata.namespace ?? ''}/${metadata.name}`;
  const timeout = spec.sessionAffinityConfig?.clientIP.timeoutSeconds ?? 10_800;
  return {
    name: port.name === undefined ? key : `${key}:${port.name}`,
    protocol: port.protocol.toLowerCase(),
    port: port.port,
    nodePort,
    healthCheckNodePort:
      externalLocal && type === 'LoadBalancer' ? (spec.healthCheckNodePort ?? 0) : 0,
    clusterIP,
    externalIPs,
    loadBalancerIPs,
    sourceRanges: loadBalancerSourceRanges,
    affinitySeconds: sessionAffinity === 'ClientIP' ? timeout : null,
    internalLocal,
    externalLocal,
    externallyAccessible,
    ...categorize(listedEndpoints(api, node, key, port), uses, node),
  };
}

interface Listed extends EndpointInfo {
  readonly entry: EndpointEntry;
  readonly isReady: boolean;
  /** Serving and terminating. */
  readonly isLastResort: boolean;
}

function listedEndpoints(
  api: Api,
  node: ProxiedNode,
  key: string,
  { name, protocol }: ServicePort,
): Listed[] {
  const slices = api.list('endpointslices').filter(({ metadata: { namespace, labels } }) => {
    return `${namespace ?? ''}/${labels?.['kubernetes.io/service-name'] ?? ''}` === key;
  });
  return slices.flatMap(({ ports, endpoints }) => {
    const wanted = (ports ?? []).filter(
      (port) => (port.name ?? '') === (name ?? '') && port.protocol === protocol,
    );
    return wanted.flatMap(({ port }) =>
      (endpoints ?? []).map((entry) => {
        const { addresses, conditions, nodeName } = entry;
        const ip = addresses[0] ?? '';
        const { ready = true, serving = true, terminating = false } = conditions;
        const text = ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
        const isLocal = nodeName === node.name;
        return {
          ip,
          port,
          text,
          isLocal,
          entry,
          isReady: ready,
          isLastResort: serving && terminating,
        };
      }),
    );
  });
}

/** CategorizeEndpoints. */
function categorize(
  listed: readonly Listed[],
  uses: { readonly cluster: boolean; readonly local: boolean },
  { name, zone }: ProxiedNode,
): Pick<
  ServicePortInfo,
  'clusterEndpoints' | 'localEndpoints' | 'reachableEndpoints' | 'hasEndpoints'
> {
  const ready = listed.filter(({ isReady }) => isReady);
  const lastResorts = listed.filter(({ isLastResort }) => isLastResort);
  const hinted = hintedFor(ready, 'forNodes', name) ?? hintedFor(ready, 'forZones', zone) ?? ready;
  const cluster = !uses.cluster ? [] : hinted.length > 0 ? hinted : lastResorts;
  const localReady = ready.filter(({ isLocal }) => isLocal);
  const localLast = lastResorts.filter(({ isLocal }) => isLocal);
  const local = !uses.local ? [] : localReady.length > 0 ? localReady : localLast;
  const hasAny = uses.local ? ready.length + lastResorts.length > 0 : cluster.length > 0;
  return {
    clusterEndpoints: cluster,
    localEndpoints: local,
    reachableEndpoints: [...new Set([...cluster, ...local])],
    hasEndpoints: hasAny,
  };
}

/** Endpoints hinted for this place; null: one has no hint, or none is for here. */
function hintedFor(
  ready: readonly Listed[],
  kind: 'forNodes' | 'forZones',
  place: string,
): readonly Listed[] | null {
  const hintsOf = ({ entry }: Listed): string[] =>
    (entry.hints?.[kind] ?? []).map(({ name }) => name);
  if (ready.some((endpoint) => hintsOf(endpoint).length === 0)) return null;
  const here = ready.filter((endpoint) => hintsOf(endpoint).includes(place));
  return here.length > 0 ? here : null;
}

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** The beginning of the SHA-256 in base32, by which kube-proxy names chains. */
export function hashOf(text: string): string {
  const bits = [...createHash('sha256').update(text).digest().subarray(0, 10)]
    .map((byte) => byte.toString(2).padStart(8, '0'))
    .join('');
  return (bits.match(/.{5}/g) ?? []).map((group) => letters[Number.parseInt(group, 2)]).join('');
}
