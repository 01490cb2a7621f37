// The expected forwarding on a node, by the program that forwards there: kube-proxy or Cilium.

import type { EndpointSlice, Key, Node, Service } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import { runToEnd, type Steps } from '../../model/run-to-end.ts';
import { type CiliumForwarding, ciliumForwarding } from './forwarding.ts';
import { expectedForwardingInSteps, type Forwarding } from '../forwarding.ts';

export type NodeForwarding = Forwarding | CiliumForwarding;

export const nodeForwarding = (
  ...input: Parameters<typeof nodeForwardingInSteps>
): NodeForwarding => runToEnd(nodeForwardingInSteps(...input));

/**
 * Yields after each Service; for Cilium it does not yield. `localAddresses` are those of the node's
 * interfaces, by default the InternalIPs.
 */
export function* nodeForwardingInSteps(
  services: Iterable<Service>,
  slices: ReadonlyMap<Key, readonly EndpointSlice[]>,
  node: Node,
  config: ProxyConfig,
  localAddresses?: readonly string[],
): Steps<NodeForwarding> {
  const { cilium } = config;
  return cilium === null
    ? yield* expectedForwardingInSteps(services, slices, node, config, localAddresses)
    : ciliumForwarding(services, slices, node, config, cilium, localAddresses);
}
