// What an incident does to traffic, and its severity.

import { describe, expect, test } from 'vitest';

import type { Code, Finding } from '../../../src/audit/finding/catalogue.ts';
import {
  effectOf,
  type ImpactSource,
  noImpacts,
  reachOf,
} from '../../../src/audit/incident/impact.ts';
import type { IncidentKind } from '../../../src/audit/incident/kinds.ts';
import type { Impact } from '../../../src/audit/service/impact.ts';
import { plainFinding } from '../../build.ts';

const find = (code: Code, service: string, more: Partial<Finding> = {}): Finding =>
  plainFinding(code, { service, ...more });

const missing = (service: string): Finding =>
  find('slice-endpoint-missing', service, { severity: 'critical' });

const sourceOf = (
  services: Readonly<Record<string, Impact>>,
  onNode: Readonly<Record<string, Impact>> = {},
): ImpactSource => {
  const ofNode = new Map(Object.entries(onNode));
  const values = [...ofNode.values()];
  const sum = (name: 'misrouted' | 'unused') => values.reduce((all, it) => all + it[name], 0);
  const worst = Math.max(0, ...values.map(({ misrouted }) => misrouted));
  const node = { services: ofNode, misrouted: sum('misrouted'), unused: sum('unused'), worst };
  return {
    ofService: (key) => services[key] ?? null,
    ofNode: (name) => (name === 'a' ? node : null),
    nodes: () => 10,
  };
};

const impactOfFindings = (findings: readonly Finding[], source: ImpactSource) =>
  effectOf('cause-unknown', findings, source).impact;

const severityOf = (kind: IncidentKind, findings: readonly Finding[], source: ImpactSource) =>
  effectOf(kind, findings, source).severity;

describe('the impact of an incident', () => {
  test('is the mean over its Services, each counted once', () => {
    const source = sourceOf({
      'shop/web': { misrouted: 0.5, unused: 0.25 },
      'shop/api': { misrouted: 0.1, unused: 0.75 },
    });
    const findings = [missing('web'), find('slice-conditions-different', 'web'), missing('api')];
    expect(impactOfFindings(findings, source)).toEqual({ misrouted: 0.3, unused: 0.5, worst: 0.5 });
  });

  test('does not contain a node whose rules are unknown, so its finding keeps its severity', () => {
    const source = sourceOf({ 'shop/web': { misrouted: 0, unused: 0 } });
    const findings = [find('node-endpoint-missing', 'web', { node: 'b', severity: 'critical' })];
    expect(severityOf('node-rules-lost', findings, source)).toBe('critical');
  });

  test('leaves Services out whose impact is not known', () => {
    const source = sourceOf({ 'shop/web': { misrouted: 0.5, unused: 0 } });
    const got = impactOfFindings([missing('web'), missing('db')], source);
    expect(got).toEqual({ misrouted: 0.5, unused: 0, worst: 0.5 });
    expect(impactOfFindings([missing('db')], source)).toBeNull();
  });

  test('has no share of a Service whose findings are not about what nodes use', () => {
    // A rollout of the Service makes its slices differ for a moment, which is no finding.
    const source = sourceOf({ 'shop/web': { misrouted: 0.5, unused: 0.5 } });
    const findings = [find('hints-absent', 'web', { output: 'input', severity: 'info' })];
    const got = effectOf('service-configuration', findings, source);
    expect(got.impact).toEqual({ misrouted: 0, unused: 0, worst: 0 });
    expect(got.severity).toBe('info');
  });

  test.each([
    ['before', (other: Finding) => [other, missing('web')]],
    ['after', (other: Finding) => [missing('web'), other]],
  ])('has the share of a Service with another finding %s the measured one', (_, findingsOf) => {
    const share = { misrouted: 0.5, unused: 0.5 };
    const source = sourceOf({ 'shop/web': share });
    const findings = findingsOf(find('endpoints-address-missing', 'web'));
    expect(impactOfFindings(findings, source)).toEqual({ ...share, worst: 0.5 });
  });

  test('of a whole node is weighted by the nodes, and its worst is that on the node', () => {
    const source = sourceOf(
      {},
      { 'shop/web': { misrouted: 1, unused: 1 }, 'shop/api': { misrouted: 0.5, unused: 0 } },
    );
    const finding = find('node-rules-flushed', '', { namespace: '', node: 'a' });
    const got = impactOfFindings([finding], source);
    expect(got?.misrouted).toBeCloseTo(0.075, 9);
    expect(got).toMatchObject({ unused: 0.05, worst: 1 });
  });

  test('of one Service on a node has the share there as its worst', () => {
    const source = sourceOf(
      { 'shop/web': { misrouted: 0.05, unused: 0 } },
      { 'shop/web': { misrouted: 0.5, unused: 0 } },
    );
    const finding = find('node-endpoint-missing', 'web', { node: 'a' });
    expect(impactOfFindings([finding], source)).toMatchObject({ misrouted: 0.05, worst: 0.5 });
  });
});

