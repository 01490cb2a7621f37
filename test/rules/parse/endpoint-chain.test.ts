// A chain of an endpoint leads packets to the same outcome whether its rules are parsed or not.

import { join } from 'node:path';

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { Chains, DnatTarget, Family, RuleSet, Table } from '../../../src/rules/ruleset.ts';
import { chainsOf, rulesOf } from '../../../src/rules/ruleset.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';
import { walk } from '../rulesets.ts';

/** The chains of a table without their targets, so that a walk parses all their rules. */
const withoutTargets = (chains: Chains): Chains =>
  chainsOf(new Map([...chains.values()].map((chain) => [chain.name, { ...chain, target: null }])));

const allRead = (ruleset: RuleSet): RuleSet => ({
  ...ruleset,
  tables: ruleset.tables.map((table) => ({ ...table, chains: withoutTargets(table.chains) })),
});

/** The target that the rules of a chain have. */
function targetOf({ chains }: Table, name: string): unknown {
  const rules = rulesOf(chains.get(name) ?? expect.fail(name));
  const goal = rules.at(-1)?.statements.at(-1);
  if (goal?.kind !== 'dnat' || !goal.to?.addresses || !goal.to.ports) expect.fail(name);
  const { addresses, ports } = goal.to;
  const [first] = rules;
  const source = first?.statements.find((one) => one.kind === 'field' && one.field === 'source');
  const except = source?.kind === 'field' ? source.ranges[0]?.low : null;
  return { address: addresses.low, port: ports.low, except };
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
        const target = table.chains.get(name)?.target;
        if (!target) continue;
        known++;
        const { address, port, except } = target;
        expect({ address, port, except }).toEqual(targetOf(table, name));
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

const walked = (ruleset: RuleSet, packet: Packet): unknown => {
  const { destinations, unknown, ...others } = walk(ruleset, { localAddresses: [] }, packet);
  const all = [...destinations, ...Object.entries(others)].map(([name, { trace, ...share }]) => {
    return [name, share, trace().map((step) => [step.chain, step.rule.text])] as const;
  });
  return { all: all.sort(([one], [other]) => (one < other ? -1 : 1)), unknown };
};

test('the trace returns the same steps at every call', () => {
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
  'the outcome is the same as with all rules parsed',
  (chains, src) => {
    const dump = dumpOf(chains);
    const packet = { from: 'pod', src, dst: '10.96.0.1', protocol: 'tcp', dport: 80 } as const;
    const ruleset = parseIptablesSave(dump, 'ip');
    expect(walked(ruleset, packet)).toEqual(walked(allRead(ruleset), packet));
  },
);

property.prop([fc.array(chain, { minLength: 1, maxLength: 12 })])(
  'every rule of the dump is in its chain',
  (chains) => {
    const lines = dumpOf(chains).split('\n');
    const [table] = parseIptablesSave(lines.join('\n'), 'ip').tables;
    const rules = [...(table?.chains.values() ?? [])].flatMap((one) => rulesOf(one));
    const want = lines.filter((line) => line.startsWith('-A'));
    expect(rules.map(({ text }) => text).sort()).toEqual(want.sort());
  },
);

test('an error in a chain or after it names its line', () => {
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

/** The target of chain B in a dump with these lines. */
function targetIn(lines: readonly string[], family: Family = 'ip'): DnatTarget | null {
  const dump = ['*nat', ':A - [0:0]', ':B - [0:0]', ...lines, 'COMMIT', ''].join('\n');
  const [table] = parseIptablesSave(dump, family).tables;
  return (table?.chains.get('B') ?? expect.fail()).target;
}

const goal = (name: string, to: string, options = ''): string =>
  `-A ${name} -p tcp ${options}-m tcp -j DNAT --to-destination ${to}`;

describe('the target of a chain', () => {
  const marked = (source: string, to: string): string[] => [
    `-A B -s ${source} -m comment --comment shop/cart -j KUBE-MARK-MASQ`,
    goal('B', to, '-m comment --comment shop/cart '),
  ];

  test('has the address, port and protocol, and the source that another rule matches', () => {
    const address = 0x0a000014;
    const want = { address, port: 8080, protocol: 6 };
    expect(targetIn([goal('B', '10.0.0.20:8080')])).toEqual({ ...want, except: null });
    const got = targetIn(marked('10.0.0.20/32', '10.0.0.20:8080'));
    expect(got).toEqual({ ...want, except: address });
  });

  test('may be IPv6', () => {
    const got = targetIn(marked('fd00::2/128', '[fd00::2]:80'), 'ip6');
    expect(got).toMatchObject({ address: 0xfd000000000000000000000000000002n, port: 80 });
    expect(targetIn([goal('B', 'fd00::2:80')], 'ip6')).toBeNull();
    expect(targetIn([goal('B', '[fd00::1:80')], 'ip6')).toBeNull();
    expect(targetIn(marked('10.0.0.1/32', '[fd00::2]:80'), 'ip6')).toBeNull();
  });

  test.each(['"a b:c"', '"shop/cart -> 10.0.0.2:80"', '"-s 10.0.0.1/32"', 'x', '""'])(
    'does not depend on the comment %s',
    (comment) => {
      const got = targetIn([goal('B', '10.0.0.2:80', `-m comment --comment ${comment} `)]);
      expect(got?.address).toBe(0x0a000002);
    },
  );

  test.each([
    ['another match', [goal('B', '10.0.0.2:80', '-m recent --set --name x ')]],
    ['a match of the source', [goal('B', '10.0.0.2:80', '-s 10.0.0.9/32 ')]],
    ['a chance', [goal('B', '10.0.0.2:80', '-m statistic --mode nth --every 2 ')]],
    ['a rule after it', [goal('B', '10.0.0.2:80'), '-A B -j RETURN']],
    ['a rule without options after it', [goal('B', '10.0.0.2:80'), '-A B']],
    ['a range of ports', [goal('B', '10.0.0.2:80-90')]],
    ['a range of addresses', [goal('B', '10.0.0.2-10.0.0.3:80')]],
    ['no port', [goal('B', '10.0.0.2')]],
    ['an invalid port', [goal('B', '10.0.0.2:65536')]],
    ['an invalid address', [goal('B', '10.0.0.256:80')]],
    ['an option after it', [goal('B', '10.0.0.2:80 --random')]],
    ['an option in its comment', ['-A B -m comment --comment --comment -i eth0 -j DROP']],
    ['rules in two places', [goal('B', '10.0.0.2:80'), '-A A -j DROP', '-A B -j DROP']],
    ['another target', ['-A B -j DROP']],
    ['no rules', []],
  ])('is null for a chain with %s', (_, lines) => {
    expect(targetIn(lines)).toBeNull();
  });
});
