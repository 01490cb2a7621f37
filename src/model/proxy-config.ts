// How a kube-proxy is configured, as far as its rules follow from it, and the packets that are put
// to rules. Fields of the KubeProxyConfiguration (k8s.io/kubernetes@v1.36.3 pkg/proxy/apis/config)
// and the defaults of its v1alpha1 form and of cmd/kube-proxy/app/server_linux.go.
//
// Left out: everything about connections, timing, logging and metrics; IPVS, whose rules are in
// no dump.

export const proxyModes = ['iptables', 'nftables', 'ipvs'] as const;

export interface ProxyConfig {
  readonly mode: (typeof proxyModes)[number];
  /** Minor version of kube-proxy, which may lag behind the control plane's. */
  readonly minor: number;
  readonly detectLocalMode: string;
  readonly clusterCIDRs: readonly string[];
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  /** CIDRs, or `primary` alone; empty: the default of the mode. */
  readonly nodePortAddresses: readonly string[];
  readonly masqueradeAll: boolean;
  /** Only of iptables mode. */
  readonly localhostNodePorts: boolean;
  /** '' and the unspecified addresses: none is given. */
  readonly bindAddress: string;
  readonly featureGates: Readonly<Record<string, boolean>>;
}

/** The minor version in a text such as `v1.33.13`, `1.33` or `v1.31.2-eks-4f2c`; null: in none. */
export function minorIn(version: string): number | null {
  const minor = /^v?1\.(?<minor>\d+)(?:[.+-]|$)/.exec(version.trim())?.groups?.minor;
  return minor === undefined ? null : Number(minor);
}

/** A kube-proxy of whose configuration nothing is known but its mode and version. */
export function defaultProxyConfig(mode: ProxyConfig['mode'], minor: number): ProxyConfig {
  return {
    mode,
    minor,
    detectLocalMode: 'ClusterCIDR',
    clusterCIDRs: [],
    bridgeInterface: '',
    interfaceNamePrefix: '',
    nodePortAddresses: mode === 'nftables' ? ['primary'] : [],
    masqueradeAll: false,
    localhostNodePorts: true,
    bindAddress: '',
    featureGates: {},
  };
}

export type Protocol = 'tcp' | 'udp' | 'sctp';

/** The first packet of a connection, as a node meets it. Addresses are in canonical form. */
export interface Packet {
  /** By the interface of a pod of the node, out of a process of the node, or from elsewhere. */
  readonly from: 'pod' | 'node' | 'outside';
  readonly src: string;
  readonly dst: string;
  readonly protocol: Protocol;
  readonly dport: number;
  /** The interface by which it comes in, where that is known better than of the node. */
  readonly iif?: string;
}
