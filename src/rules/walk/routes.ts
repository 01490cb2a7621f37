// Finds the interface by which a node reaches an IPv4 address. Two files of /proc/net have the
// routes: `route` the main table with interfaces, `fib_trie` the networks of every table, without
// them. Reference: linux net/ipv4/fib_trie.c (fib_route_seq_show, fib_trie_seq_show).
//
// Of an address that another table has a route to, nothing is known. Of a route with several next
// hops they show the first: the others may be on any uplink, a hardware device or the interface of
// another gateway. Of several routes to one network each may be the one.
//
// Packets are assumed to come in by the interface by which their answers leave.
//
// Left out: IPv6, whose file does not show which table has a route; rules that forbid.

import { getOrInsert } from '../../model/collections.ts';
import { type Address, isWithin, parseNetwork, type Range } from '../../model/ip.ts';

interface Route extends Range<number> {
  /** null: none that leads away, as of a black hole. */
  readonly interface: string | null;
  readonly hasGateway: boolean;
}

export interface Routes {
  readonly main: readonly Route[];
  /** Networks that other tables have routes to. */
  readonly others: readonly Range[];
  /** Interfaces that lead on to other nodes. */
  readonly uplinks: readonly string[];
}

export type RouteLookup = ReturnType<typeof routeLookup>;

const mostRoutes = 4096;
/** include/uapi/linux/route.h: RTF_GATEWAY. */
const byGateway = 0x2;

/** `devices`: the hardware interfaces. null: a file is of another form, or too long. */
export function readRoutes(route: string, trie: string, devices: readonly string[]): Routes | null {
  const lines = route.trimEnd().split('\n').slice(1);
  const main = lines.flatMap((line) => routeIn(line) ?? []);
  const others = networksIn(trie);
  if (others === null || main.length < lines.length) return null;
  if (main.length + others.length > mostRoutes) return null;
  const gateways = main.flatMap(({ hasGateway, interface: name }) =>
    hasGateway ? (name ?? []) : [],
  );
  return { main, others, uplinks: [...new Set([...devices, ...gateways])].sort() };
}

/** A line of `route`; null if it is none. */
function routeIn(line: string): Route | null {
  const [name = '', network = '', , flags = '', , , , mask = ''] = line.split(/\s+/);
  const range = parseNetwork(`${addressIn(network)}/${addressIn(mask)}`);
  if (typeof range?.low !== 'number' || typeof range.high !== 'number') return null;
  const hasGateway = (Number.parseInt(flags, 16) & byGateway) !== 0;
  const leadsNowhere = name === '*' || name === 'lo';
  return { low: range.low, high: range.high, interface: leadsNowhere ? null : name, hasGateway };
}

/** `0101F40A` is 10.244.1.1: its bytes as one number of a little-endian machine. */
const addressIn = (word: string): string =>
  (word.match(/../g) ?? [])
    .map((byte) => Number.parseInt(byte, 16))
    .reverse()
    .join('.');

/** The networks of `fib_trie` in tables other than main and local; null if it is no such file. */
function networksIn(trie: string): Range[] | null {
  const networks: Range[] = [];
  let isOther: boolean | null = null;
  let address = '';
  for (const line of trie.split('\n')) {
    const table = /^(\S.*):$/.exec(line)?.[1];
    if (table !== undefined) isOther = table !== 'Main' && table !== 'Local';
    if (isOther !== true) continue;
    address = /\|-- (\S+)$/.exec(line)?.[1] ?? address;
    const bits = /^ +\/(\d+) /.exec(line)?.[1];
    if (bits === undefined) continue;
    const network = parseNetwork(`${address}/${bits}`);
    if (network === null) return null;
    networks.push(network);
  }
  return isOther === null ? null : networks;
}

/** Addresses that have an interface of their own, which leads nowhere else; in their order. */
export function hostsOf({ main, uplinks }: Routes): { address: number; interface: string }[] {
  const hosts = main.flatMap(({ low, high, interface: name, hasGateway }) =>
    low !== high || hasGateway || name === null || uplinks.includes(name)
      ? []
      : [{ address: low, interface: name }],
  );
  return hosts.sort((a, b) => a.address - b.address);
}

/** The ways of packets by these routes; null: not known. */
export function routeLookup({ main, others, uplinks }: Routes) {
  const bySize = new Map<number, Map<number, Set<string>>>();
  for (const { low, high, interface: name, hasGateway } of main) {
    const networks = getOrInsert(bySize, high - low + 1, () => new Map<number, Set<string>>());
    const names = getOrInsert(networks, low, () => new Set<string>());
    if (name !== null) names.add(name);
    if (hasGateway) for (const uplink of uplinks) names.add(uplink);
  }
  const sizes = [...bySize.keys()].sort((a, b) => a - b);
  /** The interfaces that may reach the address, the likeliest first. */
  const to = (address: Address): readonly string[] | null => {
    if (typeof address !== 'number') return null;
    if (others.some((range) => isWithin(address, range))) return null;
    for (const size of sizes) {
      const names = bySize.get(size)?.get(address - (address % size));
      if (names !== undefined) return names.size === 0 ? null : [...names];
    }
    return null;
  };
  /** The interface by which a packet with this source comes in. */
  const from = (sender: 'pod' | 'outside', source: Address): string | null => {
    const [first, ...more] = to(source) ?? [];
    if (first === undefined || sender === 'outside') return first ?? null;
    return more.length === 0 && !uplinks.includes(first) ? first : null;
  };
  return { to, from };
}
