// What a node's rules tell of the kube-proxy that wrote them, where nobody says how that is
// configured: its mode, by what it tells pods from others, whether it masquerades everything that
// goes to cluster IPs, and at which addresses it serves node ports. Read from
// pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go, kubernetes@v1.36.3; to v1.35 the
// latter wrote the mark of cluster IPs into the chain of every Service.
//
// One rule may be broken, so it is no setting: rules of a kind vote. What no rule shows is not
// told, and neither is what the families contradict each other in.
//
// Left out: masqueradeAll of releases whose KUBE-SERVICES marks cluster IPs (to v1.22), since
// external IPs are marked there alike; addresses for node ports of which the node has none, since
// then nothing leads to node ports, as where the rule is lost.

import type { ProxyConfig } from '../../model/proxy-config.ts';
import { formatAddress } from '../address.ts';
import type { Range, Rule, RuleSet, Statement, Table } from '../ruleset.ts';
import { rulesOf } from '../ruleset.ts';

type ShownFields = Pick<
  ProxyConfig,
  'detectLocalMode' | 'bridgeInterface' | 'interfaceNamePrefix'
> &
  Pick<ProxyConfig, 'clusterCIDRs' | 'masqueradeAll' | 'nodePortAddresses' | 'localhostNodePorts'>;

/** Fields of kube-proxy's configuration, as far as its rules show them. */
export type InferredSettings = Partial<ShownFields>;

export const modeIn = ({ tables }: RuleSet): ProxyConfig['mode'] =>
  tables.some(isKubeProxys) ? 'nftables' : 'iptables';

const isKubeProxys = ({ source, name }: Table): boolean =>
  source === 'nft' && name === 'kube-proxy';

/** What the rules of a kube-proxy of this mode show of its configuration. */
export function settingsIn(ruleset: RuleSet, mode: ProxyConfig['mode']): InferredSettings {
  const isOwn =
    mode === 'nftables'
      ? isKubeProxys
      : (table: Table) => !isKubeProxys(table) && table.name === 'nat';
  const tables = ruleset.tables.filter(isOwn);
  return { ...markingIn(tables), ...nodePortsIn(tables) };
}

// Marks for masquerading.

/** Rules of one Service after the other say the same. */
const enough = 20;

/** A rule that marks whatever goes to a cluster IP. */
const everything = '';

type Votes = Map<string, number>;

/** Each address family has tables of its own. */
function markingIn(tables: readonly Table[]): InferredSettings {
  const votes = tables.map((table) => votesOf(marked(table)));
  const sum = (of: (one: Votes) => number): number => votes.reduce((all, one) => all + of(one), 0);
  const all = sum((one) => one.get(everything) ?? 0);
  const masqueradeAll = all > 0 && all > 0.9 * sum(total);
  const detected = tables.flatMap((table, at) => {
    const own: Votes = votes[at] ?? new Map<string, number>();
    const named = total(own) - (own.get(everything) ?? 0);
    // Where few rules for cluster IPs tell, those for external traffic have a vote.
    return winner(named < enough ? votesOf(shortCut(table), own) : own) ?? [];
  });
  const byName = detected.find((key) => !key.includes('/'));
  const detection = byName === undefined ? byRange(detected) : byInterface(byName);
  return { ...detection, ...(masqueradeAll ? { masqueradeAll } : {}) };
}

const total = (votes: Votes): number => [...votes.values()].reduce((sum, one) => sum + one, 0);

/** Adds the votes of these to others. */
function votesOf(keys: Iterable<string>, others: Votes = new Map()): Votes {
  const votes = new Map(others);
  let count = 0;
  for (const key of keys) {
    votes.set(key, (votes.get(key) ?? 0) + 1);
    if (++count >= enough) break;
  }
  return votes;
}

/** The sender that most rules name; the first of several. */
function winner(votes: Votes): string | null {
  const named = [...votes].filter(([key]) => key !== everything);
  return (
    named.reduce<[string, number] | null>(
      (best, one) => (best === null || one[1] > best[1] ? one : best),
      null,
    )?.[0] ?? null
  );
}

/** By rule that marks what goes to cluster IPs: the senders that it spares. */
function* marked(table: Table): Generator<string> {
  for (const chain of table.chains.values(/^KUBE-(?:SV[CL]-|SERVICES$)|^service-|^services$/)) {
    for (const rule of rulesOf(chain)) {
      if (!rule.statements.some(marks)) continue;
      const key = senderIn(rule, true);
      if (key !== null) yield key;
      else if (chain.name !== 'KUBE-SERVICES' && isForClusterIP(rule)) yield everything;
    }
  }
}

const marks = (one: Statement): boolean =>
  (one.kind === 'jump' &&
    (one.chain === 'KUBE-MARK-MASQ' || one.chain === 'mark-for-masquerade')) ||
  (one.kind === 'set mark' && one.field === 'mark');

