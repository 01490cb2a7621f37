import { describe, expect, test } from 'vitest';

import { parseNetwork } from '../../../src/model/ip.ts';
import { noteTargets, parseRule } from '../../../src/rules/parse/iptables-rule.ts';
import type { Statement } from '../../../src/rules/ruleset.ts';

function target(text: string): Statement | undefined {
  return parseRule(text)[0];
}

describe('targets', () => {
  test.each([
    ['10.0.0.1:80', '10.0.0.1', [80, 80]],
    ['10.0.0.1', '10.0.0.1', null],
    ['10.0.0.1-10.0.0.9', '10.0.0.1-10.0.0.9', null],
    ['10.0.0.1-10.0.0.9:80-82', '10.0.0.1-10.0.0.9', [80, 82]],
    [':80', null, [80, 80]],
    ['[fd00::1]:80', 'fd00::1', [80, 80]],
    ['fd00::1', 'fd00::1', null],
    ['[fd00::1]', 'fd00::1', null],
    ['[fd00::1-fd00::9]:80', 'fd00::1-fd00::9', [80, 80]],
    ['fd00::1-fd00::9', 'fd00::1-fd00::9', null],
  ])('DNAT to %s', (to, addresses, ports) => {
    for (const [name, option] of [
      ['DNAT', '--to-destination'],
      ['SNAT', '--to-source'],
    ]) {
      expect(target(`-j ${name} ${option} ${to} --persistent`)).toMatchObject({
        kind: name?.toLowerCase(),
        to: {
          addresses: addresses === null ? null : parseNetwork(addresses),
          ports: ports === null ? null : { low: ports[0], high: ports[1] },
          random: false,
        },
      });
    }
  });

  test.each([
    ['-j MARK --set-xmark 0x4000/0x4000', 0xffffbfff, 0x4000],
    ['-j MARK --set-xmark 0x4000/0x0', 0xffffffff, 0x4000],
    ['-j MARK --set-mark 0x1', 0, 1],
    ['-j MARK --or-mark 0x4000', 0xffffbfff, 0x4000],
    ['-j MARK --and-mark 0xff', 0xff, 0],
    ['-j MARK --xor-mark 0x1', 0xffffffff, 1],
    ['-j CONNMARK --set-xmark 0x1/0xff', 0xffffff00, 1],
  ])('%s', (text, keep, flip) => {
    const field = text.includes('CONN') ? 'connection mark' : 'mark';
    expect(target(text)).toEqual({ kind: 'set mark', field, keep, flip });
  });

  test.each([
    ['-j ACCEPT', 'accept'],
    ['-j NOTRACK', 'notrack'],
    ['-j CT --notrack', 'notrack'],
    ['-j CT --helper ftp', 'note'],
    ['-j CT --zone 5', 'unknown verdict'],
    ['-j LOG --log-prefix "x: "', 'note'],
    ['-j REJECT --reject-with icmp-port-unreachable', 'reject'],
    ['-j MASQUERADE', 'masquerade'],
    ['-j REDIRECT --to-ports 8080', 'redirect'],
    ['-j NETMAP --to 10.0.0.0/24', 'netmap'],
    ['-j CONNMARK --restore-mark', 'copy mark'],
    ['-j TPROXY --on-port 1 --on-ip 127.0.0.1', 'unknown verdict'],
    ['-j DNAT --to-destination nowhere', 'unknown verdict'],
    ['-j MARK --set-xmark x', 'unknown mark'],
    ['-j cali-FORWARD', 'jump'],
    ['-g ACCEPT', 'goto'],
  ])('%s: %s', (text, want) => {
    expect(target(text)?.kind).toBe(want);
  });

  test('targets that only write a log are notes', () => {
    expect(['LOG', 'NFLOG', 'TCPMSS'].every((name) => noteTargets.has(name))).toBe(true);
    expect(['DNAT', 'DROP', 'KUBE-SERVICES'].some((name) => noteTargets.has(name))).toBe(false);
  });
});
