// Infers the configuration of a kube-proxy from its rules: its mode, how it detects local pods,
// whether it masquerades all packets to cluster IPs, and its node port addresses. Based on
// pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go, kubernetes@v1.36.3; up to v1.35
// the latter wrote the mark of cluster IPs into the chain of every Service.
//
// One rule may be broken, so rules of one kind vote. A setting that no rule shows is left out, and
// so is one that the address families disagree about.
//
// Node ports at loopback addresses only have no rule in IPv6, and none at all in nftables mode. If
// no family has a rule for another address, that is a setting: one broken rule is of one family.
//
// Left out: masqueradeAll up to v1.22, whose KUBE-SERVICES marks external IPs in the same way, and
// other node port addresses that the node does not have: no rule leads to them.

import type { ProxyConfig } from '../../model/proxy-config.ts';
import { formatAddress } from '../../model/ip.ts';
import type { Range } from '../../model/ip.ts';
import { type Rule, type RuleSet, rulesOf, type Statement, type Table } from '../ruleset.ts';

/** Fields of kube-proxy's configuration, as far as its rules show them. */
export type InferredSettings = Partial<
  Omit<ProxyConfig, 'mode' | 'minor' | 'bindAddress' | 'featureGates'>
>;

export function modeIn({ tables }: RuleSet): ProxyConfig['mode'] {
  if (tables.some(isKubeProxys)) return 'nftables';
  return tables.some(isOfIPVS) ? 'ipvs' : 'iptables';
}

/**
 * IPVS mode always writes this jump (writeIptablesRules of pkg/proxy/ipvs/proxier.go,
 * kubernetes@v1.37.2). Its other chains may be left over, but each mode writes KUBE-SERVICES again.
 */
function isOfIPVS({ name, chains }: Table): boolean {
  const chain = name === 'nat' ? chains.get('KUBE-SERVICES') : undefined;
  const rules = chain === undefined ? [] : rulesOf(chain);
  return rules.some(({ statements }) => statements.some((it) => leadsTo(it, /^KUBE-NODE-PORT$/)));
}

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

const enough = 20;

const everything = '';

/** Each address family has tables of its own. */
function markingIn(tables: readonly Table[]): InferredSettings {
  const votes = tables.map((table) => firstOf(marked(table)));
  const all = votes.flat();
  const masqueradeAll = all.filter((key) => key === everything).length > 0.9 * all.length;
  const detected = tables.flatMap((table, at) => {
    const named = (votes[at] ?? []).filter((key) => key !== everything);
    // If few rules for cluster IPs vote, those for external traffic vote too.
    const more = named.length < enough ? firstOf(shortCut(table)) : [];
    return winner([...named, ...more]) ?? [];
  });
  const byName = detected.find((key) => !key.includes('/'));
  const clusterCIDRs = detected.length === 0 ? {} : { clusterCIDRs: detected };
  const detection = byName === undefined ? clusterCIDRs : byInterface(byName);
  return { ...detection, ...(masqueradeAll && all.length > 0 ? { masqueradeAll } : {}) };
}

function firstOf(keys: Iterable<string>): string[] {
  const found: string[] = [];
  for (const key of keys) if (found.push(key) >= enough) break;
  return found;
}

function winner(named: readonly string[]): string | null {
  const votes = Map.groupBy(named, (key) => key);
  const [first] = [...votes].sort(([, some], [, others]) => others.length - some.length);
  return first?.[0] ?? null;
}

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

const marks = (statement: Statement): boolean =>
  leadsTo(statement, /^KUBE-MARK-MASQ$|^mark-for-masquerade$/) ||
  (statement.kind === 'set mark' && statement.field === 'mark');

const leadsTo = (statement: Statement, chains: RegExp): boolean =>
  (statement.kind === 'jump' || statement.kind === 'goto') && chains.test(statement.chain);

const isForClusterIP = ({ statements }: Rule): boolean =>
  statements.some(asksAddress) && !statements.some(asksSender);

