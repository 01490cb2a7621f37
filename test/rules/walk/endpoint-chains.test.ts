// Chains of endpoints that are not read do what those do that are.

import { join } from 'node:path';

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { DnatTarget, Family, RuleSet, Table } from '../../../src/rules/ruleset.ts';
import { rulesOf } from '../../../src/rules/ruleset.ts';
import {
  endpointAt,
  goalIn,
  modelOf,
  straightTo,
} from '../../../src/rules/walk/endpoint-chains.ts';
import { onlyValue } from '../../../src/rules/walk/rule-index.ts';
import { walk } from '../../../src/rules/walk/walk.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';
import { stateOf } from '../state.ts';

/** A rule set in which each chain is read that a packet comes to. */
const allRead = (ruleset: RuleSet): RuleSet => ({
  ...ruleset,
  tables: ruleset.tables.map((table) => ({
    ...table,
    chains: { ...table.chains, endpoint: () => null },
  })),
});

/** What the rules of a chain say that sends all but what comes from there to one place. */
function said({ chains }: Table, name: string): Omit<DnatTarget, 'matches'> {
  const rules = rulesOf(chains.get(name) ?? expect.fail(name));
  const goal = rules.at(-1)?.statements.at(-1);
  if (goal?.kind !== 'dnat' || !goal.to?.addresses || !goal.to.ports) expect.fail(name);
  const { addresses, ports } = goal.to;
  const others = rules.slice(0, -1);
  for (const rule of others) expect(onlyValue(rule, 'source')).toBe(addresses.low);
  return { address: addresses.low, port: ports.low, sparesItself: others.length > 0 };
}

describe('in every dump', () => {
  const folders = foldersBelow(join(import.meta.dirname, '../../nodes/recordings')).map(readFolder);

  test.each(folders.map((folder) => [folder.path, folder] as const))('%s', (_, { ruleset }) => {
    const tables = ruleset.tables.filter(
      ({ source, name }) => source === 'iptables' && name === 'nat',
    );
    for (const table of tables) {
      let known = 0;
      const names = [...table.chains.values()].map(({ name }) => name);
      for (const name of names) {
        const endpoint = table.chains.endpoint(name);
        if (endpoint === null) continue;
        known++;
        const { address, port, sparesItself } = endpoint;
        expect({ address, port, sparesItself }).toEqual(said(table, name));
      }
      const separate = names.filter((name) => name.startsWith('KUBE-SEP-')).length;
      expect(known).toBeGreaterThan(separate / 2 - 1);
    }
  });
});

const address = fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3');
const comment = fc.constantFrom(
  ...['', '-m comment --comment a/b:c ', '-m comment --comment x ', '-m comment --comment -s '],
  ...['-m comment --comment "a b" ', '-m comment --comment "-s 10.0.0.1/32" '],
  ...['-m comment --comment "a \\" -j DROP" ', '-m comment --comment "a\\\\" '],
);

/** Rules of one chain, nearly as kube-proxy writes them. */
const chain = fc
  .record({
    source: address,
    goal: address,
    port: fc.constantFrom('80', '81', '443-450', '0'),
    comment,
    sender: fc.constantFrom('-s S/32 ', '-s S/32 ', '! -s S/32 ', '-s S/24 ', ''),
    also: fc.constantFrom('', '', '-p tcp ', '-m statistic --mode random --probability 0.5 '),
    match: fc.constantFrom(
      '-p tcp ',
      '-p tcp -m tcp ',
      '-p udp -m udp ',
      '',
      '-i eth0 ',
      '-s 10.0.0.1/32 ',
    ),
    more: fc.constantFrom(
      '',
      '',
      '',
      '-m recent --set --name A --rsource ',
      '-m string --algo bm ',
    ),
    behind: fc.constantFrom('', '', '', ' --random', ' --persistent'),
    order: fc.constantFrom('both', 'both', 'both', 'goal alone', 'twice', 'turned'),
  })
  .map((one) => (name: string): string[] => {
    const marks = one.sender.replace('S', one.source) + one.also;
    const mark = `-A ${name} ${marks}${one.comment}-j MARK --set-xmark 0x1/0x1`;
    const to = `--to-destination ${one.goal}:${one.port}${one.behind}`;
    const goal = `-A ${name} ${one.match}${one.comment}${one.more}-j DNAT ${to}`;
    if (one.order === 'goal alone') return [goal];
    if (one.order === 'turned') return [goal, mark];
    return one.order === 'twice' ? [mark, mark, goal] : [mark, goal];
  });

