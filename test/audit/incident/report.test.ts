// Incidents as every output shows them.

import { expect, test } from 'vitest';

import type { Incident } from '../../../src/audit/incident/open-incident.ts';
import { reportIncident } from '../../../src/audit/incident/report.ts';

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
  worstSeverity: 'warning',
  reach: { services: 0, namespaces: 0, nodes: 0, endpoints: 0 },
  services: new Set(),
  findings: [],
  ...more,
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
