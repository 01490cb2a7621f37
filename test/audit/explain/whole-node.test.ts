import { expect, test } from 'vitest';

import { explain } from '../../../src/audit/explain/explain.ts';
import type { NodeLookup } from '../../../src/audit/explain/node.ts';
import { explainWholeNode } from '../../../src/audit/explain/whole-node.ts';
import type { Verdict } from '../../../src/audit/finding/verdicts.ts';
import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { auditService, endpoints, node, pod, service, slice } from '../../build.ts';

const { context, serviceAuditor } = auditService([node(), service(), pod(), endpoints(), slice()]);

/** The verdicts on two ports of one Service. */
const lookWith = (...verdicts: Verdict[]): NodeLookup => ({
  verdicts: new Map([
    [
      'node-a',
      verdicts.map((verdict, index) => {
        return { port: `shop/web:p${index} tcp IPv4`, namespace: 'shop', verdict, reason: null };
      }),
    ],
  ]),
  walked: () => null,
  reading: () => ({ age: 12, proxy: defaultProxyConfig('nftables', 36) }),
});

test('a node has the age of its rules, its kube-proxy and the Services that it fails', () => {
  const got = explainWholeNode(context, serviceAuditor, 'node-a', lookWith('different', 'conform'));
  expect(got.verdict).toBe('different');
  expect(got.answer).toBe('Node node-a does not forward 1 of 2 Service ports correctly');
  expect(got.reasons.map(({ text }) => text)).toEqual([
    'Node node-a: Ready, zone zone-a',
    'its rules were read 12 s before',
    'kube-proxy 1.36 in nftables mode, detectLocalMode ClusterCIDR, nodePortAddresses primary',
    'Services that it does not forward correctly: 1: shop/web',
  ]);
});

test('a node with Cilium has its settings, and no mode of kube-proxy', () => {
  const cilium = { ...defaultCiliumConfig(), algorithm: 'maglev' as const };
  const proxy = { ...defaultProxyConfig('cilium', 0), cilium };
  const lookup = { ...lookWith('conform'), reading: () => ({ age: 12, proxy }) };
  const got = explainWholeNode(context, serviceAuditor, 'node-a', lookup);
  const texts = got.reasons.map(({ text }) => text);
  expect(texts).toContain('Cilium, bpf-lb-algorithm maglev, bpf-lb-mode snat');
  expect(texts.join()).not.toContain('kube-proxy');
});

test('a node without a difference forwards all', () => {
  const got = explainWholeNode(context, serviceAuditor, 'node-a', lookWith('conform'));
  expect(got.answer).toBe('Node node-a forwards its only Service port correctly');
});

test('a node without rules is unknown, and one that does not exist is not found', () => {
  const asked = { kind: 'node', node: 'node-a', service: null, port: null } as const;
  const bare = explain(context, serviceAuditor, asked);
  expect(bare).toMatchObject({ found: true, verdict: 'unknown', subject: asked });
  expect(bare.answer).toContain('no rules have been read from this node');
  expect(explain(context, serviceAuditor, { ...asked, node: 'node-z' }).found).toBe(false);
});
