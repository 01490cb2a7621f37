// Verdicts of Service ports, held once for all nodes.

import { expect, test } from 'vitest';

import { createPortNames, portVerdicts } from '../../../src/audit/node/verdicts.ts';
import type { Forwarding } from '../../../src/shadow/forwarding.ts';

const forwarding = (...names: readonly string[]): Forwarding =>
  ({
    ports: names.map((name) => ({ name, namespace: 'shop', protocol: 'tcp', family: 'IPv4' })),
  }) as unknown as Forwarding;

const none = {
  different: new Set<string>(),
  pending: new Set<string>(),
  unknown: new Set<string>(),
};
const both = new Set(['IPv4', 'IPv6']);

test('nodes with the same ports have one list of names, and one of verdicts', () => {
  const names = createPortNames();
  const first = names(forwarding('shop/web:http', 'shop/api:http'));
  expect(names(forwarding('shop/web:http', 'shop/api:http'))).toBe(first);
  expect(portVerdicts(first, both, none)).toBe(portVerdicts(first, both, none));
  const other = names(forwarding('shop/web:http'));
  expect(other.map(({ port }) => port)).toEqual(['shop/web:http tcp IPv4']);
});

test('the worst that is known of a port is its verdict', () => {
  const names = createPortNames()(forwarding('a', 'b', 'c', 'd'));
  const of = (name: string): string => `${name} tcp IPv4`;
  const ported = {
    different: new Set([of('a')]),
    pending: new Set([of('a'), of('b')]),
    unknown: new Set([of('b'), of('c')]),
  };
  expect(portVerdicts(names, both, ported).map(({ verdict }) => verdict)).toEqual([
    ...['different', 'pending', 'unknown', 'conform'],
  ]);
  const blind = portVerdicts(names, new Set(['IPv6']), ported);
  expect(new Set(blind.map(({ reason }) => reason))).toEqual(new Set(['rules-not-known']));
});
