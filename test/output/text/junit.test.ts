import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { baselineOf, type GateOptions } from '../../../src/output/text/gate.ts';
import { renderJunit } from '../../../src/output/text/junit.ts';
import type { AuditReport } from '../../../src/output/text/report.ts';
import {
  conformState,
  findingOf,
  hides,
  hostileReport,
  moment,
  reportOf,
  stateOf,
} from '../samples.ts';

const usual: GateOptions = {
  failOn: { severity: 'warning', unserved: false },
  ignored: [],
  baseline: null,
};

const junit = (report: AuditReport, options: Partial<GateOptions> = {}): string =>
  renderJunit(report, { ...usual, ...options });

/** Checks that a text is well-formed XML 1.0 of the kind that is written here; returns its tags. */
function xmlTags(text: string): string[] {
  const legal = /^(?:[\t\n\r\u0020-\ud7ff\ue000-\ufffd]|[\u{10000}-\u{10ffff}])*$/u;
  expect(legal.test(text)).toBe(true);
  const tags: string[] = [];
  const open: string[] = [];
  const attribute = / [a-z]+="(?:[^<&"]|&(?:amp|lt|gt|quot|#39);)*"/g;
  let rest = text.replace('<?xml version="1.0" encoding="UTF-8"?>\n', '');
  while (rest !== '') {
    const content = /^(?:[^<&]|&(?:amp|lt|gt|quot|#39);)+/.exec(rest)?.[0];
    const tag = /^<[^>]*>/.exec(rest)?.[0];
    expect(content ?? tag, rest.slice(0, 80)).toBeDefined();
    rest = rest.slice((content ?? tag ?? '').length);
    if (tag === undefined) continue;
    const name = /^<\/?([a-z-]+)/.exec(tag)?.[1] ?? '';
    if (tag.startsWith('</')) expect(open.pop()).toBe(name);
    else {
      expect(tag.slice(name.length + 1).replace(attribute, '')).toBe('>');
      open.push(name);
      tags.push(name);
    }
  }
  expect(open).toEqual([]);
  return tags;
}

describe('JUnit', () => {
  test('fails for the findings that make the command fail', () => {
    const findings = [
      findingOf(),
      findingOf({ severity: 'info', service: 'api', cause: 'hand-edited' }),
      findingOf({ resolvedAt: moment + 1, severity: 'warning', service: 'b' }),
      findingOf({ output: 'input', code: 'address-shared' }),
    ];
    const text = junit(reportOf(stateOf(), { findings }));
    const tags = xmlTags(text);
    const count = (name: string): number => tags.filter((tag) => tag === name).length;
    expect(text).toContain(
      '<testsuites name="endpoint-auditor" tests="8" failures="3" errors="1" skipped="2">',
    );
    expect([count('testcase'), count('failure'), count('error'), count('skipped')]).toEqual([
      8, 3, 1, 2,
    ]);
    expect(text).toContain('<testsuite name="mirrored" tests="1" failures="0" errors="1"');
    expect(text).toContain('name="slice-endpoint-unexpected shop/api (hand-edited)"><skipped');
    expect(text).toContain('<system-out>19 outputs ok</system-out>');
    expect(text).toContain('(resolved at 2026-11-21T10:56:47Z)');
  });

  test('lists open findings before resolved ones', () => {
    const findings = [findingOf({ resolvedAt: moment }), findingOf({ severity: 'info' })];
    const text = junit(reportOf(stateOf(), { findings }));
    expect(text.indexOf('<skipped')).toBeGreaterThan(0);
    expect(text.indexOf('(resolved at')).toBeGreaterThan(text.indexOf('<skipped'));
  });

  test('fails only for what fails the gate, and says why another finding does not', () => {
    const critical = findingOf();
    const warning = findingOf({ severity: 'warning', code: 'slice-ports-different' });
    const info = findingOf({ severity: 'info', code: 'slice-duplicate' });
    const report = reportOf(conformState(), { findings: [critical, warning, info] });
    const counts = (options: Partial<GateOptions>): string =>
      /failures="\d+" errors="\d+" skipped="\d+"/.exec(junit(report, options))?.[0] ?? '';
    const failOn = (severity: 'critical' | 'info') => ({ severity, unserved: false });
    expect(counts({})).toBe('failures="2" errors="0" skipped="1"');
    expect(counts({ failOn: failOn('info') })).toBe('failures="3" errors="0" skipped="0"');
    expect(counts({ failOn: failOn('critical') })).toBe('failures="1" errors="0" skipped="2"');
    const ignored = [{ code: 'slice-endpoint-unexpected', service: null } as const];
    expect(counts({ ignored })).toBe('failures="1" errors="0" skipped="2"');
    const baseline = baselineOf([warning, critical]);
    expect(counts({ baseline })).toBe('failures="0" errors="0" skipped="3"');
    expect(junit(report, { baseline })).toContain('<skipped message="in the baseline: ');
    expect(junit(report, { ignored })).toContain('<skipped message="ignored: ');
  });

  test('fails for a Service without usable endpoints if the gate does', () => {
    const [namespace, name, detail] = ['shop', 'web', 'no pod matches'];
    const reason = 'selector_matches_nothing' as const;
    const unserved = { namespace, name, reason, detail, suppressed: null };
    const more = { servicesWithoutEndpoints: [unserved], cluster: 'a<b' };
    const report = reportOf(conformState(), more);
    expect(junit(report)).toContain('<testsuites name="endpoint-auditor a&lt;b" tests="3" fail');
    const text = junit(report, { failOn: { severity: 'warning', unserved: true } });
    expect(text).toContain(
      '<testcase classname="traffic" name="unserved shop/web">' +
        '<failure type="selector_matches_nothing" message="no pod matches"></failure>',
    );
    xmlTags(text);
  });

  test('has one passing test case for each output that conforms', () => {
    const text = junit(reportOf(conformState()));
    expect(text).toContain('tests="3" failures="0" errors="0" skipped="0">');
    expect(xmlTags(text).filter((tag) => tag === 'testcase').length).toBe(3);
  });

  test('has an error for unreadable Services, and for an input without Services', () => {
    const unread = { 'object-unreadable': 2 } as const;
    const text = junit(reportOf(conformState(), { unknown: unread }));
    expect(text).toContain(
      '<testsuite name="input" tests="1" failures="0" errors="1" skipped="0">',
    );
    expect(text).toContain('message="2 Services cannot be read"');
    const empty = junit(reportOf(conformState(), { services: 0 }));
    expect(empty).toContain('message="No Services to audit"');
    expect(junit(reportOf(conformState(), { services: 0, foreign: 1 }))).toContain('errors="0"');
  });

  test('is well-formed, whatever the cluster named', () => {
    fc.assert(
      fc.property(hostileReport, (report) => {
        const text = junit(report);
        expect(hides(text)).toBe(false);
        const cases = xmlTags(text).filter((tag) => tag === 'testcase').length;
        // conform and pending of endpoints, conform of endpointslices, unknown of mirrored
        expect(cases).toBe(report.findings.length + 4);
      }),
    );
  });
});
