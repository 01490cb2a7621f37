// What rules of nodes do to Services with open findings about them.

import { expect, test } from 'vitest';

import { createRuleImpacts } from '../../../src/audit/node/packet-impact.ts';
import type { NodeImpact } from '../../../src/audit/service/impact.ts';

import { plainFinding } from '../../build.ts';

const impact = { misrouted: 0.5, unused: 0 };
const reading = { node: 'a' };

function begun() {
  const changed: string[] = [];
  const state: { last: NodeImpact | null } = { last: null };
  const nodes = { impactOf: () => state.last, impactOn: () => impact };
  const impacts = createRuleImpacts(
    () => nodes,
    (key) => changed.push(key),
  );
  return { impacts, changed, state };
}

const finding = plainFinding('node-endpoint-missing', { node: 'a' });

test('a Service has an impact while a finding about a node names it', () => {
  const { impacts, changed } = begun();
  expect(impacts.impactOn('shop/web')).toBeNull();
  impacts.noteFinding(finding, 1);
  expect(impacts.impactOn('shop/web')).toBe(impact);
  impacts.noteFinding(finding, -1);
  expect(impacts.impactOn('shop/web')).toBeNull();
  expect(changed).toEqual(['shop/web', 'shop/web']);
});

test('a finding about a whole node, or about objects, names no Service', () => {
  const { impacts, changed } = begun();
  const wide = { namespace: '', service: '', node: 'a' };
  impacts.noteFinding(plainFinding('node-rules-flushed', wide), 1);
  impacts.noteFinding(plainFinding('slice-endpoint-missing'), 1);
  expect(changed).toEqual([]);
});

test('a reading changes Services with findings, if its impact is another one', () => {
  const { impacts, changed, state } = begun();
  const services = new Map([
    ['shop/web', impact],
    ['shop/api', impact],
  ]);
  impacts.noteFinding(finding, 1);
  state.last = { services, misrouted: 1, unused: 0, worst: 0.5 };
  impacts.noteReading(reading);
  impacts.noteReading(reading);
  state.last = null;
  impacts.noteReading(reading);
  expect(changed).toEqual(['shop/web', 'shop/web', 'shop/web']);
});
