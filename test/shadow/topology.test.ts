// Which endpoints a kube-proxy may use. The cases are those of CategorizeEndpoints;
// forwarding.test.ts compares whole nodes with real kernels.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Endpoint } from '../../src/model/objects.ts';
import type { EndpointRules, ProxyEndpoint } from '../../src/shadow/topology.ts';
import { categorize, endpointSets } from '../../src/shadow/topology.ts';
import { endpoint, port, slice } from '../build.ts';

const place = { node: 'node-a', zone: 'zone-a' };
const rules: EndpointRules = { ...place, nodeHints: true, prefers: 'running' };
const http = { name: 'http', protocol: 'TCP', family: 'IPv4' } as const;

const of = (...lists: readonly Partial<Endpoint>[][]) =>
  lists.map((list) => slice({ endpoints: list.map((one) => endpoint(one)) }));

const setsOf = (lists: readonly Partial<Endpoint>[][], more: Partial<EndpointRules> = {}) =>
  endpointSets(of(...lists), http, { ...rules, ...more });

const at = (ip: string, more: Partial<Endpoint> = {}): Partial<Endpoint> => ({
  addresses: [ip],
  ...more,
});

describe('endpointSets', () => {
  test('null conditions are ready, serving and not terminating', () => {
    const sets = setsOf([[at('10.0.0.1', { ready: null, serving: null, terminating: null })]]);
    expect(sets?.[0]?.[0]).toMatchObject({ ready: true, lastResort: false, local: true });
  });

  test('only the port of that name and protocol counts, and an address that is one', () => {
    const one = slice({
      ports: [port(), port({ name: 'dns', protocol: 'UDP', port: 53 }), port({ port: null })],
      endpoints: [endpoint(), endpoint({ addresses: [] }), endpoint({ addresses: ['web'] })],
    });
    const texts = (name: string, protocol: string): unknown =>
      endpointSets([one], { ...http, name, protocol }, rules)?.[0]?.map(({ text }) => text);
    expect(texts('http', 'TCP')).toEqual(['10.0.0.1:8080']);
    expect(texts('dns', 'UDP')).toEqual(['10.0.0.1:53']);
    expect(texts('dns', 'TCP')).toEqual([]);
  });

  test('slices of another family are of no account', () => {
    const six = slice({ addressType: 'IPv6', endpoints: [endpoint({ addresses: ['fd00::1'] })] });
    expect(endpointSets([six], http, rules)).toEqual([[]]);
    const sets = endpointSets([six], { ...http, family: 'IPv6' }, rules);
    expect(sets?.[0]?.[0]?.text).toBe('[fd00::1]:8080');
  });

  const ready = at('10.0.0.1');
  const notReady = at('10.0.0.1', { ready: false });
  const terminating = at('10.0.0.1', { ready: false, terminating: true });
  const elsewhere = at('10.0.0.1', { node: 'node-b' });

  test.each<[string, Partial<Endpoint>[][], EndpointRules['prefers'], number, string[]]>([
    ['equal ones are one', [[ready], [ready]], 'running', 1, ['ready']],
    ['either of two in two slices', [[ready], [notReady]], 'running', 2, ['ready', 'other']],
    ['the last of two in one slice', [[ready, notReady]], 'running', 1, ['other']],
    ['a running one before a terminating one', [[terminating], [ready]], 'running', 1, ['ready']],
    ['a local one before others, once', [[elsewhere], [ready]], 'local', 1, ['ready']],
    ['the first, where none is preferred', [[terminating, terminating]], 'running', 1, ['other']],
  ])('%s', (_, lists, prefers, count, want) => {
    const sets = setsOf(lists, { prefers }) ?? [];
    expect(sets).toHaveLength(count);
    expect(sets.flat().map((one) => (one.ready && one.local ? 'ready' : 'other'))).toEqual(want);
  });

  test('too many possible sets are none', () => {
    const conflicting = Array.from({ length: 7 }, (_, n) => [
      [at(`10.0.0.${n}`)],
      [at(`10.0.0.${n}`, { ready: false })],
    ]).flat();
    expect(setsOf(conflicting.slice(0, 12))).toHaveLength(64);
    expect(setsOf(conflicting)).toBeNull();
  });
});

const member: fc.Arbitrary<ProxyEndpoint> = fc
  .record({
    n: fc.nat(9),
    local: fc.boolean(),
    ready: fc.boolean(),
    lastResort: fc.boolean(),
    zones: fc.subarray(['zone-a', 'zone-b']),
    nodes: fc.subarray(['node-a', 'node-b']),
  })
  .map(({ n, ...more }) => ({
    ...more,
    text: `10.0.0.${n}:80`,
    ip: `10.0.0.${n}`,
    terminating: more.lastResort,
  }));
const members = fc.uniqueArray(member, { selector: ({ text }) => text, maxLength: 6 });
const uses = { cluster: true, local: true };

describe('categorize', () => {
  const one = (more: Partial<ProxyEndpoint>): ProxyEndpoint => ({
    text: `${more.ip ?? '10.0.0.1'}:80`,
    ip: '10.0.0.1',
    local: false,
    ready: true,
    lastResort: false,
    terminating: false,
    zones: [],
    nodes: [],
    ...more,
  });
  const near = one({ ip: '10.0.0.1', zones: ['zone-a'], nodes: ['node-a'], local: true });
  const far = one({ ip: '10.0.0.2', zones: ['zone-b'], nodes: ['node-b'] });
  const bare = one({ ip: '10.0.0.3' });
  const dying = one({ ip: '10.0.0.4', ready: false, lastResort: true, terminating: true });

  test.each<[string, ProxyEndpoint[], string[]]>([
    ['hints by node', [near, far], ['10.0.0.1']],
    ['hints by zone, where one has none by node', [near, { ...far, nodes: [] }], ['10.0.0.1']],
    ['no hints, where one has none', [near, far, bare], ['10.0.0.1', '10.0.0.2', '10.0.0.3']],
    ['no hints, where none is for here', [far], ['10.0.0.2']],
    ['those that serve to the end, where none is ready', [dying], ['10.0.0.4']],
    ['ready ones before those', [dying, far], ['10.0.0.2']],
  ])('%s', (_, endpoints, want) => {
    const { cluster } = categorize(endpoints, uses, rules);
    expect(cluster.map(({ ip }) => ip)).toEqual(want);
  });

  test('what is used is listed, local is local, and something is used if anything is', () => {
    fc.assert(
      fc.property(members, (endpoints) => {
        const { cluster, local, any } = categorize(endpoints, uses, rules);
        expect(local.every((one) => one.local)).toBe(true);
        expect(cluster.every((one) => endpoints.includes(one))).toBe(true);
        const usable = endpoints.some(({ ready, lastResort }) => ready || lastResort);
        expect(any).toBe(usable);
        expect(cluster.length > 0).toBe(usable);
        const ready = endpoints.some((one) => one.ready);
        if (ready) expect(cluster.every((one) => one.ready)).toBe(true);
      }),
    );
  });

  test('a policy that is not in use yields nothing', () => {
    expect(categorize([near], { cluster: true, local: false }, rules).local).toEqual([]);
    const { cluster, any } = categorize([far], { cluster: false, local: true }, rules);
    expect([cluster, any]).toEqual([[], true]);
  });
});
