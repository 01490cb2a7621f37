// Rules as Calico 3.28 writes them for pods with interfaces of their own, without their comments:
// the pod that represents the pods of a node, and the rules that are policies of one pod.

import { describe, expect, test } from 'vitest';

import { walkerOf } from '../../src/agent/pod-interfaces.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { parseNetwork } from '../../src/model/ip.ts';
import { parseIptablesSave } from '../../src/rules/parse/iptables-save.ts';
import { wordsOf } from '../../src/rules/report/digest.ts';
import type { Routes } from '../../src/rules/walk/routes.ts';

const pods = { cali1: '10.244.1.5', cali2: '10.244.1.6', cali3: '10.244.1.7' } as const;

type Name = keyof typeof pods;

/** What is behind a pod's interface, in its two directions; without a policy, all is accepted. */
const policyOf = (chain: string, policy: readonly string[] = []): string[] => [
  `-A ${chain} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
  `-A ${chain} -m conntrack --ctstate INVALID -j DROP`,
  `-A ${chain} -j MARK --set-xmark 0x0/0x30000`,
  ...policy.map((rule) => `-A ${chain} ${rule}`),
  `-A ${chain} -j cali-pr`,
  `-A ${chain} -m mark --mark 0x10000/0x10000 -j RETURN`,
  `-A ${chain} -j DROP`,
];

const deny = ['-m mark --mark 0x0/0x20000 -j DROP'];
const allowSome = [
  '-m set --match-set cali40s:LrVD8vMIGQDyv8Y7sPFB1Ge src -j MARK --set-xmark 0x10000/0x10000',
  '-m mark --mark 0x10000/0x10000 -j RETURN',
  ...deny,
];

/** Policies by chain: `cali-fw-cali1` is what that pod sends, `cali-tw-cali1` what it gets. */
function linesOf(policies: Readonly<Record<string, readonly string[]>>, pools: string[]): string {
  const names = Object.keys(pods);
  const dispatch = (chain: string, side: string, to: string): string[] => [
    ...names.map((name) => `-A ${chain} ${side} ${name} -g ${to}-${name}`),
    `-A ${chain} -j DROP`,
  ];
  const chains = names.flatMap((name) => [`cali-fw-${name}`, `cali-tw-${name}`]);
  const [from, to] = ['cali-from-wl-dispatch', 'cali-to-wl-dispatch'];
  const own = [...chains, 'cali-FORWARD', from, to, 'cali-pr', 'KUBE-SERVICES'];
  const dnat = Object.values(pods).flatMap((ip, at) => [
    `-A KUBE-SERVICES -d 10.96.0.${at + 1}/32 -p tcp -j DNAT --to-destination ${ip}:80`,
  ]);
  return [
    '*raw',
    ':PREROUTING ACCEPT [0:0]',
    '-A PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000',
    '-A PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP',
    'COMMIT',
    '*filter',
    ':FORWARD ACCEPT [0:0]',
    ...own.map((chain) => `:${chain} - [0:0]`),
    '-A FORWARD -j cali-FORWARD',
    '-A FORWARD -d 10.96.0.9/32 -j REJECT --reject-with icmp-port-unreachable',
    '-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000',
    `-A cali-FORWARD -i cali+ -j ${from}`,
    `-A cali-FORWARD -o cali+ -j ${to}`,
    ...dispatch(from, '-i', 'cali-fw'),
    ...dispatch(to, '-o', 'cali-tw'),
    ...chains.flatMap((chain) => policyOf(chain, policies[chain])),
    '-A cali-pr -j MARK --set-xmark 0x10000/0x10000',
    'COMMIT',
    '*nat',
    ':PREROUTING ACCEPT [0:0]',
    ':POSTROUTING ACCEPT [0:0]',
    ':KUBE-SERVICES - [0:0]',
    '-A PREROUTING -j KUBE-SERVICES',
    ...dnat,
    ...pools,
    'COMMIT',
    '',
  ].join('\n');
}

const route = (text: string, name: string, hasGateway = false): Routes['main'][number] => {
  const { low = 0, high = 0 } = parseNetwork(text) ?? {};
  return { low: Number(low), high: Number(high), interface: name, hasGateway };
};

const routes: Routes = {
  main: [
    route('0.0.0.0/0', 'eth0', true),
    ...Object.entries(pods).map(([name, ip]) => route(`${ip}/32`, name)),
  ],
  others: [],
  uplinks: ['eth0'],
};

const context = {
  localAddresses: ['172.18.0.2'],
  interfaces: { all: ['lo', 'eth0', ...Object.keys(pods)] },
};

function wordsFor(
  packet: Partial<Packet>,
  { policies = {}, pools = [], known = routes, ranges = ['10.244.1.0/24'] }: Partial<Options> = {},
): string {
  const walk = walkerOf(parseIptablesSave(linesOf(policies, pools), 'ip'), context, known, ranges);
  const anyPod = { from: 'pod', src: '10.244.1.251', protocol: 'tcp', dport: 80 } as const;
  return wordsOf(walk({ ...anyPod, dst: '10.96.0.1', ...packet }));
}

interface Options {
  policies: Partial<Record<`cali-${'fw' | 'tw'}-${Name}`, readonly string[]>>;
  pools: string[];
  known: Routes | null;
  ranges: string[];
}

const outside = { from: 'outside', src: '198.51.100.7' } as const;
const one = '10.244.1.5:80 1/1';

describe('pods with interfaces of their own', () => {
  test('without routes nothing is known of them', () => {
    expect(wordsFor({}, { known: null })).toMatch(/^unknown/);
    expect(wordsFor(outside, { known: null })).toMatch(/^unknown/);
  });

  test('without policies all packets pass', () => {
    expect(wordsFor({})).toBe(one);
    expect(wordsFor(outside)).toBe(one);
    expect(wordsFor({ src: pods.cali1 })).toBe(one);
  });

  test('a name that is made up with the prefix of pods is a real one', () => {
    for (const iif of ['cali*', 'cali0', 'cali3']) expect(wordsFor({ iif })).toBe(one);
    expect(wordsFor({ iif: 'cali0', src: pods.cali1 })).toBe(one);
    expect(wordsFor({ iif: 'cali0' }, { known: null })).toBe('drop 1/1');
    // Without routes, the interface of a pod is not known.
    expect(wordsFor({ iif: 'cali*' }, { known: null })).toMatch(/^unknown/);
    const policies = { 'cali-fw-cali1': deny };
    expect(wordsFor({ iif: 'cali0' }, { policies })).toBe(one);
    expect(wordsFor({ iif: 'cali1' }, { policies })).toMatch(/^unknown/);
  });

  test('what is no pod’s comes in by the route to its source', () => {
    const accept = '-A FORWARD -i eth0 -j ACCEPT';
    const text = linesOf({}, []).replace('-A FORWARD', `${accept}\n-A FORWARD -j DROP\n-A FORWARD`);
    const outcome = (iif: string, all: string[], known: Routes | null) =>
      wordsOf(
        walkerOf(
          parseIptablesSave(text, 'ip'),
          { ...context, interfaces: { all } },
          known,
          [],
        )({
          ...{ ...outside, protocol: 'tcp', dst: '10.96.0.1', dport: 80, iif },
        }),
      );
    const { all } = context.interfaces;
    expect(outcome('!cali*', all, routes)).toBe(one);
    expect(outcome('!eth0', all, routes)).toBe('drop 1/1');
    expect(outcome('!cali*', all, null)).toBe(one);
    expect(outcome('!cali*', [...all, 'wg0'], null)).toMatch(/^unknown/);
  });

  test('so it is where addresses of pods are of no network that is known as theirs', () => {
    const elsewhere = { ranges: ['10.9.0.0/24'] };
    expect(wordsFor({ iif: 'cali0', src: '10.9.0.251' }, elsewhere)).toBe(one);
    const policies = { 'cali-fw-cali1': deny };
    expect(wordsFor({ iif: 'cali0', src: '10.9.0.251' }, { ...elsewhere, policies })).toMatch(
      /^unknown/,
    );
  });

  test('so it is of IPv6, where it stays open by which it leaves', () => {
    const text = linesOf({}, [])
      .replaceAll(/10\.244\.1\.(\d):80/g, '[fd00::$1]:80')
      .replaceAll(/10\.96\.0\.(\d)\/32/g, 'fd96::$1/128');
    const walk = walkerOf(parseIptablesSave(text, 'ip6'), context, routes, []);
    const packet = { from: 'pod', src: 'fd00::251', dst: 'fd96::1', protocol: 'tcp' } as const;
    for (const more of [{ iif: 'cali0' }, {}]) {
      expect(wordsOf(walk({ ...packet, dport: 80, ...more }))).toMatch(/^unknown.*fd00::5/);
    }
  });

  test('what stops every packet is known', () => {
    expect(wordsFor({ dst: '10.96.0.9' })).toBe('reject 1/1');
    expect(wordsFor({ ...outside, dst: '10.96.0.9' })).toBe('reject 1/1');
  });

  test('a pod without a policy represents all pods', () => {
    const policies = { 'cali-fw-cali1': deny, 'cali-fw-cali2': allowSome };
    expect(wordsFor({}, { policies })).toBe(one);
    expect(wordsFor({ src: pods.cali3 }, { policies })).toBe(one);
    expect(wordsFor({ src: pods.cali1 }, { policies })).toMatch(/^unknown.*10\.244\.1\.5:80/);
    const all = { ...policies, 'cali-fw-cali3': deny };
    expect(wordsFor({}, { policies: all })).toMatch(/^unknown.*10\.244\.1\.5:80/);
  });

  test.each([
    ['no client', deny],
    ['some', allowSome],
  ])('a pod that lets in %s is unknown, and only that pod', (_name, policy) => {
    const policies = { 'cali-tw-cali2': policy };
    for (const sender of [{}, outside]) {
      expect(wordsFor({ ...sender, dst: '10.96.0.2' }, { policies })).toMatch(
        /^unknown.*10\.244\.1\.6:80/,
      );
      expect(wordsFor(sender, { policies })).toBe(one);
    }
  });

  test('a masquerade by a set that no dump contains is unknown', () => {
    const pools = [
      '-A POSTROUTING -m set --match-set cali40masq-ipam-pools src ' +
        '-m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE --random-fully',
    ];
    expect(wordsFor({}, { pools })).toBe(`unknown, ${one} unknown source`);
  });
});
