import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { protocolNumbers } from '../../../src/rules/parse/iptables-match.ts';
import type { PartCache } from '../../../src/rules/parse/iptables-rule.ts';
import { newPartCache, parseRule } from '../../../src/rules/parse/iptables-rule.ts';
import type { Statement } from '../../../src/rules/ruleset.ts';
import { foldersBelow, readBytes } from '../../nodes/folder.ts';

const read = (text: string, cache: PartCache = newPartCache()): readonly Statement[] =>
  parseRule(text, cache);

const kinds = (text: string): string[] => read(text).map(({ kind }) => kind);

describe('rules', () => {
  test('a rule of kube-proxy is read with its matches and its target', () => {
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

  test('an unknown match keeps its text, quotes and all', () => {
    const [unknown] = read('-m u32 --u32 "0x0>>0x16&0x3c@0x8=0x1" -j DROP');
    expect(unknown).toEqual({ kind: 'unknown', text: '-m u32 --u32 "0x0>>0x16&0x3c@0x8=0x1"' });
  });
});

describe('the cache of parts', () => {
  /** Rules read one behind the other, and each by itself. */
  const readAll = (texts: readonly string[]): void => {
    const cache = newPartCache();
    for (const text of texts) expect(read(text, cache), text).toEqual(read(text));
  };

  test('changes nothing in the rules of real nodes', () => {
    const rules = new Set<string>();
    for (const folder of foldersBelow(`${import.meta.dirname}/../../nodes`)) {
      for (const name of ['iptables-save.txt', 'ip6tables-save.txt']) {
        const dump = readBytes(`${folder}/${name}`)?.toString() ?? '';
        for (const [, text = ''] of dump.matchAll(/^-A \S+ (.*)$/gm)) rules.add(text);
      }
    }
    expect(rules.size).toBeGreaterThan(1000);
    readAll([...rules]);
  });

  const word = fc.constantFrom(
    ...['-m', 'tcp', '-p', 'tcp', 'udp', '-s', '10.0.0.1/32', '10.0.0.2', '!', '-j', '-g', 'X'],
    ...['-i', 'eth0', '-j', '-m', 'comment', '--comment', '"a -j b"', 'DNAT', '--to-destination'],
    ...['10.0.0.1:80', '--dport', '80', '8', 'statistic', '--mode', 'random', '--probability'],
    ...['0.5', 'KUBE-MARK-MASQ', 'KUBE-SEP-ABCDEFGHIJKLMNOP', '', '-f', '-', '--', 'x-y'],
  );
  const rule = fc.array(word, { maxLength: 14 }).map((words) => words.join(' '));

  property.prop([fc.array(rule, { maxLength: 20 })])('changes nothing in any text', readAll);
});
