// What the kernel shows of its routes, and by which interface it then says that it sends: both
// were recorded in one network namespace with a default route by two gateways, a network in two
// interfaces, a black hole, and a rule that leads to another table first.

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { formatAddress, networkOf, parseAddress } from '../../../src/model/ip.ts';
import type { RouteLookup, Routes } from '../../../src/rules/walk/routes.ts';
import { hostsOf, readRoutes, routeLookup } from '../../../src/rules/walk/routes.ts';

const head =
  'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n';

const route = `${head}eth0	00000000	010012AC	0003	0	0	0	00000000	0	0	0
cni0	0001F40A	00000000	0001	0	0	0	00FFFFFF	0	0	0
flannel.1	0002F40A	0002F40A	0003	0	0	0	00FFFFFF	0	0	0
*	0001F50A	00000000	0001	0	0	0	00FFFFFF	0	0	0
cali12ab	0501F50A	00000000	0005	0	0	0	FFFFFFFF	0	0	0
eth1	0000F60A	00000000	0001	0	0	10	0000FFFF	0	0	0
wg0	0000F60A	00000000	0001	0	0	20	0000FFFF	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
eth0	000012AC	00000000	0001	0	0	0	00FFFFFF	0	0	0
eth1	000013AC	00000000	0001	0	0	0	00FFFFFF	0	0	0
`;

const trie = `Id 52:
  +-- 0.0.0.0/1 2 0 2
     |-- 10.244.3.0
        /24 link UNICAST
     |-- 100.101.1.9
        /32 link UNICAST
Main:
  +-- 0.0.0.0/0 3 0 6
     +-- 0.0.0.0/4 2 0 2
        |-- 0.0.0.0
           /0 universe UNICAST
        +-- 10.245.1.0/29 2 0 2
           |-- 10.245.1.0
              /24 universe BLACKHOLE
           |-- 10.245.1.5
              /32 link UNICAST
Local:
  +-- 127.0.0.0/8 2 0 2
     |-- 127.255.255.255
        /32 link BROADCAST
`;

const devices = ['eth0', 'eth1'];

function routesOf(text = route, tables = trie): Routes {
  const routes = readRoutes(text, tables, devices);
  if (routes === null) throw new Error('no routes');
  return routes;
}

const addressOf = (text: string): number => Number(parseAddress(text));

describe('routes as the kernel shows them', () => {
  const ways = routeLookup(routesOf());

  // The third is what `ip route get` says.
  test.each([
    ['198.51.100.7', ['eth0', 'eth1', 'flannel.1'], 'eth1'],
    ['10.244.1.251', ['cni0'], 'cni0'],
    ['10.244.2.9', ['flannel.1', 'eth0', 'eth1'], 'flannel.1'],
    ['10.244.3.9', null, 'tailscale0'],
    ['10.245.1.5', ['cali12ab'], 'cali12ab'],
    ['10.245.1.6', null, 'none'],
    ['10.246.0.1', ['eth1', 'wg0'], 'eth1'],
    ['172.17.0.2', ['docker0'], 'docker0'],
    ['172.19.0.9', ['eth1'], 'eth1'],
    ['100.101.1.9', null, 'tailscale0'],
  ])('%s is reached by %j', (text, want, kernel) => {
    expect(ways.to(addressOf(text))).toEqual(want);
    if (want !== null) expect(want).toContain(kernel);
  });

  test.each([
    ['outside', '198.51.100.7', 'eth0'],
    ['outside', '10.244.2.9', 'flannel.1'],
    ['outside', '10.244.3.9', null],
    ['pod', '10.244.1.251', 'cni0'],
    ['pod', '10.245.1.5', 'cali12ab'],
    // No network of the node's own: whatever it comes in by, it is not this.
    ['pod', '10.244.9.251', null],
    ['pod', '172.19.0.9', null],
    ['pod', '10.246.0.1', null],
  ] as const)('from %s, %s comes in by %s', (sender, text, want) => {
    expect(ways.from(sender, addressOf(text))).toBe(want);
  });

  test('an address with an interface of its own is listed', () => {
    expect(hostsOf(routesOf())).toEqual([
      { address: addressOf('10.245.1.5'), interface: 'cali12ab' },
    ]);
  });

  test('a route by the loopback interface leads nowhere', () => {
    const looped = routeLookup(routesOf(route.replace('docker0', 'lo')));
    expect(looped.to(addressOf('172.17.0.2'))).toBeNull();
  });

  test('of IPv6 nothing is known', () => {
    expect(ways.to(1n << 127n)).toBeNull();
  });
});

test.each([
  ['no such line', `${head}eth0\n`, trie],
  ['a mask with holes', route.replaceAll('00FFFFFF', '00FF00FF'), trie],
  ['no tables', route, ''],
  ['too many', head + 'eth0	0001F40A	00000000	0001	0	0	0	00FFFFFF	0	0	0\n'.repeat(5000), trie],
])('%s: nothing is known', (_name, text, tables) => {
  expect(readRoutes(text, tables, devices)).toBeNull();
});

/** As the kernel writes it. */
const hexOf = (address: number): string =>
  [0, 8, 16, 24]
    .map((shift) => ((address >>> shift) & 255).toString(16).toUpperCase().padStart(2, '0'))
    .join('');

const network = fc.record({
  base: fc.integer({ min: 0, max: 15 }).map((low) => 0x0af40000 + low * 37),
  bits: fc.integer({ min: 8, max: 32 }),
  name: fc.constantFrom('cni0', 'docker0', 'veth1'),
});

property.prop([fc.array(network, { minLength: 1, maxLength: 12 }), fc.nat({ max: 600 })])(
  'the narrowest network decides, and all that it has routes by are possible',
  (networks, offset) => {
    const ranges = networks.map(({ base, bits, name }) => {
      const { low } = networkOf(base, bits) ?? { low: 0 };
      return { low: Number(low), bits, name };
    });
    const lines = ranges.map(({ low, bits, name }) => {
      const mask = hexOf(-(2 ** (32 - bits)) >>> 0);
      return [name, hexOf(low), '00000000', '0001', 0, 0, 0, mask, 0, 0, 0].join('\t');
    });
    const ways: RouteLookup = routeLookup(routesOf(`${head}${lines.join('\n')}\n`, 'Main:\n'));
    const address = 0x0af40000 + offset;
    const holding = ranges.filter(({ low, bits }) => networkOf(address, bits)?.low === low);
    const longest = Math.max(...holding.map(({ bits }) => bits));
    const want = holding.filter(({ bits }) => bits === longest).map(({ name }) => name);
    const got = ways.to(address);
    expect([formatAddress(address), got]).toEqual([
      formatAddress(address),
      want.length === 0 ? null : [...new Set(want)],
    ]);
  },
);
