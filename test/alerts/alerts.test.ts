import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';

import type { Code } from '../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../src/audit/finding/catalogue.ts';
import type { IncidentKind } from '../../src/audit/incident/kinds.ts';
import { incidentKinds, kinds } from '../../src/audit/incident/kinds.ts';
import { exposed, groupedBy, problemsOf } from '../prometheus/server.ts';
import {
  advised,
  alerts,
  codesOf,
  folder,
  readRules,
  recorded,
  records,
  ruleFiles,
} from './alertmanager.ts';

const runbook = readFileSync(join(folder, '../docs/runbook.md'), 'utf8');

test('rules use only series and labels that /metrics shows', () => {
  const problems = [...alerts, ...records].flatMap(({ alert, record, expr }) =>
    problemsOf(expr, recorded).map((problem) => `${alert ?? record ?? ''}: ${problem}`),
  );
  expect(problems).toEqual([]);
});

test('a query with an unknown metric, label or code is an error', () => {
  expect(problemsOf('sum by (pod) (endpoint_auditor_findngs)')).toEqual([
    'endpoint_auditor_findngs is no metric',
    'nothing has the label pod',
  ]);
  expect(problemsOf('endpoint_auditor_findings{code="no-such", output="x"}')).toEqual([
    'no code of endpoint_auditor_findings is no-such',
    'endpoint_auditor_findings has no label output',
  ]);
  expect(() => problemsOf('sum by (endpoint_auditor_findings')).toThrow('Not PromQL');
});

test('recording rules are named as level:metric:operations, and are used', () => {
  const expressions = alerts.map(({ expr }) => expr).join('\n');
  for (const { record = '', expr } of records) {
    const [level = '', metric = '', operations] = record.split(':');
    expect(level.split('_').every((label) => groupedBy(expr).includes(label))).toBe(true);
    const family = metric.replace(/_(?:errors|unknown)$/, '');
    expect([...exposed.keys()].some((name) => name.startsWith(family))).toBe(true);
    expect(operations).toMatch(/^ratio(_rate\d+[mhd])?$/);
    expect(expressions).toContain(record);
  }
});

