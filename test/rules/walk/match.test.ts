import { describe, expect, test } from 'vitest';

import { parseRule } from '../../../src/rules/parse/iptables-rule.ts';
import type { ElementSet, Match } from '../../../src/rules/ruleset.ts';
import { evaluate, lookup } from '../../../src/rules/walk/match.ts';
import type { PacketState } from '../../../src/rules/walk/walk-state.ts';
import { stateOf } from '../rulesets.ts';

function matchOf(text: string): Match {
  const [match] = parseRule(text);
  if (match === undefined) throw new Error(`No match: ${text}`);
  return match as Match;
}

type Case = [rule: string, want: string, state: Partial<PacketState>];

/** What was sent out by eth0 goes to a pod now. */
const translated: Partial<PacketState> = {
  destination: 0x0a000009,
  interfacesTo: (address) => (address === 0x0a000009 ? ['cni0'] : ['eth0']),
};

const expectations: readonly [string, string, Partial<PacketState>?][] = [
  ['-s 10.0.0.0/8', 'yes'],
  ['! -s 10.0.0.0/8', 'no'],
  ['-d 10.96.0.1/32', 'yes'],
  ['-d 10.96.0.1/32', 'unknown', { destination: null }],
  ['-p 6', 'yes'],
  ['-p udp', 'no'],
  ['-m multiport --dports 22,80:81', 'yes'],
  ['-m tcp --dport 81', 'no'],
  ['-m tcp --dport 81', 'unknown', { destinationPort: null }],
  ['-m tcp --sport 1024:65535', 'unknown'],
  ['-m tcp --sport 1:65535', 'yes'],
  ['-m tcp --tcp-flags FIN,SYN,RST,ACK SYN', 'yes'],
  ['-m tcp --tcp-flags SYN,ACK ACK', 'no'],
  ['-m tcp ! --tcp-flags SYN,ACK ACK', 'yes'],
  ['-i veth+', 'yes'],
  ['-i eth0', 'no'],
  ['! -i eth0', 'yes'],
  ['-i eth0', 'unknown', { in: null }],
  ['-i lo', 'no', { in: null }],
  ['-i cali+', 'yes', { in: 'cali*' }],
  ['-i ca+', 'yes', { in: 'cali*' }],
  ['-i cali7', 'unknown', { in: 'cali*' }],
  ['-i cali7+', 'unknown', { in: 'cali*' }],
  ['! -i eth0', 'yes', { in: 'cali*' }],
  ['-i lo', 'no', { in: 'cali*' }],
  ['-i cali7', 'yes', { in: 'cali*', interfaces: ['lo', 'eth0', 'cali7'] }],
  ['-i cali+', 'yes', { in: 'cali*', interfaces: ['lo', 'eth0'] }],
  ['! -i cali+', 'yes', { in: '!cali*' }],
  ['-i cali7', 'no', { in: '!cali*' }],
  ['-i ca+', 'unknown', { in: '!cali*' }],
  ['-i eth0', 'unknown', { in: '!cali*' }],
  ['-i eth0', 'yes', { in: '!cali*', interfaces: ['lo', 'eth0', 'cali7'] }],
  ['-i eth+', 'unknown', { in: '!cbr0', interfaces: ['eth0', 'wg0', 'cbr0'] }],
  ['-i cbr0', 'no', { in: '!cbr0' }],
  ['-i cbr0+', 'unknown', { in: '!cbr0' }],
  ['-i lo', 'no', { in: '!cbr0' }],
  ['-o docker0', 'unknown', { out: null }],
  ['-o docker0', 'no', { out: null, interfaces: ['lo', 'eth0'] }],
  ['-o eth0', 'unknown', { out: null, interfaces: ['lo', 'eth0', 'eth1'] }],
  ['! -o docker0', 'yes', { out: null, interfaces: ['lo', 'eth0'] }],
  [
    '-o docker0',
    'no',
    { out: null, interfaces: ['eth0', 'docker0'], interfacesTo: () => ['eth0'] },
  ],
  ['-o eth+', 'yes', { out: null, interfacesTo: () => ['eth0', 'eth1'] }],
  ['-o eth0', 'unknown', { out: null, interfacesTo: () => ['eth0', 'eth1'] }],
  ['-o cni0', 'yes', { out: null, hook: 'forward', ...translated }],
  ['-o cni0', 'no', { out: null, hook: 'output', ...translated }],
  ['-o eth0', 'yes', { out: null, hook: 'output', ...translated }],
  ['-m conntrack --ctstate NEW', 'yes'],
  ['-m conntrack --ctstate RELATED,ESTABLISHED', 'no'],
  ['-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT', 'yes'],
  ['-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT', 'no', { rewritten: true }],
  ['-m conntrack --ctstate SNAT', 'unknown', { masqueraded: 'unknown' }],
  ['-m state --state UNTRACKED', 'yes', { entry: 'untracked' }],
  ['-m conntrack --ctstate NEW', 'no', { entry: 'none' }],
  ['-m conntrack --ctstate INVALID', 'yes', { entry: 'none' }],
  ['-m conntrack --ctdir ORIGINAL', 'yes'],
  ['-m conntrack --ctdir REPLY', 'no'],
  ['-m conntrack --ctorigdst 10.96.0.1', 'yes', { destination: 0x0a000009 }],
  ['-m conntrack --ctorigdst 10.0.0.9', 'no', { destination: 0x0a000009 }],
  ['-m conntrack ! --ctorigdst 10.0.0.0/16', 'yes'],
  ['-m conntrack ! --ctorigdst 10.0.0.0/16', 'no', { entry: 'untracked' }],
  ['-m conntrack --ctorigdstport 80', 'yes', { destinationPort: 8080 }],
  ['-m conntrack --ctorigdstport 81:90', 'no', { destinationPort: 81 }],
  ['-m conntrack --ctstatus CONFIRMED', 'unknown'],
  ['-m connmark ! --mark 0x1', 'no', { entry: 'none' }],
  ['-m addrtype --dst-type LOCAL', 'no'],
  ['-m addrtype --dst-type LOCAL', 'yes', { destination: 0x7f000001 }],
  ['-m addrtype --dst-type LOCAL', 'yes', { destination: null, toNode: true }],
  ['-m addrtype --dst-type MULTICAST', 'yes', { destination: 0xe0000001 }],
  ['-m addrtype --dst-type MULTICAST', 'no'],
  ['-m addrtype --dst-type BROADCAST', 'unknown', { destination: 0x0a6000ff }],
  ['-m addrtype ! --src-type LOCAL', 'yes'],
  ['-m mark --mark 0x4000/0x4000', 'no'],
  ['-m mark ! --mark 0x4000/0x4000', 'yes'],
  ['-m mark --mark 0x4000/0x4000', 'yes', { mark: { value: 0x4001, known: 0xffffffff } }],
  ['-m mark --mark 0x4000/0x4000', 'unknown', { mark: { value: 0, known: 0xbfff } }],
  ['-m mark --mark 0x14000/0x1f000', 'no', { mark: { value: 0x8000, known: 0x8000 } }],
  ['-m frag --fragmore', 'no'],
  ['-m ttl --ttl-lt 2', 'no'],
  ['-m u32 --u32 "0x0=0x1"', 'unknown'],
];

