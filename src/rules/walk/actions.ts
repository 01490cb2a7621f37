// What actions make of a packet: its marks, and network address translation. Reference: linux
// net/netfilter/xt_mark.c, xt_connmark.c, nft_meta.c, nft_ct.c; nf_nat_core.c (get_unique_tuple,
// find_best_ips_proto), nf_nat_redirect.c, nf_nat_masquerade.c.
//
// Of several addresses the kernel picks one by a hash of the packet's own, which no dump shows: all
// are possible. Of several ports of a destination it keeps the packet's own if that is one of them,
// and else takes the first, unless the rule says random.

import { type Address, formatAddress, joinHostPort, type Range } from '../../model/ip.ts';
import type { Action, Translation } from '../ruleset.ts';
import { changesSource } from './hooks.ts';
import { askPacket, type Bits, type PacketState } from './walk-state.ts';

type MarkAction = Extract<Action, { kind: 'set mark' | 'copy mark' | 'unknown mark' }>;

/** Changes the marks as the action says. The connection has a mark only in conntrack's table. */
export function changeMark(action: MarkAction, state: PacketState): void {
  const { mark, connectionMark, entry } = state;
  if (action.kind === 'unknown mark') {
    const other = { value: 0, known: ~action.bits };
    state.mark = flip(mark, ~0, other);
    state.connectionMark = flip(connectionMark, ~0, other);
  } else if (action.kind === 'set mark' && action.field === 'mark') {
    state.mark = flip(mark, action.keep, { value: action.flip, known: ~0 });
  } else if (entry !== 'new') {
    return;
  } else if (action.kind === 'set mark') {
    state.connectionMark = flip(connectionMark, action.keep, { value: action.flip, known: ~0 });
  } else {
    const { direction, packetMask, connectionMask } = action;
    if (direction === 'restore') {
      state.mark = flip(mark, ~packetMask, masked(connectionMark, connectionMask));
    } else {
      state.connectionMark = flip(connectionMark, ~connectionMask, masked(mark, packetMask));
    }
  }
}

/** Keeps some bits and flips others. A bit that is not kept is known if the other one is. */
const flip = ({ value, known }: Bits, keep: number, other: Bits): Bits => ({
  value: ((value & keep) ^ other.value) >>> 0,
  known: ((known | ~keep) & other.known) >>> 0,
});

const masked = ({ value, known }: Bits, mask: number): Bits => ({
  value: value & mask,
  known: known | ~mask,
});

type TranslationAction = Extract<
  Action,
  { kind: 'dnat' | 'snat' | 'masquerade' | 'redirect' | 'netmap' }
>;

/** With more possible results than this the destination is unknown. */
const mostWays = 16;

/** Each state that the translation may bring the packet into; `state` itself if it is one. */
export function translate(action: TranslationAction, state: PacketState): readonly PacketState[] {
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
      state.masqueraded = hasNewSource(action.to, state.source);
      break;
    case 'masquerade':
      // The address of the interface that it leaves by: perhaps the one that it has.
      state.masqueraded =
        !action.random && state.localAddresses.includes(state.source) ? 'unknown' : true;
  }
  state.sourceTranslated = true;
  return [state];
}

function hasNewSource(to: Translation | null, source: Address): boolean | 'unknown' {
  if (to === null) return true;
  if (to.addresses === null) return to.ports !== null;
  const { low, high } = to.addresses;
  if (source < low || source > high || to.ports !== null) return true;
  return low === high ? false : 'unknown';
}

function toDestination(to: Translation | null, state: PacketState): readonly PacketState[] {
  state.translated = true;
  if (to?.addresses && to.ports && to.addresses.low === to.addresses.high) {
    const { low, high } = to.ports;
    if (low === high) return [send(state, to.addresses.low, low)];
  }
  const { destination, destinationPort } = state;
  const addresses = to && valuesOf(to.addresses, destination);
  const ports = to && portsOf(to, destinationPort);
  if (!addresses || !ports || addresses.length * ports.length > mostWays) return [lose(state)];
  return addresses.flatMap((address) => ports.map((port) => send({ ...state }, address, port)));
}

function lose(state: PacketState): PacketState {
  state.destination = null;
  state.destinationPort = null;
  state.goal = 'unknown';
  state.rewritten = true;
  return state;
}

/** Translates the destination into one that is known. */
export function send(state: PacketState, address: Address, port: number): PacketState {
  state.translated = true;
  state.rewritten = address !== state.destination || port !== state.destinationPort;
  state.destination = address;
  state.destinationPort = port;
  state.goal = joinHostPort(formatAddress(address), port);
  return state;
}

function portsOf({ ports, random }: Translation, current: number | null): readonly number[] | null {
  const port = keptPort(ports, current);
  if (random || current === null || port === null) return valuesOf(ports, current);
  return [port];
}

const keptPort = (ports: Range<number> | null, current: number | null): number | null =>
  ports === null || (current !== null && current >= ports.low && current <= ports.high)
    ? current
    : ports.low;

/** All values of a range, or else the current one; null if it is unknown or there are too many. */
function valuesOf<T extends Address>(range: Range<T> | null, current: T | null): T[] | null {
  if (range === null) return current === null ? null : [current];
  const { low, high }: Range = range;
  const span = Number(BigInt(high) - BigInt(low));
  if (span >= mostWays) return null;
  return Array.from(
    { length: span + 1 },
    (_, at) => (typeof low === 'bigint' ? low + BigInt(at) : low + at) as T,
  );
}

/** REDIRECT: 127.0.0.1 or ::1 for the node's own packets, else the interface's own address. */
function toNode(ports: Range<number> | null, state: PacketState): PacketState {
  state.translated = true;
  const port = keptPort(ports, state.destinationPort);
  if (port === null) return lose(state);
  if (state.hook === 'output') return send(state, state.family === 'ip' ? 0x7f000001 : 1n, port);
  state.destination = null;
  state.destinationPort = port;
  state.toNode = true;
  state.rewritten = true;
  state.goal = `node:${port}`;
  return state;
}

function toNetwork({ low, high }: Range, state: PacketState): readonly PacketState[] {
  if (changesSource(state.hook)) {
    state.sourceTranslated = true;
    state.masqueraded = state.source < low || state.source > high ? true : 'unknown';
    return [state];
  }
  state.translated = true;
  const { destination, destinationPort: port } = state;
  if (destination === null || port === null) return [lose(state)];
  const offset = BigInt(destination) % (BigInt(high) - BigInt(low) + 1n);
  const address = BigInt(low) + offset;
  return [send(state, typeof low === 'number' ? Number(address) : address, port)];
}
