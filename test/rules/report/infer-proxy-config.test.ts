import { describe, expect, test } from 'vitest';

import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../../src/rules/parse/nft-ruleset.ts';
import { modeIn, settingsIn as settingsOf } from '../../../src/rules/report/infer-proxy-config.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { chainsOf, mergeRuleSets } from '../../../src/rules/ruleset.ts';

const settingsIn = (ruleset: RuleSet) => settingsOf(ruleset, modeIn(ruleset));

/** Rules of iptables in chains of table nat. */
function nat(family: 'ip' | 'ip6', ...rules: readonly string[]): RuleSet {
  const chains = new Set(['KUBE-MARK-MASQ', 'KUBE-NODEPORTS', 'KUBE-SVC-X']);
  for (const rule of rules) chains.add(rule.split(' ')[1] ?? '');
  const lines = ['*nat', ...[...chains].map((name) => `:${name} - [0:0]`), ...rules, 'COMMIT', ''];
  return parseIptablesSave(lines.join('\n'), family);
}

const mark = (matches: string, chain = 'KUBE-SVC-A'): string =>
  `-A ${chain} ${matches} -j KUBE-MARK-MASQ`;

const times = (count: number, rule: string): string[] => Array<string>(count).fill(rule);

const address = '10.96.0.1/32';
const all = mark(`-d ${address}`);
const spared = mark(`! -s 10.244.0.0/16 -d ${address}`);
const cidr = { clusterCIDRs: ['10.244.0.0/16'] };

/** As writeIptablesRules of pkg/proxy/ipvs/proxier.go, kubernetes@v1.37.2, begins and ends. */
const ofIPVS = (nodePorts = 'KUBE-NODE-PORT'): RuleSet =>
  nat(
    'ip',
    '-A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN',
    mark('! -s 10.244.0.0/16 -m set --match-set KUBE-CLUSTER-IP dst,dst', 'KUBE-SERVICES'),
    `-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j ${nodePorts}`,
    '-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT',
    `-A ${nodePorts} -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ`,
  );

describe('senders, by the marks for masquerading', () => {
  test.each<[string, readonly string[], object]>([
    ['a range', [spared], cidr],
    ['a range in KUBE-SERVICES', [mark('! -s 10.244.0.0/16', 'KUBE-SERVICES')], cidr],
    [
      'a bridge',
      [mark(`! -i cbr0 -d ${address}`)],
      { detectLocalMode: 'BridgeInterface', bridgeInterface: 'cbr0' },
    ],
    [
      'interfaces',
      [mark('! -i cali+')],
      { detectLocalMode: 'InterfaceNamePrefix', interfaceNamePrefix: 'cali' },
    ],
    ['a mark of some', [mark('-s 10.244.0.0/16')], {}],
    ['a single address', [mark('! -s 10.244.0.7/32')], {}],
    ['one that is wrong', [mark('! -s 10.99.0.0/16'), ...times(3, spared)], cidr],
    ['all', times(3, all), { masqueradeAll: true }],
    ['one that marks all', [all, ...times(9, spared)], cidr],
    ['as many as not', [all, spared], cidr],
    ['one that does not mark all', [...times(19, all), spared], { ...cidr, masqueradeAll: true }],
    ['external IPs to v1.22', times(9, mark(`-d ${address}`, 'KUBE-SERVICES')), {}],
    ['all external', [mark('-m comment --comment x', 'KUBE-EXT-A')], {}],
    [
      'a short cut',
      [...times(3, all), '-A KUBE-EXT-A -s 10.244.0.0/16 -j KUBE-SVC-X'],
      { ...cidr, masqueradeAll: true },
    ],
    ['no short cut', ['-A KUBE-EXT-A -m addrtype --src-type LOCAL -j KUBE-SVC-X'], {}],
    ['nothing', [], {}],
  ])('%s', (_, rules, want) => {
    expect(settingsIn(nat('ip', ...rules))).toEqual(want);
  });

  test('of both families', () => {
    const six = (matches: string): RuleSet => nat('ip6', mark(`${matches}-d fd00:96::1/128`));
    expect(settingsIn(mergeRuleSets([nat('ip', spared), six('! -s fd00:10::/48 ')]))).toEqual({
      clusterCIDRs: ['10.244.0.0/16', 'fd00:10::/48'],
    });
    // A setting is of both: where one has it alone, its rule has lost what it asks for.
    expect(settingsIn(mergeRuleSets([nat('ip', spared), six('')]))).toEqual(cidr);
    expect(settingsIn(mergeRuleSets([nat('ip', all), six('')]))).toEqual({ masqueradeAll: true });
  });
});

