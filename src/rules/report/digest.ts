// Describes what a node does with one frontend: in words that are equal for equal behavior, and as
// a digest of 64 bits. The agent (from the rules) and the auditor (from the expected outcomes) must
// walk the same packets in the same order and round equally, so this file contains all of that.
//
// The senders are a process of the node, a pod of it and a client outside. Shares are 1/n:
// kube-proxy writes probabilities with 31 bits (iptables/proxier.go, kubernetes@v1.36.3), so their
// product is off by at most n roundings. The word `unknown` differs from every expectation.
//
// A frontend with an address of its own has two more packets. If its endpoints may be pods of the
// node, each endpoint calls itself, which may be masqueraded. If the mode rejects wrong ports of a
// cluster IP, one packet goes to such a port.
//
// Left out: source ranges, since only the Service has them; the auditor asks for those packets.

import { formatAddress, ipOf, isWithinAny, parseAddress, parseNetwork } from '../../model/ip.ts';
import type { ExpectedOutcome, Packet } from '../../model/proxy-config.ts';
import type { Destination, PacketOutcome } from '../walk/walk.ts';
import { familyOf } from '../ruleset.ts';
import type { RuleFrontend } from './frontends.ts';

/** Who sends, per family; null: the node has no such sender. */
export type Senders = Readonly<Record<'node' | 'pod' | 'outside', string | null>>;

/** The senders of a node, and where it answers for ports that no address is named for. */
export interface NodeSenders {
  readonly ip: Senders;
  readonly ip6: Senders;
  /** Addresses of the node, of both families. */
  readonly addresses: readonly string[];
  /** Ranges of the node's own pods, which may meet themselves. */
  readonly pods: readonly string[];
  /** Wrong ports of cluster IPs are asked for, too. */
  readonly strays: boolean;
}

/** `tcp 10.96.0.1:443`; `tcp *:30080` and `tcp [*]:30080` are any address of the node. */
export function keyOf({ family, address, protocol, port }: RuleFrontend): string {
  const parsed = parseAddress(address ?? '');
  const host = parsed === null ? '*' : formatAddress(parsed);
  return `${protocol} ${family === 'ip' ? host : `[${host}]`}:${port}`;
}

/** Reads such a key; null: it is none. It does not say whether several tables have it. */
export function readKey(key: string): RuleFrontend | null {
  const form = /^(tcp|udp|sctp) (?:([^:[]+)|\[([^\]]+)\]):(\d{1,5})$/;
  const [, protocol, four, six = '', digits] = form.exec(key) ?? [];
  const [port, host] = [Number(digits), four ?? six];
  if (protocol === undefined || port > 65_535) return null;
  const family = four === undefined ? 'ip6' : 'ip';
  const parsed = parseAddress(host);
  if (host !== '*' && (parsed === null || familyOf(parsed) !== family)) return null;
  const known = protocol as RuleFrontend['protocol'];
  const address = host === '*' ? null : host;
  return { family, address, protocol: known, port, translators: 1 };
}

/** The packets that are put to a frontend, in their order. */
export function packetsOf(frontend: RuleFrontend, asking: NodeSenders): Packet[] {
  const { family, address, protocol, port: dport } = frontend;
  const own = asking.addresses.filter((text) => text.includes(':') === (family === 'ip6'));
  const addresses = address === null ? own : [address];
  const senders = asking[family];
  return addresses.flatMap((dst) => {
    // Only the node itself can send to its loopback address.
    if (dst === '127.0.0.1' || dst === '::1') {
      return [{ from: 'node' as const, src: dst, dst, protocol, dport }];
    }
    // A process that asks its own node is sent from the address that it asks.
    const node = asking.addresses.includes(dst) ? dst : senders.node;
    return (['node', 'pod', 'outside'] as const).flatMap((from) => {
      const src = from === 'node' ? node : senders[from];
      return src === null ? [] : [{ from, src, dst, protocol, dport }];
    });
  });
}

/** A packet as it is asked for: `outside,198.51.100.7,10.96.0.1,tcp,443`. */
export function packetText({ from, src, dst, protocol, dport, iif }: Packet): string {
  return [from, src, dst, protocol, dport, ...(iif === undefined ? [] : [iif])].join(',');
}

/** Reads such a text; null: it is none. */
export function readPacket(text: string): Packet | null {
  const [from = '', src = '', dst = '', protocol = '', port = '', iif, ...more] = text.split(',');
  const dport = /^\d{1,5}$/.test(port) ? Number(port) : 65_536;
  if (more.length > 0 || dport > 65_535) return null;
  if (from !== 'pod' && from !== 'node' && from !== 'outside') return null;
  if (protocol !== 'tcp' && protocol !== 'udp' && protocol !== 'sctp') return null;
  const [source, destination] = [parseAddress(src), parseAddress(dst)];
  if (source === null || typeof source !== typeof destination) return null;
  const packet = { from, src, dst, protocol, dport } as const;
  return iif === undefined ? packet : { ...packet, iif };
}

export interface PacketWords {
  readonly words: string;
  readonly endpoints: Iterable<string>;
}

