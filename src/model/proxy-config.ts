// How a kube-proxy is configured, as far as its rules follow from it, and the packets that are put
// to rules, with their outcomes. Fields of the KubeProxyConfiguration (k8s.io/kubernetes@v1.36.3
// pkg/proxy/apis/config) and the defaults of its v1alpha1 form and of
// cmd/kube-proxy/app/server_linux.go.
//
// Left out: connections, timing, logging and metrics; IPVS, whose rules are in no dump.

import type { CiliumConfig } from './cilium-config.ts';

export const proxyModes = ['iptables', 'nftables', 'ipvs'] as const;

/** What forwards the packets to Services on a node. */
export type DataPlane = (typeof proxyModes)[number] | 'cilium';

/** What an agent is asked to read: rules of kube-proxy, maps of Cilium, or what there is. */
export const dataplaneChoices = ['auto', 'kube-proxy', 'cilium'] as const;

export type DataplaneChoice = (typeof dataplaneChoices)[number];

export type ProxyConfig = Readonly<ReturnType<typeof defaultProxyConfig>>;

/** The minor version in a text such as `v1.33.13`, `1.33` or `v1.31.2-eks-4f2c`; null: in none. */
export function minorIn(version: string): number | null {
  const minor = /^v?1\.(?<minor>\d+)(?:[.+-]|$)/.exec(version.trim())?.groups?.minor;
  return minor === undefined ? null : Number(minor);
}

export const defaultProxyConfig = (mode: DataPlane, minor: number) => ({
  mode,
  /** Minor version of kube-proxy, which may lag behind the control plane's. */
  minor,
  detectLocalMode: 'ClusterCIDR',
  clusterCIDRs: [] as readonly string[],
  bridgeInterface: '',
  interfaceNamePrefix: '',
  /** CIDRs and the keywords of kube-proxy; empty: the default of the mode. */
  nodePortAddresses: (mode === 'nftables' ? ['primary'] : []) as readonly string[],
  masqueradeAll: false,
  /** Only of iptables mode. */
  localhostNodePorts: true,
  /** '' and the unspecified addresses: none is given. */
  bindAddress: '',
  featureGates: {} as Readonly<Record<string, boolean>>,
  /** null: kube-proxy forwards on the node. */
  cilium: null as CiliumConfig | null,
});

/** Linux takes at most 15 bytes (IFNAMSIZ). A longer name or prefix matches no interface. */
export const isInterfaceName = (text: string): boolean => /^[!-~]{0,15}$/.test(text);

export type Protocol = 'tcp' | 'udp' | 'sctp';

/** The first packet of a connection, as a node meets it. Addresses are in canonical form. */
export interface Packet {
  /** By the interface of a pod of the node, out of a process of the node, or from elsewhere. */
  readonly from: 'pod' | 'node' | 'outside';
  readonly src: string;
  readonly dst: string;
  readonly protocol: Protocol;
  readonly dport: number;
  /**
   * The interface at which the packet arrives: a name, a prefix (`cali*`), or any other than these
   * (`!cbr0`, `!cali*`). Absent if any is possible.
   */
  readonly iif?: string;
}

/** The outcome of a packet; with `pass` it continues untranslated. */
export type ExpectedOutcome =
  | { readonly kind: 'reject' | 'drop' | 'pass' }
  | {
      readonly kind: 'endpoints';
      /** By `ip:port`, all with the same probability: whether its packets are masqueraded. */
      readonly endpoints: ReadonlyMap<string, boolean>;
      /** For this long a source keeps its endpoint; null without session affinity. */
      readonly affinitySeconds: number | null;
    };
