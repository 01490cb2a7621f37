// What rules of nodes do to Services with open findings about them.

import { expect, test } from 'vitest';

import { auditNode } from '../../../src/audit/node/audit-node.ts';
import { packetClass } from '../../../src/audit/node/packet-difference.ts';
import { createRuleImpacts } from '../../../src/audit/node/packet-impact.ts';
import type { NodeImpact } from '../../../src/audit/service/impact.ts';

import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import { parseCIDR } from '../../../src/model/ip.ts';
import { defaultProxyConfig, type Packet } from '../../../src/model/proxy-config.ts';
import type { Destination, PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { ciliumForwarding } from '../../../src/shadow/cilium/forwarding.ts';
import { slicesByService } from '../../../src/shadow/forwarding.ts';
import { node, plainFinding, service, slice } from '../../build.ts';

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

/** An audit of Cilium that drops some packets, and has a source range that no Service has. */
function auditDropping(isDropped: (packet: Packet) => boolean) {
  const own = node();
  const config = defaultProxyConfig('cilium', 0);
  const cilium = { ...defaultCiliumConfig(), externalClusterIP: true };
  const forwarding = ciliumForwarding([service()], slicesByService([slice()]), own, config, cilium);
  const range = parseCIDR('9.9.9.0/24');
  if (range === null) throw new Error('No range');
  const share = (probability: number) => ({ probability, masqueraded: false, trace: () => [] });
  const none = { ...{ reject: share(0), pass: share(0), drop: share(0) }, unknown: [] };
  const walk = (packet: Packet): PacketOutcome => {
    const [want] = forwarding.expect(packet).outcomes;
    if (isDropped(packet)) return { ...none, destinations: new Map(), drop: share(1) };
    if (want?.kind !== 'endpoints') return { ...none, destinations: new Map(), pass: share(1) };
    const { endpoints, affinitySeconds } = want;
    const destinations = [...endpoints].map(([name, masqueraded]): [string, Destination] => {
      const affinity = affinitySeconds !== null;
      return [name, { ...share(1 / endpoints.size), masqueraded, affinity, affinitySeconds }];
    });
    return { ...none, destinations: new Map(destinations) };
  };
  const rules = { frontends: [], localAddresses: own.addresses, walk, report: null };
  return auditNode({ forwarding, node: own, rules: { ...rules, sourceRangesAt: () => [range] } });
}

test('packets for source ranges that only the node has count, and are covered', () => {
  const isBeside = ({ src }: Packet): boolean => /^9\.9\.(?:8\.255|9\.|10\.0)/.test(src);
  const all = auditDropping(() => true);
  expect(all.impact.worst).toBe(1);
  const some = auditDropping(isBeside);
  const rest = auditDropping((packet) => !isBeside(packet));
  expect(some.impact.worst).toBeGreaterThan(0);
  expect(some.impact.worst + rest.impact.worst).toBeCloseTo(1);
  const classes = some.differences.map(({ kind, origin }) =>
    packetClass({ property: 'endpoints', kind, family: 'IPv4', origin }),
  );
  expect(classes.map((it) => some.coverage.get(it))).toEqual(classes.map(() => 1));
  expect(classes.length).toBeGreaterThan(0);
});
