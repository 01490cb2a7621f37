// The rules that kube-proxy writes in nftables mode, as `nft -j list ruleset` prints them:
// setupNFTables and syncProxyRules of pkg/proxy/nftables/proxier.go, kubernetes@v1.36.3, with the
// defaults of its configuration and a cluster CIDR. A line is one object in JSON.
//
// Left out: comments, handles, the hashes in names of chains, and the service CIDR.

import { sourcesOf } from './iptables.ts';
import type { EndpointInfo, ServicePortInfo } from './kubeproxy.ts';

const l4proto = { meta: { key: 'l4proto' } };
const dport = { payload: { protocol: 'th', field: 'dport' } };
const mark = { meta: { key: 'mark' } };
const marked = { mangle: { key: mark, value: { '|': [mark, 16384] } } };
const is = (left: unknown, right: unknown, op = '=='): unknown => ({ match: { op, left, right } });
const isNew = is({ ct: { key: 'state' } }, 'new', 'in');
const jump = (target: string): unknown => ({ jump: { target } });
const goto = (target: string): unknown => ({ goto: { target } });
const random = (mod: number): unknown => ({ numgen: { mode: 'random', mod, offset: 0 } });
const fromNode = is({ fib: { result: 'type', flags: ['saddr'] } }, 'local');

function networkOf(cidr: string): unknown {
  const [addr = '', len = ''] = cidr.split('/');
  const isHost = len === (addr.includes(':') ? '128' : '32');
  return isHost ? addr : { prefix: { addr, len: Number(len) } };
}

/** nftablesBaseChains: type, hook and priority. */
const bases: readonly (readonly [string, string, string, number])[] = [
  ['filter-prerouting-pre-dnat', 'filter', 'prerouting', -110],
  ['filter-output-pre-dnat', 'filter', 'output', -110],
  ['filter-input', 'filter', 'input', 0],
  ['filter-forward', 'filter', 'forward', 0],
  ['filter-output', 'filter', 'output', 0],
  ['nat-prerouting', 'nat', 'prerouting', -100],
  ['nat-output', 'nat', 'output', -100],
  ['nat-postrouting', 'nat', 'postrouting', 100],
];

/** nftablesJumpChains. */
const jumps: readonly (readonly [string, string])[] = [
  ['filter-input', 'nodeport-endpoints-check'],
  ['filter-input', 'service-endpoints-check'],
  ['filter-forward', 'service-endpoints-check'],
  ['filter-output', 'service-endpoints-check'],
  ['filter-prerouting-pre-dnat', 'firewall-check'],
  ['filter-output-pre-dnat', 'firewall-check'],
  ['filter-forward', 'cluster-ips-check'],
  ['filter-output', 'cluster-ips-check'],
  ['nat-output', 'services'],
  ['nat-prerouting', 'services'],
  ['nat-postrouting', 'masquerading'],
];

/** The objects of one family's table. */
interface Writer {
  readonly family: 'ip' | 'ip6';
  readonly lines: string[];
  readonly put: (kind: string, body: object) => void;
  readonly rule: (chain: string, ...expr: unknown[]) => void;
  /** All but base chains, which are declared before any rule. */
  readonly chains: Set<string>;
  readonly elements: Map<string, unknown[]>;
}

function createWriter(family: 'ip' | 'ip6'): Writer {
  const lines: string[] = [];
  const chains = new Set<string>();
  const put = (kind: string, body: object): void => {
    lines.push(JSON.stringify({ [kind]: { family, table: 'kube-proxy', ...body } }));
  };
  const rule = (chain: string, ...expr: unknown[]): void => {
    if (!bases.some(([name]) => name === chain)) chains.add(chain);
    put('rule', { chain, expr });
  };
  return { family, lines, put, rule, chains, elements: new Map() };
}