function dumpOf(chains: readonly ((name: string) => string[])[]): string {
  const names = chains.map((_, at) => `SEP-${at}`);
  const share = (at: number): string =>
    at + 1 < chains.length
      ? `-m statistic --mode random --probability ${1 / (chains.length - at)} `
      : '';
  return [
    ...['*nat', ':PREROUTING ACCEPT [0:0]', ':POSTROUTING ACCEPT [0:0]'],
    ...names.map((name) => `:${name} - [0:0]`),
    ...names.map((name, at) => `-A PREROUTING ${share(at)}-j ${name}`),
    '-A POSTROUTING -m mark --mark 0x1/0x1 -j MASQUERADE',
    ...chains.flatMap((lines, at) => lines(`SEP-${at}`)),
    ...['COMMIT', ''],
  ].join('\n');
}

const fared = (ruleset: RuleSet, packet: Packet): unknown => {
  const { destinations, unknown, ...fates } = walk(ruleset, { localAddresses: [] }, packet);
  const all = [...destinations, ...Object.entries(fates)].map(([name, { trace, ...fate }]) => {
    return [name, fate, trace().map((step) => [step.chain, step.rule.text])] as const;
  });
  return { all: all.sort(([one], [other]) => (one < other ? -1 : 1)), unknown };
};

test('a step is the same whenever it is asked for', () => {
  const goals = ['1', '2'].map((host) => (name: string) => [goal(name, `10.0.0.${host}:80`)]);
  const ruleset = parseIptablesSave(dumpOf(goals), 'ip');
  const packet = { from: 'pod', src: '10.0.0.9', dst: '10.96.0.1', protocol: 'tcp' } as const;
  for (let round = 0; round < 2; round++) {
    const { destinations } = walk(ruleset, { localAddresses: [] }, { ...packet, dport: 80 });
    for (const { trace } of destinations.values()) {
      for (const [at, step] of trace().entries()) expect(trace()[at]).toBe(step);
      expect(trace().at(-1)?.rule.text).toContain('DNAT');
    }
  }
});

property.prop([fc.array(chain, { minLength: 1, maxLength: 12 }), address], { numRuns: 1000 })(
  'packets fare as where all is read',
  (chains, src) => {
    const dump = dumpOf(chains);
    const packet = { from: 'pod', src, dst: '10.96.0.1', protocol: 'tcp', dport: 80 } as const;
    const ruleset = parseIptablesSave(dump, 'ip');
    // Twice: what the first walk read are models for the second.
    fared(ruleset, packet);
    expect(fared(ruleset, packet)).toEqual(fared(allRead(parseIptablesSave(dump, 'ip')), packet));
  },
);

property.prop([fc.array(chain, { minLength: 1, maxLength: 12 })])(
  'all rules are there, each with its line',
  (chains) => {
    const lines = dumpOf(chains).split('\n');
    const [table] = parseIptablesSave(lines.join('\n'), 'ip').tables;
    const rules = [...(table?.chains.values() ?? [])].flatMap((one) => rulesOf(one));
    expect(rules.length).toBe(lines.filter((line) => line.startsWith('-A')).length);
    for (const { line, text } of rules) expect(text).toBe(lines[line - 1]);
  },
);

test('what is wrong in a chain or behind it is found at its line', () => {
  const about = (name: string, comment: string): string =>
    goal(name, '10.0.0.1:80', `-m comment --comment ${comment} `);
  const names = ['A', 'B', 'C', 'D'];
  const dump = (lines: readonly string[]): string =>
    ['*nat', ...names.map((name) => `:${name} - [0:0]`), ...lines, 'COMMIT', ''].join('\n');
  const sound = ['A', 'B', 'C'].flatMap((name) => [
    `-A ${name} -s 10.0.0.1/32 -m comment --comment "a b" -j KUBE-MARK-MASQ`,
    about(name, '"a b"'),
  ]);
  const error = (last: string) => () => parseIptablesSave(dump([...sound, last]), 'ip');
  expect(error(about('D', '"a b"'))).not.toThrow();
  expect(error(about('D', '"a b'))).toThrow('Line 12: a quote without end');
  expect(error(about('E', '"a b"'))).toThrow('Line 12: a rule of a chain that is not declared');
  const open = [...sound.slice(0, 5), about('C', '"a')];
  expect(() => parseIptablesSave(dump(open), 'ip')).toThrow('Line 11: a quote without end');
});

