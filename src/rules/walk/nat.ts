// What network address translation makes of a packet. Reference: linux net/netfilter/nf_nat_core.c
// (get_unique_tuple, find_best_ips_proto), nf_nat_redirect.c, nf_nat_masquerade.c.
//
// Of several addresses the kernel picks one by a hash of the packet's own, which no dump shows: all
// are possible. Of several ports of a destination it keeps the packet's own if that is one of them,
// and else takes the first, unless the rule says random.

import { formatEndpoint } from '../address.ts';
import type { Action, Address, Range, Translation } from '../ruleset.ts';
import type { PacketState } from './match.ts';
import { askPacket } from './match.ts';

type TranslationAction = Extract<
  Action,
  { kind: 'dnat' | 'snat' | 'masquerade' | 'redirect' | 'netmap' }
>;

/** More possible results than this are one that is unknown. */
const mostWays = 16;

/**
 * The packet in every state that the translation may bring it into; `state` itself when there is
 * only one. `own`: the node's addresses.
 */
export function translate<State extends PacketState>(
  action: TranslationAction,
  state: State,
  ownAddresses: readonly Address[],
): readonly State[] {
  if (action.kind !== 'snat' && action.kind !== 'masquerade' && state.questions !== null) {
    askPacket(state, ({ destination, destinationPort }) => `${destination} ${destinationPort}`);
  }
  switch (action.kind) {
    case 'dnat':
      return toDestination(action.to, state);
    case 'netmap':
      return toNetwork(action.to, state);
    case 'redirect':
      return [toNode(action.ports, state)];
    case 'snat':
      state.masqueraded = changesSource(action.to, state.source);
      break;
    case 'masquerade': {
      // The address of the interface that it leaves by: perhaps the one that it has.
      const isOwn = ownAddresses.includes(state.source);
      state.masqueraded = isOwn && !action.random ? 'unknown' : true;
      break;
    }
  }
  state.sourceTranslated = true;
  return [state];
}

function changesSource(to: Translation | null, source: Address): boolean | 'unknown' {
  if (to === null) return true;
  if (to.addresses === null) return to.ports !== null;
  const { low, high } = to.addresses;
  if (source < low || source > high || to.ports !== null) return true;
  return low === high ? false : 'unknown';
}

function toDestination<State extends PacketState>(
  to: Translation | null,
  state: State,
): readonly State[] {
  state.translated = true;
  if (to?.addresses && to.ports && to.addresses.low === to.addresses.high) {
    const { low, high } = to.ports;
    if (low === high) return [send(state, to.addresses.low, low)];
  }
  const ports = to === null ? null : portsOf(to, state.destinationPort);
  const addresses = to === null || ports === null ? null : addressesOf(to, state.destination);
  const count = (addresses?.length ?? 0) * (ports?.length ?? 0);
  if (addresses === null || ports === null || count > mostWays) return [lose(state)];
  const [address] = addresses;
  const [port] = ports;
  if (count === 1 && address !== undefined && port !== undefined)
    return [send(state, address, port)];
  return addresses.flatMap((target) => ports.map((other) => send({ ...state }, target, other)));
}

function lose<State extends PacketState>(state: State): State {
  state.destination = null;
  state.destinationPort = null;
  state.goal = 'unknown';
  state.rewritten = true;
  return state;
}

function send<State extends PacketState>(state: State, address: Address, port: number): State {
  state.rewritten = address !== state.destination || port !== state.destinationPort;
  state.destination = address;
  state.destinationPort = port;
  state.goal = formatEndpoint(address, port);
  return state;
}

function portsOf({ ports, random }: Translation, current: number | null): readonly number[] | null {
  if (ports === null) return current === null ? null : [current];
  if (random || current === null) return expand(ports)?.map(Number) ?? null;
  return [current >= ports.low && current <= ports.high ? current : ports.low];
}

function addressesOf(
  { addresses }: Translation,
  current: Address | null,
): readonly Address[] | null {
  if (addresses === null) return current === null ? null : [current];
  return expand(addresses);
}

/** All values of the range; null: there are too many. */
function expand({ low, high }: Range): readonly Address[] | null {
  const span = Number(BigInt(high) - BigInt(low));
  if (span >= mostWays) return null;
  return Array.from({ length: span + 1 }, (_, index) =>
    typeof low === 'bigint' ? low + BigInt(index) : low + index,
  );
}

/** REDIRECT: 127.0.0.1 or ::1 for the node's own packets, else the interface's own address. */
function toNode<State extends PacketState>(ports: Range<number> | null, state: State): State {
  state.translated = true;
  const own = state.destinationPort;
  const port =
    ports === null || (own !== null && own >= ports.low && own <= ports.high) ? own : ports.low;
  if (port === null) return lose(state);
  if (state.hook === 'output') return send(state, state.family === 'ip' ? 0x7f000001 : 1n, port);
  state.destination = null;
  state.destinationPort = port;
  state.toNode = true;
  state.rewritten = true;
  state.goal = `node:${port}`;
  return state;
}

/** NETMAP keeps the bits that the network leaves free. */
function toNetwork<State extends PacketState>(
  { low, high }: Range,
  state: State,
): readonly State[] {
  if (state.hook === 'postrouting' || state.hook === 'input') {
    state.sourceTranslated = true;
    state.masqueraded = state.source < low || state.source > high ? true : 'unknown';
    return [state];
  }
  state.translated = true;
  const { destination, destinationPort: port } = state;
  if (destination === null || port === null) return [lose(state)];
  if (typeof low === 'number' && typeof high === 'number' && typeof destination === 'number') {
    return [send(state, low + (destination % (high - low + 1)), port)];
  }
  const size = BigInt(high) - BigInt(low) + 1n;
  return [send(state, BigInt(low) + (BigInt(destination) % size), port)];
}
