// Incidents as every output shows them.

import { expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import type { Incident } from '../../../src/audit/incident/incidents.ts';
import { reportIncident } from '../../../src/audit/incident/report.ts';
import { plainFinding } from '../../build.ts';

const finding = (service: string, more: Partial<Finding> = {}): Finding => {
  const code = 'endpoints-address-missing';
  const [object, field, expected] = [`Endpoints shop/${service}`, 'subsets', '10.0.0.1'];
  const place = { code, address: expected, pod: null, field, object: '' } as const;
  const differences = [{ ...place, expected, actual: null }];
  return plainFinding(code, { service, object, field, expected, differences, ...more });
};

const incident = (more: Partial<Incident> = {}): Incident => ({
  id: 'x',
  kind: 'controller-not-writing',
  object: 'kube-controller-manager',
  objects: ['kube-controller-manager'],
  likely: [],
  evidence: [{ text: 'waits', at: 10 }],
  changes: [],
  since: 10,
  openedAt: 40,
  resolvedAt: null,
  impact: null,
  severity: 'warning',
  findings: [],
  ...more,
});

test('the reach counts Services, namespaces, nodes and addresses once', () => {
  const findings = [
    finding('web'),
    finding('web', { output: 'endpointslices', code: 'slice-endpoint-missing' }),
    finding('db', { namespace: 'data' }),
    finding('', { namespace: '', node: 'a', code: 'node-rules-flushed', differences: [] }),
  ];
  const { reach } = reportIncident(incident({ findings }));
  expect(reach).toEqual({ services: 2, namespaces: 2, nodes: 1, endpoints: 1 });
});

test('the reach of a finding of a whole node has the Services in its differences', () => {
  const place = { code: 'node-frontend-missing', address: null, pod: null, object: '' } as const;
  const differences = ['shop/web:http at 10.96.0.1:80/tcp', 'shop/web:dns', 'data/db:'].map(
    (field) => ({ ...place, field, expected: 'a', actual: null }),
  );
  const findings = [finding('', { namespace: '', node: 'a', differences })];
  const { reach } = reportIncident(incident({ findings }));
  expect(reach).toEqual({ services: 2, namespaces: 2, nodes: 1, endpoints: 0 });
});

test('an incident without findings reaches the objects that it names', () => {
  const objects = ['Service shop/web', 'Node a'];
  const { reach } = reportIncident(incident({ kind: 'service-without-endpoints', objects }));
  expect(reach).toEqual({ services: 1, namespaces: 1, nodes: 1, endpoints: 0 });
});

test('commands have the names of the object', () => {
  const object = 'Node node-b';
  const { remedy } = reportIncident(incident({ kind: 'node-proxy-not-syncing', object }));
  expect(remedy.commands.join()).toContain('spec.nodeName=node-b');
});

test('of a dump it has no times', () => {
  const got = reportIncident(incident(), true);
  expect([got.since, got.openedAt, got.evidence[0]?.at]).toEqual([null, null, null]);
});
