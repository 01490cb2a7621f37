// What kube-proxy knows of each Service port before it writes rules: a second, simple opinion,
// read from kubernetes@v1.36.3 and not from the code under test. The sources are newBaseServiceInfo
// of pkg/proxy/serviceport.go and CategorizeEndpoints of pkg/proxy/topology.go.
//
// Left out: address families beside the first, doubled addresses, labels that hide a Service.

import { createHash } from 'node:crypto';

import { isWithinAny, parseCIDR } from '../../../src/model/ip.ts';
import type { Api, EndpointEntry, ServiceObject, ServicePort } from '../../scenarios/api.ts';

/** The fields of a Service that only kube-proxy reads. */
export interface ProxiedService extends ServiceObject {
  spec: ServiceObject['spec'] & {
    ports?: (ServicePort & { nodePort?: number })[];
    externalIPs?: string[];
    loadBalancerSourceRanges?: string[];
    internalTrafficPolicy?: string;
    externalTrafficPolicy?: string;
    healthCheckNodePort?: number;
    sessionAffinity?: string;
    sessionAffinityConfig?: { clientIP: { timeoutSeconds: number } };
  };
  status?: { loadBalancer: { ingress: { ip: string }[] } };
}

/** The node whose rules are written. */
export interface ProxiedNode {
  readonly name: string;
  readonly ip: string;
  readonly zone: string;
}

interface EndpointInfo {
  readonly ip: string;
  readonly port: number;
  /** `ip:port`, or `[ip]:port`. */
  readonly text: string;
  readonly isLocal: boolean;
}

interface ServicePortInfo {
  /** `shop/web:http`; without a colon where the port has no name. */
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
  readonly nodePort: number;
  readonly healthCheckNodePort: number;
  readonly clusterIP: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  readonly sourceRanges: readonly string[];
  /** null: no session affinity. */
  readonly affinitySeconds: number | null;
  readonly internalLocal: boolean;
  readonly externalLocal: boolean;
  readonly externallyAccessible: boolean;
  readonly clusterEndpoints: readonly EndpointInfo[];
  readonly localEndpoints: readonly EndpointInfo[];
  readonly reachableEndpoints: readonly EndpointInfo[];
  readonly hasEndpoints: boolean;
}

/** Every Service port that the node serves, in the order in which Services came to be. */
export function servicePortsOf(api: Api, node: ProxiedNode): ServicePortInfo[] {
  return api.list('services').flatMap((object) => {
    const service = object as ProxiedService;
    const { clusterIP, ports = [] } = service.spec;
    if (clusterIP === undefined || clusterIP === 'None') return [];
    return ports.map((port) => servicePortOf(api, node, service, clusterIP, port));
  });
}

function servicePortOf(
  api: Api,
  node: ProxiedNode,
  { metadata, spec, status }: ProxiedService,
  clusterIP: string,
  port: ServicePort & { nodePort?: number },
): ServicePortInfo {
  const { type, externalIPs = [], loadBalancerSourceRanges = [], sessionAffinity } = spec;
  const loadBalancerIPs = (status?.loadBalancer.ingress ?? []).map(({ ip }) => ip);
  const nodePort = port.nodePort ?? 0;
  const isExternal = type === 'NodePort' || type === 'LoadBalancer' || externalIPs.length > 0;
  const externalLocal = isExternal && spec.externalTrafficPolicy === 'Local';
  const internalLocal = spec.internalTrafficPolicy === 'Local';
  const externallyAccessible = nodePort !== 0 || loadBalancerIPs.length + externalIPs.length > 0;
  const uses = {
    cluster: !internalLocal || externallyAccessible,
    local: internalLocal || (externalLocal && externallyAccessible),
  };
  const key = `${metadata.namespace ?? ''}/${metadata.name}`;
  const timeout = spec.sessionAffinityConfig?.clientIP.timeoutSeconds ?? 10_800;
  return {
    name: port.name === undefined ? key : `${key}:${port.name}`,
    protocol: port.protocol.toLowerCase(),
    port: port.port,
    nodePort,
    healthCheckNodePort:
      externalLocal && type === 'LoadBalancer' ? (spec.healthCheckNodePort ?? 0) : 0,
    clusterIP,
    externalIPs,
    loadBalancerIPs,
    sourceRanges: loadBalancerSourceRanges,
    affinitySeconds: sessionAffinity === 'ClientIP' ? timeout : null,
    internalLocal,
    externalLocal,
    externallyAccessible,
    ...categorize(listedEndpoints(api, node, key, port), uses, node),
  };
}

