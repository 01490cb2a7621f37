// How much could have been found on a recorded node.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import { fullCoverage, countTranslated, proxiedPortKey } from '../../../src/audit/node/probes.ts';
import { frontendsInRules } from '../../../src/rules/report/frontends.ts';
import { forwardingOf } from '../../nodes/audit.ts';
import { readFolder } from '../../nodes/folder.ts';

const folder = readFolder(
  join(import.meta.dirname, '../../nodes/recordings/main/iptables-nft/node-a'),
);
const expected = forwardingOf(folder);
if (expected === null) throw new Error('No objects');
const { forwarding, node } = expected;

test('all that can be asked for is what an audit asks for', () => {
  const rules = behaviorOfRules(folder.ruleset, folder.node);
  const sizes = (asked: ReadonlyMap<string, { readonly size: number }>): unknown =>
    [...asked].map(([group, { size }]) => `${group} ${size}`).sort();
  const all = fullCoverage(forwarding, node);
  expect(sizes(all)).toEqual(sizes(auditNode({ forwarding, node, rules }).coverage));
  const names = new Set(forwarding.ports.map(proxiedPortKey));
  expect(all.get('node-frontend-missing cluster IP IPv4')?.size).toBeLessThanOrEqual(names.size);
});

test('claims are counted where something is translated', () => {
  const claims = frontendsInRules(folder.ruleset);
  const { IPv4, IPv6 } = countTranslated(claims);
  expect(IPv4).toBeGreaterThan(0);
  expect(IPv4 + IPv6).toBe(claims.filter(({ translators }) => translators > 0).length);
  expect(countTranslated(claims.map((claim) => ({ ...claim, translators: 0 })))).toEqual({
    IPv4: 0,
    IPv6: 0,
  });
});
