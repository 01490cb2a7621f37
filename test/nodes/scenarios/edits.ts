// Edits of a node's rules in words, in addition to what kube-proxy writes: rules that are lost,
// changed, or written by others. Each phrase is translated into both languages. The lines are those
// of iptables.ts and nftables.ts.

import type { Place } from '../../scenarios/words.ts';
import { fail } from '../../scenarios/words.ts';
import { hashOf } from './kubeproxy.ts';
import type { Variant } from './variants.ts';

/** The rules of a node, line by line; those of others come first in their chains. */
export interface NodeLines {
  readonly own: readonly string[];
  readonly foreign: readonly string[];
}

/** By phrase: the lines that go, in either language. */
const lost: Readonly<Record<string, Readonly<Record<Variant['mode'], RegExp>>>> = {
  'all rules': { iptables: /./, nftables: /./ },
  'the jump from PREROUTING': {
    iptables: /^nat PREROUTING /,
    nftables: /"rule".*"chain":"nat-prerouting"/,
  },
  'the jump from OUTPUT': { iptables: /^nat OUTPUT /, nftables: /"rule".*"chain":"nat-output"/ },
  'the jump to node ports': {
    iptables: /-j KUBE-NODEPORTS$/,
    nftables: /"data":"@service-nodeports"/,
  },
  'the marks': { iptables: /^nat KUBE-MARK-MASQ /, nftables: /"rule".*"mangle".*"\|"/ },
  masquerading: {
    iptables: /^nat KUBE-POSTROUTING .*MASQUERADE/,
    nftables: /"rule".*"masquerade"/,
  },
  rejects: { iptables: /-j REJECT$/, nftables: /"rule".*"reject"/ },
};

/** Does `rules without WORDS` or `rules with WORDS`. */
export function edit(
  place: Place,
  lines: NodeLines,
  words: readonly string[],
  way: Variant,
): NodeLines {
  const text = words.slice(1).join(' ');
  if (words[0] === 'without') {
    const pattern = lost[text]?.[way.mode];
    if (pattern === undefined) fail(place, `Unknown rules to be without: ${text}`);
    const own = lines.own.filter((line) => !pattern.test(line));
    if (own.length === lines.own.length) fail(place, `There are no such rules: ${text}`);
    return { ...lines, own };
  }
  if (words[0] !== 'with') fail(place, `Expected \`with\` or \`without\`: ${words.join(' ')}`);
  const share = /^(?<percent>\d0)% of (?<name>\S+) to its first endpoint$/.exec(text)?.groups;
  if (share !== undefined) {
    const { percent = '', name = '' } = share;
    const own = lines.own.map((line) => skew(line, name, Number(percent) / 100, way));
    if (own.join() === lines.own.join()) fail(place, `No two endpoints to choose from: ${name}`);
    return { ...lines, own };
  }
  const foreign = drop(text, way) ?? translation(text, way);
  if (foreign === null) fail(place, `Unknown rules to be with: ${text}`);
  // A table of others is declared once.
  return { ...lines, foreign: [...new Set([...lines.foreign, ...foreign])] };
}

/** Of two endpoints the first gets this share. */
function skew(line: string, name: string, share: number, { mode }: Variant): string {
  if (mode === 'iptables') {
    const isOwn = line.startsWith(`nat KUBE-SVC-${hashOf(`${name}tcp`)} `);
    return isOwn ? line.replace('0.50000000000', share.toFixed(11)) : line;
  }
  const pattern = /"mod":2,(.*)"set":\[\[0,(.*)\],\[1,(.*)\]\]/;
  const match = line.includes(`"chain":"service-${name}/`) ? pattern.exec(line) : null;
  if (match === null) return line;
  const [whole, middle = '', first = '', second = ''] = match;
  const tenths = Array.from(
    { length: 10 },
    (_, index) => `[${index},${index < 10 * share ? first : second}]`,
  );
  return line.replace(whole, `"mod":10,${middle}"set":[${tenths.join()}]`);
}

const is = (protocol: string, field: string, right: unknown): unknown => ({
  match: { op: '==', left: { payload: { protocol, field } }, right },
});

/** A table of another program with one chain and one rule. */
function tableOf(
  { family }: Variant,
  name: string,
  base: { readonly type: string; readonly hook: string; readonly prio: number },
  expr: readonly unknown[],
): string[] {
  const own = { family: family === 'IPv4' ? 'ip' : 'ip6', table: name };
  return [
    { table: { family: own.family, name } },
    { chain: { ...own, name: 'first', ...base, policy: 'accept' } },
    { rule: { ...own, chain: 'first', expr } },
  ].map((object) => JSON.stringify(object));
}

/**
 * `a rule of others that drops tcp 8080`: of packets that are forwarded. `of Linux` asks for the
 * fingerprint of the sender, which no dump shows.
 */
function drop(text: string, way: Variant): string[] | null {
  const drops = /^a rule of others that drops (?<protocol>tcp|udp) (?<port>\d+)/;
  const only = /(?: to (?<ip>\S+)| of (?<system>\w+))?$/;
  const groups = new RegExp(drops.source + only.source).exec(text)?.groups;
  if (groups === undefined) return null;
  const { protocol = '', port = '', ip, system } = groups;
  if (way.mode === 'iptables') {
    const to = ip === undefined ? '' : ` -d ${ip}`;
    const from = system === undefined ? '' : ` -m osf --genre ${system}`;
    return [`filter FORWARD${to} -p ${protocol}${from} -m ${protocol} --dport ${port} -j DROP`];
  }
  const to = ip === undefined ? [] : [is(way.family === 'IPv4' ? 'ip' : 'ip6', 'daddr', ip)];
  const osf = { match: { op: '==', left: { osf: { key: 'name' } }, right: system } };
  const from = system === undefined ? [] : [osf];
  const expr = [...to, ...from, is(protocol, 'dport', Number(port)), { drop: null }];
  return tableOf(way, 'firewall', { type: 'filter', hook: 'forward', prio: 0 }, expr);
}

/** `a rule of others that sends 10.96.0.10:80/tcp to 10.0.0.9:8080`, or to a range of ports. */
function translation(text: string, way: Variant): string[] | null {
  const asks = /^a rule of others that sends (?<ip>\S+):(?<port>\d+)\/(?<protocol>tcp|udp)/;
  const sends = / to (?<goal>\S+):(?<ports>[\d-]+)$/;
  const groups = new RegExp(asks.source + sends.source).exec(text)?.groups;
  if (groups === undefined) return null;
  const { protocol = '', port = '', goal = '', ports = '' } = groups;
  const bare = (address = ''): string => address.replace(/^\[(.*)\]$/, '$1');
  const ip = bare(groups.ip);
  if (way.mode === 'iptables') {
    const asked = `-d ${ip}/${ip.includes(':') ? 128 : 32} -p ${protocol} -m ${protocol}`;
    return [`nat PREROUTING ${asked} --dport ${port} -j DNAT --to-destination ${goal}:${ports}`];
  }
  const [low, high] = ports.split('-').map(Number);
  const dnat = { addr: bare(goal), port: high === undefined ? low : { range: [low, high] } };
  const family = way.family === 'IPv4' ? 'ip' : 'ip6';
  const asked = [is(family, 'daddr', ip), is(protocol, 'dport', Number(port))];
  const base = { type: 'nat', hook: 'prerouting', prio: -110 };
  return tableOf(way, 'other', base, [...asked, { dnat }]);
}
