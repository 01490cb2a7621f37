// The gate of CI: what fails it, what it accepts, and the reports for pull requests.

import { createRequire } from 'node:module';

import { Ajv } from 'ajv';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import { remedyOf } from '../../../src/audit/finding/remedies.ts';
import { renderGithub, renderMarkdown } from '../../../src/output/text/annotations.ts';
import type { GateOptions } from '../../../src/output/text/gate.ts';
import {
  acceptanceOf,
  baselineOf,
  formatGate,
  gateOf,
  isFailed,
} from '../../../src/output/text/gate.ts';
import { renderReport } from '../../../src/output/text/report.ts';
import { renderSarif } from '../../../src/output/text/sarif.ts';
import { conformState, findingOf, hides, hostileReport, reportOf, stateOf } from '../samples.ts';

const atWarning = { severity: 'warning', unserved: false } as const;
const usual: GateOptions = { failOn: atWarning, ignored: [], baseline: null };
const critical = findingOf();
const warning = findingOf({ severity: 'warning', code: 'slice-ports-different' });
const info = findingOf({ severity: 'info', code: 'slice-duplicate' });
const onNode = findingOf({ code: 'node-frontend-missing', output: 'node', node: 'node-a' });

describe('a finding', () => {
  test.each([
    ['critical', [null, 'minor', 'minor']],
    ['warning', [null, null, 'minor']],
    ['info', [null, null, null]],
  ] as const)('fails at --fail-on %s from that severity on', (severity, want) => {
    const options = { ...usual, failOn: { severity, unserved: false } };
    expect([critical, warning, info].map((it) => acceptanceOf(it, options))).toEqual(want);
  });

  test.each([
    [null, 'ignored'],
    ['shop/web', 'ignored'],
    ['shop/api', null],
  ])('of a code that is ignored for %j is %j', (service, want) => {
    const ignored = [{ code: 'slice-endpoint-unexpected', service } as const];
    expect(acceptanceOf(critical, { ...usual, ignored })).toBe(want);
    expect(acceptanceOf(warning, { ...usual, ignored })).toBeNull();
  });

  test('of the baseline is accepted until it is worse, or of another Service or node', () => {
    const baseline = baselineOf([{ ...critical, severity: 'warning' }, onNode]);
    const of = (finding: typeof critical) => acceptanceOf(finding, { ...usual, baseline });
    expect(of({ ...critical, severity: 'warning' })).toBe('baseline');
    expect(of({ ...critical, severity: 'info' })).toBe('baseline');
    expect(of(critical)).toBeNull();
    expect(of({ ...critical, severity: 'warning', service: 'api' })).toBeNull();
    expect(of(onNode)).toBe('baseline');
    expect(of({ ...onNode, node: 'node-b' })).toBeNull();
  });
});

const all = reportOf(conformState(), { findings: [critical, warning, info, onNode] });

test('the gate counts findings by what becomes of them', () => {
  const ignored = [{ code: 'slice-ports-different', service: null } as const];
  const options = { ...usual, ignored, baseline: baselineOf([onNode]) };
  const gate = gateOf(all, options);
  expect(gate).toEqual({
    failOn: 'warning',
    failed: 1,
    accepted: { suppressed: 0, ignored: 1, baseline: 1, minor: 1 },
    unserved: null,
  });
  expect(formatGate(gate)).toBe(
    'Gate failed: 1 finding fails (--fail-on warning); accepted: 1 ignored, 1 in the baseline, ' +
      '1 below warning',
  );
  expect(formatGate(gateOf(reportOf(conformState()), usual))).toBe(
    'Gate passed: 0 findings fail (--fail-on warning)',
  );
  expect(formatGate(gate, true)).toMatch(/^No verdict: 1 finding fails /);
});

