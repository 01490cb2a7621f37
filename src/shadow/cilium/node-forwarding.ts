// The expected forwarding on a node, by the program that forwards there: kube-proxy or Cilium.

import type { EndpointSlice, Key, Node, Service } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import { runToEnd, type Steps } from '../../model/run-to-end.ts';
import { type CiliumForwarding, ciliumForwarding } from './forwarding.ts';
import { type Forwarding, kubeProxyForwarding } from '../forwarding.ts';

export type NodeForwarding = Forwarding | CiliumForwarding;

/** `localAddresses` are those of the node's interfaces, by default the InternalIPs. */
export const nodeForwarding = (...input: Parameters<typeof forwardingInSteps>): NodeForwarding =>
  runToEnd(forwardingInSteps(...input));

/** The same in steps; Cilium's is one. */
export function* forwardingInSteps(
  services: Iterable<Service>,
  slices: ReadonlyMap<Key, readonly EndpointSlice[]>,
  node: Node,
  config: ProxyConfig,
  localAddresses?: readonly string[],
): Steps<NodeForwarding> {
  const { cilium } = config;
  return cilium === null
    ? yield* kubeProxyForwarding(services, slices, node, config, localAddresses)
    : ciliumForwarding(services, slices, node, config, cilium, localAddresses);
}
