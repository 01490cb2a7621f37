// A recorded node as its agent would report it: digests of what its rules answer for, and the
// outcomes of packets that it is asked about, as they come over the wire.

import { auditNode } from '../../src/audit/node/audit-node.ts';
import type { NodeInput } from '../../src/audit/node/node-behavior.ts';
import type { ReportedBehavior, AgentAnswers } from '../../src/audit/node/observation.ts';
import { behaviorOfReport } from '../../src/audit/node/observation.ts';
import { addressIn, parseCIDR } from '../../src/model/ip.ts';
import type { Node } from '../../src/model/objects.ts';
import type { Packet, ProxyConfig } from '../../src/model/proxy-config.ts';
import type { NodeSenders } from '../../src/rules/report/digest.ts';
import { digestOf, keyOf, packetText, wordsAt, wordsOf } from '../../src/rules/report/digest.ts';
import { frontendsInRules } from '../../src/rules/report/frontends.ts';
import { decodeOutcomes, encodeOutcomes } from '../../src/rules/report/outcome-json.ts';
import { walk } from '../../src/rules/walk/walk.ts';
import type { Forwarding } from '../../src/shadow/forwarding.ts';
import type { Folder } from './folder.ts';

/** Who an agent on this node asks for. */
export function askingOf(folder: Folder, node: Node, mode: ProxyConfig['mode']): NodeSenders {
  const own = (six: boolean): string | null =>
    folder.node.localAddresses.find((text) => text.includes(':') === six) ?? null;
  const pod = (family: 'IPv4' | 'IPv6'): string | null => {
    const range = node.podCIDRs.map(parseCIDR).find((one) => one?.family === family) ?? null;
    return range === null ? null : addressIn(range, 251n);
  };
  const [four, six] = [own(false), own(true)];
  return {
    ip: { node: four, pod: pod('IPv4'), outside: '198.51.100.7' },
    ip6: { node: six, pod: pod('IPv6'), outside: '2001:db8::7' },
    addresses: [four, six, '127.0.0.1'].filter((address) => address !== null),
    pods: node.podCIDRs,
    strays: mode === 'nftables',
  };
}

/** The report of the agent before it is asked for packets. */
export function toldOf(folder: Folder, node: Node, mode: 'iptables' | 'nftables'): AgentAnswers {
  const asking = askingOf(folder, node, mode);
  const claims = frontendsInRules(folder.ruleset);
  const digests = claims.map((claim): [string, string] => {
    const words = wordsAt(claim, asking, (packet) => {
      const outcome = walk(folder.ruleset, folder.node, packet);
      return { words: wordsOf(outcome), endpoints: outcome.destinations.keys() };
    });
    return [keyOf(claim), digestOf(words)];
  });
  return {
    asking,
    claims,
    digests: new Map(digests),
    outcomes: new Map(),
    localAddresses: folder.node.localAddresses,
  };
}

/** Answers of the agent, over the wire. */
export function answered(
  folder: Folder,
  told: AgentAnswers,
  packets: readonly Packet[],
): AgentAnswers {
  const sent = JSON.stringify(
    encodeOutcomes(packets.map((packet) => walk(folder.ruleset, folder.node, packet))),
  );
  const outcomes = decodeOutcomes(JSON.parse(sent));
  const pairs = packets.flatMap((packet, at) => {
    const outcome = outcomes[at];
    return outcome === undefined ? [] : [[packetText(packet), outcome] as const];
  });
  return { ...told, outcomes: new Map([...told.outcomes, ...pairs]) };
}

/** The rules of a folder as the auditor knows them after all questions are answered. */
export function rulesReported(
  folder: Folder,
  { forwarding, node }: Pick<NodeInput, 'node'> & { readonly forwarding: Forwarding },
): { readonly rules: ReportedBehavior; readonly asked: number } {
  const mode = forwarding.config.mode === 'nftables' ? 'nftables' : 'iptables';
  const told = toldOf(folder, node, mode);
  const first = behaviorOfReport(told);
  auditNode({ forwarding, node, rules: first });
  const needed = first.missingPackets();
  return { rules: behaviorOfReport(answered(folder, told, needed)), asked: needed.length };
}
