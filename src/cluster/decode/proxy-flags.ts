// Reads the fields of Services and Nodes that only kube-proxy reads, with the defaults of the API
// (pkg/apis/core/v1 of kubernetes@v1.36.3).
//
// Left out: fields that kube-proxy ignores, such as loadBalancerIP and loadBalancerClass.

import type { Node, Service } from '../../model/objects.ts';
import type { Fields } from './json-fields.ts';
import { list, optionalNumber, text, texts, within, word } from './json-fields.ts';

type Proxied = Pick<
  Service,
  | 'clusterIPs'
  | 'externalIPs'
  | 'loadBalancerSourceRanges'
  | 'internalTrafficPolicy'
  | 'externalTrafficPolicy'
  | 'affinitySeconds'
  | 'healthCheckNodePort'
>;

/** What kube-proxy alone reads of a Service's spec. */
export function proxiedSpec(spec: Fields): Proxied {
  return {
    clusterIPs: texts(spec, 'clusterIPs'),
    externalIPs: texts(spec, 'externalIPs'),
    loadBalancerSourceRanges: texts(spec, 'loadBalancerSourceRanges'),
    internalTrafficPolicy: trafficPolicy(spec, 'internalTrafficPolicy'),
    externalTrafficPolicy: trafficPolicy(spec, 'externalTrafficPolicy'),
    affinitySeconds: affinitySeconds(spec),
    healthCheckNodePort: optionalNumber(spec, 'healthCheckNodePort') ?? 0,
  };
}

/**
 * The IPs of a Service's status.loadBalancer that nodes answer for: not those of ipMode Proxy
 * (IsVIPMode of pkg/proxy/util/utils.go). An ingress may have only a hostname.
 */
export function loadBalancerIPs(status: Fields): readonly string[] {
  return within(status, 'loadBalancer', (loadBalancer) => {
    const ips = list(loadBalancer, 'ingress', (ingress) => {
      const ipMode = text(ingress, 'ipMode');
      return ipMode === '' || ipMode === 'VIP' ? text(ingress, 'ip') : '';
    });
    return ips.includes('') ? ips.filter((ip) => ip !== '') : ips;
  });
}

/** kube-proxy treats every word except Local as Cluster. */
function trafficPolicy(spec: Fields, name: string): 'Cluster' | 'Local' {
  return text(spec, name) === 'Local' ? 'Local' : 'Cluster';
}

/** DefaultClientIPServiceAffinitySeconds. */
const defaultAffinitySeconds = 10_800;

function affinitySeconds(spec: Fields): number | null {
  const timeout = within(spec, 'sessionAffinityConfig', (config) =>
    within(config, 'clientIP', (clientIP) => optionalNumber(clientIP, 'timeoutSeconds')),
  );
  return text(spec, 'sessionAffinity') === 'ClientIP' ? (timeout ?? defaultAffinitySeconds) : null;
}

/** A Node's IPs by type; GetNodeHostIPs of pkg/util/node/node.go takes internal ones first. */
export function nodeAddresses(status: Fields): Pick<Node, 'addresses' | 'externalIPs'> {
  const all = list(status, 'addresses', (address) => ({
    type: text(address, 'type'),
    address: word(address, 'address'),
  }));
  const byType = (wanted: string) =>
    all.flatMap(({ type, address }) => (type === wanted ? address : []));
  return { addresses: byType('InternalIP'), externalIPs: byType('ExternalIP') };
}

/** A Node's spec.podCIDRs; spec.podCIDR where there is no list. */
export function podCIDRs(spec: Fields): readonly string[] {
  const all = texts(spec, 'podCIDRs');
  const first = text(spec, 'podCIDR');
  return all.length === 0 && first !== '' ? [first] : all;
}