/** The lines of all Service ports. */
export function nftablesLines(
  ports: readonly ServicePortInfo[],
  clusterCIDR: string,
  nodeIP: string,
): string[] {
  const writer = createWriter(clusterCIDR.includes(':') ? 'ip6' : 'ip');
  const { family, put, rule, chains } = writer;
  const [saddr, daddr] = ['saddr', 'daddr'].map((field) => ({
    payload: { protocol: family, field },
  }));
  const keyed = { concat: [daddr, l4proto, dport] };
  const portKey = { concat: [l4proto, dport] };
  for (const [from, to] of jumps) {
    rule(from, ...(from.startsWith('nat') ? [] : [isNew]), jump(to));
  }
  const flagged = is({ '&': [mark, 16384] }, 0, '!=');
  const unmark = { mangle: { key: mark, value: { '^': [mark, 16384] } } };
  const masquerade = { masquerade: { flags: 'fully-random' } };
  const hairpin = is({ concat: [saddr, daddr, l4proto, dport] }, '@hairpin-connections');
  rule('masquerading', flagged, unmark, masquerade);
  rule('masquerading', is({ ct: { key: 'status' } }, 'dnat', 'in'), hairpin, masquerade);
  rule('cluster-ips-check', is(daddr, '@cluster-ips'), { reject: null });
  rule('reject-chain', { reject: null });
  rule('service-endpoints-check', { vmap: { key: keyed, data: '@no-endpoint-services' } });
  const atNode = is(daddr, '@nodeport-ips');
  rule('nodeport-endpoints-check', atNode, {
    vmap: { key: portKey, data: '@no-endpoint-nodeports' },
  });
  rule('firewall-check', { vmap: { key: keyed, data: '@firewall-ips' } });
  rule('services', is(daddr, '@cluster-ips'), is(saddr, networkOf(clusterCIDR), '!='), marked);
  rule('services', { vmap: { key: keyed, data: '@service-ips' } });
  rule('services', atNode, { vmap: { key: portKey, data: '@service-nodeports' } });
  add(writer, 'nodeport-ips', nodeIP);
  for (const port of ports) writePort(writer, port, clusterCIDR, nodeIP);
  const rules = writer.lines.splice(0);
  put('table', { name: 'kube-proxy' });
  for (const [name, type, hook, prio] of bases) {
    put('chain', { name, type, hook, prio, policy: 'accept' });
  }
  for (const name of chains) put('chain', { name });
  writeSets(writer);
  return [...writer.lines, ...rules];
}

function add({ elements }: Writer, set: string, element: unknown): void {
  elements.set(set, [...(elements.get(set) ?? []), element]);
}

function writeSets({ family, put, elements }: Writer): void {
  const address = family === 'ip' ? 'ipv4_addr' : 'ipv6_addr';
  const nodePort = ['inet_proto', 'inet_service'];
  const service = [address, ...nodePort];
  const types: Readonly<Record<string, unknown>> = {
    'cluster-ips': address,
    'nodeport-ips': address,
    'hairpin-connections': [address, ...service],
    'no-endpoint-services': service,
    'no-endpoint-nodeports': nodePort,
    'firewall-ips': service,
    'service-ips': service,
    'service-nodeports': nodePort,
  };
  for (const [name, type] of Object.entries(types)) {
    const isSet = ['cluster-ips', 'nodeport-ips', 'hairpin-connections'].includes(name);
    const known = elements.get(name);
    const elem = known === undefined ? {} : { elem: known };
    put(isSet ? 'set' : 'map', { name, type, ...(isSet ? {} : { map: 'verdict' }), ...elem });
  }
}

