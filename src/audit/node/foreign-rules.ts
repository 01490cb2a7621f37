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

import { ipOf, isWithin, parseCIDR, parseIP } from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { Packet } from '../../model/proxy-config.ts';
import { formatAddress, parseNetwork } from '../../rules/address.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { Address, PacketField } from '../../rules/ruleset.ts';
import type { TraceStep } from '../../rules/walk/match.ts';
import type { OutcomeShare, OutcomeShare as Walked } from '../../rules/walk/walk.ts';
import type { Forwarding } from '../../shadow/forwarding.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { PacketDifference } from './aggregate.ts';
import type { RuleOwnership } from './compare-packet.ts';
import { comparePacket, describePacket, stopStep, translation } from './compare-packet.ts';
import type { NodeInput } from './node-behavior.ts';
import type { ProbeSender } from './probes.ts';
import { probeSender } from './probes.ts';

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
export function isKubernetesRule({ chain, base }: TraceStep): boolean {
  return base.table.name === 'kube-proxy' || ownChains.test(chain);
}

/** Somebody else's rule that asks for this one address. */
export function isForeignRuleAbout(step: TraceStep, address: string): boolean {
  if (isKubernetesRule(step)) return false;
  const asked = onlyValue(step, 'destination');
  return asked !== null && formatAddress(asked) === address;
}

/** The one value of a field that a rule asks for; null: none, or several. */
export function onlyValue({ rule }: TraceStep, field: PacketField): Address | null {
  for (const statement of rule.statements) {
    if (statement.kind !== 'field' || statement.field !== field || statement.negate) continue;
    const [range] = statement.ranges;
    if (statement.ranges.length === 1 && range?.low === range?.high) return range?.low ?? null;
  }
  return null;
}

