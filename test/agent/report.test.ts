// What an agent reads out of dumps: backend, mode, and frontends.

import { describe, expect, test } from 'vitest';

import type { CollectedDump } from '../../src/agent/collect.ts';
import { mapsProgram, programs } from '../../src/agent/collect.ts';
import type { NodeFacts } from '../../src/agent/node-facts.ts';
import {
  askingOf,
  contextOf,
  createReport,
  detailsOf,
  digestsOf,
  parseRules,
  readDumps,
} from '../../src/agent/report.ts';
import { readBytes } from '../nodes/folder.ts';

const recordings = `${import.meta.dirname}/../nodes/recordings/main`;

const place: NodeFacts = {
  node: 'node-a',
  localAddresses: ['172.18.0.2', 'fd00:18::2', '10.244.1.0', '10.244.1.1'],
  interfaces: ['lo', 'eth0', 'veth0a1b2c3d', 'sink0'],
  routes: null,
  nodeIPs: ['172.18.0.2', 'fd00:18::2'],
  podCIDRs: ['10.244.1.0/24', 'fd00:10:244:1::/64'],
};

function dumpOf(name: string, bytes: Buffer | string | null): CollectedDump {
  const program = programs.findLast((one) => one.name === name);
  if (program === undefined || bytes === null) throw new Error(`There is no ${name}`);
  return { program, bytes: Buffer.from(bytes) };
}

const recorded = (name: string, path: string): CollectedDump =>
  dumpOf(name, readBytes(`${recordings}/${path}`));

const save = (table: string, ...lines: string[]): string =>
  [`*${table}`, ':PREROUTING ACCEPT [0:0]', ...lines, 'COMMIT', ''].join('\n');

const [hint, canary] = [':KUBE-IPTABLES-HINT - [0:0]', ':KUBE-KUBELET-CANARY - [0:0]'];

describe('backend and mode', () => {
  test.each<[string, readonly CollectedDump[], unknown, unknown]>([
    ['no rules', [], null, null],
    [
      'iptables-nft',
      [recorded('iptables-nft-save', 'iptables-nft/node-a/iptables-save.txt')],
      'nft',
      'iptables',
    ],
    [
      'iptables-legacy',
      [recorded('iptables-legacy-save', 'iptables-legacy/node-b/iptables-save.txt')],
      'legacy',
      'iptables',
    ],
    ['nftables', [recorded('nft', 'nftables/node-a/nft.json')], null, 'nftables'],
    [
      'a hint against more rules',
      [
        dumpOf(
          'iptables-nft-save',
          save('nat', ...Array<string>(50).fill('-A PREROUTING -j DROP')),
        ),
        dumpOf('iptables-legacy-save', save('mangle', hint)),
      ],
      'legacy',
      null,
    ],
    [
      'a hint against a canary',
      [
        dumpOf('iptables-nft-save', save('mangle', canary)),
        dumpOf('ip6tables-legacy-save', save('mangle', hint)),
      ],
      'legacy',
      null,
    ],
    [
      'more rules',
      [
        dumpOf('iptables-nft-save', save('mangle')),
        dumpOf('iptables-legacy-save', save('nat', '-A PREROUTING -j DROP')),
      ],
      'legacy',
      null,
    ],
  ])('%s', (_, dumps, backend, mode) => {
    expect(readDumps(dumps)).toMatchObject({ backend, mode });
  });

  test('a dump that is cut off is an error', () => {
    const whole = save('nat');
    expect(() => readDumps([dumpOf('iptables-nft-save', whole.slice(0, -8))])).toThrow(SyntaxError);
  });
});

test('the rules of a node with more addresses than are walked are unknown', () => {
  const dumps = [recorded('nft', 'nftables/node-a/nft.json')];
  const addresses = Array.from({ length: 1025 }, (_, at) => `10.96.${at >> 8}.${at & 255}`);
  const most = { ...place, localAddresses: addresses.slice(1), nodeIPs: addresses.slice(1, 2) };
  expect(parseRules(dumps, most)).toMatchObject({ rules: { mode: 'nftables' }, problems: [] });
  const facts = { ...most, localAddresses: addresses };
  const { rules, problems } = parseRules(dumps, facts);
  expect(rules).toBeNull();
  expect(problems).toEqual([expect.stringContaining('The node has 1025 addresses')]);
  const report = createReport(null, facts, { states: {}, problems }, rules);
  expect(report).toMatchObject({ problems, frontends: {} });
  expect(report.localAddresses).toHaveLength(1024);
  // The addresses of the Node count, too: packets to node ports go there.
  expect(parseRules(dumps, { ...most, nodeIPs: ['203.0.113.7'] }).rules).toBeNull();
});

test('a report says of how many addresses it has some', () => {
  const report = createReport(null, place, { states: {}, problems: [] }, null);
  expect(report.addressCount).toBe(report.localAddresses.length);
});

