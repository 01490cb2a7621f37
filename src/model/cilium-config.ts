// How Cilium's load balancer is configured, as far as its maps follow from it. The names and
// defaults are those of the agent's flags and of the ConfigMap cilium-config:
// pkg/loadbalancer/config.go, cilium@v1.20.2.

export type CiliumConfig = Readonly<ReturnType<typeof defaultCiliumConfig>>;

export const defaultCiliumConfig = () => ({
  /** bpf-lb-algorithm: of connections from outside. */
  algorithm: 'random' as 'random' | 'maglev',
  /** bpf-lb-mode: with dsr, answers go to the client directly; hybrid: only those of TCP. */
  mode: 'snat' as 'snat' | 'dsr' | 'hybrid',
  /** enable-service-topology; null: not known, so either is right. */
  serviceTopology: false as boolean | null,
  /** bpf-lb-source-range-all-types */
  sourceRangeAllTypes: false,
  /** bpf-lb-external-clusterip */
  externalClusterIP: false,
  /** bpf-lb-algorithm-annotation and bpf-lb-mode-annotation */
  algorithmAnnotation: false,
  modeAnnotation: false,
  /** node-port-range */
  nodePortRange: [30_000, 32_767] as readonly [low: number, high: number],
  /** k8s-service-proxy-name: the Services with this label; '' selects those without one. */
  serviceProxyName: '',
  /** Addresses of the node that have node ports, which Cilium takes from its devices. */
  nodePortAddresses: [] as readonly string[],
});