/** What is known of the second chain by the first; null: nothing. */
function secondOf(first: readonly string[], second: readonly string[], family: Family = 'ip') {
  const dump = ['*nat', ':A - [0:0]', ':B - [0:0]', ...first, ...second, 'COMMIT', ''].join('\n');
  const chains = parseIptablesSave(dump, family).tables[0]?.chains ?? expect.fail();
  expect(chains.endpoint('A')).toBeNull();
  const endpoint = chains.endpoint('B');
  return endpoint && { ...endpoint, matches: endpoint.matches.length };
}

const goal = (name: string, to: string, options = ''): string =>
  `-A ${name} -p tcp ${options}-m tcp -j DNAT --to-destination ${to}`;

describe('a chain is known by another', () => {
  test('with its own addresses, port and comments', () => {
    const marked = (name: string, own: string): string[] => [
      `-A ${name} -s ${own}/32 -m comment --comment shop/${name} -j KUBE-MARK-MASQ`,
      goal(name, `${own}:8080`, `-m comment --comment shop/${name} `),
    ];
    const got = secondOf(marked('A', '10.0.0.1'), marked('B', '10.0.0.20'));
    const address = 0x0a000014;
    expect(got).toEqual({ address, port: 8080, matches: 1, sparesItself: true });
  });

  test('with comments in quotes, or without', () => {
    const about = (comment: string): string => `-m comment --comment ${comment} `;
    const first = [goal('A', '10.0.0.1:80', about('"a b:c"'))];
    for (const comment of ['"shop/cart -> 10.0.0.2:80"', '"-s 10.0.0.1/32"', 'x', '""']) {
      const got = secondOf(first, [goal('B', '10.0.0.2:80', about(comment))]);
      expect(got?.address).toBe(0x0a000002);
    }
    for (const comment of ['"a \\" b"', '"a\\\\"']) {
      expect(secondOf(first, [goal('B', '10.0.0.2:80', about(comment))])).toBeNull();
    }
  });

  test('of IPv6', () => {
    const marked = (name: string, own: string): string[] => [
      `-A ${name} -s ${own}/128 -j KUBE-MARK-MASQ`,
      goal(name, `[${own}]:80`),
    ];
    const got = secondOf(marked('A', 'fd00::1'), marked('B', 'fd00::2'), 'ip6');
    const address = 0xfd000000000000000000000000000002n;
    expect(got).toEqual({ address, port: 80, matches: 1, sparesItself: true });
    const bare = secondOf(marked('A', 'fd00::1'), [goal('B', 'fd00::2:80')], 'ip6');
    expect(bare).toBeNull();
    const longer = ['-A B -s fd00::1/128 -j KUBE-MARK-MASQ', goal('B', '[fd00::1:2]:80')];
    expect(secondOf(marked('A', 'fd00::1'), longer, 'ip6')).toBeNull();
    const open = [goal('B', '[fd00::1:80')];
    expect(secondOf([goal('A', '[fd00::1]:80')], open, 'ip6')).toBeNull();
  });

  test('whatever their comments say', () => {
    const about = (name: string, rest: string): string[] => [
      `-A ${name} -m comment --comment ${rest} -j DNAT --to-destination 10.0.0.1:80`,
    ];
    const got = secondOf(about('A', '--comment -i eth0'), about('B', 'x -o eth0'));
    expect(got).toBeNull();
  });

  test('with all its sources', () => {
    const rules = (name: string, own: string): string[] => [
      `-A ${name} -m iprange --src-range 10.0.0.1-10.0.0.1 -j DROP`,
      `-A ${name} -s ${own}/32 -j KUBE-MARK-MASQ`,
      goal(name, `${own}:80`),
    ];
    expect(secondOf(rules('A', '10.0.0.1'), rules('B', '10.0.0.2'))).toBeNull();
  });

  test.each([
    ['another match', [goal('B', '10.0.0.2:80', '-m recent --set --name x ')]],
    ['a rule more', [goal('B', '10.0.0.2:80'), '-A B -j RETURN']],
    ['a range of ports', [goal('B', '10.0.0.2:80-90')]],
    ['a range of addresses', [goal('B', '10.0.0.2-10.0.0.3:80')]],
    ['no port', [goal('B', '10.0.0.2')]],
    ['a port that is none', [goal('B', '10.0.0.2:65536')]],
    ['an address that is none', [goal('B', '10.0.0.256:80')]],
    ['another option behind', [goal('B', '10.0.0.2:80 --random')]],
    ['another source', ['-A B -s 10.0.0.9/32 -j MARK', goal('B', '10.0.0.2:80')]],
    [
      'another line behind another chain',
      [goal('B', '10.0.0.2:80'), '-A A -j DROP', '-A B -j DROP'],
    ],
  ])('not with %s', (_, second) => {
    expect(secondOf([goal('A', '10.0.0.1:80')], second)).toBeNull();
  });

  test.each([
    ['asks for the sender of what it sends', goal('A', '10.0.0.1:80', '-s 10.0.0.9/32 ')],
    ['remembers senders', goal('A', '10.0.0.1:80', '-m recent --set --name x ')],
    ['leaves it to chance', goal('A', '10.0.0.1:80', '-m statistic --mode nth --every 2 ')],
    ['sends nowhere', '-A A -j DROP'],
  ])('but by none that %s', (_, line) => {
    expect(secondOf([line], [line.replace('-A A', '-A B')])).toBeNull();
  });
});