describe('addresses of node ports, by what leads there', () => {
  const way = (matches: string): string => `-A KUBE-SERVICES ${matches} -j KUBE-NODEPORTS`;

  test.each<['ip' | 'ip6', readonly string[], object]>([
    ['ip', ['-m addrtype --dst-type LOCAL'], { nodePortAddresses: ['0.0.0.0/0'] }],
    ['ip6', ['-m addrtype --dst-type LOCAL ! -d ::1/128'], { nodePortAddresses: ['::/0'] }],
    [
      'ip',
      ['-m addrtype --dst-type LOCAL ! -d 127.0.0.0/8'],
      { nodePortAddresses: ['0.0.0.0/0'], localhostNodePorts: false },
    ],
    [
      'ip',
      ['-d 172.18.0.3/32', '-d 127.0.0.1/32'],
      { nodePortAddresses: ['172.18.0.3/32', '127.0.0.1/32'] },
    ],
  ])('%s %j', (family, matches, want) => {
    expect(settingsIn(nat(family, ...matches.map(way)))).toEqual({
      localhostNodePorts: true,
      ...want,
    });
  });

  test('nothing that leads there is no setting', () => {
    expect(settingsIn(nat('ip', '-A KUBE-SERVICES -d 10.0.0.1/32 -j KUBE-SVC-X'))).toEqual({});
  });

  const cluster = '-A KUBE-SERVICES -d 10.0.0.1/32 -j KUBE-SVC-X';
  const six = '-A KUBE-SERVICES -d fd00::1/128 -j KUBE-SVC-X';
  const localhost = ['127.0.0.0/8', '::1/128'];
  test.each<[string, readonly string[], readonly string[], object]>([
    [
      'only localhost in IPv4, and nothing in IPv6, is localhost',
      [cluster, way('-d 127.0.0.1/32')],
      [six],
      { nodePortAddresses: localhost, localhostNodePorts: true },
    ],
    [
      'nothing in both families is localhost without node ports',
      [cluster],
      [six],
      { nodePortAddresses: localhost, localhostNodePorts: false },
    ],
    [
      'nothing in IPv4 alone is a broken rule',
      [cluster],
      [six, way('-m addrtype --dst-type LOCAL')],
      { nodePortAddresses: ['::/0'], localhostNodePorts: true },
    ],
    [
      'nothing in IPv6 alone is a broken rule',
      [cluster, way('-d 172.18.0.3/32')],
      [six],
      { nodePortAddresses: ['172.18.0.3/32'], localhostNodePorts: true },
    ],
    ['flushed chains are no setting', [], [], {}],
  ])('%s', (_, four, others, want) => {
    const ruleset = mergeRuleSets([nat('ip', ...four), nat('ip6', ...others)]);
    expect(settingsIn(ruleset)).toEqual(want);
  });
});