interface Listed extends EndpointInfo {
  readonly entry: EndpointEntry;
  readonly isReady: boolean;
  /** Serving and terminating. */
  readonly isLastResort: boolean;
}

function listedEndpoints(
  api: Api,
  node: ProxiedNode,
  key: string,
  { name, protocol }: ServicePort,
): Listed[] {
  const slices = api.list('endpointslices').filter(({ metadata: { namespace, labels } }) => {
    return `${namespace ?? ''}/${labels?.['kubernetes.io/service-name'] ?? ''}` === key;
  });
  return slices.flatMap(({ ports, endpoints }) => {
    const wanted = (ports ?? []).filter(
      (port) => (port.name ?? '') === (name ?? '') && port.protocol === protocol,
    );
    return wanted.flatMap(({ port }) =>
      (endpoints ?? []).map((entry) => {
        const { addresses, conditions, nodeName } = entry;
        const ip = addresses[0] ?? '';
        const { ready = true, serving = true, terminating = false } = conditions;
        const text = ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
        const isLocal = nodeName === node.name;
        return {
          ip,
          port,
          text,
          isLocal,
          entry,
          isReady: ready,
          isLastResort: serving && terminating,
        };
      }),
    );
  });
}

/** CategorizeEndpoints. */
function categorize(
  listed: readonly Listed[],
  uses: { readonly cluster: boolean; readonly local: boolean },
  { name, zone }: ProxiedNode,
): Pick<
  ServicePortInfo,
  'clusterEndpoints' | 'localEndpoints' | 'reachableEndpoints' | 'hasEndpoints'
> {
  const ready = listed.filter(({ isReady }) => isReady);
  const lastResorts = listed.filter(({ isLastResort }) => isLastResort);
  const hinted = hintedFor(ready, 'forNodes', name) ?? hintedFor(ready, 'forZones', zone) ?? ready;
  const cluster = !uses.cluster ? [] : hinted.length > 0 ? hinted : lastResorts;
  const localReady = ready.filter(({ isLocal }) => isLocal);
  const localLast = lastResorts.filter(({ isLocal }) => isLocal);
  const local = !uses.local ? [] : localReady.length > 0 ? localReady : localLast;
  const hasAny = uses.local ? ready.length + lastResorts.length > 0 : cluster.length > 0;
  return {
    clusterEndpoints: cluster,
    localEndpoints: local,
    reachableEndpoints: [...new Set([...cluster, ...local])],
    hasEndpoints: hasAny,
  };
}

/** Endpoints hinted for this place; null: one has no hint, or none is for here. */
function hintedFor(
  ready: readonly Listed[],
  kind: 'forNodes' | 'forZones',
  place: string,
): readonly Listed[] | null {
  const hintsOf = ({ entry }: Listed): string[] =>
    (entry.hints?.[kind] ?? []).map(({ name }) => name);
  if (ready.some((endpoint) => hintsOf(endpoint).length === 0)) return null;
  const here = ready.filter((endpoint) => hintsOf(endpoint).includes(place));
  return here.length > 0 ? here : null;
}

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** The beginning of the SHA-256 in base32, by which kube-proxy names chains. */
export function hashOf(text: string): string {
  const bits = [...createHash('sha256').update(text).digest().subarray(0, 10)]
    .map((byte) => byte.toString(2).padStart(8, '0'))
    .join('');
  return (bits.match(/.{5}/g) ?? []).map((group) => letters[Number.parseInt(group, 2)]).join('');
}

// The rules that kube-proxy writes in iptables mode, as iptables-save prints them: syncProxyRules
// of pkg/proxy/iptables/proxier.go and iptablesJumpChains, kubernetes@v1.36.3, with the defaults of
// its configuration and a cluster CIDR. A line begins with its table.
//
// Left out: comments, types of rejections, counters (nfacct), and kubelet's KUBE-FIREWALL.

const iptablesBases = [
  'filter INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL',
  'filter INPUT -j KUBE-NODEPORTS',
  'filter INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES',
  'filter FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL',
  'filter FORWARD -j KUBE-FORWARD',
  'filter FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES',
  'filter FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES',
  'filter OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL',
  'filter OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES',
  'filter KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP',
  'filter KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT',
  'filter KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
  'nat PREROUTING -j KUBE-SERVICES',
  'nat OUTPUT -j KUBE-SERVICES',
  'nat POSTROUTING -j KUBE-POSTROUTING',
  'nat KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000',
  'nat KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN',
  'nat KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0',
  'nat KUBE-POSTROUTING -j MASQUERADE --random-fully',
];

