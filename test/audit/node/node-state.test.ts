// Verdicts of Service ports, shared by all nodes with the same ports.

import { expect, test } from 'vitest';

import { conformVerdicts, portVerdicts } from '../../../src/audit/node/node-state.ts';
import type { ProxiedPort } from '../../../src/shadow/service-port.ts';

const ports = (...names: readonly string[]) =>
  names.map((name) => ({ key: `${name} tcp IPv4`, namespace: 'shop' }) as ProxiedPort);

const none = {
  different: new Set<string>(),
  pending: new Set<string>(),
  unknown: new Set<string>(),
};
const both = new Set(['IPv4', 'IPv6']);

test('a node without differences shares the list of conform verdicts', () => {
  const conform = conformVerdicts(ports('shop/web:http'));
  expect(conform.map(({ port }) => port)).toEqual(['shop/web:http tcp IPv4']);
  expect(portVerdicts(conform, both, none)).toBe(conform);
});

test('the worst state of a port is its verdict', () => {
  const conform = conformVerdicts(ports('a', 'b', 'c', 'd'));
  const key = (name: string): string => `${name} tcp IPv4`;
  const keys = {
    different: new Set([key('a')]),
    pending: new Set([key('a'), key('b')]),
    unknown: new Set([key('b'), key('c')]),
  };
  expect(portVerdicts(conform, both, keys).map(({ verdict }) => verdict)).toEqual([
    ...['different', 'pending', 'unknown', 'conform'],
  ]);
});

test('ports of a family without known rules are unknown', () => {
  const verdicts = portVerdicts(conformVerdicts(ports('a', 'b')), new Set(['IPv6']), none);
  expect(new Set(verdicts.map(({ reason }) => reason))).toEqual(new Set(['rules-not-known']));
});
