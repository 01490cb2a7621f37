// The expected forwarding on a node, by the program that forwards there: kube-proxy or Cilium.

import type { EndpointSlice, Key, Node, Service } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import { type CiliumForwarding, ciliumForwarding } from './forwarding.ts';
import { expectedForwarding, type Forwarding } from '../forwarding.ts';

export type NodeForwarding = Forwarding | CiliumForwarding;

/** `localAddresses` are those of the node's interfaces, by default the InternalIPs. */
export function nodeForwarding(
  services: Iterable<Service>,
  slices: ReadonlyMap<Key, readonly EndpointSlice[]>,
  node: Node,
  config: ProxyConfig,
  localAddresses?: readonly string[],
): NodeForwarding {
  const { cilium } = config;
  return cilium === null
    ? expectedForwarding(services, slices, node, config, localAddresses)
    : ciliumForwarding(services, slices, node, config, cilium, localAddresses);
}
