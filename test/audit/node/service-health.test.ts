// The health of a Service: the worst of what the controllers wrote, of its input and of nodes.

import { expect, test } from 'vitest';

import type { NodeVerdict } from '../../../src/audit/node/node-state.ts';
import { indexHealth } from '../../../src/audit/node/service-health.ts';
import { findingOf } from '../../output/samples.ts';

const verdictOf = (verdict: NodeVerdict['verdict'], service = 'web'): NodeVerdict => ({
  port: `shop/${service}:http TCP IPv4`,
  namespace: 'shop',
  verdict,
  reason: verdict === 'unknown' ? 'agent-absent' : null,
});

const nodesOf = (...verdicts: NodeVerdict['verdict'][]) =>
  new Map(verdicts.map((verdict, index) => [`node-${index}`, [verdictOf(verdict)]]));

const fine = ['conform', 'conform', null] as const;
const nothing = { critical: 0, warning: 0, info: 0 };

test('findings about the input and on nodes count as those of the controllers do', () => {
  const open = [
    findingOf({ output: 'input', severity: 'warning' }),
    findingOf({ output: 'node', node: 'node-0', severity: 'critical' }),
    findingOf({ service: 'api' }),
  ];
  const index = indexHealth(open, nodesOf('different'), new Set());
  expect(index.healthOf('shop/web', fine)).toEqual({
    verdict: 'different',
    severity: 'critical',
    findings: { critical: 1, warning: 1, info: 0 },
  });
  expect(index.findingsOf('shop/web').map(({ severity }) => severity)).toEqual([
    'critical',
    'warning',
  ]);
});

test('a finding about a whole node concerns the Services whose ports differ there', () => {
  const whole = { output: 'node', node: 'node-0', namespace: '', service: '' } as const;
  const open = [
    findingOf({ ...whole, object: 'Node node-0: shop/web:http and 3 more' }),
    findingOf({ ...whole, object: '10.96.0.9:80/tcp from anywhere' }),
  ];
  const nodes = new Map([['node-0', [verdictOf('different'), verdictOf('conform', 'api')]]]);
  const index = indexHealth(open, nodes, new Set());
  expect(index.findingsOf('shop/web')).toEqual(open.slice(0, 1));
  expect(index.findingsOf('shop/api')).toEqual([]);
});

test('a node whose rules are unknown, or stale, does not change the verdict', () => {
  const unknown = indexHealth([], nodesOf('unknown', 'conform'), new Set());
  expect(unknown.healthOf('shop/web', fine)).toEqual({
    verdict: 'conform',
    severity: null,
    findings: nothing,
  });
  const stale = indexHealth([], nodesOf('different'), new Set(['services']));
  expect(stale.healthOf('shop/web', fine).verdict).toBe('conform');
  expect(indexHealth([], nodesOf('pending'), new Set()).healthOf('shop/web', fine).verdict).toBe(
    'pending',
  );
});

test('a Service without outputs has no verdict', () => {
  expect(indexHealth([], null, new Set()).healthOf('shop/web', [null, null, null])).toEqual({
    verdict: null,
    severity: null,
    findings: nothing,
  });
});
