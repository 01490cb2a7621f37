import { expect, test } from 'vitest';

import { explain } from '../../../src/audit/explain/explain.ts';
import type { Reason } from '../../../src/audit/explain/explanation.ts';
import type { NodeLookup } from '../../../src/audit/explain/node.ts';
import { explainNode } from '../../../src/audit/explain/node.ts';
import type { PacketTrace } from '../../../src/audit/node/audit-node.ts';
import { auditService, endpoints, node, plainFinding, pod, service, slice } from '../../build.ts';

const { context, serviceAuditor } = auditService([node(), service(), pod(), endpoints(), slice()]);
const [port] = service().ports;
const name = port?.name === '' ? 'shop/web' : `shop/web:${port?.name ?? ''}`;

const difference: PacketTrace['differences'][number] = {
  code: 'node-endpoint-missing',
  port: null,
  frontend: '10.96.0.1:80/tcp',
  key: 'it',
  kind: 'cluster IP',
  origin: 'a pod of the node',
  effect: '',
  properties: [],
  expected: 'all of it',
  actual: 'some of it',
  endpoint: '10.0.0.1:80',
  sides: ['receives 50% of connections', null],
  rule: null,
  harmless: false,
};

const packet = (verdict: PacketTrace['verdict']): PacketTrace => ({
  kind: 'cluster IP',
  frontend: '10.96.0.1:80/tcp',
  origin: 'a pod of the node',
  verdict,
  expected: '10.0.0.1:80',
  actual: 'drop 100%',
  wanted: [],
  allowed: [],
  got: [],
  differences: verdict === 'different' ? [difference] : [],
  rules: ['-A FORWARD -j DROP'],
  unknown: [],
});

const lookWith = (verdict: 'conform' | 'different'): NodeLookup => ({
  verdicts: new Map([
    ['node-a', [{ port: `${name} tcp IPv4`, namespace: 'shop', verdict, reason: null }]],
  ]),
  walked: () => [packet(verdict)],
  reading: () => ({ age: null, proxy: null }),
});

const asked = { kind: 'node' as const, node: 'node-a', service: 'shop/web', port: null };
const textsOf = (reasons: readonly Reason[]): string[] =>
  reasons.flatMap(({ text, parts }) => [text, ...textsOf(parts)]);

test('a conform node shows no rules', () => {
  const got = explainNode(context, serviceAuditor, asked, lookWith('conform'));
  expect(got).toMatchObject({ verdict: 'conform', severity: null, change: null });
  expect(got.answer).toBe('Node node-a forwards Service shop/web correctly');
  expect(textsOf(got.reasons)).not.toContain('-A FORWARD -j DROP');
});

test('a node that differs shows the rules that packets met', () => {
  const got = explainNode(context, serviceAuditor, asked, lookWith('different'));
  expect(got.verdict).toBe('different');
  expect(got.answer).toContain('does not forward Service shop/web correctly');
  expect(textsOf(got.reasons)).toEqual([
    `${name} at 10.96.0.1:80/tcp (cluster IP), from a pod of the node: mismatch`,
    'rules that the packet matches: 1',
    '-A FORWARD -j DROP',
  ]);
  expect(got.reasons[0]?.differences).toEqual([
    {
      code: 'node-endpoint-missing',
      address: '10.0.0.1:80',
      pod: 'shop/web-1',
      field: 'outcome',
      expected: 'receives 50% of connections',
      actual: null,
      object: 'Node node-a',
    },
  ]);
});

