// Rules that decided about a packet, and which of them belong to other programs.
//
// Chain names show which program a rule belongs to, so that findings can say so; they prove nothing
// else. Another program may masquerade a packet that leaves the pods' ranges. It may also
// masquerade a packet of another node's pod that this node forwards again: without that, the
// answers would take another way, and such a pod sends to cluster IPs here only if the network
// routes the service range to nodes (pkg/proxy/nftables/proxier.go setupNFTables,
// kubernetes@v1.36.3). A rule that stops what was sent to one endpoint is most likely a network
// policy about that pod (docs/decisions/0024).

import { ipOf, isWithinAny, parseCIDR } from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { Packet } from '../../model/proxy-config.ts';
import { formatAddress } from '../../rules/address.ts';
import type { Address, PacketField } from '../../rules/ruleset.ts';
import type { TraceStep } from '../../rules/walk/walk-state.ts';
import type { OutcomeShare } from '../../rules/walk/walk.ts';
import type { Forwarding } from '../../shadow/forwarding.ts';

/**
 * Chains that kube-proxy and the kubelet of any release since 1.20 write. Other programs, such as
 * kube-router, use the same prefix.
 * pkg/proxy/{iptables,ipvs,userspace}/proxier.go, pkg/kubelet/kubelet_network_linux.go.
 */
const kubernetesChains = new RegExp(
  `^KUBE-(?:${[
    'SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|MARK-DROP|FORWARD|FIREWALL',
    'PROXY-FIREWALL|PROXY-CANARY|PORTALS-(?:CONTAINER|HOST)|NODEPORT-(?:CONTAINER|HOST|NON-LOCAL)',
    'LOAD-BALANCER|NODE-PORT|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER',
    'KUBELET-CANARY|IPTABLES-HINT',
    '(?:SVC|SVL|EXT|XLB|FW|SEP)-[A-Z2-7]{16}',
  ].join('|')})$`,
);

/** The rule is kube-proxy's or the kubelet's. */
export const isKubernetesRule = ({ chain, base }: TraceStep): boolean =>
  base.table.name === 'kube-proxy' || kubernetesChains.test(chain);

/** The rule is another program's and matches exactly this destination address. */
export function isForeignRuleAbout(step: TraceStep, address: string): boolean {
  if (isKubernetesRule(step)) return false;
  const destination = onlyValue(step, 'destination');
  return destination !== null && formatAddress(destination) === address;
}

/** The one value that a rule matches a field with; null if there are none or several. */
export function onlyValue({ rule }: TraceStep, field: PacketField): Address | null {
  for (const statement of rule.statements) {
    if (statement.kind !== 'field' || statement.field !== field || statement.negate) continue;
    const [range] = statement.ranges;
    if (statement.ranges.length === 1 && range?.low === range?.high) return range?.low ?? null;
  }
  return null;
}

/** Returns a function that says whether a rule of another program may masquerade a packet. */
export function allowedMasquerade({ config, ports }: Forwarding, { podCIDRs }: Node) {
  const ofNode = podCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  const ofCluster = config.clusterCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  const isOnNode = (ip: string): boolean => isWithinAny(ip, ofNode);
  const isPod = (ip: string): boolean => isOnNode(ip) || isWithinAny(ip, ofCluster);
  const clusterIPs = new Set(ports.map(({ clusterIP }) => clusterIP));
  return (endpoint: string, step: TraceStep | null, { from, src, dst }: Packet): boolean => {
    if (step === null || isKubernetesRule(step)) return false;
    const ip = ipOf(endpoint);
    if (!isPod(ip)) return true;
    const isFromOtherNode =
      from === 'outside' && podCIDRs.length > 0 && isPod(src) && !isOnNode(src);
    return isFromOtherNode && (clusterIPs.has(dst) || !isOnNode(ip));
  };
}

/**
 * The rule of another program that stopped a packet and matches one of these endpoints, itself or
 * at a jump to its chain; null if another rule stopped the packet.
 */
export function policyRule(stopped: OutcomeShare, ips: ReadonlySet<string>): TraceStep | null {
  const step = stopStep(stopped);
  const translation = translationStep(stopped);
  if (step === null || translation === null || isKubernetesRule(step)) return null;
  const trace = stopped.trace();
  const isAboutEndpoint = trace
    .slice(trace.indexOf(translation) + 1)
    .filter((it) => it === step || jumpsTo(it, step.chain))
    .some((it) => [...ips].some((ip) => isForeignRuleAbout(it, ip)));
  return isAboutEndpoint ? step : null;
}

/** Chains of kube-router and Calico for network policies. */
export const isKnownPolicyChain = ({ chain }: TraceStep): boolean =>
  /^(?:KUBE-(?:ROUTER|POD-FW|NWPLCY)|cali)-/.test(chain);

const jumpsTo = ({ rule }: TraceStep, chain: string): boolean =>
  rule.statements.some((it) => (it.kind === 'jump' || it.kind === 'goto') && it.chain === chain);

export const isBeforeRouting = ({ base }: TraceStep): boolean =>
  base.base.hook === 'prerouting' || base.base.hook === 'output';

export const lastStep = (end: OutcomeShare, kinds: readonly string[]): TraceStep | null =>
  end.trace().findLast((step) => hasAny(step, kinds)) ?? null;

/** The rule that chose the destination; null if no rule did. */
export const translationStep = (end: OutcomeShare): TraceStep | null =>
  lastStep(end, ['dnat', 'dnat by map', 'redirect', 'netmap', 'unknown verdict']);

/** The rule that stopped a packet or exempted it from NAT; null if none did or a policy decided. */
export function stopStep(end: OutcomeShare): TraceStep | null {
  const last = end.trace().at(-1);
  if (last !== undefined && hasAny(last, ['drop', 'reject', 'verdict map'])) return last;
  return end.trace().findLast(exemptsFromNAT) ?? null;
}

const exemptsFromNAT = (step: TraceStep): boolean =>
  isBeforeRouting(step) &&
  (hasAny(step, ['accept', 'notrack']) ||
    (hasAny(step, ['return']) && step.chain === step.base.chain.name));

export const hasAny = ({ rule }: TraceStep, kinds: readonly string[]): boolean =>
  rule.statements.some(({ kind }) => kinds.includes(kind));