describe('the severity', () => {
  const none = sourceOf({ 'shop/web': { misrouted: 0, unused: 0 } });

  test('is at least that of the kind', () => {
    expect(severityOf('controller-not-writing', [missing('web')], none)).toBe('warning');
  });

  test.each([
    [0.05, 0, 'critical'],
    [0.04, 0, 'warning'],
    [0, 0.5, 'warning'],
    [0, 0, 'info'],
  ])('follows the impact: misrouted %f, unused %f is %s', (misrouted, unused, severity) => {
    const source = sourceOf({ 'shop/web': { misrouted, unused } });
    expect(severityOf('cause-unknown', [missing('web')], source)).toBe(severity);
  });

  test('is that of the worst finding if the impact is not known', () => {
    const findings = [find('slice-conditions-different', 'api'), missing('web')];
    expect(severityOf('cause-unknown', findings, noImpacts)).toBe('critical');
  });

  test('is at least that of a finding whose effect the impact does not contain', () => {
    const findings = [find('endpoints-address-missing', 'web', { severity: 'warning' })];
    expect(severityOf('cause-unknown', findings, none)).toBe('warning');
  });

  test('is info if every finding is suppressed, and else leaves suppressed ones out', () => {
    const suppressed = { until: null, reason: '', by: '' } as unknown as Finding['suppressed'];
    const accepted = { ...missing('web'), suppressed };
    expect(severityOf('controller-not-writing', [accepted], noImpacts)).toBe('info');
    const findings = [accepted, find('endpoints-missing', 'api', { severity: 'warning' })];
    expect(severityOf('cause-unknown', findings, noImpacts)).toBe('warning');
  });
});

describe('the reach', () => {
  const reached = (findings: readonly Finding[], objects: readonly string[], source = noImpacts) =>
    reachOf(findings, objects, effectOf('cause-unknown', findings, source).services);

  test('counts Services, namespaces, nodes and addresses once', () => {
    const place = { address: '10.0.0.1', pod: null, field: 'subsets', object: '' } as const;
    const detail = { code: 'endpoints-address-missing', ...place } as const;
    const differences = [{ ...detail, expected: '10.0.0.1', actual: null }];
    const findings = [
      find('endpoints-address-missing', 'web', { differences }),
      find('slice-endpoint-missing', 'web', { differences }),
      find('endpoints-address-missing', 'db', { namespace: 'data', differences }),
      find('node-rules-flushed', '', { namespace: '', node: 'a', differences: [] }),
    ];
    const want = { services: 2, namespaces: 2, nodes: 1, endpoints: 1 };
    expect(reached(findings, ['Node a', 'Pod shop/web-1'])).toEqual(want);
  });

  test('of a finding of a whole node has every Service that differs on it', () => {
    const share = { misrouted: 1, unused: 0 };
    const names = Array.from({ length: 150 }, (_, index) => `shop/s${index}`);
    const onNode = Object.fromEntries([...names, 'data/db'].map((name) => [name, share]));
    const findings = [find('node-rules-flushed', '', { namespace: '', node: 'a' })];
    const want = { services: 151, namespaces: 2, nodes: 1, endpoints: 0 };
    expect(reached(findings, [], sourceOf({}, onNode))).toEqual(want);
  });
});