const asksSender = (statement: Statement): boolean =>
  statement.kind === 'interface' ||
  (statement.kind === 'field' && statement.field === 'source') ||
  (statement.kind === 'address type' && statement.side === 'source');

const asksAddress = (statement: Statement): boolean =>
  (statement.kind === 'field' && statement.field === 'destination' && !statement.negate) ||
  (statement.kind === 'lookup' && statement.set.name === 'cluster-ips' && !statement.negate);

const shortCuts = /^KUBE-SVC-|^service-/;

function* shortCut(table: Table): Generator<string> {
  for (const chain of table.chains.values(/^KUBE-(?:EXT|XLB)-|^external-/)) {
    for (const rule of rulesOf(chain)) {
      const isTaken = rule.statements.some((statement) => leadsTo(statement, shortCuts));
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

/** kube-proxy writes a prefix as iptables does with `+` and nft with `*`; readers make it `*`. */
function byInterface(name: string): InferredSettings {
  return name.endsWith('*')
    ? { detectLocalMode: 'InterfaceNamePrefix', interfaceNamePrefix: name.slice(0, -1) }
    : { detectLocalMode: 'BridgeInterface', bridgeInterface: name };
}

/** The network that is this range; null if it is none. */
function networkOf({ low, high }: Range): string | null {
  const size = BigInt(high) - BigInt(low) + 1n;
  const bits = size.toString(2).length - 1;
  if (size !== 1n << BigInt(bits) || BigInt(low) % size !== 0n) return null;
  const width = typeof low === 'number' ? 32 : 128;
  return `${formatAddress(low)}/${String(width - bits)}`;
}

function nodePortsIn(tables: readonly Table[]): InferredSettings {
  const addresses = new Set<string>();
  let localhostNodePorts = true;
  let isFilled = false;
  let families = 0;
  for (const table of tables) {
    const chain = table.chains.get(isKubeProxys(table) ? 'services' : 'KUBE-SERVICES');
    const rules = chain === undefined ? [] : rulesOf(chain);
    const ways = rules.filter(({ statements }) => statements.some(leadsToNodePorts));
    isFilled ||= rules.length > 0;
    // iptables mode has one rule for each address, nftables mode one for a set of them.
    if (chain !== undefined && (ways.length > 0 || !isKubeProxys(table))) families++;
    for (const { statements } of ways) {
      if (!statements.some(asksLocal)) {
        const networks = statements.flatMap(destinationsOf).map(networkOf);
        for (const network of networks) if (network !== null) addresses.add(network);
      } else if (table.family === 'ip6') addresses.add('::/0');
      else {
        addresses.add('0.0.0.0/0');
        if (statements.some(excludes)) localhostNodePorts = false;
      }
    }
  }
  const found = [...addresses];
  if (families === 2 && isFilled && found.every((text) => text.startsWith('127.'))) {
    localhostNodePorts = found.length > 0;
    return { nodePortAddresses: ['127.0.0.0/8', '::1/128'], localhostNodePorts };
  }
  return found.length === 0 ? {} : { nodePortAddresses: found, localhostNodePorts };
}

const asksLocal = (statement: Statement): boolean =>
  statement.kind === 'address type' && statement.side === 'destination' && !statement.negate;

const leadsToNodePorts = (statement: Statement): boolean =>
  leadsTo(statement, /^KUBE-NODEPORTS$/) ||
  (statement.kind === 'verdict map' && statement.set.name === 'service-nodeports');

const excludes = (statement: Statement): boolean =>
  statement.kind === 'field' && statement.field === 'destination' && statement.negate;

function destinationsOf(statement: Statement): readonly Range[] {
  if (statement.kind === 'field' && asksAddress(statement)) return statement.ranges;
  const isSet = statement.kind === 'lookup' && statement.set.name === 'nodeport-ips';
  if (!isSet || statement.negate) return [];
  return statement.set.elements.flatMap(({ key: [first] }) =>
    typeof first === 'object' ? first : [],
  );
}
