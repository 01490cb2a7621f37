// Rules on a node that are not kube-proxy's: whose a rule is, and what others may do with packets
// of Services without harm. Names of chains tell whose a rule is, so that it can be named; they
// prove nothing else.
//
// A masquerade by others is the network's affair where the packet leaves the pods' ranges, and
// where it comes from a pod of another node and bounces off this one: unmasqueraded, the answers
// would not come back this way, and such a pod asks for cluster IPs here only where somebody routes
// the service range to nodes (pkg/proxy/nftables/proxier.go setupNFTables, kubernetes@v1.36.3).
// flannel's rules let by exactly what comes without that.
//
// A rule by others that stops what was sent to one endpoint is most likely a network policy: it is
// about the pod, whatever the Service, and is told as that (docs/decisions/0024).

import { ipOf, isWithin, parseCIDR, parseIP } from '../model/ip.ts';
import type { Node } from '../model/objects.ts';
import { formatAddress } from '../rules/address.ts';
import type { TraceStep } from '../rules/match.ts';
import type { Address, Field } from '../rules/ruleset.ts';
import type { Fate } from '../rules/walk.ts';
import type { Forwarding } from '../shadow/forwarding.ts';
import type { RuleView } from './outcome.ts';
import { stopStep, translation } from './outcome.ts';

/**
 * Chains that kube-proxy and the kubelet of any release since 1.20 write: those of all Services,
 * those of userspace and ipvs mode, the kubelet's, and those of one Service or endpoint. Others
 * begin alike: kube-router's are KUBE-ROUTER-…, KUBE-POD-FW-… and KUBE-NWPLCY-…
 * pkg/proxy/{iptables,ipvs,userspace}/proxier.go, pkg/kubelet/kubelet_network_linux.go.
 */
const ownChains = new RegExp(
  `^KUBE-(?:${[
    'SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|MARK-DROP|FORWARD|FIREWALL',
    'PROXY-FIREWALL|PROXY-CANARY|PORTALS-(?:CONTAINER|HOST)|NODEPORT-(?:CONTAINER|HOST|NON-LOCAL)',
    'LOAD-BALANCER|NODE-PORT|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER',
    'KUBELET-CANARY|IPTABLES-HINT',
    '(?:SVC|SVL|EXT|XLB|FW|SEP)-[A-Z2-7]{16}',
  ].join('|')})$`,
);

/** kube-proxy's own, or the kubelet's. */
export function isOwn({ chain, base }: TraceStep): boolean {
  return base.table.name === 'kube-proxy' || ownChains.test(chain);
}

/** Somebody else's rule that asks for this one address. */
export function isAbout(step: TraceStep, address: string): boolean {
  if (isOwn(step)) return false;
  const asked = onlyValue(step, 'destination');
  return asked !== null && formatAddress(asked) === address;
}

/** The one value of a field that a rule asks for; null: none, or several. */
export function onlyValue({ rule }: TraceStep, field: Field): Address | null {
  for (const statement of rule.statements) {
    if (statement.kind !== 'field' || statement.field !== field || statement.negate) continue;
    const [range] = statement.ranges;
    if (statement.ranges.length === 1 && range?.low === range?.high) return range?.low ?? null;
  }
  return null;
}

/** A masquerade by others that is the network's affair. */
export function allowanceOf(
  { config, ports }: Pick<Forwarding, 'config' | 'ports'>,
  node: Node,
): RuleView['isAllowed'] {
  const rangesOf = (texts: readonly string[]): ((address: string) => boolean) => {
    const ranges = texts.map(parseCIDR).filter((range) => range !== null);
    return (address) => {
      const ip = parseIP(address);
      return ip !== null && ranges.some((range) => isWithin(ip, range));
    };
  };
  const isHere = rangesOf(node.podCIDRs);
  const isPods = rangesOf([...config.clusterCIDRs, ...node.podCIDRs]);
  const clusterIPs = new Set(ports.map(({ clusterIP }) => clusterIP));
  return (endpoint, step, { from, src, dst }) => {
    if (step === null || isOwn(step)) return false;
    const ip = ipOf(endpoint);
    if (!isPods(ip)) return true;
    const isElsewhere =
      from === 'outside' && node.podCIDRs.length > 0 && isPods(src) && !isHere(src);
    return isElsewhere && (clusterIPs.has(dst) || !isHere(ip));
  };
}

/**
 * Somebody else's rule that stopped what was sent to one of these endpoints, and asks for that one,
 * by itself or where its chain is called from; null: something else stopped it.
 */
export function policyIn(stopped: Fate, ips: ReadonlySet<string>): TraceStep | null {
  const step = stopStep(stopped);
  const sent = translation(stopped);
  if (step === null || sent === null || isOwn(step)) return null;
  const trace = stopped.trace();
  const isAboutOne = trace
    .slice(trace.indexOf(sent) + 1)
    .filter((one) => one === step || calls(one, step.chain))
    .some((one) => [...ips].some((ip) => isAbout(one, ip)));
  return isAboutOne ? step : null;
}

/** Chains of programs that put network policies into practice: kube-router, and Calico. */
export const isOfPolicies = ({ chain }: TraceStep): boolean =>
  /^(?:KUBE-(?:ROUTER|POD-FW|NWPLCY)|cali)-/.test(chain);

const calls = ({ rule }: TraceStep, chain: string): boolean =>
  rule.statements.some(
    (one) => (one.kind === 'jump' || one.kind === 'goto') && one.chain === chain,
  );
