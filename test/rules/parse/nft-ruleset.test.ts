import { describe, expect, test } from 'vitest';

import { parseNft } from '../../../src/rules/parse/nft-ruleset.ts';
import { DumpError, rulesOf } from '../../../src/rules/ruleset.ts';
import { foldersBelow, readBytes } from '../../nodes/folder.ts';
import { walk } from '../rulesets.ts';

const list = (...nftables: unknown[]): string => JSON.stringify({ nftables });
const table = { table: { family: 'ip', name: 't' } };

describe('listings of real nodes', () => {
  const listings = foldersBelow(`${import.meta.dirname}/../../nodes`).flatMap((folder) => {
    const bytes = readBytes(`${folder}/nft.json`);
    return bytes === null ? [] : [{ folder, bytes }];
  });

  test('every table, chain, rule, set and element is there', () => {
    expect(listings.length).toBeGreaterThan(30);
    for (const { folder, bytes } of listings) {
      const { nftables } = JSON.parse(bytes.toString()) as { nftables: Record<string, unknown>[] };
      const count = (kind: string): number => nftables.filter((one) => kind in one).length;
      const { tables } = parseNft(bytes);
      const chains = tables.flatMap((one) => [...one.chains.values()]);
      const sets = tables.flatMap((one) => [...one.sets.values()]);
      const elements = nftables.flatMap((one) => {
        const { elem } = (one.set ?? one.map ?? {}) as { elem?: unknown[] };
        return elem ?? [];
      });
      expect(
        [tables.length, chains.length, chains.flatMap(rulesOf).length, sets.length],
        folder,
      ).toEqual([count('table'), count('chain'), count('rule'), count('set') + count('map')]);
      expect(sets.flatMap((one) => one.elements).length, folder).toBe(elements.length);
    }
  });
});

describe('form', () => {
  test('an empty listing has no tables', () => {
    expect(parseNft('').tables).toEqual([]);
    expect(parseNft(list({ metainfo: {} })).tables).toEqual([]);
  });

  test('base chains, sets with timeouts, and families that are left out', () => {
    const { tables } = parseNft(
      list(
        table,
        { table: { family: 'arp', name: 'a' } },
        { chain: { family: 'arp', table: 'a', name: 'x' } },
        {
          chain: {
            family: 'ip',
            table: 't',
            name: 'pre',
            type: 'nat',
            hook: 'prerouting',
            prio: -100,
          },
        },
        {
          chain: {
            family: 'ip',
            table: 't',
            name: 'in',
            type: 'filter',
            hook: 'input',
            prio: 5,
            policy: 'drop',
          },
        },
        {
          set: {
            family: 'ip',
            table: 't',
            name: 's',
            type: 'ipv4_addr',
            flags: ['timeout'],
            timeout: 60,
          },
        },
      ),
    );
    expect(tables.map(({ name }) => name)).toEqual(['t']);
    const [only] = tables;
    expect(only?.chains.get('pre')?.base).toMatchObject({
      type: 'nat',
      priority: -100,
      policy: 'accept',
    });
    expect(only?.chains.get('in')?.base).toMatchObject({
      hook: 'input',
      priority: 5,
      policy: 'drop',
    });
    expect(only?.sets.get('s')).toMatchObject({ dynamic: true, timeoutSeconds: 60, elements: [] });
  });

  test('a chain at a device comes first, and is for that device', () => {
    const chain = {
      family: 'netdev',
      table: 'd',
      name: 'x',
      type: 'filter',
      hook: 'ingress',
      dev: 'eth0',
    };
    const rule = { family: 'netdev', table: 'd', chain: 'x', expr: [{ drop: null }] };
    const { tables } = parseNft(
      list({ table: { family: 'netdev', name: 'd' } }, { chain }, { rule }),
    );
    const read = tables[0]?.chains.get('x');
    expect(read?.base).toMatchObject({ hook: 'prerouting' });
    expect(read && rulesOf(read)[0]?.statements.map(({ kind }) => kind)).toEqual([
      'interface',
      'drop',
    ]);
  });

  test('a chain whose device is not listed may be for any device', () => {
    const chain = { family: 'netdev', table: 'd', name: 'x', type: 'filter', hook: 'ingress' };
    const rule = { family: 'netdev', table: 'd', chain: 'x', expr: [{ drop: null }] };
    const [read] = parseNft(
      list({ table: { family: 'netdev', name: 'd' } }, { chain }, { rule }),
    ).tables.flatMap(({ chains }) => [...chains.values()]);
    expect(read && rulesOf(read)[0]?.statements.map(({ kind }) => kind)).toEqual([
      'unknown',
      'drop',
    ]);
  });

  test.each(['dormant', ['owner', 'dormant']])('a table with flags %j is not hooked', (flags) => {
    const chain = { ...table.table, table: 't', name: 'x', type: 'nat', hook: 'output', prio: 0 };
    const hooksOf = (body: object): unknown[] =>
      parseNft(list({ table: body }, { chain })).tables.flatMap(({ chains }) =>
        [...chains.values()].map(({ base }) => base?.hook),
      );
    expect(hooksOf({ ...table.table, flags })).toEqual([undefined]);
    expect(hooksOf({ ...table.table, flags: 'owner' })).toEqual(['output']);
  });

  test('how long a set remembers is said where it is filled', () => {
    const set = { family: 'ip', table: 't', name: 's', flags: ['timeout'], timeout: 10_800 };
    const chain = { family: 'ip', table: 't', name: 'c' };
    const source = { payload: { protocol: 'ip', field: 'saddr' } };
    const secondsBy = (elem: object): unknown => {
      const expr = [{ set: { op: 'update', elem, set: '@s' } }];
      const rule = { family: 'ip', table: 't', chain: 'c', expr };
      return parseNft(list(table, { set }, { chain }, { rule })).tables[0]?.sets.get('s')
        ?.timeoutSeconds;
    };
    expect(secondsBy(source)).toBe(10_800);
    expect(secondsBy({ elem: { val: source, timeout: 60 } })).toBe(60);
  });

  test.each([
    ['{"nftables": [', 'Line 1: not JSON'],
    ['{\n"nftables": [\n,', 'Line 3: not JSON'],
    ['{}', 'no list "nftables"'],
    [list(null), 'not an object of nft'],
    [
      list({ chain: { family: 'ip', table: 'x', name: 'c' } }),
      'a chain of a table that is not listed',
    ],
    [
      list(table, { rule: { family: 'ip', table: 't', chain: 'c', expr: [] } }),
      'a chain that is not listed',
    ],
    [
      list(
        table,
        { chain: { family: 'ip', table: 't', name: 'c' } },
        { rule: { family: 'ip', table: 't', chain: 'c' } },
      ),
      'a rule of no expressions',
    ],
  ])('%s', (text, message) => {
    expect(() => parseNft(text)).toThrow(DumpError);
    expect(() => parseNft(text)).toThrow(message);
  });
});

