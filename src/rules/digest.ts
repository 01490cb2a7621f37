// What a node does with one frontend, as a text that says the same for the same behaviour, and as
// 64 bits of it. A node walks packets through its own rules, and whoever knows what should come of
// them computes the same digest: only frontends whose digests differ need words. Both sides must
// put the same packets, in the same order, and round alike; so all of that is here.
//
// A frontend is what rules answer for (claims.ts). Asked are a process of the node, a pod of it and
// a sender from outside. In words each fate has its share and whether it is masqueraded; endpoints
// have their affinity. Shares are told as 1/n: kube-proxy writes probabilities with 31 bits
// (iptables/proxier.go and KUBE-SVC jumps, kubernetes@v1.36.3), and what n of them multiply to is
// off by no more than n of those roundings. What is not known is told as `unknown`, so that its
// digest is equal to no expectation.
//
// Left out: source ranges and hairpins. They depend on senders that only the Service names; whoever
// knows the Service asks for the details.

import type { Packet } from '../model/proxy.ts';
import { formatEndpoint, parseAddress } from './address.ts';
import type { Claim } from './claims.ts';
import type { Destination, Outcome } from './walk.ts';

/** Who sends, per family; null: the node has no such sender. */
export interface Senders {
  readonly node: string | null;
  readonly pod: string | null;
  readonly outside: string | null;
}

/** The senders of a node, and where it answers for ports that no address is named for. */
export interface Asking {
  readonly ip: Senders;
  readonly ip6: Senders;
  /** Addresses of the node, of both families. */
  readonly addresses: readonly string[];
}

/** `tcp 10.96.0.1:443`; `tcp *:30080` and `tcp [*]:30080` are any address of the node. */
export function keyOf({ family, address, protocol, port }: Claim): string {
  const any = family === 'ip' ? `*:${port}` : `[*]:${port}`;
  const parsed = address === null ? null : parseAddress(address);
  return `${protocol} ${parsed === null ? any : formatEndpoint(parsed, port)}`;
}

/** The packets that are put to a frontend, in their order. */
export function packetsOf(claim: Claim, asking: Asking): Packet[] {
  const { family, address, protocol, port: dport } = claim;
  const isOwn = (text: string): boolean => text.includes(':') === (family === 'ip6');
  const addresses = address === null ? asking.addresses.filter(isOwn) : [address];
  const senders = asking[family];
  return addresses.flatMap((dst) => {
    // Nobody but the node itself can ask for its loopback address.
    if (dst === '127.0.0.1' || dst === '::1') {
      return [{ from: 'node' as const, src: dst, dst, protocol, dport }];
    }
    // A process that asks its own node is sent from the address that it asks.
    const own = asking.addresses.includes(dst) ? dst : senders.node;
    const from = { node: own, pod: senders.pod, outside: senders.outside } as const;
    return (['node', 'pod', 'outside'] as const).flatMap((sender) => {
      const src = from[sender];
      return src === null ? [] : [{ from: sender, src, dst, protocol, dport }];
    });
  });
}

/** One outcome in words, without what kube-proxy is free to choose. */
export function wordsOf(outcome: Outcome): string {
  const words: string[] = [];
  if (outcome.unknown.length > 0) words.push('unknown');
  for (const name of ['reject', 'drop', 'pass'] as const) {
    const { probability } = outcome[name];
    if (probability > 0) words.push(`${name} ${shareOf(probability)}`);
  }
  const sent = [...outcome.destinations].map(([to, destination]) => sentTo(to, destination));
  return [...words, ...sent.sort()].join(', ');
}

function sentTo(to: string, { probability, masqueraded, affinity, affinitySeconds }: Destination) {
  const source = { true: ' masqueraded', false: '', unknown: ' unknown source' };
  const kept = affinity ? ` kept ${affinitySeconds ?? 'for ever'}` : '';
  return `${to} ${shareOf(probability)}${source[`${masqueraded}`]}${kept}`;
}

/** Half the last of 31 bits, twice over for what the program rounds itself. */
const rounding = 1e-9;

/** `1/n` where it is that, but for the rounding of n probabilities; else six digits. */
function shareOf(probability: number): string {
  if (probability <= 0) return '0';
  const n = Math.round(1 / probability);
  if (n >= 1 && Math.abs(probability * n - 1) <= rounding * (n + 1)) return `1/${n}`;
  return probability.toPrecision(6);
}

/** What should come of a packet: one of these fates, or endpoints, each as probable. */
export type Expected =
  | { readonly kind: 'reject' | 'drop' | 'pass' }
  | {
      readonly kind: 'endpoints';
      /** By `ip:port`: whether its packets are masqueraded. */
      readonly endpoints: ReadonlyMap<string, boolean>;
      readonly affinitySeconds: number | null;
    };

/** The words of an outcome that is as it should be. */
export function wordsOfExpected(expected: Expected): string {
  if (expected.kind !== 'endpoints') return `${expected.kind} 1/1`;
  const { endpoints, affinitySeconds } = expected;
  const probability = 1 / endpoints.size;
  const affinity = affinitySeconds !== null;
  const trace = (): readonly [] => [];
  return [...endpoints]
    .map(([to, masqueraded]) =>
      sentTo(to, { probability, masqueraded, trace, affinity, affinitySeconds }),
    )
    .sort()
    .join(', ');
}

/** What becomes of these packets in 64 bits, as 16 hexadecimal digits. */
export const digestOf = (words: readonly string[]): string => hash64(words.join('\n'));

/**
 * FNV-1a in two halves with different beginnings, each mixed at its end as MurmurHash3 mixes. Good
 * enough to tell behaviours apart; nobody who can choose rules needs to forge it.
 */
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