test('however many other chains stand before, one is known by another', () => {
  const others = Array.from({ length: 2000 }, (_, at) => `EXT-${at}`);
  const names = [...others, 'A', 'B'];
  const dump = [
    '*nat',
    ...names.map((name) => `:${name} - [0:0]`),
    ...others.flatMap((name) => [`-A ${name} -j KUBE-MARK-MASQ`, `-A ${name} -j A`]),
    goal('A', '10.0.0.1:80'),
    goal('B', '10.0.0.2:80'),
    ...['COMMIT', ''],
  ].join('\n');
  const [table] = parseIptablesSave(dump, 'ip').tables;
  expect(table?.chains.endpoint('B')?.port).toBe(80);
});

test('a model is of the text that it was made of', () => {
  const text = '-A A -j DNAT --to-destination 10.0.0.1:80';
  const dump = `*nat\n:A - [0:0]\n${text}\nCOMMIT\n`;
  const chain = parseIptablesSave(dump, 'ip').tables[0]?.chains.get('A') ?? expect.fail();
  const model = modelOf(rulesOf(chain), text, 'A', 0, text.length) ?? expect.fail();
  const goal = goalIn(model, text, 'A', 0);
  expect(text.slice(goal)).toBe('10.0.0.1:80');
  expect(endpointAt(model, text, goal, text.length)?.port).toBe(80);
  expect(goalIn(model, text, 'AB', 0)).toBe(-1);
  // Rules that are not this text's make none.
  expect(modelOf(rulesOf(chain), text.replace(':80', ':81'), 'A', 0, text.length)).toBeNull();
});

test('what comes from the endpoint itself, or may, must read', () => {
  const address = 0x0a000001;
  const endpoint = { address, port: 80, matches: [], sparesItself: true };
  const chainsOf = (one: DnatTarget) => ({
    ...{ bases: () => [], get: () => undefined, values: () => [] },
    endpoint: () => one,
  });
  const [own, other] = [stateOf({ source: address }), stateOf({ source: 0x0a000002 })];
  expect(straightTo(chainsOf(endpoint), 'A', own)).toBeNull();
  expect(straightTo(chainsOf(endpoint), 'A', other)?.to?.ports?.low).toBe(80);
  const all = chainsOf({ ...endpoint, sparesItself: false });
  expect(straightTo(all, 'A', own)?.to?.addresses?.low).toBe(address);
  const asks = { kind: 'field', field: 'protocol', mask: null, negate: false } as const;
  const udp = chainsOf({ ...endpoint, matches: [{ ...asks, ranges: [{ low: 17, high: 17 }] }] });
  expect(straightTo(udp, 'A', other)).toBeNull();
});
