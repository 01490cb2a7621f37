// What the rules of a node answer for and no Service claims: kube-proxy's own may do nothing with
// it. Asked are the claims of the rules (rules/claims.ts), and node ports where none are served.
//
// Left out: what others answer for, which is their own affair.

import type { Packet } from '../model/proxy.ts';
import { parseNetwork } from '../rules/address.ts';
import type { Claim } from '../rules/claims.ts';
import type { Fate as Walked } from '../rules/walk.ts';
import type { Forwarding } from '../shadow/forwarding.ts';
import type { ProxiedPort } from '../shadow/serviceport.ts';
import { isOwn } from './foreign.ts';
import type { NodeInput } from './node.ts';
import type { RuleView } from './outcome.ts';
import { compare, described } from './outcome.ts';
import type { Sender } from './probes.ts';
import { senderOf } from './probes.ts';
import type { Difference } from './rollup.ts';

interface Search {
  readonly input: NodeInput;
  readonly view: RuleView;
  readonly sender: Sender;
}

/** Asks claim by claim, so that one may stop; returns what should not be. */
export function* askingUnclaimed(
  input: NodeInput,
  view: RuleView,
): Generator<undefined, Difference[]> {
  const { forwarding, node, rules } = input;
  const search = { input, view, sender: senderOf(forwarding, node) };
  const found: Difference[] = [];
  for (const claim of rules.claims) {
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

const packetTo = (dst: string, { protocol, port: dport }: Claim): Packet => ({
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
function* elsewhere({ input, sender }: Search): Generator<readonly [Claim, string]> {
  const { rules, forwarding } = input;
  const { node, expect } = forwarding;
  const done = new Set<string>();
  for (const claim of rules.claims) {
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
function differenceAt({ input, view, sender }: Search, claim: Claim, dst: string): Difference[] {
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
    const { fates } = forwarding.expect(packet);
    const outcome = rules.walk(packet);
    if (outcome === null) continue;
    const { deviants } = compare(fates, outcome, view, packet);
    const step = deviants.find((one) => one.step !== null && isOwn(one.step))?.step ?? null;
    if (step === null || outcome.unknown.length > 0) continue;
    const [sent = null] = outcome.destinations.values();
    return [
      {
        ...described({ packet, origin }, fates, outcome),
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
function portBeside({ ports }: Forwarding, claim: Claim, { trace }: Walked): ProxiedPort | null {
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

const familyOf = ({ family }: Claim): 'IPv4' | 'IPv6' => (family === 'ip' ? 'IPv4' : 'IPv6');

/** The first port of the Service that has this cluster IP. */
const portAt = ({ ports }: Forwarding, address: string): ProxiedPort | null =>
  ports.find(({ clusterIP }) => clusterIP === address) ?? null;
