// Derives how Cilium is configured from its maps, by majority: one odd flag is a fault, not a
// setting. Reference: updateFrontend of pkg/loadbalancer/reconciler/bpf_reconciler.go,
// cilium@v1.20.2.
//
// Left out: node-port-range and k8s-service-proxy-name, which no entry shows; the defaults hold.

import type { CiliumConfig } from '../../model/cilium-config.ts';
import { defaultCiliumConfig } from '../../model/cilium-config.ts';
import { isMaglevByDefault, isUnspecified } from './load-balancer.ts';
import type { MapEntry, ServiceEntry } from './map-entries.ts';
import { serviceFlags } from './map-entries.ts';

/** The configuration that most entries have. */
export function ciliumConfigIn(entries: readonly MapEntry[]): CiliumConfig {
  const masters = entries.filter(
    (entry) => entry.kind === 'service' && entry.scope === 0 && entry.protocol !== 'any',
  ) as readonly ServiceEntry[];
  const routable = masters.filter((it) => has(it, serviceFlags.routable));
  const withRanges = new Set(
    entries.flatMap((entry) => (entry.kind === 'source range' ? entry.id : [])),
  );
  const others = masters.filter((it) => withRanges.has(it.id) && !has(it, typesWithRanges));
  const clusterIPs = masters.filter((it) => !has(it, allTypes));
  const isDirect = (protocol: string): boolean =>
    isMost(
      routable.filter((it) => it.protocol === protocol),
      serviceFlags.dsr,
    );
  const isMixed = (protocol: string): boolean => {
    const own = routable.filter((it) => it.protocol === protocol);
    return own.some((it) => has(it, serviceFlags.dsr) !== isDirect(protocol));
  };
  const tables = new Set(entries.flatMap((entry) => (entry.kind === 'maglev' ? entry.id : [])));
  const isByDefault = isMaglevByDefault(masters, ({ id }) => tables.has(id));
  return {
    ...defaultCiliumConfig(),
    algorithm: isByDefault ? 'maglev' : 'random',
    algorithmAnnotation: masters.some(({ word }) => word >>> 24 !== 0),
    mode: isDirect('tcp') ? (isDirect('udp') ? 'dsr' : 'hybrid') : 'snat',
    modeAnnotation: isMixed('tcp') || isMixed('udp'),
    serviceTopology: null,
    sourceRangeAllTypes: isMost(others, serviceFlags.sourceRanges),
    externalClusterIP: isMost(clusterIPs, serviceFlags.routable),
    nodePortAddresses: nodePortAddressesIn(masters),
  };
}

const has = ({ flags }: ServiceEntry, flag: number): boolean => (flags & flag) !== 0;

const { externalIP, loadBalancer, nodePort, hostPort, localRedirect } = serviceFlags;
const typesWithRanges = externalIP | loadBalancer;
const allTypes = externalIP | loadBalancer | nodePort | hostPort | localRedirect;

const isMost = (list: readonly ServiceEntry[], flag: number): boolean =>
  2 * list.filter((it) => has(it, flag)).length > list.length;

/** Addresses that have at least half of the node ports of their family. */
function nodePortAddressesIn(masters: readonly ServiceEntry[]): string[] {
  const ports = masters.filter((it) => has(it, nodePort));
  const byAddress = Map.groupBy(ports, ({ address }) => address);
  const counts = { ip: 0, ip6: 0 };
  for (const { family, address } of ports) if (isUnspecified(address)) counts[family]++;
  return [...byAddress].flatMap(([address, list]) => {
    const family = list[0]?.family ?? 'ip';
    return !isUnspecified(address) && 2 * list.length >= counts[family] ? address : [];
  });
}
