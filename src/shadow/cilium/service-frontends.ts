// The frontends that Cilium derives from a Service: convertService and its helpers in
// pkg/loadbalancer/reflectors/conversions.go and the filter of Services in pkg/k8s/utils,
// cilium@v1.20.2.
//
// Differences from kube-proxy: node ports have one entry for all addresses of the node; a Service
// with one Local policy has two scopes; a headless label means no frontends at all; annotations
// choose types and nodes.
//
// Left out: host ports, which belong to pods; families that are disabled in Cilium.

import { parseIP } from '../../model/ip.ts';
import { label, type Node, type Service } from '../../model/objects.ts';
import type { Protocol } from '../../model/proxy-config.ts';
import type { CiliumConfig } from '../../model/cilium-config.ts';
import type { BalancedKind } from '../../rules/cilium/load-balancer.ts';

export interface CiliumFrontend {
  readonly kind: Exclude<BalancedKind, 'host port'>;
  /** In canonical form; of node ports the unspecified address. */
  readonly address: string;
  readonly family: 'IPv4' | 'IPv6';
  readonly port: number;
  readonly protocol: Protocol;
  /** 0: external, 1: internal. */
  readonly scopes: readonly number[];
  /** spec.ports[].name */
  readonly portName: string;
}

const protocols: Readonly<Record<string, Protocol>> = { TCP: 'tcp', UDP: 'udp', SCTP: 'sctp' };

export const ciliumAnnotation = {
  type: 'service.cilium.io/type',
  node: 'service.cilium.io/node',
  sourceRangesPolicy: 'service.cilium.io/src-ranges-policy',
  algorithm: 'service.cilium.io/lb-algorithm',
  mode: 'service.cilium.io/forwarding-mode',
  weight: 'service.cilium.io/weight',
} as const;

const modelled: ReadonlySet<string> = new Set(Object.values(ciliumAnnotation));

/** Annotations that change no entry of the maps: IPAM, and policies of other parts of Cilium. */
const isHarmless = (name: string): boolean =>
  /^io\.cilium\/lb-ipam-|^service\.cilium\.io\/(?:shared|global-sync-endpoint-slices)$/.test(name);

/** An annotation whose effect is not modelled; null: none. */
export const unknownAnnotation = ({ ciliumAnnotations }: Service): string | null =>
  Object.keys(ciliumAnnotations).find((name) => !modelled.has(name) && !isHarmless(name)) ?? null;

/** Whether Cilium on this node serves the Service. */
function isSelected(service: Service, node: Node, { serviceProxyName }: CiliumConfig): boolean {
  const { labels, ciliumAnnotations } = service;
  if ((labels[label.serviceProxyName] ?? '') !== serviceProxyName) return false;
  const isProxied = Object.hasOwn(labels, label.serviceProxyName);
  if (serviceProxyName === '' && isProxied) return false;
  const wanted = ciliumAnnotations[ciliumAnnotation.node];
  if (wanted !== undefined && wanted !== node.ciliumNode) return false;
  const isHeadless = service.clusterIP.toLowerCase() === 'none';
  return !isHeadless && !Object.hasOwn(labels, label.headless);
}

/** All frontends of the Service, of both families. */
export function ciliumFrontends(
  service: Service,
  node: Node,
  config: CiliumConfig,
): readonly CiliumFrontend[] {
  if (!isSelected(service, node, config)) return [];
  const isTwofold =
    (service.externalTrafficPolicy === 'Local') !== (service.internalTrafficPolicy === 'Local');
  const scopes = isTwofold ? [0, 1] : [0];
  const type = service.ciliumAnnotations[ciliumAnnotation.type];
  const isType = /^(?:ClusterIP|NodePort|LoadBalancer)$/.test(type ?? '');
  const exposes = (wanted: string): boolean => !isType || type === wanted;
  const { clusterIP, clusterIPs } = service;
  const isOpen = service.type === 'NodePort' || service.type === 'LoadBalancer';
  return [
    ...(exposes('ClusterIP')
      ? at(service, 'cluster IP', clusterIPs.length > 0 ? clusterIPs : [clusterIP], [0])
      : []),
    ...(isOpen && exposes('NodePort')
      ? at(service, 'node port', anyAddresses(service), scopes)
      : []),
    ...(service.type === 'LoadBalancer' && exposes('LoadBalancer')
      ? at(service, 'load balancer IP', service.loadBalancerIPs, scopes)
      : []),
    ...at(service, 'external IP', service.externalIPs, [0]),
  ];
}

function at(
  { ports }: Service,
  kind: CiliumFrontend['kind'],
  addresses: readonly string[],
  scopes: readonly number[],
): CiliumFrontend[] {
  return addresses.flatMap((text) => {
    const ip = parseIP(text);
    if (ip === null) return [];
    return ports.flatMap(({ name: portName, port: ownPort, nodePort, protocol: word }) => {
      const protocol = protocols[word];
      const isNodePort = kind === 'node port';
      if (protocol === undefined || (isNodePort && nodePort === 0)) return [];
      const port = isNodePort ? nodePort : ownPort;
      return { kind, address: ip.text, family: ip.family, port, protocol, scopes, portName };
    });
  });
}

/** The unspecified address of each family of the Service. */
function anyAddresses({ ipFamilies, clusterIP, clusterIPs }: Service): string[] {
  const unspecified = { IPv4: '0.0.0.0', IPv6: '::' } as const;
  const texts = clusterIPs.length > 0 ? clusterIPs : [clusterIP];
  const families =
    ipFamilies.length > 0
      ? (['IPv4', 'IPv6'] as const).filter((family) => ipFamilies.includes(family))
      : texts.flatMap((text) => parseIP(text)?.family ?? []);
  return [...new Set(families.map((family) => unspecified[family]))];
}
