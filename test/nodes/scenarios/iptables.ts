// The rules that kube-proxy writes in iptables mode, as iptables-save prints them: syncProxyRules
// of pkg/proxy/iptables/proxier.go and iptablesJumpChains, kubernetes@v1.36.3, with the defaults of
// its configuration and a cluster CIDR. A line begins with its table.
//
// Left out: comments, types of rejections, counters (nfacct), and kubelet's KUBE-FIREWALL.

import { isWithin, parseCIDR, parseIP } from '../../../src/model/ip.ts';
import type { EndpointInfo, ServicePortInfo } from './kubeproxy.ts';
import { hashOf } from './kubeproxy.ts';

const bases = [
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
    ...bases,
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
  put(...balance(port, cluster, port.clusterEndpoints));
  put(...balance(port, local, port.localEndpoints));
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
export function sourcesOf(
  { sourceRanges, loadBalancerIPs }: ServicePortInfo,
  nodeIP: string,
): string[] {
  const node = parseIP(nodeIP);
  const ranges = sourceRanges.map(parseCIDR).filter((range) => range !== null);
  const allowsNode = node !== null && ranges.some((range) => isWithin(node, range));
  return [...sourceRanges, ...(allowsNode ? loadBalancerIPs.map(host) : [])];
}

/** writeServiceToEndpointRules. */
function balance(
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
