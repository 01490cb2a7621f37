// What kube-proxy derives from its Node: local addresses, addresses with node ports, sources that
// are pods, and node IPs. util/nodeport_addresses.go, util/localdetector.go of pkg/proxy,
// detectNodeIPs and expandNodePortAddressKeywords of cmd/kube-proxy/app/server.go and
// getLocalDetectors of server_linux.go, kubernetes@v1.37.2.
//
// Left out: KubeProxyNFTablesLocalhostNodePorts, which is off: its rules reject packets of the node
// itself to node ports of loopback addresses, where nftables mode has no frontends.

import type { CIDR, IPFamily } from '../model/ip.ts';
import { everything, familyOf, isWithinAny, parseCIDR, parseIP } from '../model/ip.ts';
import type { Node } from '../model/objects.ts';
import type { Packet, ProxyConfig } from '../model/proxy-config.ts';

export type ProxyNode = ReturnType<typeof proxyNode>;

const loopbacks = ['127.0.0.0/8', '::1/128'].map(parseCIDR).filter((cidr) => cidr !== null);
const loopback = { IPv4: '127.0.0.1', IPv6: '::1' } as const;

export const isLoopback = (address: string): boolean => isWithinAny(address, loopbacks);

/**
 * `localAddresses` are the addresses of the node's interfaces, by default the InternalIPs. An
 * ExternalIP is local only if an interface has it: kube-proxy asks the kernel (`--dst-type LOCAL`)
 * or reads the interfaces (GetNodeIPs), and never the Node.
 */
export function proxyNode(
  node: Node,
  config: ProxyConfig,
  localAddresses: readonly string[] = node.addresses,
) {
  const local = new Set(canonical(localAddresses));
  const nodeIP = nodeIPsOf(node, config);
  const detectors = detectorsOf(node, config);
  return {
    isLocal: (address: string): boolean => local.has(address) || isLoopback(address),
    /** Whether node ports are served at an address, which is local. */
    servesNodePorts: nodePortsAt(config, nodeIP),
    /** Whether kube-proxy distinguishes pods from other senders. */
    detects: { IPv4: detectors.IPv4 !== null, IPv6: detectors.IPv6 !== null },
    /** Whether kube-proxy takes the packet to come from a pod. */
    isFromPod: (packet: Packet): boolean => detectors[familyOf(packet.src)]?.(packet) ?? false,
    /** kube-proxy's node IP of the family; a loopback address if the Node has none. */
    nodeIP,
    /** Local addresses in the Node object. */
    addresses: nodeAddressesOf(node).filter((address) => local.has(address)),
  };
}

const nodeAddressesOf = ({ addresses, externalIPs }: Node): readonly string[] =>
  canonical([...addresses, ...externalIPs]);

const canonical = (texts: readonly string[]): string[] => [
  ...new Set(texts.flatMap((text) => parseIP(text)?.text ?? [])),
];

/** GetNodeHostIPs; an address to bind to comes first. */
function nodeIPsOf(node: Node, { bindAddress }: ProxyConfig): Record<IPFamily, string> {
  const found: Record<IPFamily, string> = { ...loopback };
  for (const ip of [...nodeAddressesOf(node)].reverse()) found[familyOf(ip)] = ip;
  const bound = parseIP(bindAddress);
  if (bound !== null && !['0.0.0.0', '::'].includes(bound.text)) found[bound.family] = bound.text;
  return found;
}

const keywords: readonly string[] = ['primary', 'localhost', 'all'];

/** The item that a kube-proxy of this release refuses: validateKubeProxyNodePortAddress. */
export function refusedNodePortAddress({ minor, nodePortAddresses: list }: ProxyConfig) {
  const hasKeywords = minor >= 37;
  const isTaken = (text: string, at: number): boolean => {
    if (hasKeywords && keywords.includes(text)) return list.indexOf(text) === at;
    if (!hasKeywords && text === 'primary') return list.length === 1;
    return text === text.trim() && parseCIDR(text) !== null;
  };
  const at = list.findIndex((text, at) => !isTaken(text, at));
  if (at < 0) return null;
  const words = hasKeywords ? 'each of primary, localhost and all once' : 'primary alone';
  const message = `kube-proxy of this release takes CIDRs, or ${words}`;
  return { message, field: `nodePortAddresses[${at}]`, value: JSON.stringify(list[at]) };
}

/** expandNodePortAddressKeywords, NewNodePortAddresses and GetNodeIPs, for local addresses. */
function nodePortsAt(
  { mode, nodePortAddresses, localhostNodePorts }: ProxyConfig,
  nodeIP: Readonly<Record<IPFamily, string>>,
): (address: string) => boolean {
  const own = [nodeIP.IPv4, nodeIP.IPv6].filter((address) => !isLoopback(address));
  const rangesOf = (text: string): readonly (CIDR | null)[] => {
    if (text === 'localhost') return loopbacks;
    if (text === 'all') return Object.values(everything);
    if (text !== 'primary') return [parseCIDR(text)];
    return own.map((address) => parseCIDR(`${address}/${address.includes(':') ? 128 : 32}`));
  };
  const isDefault = nodePortAddresses.length === 0 && mode === 'nftables';
  const texts = isDefault ? ['primary'] : nodePortAddresses;
  const given = texts.flatMap(rangesOf).filter((range) => range !== null);
  const served = { IPv4: ofFamily(given, 'IPv4'), IPv6: ofFamily(given, 'IPv6') };
  const onLocalhost =
    mode === 'iptables' && localhostNodePorts && served.IPv4.some(reachesLocalhost);
  return (address) => {
    const ip = parseIP(address);
    if (ip === null) return false;
    if (isLoopback(address) && (ip.family === 'IPv6' || !onLocalhost)) return false;
    return isWithinAny(address, served[ip.family]);
  };
}

function ofFamily(cidrs: readonly CIDR[], family: IPFamily): readonly CIDR[] {
  const own = cidrs.filter((cidr) => cidr.family === family);
  return own.length === 0 ? [everything[family]] : own;
}

const reachesLocalhost = ({ low, high }: CIDR): boolean => low <= 0x7fffffff && high >= 0x7f000000;

type Detector = (packet: Packet) => boolean;

/** The first range of each family counts, as upstream. */
function detectorsOf(node: Node, config: ProxyConfig): Record<IPFamily, Detector | null> {
  switch (config.detectLocalMode) {
    case 'ClusterCIDR':
    case '':
      return byRange(config.clusterCIDRs);
    case 'NodeCIDR':
      return byRange(node.podCIDRs);
    case 'BridgeInterface':
      return byInterface((name) => name === config.bridgeInterface);
    case 'InterfaceNamePrefix':
      return byInterface((name) => name.startsWith(config.interfaceNamePrefix));
    default:
      return { IPv4: null, IPv6: null };
  }
}

function byRange(texts: readonly string[]): Record<IPFamily, Detector | null> {
  const cidrs = texts.map(parseCIDR).filter((cidr) => cidr !== null);
  const detector = (family: IPFamily): Detector | null => {
    const range = cidrs.find((cidr) => cidr.family === family);
    if (range === undefined) return null;
    return ({ src }) => isWithinAny(src, [range]);
  };
  return { IPv4: detector('IPv4'), IPv6: detector('IPv6') };
}

/** Packets of the node's own processes have no input interface. */
function byInterface(fits: (name: string) => boolean): Record<IPFamily, Detector> {
  const detector: Detector = ({ from, iif }) => from !== 'node' && iif !== undefined && fits(iif);
  return { IPv4: detector, IPv6: detector };
}
