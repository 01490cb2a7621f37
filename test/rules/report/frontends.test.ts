// What rules answer for is found by what they match, in both languages.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { frontendsInRules } from '../../../src/rules/report/frontends.ts';
import { forwardingOf } from '../../nodes/walk.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';

const dump = (...rules: readonly string[]): string =>
  ['*nat', ':PREROUTING ACCEPT [0:0]', ':OUTPUT ACCEPT [0:0]', ':A - [0:0]', ':B - [0:0]', ...rules]
    .concat('COMMIT', '')
    .join('\n');

const claims = (...rules: readonly string[]): string[] =>
  frontendsInRules(parseIptablesSave(dump(...rules), 'ip')).map(
    ({ address, protocol, port, translators }) => `${address} ${protocol} ${port} ${translators}`,
  );

const dnat = '-j DNAT --to-destination 10.0.0.1:80';

describe('frontendsInRules', () => {
  test.each<[string, string[], string[]]>([
    ['none', [], []],
    [
      'one rule',
      [`-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 ${dnat}`],
      ['10.96.0.1 tcp 80 1'],
    ],
    [
      'collected on the way, once for both base chains',
      [
        '-A PREROUTING -d 10.96.0.1/32 -j A',
        '-A OUTPUT -d 10.96.0.1/32 -j A',
        '-A A -p udp -g B',
        `-A B -p udp -m udp --dport 53 ${dnat}`,
      ],
      ['10.96.0.1 udp 53 1'],
    ],
    [
      'loopback as any address of the node',
      [`-A OUTPUT -d 127.0.0.0/8 -p tcp -m tcp --dport 30000 ${dnat}`],
      ['null tcp 30000 1'],
    ],
    ['any address', [`-A OUTPUT -p tcp -m tcp --dport 30000 ${dnat}`], ['null tcp 30000 1']],
    [
      'the ends of ranges, and a port where all are taken',
      [
        `-A PREROUTING -d 10.96.0.0/16 -p tcp ${dnat}`,
        `-A PREROUTING -d 10.96.0.1/32 -p udp -m udp --dport 80:90 ${dnat}`,
        `-A PREROUTING -d 10.96.0.1/32 -p tcp -m multiport --dports 80,8080 ${dnat}`,
      ],
      [
        '10.96.0.0 tcp 9 1',
        '10.96.255.255 tcp 9 1',
        '10.96.0.1 udp 80 1',
        '10.96.0.1 udp 90 1',
        '10.96.0.1 tcp 80 1',
        '10.96.0.1 tcp 8080 1',
      ],
    ],
    [
      'what two rules of a way ask for together',
      [
        '-A PREROUTING -d 10.96.0.0/16 -p tcp -j A',
        '-A A -d 10.96.3.0/24 -j B',
        '-A A -d 10.97.0.1/32 -p tcp -m tcp --dport 80 -j B',
        `-A B -p tcp -m tcp --dport 443 ${dnat}`,
      ],
      ['10.96.3.0 tcp 443 1', '10.96.3.255 tcp 443 1'],
    ],
    [
      'no exclusions, and nothing that is stopped whatever its port',
      [
        `-A PREROUTING ! -d 10.96.0.1/32 -p tcp ${dnat}`,
        '-A PREROUTING -d 10.96.0.1/32 -p tcp -j REJECT',
      ],
      [],
    ],
    ['nothing that no base chain comes to', [`-A A -p tcp -m tcp --dport 80 ${dnat}`], []],
    ['rings', ['-A PREROUTING -j A', '-A A -j B', '-A B -j A'], []],
  ])('%s', (_, rules, want) => {
    expect(claims(...rules)).toEqual(want);
  });

  const recordings = foldersBelow(join(import.meta.dirname, '../../nodes/recordings/main'));
  test.each(recordings)('%s: as many as its Services have', (path) => {
    const folder = readFolder(path);
    const expected = forwardingOf(folder);
    const found = frontendsInRules(folder.ruleset);
    const claimed = new Set(found.map(({ address, port }) => `${address} ${port}`));
    const missing = expected?.forwarding.frontends.filter(
      ({ kind, address, dport }) =>
        !claimed.has(`${address} ${dport}`) &&
        !claimed.has(`null ${dport}`) &&
        kind !== 'health check node port',
    );
    // Node ports and external addresses without endpoints are stopped after routing only.
    expect(missing?.filter(({ port }) => port.usable()?.[0]?.any !== false)).toEqual([]);
    const outcomes = found.map(({ address, protocol, port, family }) =>
      expected?.forwarding.expect({
        from: 'outside',
        src: '203.0.113.1',
        dst: address ?? expected.forwarding.node.nodeIP[family === 'ip' ? 'IPv4' : 'IPv6'],
        protocol,
        dport: port,
      }),
    );
    const unclaimed = outcomes.filter((one) => one?.frontend === null);
    expect(unclaimed).toEqual([]);
  });
});