describe('of nftables', () => {
  const payload = (field: string): object => ({ payload: { protocol: 'ip', field } });
  const match = (left: object, right: unknown, op = '=='): object => ({
    match: { op, left, right },
  });
  const toClusterIP = match(payload('daddr'), '@cluster-ips');
  const pods = { prefix: { addr: '10.244.0.0', len: 16 } };
  const marks = {
    mangle: { key: { meta: { key: 'mark' } }, value: { '|': [{ meta: { key: 'mark' } }, 16384] } },
  };
  const ports = { vmap: { key: { meta: { key: 'l4proto' } }, data: '@service-nodeports' } };

  function kubeProxy(chain: string, ...rules: readonly (readonly object[])[]): RuleSet {
    const at = { family: 'ip', table: 'kube-proxy' };
    const set = (name: string, elem: readonly string[]): object => ({
      set: { ...at, name, type: 'ipv4_addr', elem },
    });
    const list = [
      { table: { family: 'ip', name: 'kube-proxy' } },
      set('cluster-ips', ['10.96.0.1']),
      set('nodeport-ips', ['172.18.0.2', '192.168.7.2']),
      { map: { ...at, name: 'service-nodeports', type: 'inet_proto', map: 'verdict' } },
      { chain: { ...at, name: chain } },
      { chain: { ...at, name: 'service-A' } },
      ...rules.map((expr, handle) => ({ rule: { ...at, chain, handle, expr } })),
    ];
    return parseNft(JSON.stringify({ nftables: list }));
  }

  test.each<[string, string, readonly object[], object]>([
    [
      'marks except for pods',
      'services',
      [toClusterIP, match(payload('saddr'), pods, '!='), marks],
      cidr,
    ],
    ['marks all', 'services', [toClusterIP, marks], { masqueradeAll: true }],
    [
      'jumps to the mark',
      'service-B',
      [
        match(payload('daddr'), '10.96.0.1'),
        match(payload('saddr'), pods, '!='),
        { jump: { target: 'mark-for-masquerade' } },
      ],
      cidr,
    ],
    [
      'a short cut',
      'external-A',
      [match(payload('saddr'), pods), { goto: { target: 'service-A' } }],
      cidr,
    ],
    ['external traffic', 'external-A', [marks], {}],
    [
      'a set of addresses',
      'services',
      [match(payload('daddr'), '@nodeport-ips'), ports],
      { nodePortAddresses: ['172.18.0.2/32', '192.168.7.2/32'], localhostNodePorts: true },
    ],
    [
      'any address',
      'services',
      [
        match({ fib: { result: 'type', flags: ['daddr'] } }, 'local'),
        match(payload('daddr'), { prefix: { addr: '127.0.0.0', len: 8 } }, '!='),
        ports,
      ],
      { nodePortAddresses: ['0.0.0.0/0'], localhostNodePorts: false },
    ],
  ])('%s', (_, chain, expr, want) => {
    const ruleset = kubeProxy(chain, expr);
    expect(modeIn(ruleset)).toBe('nftables');
    expect(settingsIn(ruleset)).toEqual(want);
  });

  test('external traffic has a vote if few rules match cluster IPs', () => {
    const other = { prefix: { addr: '10.99.0.0', len: 16 } };
    const wrong = kubeProxy('services', [toClusterIP, match(payload('saddr'), other, '!='), marks]);
    const expr = [match(payload('saddr'), pods), { goto: { target: 'service-A' } }];
    const { tables } = kubeProxy('external-A', expr, expr);
    const both = wrong.tables.map((table, at) => {
      const chains = [...table.chains.values(), ...(tables[at]?.chains.values() ?? [])];
      return { ...table, chains: chainsOf(new Map(chains.map((one) => [one.name, one]))) };
    });
    expect(settingsIn({ ...wrong, tables: both })).toEqual(cidr);
    expect(settingsIn(wrong)).toEqual({ clusterCIDRs: ['10.99.0.0/16'] });
  });

  test('rules that iptables left behind have no vote', () => {
    const both = mergeRuleSets([kubeProxy('services', [toClusterIP, marks]), nat('ip', spared)]);
    expect(settingsIn(both)).toEqual({ masqueradeAll: true });
    expect(settingsOf(both, 'iptables')).toEqual(cidr);
    expect(modeIn(nat('ip', spared))).toBe('iptables');
    const left = mergeRuleSets([kubeProxy('services', [toClusterIP, marks]), ofIPVS()]);
    expect(modeIn(left)).toBe('nftables');
  });
});

test('IPVS mode is known by its jump for node ports, and not by what it left behind', () => {
  expect(modeIn(ofIPVS())).toBe('ipvs');
  expect(modeIn(ofIPVS('KUBE-NODEPORTS'))).toBe('iptables');
  expect(modeIn(nat('ip', spared, '-A KUBE-NODE-PORT -j KUBE-MARK-MASQ'))).toBe('iptables');
});
