// Rules of other programs on a node, and frontends that no Service has.
//
// Chain names show which program a rule belongs to, so that findings can say so; they prove nothing
// else. Another program may masquerade a packet that leaves the pods' ranges. It may also
// masquerade a packet of another node's pod that this node forwards again: without that, the
// answers would take another way, and such a pod sends to cluster IPs here only if the network
// routes the service range to nodes (pkg/proxy/nftables/proxier.go setupNFTables,
// kubernetes@v1.36.3). flannel's rules except exactly the packets that do not need it. A rule that
// stops what was sent to one endpoint is most likely a network policy about that pod
// (docs/decisions/0024).
//
// kube-proxy's rules must do nothing for addresses and ports that no Service has. Candidates are
// the frontends of the rules (rules/report/frontends.ts), and node ports at addresses that serve
// none.
//
// Left out: frontends of other programs.

import { ipOf, isWithinAny, parseCIDR } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { Steps } from '../../model/run-to-end.ts';
import { formatAddress, parseNetwork } from '../../rules/address.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { Address, PacketField } from '../../rules/ruleset.ts';
import type { TraceStep } from '../../rules/walk/match.ts';
import type { OutcomeShare } from '../../rules/walk/walk.ts';
import type { Forwarding } from '../../shadow/forwarding.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { PacketDifference } from './aggregate.ts';
import type { RuleOwnership } from './compare-packet.ts';
import { comparePacket, describePacket, stopStep, translationStep } from './compare-packet.ts';
import type { NodeInput } from './observation.ts';
import type { ProbeSender } from './probes.ts';

/**
 * Chains that kube-proxy and the kubelet of any release since 1.20 write: those of all Services,
 * those of userspace and ipvs mode, the kubelet's, and those of one Service or endpoint. Other
 * programs use the same prefix: kube-router has KUBE-ROUTER-…, KUBE-POD-FW-… and KUBE-NWPLCY-…
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

export const ownershipOn = (input: NodeInput): RuleOwnership => ({
  isAllowed: allowedMasquerade(input),
  isAbout: isForeignRuleAbout,
  // Rules of another mode are leftovers.
  isOwn: (step) =>
    isKubernetesRule(step) &&
    (input.forwarding.config.mode === 'nftables') === (step.base.table.name === 'kube-proxy'),
});

function allowedMasquerade({ forwarding, node }: NodeInput): RuleOwnership['isAllowed'] {
  const { config, ports } = forwarding;
  const [own, all] = [node.podCIDRs, [...config.clusterCIDRs, ...node.podCIDRs]].map((texts) =>
    texts.map(parseCIDR).filter((range) => range !== null),
  );
  const isOnNode = (ip: string): boolean => isWithinAny(ip, own ?? []);
  const isPod = (ip: string): boolean => isWithinAny(ip, all ?? []);
  const clusterIPs = new Set(ports.map(({ clusterIP }) => clusterIP));
  return (endpoint, step, { from, src, dst }) => {
    if (step === null || isKubernetesRule(step)) return false;
    const ip = ipOf(endpoint);
    if (!isPod(ip)) return true;
    const isFromOtherNode =
      from === 'outside' && node.podCIDRs.length > 0 && isPod(src) && !isOnNode(src);
    return isFromOtherNode && (clusterIPs.has(dst) || !isOnNode(ip));
  };
}

/**
 * The rule of another program that stopped a packet to one of these endpoints and matches that
 * endpoint, itself or at a jump to its chain; null if another rule stopped the packet.
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

/** Tests frontends that no Service has. */
export function* findUnexpectedFrontends(
  input: NodeInput,
  ownership: RuleOwnership,
  sender: ProbeSender,
): Steps<PacketDifference[]> {
  const { forwarding, rules } = input;
  const { node } = forwarding;
  const found: PacketDifference[] = [];
  const isExpected = (dst: string, frontend: RuleFrontend): boolean =>
    forwarding.expect(packetTo(dst, frontend)).frontend !== null;
  const candidates: (readonly [RuleFrontend, string])[] = [];
  for (const frontend of rules.frontends) {
    const dst = frontend.address ?? node.nodeIP[familyOf(frontend)];
    if (!isExpected(dst, frontend)) candidates.push([frontend, dst]);
    yield;
  }
  // One rule decides which addresses have node ports, so one port for each family is enough.
  for (const family of ['IPv4', 'IPv6'] as const) {
    const frontend = rules.frontends.find(
      (it) => it.address === null && familyOf(it) === family && isExpected(node.nodeIP[family], it),
    );
    if (frontend === undefined) continue;
    const local = rules.localAddresses.filter((ip) => ip.includes(':') === (family === 'IPv6'));
    for (const dst of [...local, sender.sources[family].outside]) {
      if (!node.servesNodePorts(dst) || !node.isLocal(dst)) candidates.push([frontend, dst]);
    }
  }
  for (const [frontend, dst] of candidates) {
    found.push(...differenceAt(input, ownership, sender, frontend, dst));
    yield;
  }
  return found;
}