describe('a Service without usable endpoints', () => {
  const [reason, detail] = ['no_ready_pod', '2 pods | are not ready'] as const;
  const servicesWithoutEndpoints = ['api', 'web', 'db'].map((name) => {
    return { namespace: 'shop', name, reason, detail, suppressed: null };
  });
  const report = reportOf(conformState(), { servicesWithoutEndpoints });
  const strict: GateOptions = { ...usual, failOn: { severity: 'critical', unserved: true } };

  test('fails only the gate that asks for it', () => {
    expect(isFailed(gateOf(report, usual))).toBe(false);
    const gate = gateOf(report, strict);
    expect(gate).toMatchObject({ failOn: 'critical', failed: 0, unserved: 3 });
    expect(isFailed(gate)).toBe(true);
    expect(formatGate(gate)).toBe(
      'Gate failed: 0 findings fail, 3 Services without usable endpoints ' +
        '(--fail-on critical,unserved)',
    );
  });

  test('is accepted by name, or by the baseline', () => {
    const ignored = [{ code: 'unserved', service: 'shop/api' } as const];
    const baseline = baselineOf([], [{ namespace: 'shop', name: 'db' }]);
    const gate = gateOf(report, { ...strict, ignored, baseline });
    expect(gate.unserved).toBe(1);
    const everyService = [{ code: 'unserved', service: null } as const];
    expect(gateOf(report, { ...strict, ignored: everyService }).unserved).toBe(0);
  });

  test('is accepted by a suppression, which decides before the baseline', () => {
    const suppressed = { owner: 'a', reason: 'b', expires: '2026-12-31', source: 'c:1' };
    const [api, ...others] = servicesWithoutEndpoints;
    const accepted = [{ ...api, suppressed }, ...others] as typeof servicesWithoutEndpoints;
    const some = { ...report, servicesWithoutEndpoints: accepted };
    expect(gateOf(some, strict).unserved).toBe(2);
    const baseline = baselineOf([], accepted);
    expect([...baseline.unserved]).toEqual(['shop/web', 'shop/db']);
    // An expired suppression names the Service too.
    const isNamed = ({ service }: { service: string }) => service === 'db';
    expect(gateOf(some, { ...strict, baseline, isNamed }).unserved).toBe(1);
  });

  test('is in the reports of CI', () => {
    expect(renderGithub(report, strict)).toContain(
      '::error title=shop/api%3A Service without usable endpoints::' +
        'no_ready_pod: 2 pods | are not ready\n',
    );
    expect(renderMarkdown(report, strict)).toContain(
      '\n| **fails** | - | shop/api | without endpoints: no\\_ready\\_pod | 2 pods \\| are',
    );
    const log = JSON.parse(renderSarif(report, strict)) as { runs: { results: object[] }[] };
    expect(log.runs[0]?.results[0]).toMatchObject({ ruleId: 'unserved', level: 'error' });
    for (const render of [renderGithub, renderMarkdown, renderSarif]) {
      expect(render(report, usual)).not.toContain('no_ready_pod');
    }
  });
});

test('reports of CI name the cluster', () => {
  const report = reportOf(conformState(), { findings: [critical], cluster: 'prod' });
  expect(renderGithub(report, usual)).toContain(
    'title=prod%3A shop/web%3A A slice lists an endpoint ',
  );
  expect(renderMarkdown(report, usual)).toContain('### endpoint-auditor: prod\n');
  expect(JSON.parse(renderSarif(report, usual))).toMatchObject({
    runs: [{ automationDetails: { id: 'endpoint-auditor/prod/' } }],
  });
});

const options: GateOptions = {
  failOn: atWarning,
  ignored: [{ code: 'slice-ports-different', service: 'shop/web' }],
  baseline: baselineOf([onNode]),
};

/** With the title of the catalogue, the code first, and the first sentence of the remedy last. */
const annotationOf = (name: string, finding: typeof critical): string => {
  const { code } = finding;
  const [remedy = ''] = remedyOf(finding).text.split(/(?<=\.) /);
  expect(remedy).toMatch(/^[A-Z][^.]+\.$/);
  const escaped = (text: string): string => text.replaceAll(':', '%3A').replaceAll(',', '%2C');
  const title = escaped(`shop/web: ${catalogue[code].title}`);
  return `::${name} title=${title}::${code}: 10.1.2.3 of pod web-1, ready. Fix: ${remedy}`;
};

