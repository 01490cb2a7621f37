// Incidents as text.

import { expect, test } from 'vitest';

import type { ReportedIncident } from '../../../src/audit/incident/report.ts';
import { formatIncident, renderIncidents } from '../../../src/output/text/incidents.ts';

const at = 1_795_258_700;

const incident: ReportedIncident = {
  id: 'node-change-unnoticed.node-b.1795258700',
  kind: 'node-change-unnoticed',
  title: 'A Node changed',
  severity: 'warning',
  object: 'Node b',
  objects: ['Node b'],
  likely: [],
  evidence: [{ text: 'An endpoint names another zone', at }],
  changes: [
    {
      at,
      kind: 'Node',
      namespace: '',
      name: 'b',
      field: 'metadata.labels zone',
      from: 'z2',
      to: 'z3',
      manager: null,
    },
  ],
  since: at,
  openedAt: at + 30,
  resolvedAt: null,
  impact: { misrouted: 0.0234, unused: 0.5, worst: 0.6 },
  reach: { services: 34, namespaces: 3, nodes: 1, endpoints: 60 },
  remedy: { text: 'Sync the Service.', commands: ['kubectl get nodes'], managed: null },
  findings: [],
};

const plain = { colour: false, width: 200 };

test('an incident has its reach, its evidence, what changed and what to do', () => {
  expect(renderIncidents([incident], at, plain)).toEqual([
    'warning  incident  node-change-unnoticed  Node b  since 10:58:20',
    '  A Node changed.',
    '  affects: 34 Services in 3 namespaces, 1 node, 60 endpoints',
    '  impact: 2.3% of new connections are misrouted, at most 60% at one place, and 50% of the ' +
      'ready pods are unused',
    '  evidence: An endpoint names another zone 10:58:20',
    '  changed: Node b: metadata.labels zone changed from z2 to z3 10:58:20',
    '  fix: Sync the Service.',
    '    kubectl get nodes',
    '',
  ]);
});

test('an unknown cause lists the likely ones, and many objects are counted', () => {
  const objects = Array.from({ length: 8 }, (_, index) => `Service shop/s${String(index)}`);
  const more = { kind: 'cause-unknown', likely: ['controller-slow'], objects } as const;
  const lines = renderIncidents([{ ...incident, ...more }], at, plain);
  expect(lines[0]).toContain('Service shop/s4 and 3 more');
  expect(lines).toContainEqual(
    '  likely causes: kube-controller-manager writes endpoints too late (controller-slow)',
  );
});

test('a resolved incident is one line', () => {
  const lines = renderIncidents([{ ...incident, resolvedAt: at + 60 }], at, plain);
  expect(lines).toEqual([
    'warning  incident  node-change-unnoticed  Node b  since 10:58:20  resolved 10:59:20',
    '',
  ]);
});

test('moments of another day have their date', () => {
  const day = 86_400;
  const { evidence } = incident;
  const known = { ...incident, evidence: evidence.map((it) => ({ ...it, at: at + day })) };
  const [head, , , , line] = renderIncidents([known], at + day, plain);
  expect(head).toContain('since 2026-11-21T10:58:20Z');
  expect(line).toBe('  evidence: An endpoint names another zone 10:58:20');
});

test('there are no lines without incidents, and more than 50 are counted', () => {
  expect(renderIncidents([], at, plain)).toEqual([]);
  const lines = renderIncidents(
    Array.from({ length: 53 }, () => incident),
    at,
    plain,
  );
  expect(lines.at(-2)).toBe('3 more incidents: -o json lists all');
});

test('of more than 50, the open and severe ones are shown, in their order', () => {
  const gone = { ...incident, resolvedAt: at };
  const many = Array.from({ length: 60 }, () => gone);
  const all = [...many, { ...gone, severity: 'critical' as const }, incident];
  const lines = renderIncidents(all, at, plain).filter((line) => line.includes('  incident  '));
  expect(lines).toHaveLength(50);
  expect(lines.at(-2)).toMatch(/^critical .* resolved /);
  expect(lines.at(-1)).not.toContain('resolved');
});

test('what belongs to an incident names it in one line', () => {
  expect(formatIncident(incident)).toBe(
    'incident: A Node changed (warning node-change-unnoticed, Node b); ' +
      'it affects 34 Services in 3 namespaces, 1 node, 60 endpoints',
  );
});
