// Pairs of a fault of the rules and a change of slices that kube-proxy has not followed.
// `npm run -s pairs -- --objects test/nodes/faults/*` makes those of all recordings.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { behaviorOfRules } from '../../src/audit/node/observation.ts';
import { readFolder } from './folder.ts';
import { checkObjectPairs } from './pairs.ts';
import { forwardingOf, summarizeNode } from './walk.ts';

const faults = join(import.meta.dirname, 'faults');

test.each([
  'nftables-node-a/source-range-check-unhooked',
  'v1.31.14-nftables-node-a/map-flushed',
  'v1.36.3-nftables-node-a/map-flushed',
  'iptables-nft-node-a/filter-table-flushed',
])('all differences that one fault of the node produces are one finding: %s', (name) => {
  const folder = readFolder(join(faults, name));
  const expected = forwardingOf(folder);
  if (expected === null) throw new Error('No objects');
  const rules = behaviorOfRules(folder.ruleset, folder.node);
  const { findings } = summarizeNode({ ...expected, rules });
  expect(findings).toMatchObject([{ nodeWide: true }]);
});

test('a fault of the rules and a change of an object are both found, and nothing else', () => {
  const reports: string[] = [];
  const path = join(faults, 'v1.37.2-nftables-node-a');
  const counts = checkObjectPairs(path, 1, (text) => reports.push(text));
  expect(reports).toEqual([]);
  expect(counts).toMatchObject({ faults: 7, missed: 0, false: 0 });
  expect(counts.pairs).toBe(7 * counts.objects);
  expect(counts.pairs - counts.followed).toBeGreaterThan(100);
});