/** It asks for an address, and for nothing of the sender. */
function isForClusterIP({ statements }: Rule): boolean {
  const asksSender = statements.some(
    (one) =>
      one.kind === 'interface' ||
      (one.kind === 'field' && one.field === 'source') ||
      (one.kind === 'address type' && one.side === 'source'),
  );
  return !asksSender && statements.some(asksAddress);
}

const asksAddress = (one: Statement): boolean =>
  (one.kind === 'field' && one.field === 'destination' && !one.negate) ||
  (one.kind === 'lookup' && one.set.name === 'cluster-ips' && !one.negate);

/** By rule that spares pods of the node a Local policy: the pods. */
function* shortCut(table: Table): Generator<string> {
  for (const chain of table.chains.values(/^KUBE-(?:EXT|XLB)-|^external-/)) {
    for (const rule of rulesOf(chain)) {
      const isTaken = rule.statements.some(
        (one) =>
          (one.kind === 'jump' || one.kind === 'goto') && /^KUBE-SVC-|^service-/.test(one.chain),
      );
      const key = isTaken ? senderIn(rule, false) : null;
      if (key !== null) yield key;
    }
  }
}

/** The network or the interface that a rule asks senders for; null: neither. */
function senderIn({ statements }: Rule, negate: boolean): string | null {
  for (const one of statements) {
    if (one.kind === 'interface' && one.side === 'in' && one.negate === negate) {
      return one.names[0] ?? null;
    }
    if (one.kind !== 'field' || one.field !== 'source' || one.negate !== negate) continue;
    const [range] = one.ranges;
    if (range !== undefined && range.low !== range.high) return networkOf(range);
  }
  return null;
}

const byRange = (clusterCIDRs: readonly string[]): InferredSettings =>
  clusterCIDRs.length === 0 ? {} : { clusterCIDRs };

/** kube-proxy writes a prefix as iptables does with `+` and nft with `*`; readers make it `*`. */
function byInterface(name: string): InferredSettings {
  return name.endsWith('*')
    ? { detectLocalMode: 'InterfaceNamePrefix', interfaceNamePrefix: name.slice(0, -1) }
    : { detectLocalMode: 'BridgeInterface', bridgeInterface: name };
}

/** The network that is this range; null: it is none. */
function networkOf({ low, high }: Range): string | null {
  const size = BigInt(high) - BigInt(low) + 1n;
  const bits = size.toString(2).length - 1;
  if (size !== 1n << BigInt(bits) || BigInt(low) % size !== 0n) return null;
  const width = typeof low === 'number' ? 32 : 128;
  return `${formatAddress(low)}/${String(width - bits)}`;
}

// Node ports.

/** Where one rule leads to node ports. */
interface Way {
  /** CIDRs. */
  readonly addresses: readonly string[];
  readonly sparesLocalhost: boolean;
}

function nodePortsIn(tables: readonly Table[]): InferredSettings {
  const ways = tables.flatMap((table) => [...waysIn(table)]);
  if (ways.length === 0) return {};
  const nodePortAddresses = [...new Set(ways.flatMap(({ addresses }) => addresses))];
  const localhostNodePorts = !ways.some(({ sparesLocalhost }) => sparesLocalhost);
  return { nodePortAddresses, localhostNodePorts };
}

function* waysIn(table: Table): Generator<Way> {
  const chain = table.chains.get(isKubeProxys(table) ? 'services' : 'KUBE-SERVICES');
  if (chain === undefined) return;
  for (const { statements } of rulesOf(chain)) {
    if (!statements.some(leadsToNodePorts)) continue;
    const isLocal = statements.some(
      (one) => one.kind === 'address type' && one.side === 'destination' && !one.negate,
    );
    const ranges = statements.flatMap((one) => destinationsOf(one));
    const addresses = isLocal
      ? [table.family === 'ip6' ? '::/0' : '0.0.0.0/0']
      : ranges.flatMap((range) => networkOf(range) ?? []);
    const sparesLocalhost = isLocal && table.family !== 'ip6' && statements.some(excludes);
    if (addresses.length > 0) yield { addresses, sparesLocalhost };
  }
}

const leadsToNodePorts = (one: Statement): boolean =>
  (one.kind === 'jump' && one.chain === 'KUBE-NODEPORTS') ||
  (one.kind === 'verdict map' && one.set.name === 'service-nodeports');

const excludes = (one: Statement): boolean =>
  one.kind === 'field' && one.field === 'destination' && one.negate;

function destinationsOf(one: Statement): readonly Range[] {
  if (one.kind === 'field' && one.field === 'destination' && !one.negate) return one.ranges;
  if (one.kind !== 'lookup' || one.set.name !== 'nodeport-ips' || one.negate) return [];
  return one.set.elements.flatMap(({ key: [first] }) => (typeof first === 'object' ? first : []));
}