const kubeChains = [
  ...['KUBE-EXTERNAL-SERVICES', 'KUBE-FORWARD', 'KUBE-NODEPORTS', 'KUBE-PROXY-FIREWALL'],
  ...['KUBE-SERVICES', 'KUBE-MARK-MASQ', 'KUBE-POSTROUTING'],
];

/** The lines of all Service ports, `TABLE CHAIN RULE`. */
export function iptablesLines(
  ports: readonly ServicePortInfo[],
  clusterCIDR: string,
  nodeIP: string,
): string[] {
  const isSix = clusterCIDR.includes(':');
  const notLocalhost = isSix ? ' ! -d ::1/128' : '';
  return [
    ...iptablesBases,
    ...ports.flatMap((port) => linesOf(port, clusterCIDR, nodeIP)),
    `nat KUBE-SERVICES${notLocalhost} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`,
  ];
}

const host = (ip: string): string => `${ip}/${ip.includes(':') ? 128 : 32}`;

function linesOf(port: ServicePortInfo, clusterCIDR: string, nodeIP: string): string[] {
  const { name, protocol, clusterIP, externalIPs, loadBalancerIPs, nodePort } = port;
  const { hasEndpoints, localEndpoints, internalLocal, externalLocal } = port;
  const id = hashOf(name + protocol);
  const [cluster, local] = [`KUBE-SVC-${id}`, `KUBE-SVL-${id}`];
  const [external, firewall] = [`KUBE-EXT-${id}`, `KUBE-FW-${id}`];
  const internal = internalLocal ? local : cluster;
  const hasInternal = hasEndpoints && (!internalLocal || localEndpoints.length > 0);
  const hasExternal = hasEndpoints && (!externalLocal || localEndpoints.length > 0);
  const usesFirewall = hasEndpoints && loadBalancerIPs.length > 0 && port.sourceRanges.length > 0;
  const stop = hasEndpoints ? 'DROP' : 'REJECT';
  const tcp = (dport: number, other = protocol): string =>
    `-p ${other} -m ${other} --dport ${dport}`;
  const serviceAt = (ip: string): string => `-d ${host(ip)} ${tcp(port.port)}`;
  const lines: string[] = [];
  const put = (...all: string[]): void => void lines.push(...all);

  if (hasInternal) put(`nat KUBE-SERVICES ${serviceAt(clusterIP)} -j ${internal}`);
  else put(`filter KUBE-SERVICES ${serviceAt(clusterIP)} -j ${stop}`);
  const toLoadBalancer = usesFirewall ? firewall : external;
  for (const ip of [...externalIPs, ...loadBalancerIPs]) {
    const chain = loadBalancerIPs.includes(ip) ? toLoadBalancer : external;
    if (hasEndpoints) put(`nat KUBE-SERVICES ${serviceAt(ip)} -j ${chain}`);
    if (!hasExternal) put(`filter KUBE-EXTERNAL-SERVICES ${serviceAt(ip)} -j ${stop}`);
    if (chain === firewall) put(`filter KUBE-PROXY-FIREWALL ${serviceAt(ip)} -j DROP`);
  }
  if (nodePort !== 0) {
    const here = `-m addrtype --dst-type LOCAL ${tcp(nodePort)}`;
    if (hasEndpoints) put(`nat KUBE-NODEPORTS ${tcp(nodePort)} -j ${external}`);
    if (!hasExternal) put(`filter KUBE-EXTERNAL-SERVICES ${here} -j ${stop}`);
  }
  const check = port.healthCheckNodePort;
  if (check !== 0) put(`filter KUBE-NODEPORTS ${tcp(check, 'tcp')} -j ACCEPT`);

  if (hasInternal)
    put(`nat ${internal} ! -s ${clusterCIDR} ${serviceAt(clusterIP)} -j KUBE-MARK-MASQ`);
  if (hasEndpoints && port.externallyAccessible) {
    if (externalLocal) {
      put(`nat ${external} -s ${clusterCIDR} -j ${cluster}`);
      put(`nat ${external} -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ`);
      put(`nat ${external} -m addrtype --src-type LOCAL -j ${cluster}`);
    } else put(`nat ${external} -j KUBE-MARK-MASQ`);
    if (hasExternal) put(`nat ${external} -j ${externalLocal ? local : cluster}`);
  }
  if (usesFirewall) {
    for (const source of sourcesOf(port, nodeIP))
      put(`nat ${firewall} -s ${source} -j ${external}`);
  }
  put(...iptablesBalance(port, cluster, port.clusterEndpoints));
  put(...iptablesBalance(port, local, port.localEndpoints));
  for (const endpoint of port.reachableEndpoints) {
    const chain = endpointChain(port, endpoint);
    const remember = `-m recent --set --name ${chain} --rsource `;
    const asked = `-p ${protocol} ${port.affinitySeconds === null ? '' : remember}-m ${protocol}`;
    put(`nat ${chain} -s ${host(endpoint.ip)} -j KUBE-MARK-MASQ`);
    put(`nat ${chain} ${asked} -j DNAT --to-destination ${endpoint.text}`);
  }
  return lines;
}

