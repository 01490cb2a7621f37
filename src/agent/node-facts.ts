// The facts about a node that are not rules: its addresses, interfaces and routes.

import { createReadStream, existsSync, readdirSync } from 'node:fs';
import { hostname, networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

import { canonicalIP, isLoopback } from '../model/ip.ts';
import { readRoutes, type Routes } from '../rules/walk/routes.ts';

export interface NodeIdentity {
  /** Default: the name of the host. */
  readonly node?: string;
  /** If empty: the first address of each family. */
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
}

export type NodeFacts = Awaited<ReturnType<typeof readNodeFacts>>;

export async function readNodeFacts(identity: NodeIdentity) {
  const { node = hostname(), nodeIPs, podCIDRs } = identity;
  // Link-local addresses are left out: each pod adds one, and no client uses them. Virtual IPs may
  // be bound to the loopback interface.
  const global = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ address }) => !isLoopback(address) && !/^fe[89ab]/i.test(address));
  const first = ['IPv4', 'IPv6'].flatMap((family) => {
    const found = global.find((item) => !item.internal && item.family === family);
    return found?.address ?? [];
  });
  const addresses = new Set(global.map(({ address }) => canonicalIP(address)));
  const interfaces = interfaceNames();
  return {
    node,
    /** Addresses of the node's interfaces, in canonical form. */
    localAddresses: [...addresses].sort(),
    /** `null` if sysfs does not list them; then matches on interfaces are unknown. */
    interfaces,
    /** `null` if they cannot be read; then most matches on interfaces are unknown. */
    routes: interfaces === null ? null : await routesOf(interfaces),
    /** Addresses of the Node object, where packets to node ports are sent. */
    nodeIPs: (nodeIPs.length > 0 ? nodeIPs : first).map(canonicalIP),
    podCIDRs,
  };
}

const links = '/sys/class/net';

function interfaceNames(): string[] | null {
  try {
    const entries = readdirSync(links, { withFileTypes: true });
    return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name);
  } catch {
    return null;
  }
}

async function routesOf(interfaces: readonly string[]): Promise<Routes | null> {
  const devices = interfaces.filter((name) => existsSync(join(links, name, 'device')));
  try {
    return readRoutes(await readShort('route'), await readShort('fib_trie'), devices);
  } catch {
    return null;
  }
}

/** Only a router has more. */
const mostBytes = 1 << 20;

/** Reads a file of procfs, which has no size. Rejects if it is too long. */
async function readShort(name: string): Promise<string> {
  const path = join('/proc/net', name);
  const content = await text(createReadStream(path, { encoding: 'latin1', end: mostBytes }));
  if (content.length > mostBytes) throw new RangeError(`${path} is too long`);
  return content;
}