describe('frontends', () => {
  const parsed = readDumps([
    recorded('iptables-nft-save', 'iptables-nft/node-a/iptables-save.txt'),
    recorded('ip6tables-nft-save', 'iptables-nft/node-a/ip6tables-save.txt'),
  ]);
  const digests = digestsOf(parsed, place);

  test('each has its digest, the same each time and with both families', () => {
    expect(digests.size).toBe(parsed.frontends.length);
    expect(digestsOf(parsed, place)).toEqual(digests);
    const six = [...digests.keys()].filter((key) => key.includes('['));
    expect(six.length).toBeGreaterThan(0);
  });

  test('rules in another order and under other names have the same digests', () => {
    const legacy = readDumps([
      recorded('iptables-legacy-save', 'iptables-nft/node-a/iptables-save.txt'),
      recorded('ip6tables-legacy-save', 'iptables-nft/node-a/ip6tables-save.txt'),
    ]);
    const other = digestsOf({ ...legacy, frontends: [...legacy.frontends].reverse() }, place);
    for (const [key, digest] of digests) expect(other.get(key), key).toBe(digest);
  });

  test('details contain packets, words and the rules that decided', () => {
    const [key = ''] = [...digests.keys()].filter((one) => one.startsWith('tcp 10.96.'));
    const details = detailsOf(parsed, place, key) ?? [];
    expect(details.map(({ packet }) => packet.from)).toEqual(['node', 'pod', 'outside']);
    const texts = details.flatMap(({ rules }) => Object.values(rules).flat());
    expect(texts.some((text) => text.startsWith('-A KUBE-'))).toBe(true);
    expect(detailsOf(parsed, place, 'tcp 10.96.0.1:1')).toBeNull();
  });
});

test('senders are the node, one of its pods, and an unknown host', () => {
  expect(askingOf(place, null)).toEqual({
    ip: { node: '172.18.0.2', pod: '10.244.1.251', outside: '198.51.100.7' },
    ip6: { node: 'fd00:18::2', pod: 'fd00:10:244:1::fb', outside: '2001:db8::7' },
    addresses: ['172.18.0.2', 'fd00:18::2', '127.0.0.1'],
    pods: place.podCIDRs,
    strays: false,
  });
  const bare = { ...place, nodeIPs: [], podCIDRs: [] };
  expect(askingOf(bare, null).ip).toEqual({ node: null, pod: null, outside: '198.51.100.7' });
  expect(contextOf({ ...bare, interfaces: null })).toEqual({
    localAddresses: place.localAddresses,
  });
});

test('without a pod range, any address that the rules treat as a pod address is used', () => {
  const parsed = readDumps([
    recorded('iptables-nft-save', 'iptables-nft/node-a/iptables-save.txt'),
  ]);
  const asking = askingOf({ ...place, podCIDRs: [] }, parsed);
  expect(asking).toMatchObject({ ip: { pod: '10.244.0.251' }, pods: [], strays: false });
});

describe('maps of Cilium', () => {
  const entry = (key: string, value: string): object => {
    const bytes = (text: string) => text.match(/[0-9a-f]{2}/g)?.map((byte) => `0x${byte}`);
    return { key: bytes(key), value: bytes(value) };
  };
  /** A node port at any address and at one of the node, with one backend, and source ranges. */
  const maps = {
    services_v2: [
      entry('00000000 7530 0000 06 00 0000', '00000000 0100 0001 0200 0000'),
      entry('00000000 7530 0100 06 00 0000', '07000000 0000 0001 0200 0000'),
      entry('ac120002 7530 0000 06 00 0000', '00000000 0100 0002 c200 0000'),
      entry('ac120002 7530 0100 06 00 0000', '07000000 0000 0002 c200 0000'),
    ],
    backends_v3: [entry('07000000', '0af40001 1f90 06 00 0000 00 00')],
    reverse_nat: [entry('0002', 'ac120002 7530')],
    source_range: [entry('38000000 0002 0000 c6336400', '00')],
  };
  const answers = Object.entries(maps).map(([name, output]) => ({
    command: ['map', 'dump', 'pinned', `/sys/fs/bpf/tc/globals/cilium_lb4_${name}`],
    output,
  }));
  const dump: CollectedDump = {
    program: mapsProgram,
    bytes: Buffer.from(JSON.stringify(answers)),
  };

  test('have a report of the same form, with what they show of the flags of Cilium', () => {
    const rules = readDumps([dump]);
    const report = createReport(null, place, { states: {}, problems: [] }, rules);
    expect(report).toMatchObject({
      mode: 'cilium',
      backend: null,
      problems: [],
      settings: { cilium: { mode: 'snat', nodePortAddresses: ['172.18.0.2'] } },
      sourceRanges: { 'tcp *:30000': ['198.51.100.0/24'] },
      asking: { addresses: ['172.18.0.2', 'fd00:18::2', '::1', '127.0.0.1'] },
    });
    // The entry at the address of the node is behind the one for any address.
    expect(Object.keys(report.frontends)).toEqual(['tcp *:30000']);
    const words = detailsOf(rules, place, 'tcp *:30000')?.map((one) => one.words);
    expect(words).toContain('10.244.0.1:8080 1/1 masqueraded');
  });

  test('with rules of kube-proxy make the node unknown, and other rules do not', () => {
    const iptables = recorded('iptables-nft-save', 'iptables-nft/node-a/iptables-save.txt');
    const { rules, problems } = parseRules([iptables, dump], place);
    expect([rules, problems]).toEqual([null, [expect.stringContaining('--dataplane')]]);
    const foreign = dumpOf('iptables-nft-save', save('nat', '-A PREROUTING -j DROP'));
    const read = parseRules([foreign, dump], place);
    expect(read).toMatchObject({ rules: { mode: 'cilium' }, problems: [] });
  });

  test('of another layout make the node unknown', () => {
    const bytes = Buffer.from(dump.bytes.toString().replace('"0x00",', ''));
    const { rules, problems } = parseRules([{ program: mapsProgram, bytes }], place);
    expect([rules, problems]).toEqual([null, [expect.stringContaining('layout')]]);
  });
});
