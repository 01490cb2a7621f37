// What a scenario says of packets:
//
//   packet from pod 10.0.1.9 to 10.96.0.1:80 goes to 10.0.1.1:80 0.9, 10.0.2.1:80 0.1
//   packet from outside 192.0.2.1 to 10.96.0.1:53/udp is rejected
//   packet from node 172.18.0.2 to 10.96.0.1:80 must go to 10.0.1.1:8080 masqueraded
//
// Without `must` the line says what the rules do.

import type { Packet, ProxyConfig } from '../../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import type { PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { walk } from '../../../src/rules/walk/walk.ts';
import type { ExpectedOutcome } from '../../../src/shadow/forwarding.ts';
import { expectedForwarding, slicesByService } from '../../../src/shadow/forwarding.ts';
import type { Place } from '../../scenarios/words.ts';
import { fail } from '../../scenarios/words.ts';
import type { World } from './play.ts';
import { isInSync, nodeOf } from './play.ts';

export interface PacketStatement {
  readonly place: Place;
  readonly packet: Packet;
  /** It is about what must come of the packet, and not about what the rules make of it. */
  readonly isMust: boolean;
  /** Where it goes, in canonical order and words. */
  readonly outcome: string;
}

const form = new RegExp(
  [
    /^packet from (?<from>pod|node|outside) (?<src>\S+)/,
    / to (?<dst>\S+):(?<port>\d+)(?:\/(?<protocol>tcp|udp|sctp))?/,
    / (?<verb>goes to|is|must go to|must be) (?<outcome>.+)$/,
  ]
    .map(({ source }) => source)
    .join(''),
);

const words = ['rejected', 'dropped', 'untranslated'];

export function parsePacket(place: Place, all: readonly string[]): PacketStatement {
  const text = all.join(' ');
  const groups = form.exec(text)?.groups;
  if (groups === undefined) {
    fail(place, `Expected \`packet from pod|node|outside IP to IP:PORT goes to …\`: ${text}`);
  }
  const { from, src = '', dst = '', port, protocol = 'tcp', verb = '', outcome = '' } = groups;
  const packet = { from, src, dst: dst.replace(/^\[(.*)\]$/, '$1'), protocol, dport: Number(port) };
  const isMust = verb.startsWith('must');
  const isUnknown = outcome === 'unknown' && verb === 'is';
  const canonical = isUnknown ? outcome : outcomeOf(place, outcome.split(', '));
  return { place, packet: packet as Packet, isMust, outcome: canonical };
}

/** `10.0.0.1:8080 0.5 masqueraded affinity=60s`: shares are even where none is given. */
function outcomeOf(place: Place, parts: readonly string[]): string {
  const texts = parts.map((part) => {
    const [name = '', ...rest] = part.split(' ');
    if (!words.includes(name) && !/:[\d-]+$/.test(name)) {
      fail(place, `Expected ENDPOINT, ${words.join(', ')}: ${part}`);
    }
    const share = rest.find((word) => /^[\d.]+$/.test(word));
    const about = rest.filter((word) => word !== share);
    const unknown = about.find((word) => word !== 'masqueraded' && !/^affinity=\d+s$/.test(word));
    if (unknown !== undefined) fail(place, `Unknown word of a packet: ${unknown}`);
    return entryText(name, Number(share ?? 1 / parts.length), about);
  });
  return texts.sort().join(', ');
}

const entryText = (name: string, share: number, about: readonly string[]): string =>
  [name, Number(share.toFixed(6)), ...[...about].sort()].join(' ');

const about = (masqueraded: boolean | 'unknown', seconds: number | null): string[] => [
  ...(masqueraded === true ? ['masqueraded'] : masqueraded === 'unknown' ? ['masqueraded?'] : []),
  ...(seconds === null ? [] : [`affinity=${seconds}s`]),
];

/** What the rules make of a packet, in the same words. */
export function actualOutcome(world: World, { packet, place }: PacketStatement): string {
  const { ip } = nodeOf(place);
  const outcome = walk(world.ruleset, { localAddresses: [ip] }, packet);
  return outcome.unknown.length > 0 ? 'unknown' : outcomeText(outcome);
}

function outcomeText({ destinations, reject, drop, pass }: PacketOutcome): string {
  const others = Object.entries({ rejected: reject, dropped: drop, untranslated: pass });
  return [
    ...[...destinations].map(([name, { probability, masqueraded, affinitySeconds }]) =>
      entryText(name, probability, about(masqueraded, affinitySeconds)),
    ),
    ...others.flatMap(([name, { probability, masqueraded }]) =>
      probability === 0 ? [] : entryText(name, probability, about(masqueraded, null)),
    ),
  ]
    .sort()
    .join(', ');
}

/** What may come of a packet on a node in order: any of these. */
export function expectedOutcomes(world: World, { packet, place }: PacketStatement): string[] {
  const { store, variant, clusterCIDR, scenario } = world;
  const { services, slices, nodes } = store.listers;
  const node = nodes.get(nodeOf(place).name);
  if (node === undefined) fail(place, 'No such node');
  const config: ProxyConfig = {
    ...defaultProxyConfig(variant.mode, scenario.release.minor),
    clusterCIDRs: [clusterCIDR],
  };
  const byService = slicesByService(slices.values());
  const { outcomes: fates } = expectedForwarding(services.values(), byService, node, config).expect(
    packet,
  );
  return fates.map(expectedText);
}

const kinds = { reject: 'rejected', drop: 'dropped', pass: 'untranslated' } as const;

function expectedText(outcome: ExpectedOutcome): string {
  if (outcome.kind !== 'endpoints') return entryText(kinds[outcome.kind], 1, []);
  const { endpoints, affinitySeconds } = outcome;
  return [...endpoints]
    .map(([name, masked]) => entryText(name, 1 / endpoints.size, about(masked, affinitySeconds)))
    .sort()
    .join(', ');
}

/** What is wrong with what is said of a packet; null: nothing. */
export function problemOf(world: World, statement: PacketStatement): string | null {
  const { outcome, isMust, place } = statement;
  const expected = expectedOutcomes(world, statement);
  if ((isMust || isInSync(world, place)) && !expected.includes(outcome)) {
    return `must be ${expected.join(' or ')}, and not ${outcome}`;
  }
  const actual = isMust ? outcome : actualOutcome(world, statement);
  return actual === outcome ? null : `is ${actual}, and not ${outcome}`;
}
