// Forks: what they yield, and that they do not multiply.

import { describe, expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { walk } from '../rulesets.ts';

const packet: Packet = {
  from: 'outside',
  src: '192.0.2.1',
  dst: '10.96.0.1',
  protocol: 'tcp',
  dport: 80,
};

/** Walks through nat rules; chains are declared by their names. */
function outcomeOf(...rules: string[]): PacketOutcome {
  const chains = new Set(rules.flatMap((rule) => rule.match(/(?<=-[Agj] )[A-Z]\d*(?= |$)/g) ?? []));
  const declared = [...chains].map((name) => `:${name} - [0:0]`);
  const head = ['*nat', ':PREROUTING ACCEPT [0:0]', ...declared];
  const text = [...head, ...rules, 'COMMIT', ''].join('\n');
  return walk(parseIptablesSave(text, 'ip'), { localAddresses: [] }, packet);
}

const shares = ({ destinations, pass, drop, reject }: PacketOutcome): unknown => ({
  ...Object.fromEntries([...destinations].map(([name, share]) => [name, share.probability])),
  ...(pass.probability > 0 ? { pass: pass.probability } : {}),
  ...(drop.probability > 0 ? { drop: drop.probability } : {}),
  ...(reject.probability > 0 ? { reject: reject.probability } : {}),
});

const unknown = '-m u32 --u32 "0x0=0x1"';
const dnat = (host: number): string => `-p tcp -j DNAT --to-destination 10.0.0.${host}:1`;

describe('calls', () => {
  test('jump comes back, goto does not, return leaves', () => {
    const first = ['-A PREROUTING -j A', `-A PREROUTING ${dnat(1)}`];
    expect(shares(outcomeOf(...first, '-A A -j RETURN', `-A A ${dnat(2)}`))).toEqual({
      '10.0.0.1:1': 1,
    });
    const goto = ['-A PREROUTING -j A', '-A A -g B', `-A A ${dnat(3)}`, '-A B -j RETURN'];
    expect(shares(outcomeOf(...goto, `-A PREROUTING ${dnat(1)}`))).toEqual({ '10.0.0.1:1': 1 });
    expect(
      shares(outcomeOf('-A PREROUTING -g A', '-A A -p udp -j DROP', `-A PREROUTING ${dnat(1)}`)),
    ).toEqual({ pass: 1 });
  });

  test('a chain that is not there may do anything', () => {
    const { unknown, drop } = outcomeOf('-A PREROUTING -j MISSINGCHAINNAME');
    expect([unknown.length, drop.probability]).toEqual([1, 1]);
  });
});

describe('chance', () => {
  test('divides exactly, and what falls through goes on', () => {
    const got = outcomeOf(
      '-A PREROUTING -m statistic --mode random --probability 0.25 -j A',
      '-A PREROUTING -m statistic --mode random --probability 0.5 -j B',
      `-A PREROUTING ${dnat(3)}`,
      `-A A ${dnat(1)}`,
      '-A B -p udp -j DROP',
    );
    expect(shares(got)).toEqual({ '10.0.0.1:1': 0.25, '10.0.0.3:1': 0.75 });
    expect(got.unknown).toEqual([]);
  });

  test('many forks that all come back are no many ways', () => {
    const jump = '-A PREROUTING -m statistic --mode random --probability 0.5 -j A';
    const got = outcomeOf(
      ...Array<string>(200).fill(jump),
      '-A A -p udp -j DROP',
      `-A PREROUTING ${dnat(1)}`,
    );
    expect(got.destinations.get('10.0.0.1:1')?.probability).toBeCloseTo(1, 9);
  });
});

describe('unknown', () => {
  test('keeps both ways, with their bounds', () => {
    const got = outcomeOf(`-A PREROUTING ${unknown} -j DROP`, `-A PREROUTING ${dnat(1)}`);
    expect(shares(got)).toEqual({ drop: 1, '10.0.0.1:1': 1 });
    expect(got.unknown.map(({ rule }) => rule)).toEqual([`-A PREROUTING ${unknown} -j DROP`]);
  });

  test.each([
    [`-A PREROUTING ${unknown} -j A`, '-A A -p udp -j DROP'],
    [`-A PREROUTING ${unknown} -j A`, '-A A -j RETURN'],
    [`-A PREROUTING ${unknown} -j LOG --log-prefix x`],
    [`-A PREROUTING ${unknown} -j MARK --set-xmark 0x1/0x1`],
    [`-A PREROUTING ${unknown} -p udp -j DROP`],
  ])('that changes nothing is none: %s %s', (...rules) => {
    const got = outcomeOf(...rules, `-A PREROUTING ${dnat(1)}`);
    expect(shares(got)).toEqual({ '10.0.0.1:1': 1 });
    expect(got.unknown).toEqual([]);
  });

  test('return after a fork leaves the chain', () => {
    const rules = ['-A PREROUTING -j A', `-A A ${unknown} -j RETURN`, '-A A -j DROP'];
    const got = outcomeOf(...rules, `-A PREROUTING ${dnat(1)}`);
    expect(shares(got)).toEqual({ drop: 1, '10.0.0.1:1': 1 });
  });

  test('many of them are no many ways', () => {
    const rules = Array.from({ length: 100 }, (_, at) => `-A PREROUTING ${unknown} -j A${at % 3}`);
    const chains = ['A0', 'A1', 'A2'].map((name) => `-A ${name} -p udp -j DROP`);
    expect(shares(outcomeOf(...rules, ...chains, `-A PREROUTING ${dnat(1)}`))).toEqual({
      '10.0.0.1:1': 1,
    });
  });
});

describe('affinity', () => {
  const check = (name: string, chain: string): string =>
    `-A PREROUTING -m recent --rcheck --seconds 60 --reap --name ${name} --rsource -j ${chain}`;
  const endpoint = (chain: string, name: string, host: number): string =>
    `-A ${chain} -m recent --set --name ${name} --rsource ${dnat(host)}`;
  const choose = [
    '-A PREROUTING -m statistic --mode random --probability 0.5 -j A',
    '-A PREROUTING -j B',
  ];
  const affinities = ({ destinations }: PacketOutcome): unknown =>
    [...destinations.values()].map(({ affinity, affinitySeconds }) => [affinity, affinitySeconds]);

  test('holds where a source is remembered and asked for, and divides nothing', () => {
    const checks = [check('a', 'A'), check('b', 'B'), ...choose];
    const got = outcomeOf(...checks, endpoint('A', 'a', 1), endpoint('B', 'b', 2));
    expect(shares(got)).toEqual({ '10.0.0.1:1': 0.5, '10.0.0.2:1': 0.5 });
    expect(affinities(got)).toEqual([
      [true, 60],
      [true, 60],
    ]);
    expect(got.unknown).toEqual([]);
  });

  test('not without the check, without the memory, or under another name', () => {
    expect(affinities(outcomeOf(...choose, endpoint('A', 'a', 1), endpoint('B', 'b', 2)))).toEqual([
      [false, null],
      [false, null],
    ]);
    const checks = [check('a', 'A'), check('b', 'B'), ...choose];
    expect(affinities(outcomeOf(...checks, endpoint('A', 'x', 1), `-A B ${dnat(2)}`))).toEqual([
      [false, null],
      [false, null],
    ]);
  });

  test('a remembered source that is dropped is unknown', () => {
    const got = outcomeOf(check('a', 'A'), '-A A -j DROP', `-A PREROUTING ${dnat(1)}`);
    expect([shares(got), got.unknown.length]).toEqual([{ drop: 1, '10.0.0.1:1': 1 }, 1]);
  });
});