describe.each(alerts)('$alert', ({ alert = '', for: hold, labels = {}, annotations = {} }) => {
  test('says how bad it is, for how long, what, and where to read on', () => {
    expect(alert).toMatch(/^(EndpointAuditor|Endpoints)([A-Z][a-z]+)+$/);
    expect(labels.severity).toMatch(/^(critical|warning|info|\{\{ \$labels\.severity \}\})$/);
    expect(hold).toMatch(/^\d+[mh]$/);
    expect(annotations.summary).toMatch(/^(?:[A-Z]|\{\{).+\.$/);
    expect(annotations.description).toMatch(/^.+\.$/s);
    // The chart changes thresholds, but no texts.
    expect(annotations.description).not.toMatch(/\d %/);
    expect(annotations.link).toMatch(/^http:\/\/127\.0\.0\.1:9465(?:\/|\{\{)/);
    expect(annotations.runbook_url).toMatch(/^http:\/\/127\.0\.0\.1:9465\/docs\/runbook\.md#\w+$/);
    expect(annotations.runbook_url?.endsWith(`#${alert.toLowerCase()}`)).toBe(true);
  });

  test('has a section in the runbook', () => {
    const section = runbook.split(`\n### ${alert}\n`)[1]?.split('\n##')[0] ?? '';
    for (const part of ['Meaning', 'Impact', 'Diagnosis', 'Remedy']) {
      expect(section).toContain(`- **${part}.** `);
    }
  });

  test('is tested to fire and to resolve', () => {
    const files = ['', '-days'].flatMap((suffix) =>
      ruleFiles
        .map((name) => join(folder, 'tests', name.replace('.yaml', `${suffix}.yaml`)))
        .filter((path) => existsSync(path)),
    );
    const states = files.flatMap((path) => {
      const { tests } = parse(readFileSync(path, 'utf8')) as TestFile;
      return tests
        .map(({ promql_expr_test: steps }) => steps.map(({ exp_samples }) => exp_samples))
        .filter((steps) => steps.flat().some((sample) => sample.labels.includes(`"${alert}"`)))
        .map((steps) => [steps.at(0)?.length, steps.at(-1)?.length]);
    });
    expect(states.length).toBeGreaterThan(0);
    for (const state of states) expect(state).toEqual([0, 0]);
  });
});

interface TestFile {
  readonly tests: readonly {
    readonly promql_expr_test: readonly {
      readonly exp_samples: readonly { readonly labels: string }[];
    }[];
  }[];
}

test('the runbook has no section of an alert that is none', () => {
  const sections = [...runbook.matchAll(/^### (\w+)$/gm)].map(([, name]) => name);
  expect(new Set(sections)).toEqual(new Set(alerts.map(({ alert }) => alert)));
  expect(sections.length).toBe(new Set(sections).size);
});

test('the runbook names only codes and metrics that are there', () => {
  const codes = [...runbook.matchAll(/[?&]code=([a-z-]+)/g)].map(([, code = '']) => code);
  expect(codes.filter((code) => !(code in catalogue))).toEqual([]);
  const metrics = [...runbook.matchAll(/endpoint_auditor_\w+/g)].map(([name]) => name);
  const names = [...exposed.keys()];
  expect(metrics.filter((metric) => !names.some((name) => name.startsWith(metric)))).toEqual([]);
});

// What no alert on findings is about has one on its measurement.
const measured: readonly Code[] = ['object-near-size-limit'];

test('every code above information fires exactly one alert', () => {
  const byCode = new Map<string, string[]>();
  for (const rule of alerts) {
    for (const code of codesOf(rule)) {
      byCode.set(code, [...(byCode.get(code) ?? []), rule.alert ?? '']);
    }
  }
  for (const [code, { severity }] of Object.entries(catalogue)) {
    if (severity === 'info' || measured.includes(code as Code)) continue;
    expect([code, byCode.get(code)?.length]).toEqual([code, 1]);
  }
});

test('an alert keeps the cluster, and on a finding names its Service or node', () => {
  for (const rule of alerts) {
    const { alert = '', expr } = rule;
    expect([alert, expr]).toEqual([alert, expect.stringMatching(/cluster/)]);
    const isOfFindings = codesOf(rule).length > 0;
    if (isOfFindings) expect(expr).toMatch(/by \(cluster, (?:namespace, service|node), code/);
  }
});

// Both are information, and have an alert of their own.
const withoutAlert: readonly IncidentKind[] = ['service-without-endpoints', 'agents-missing'];

test('every kind of incident that can be above information has one alert, with its title', () => {
  for (const kind of incidentKinds) {
    const own = alerts.filter(({ expr }) => expr.includes(`incident_services{kind="${kind}"`));
    expect([kind, own.length]).toEqual([kind, withoutAlert.includes(kind) ? 0 : 1]);
    const { summary = '' } = own[0]?.annotations ?? {};
    const title = kind === 'cause-unknown' ? 'cause is unknown' : kinds[kind].title;
    if (own.length > 0) expect(summary.toLowerCase()).toContain(title.toLowerCase());
  }
});

describe('the configuration of Alertmanager in the runbook', () => {
  const { inhibit_rules: inhibition } = advised();
  const targetsOf = (source: string): string[] =>
    inhibition
      .filter((rule) => isMatched(rule.source_matchers, source))
      .flatMap((rule) => names.filter((name) => isMatched(rule.target_matchers, name)));
  const names = [...new Set(alerts.map(({ alert = '' }) => alert))];

  test('lets every incident inhibit every alert on its findings', () => {
    const onFindings = alerts.filter((rule) => codesOf(rule).length > 0);
    const incidents = names.filter((name) => name.startsWith('EndpointsIncident'));
    expect(incidents.length).toBeGreaterThan(10);
    for (const source of incidents) {
      expect(targetsOf(source)).toEqual(
        expect.arrayContaining(onFindings.map(({ alert = '' }) => alert)),
      );
    }
  });

  test('needs only labels that sources and targets have', () => {
    for (const { source_matchers, target_matchers, equal } of inhibition) {
      const both = [source_matchers, target_matchers].map((matchers) =>
        alerts.filter(({ alert = '' }) => isMatched(matchers, alert)),
      );
      for (const rules of both) {
        expect(rules.length).toBeGreaterThan(0);
        for (const { alert, expr } of rules) {
          const missing = equal.filter((label) => !expr.includes(label));
          expect([alert, missing]).toEqual([alert, []]);
        }
      }
    }
  });

  test('inhibits no alert by itself, except by one of a worse severity', () => {
    const isBySeverity = ({ source_matchers }: (typeof inhibition)[number]): boolean =>
      source_matchers.includes('severity = critical');
    const others = inhibition.filter((rule) => !isBySeverity(rule));
    expect(others).toHaveLength(inhibition.length - 1);
    for (const { source_matchers, target_matchers } of others) {
      const both = names.filter((name) =>
        [source_matchers, target_matchers].every((matchers) => isMatched(matchers, name)),
      );
      expect(both).toEqual([]);
    }
  });
});

/** Whether the name of an alert fits all matchers. */
const isMatched = (matchers: readonly string[], name: string): boolean =>
  matchers.every((matcher) => {
    if (matcher.startsWith('severity = ')) return true;
    const { operator, value = '' } =
      /^alertname (?<operator>!=|=~|=) "?(?<value>[^"]*)"?$/.exec(matcher)?.groups ?? {};
    if (operator === undefined) throw new Error(`Not of an alert: ${matcher}`);
    if (operator === '=~') return new RegExp(`^(?:${value})$`).test(name);
    return (name === value) === (operator === '=');
  });

test('files and groups have names of their own', () => {
  const names = ruleFiles.flatMap((name) => readRules(name).groups.map((group) => group.name));
  expect(names).toEqual(ruleFiles.map((name) => `endpoint-auditor.${name.replace('.yaml', '')}`));
});