const endpointChain = ({ name, protocol }: ServicePortInfo, { text }: EndpointInfo): string =>
  `KUBE-SEP-${hashOf(name + protocol + text)}`;

/** The ranges, and the load balancer's own addresses where the node may use them. */
function sourcesOf({ sourceRanges, loadBalancerIPs }: ServicePortInfo, nodeIP: string): string[] {
  const ranges = sourceRanges.map(parseCIDR).filter((range) => range !== null);
  const allowsNode = isWithinAny(nodeIP, ranges);
  return [...sourceRanges, ...(allowsNode ? loadBalancerIPs.map(host) : [])];
}

/** writeServiceToEndpointRules. */
function iptablesBalance(
  port: ServicePortInfo,
  chain: string,
  endpoints: readonly EndpointInfo[],
): string[] {
  const seconds = port.affinitySeconds;
  const kept = endpoints.flatMap((endpoint) => {
    if (seconds === null) return [];
    const to = endpointChain(port, endpoint);
    const recent = `-m recent --rcheck --seconds ${seconds} --reap --name ${to} --rsource`;
    return `nat ${chain} ${recent} -j ${to}`;
  });
  const drawn = endpoints.map((endpoint, index) => {
    const left = endpoints.length - index;
    const share = `-m statistic --mode random --probability ${(1 / left).toFixed(11)} `;
    return `nat ${chain} ${left > 1 ? share : ''}-j ${endpointChain(port, endpoint)}`;
  });
  return [...kept, ...drawn];
}

/** Lines as iptables-save prints them. */
export function iptablesDump(lines: readonly string[]): string {
  const tables: readonly (readonly [string, readonly string[]])[] = [
    ['filter', ['INPUT', 'FORWARD', 'OUTPUT']],
    ['nat', ['PREROUTING', 'INPUT', 'OUTPUT', 'POSTROUTING']],
  ];
  const texts = tables.flatMap(([table, hooks]) => {
    const rules = lines
      .filter((line) => line.startsWith(`${table} `))
      .map((line) => line.slice(table.length + 1));
    const named = rules.map((rule) => rule.split(' ', 1)[0] ?? '');
    const own = new Set([...kubeChains, ...named].filter((chain) => !hooks.includes(chain)));
    return [
      `*${table}`,
      ...hooks.map((chain) => `:${chain} ACCEPT [0:0]`),
      ...[...own].map((chain) => `:${chain} - [0:0]`),
      ...rules.map((rule) => `-A ${rule}`),
      'COMMIT',
    ];
  });
  return `${texts.join('\n')}\n`;
}

// The rules that kube-proxy writes in nftables mode, as `nft -j list ruleset` prints them:
// setupNFTables and syncProxyRules of pkg/proxy/nftables/proxier.go, kubernetes@v1.36.3, with the
// defaults of its configuration and a cluster CIDR. A line is one object in JSON.
//
// Left out: comments, handles, the hashes in names of chains, and the service CIDR.

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
const nftablesBases: readonly (readonly [string, string, string, number])[] = [
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
    if (!nftablesBases.some(([name]) => name === chain)) chains.add(chain);
    put('rule', { chain, expr });
  };
  return { family, lines, put, rule, chains, elements: new Map() };
}

/** The lines of all Service ports. */
export function nftablesLines(
  ports: readonly ServicePortInfo[],
  clusterCIDR: string,
  nodeIP: string,
  serviceCIDR: string | null = null,
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
  if (serviceCIDR !== null) {
    rule('cluster-ips-check', is(daddr, networkOf(serviceCIDR)), { drop: null });
  }
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
  for (const [name, type, hook, prio] of nftablesBases) {
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
  nftablesBalance(writer, port, cluster, port.clusterEndpoints);
  nftablesBalance(writer, port, local, port.localEndpoints);
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
function nftablesBalance(
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