function writePort(
  writer: Writer,
  port: ServicePortInfo,
  clusterCIDR: string,
  nodeIP: string,
): void {
  const { name, protocol, clusterIP, externalIPs, loadBalancerIPs, nodePort } = port;
  const { hasEndpoints, localEndpoints, internalLocal, externalLocal } = port;
  const { family, rule } = writer;
  const id = `${name}/${protocol}`;
  const [cluster, local] = [`service-${id}`, `local-${id}`];
  const [external, firewall] = [`external-${id}`, `firewall-${id}`];
  const saddr = { payload: { protocol: family, field: 'saddr' } };
  const hasInternal = hasEndpoints && (!internalLocal || localEndpoints.length > 0);
  const hasExternal = hasEndpoints && (!externalLocal || localEndpoints.length > 0);
  const stop = hasEndpoints ? { drop: null } : goto('reject-chain');
  const serviceAt = (ip: string): unknown => ({ concat: [ip, protocol, port.port] });
  const atNodePort = { concat: [protocol, nodePort] };

  for (const { ip, port: number, isLocal } of port.reachableEndpoints) {
    const hairpin = { concat: [ip, ip, protocol, number] };
    if (isLocal) add(writer, 'hairpin-connections', hairpin);
  }
  add(writer, 'cluster-ips', clusterIP);
  const internal = goto(internalLocal ? local : cluster);
  if (hasInternal) add(writer, 'service-ips', [serviceAt(clusterIP), internal]);
  else add(writer, 'no-endpoint-services', [serviceAt(clusterIP), stop]);
  for (const ip of [...externalIPs, ...loadBalancerIPs]) {
    if (hasEndpoints) add(writer, 'service-ips', [serviceAt(ip), goto(external)]);
    if (!hasExternal) add(writer, 'no-endpoint-services', [serviceAt(ip), stop]);
  }
  if (nodePort !== 0 && hasEndpoints)
    add(writer, 'service-nodeports', [atNodePort, goto(external)]);
  if (nodePort !== 0 && !hasExternal) add(writer, 'no-endpoint-nodeports', [atNodePort, stop]);
  if (hasEndpoints && port.externallyAccessible) {
    if (externalLocal) {
      rule(external, is(saddr, networkOf(clusterCIDR)), goto(cluster));
      rule(external, fromNode, marked);
      rule(external, fromNode, goto(cluster));
    } else rule(external, marked);
    if (hasExternal) rule(external, goto(externalLocal ? local : cluster));
  }
  if (loadBalancerIPs.length > 0 && port.sourceRanges.length > 0) {
    for (const ip of loadBalancerIPs) add(writer, 'firewall-ips', [serviceAt(ip), goto(firewall)]);
    const sources = sourcesOf(port, nodeIP).map(networkOf);
    rule(firewall, is(saddr, { set: sources }, '!='), { drop: null });
  }
  balance(writer, port, cluster, port.clusterEndpoints);
  balance(writer, port, local, port.localEndpoints);
  for (const endpoint of port.affinitySeconds === null ? [] : port.reachableEndpoints) {
    const own = `${id}__${endpoint.text}`;
    const type = family === 'ip' ? 'ipv4_addr' : 'ipv6_addr';
    const flags = ['timeout'];
    writer.put('set', { name: `affinity-${own}`, type, flags, timeout: port.affinitySeconds });
    rule(`endpoint-${own}`, { set: { op: 'update', elem: saddr, set: `@affinity-${own}` } });
    const dnat = { addr: endpoint.ip, port: endpoint.port };
    rule(`endpoint-${own}`, is(l4proto, protocol), { dnat });
  }
}

/** writeServiceToEndpointDNATs, and writeServiceToEndpointJumps with affinity. */
function balance(
  { family, rule }: Writer,
  port: ServicePortInfo,
  chain: string,
  endpoints: readonly EndpointInfo[],
): void {
  if (endpoints.length === 0) return;
  const { name, protocol, affinitySeconds } = port;
  if (affinitySeconds === null) {
    const set = endpoints.map(({ ip, port: number }, index) => [index, { concat: [ip, number] }]);
    const addr = { map: { key: random(endpoints.length), data: { set } } };
    rule(chain, is(l4proto, protocol), { dnat: { family, addr } });
    return;
  }
  const saddr = { payload: { protocol: family, field: 'saddr' } };
  const chainOf = ({ text }: EndpointInfo): string => `${name}/${protocol}__${text}`;
  for (const endpoint of endpoints) {
    const own = chainOf(endpoint);
    rule(chain, is(saddr, `@affinity-${own}`), goto(`endpoint-${own}`));
  }
  const set = endpoints.map((endpoint, index) => [index, goto(`endpoint-${chainOf(endpoint)}`)]);
  rule(chain, { vmap: { key: random(endpoints.length), data: { set } } });
}

/** Lines as nft prints them; sets with a timeout are declared between rules, which is the same. */
export function nftablesDump(lines: readonly string[]): string {
  const order = ['table', 'chain', 'set', 'map', 'rule'];
  const rank = (line: string): number => order.findIndex((kind) => line.startsWith(`{"${kind}"`));
  const sorted = lines.toSorted((a, b) => rank(a) - rank(b));
  return `{"nftables": [\n${sorted.join(',\n')}\n]}\n`;
}
