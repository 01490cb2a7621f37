// The outcome of a packet by Cilium's maps, in the form that walks through rules have, with the
// entry of the frontend as the rule that decided.

import { canonicalIP, isLoopback } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { Rule, Statement, Table } from '../ruleset.ts';
import { chainsOf, emptyChain } from '../ruleset.ts';
import type { TraceStep } from '../walk/walk-state.ts';
import type { Destination, OutcomeShare, PacketOutcome } from '../walk/walk.ts';
import { connect, type NodePlace } from './connection.ts';
import type { loadBalancerOf } from './load-balancer.ts';
import { isUnspecified, kindOf, nowhere } from './load-balancer.ts';
import { frontendKey, type MapAddress } from './map-entries.ts';

/** The name of the maps in traces, where rules have that of their table. */
export const ciliumTable = 'cilium';

const base = {
  hook: 'prerouting',
  priority: 0,
  type: 'nat',
  policy: 'accept',
  created: 0,
} as const;
const chain = emptyChain('services', base);
const table: Table = {
  family: 'inet',
  name: ciliumTable,
  source: 'bpf',
  chains: chainsOf(new Map([[chain.name, chain]])),
  sets: new Map(),
};

export const entryVerdicts = ['dnat', 'drop', 'reject'] as const;

export type EntryVerdict = (typeof entryVerdicts)[number];

/** The entry of a frontend as the rule that decided, from its text. */
export function entryStep(text: string, verdict: EntryVerdict): TraceStep {
  const statements: Record<EntryVerdict, Statement> = {
    dnat: { kind: 'dnat', to: null, text },
    drop: { kind: 'drop' },
    reject: { kind: 'reject', text: '' },
  };
  const rule: Rule = { statements: [statements[verdict]], text };
  return { chain: chain.name, base: { chain, base, table }, rule };
}

/** The place of a node with these addresses. */
export function placeWith(
  localAddresses: readonly string[],
  nodePortRange: NodePlace['nodePortRange'],
): NodePlace {
  const local = new Set(localAddresses.map(canonicalIP));
  const isLocal = (address: string): boolean => local.has(address) || isLoopback(address);
  return { isLocal, nodePortRange };
}

const noShare: OutcomeShare = { probability: 0, masqueraded: false, trace: () => [] };
const nothing = { reject: noShare, drop: noShare, pass: noShare, unknown: [] } as const;
const whole = { probability: 1, masqueraded: false } as const;
const anywhere = {
  probability: 1,
  masqueraded: 'unknown',
  affinity: false,
  affinitySeconds: null,
} as const;

type Balancer = Pick<ReturnType<typeof loadBalancerOf>, 'frontends'>;

/** Returns a function that connects packets by the maps. */
export function createConnector({ frontends }: Balancer, place: NodePlace) {
  return (packet: Packet): PacketOutcome => {
    const connection = connect(frontends, packet, place);
    const destinations = new Map<string, Destination>();
    if (connection.kind === 'pass') {
      return { ...nothing, destinations, pass: { ...whole, trace: () => [] } };
    }
    const { frontend } = connection;
    const stop = connection.kind === 'reject' ? 'reject' : 'drop';
    const stopped = { ...whole, trace: () => [entryStep(frontend.text, stop)] };
    if (connection.kind === 'unknown') {
      const { reason } = connection;
      // Without this destination, no endpoint of the Service would be possible.
      const trace = () => [entryStep(frontend.text, 'dnat')];
      destinations.set('unknown', { ...anywhere, trace });
      return { ...nothing, destinations, unknown: [{ reason, rule: frontend.text }] };
    }
    if (connection.kind !== 'endpoints') {
      return { ...nothing, destinations, [connection.kind]: stopped };
    }
    const { shares, masqueraded } = connection;
    for (const [endpoint, probability] of shares) {
      if (endpoint === nowhere) continue;
      const affinity = frontend.kept.has(endpoint);
      const affinitySeconds = affinity ? frontend.affinitySeconds : null;
      const trace = () => [entryStep(frontend.text, 'dnat')];
      destinations.set(endpoint, { probability, masqueraded, affinity, affinitySeconds, trace });
    }
    const lost = shares.get(nowhere) ?? 0;
    return { ...nothing, destinations, drop: { ...stopped, probability: lost } };
  };
}

/** The frontends of Services in the maps; those without an address are at any of the node. */
export function frontendsInMaps({ masters }: ReturnType<typeof loadBalancerOf>) {
  return [...masters.values()].flatMap(({ family, address, protocol, port, scope, flags }) => {
    if (scope !== 0 || protocol === 'any' || kindOf(flags) === 'host port') return [];
    const place = isUnspecified(address) ? null : address;
    return [{ family, address: place, protocol, port, translators: 1 }];
  });
}

/** The source ranges of a frontend in the maps. */
export const rangesInMaps = ({ frontends }: Balancer, place: Omit<MapAddress, 'family'>) =>
  frontends.get(frontendKey(place, 0))?.sources?.ranges ?? [];
