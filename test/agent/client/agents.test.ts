// Where agents are, from the slices of their Service.

import { expect, test } from 'vitest';

import { agentsOf } from '../../../src/agent/client/scraper.ts';
import type { Endpoint, EndpointSlice } from '../../../src/model/objects.ts';
import { endpoint, slice } from '../../build.ts';

const at = (ip: string, node: string | null, more: Partial<Endpoint> = {}): Endpoint => ({
  ...endpoint({ addresses: [ip] }),
  node,
  ...more,
});

const of = (endpoints: readonly Endpoint[], more: Partial<EndpointSlice> = {}): EndpointSlice => ({
  ...slice(),
  addressType: 'IPv4',
  ports: [{ name: 'agent', protocol: 'TCP', port: 9466, appProtocol: null }],
  endpoints,
  ...more,
});

test('one for each Node that has an endpoint', () => {
  const slices = [of([at('172.18.0.2', 'a')]), of([at('172.18.0.3', 'b'), at('172.18.0.4', null)])];
  expect(agentsOf(slices)).toEqual(
    new Map([
      ['a', '172.18.0.2:9466'],
      ['b', '172.18.0.3:9466'],
    ]),
  );
});

test('of several on one Node, one that is ready and stays', () => {
  const all = [
    at('172.18.0.2', 'a', { ready: false }),
    at('172.18.0.3', 'a', { terminating: true }),
    at('172.18.0.4', 'a'),
  ];
  for (const list of [all, all.toReversed()]) {
    expect(agentsOf([of(list)]).get('a')).toBe('172.18.0.4:9466');
  }
  expect(agentsOf([of(all.slice(0, 2))]).get('a')).toBe('172.18.0.2:9466');
});

test('names and ports that cannot be asked are none', () => {
  const one = [at('172.18.0.2', 'a')];
  const udp = { name: '', protocol: 'UDP', port: 9466, appProtocol: null };
  expect(agentsOf([of(one, { ports: [] }), of(one, { ports: [udp] })]).size).toBe(0);
  expect(agentsOf([of([at('agents.example', 'a')], { addressType: 'FQDN' })]).size).toBe(0);
});