const cases = expectations.map(([text, want, state = {}]): Case => [text, want, state]);

describe('evaluate', () => {
  test.each(cases)('%s: %s', (text, want, state) => {
    expect(evaluate(matchOf(text), stateOf(state))).toBe(want);
  });

  test('what another family asks for is no', () => {
    const match = matchOf('-d 10.96.0.1/32');
    expect(evaluate(match, stateOf({ family: 'ip6', destination: 1n }))).toBe('no');
  });
});

const set = (elements: ElementSet['elements'], dynamic = false): ElementSet => ({
  name: 'set',
  elements,
  dynamic,
  timeoutSeconds: null,
  index: null,
});

const one = (value: number | bigint): { low: number | bigint; high: number | bigint } => ({
  low: value,
  high: value,
});

describe('lookup', () => {
  const key = { kind: 'fields', fields: ['destination', 'protocol', 'destination port'] } as const;
  const exact = { key: [one(0x0a600001), one(6), one(80)], verdict: null, data: null };
  const wide = {
    key: [{ low: 0x0a000000, high: 0x0affffff }, one(6), one(81)],
    verdict: null,
    data: null,
  };

  test('finds exact elements and ranges, and nothing else', () => {
    const both = set([wide, exact]);
    expect(lookup(key, both, stateOf())).toBe(exact);
    expect(lookup(key, both, stateOf({ destinationPort: 81 }))).toBe(wide);
    expect(lookup(key, both, stateOf({ destinationPort: 82 }))).toBeNull();
    expect(lookup(key, both, stateOf({ destination: null }))).toBe('unknown');
    expect(lookup(key, set([]), stateOf({ destination: null }))).toBeNull();
  });

  test('names of interfaces may be patterns', () => {
    const names = set([{ key: ['veth*'], verdict: null, data: null }]);
    const byName = { kind: 'fields', fields: ['in'] } as const;
    expect(lookup(byName, names, stateOf())).not.toBeNull();
    expect(lookup(byName, names, stateOf({ in: 'eth0' }))).toBeNull();
  });

  test('a set of interfaces has no interface whose beginning alone is known', () => {
    const key = { kind: 'fields', fields: ['in'] } as const;
    const element = { key: ['cali7'], verdict: null, data: null };
    const set = {
      name: '',
      elements: [element],
      dynamic: false,
      timeoutSeconds: null,
      index: null,
    };
    expect(lookup(key, set, stateOf({ in: 'cali7' }))).toBe(element);
    expect(lookup(key, set, stateOf({ in: 'cali*' }))).toBe('unknown');
  });

  test('the interface by which it leaves is known where there is one way', () => {
    const names = set([{ key: ['cni0'], verdict: null, data: null }]);
    const byName = { kind: 'fields', fields: ['out'] } as const;
    const to = (...ways: string[]) => stateOf({ out: null, interfacesTo: () => ways });
    expect(lookup(byName, names, to('cni0'))).not.toBeNull();
    expect(lookup(byName, names, to('eth0'))).toBeNull();
    expect(lookup(byName, names, to('cni0', 'eth0'))).toBe('unknown');
    expect(lookup(byName, names, stateOf({ out: null }))).toBe('unknown');
  });

  test('a set that rules fill may hold anything', () => {
    const match = { kind: 'lookup', key, set: set([], true), negate: false } as const;
    expect(evaluate(match, stateOf())).toBe('unknown');
  });
});