/** A masquerade by others that is the network's affair. */
export function allowedMasquerade(
  { config, ports }: Pick<Forwarding, 'config' | 'ports'>,
  node: Node,
): RuleOwnership['isAllowed'] {
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
    if (step === null || isKubernetesRule(step)) return false;
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
export function policyRule(stopped: OutcomeShare, ips: ReadonlySet<string>): TraceStep | null {
  const step = stopStep(stopped);
  const sent = translation(stopped);
  if (step === null || sent === null || isKubernetesRule(step)) return null;
  const trace = stopped.trace();
  const isAboutOne = trace
    .slice(trace.indexOf(sent) + 1)
    .filter((one) => one === step || calls(one, step.chain))
    .some((one) => [...ips].some((ip) => isForeignRuleAbout(one, ip)));
  return isAboutOne ? step : null;
}

/** Chains of programs that put network policies into practice: kube-router, and Calico. */
export const isKnownPolicyChain = ({ chain }: TraceStep): boolean =>
  /^(?:KUBE-(?:ROUTER|POD-FW|NWPLCY)|cali)-/.test(chain);

const calls = ({ rule }: TraceStep, chain: string): boolean =>
  rule.statements.some(
    (one) => (one.kind === 'jump' || one.kind === 'goto') && one.chain === chain,
  );

// What the rules of a node answer for and no Service claims: kube-proxy's own may do nothing with
// it. Asked are the claims of the rules (rules/claims.ts), and node ports where none are served.
//
// Left out: what others answer for, which is their own affair.

interface Search {
  readonly input: NodeInput;
  readonly view: RuleOwnership;
  readonly sender: ProbeSender;
}

/** Asks claim by claim, so that one may stop; returns what should not be. */
export function* findUnexpectedFrontends(
  input: NodeInput,
  view: RuleOwnership,
): Generator<undefined, PacketDifference[]> {
  const { forwarding, node, rules } = input;
  const search = { input, view, sender: probeSender(forwarding, node) };
  const found: PacketDifference[] = [];
  for (const claim of rules.frontends) {
    const dst = claim.address ?? forwarding.node.nodeIP[familyOf(claim)];
    const isClaimed = forwarding.expect(packetTo(dst, claim)).frontend !== null;
    if (!isClaimed) found.push(...differenceAt(search, claim, dst));
    yield;
  }
  for (const [claim, dst] of elsewhere(search)) {
    found.push(...differenceAt(search, claim, dst));
    yield;
  }
  return found;
}

const packetTo = (dst: string, { protocol, port: dport }: RuleFrontend): Packet => ({
  from: 'outside',
  src: '',
  dst,
  protocol,
  dport,
});

/**
 * A node port at addresses that serve none: the node's others, and one that is nobody's. What tells
 * node ports by their address is one rule for all of them, so one port stands for all.
 */
function* elsewhere({ input, sender }: Search): Generator<readonly [RuleFrontend, string]> {
  const { rules, forwarding } = input;
  const { node, expect } = forwarding;
  const done = new Set<string>();
  for (const claim of rules.frontends) {
    const family = familyOf(claim);
    const home = packetTo(node.nodeIP[family], claim);
    if (claim.address !== null || done.has(family) || expect(home).frontend === null) continue;
    done.add(family);
    const own = rules.localAddresses.filter((ip) => ip.includes(':') === (family === 'IPv6'));
    for (const dst of [...own, sender.sources[family].outside]) {
      if (!node.servesNodePorts(dst) || !node.isLocal(dst)) yield [claim, dst];
    }
  }
}

/** What a rule of kube-proxy does with such a packet, wherever it comes from; at most one. */
function differenceAt(
  { input, view, sender }: Search,
  claim: RuleFrontend,
  dst: string,
): PacketDifference[] {
  const { forwarding, rules } = input;
  const family = familyOf(claim);
  const { pod, outside } = sender.sources[family];
  const places: readonly (readonly [Packet['from'], string | null, string])[] = [
    ['pod', pod, 'a pod of the node'],
    ['outside', outside, 'outside the cluster'],
    ['node', forwarding.node.nodeIP[family], 'the node itself'],
  ];
  for (const [from, src, origin] of places) {
    if (src === null) continue;
    const packet: Packet = { ...packetTo(dst, claim), from, src };
    const { outcomes: fates } = forwarding.expect(packet);
    const outcome = rules.walk(packet);
    if (outcome === null) continue;
    const { deviants } = comparePacket(fates, outcome, view, packet);
    const step =
      deviants.find((one) => one.step !== null && isKubernetesRule(one.step))?.step ?? null;
    if (step === null || outcome.unknown.length > 0) continue;
    const [sent = null] = outcome.destinations.values();
    return [
      {
        ...describePacket({ packet, origin }, fates, outcome),
        code: 'node-frontend-unexpected',
        port: portAt(forwarding, dst) ?? (sent && portBeside(forwarding, claim, sent)),
        subject: 'claim',
        kind: 'none',
        family,
        rule: step.rule.text,
        untranslated: false,
        harmless: sent === null,
      },
    ];
  }
  return [];
}

/** The one Service port that a rule is about which takes a whole range of addresses. */
function portBeside(
  { ports }: Forwarding,
  claim: RuleFrontend,
  { trace }: Walked,
): ProxiedPort | null {
  const ranges = trace().flatMap(({ rule }) =>
    rule.statements.flatMap((one) =>
      one.kind === 'field' && one.field === 'destination' && !one.negate ? one.ranges : [],
    ),
  );
  const found = ports.filter(({ clusterIP, port, protocol }) => {
    if (port !== claim.port || protocol !== claim.protocol) return false;
    const ip = parseNetwork(clusterIP)?.low;
    return ip !== undefined && ranges.some(({ low, high }) => low <= ip && ip <= high);
  });
  return found.length === 1 ? (found[0] ?? null) : null;
}

const familyOf = ({ family }: RuleFrontend): 'IPv4' | 'IPv6' => (family === 'ip' ? 'IPv4' : 'IPv6');

/** The first port of the Service that has this cluster IP. */
const portAt = ({ ports }: Forwarding, address: string): ProxiedPort | null =>
  ports.find(({ clusterIP }) => clusterIP === address) ?? null;