/** What becomes of all packets of a frontend, in words. */
export function wordsAt(
  frontend: RuleFrontend,
  asking: NodeSenders,
  look: (packet: Packet) => PacketWords,
): readonly string[] {
  const words: string[] = [];
  const { address, protocol, port: dport, family } = frontend;
  const own = new Set<string>();
  const isPod = podsOf(asking);
  for (const packet of packetsOf(frontend, asking)) {
    const seen = look(packet);
    words.push(seen.words);
    if (address === null) continue;
    for (const endpoint of seen.endpoints) {
      const ip = ipOf(endpoint);
      if (isPod(ip)) own.add(ip);
    }
  }
  if (address === null) return words;
  for (const src of [...own].sort()) {
    const packet = { from: 'pod', src, dst: address, protocol, dport } as const;
    words.push(`itself ${look(packet).words}`);
  }
  if (!asking.strays) return words;
  const { outside: src } = asking[family];
  if (src === null || asking.addresses.includes(address)) return words;
  const stray = { from: 'outside', src, dst: address, protocol: 'tcp', dport: strayPort } as const;
  const seen = look(stray).words;
  if (seen.startsWith('unknown')) return [...words, seen];
  // Only cluster IPs reject wrong ports. Others may drop them or let them pass.
  return [...words, seen === 'reject 1/1' ? 'stray rejected' : 'stray not rejected'];
}

/** The words of a correct frontend, from its correct outcomes; null if a packet has several. */
export function expectedWordsAt(
  frontend: RuleFrontend,
  asking: NodeSenders,
  expect: (packet: Packet) => readonly ExpectedOutcome[],
): readonly string[] | null {
  const open: Packet[] = [];
  const words = wordsAt(frontend, asking, (packet) => {
    const outcomes = expect(packet);
    const [outcome] = outcomes;
    const isStray = packet.dport === strayPort && frontend.port !== strayPort;
    const mayReject = outcomes.some(({ kind }) => kind === 'reject');
    const isOnly = outcomes.length === 1 || (isStray && outcomes.length > 1 && !mayReject);
    if (!isOnly) open.push(packet);
    if (outcome === undefined) return { words: '', endpoints: [] };
    const endpoints = outcome.kind === 'endpoints' ? outcome.endpoints.keys() : [];
    return { words: wordsOfExpected(outcome), endpoints };
  });
  return open.length > 0 ? null : words;
}

/** Discard: no Service has it. One that does makes both sides say the same of it. */
const strayPort = 9;

function podsOf({ pods, addresses }: NodeSenders): (ip: string) => boolean {
  const ranges = pods.flatMap((text) => parseNetwork(text) ?? []);
  return (ip) => ranges.length > 0 && !addresses.includes(ip) && isWithinAny(ip, ranges);
}

/** One outcome in words, without what kube-proxy is free to choose. */
export function wordsOf(outcome: PacketOutcome): string {
  const words: string[] = [];
  if (outcome.unknown.length > 0) words.push('unknown');
  for (const name of ['reject', 'drop', 'pass'] as const) {
    const { probability } = outcome[name];
    if (probability > 0) words.push(`${name} ${shareOf(probability)}`);
  }
  const sent = [...outcome.destinations].map(([to, destination]) => sentTo(to, destination));
  return [...words, ...sent.sort()].join(', ');
}

function sentTo(to: string, destination: Omit<Destination, 'trace'>) {
  const { probability, masqueraded, affinity, affinitySeconds } = destination;
  const source = { true: ' masqueraded', false: '', unknown: ' unknown source' };
  const kept = affinity ? ` kept ${affinitySeconds ?? 'for ever'}` : '';
  return `${to} ${shareOf(probability)}${source[`${masqueraded}`]}${kept}`;
}

/** Half the last of 31 bits, twice over for what the program rounds itself. */
const rounding = 1e-9;

/** `1/n` if it is that, up to the rounding of n probabilities; else six digits. */
function shareOf(probability: number): string {
  if (probability <= 0) return '0';
  const n = Math.round(1 / probability);
  if (n >= 1 && Math.abs(probability * n - 1) <= rounding * (n + 1)) return `1/${n}`;
  return probability.toPrecision(6);
}

export function wordsOfExpected(expected: ExpectedOutcome): string {
  if (expected.kind !== 'endpoints') return `${expected.kind} 1/1`;
  const { endpoints, affinitySeconds } = expected;
  const probability = 1 / endpoints.size;
  const affinity = affinitySeconds !== null;
  return [...endpoints]
    .map(([to, masqueraded]) => sentTo(to, { probability, masqueraded, affinity, affinitySeconds }))
    .sort()
    .join(', ');
}

export interface Digests {
  /** null: several things are right. */
  readonly expected: string | null;
  /** null: no rule answers for it. */
  readonly actual: string | null;
}

/** What becomes of these packets in 64 bits, as 16 hexadecimal digits. */
export const digestOf = (words: readonly string[]): string => hash64(words.join('\n'));

/** FNV-1a in two halves with different beginnings, each mixed at its end as MurmurHash3 mixes. */
function hash64(text: string): string {
  let [high, low] = [0x811c9dc5, 0xc9dc5118];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    high = Math.imul(high ^ code, 0x01000193);
    low = Math.imul(low ^ code ^ (high >>> 15), 0x85ebca6b);
  }
  const hex = (value: number): string => (mixed(value) >>> 0).toString(16).padStart(8, '0');
  return hex(high ^ Math.imul(low, 0x9e3779b1)) + hex(low);
}

function mixed(value: number): number {
  const first = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  const second = Math.imul(first ^ (first >>> 13), 0xc2b2ae35);
  return second ^ (second >>> 16);
}
