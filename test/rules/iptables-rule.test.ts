import { describe, expect, test } from 'vitest';

import { parseRule, protocolNumbers } from '../../src/rules/iptables-rule.ts';
import type { Statement } from '../../src/rules/ruleset.ts';

function read(text: string): readonly Statement[] {
  const place = { at: 0, options: 0, end: text.length, line: 7, family: 'ip' } as const;
  return parseRule(text, place).statements;
}

const kinds = (text: string): string[] => read(text).map(({ kind }) => kind);

describe('rules', () => {
  test('a rule of kube-proxy', () => {
    const text =
      '! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp ' +
      '-m comment --comment "a/b:c cluster IP" -m tcp --dport 443 -j KUBE-MARK-MASQ';
    expect(read(text)).toEqual([
      {
        kind: 'field',
        field: 'source',
        mask: null,
        ranges: [{ low: 0x0af40000, high: 0x0af4ffff }],
        negate: true,
      },
      {
        kind: 'field',
        field: 'destination',
        mask: null,
        ranges: [{ low: 0x0a600001, high: 0x0a600001 }],
        negate: false,
      },
      {
        kind: 'field',
        field: 'protocol',
        mask: null,
        ranges: [{ low: protocolNumbers.tcp, high: 6 }],
        negate: false,
      },
      { kind: 'note', text: '-m comment --comment "a/b:c cluster IP"' },
      {
        kind: 'field',
        field: 'destination port',
        mask: null,
        ranges: [{ low: 443, high: 443 }],
        negate: false,
      },
      { kind: 'jump', chain: 'KUBE-MARK-MASQ' },
    ]);
  });

  test.each([
    ['-m comment --comment "no target"', ['note']],
    ['-m comment --comment unquoted -j ACCEPT', ['note', 'accept']],
    ['-m comment --comment "a \\"b\\" \\\\ -j DROP" -j ACCEPT', ['note', 'accept']],
    ['-p tcp -m tcp -j RETURN', ['field', 'return']],
    ['-m statistic --mode random --probability 0.5 -j X', ['random', 'jump']],
    ['-m statistic --mode nth --every 3 --packet 0 -j X', ['random', 'jump']],
    ['-m recent --rcheck --seconds 60 --name a --rsource -j X', ['remembered', 'jump']],
    ['-m recent --set --name a --rsource', ['remember']],
    ['-m recent --update --hitcount 4 --name a --rsource', ['unknown']],
    ['-m recent --rcheck --name a --rdest', ['unknown']],
    ['-m nfacct --nfacct-name  x -j DROP', ['note', 'drop']],
    ['-m set ! --match-set blocked src ! -o eth0 -g X', ['unknown', 'interface', 'goto']],
    ['-m tcp ! --tcp-option 7 --dport 80', ['unknown', 'field']],
    ['-p gre -m icmp --icmp-type 8', ['field', 'never']],
    ['-p nothing -j DROP', ['unknown', 'drop']],
    ['-s nowhere -j DROP', ['unknown', 'drop']],
    ['-m tcp --dport 99999 -j DROP', ['unknown', 'drop']],
    ['-m mark --mark x -j DROP', ['unknown', 'drop']],
    ['-m addrtype --dst-type LOCAL --limit-iface-in -j DROP', ['unknown', 'drop']],
    ['-m string --string "-j ACCEPT" --algo bm -j DROP', ['unknown', 'drop']],
    ['-f -j DROP', ['never', 'drop']],
    ['! -f -j DROP', ['note', 'drop']],
    ['--surprise 1 -j DROP', ['unknown', 'drop']],
  ])('%s', (text, want) => {
    expect(kinds(text)).toEqual(want);
  });

  test('the same options again are the same', () => {
    const text = '-p udp -m udp --dport 53 -m conntrack ! --ctstate NEW -j DROP';
    expect(read(text)).toEqual(read(text));
  });

  test('an unknown match keeps its text, quotes and all', () => {
    const [unknown] = read('-m u32 --u32 "0x0>>0x16&0x3c@0x8=0x1" -j DROP');
    expect(unknown).toEqual({ kind: 'unknown', text: '-m u32 --u32 "0x0>>0x16&0x3c@0x8=0x1"' });
  });
});