describe('workflow commands of GitHub', () => {
  test('annotate what is not accepted', () => {
    expect(renderGithub(all, options).split('\n')).toEqual([
      annotationOf('error', critical),
      annotationOf('notice', info),
      expect.stringMatching(/^::notice title=endpoint-auditor::Gate failed: 1 finding fails /),
      '',
    ]);
  });

  test('a namespace without Services is an error that names it', () => {
    const report = { ...reportOf(conformState()), services: 0, foreign: 0, namespace: 'other' };
    const text = 'Namespace other has no Services in the input';
    expect(renderGithub(report, usual)).toContain(`::error title=endpoint-auditor::${text}\n`);
    expect(renderReport(report, 'table', { colour: false, width: 100 })).toContain(`${text}\n`);
  });

  test('an unknown output is an error', () => {
    expect(renderGithub(reportOf(stateOf()), usual)).toContain(
      '::error title=endpoint-auditor::Outputs without a verdict',
    );
  });

  test('a name adds no command and no property', () => {
    const hostile = findingOf({ service: 'a,file=b::c\n::error ::d', actual: '100%\r\n::x' });
    const lines = renderGithub(reportOf(conformState(), { findings: [hostile] }), usual).split(
      '\n',
    );
    expect(lines).toHaveLength(3);
    expect(lines[0]).toMatch(/^::error title=shop\/a%2Cfile=b%3A%3A[^,:]*::/);
  });
});

describe('Markdown', () => {
  test('has a row for each finding, with its status', () => {
    const text = renderMarkdown(all, options);
    expect(text).toContain('| **fails** | critical | shop/web | slice-endpoint-unexpected |');
    expect(text).toContain('| ignored | warning | shop/web | slice-ports-different |');
    expect(text).toContain('| in the baseline | critical | node-a shop/web |');
    expect(text).toContain('| accepted | info |');
  });

  test('a name adds no cell, markup or mention', () => {
    const hostile = findingOf({ service: 'a|b<img>', actual: '[x](y) @team `z`' });
    const text = renderMarkdown(reportOf(conformState(), { findings: [hostile] }), usual);
    expect(text).toContain('shop/a\\|b&lt;img&gt;');
    expect(text).toContain('\\[x\\](y) &#64;team \\`z\\`');
  });
});

describe('SARIF', () => {
  const require = createRequire(import.meta.url);
  const path = '@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json';
  const schema = { ...(require(path) as object) };
  // Its identity is in a form of draft 4, which the validator does not take.
  for (const name of ['id', '$schema']) Reflect.deleteProperty(schema, name);
  const lax = { strict: false, validateFormats: false, unicodeRegExp: false };
  const validate = new Ajv(lax).compile(schema);
  const read = (text: string) => JSON.parse(text) as { runs: { results: object[] }[] };

  test('is valid, and has the fields that code scanning needs', () => {
    const log = read(renderSarif(all, options));
    expect(validate(log), JSON.stringify(validate.errors)).toBe(true);
    expect(log.runs[0]?.results).toHaveLength(4);
    expect(log.runs[0]?.results[1]).toMatchObject({
      ruleId: 'node-frontend-missing',
      level: 'error',
      baselineState: 'unchanged',
    });
    expect(log.runs[0]?.results[0]).toMatchObject({
      ruleId: 'slice-endpoint-unexpected',
      level: 'error',
      baselineState: 'new',
      locations: [{ logicalLocations: [{ fullyQualifiedName: 'shop/web' }] }],
      partialFingerprints: { 'finding/v1': 'slice-endpoint-unexpected endpointslices shop web ' },
    });
    expect(log.runs[0]?.results[2]).toMatchObject({ suppressions: [{ kind: 'external' }] });
  });

  test('an unknown output makes the run unsuccessful', () => {
    const log = read(renderSarif(reportOf(stateOf()), usual));
    expect(validate(log)).toBe(true);
    expect(log.runs[0]).toMatchObject({ invocations: [{ executionSuccessful: false }] });
  });
});

test.each([
  ['github', renderGithub],
  ['markdown', renderMarkdown],
  ['sarif', renderSarif],
] as const)('%s contains no invisible character of a name', (_, render) => {
  fc.assert(
    fc.property(hostileReport, (report) => !hides(render(report, usual))),
    { numRuns: 50 },
  );
});
