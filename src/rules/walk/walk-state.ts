// The state of a packet on its way through the rules, and of the walk that it is on.

import { type Address, parseAddress } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import { familyOf, type Hook, type Rule } from '../ruleset.ts';
import type { BaseChain, Hooks, Station } from './hooks.ts';
import type { RouteLookup } from './routes.ts';

/** A list that shares its tail, so that a state can be copied cheaply. */
export interface List<T> {
  readonly head: T;
  readonly tail: List<T> | null;
}

export function holds(list: List<string> | null, name: string): boolean {
  for (let at = list; at !== null; at = at.tail) if (at.head === name) return true;
  return false;
}

export interface TraceStep {
  readonly chain: string;
  readonly base: BaseChain;
  readonly rule: Rule;
}

/** A step while the packet is on its way; a rule of null: the last one of its chain. */
export interface PassedRule extends Omit<TraceStep, 'rule'> {
  rule: Rule | null;
}

export interface Bits {
  readonly value: number;
  readonly known: number;
}

interface Affinity {
  readonly name: string;
  readonly seconds: number | null;
}

/** The least and the greatest share of some packets. */
export interface Share {
  low: number;
  high: number;
  /** Bits: 1 some are not masqueraded, 2 some are, 4 some may be. */
  masquerade: number;
  trace: List<PassedRule> | null;
  remembered: List<string> | null;
  affinity: Affinity | null;
}

/** By outcome: `pass`, `reject`, `drop`, `unknown`, or a destination. */
export type Tally = Map<string, Share>;

export interface NodeContext {
  /** The node's own addresses; 127.0.0.0/8 and ::1 are local without being named. */
  readonly localAddresses: readonly string[];
  readonly interfaces?: {
    /** By which packets come in; without them `-i` is unknown. */
    readonly outside?: string;
    readonly pod?: string;
    /** All that the node has: a rule about another matches nothing. */
    readonly all?: readonly string[];
    /** By its routes: what is not said above, and by which packets leave. */
    readonly routes?: RouteLookup;
  };
}

/** @throws TypeError where a text is no address. */
export function addressOf(field: string, text: string): Address {
  const address = parseAddress(text);
  if (address === null) throw new TypeError(`Cannot walk: ${field} is not an address: ${text}`);
  return address;
}

const protocols = { tcp: 6, udp: 17, sctp: 132 };
const allKnown: Bits = { value: 0, known: 0xffffffff };

/** A packet before any rule. Its walk changes the state; a fork copies it. */
export function packetState(packet: Packet, node: NodeContext, localAddresses: readonly Address[]) {
  const { from, dport, iif } = packet;
  const destination = addressOf('dst', packet.dst);
  const source = addressOf('src', packet.src);
  const { interfaces } = node;
  const comesIn = (sender: 'pod' | 'outside'): string | null =>
    iif ?? interfaces?.[sender] ?? interfaces?.routes?.from(sender, source) ?? null;
  return {
    family: familyOf(destination),
    from,
    source,
    protocol: protocols[packet.protocol],
    /** The node's addresses, without those of its loopback interface. */
    localAddresses,
    /** null: not known. */
    interfaces: interfaces?.all ?? null,
    /** The interfaces that may reach an address; null: not known. */
    interfacesTo: interfaces?.routes?.to ?? (() => null),
    /** Where it was sent to; null: not known. */
    original: { address: destination as Address | null, port: dport as number | null },
    hook: 'prerouting' as Hook,
    /** null: a rule translated it, and does not say into what. */
    destination: destination as Address | null,
    destinationPort: dport as number | null,
    /** Whether it is for the node itself; null: its address shows that. */
    toNode: null as boolean | null,
    /** null: not known; empty: none. */
    in: from === 'node' ? '' : comesIn(from),
    /** null: as the routes say (`interfacesOut`). */
    out: '' as string | null,
    mark: allKnown,
    connectionMark: allKnown,
    /** In conntrack's table. An error that the node sends about a packet is related to it. */
    entry: 'none' as 'none' | 'new' | 'untracked' | 'related',
    /** Destination NAT is settled: no rule can change it any more. */
    translated: false,
    sourceTranslated: false,
    /** Where it goes: `ip:port`, or null before a translation. */
    goal: null as string | null,
    /** Whether it goes elsewhere than it was sent: NAT to the same place leaves no DNAT status. */
    rewritten: false,
    masqueraded: false as boolean | 'unknown',
    remembered: null as List<string> | null,
    /** On the way of a source that is remembered: under which name, for how long. */
    affinity: null as Affinity | null,
    trace: null as List<PassedRule> | null,
    /** Takes up what is asked of where it goes; null: questions are not recorded. */
    questions: null as MatchQuestion[] | null,
    stations: [] as readonly Station[],
    station: 0,
    nat: null as readonly BaseChain[] | null,
    natNext: 0,
    tally: new Map() as Tally,
    weight: 1,
  };
}

export type PacketState = ReturnType<typeof packetState>;

export interface MatchQuestion {
  readonly question: (other: PacketState) => unknown;
  readonly answer: unknown;
}

const nowhere = {
  destination: null,
  destinationPort: null,
  original: { address: null, port: null },
};

/** Asks a packet something, and records the question if the answer depends on its destination. */
export function askPacket<Answer>(
  state: PacketState,
  question: (packet: PacketState) => Answer,
): Answer {
  const answer = question(state);
  if (state.questions === null) return answer;
  if (answer !== 'unknown' && question({ ...state, ...nowhere }) === answer) return answer;
  const now = { ...state };
  const again = ({ destination, destinationPort, original }: PacketState): Answer => {
    now.destination = destination;
    now.destinationPort = destinationPort;
    now.original = original;
    return question(now);
  };
  state.questions.push({ question: again, answer });
  return answer;
}

export const isOwn = ({ localAddresses }: PacketState, address: Address): boolean =>
  isLoopback(address) || localAddresses.includes(address);

const isLoopback = (address: Address): boolean =>
  typeof address === 'number' ? address >>> 24 === 127 : address === 1n;

export interface UnknownRule {
  readonly reason: string;
  readonly rule: string;
}

export interface Walk {
  readonly hooks: Hooks;
  /** The base chain let a packet pass, or NAT is settled: takes it to its next station. */
  readonly onward: (walk: Walk, state: PacketState) => void;
  unknown: Map<string, UnknownRule>;
  readonly trees: DecisionTree[];
  steps: number;
  depth: number;
}

/** Outcomes of packets that differ only in their destination. */
export interface DecisionTree {
  readonly first: PacketState;
  readonly root: DecisionNode;
  leaves: number;
}

export interface DecisionNode {
  question: MatchQuestion['question'] | null;
  readonly branches: Map<unknown, DecisionNode>;
  leaf: DecisionLeaf | null;
}

export interface DecisionLeaf extends Pick<PacketState, 'goal' | 'trace' | 'tally'> {
  readonly unknown: Walk['unknown'];
}