describe('keys that nft writes as words', () => {
  const node = { localAddresses: ['10.0.0.1'], interfaces: { pod: 'veth1', outside: 'eth0' } };
  const packet = {
    from: 'outside',
    src: '198.51.100.7',
    dst: '10.0.0.1',
    protocol: 'tcp',
    dport: 80,
  } as const;
  const own = { family: 'inet', table: 't' };
  const meta = (key: string): unknown => ({ meta: { key } });
  const state = { ct: { key: 'state' } };
  const base = { ...own, name: 'in', type: 'filter', hook: 'input', prio: 0, policy: 'accept' };
  const dropsBy = (key: unknown, word: unknown, type: unknown): number => {
    const elem = [[word, { drop: null }]];
    const data = type === null ? { set: elem } : '@m';
    const ruleset = parseNft(
      list(
        { table: { family: 'inet', name: 't' } },
        { chain: base },
        ...(type === null ? [] : [{ map: { ...own, name: 'm', type, map: 'verdict', elem } }]),
        { rule: { ...own, chain: 'in', expr: [{ vmap: { key, data } }] } },
      ),
    );
    return walk(ruleset, node, packet).drop.probability;
  };

  test.each([
    [state, 'new', 'established', 'ct_state'],
    [meta('iif'), 'eth0', 'eth1', 'iface_index'],
    [meta('iifname'), 'eth0', 'eth1', 'ifname'],
    [meta('protocol'), 'ip', 'ip6', 'ether_type'],
    [meta('nfproto'), 'ipv4', 'ipv6', 'nf_proto'],
  ])('%j finds %s, and not %s', (key, word, other, type) => {
    for (const how of [null, type, { typeof: key }]) {
      expect(dropsBy(key, word, how)).toBe(1);
      expect(dropsBy(key, other, how)).toBe(0);
    }
    const both = { concat: [key, meta('l4proto')] };
    const types = { typeof: both };
    for (const how of [null, [type, 'inet_proto'], types]) {
      expect(dropsBy(both, { concat: [word, 'tcp'] }, how)).toBe(1);
      expect(dropsBy(both, { concat: [other, 'tcp'] }, how)).toBe(0);
    }
  });
});