const packetTo = (dst: string, { protocol, port: dport }: RuleFrontend): Packet => {
  return { from: 'outside', src: '', dst, protocol, dport };
};

/** What a rule of kube-proxy does with such a packet from any origin; at most one difference. */
function differenceAt(
  { forwarding, rules }: NodeInput,
  ownership: RuleOwnership,
  { sources }: ProbeSender,
  frontend: RuleFrontend,
  dst: string,
): PacketDifference[] {
  const family = familyOf(frontend);
  const origins = [
    ['pod', sources[family].pod, 'a pod of the node'],
    ['outside', sources[family].outside, 'outside the cluster'],
    ['node', forwarding.node.nodeIP[family], 'the node itself'],
  ] as const;
  for (const [from, src, origin] of origins) {
    const packet: Packet = { ...packetTo(dst, frontend), from, src: src ?? '' };
    const outcome = src === null ? null : rules.walk(packet);
    if (outcome === null || outcome.unknown.length > 0) continue;
    const { outcomes } = forwarding.expect(packet);
    const { deviations } = comparePacket(outcomes, outcome, ownership, packet);
    const own = deviations.find(({ step }) => step !== null && isKubernetesRule(step))?.step;
    if (!own) continue;
    const [destination = null] = outcome.destinations.values();
    const ofClusterIP = forwarding.ports.find(({ clusterIP }) => clusterIP === dst);
    return [
      {
        ...describePacket({ packet, origin }, outcomes, outcome),
        code: 'node-frontend-unexpected',
        port: ofClusterIP ?? (destination && portInRange(forwarding, frontend, destination)),
        subject: 'claim',
        kind: 'none',
        family,
        rule: own.rule.text,
        untranslated: false,
        harmless: destination === null,
      },
    ];
  }
  return [];
}

/**
 * The only Service port that a rule for a range of addresses includes; null if there are several.
 */
function portInRange(
  { ports }: Forwarding,
  frontend: RuleFrontend,
  { trace }: OutcomeShare,
): ProxiedPort | null {
  const ranges = trace().flatMap(({ rule }) =>
    rule.statements.flatMap((it) =>
      it.kind === 'field' && it.field === 'destination' && !it.negate ? it.ranges : [],
    ),
  );
  const [port = null, ...others] = ports.filter(({ clusterIP, port, protocol }) => {
    if (port !== frontend.port || protocol !== frontend.protocol) return false;
    const ip = parseNetwork(clusterIP)?.low;
    return ip !== undefined && ranges.some(({ low, high }) => low <= ip && ip <= high);
  });
  return others.length === 0 ? port : null;
}

const familyOf = ({ family }: RuleFrontend): 'IPv4' | 'IPv6' => (family === 'ip' ? 'IPv4' : 'IPv6');
