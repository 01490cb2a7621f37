// The Service ports that a kube-proxy serves: serviceToServiceMap of
// pkg/proxy/servicechangetracker.go, newBaseServiceInfo of pkg/proxy/serviceport.go, and the
// informers' selectors of cmd/kube-proxy/app/server.go, kubernetes@v1.36.3. `proxyRules` has the
// differences of older releases.

import { type CIDR, everything, type IPFamily, parseCIDR, parseIP } from '../model/ip.ts';
import type { EndpointSlice, Node, Service, ServicePort } from '../model/objects.ts';
import { label } from '../model/objects.ts';
import type { Protocol, ProxyConfig } from '../model/proxy-config.ts';
import { categorize, endpointSets, type UsableEndpoints } from './topology.ts';

type Place = Pick<Node, 'name' | 'zone'>;

export type ProxyRules = ReturnType<typeof proxyRules>;

/**
 * Differences between releases of kube-proxy that packets show. Read from the sources of 1.32.13,
 * 1.33.13, 1.34.3, 1.35.4 and 1.36.3; others use the nearest.
 */
export function proxyRules({ mode, minor, featureGates }: ProxyConfig, { name, zone }: Place) {
  const recent = minor >= 36;
  return {
    node: name,
    zone,
    nodeHints: minor >= 35 || (featureGates.PreferSameTrafficDistribution ?? minor >= 34),
    prefers: recent ? ('running' as const) : ('local' as const),
    /** kube-proxy ignores a Service with the headless label and a cluster IP (up to 1.35). */
    skipsHeadlessLabel: !recent,
    /** kube-proxy ignores slices with the label service-proxy-name (up to 1.35). */
    skipsProxiedSlices: !recent,
    externalIPs: !recent || (featureGates.AllowServiceExternalIPs ?? true),
    /** A hairpin is masqueraded for the node's own endpoints only (nftables mode since 1.36). */
    localHairpins: recent && mode === 'nftables',
    /** Packets of the node are checked for endpoints before DNAT (nftables mode up to 1.32). */
    checksNodeFirst: minor <= 32 && mode === 'nftables',
  };
}

/** A port of a Service in one address family, as kube-proxy serves it. */
export type ProxiedPort = Readonly<ReturnType<typeof proxiedPorts>[number]>;

/** Whether some release of kube-proxy may serve a Service. */
export const isForwarded = ({ clusterIP, type, labels }: Service): boolean =>
  clusterIP !== '' &&
  clusterIP !== 'None' &&
  type !== 'ExternalName' &&
  !Object.hasOwn(labels, label.serviceProxyName);

const isServed = (service: Service, rules: ProxyRules): boolean =>
  isForwarded(service) &&
  !(rules.skipsHeadlessLabel && Object.hasOwn(service.labels, label.headless));

/** GetClusterIPByFamily. */
function clusterIPOf(service: Service, family: IPFamily): string | null {
  if (service.ipFamilies.length === 0) {
    const ip = parseIP(service.clusterIP);
    return ip?.family === family ? ip.text : null;
  }
  const index = service.ipFamilies.indexOf(family);
  return parseIP(service.clusterIPs[index] ?? '')?.text ?? null;
}

const ofFamily = (texts: readonly string[], family: string): string[] =>
  texts.map((text) => parseIP(text.trim())).flatMap((ip) => (ip?.family === family ? ip.text : []));

/** A range of all addresses is equal to none. */
function sourceRangesOf(service: Service, family: string): readonly CIDR[] {
  const all = service.loadBalancerSourceRanges.map(parseCIDR);
  const ranges = all.flatMap((range) => (range?.family === family ? [range] : []));
  const isAll = ({ family, low, high }: CIDR): boolean =>
    low === everything[family].low && high === everything[family].high;
  return ranges.some(isAll) ? [] : ranges;
}

const protocols: Readonly<Record<string, Protocol>> = { TCP: 'tcp', UDP: 'udp', SCTP: 'sctp' };

/** The ports of a Service that kube-proxy serves; `slices` are those that name it. */
export function proxiedPorts(
  service: Service,
  slices: readonly EndpointSlice[],
  rules: ProxyRules,
) {
  if (!isServed(service, rules)) return [];
  const seen = slices.filter(
    ({ labels }) =>
      !Object.hasOwn(labels, label.headless) &&
      !(rules.skipsProxiedSlices && Object.hasOwn(labels, label.serviceProxyName)),
  );
  return (['IPv4', 'IPv6'] as const).flatMap((family) => {
    const clusterIP = clusterIPOf(service, family);
    if (clusterIP === null) return [];
    const shared = sharedOf(service, family, clusterIP, rules);
    return service.ports.flatMap((port) => {
      const protocol = protocols[port.protocol];
      if (protocol === undefined) return [];
      const name = port.name === '' ? service.key : `${service.key}:${port.name}`;
      const usable = usableOf(shared, seen, port, rules);
      return {
        ...shared,
        key: `${name} ${protocol} ${family}`,
        /** `namespace/name:port`; without a colon where the port has no name. */
        name,
        protocol,
        port: port.port,
        /** 0: none. */
        nodePort: port.nodePort,
        /** Possible sets of endpoints; the node uses one of them. null if there are too many. */
        usable: () => usable,
      };
    });
  });
}

function sharedOf(service: Service, family: IPFamily, clusterIP: string, rules: ProxyRules) {
  const accessible =
    service.type === 'LoadBalancer' ||
    service.type === 'NodePort' ||
    service.externalIPs.length > 0;
  const externalLocal = accessible && service.externalTrafficPolicy === 'Local';
  const checked = externalLocal && service.type === 'LoadBalancer';
  return {
    namespace: service.namespace,
    service: service.name,
    family,
    /** Addresses in canonical form. */
    clusterIP,
    externalIPs: rules.externalIPs ? ofFamily(service.externalIPs, family) : [],
    loadBalancerIPs: ofFamily(service.loadBalancerIPs, family),
    /** Sources that may use the load balancer IPs; empty for all. */
    sourceRanges: sourceRangesOf(service, family),
    healthCheckNodePort: checked ? service.healthCheckNodePort : 0,
    affinitySeconds: service.affinitySeconds,
    internalLocal: service.internalTrafficPolicy === 'Local',
    externalLocal,
  };
}

function usableOf(
  shared: ReturnType<typeof sharedOf>,
  slices: readonly EndpointSlice[],
  { name, protocol, nodePort }: ServicePort,
  rules: ProxyRules,
): readonly UsableEndpoints[] | null {
  const { family, internalLocal, externalLocal, externalIPs, loadBalancerIPs } = shared;
  const external = nodePort !== 0 || externalIPs.length > 0 || loadBalancerIPs.length > 0;
  const uses = {
    cluster: !internalLocal || external,
    local: internalLocal || (externalLocal && external),
  };
  const sets = endpointSets(slices, { name, protocol, family }, rules);
  return sets?.map((endpoints) => categorize(endpoints, uses, rules)) ?? null;
}
