// Verdicts of Service ports, shared by all nodes with the same ports.

import { describe, expect, test } from 'vitest';

import {
  conformVerdicts,
  newNodeState,
  portVerdicts,
  saveNode,
  savedVerdicts,
  type NodeState,
} from '../../../src/audit/node/node-state.ts';
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

describe('the saved results of a node', () => {
  /** A node with this number of ports, and a finding for each that is different. */
  function nodeWith(count: number, isDifferent: (index: number) => boolean): NodeState {
    const state = newNodeState('node-a');
    const conform = conformVerdicts(
      ports(...Array.from({ length: count }, (_, index) => `shop/web-${String(index)}`)),
    );
    const different = new Set(conform.map(({ port }) => port).filter((_, at) => isDifferent(at)));
    state.verdicts = portVerdicts(conform, both, { ...none, different });
    for (const port of different) {
      const item = { difference: {}, severity: 'critical', since: 1, openedAt: 2 };
      const finding = { namespace: 'shop', service: port };
      state.open.set(port, { item, finding } as unknown as MapValue<NodeState['open']>);
    }
    return state;
  }
  type MapValue<T> = T extends Map<string, infer Value> ? Value : never;

  test('have the verdicts of all ports, also if most are wrong', () => {
    for (const part of [0, 0.4, 0.6, 1]) {
      const state = nodeWith(5000, (index) => index < part * 5000);
      const conform = state.verdicts.map((it) => ({ ...it, verdict: 'conform' as const }));
      expect(savedVerdicts(saveNode(state), conform)).toEqual(state.verdicts);
    }
  });

  test('count the findings that they do not have', () => {
    const { findings, moreFindings } = saveNode(nodeWith(3000, (index) => index < 1500));
    expect([findings.length, moreFindings]).toEqual([1000, 500]);
    expect(saveNode(nodeWith(3000, (index) => index < 1000)).moreFindings).toBe(undefined);
  });
});
