// Incidents on pages.

import { describe, expect, test } from 'vitest';

import type { ReportedIncident } from '../../../src/audit/incident/report.ts';
import {
  noIncidents,
  renderIncidentPage,
  renderIncidentsPage,
} from '../../../src/output/page/incidents.ts';
import { renderOverview } from '../../../src/output/page/overview.ts';
import { findingOf, moment, statusOf } from '../samples.ts';

const incident = (more: Partial<ReportedIncident> = {}): ReportedIncident => {
  const { code, cause, output, namespace, service, node } = findingOf();
  return {
    id: 'controller-not-writing.kube-controller-manager.1795258700',
    kind: 'controller-not-writing',
    title: 'kube-controller-manager does not write endpoints',
    severity: 'critical',
    object: 'kube-controller-manager',
    objects: ['kube-controller-manager'],
    likely: [],
    evidence: [{ text: '3 Services wait', at: moment - 60 }],
    changes: [],
    since: moment - 60,
    openedAt: moment - 30,
    resolvedAt: null,
    impact: null,
    reach: { services: 3000, namespaces: 4, nodes: 0, endpoints: 9000 },
    remedy: { text: 'Read its log.', commands: ['kubectl get lease'], managed: null },
    findings: [{ code, cause, output, namespace, service, node }],
    ...more,
  };
};

describe('the overview', () => {
  test('lists open incidents before findings', () => {
    const page = renderOverview(statusOf(), [], { open: [incident()], resolved: [] });
    const [list, findings] = [page.indexOf('Open incidents'), page.indexOf('Open findings')];
    expect(list).toBeGreaterThan(0);
    expect(list).toBeLessThan(findings);
    expect(page).toContain('/incidents/controller-not-writing.kube-controller-manager.1795258700');
    expect(page).toContain('3000 Services in 4 namespaces, 9000 endpoints');
  });

  test('has no list without incidents', () => {
    expect(renderOverview(statusOf())).not.toContain('Open incidents');
  });
});

describe('the timeline of the overview', () => {
  const at = (hours: number): number => moment + hours * 3600;
  const times = (since: number, end: number | null, id = 'x') =>
    incident({ id, since: at(since), resolvedAt: end === null ? null : at(end) });
  const rectsOf = (...incidents: readonly ReportedIncident[]): (readonly string[])[] => {
    const open = incidents.filter(({ resolvedAt }) => resolvedAt === null);
    const resolved = incidents.filter(({ resolvedAt }) => resolvedAt !== null);
    const [, page = ''] = renderOverview(statusOf(), [], { open, resolved }).split(
      'Incidents of the last 24 hours',
    );
    const rects = page.matchAll(/<rect class="critical" x="([\d.]+)" width="([\d.]+)"/g);
    return [...rects].map(([, x = '', width = '']) => [x, width]);
  };

  test('has a bar of the time in which an incident was open, the latest first', () => {
    expect(rectsOf(times(-12, -6), times(-6, null))).toEqual([
      ['75.00', '25.00'],
      ['50.00', '25.00'],
    ]);
  });

  test('cuts what began earlier, leaves out what ended earlier, and shows the shortest', () => {
    expect(rectsOf(times(-48, -12), times(-48, -25), times(-0.001, null))).toEqual([
      ['99.50', '0.50'],
      ['0.00', '50.00'],
    ]);
  });

  test('counts what has no place', () => {
    const many = Array.from({ length: 15 }, (_, index) => times(-2, -1, `x${String(index)}`));
    expect(rectsOf(...many)).toHaveLength(12);
    const page = renderOverview(statusOf(), [], { open: [], resolved: many });
    expect(page).toContain('>3 more</a>');
    expect(renderOverview(statusOf())).not.toContain('last 24 hours');
  });
});

test('the list of incidents has open and resolved ones', () => {
  const resolved = [incident({ id: 'x', resolvedAt: moment, title: 'Another cause' })];
  const page = renderIncidentsPage(statusOf(), { open: [incident()], resolved });
  expect(page).toContain('kube-controller-manager does not write endpoints');
  expect(page).toContain('Another cause');
  expect(renderIncidentsPage(statusOf(), noIncidents)).toContain('None yet.');
});

describe('the page of an incident', () => {
  test('has its evidence, its changes, what to do and its findings', () => {
    const changes = [
      {
        at: moment,
        kind: 'Node',
        namespace: '',
        name: 'b',
        field: 'zone',
        from: 'a',
        to: 'c',
        manager: 'kubectl-label',
      },
    ];
    const page = renderIncidentPage(statusOf(), incident({ changes }));
    for (const text of [
      '3 Services wait',
      'zone changed from a to c by kubectl-label',
      'Read its log.',
    ]) {
      expect(page).toContain(text);
    }
    expect(page).toContain('kubectl get lease');
    expect(page).toContain('shop/web');
    expect(page).toContain('/docs/incidents.md#controller-not-writing');
  });

  test('lists the likely causes of an unknown one', () => {
    const more = { kind: 'cause-unknown', likely: ['controller-slow'] } as const;
    const page = renderIncidentPage(statusOf(), incident(more));
    expect(page).toContain('kube-controller-manager writes endpoints too late');
  });

  test('escapes the names of objects', () => {
    const page = renderIncidentPage(statusOf(), incident({ objects: ['Node <b>'] }));
    expect(page).toContain('Node &lt;b&gt;');
  });
});