test('packets with equal results share one reason, which names the pods of the endpoints', () => {
  const wrong = {
    ...packet('different'),
    wanted: ['10.0.0.1:80', '10.0.0.2:80'],
    allowed: ['10.0.0.1:80', '10.0.0.2:80'],
    got: ['10.0.0.2:80', '10.0.0.9:80'],
  };
  const packets = [
    { ...packet('conform'), origin: 'outside the cluster' },
    wrong,
    { ...wrong, origin: 'the node itself', rules: ['-A OUTPUT -j ACCEPT'] },
    { ...wrong, origin: 'a pod of another node', got: [] },
  ];
  const { reasons, answer } = explainNode(context, serviceAuditor, asked, {
    ...lookWith('different'),
    walked: () => packets,
  });
  const missed = 'connections never reach 10.0.0.1:80 (Pod shop/web-1)';
  expect(answer.endsWith(`: ${missed}`)).toBe(true);
  expect(textsOf(reasons)).toEqual([
    `${name} at 10.96.0.1:80/tcp (cluster IP), from a pod of the node, the node itself: mismatch`,
    missed,
    'connections reach an address that is not an endpoint: 10.0.0.9:80 (no pod has it)',
    'rules that the packet matches, from a pod of the node: 1',
    '-A FORWARD -j DROP',
    `${name} at 10.96.0.1:80/tcp (cluster IP), from a pod of another node: mismatch`,
    'connections reach none of its 2 endpoints',
    'rules that the packet matches: 1',
    '-A FORWARD -j DROP',
    `${name} at 10.96.0.1:80/tcp (cluster IP), from outside the cluster: ok`,
  ]);
});

test('a node without known rules shows what is expected', () => {
  const got = explainNode(context, serviceAuditor, asked, null);
  expect(got.verdict).toBe('unknown');
  const texts = textsOf(got.reasons);
  expect(texts[0]).toBe('no rules have been read from this node');
  expect(texts.some((text) => text.includes('is expected to go to: '))).toBe(true);
});

test('a cluster IP of IPv6 is written in brackets', () => {
  const ipFamilies = ['IPv6'] as const;
  const six = service({ clusterIP: 'fd96::1', clusterIPs: ['fd96::1'], ipFamilies });
  const world = auditService([node({ addresses: ['fd18::2'] }), six, pod(), endpoints(), slice()]);
  const { reasons } = explainNode(world.context, world.serviceAuditor, asked, null);
  expect(textsOf(reasons).join()).toContain(`${name} at [fd96::1]:80/tcp (cluster IP)`);
});

test('a suppressed finding of a node does not decide the severity', () => {
  const suppressed = { owner: 'team', reason: 'planned', expires: '2026-12-31', source: 'a:3' };
  const on = { node: 'node-a', object: 'Node node-a: all' };
  const findings = [
    plainFinding('node-endpoint-missing', { ...on, suppressed }),
    plainFinding('node-rules-stale', { ...on, severity: 'info' }),
  ];
  const settle = { ...serviceAuditor.settle, open: () => findings };
  const got = [null, 'shop/web'].map((key) =>
    explain(
      context,
      { ...serviceAuditor, settle },
      { ...asked, service: key },
      lookWith('different'),
    ),
  );
  for (const it of got) {
    expect(it.severity).toBe('info');
    expect(textsOf(it.reasons)).toContain(
      'node-endpoint-missing is suppressed until 2026-12-31 by team: planned',
    );
  }
});

test('an unknown port is an answer of its own', () => {
  const got = explain(context, serviceAuditor, { ...asked, port: 'nope' });
  expect(got.answer).toContain('Service shop/web:nope has no such port; ports: ');
  expect(got).toMatchObject({ found: false, verdict: null });
});

test.each([
  [{ clusterIP: 'None', clusterIPs: [] }, 'it is headless'],
  [{ clusterIP: 'None', clusterIPs: [], ports: [] }, 'it is headless'],
  [{ clusterIP: '', clusterIPs: [], type: 'ExternalName' }, 'it is an alias in DNS'],
] as const)('a node has nothing to forward for the Service %j', (more, why) => {
  const world = auditService([node(), service(more)]);
  const got = explain(world.context, world.serviceAuditor, asked, {
    ...lookWith('conform'),
    verdicts: new Map([['node-a', []]]),
  });
  expect(got).toMatchObject({ found: true, verdict: null, severity: null });
  expect(got.answer).toContain(`Nodes forward nothing for Service shop/web: ${why}`);
});

test.each([
  [{ node: 'node-b' }, 'Node node-b does not exist'],
  [{ service: 'shop/wep' }, 'Service shop/wep does not exist'],
])('%j is not there', (more, answer) => {
  const got = explain(context, serviceAuditor, { ...asked, ...more });
  expect(got).toMatchObject({ found: false, answer });
});
