import { readFileSync } from 'node:fs';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';

import { fillOf } from '../../../src/audit/measure/endpoint-counts.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import { countConvergence, countTrigger } from '../../../src/audit/measure/lag.ts';
import { trackSize } from '../../../src/audit/measure/size.ts';
import { diffLegend } from '../../../src/output/text/findings.ts';
import type { GateOptions } from '../../../src/output/text/gate.ts';
import type { AuditReport, ReportFormat } from '../../../src/output/text/report.ts';
import {
  formatFindingLine,
  renderReport,
  summarizeMeasures,
} from '../../../src/output/text/report.ts';
import { endpoint, slice, times } from '../../build.ts';
import { schemaErrors } from '../../report-schema.ts';
import {
  conformState,
  findingOf,
  hides,
  hostileFinding,
  hostileReport,
  invisible,
  moment,
  reportOf,
  stateOf,
} from '../samples.ts';

const plain = { colour: false, width: 80 };
const whole = { colour: false, width: Infinity };
const table = (report: AuditReport, width = 80): string[] =>
  renderReport(report, 'table', { colour: false, width }).trimEnd().split('\n');

describe('one line for each finding that opens or is resolved', () => {
  test('open', () => {
    const likely = findingOf({ cause: 'hand-edited', causeProven: false });
    expect(formatFindingLine(likely, whole)).toMatch(/ \(likely hand-edited\)$/);
    expect(formatFindingLine(findingOf({ cause: 'hand-edited' }), whole)).toBe(
      '10:56:46 OPEN     critical shop/web endpointslices slice-endpoint-unexpected  ' +
        '10.1.2.3 of pod web-1, ready (hand-edited)',
    );
  });

  test('resolved', () => {
    expect(formatFindingLine(findingOf({ resolvedAt: moment + 28, severity: 'info' }), whole)).toBe(
      '10:57:14 RESOLVED info     shop/web endpointslices slice-endpoint-unexpected  after 58 s',
    );
  });

  test('fits 100 columns without its cause, if its names are long', () => {
    const node = findingOf({ node: 'node-a', output: 'node', cause: 'hand-edited' });
    const long = { ...node, service: 'x'.repeat(20), code: 'node-masquerade-unexpected' } as const;
    const line = formatFindingLine(long, { colour: false, width: 100 });
    expect(line.length).toBeLessThanOrEqual(100);
    expect(line).toContain(long.code);
    expect(line).not.toContain('hand-edited');
  });

  test('has what fits, and the whole difference without a width', () => {
    const long = findingOf({ actual: 'x '.repeat(200).trim() });
    expect(formatFindingLine(long, whole)).toContain(long.actual);
    for (const width of [80, 100, 140]) {
      const line = formatFindingLine(long, { colour: false, width });
      expect(line).toContain('shop/web endpointslices slice-endpoint-unexpected');
      expect(line.length).toBeLessThanOrEqual(width);
    }
  });

  test('colour changes nothing but colour', () => {
    for (const resolvedAt of [null, moment]) {
      const finding = findingOf({ resolvedAt });
      const coloured = formatFindingLine(finding, { ...whole, colour: true });
      expect(coloured).toContain('\u001b[');
      // oxlint-disable-next-line no-control-regex -- escape sequences are what is taken out
      expect(coloured.replace(/\u001b\[\d+m/g, '')).toBe(formatFindingLine(finding, whole));
    }
  });

  test('hides nothing', () => {
    fc.assert(
      fc.property(hostileFinding, (finding) => {
        expect(formatFindingLine(finding, whole)).not.toMatch(invisible);
      }),
    );
  });
});

describe('table', () => {
  const findings = [
    findingOf({ severity: 'info', code: 'slice-duplicate', service: 'a' }),
    findingOf({ resolvedAt: moment + 30, service: 'b' }),
    findingOf({ severity: 'warning', code: 'slice-orphaned', service: 'c', cause: 'hand-edited' }),
    findingOf({ service: 'd' }),
  ];

  test('sorts the worst findings first and resolved ones last', () => {
    const lines = table(reportOf(stateOf(), { findings }), 140);
    const opened = 'opened 10:56:46';
    expect(lines.filter((line) => /^[a-z]+ {2}slice-/.test(line))).toEqual([
      `critical  slice-endpoint-unexpected  shop/d  endpointslices  ${opened}`,
      `warning  slice-orphaned  shop/c  endpointslices  ${opened}`,
      `info  slice-duplicate  shop/a  endpointslices  ${opened}`,
      `critical  slice-endpoint-unexpected  shop/b  endpointslices  ${opened}, resolved 10:57:16`,
    ]);
    expect(lines.slice(-4)).toEqual([
      '3 findings open: 1 critical, 1 warning, 1 info; 1 finding resolved',
      'Verdicts: endpoints 19 ok, 1 pending; endpointslices 19 ok, 2 mismatch; ' +
        'mirrored 1 unknown',
      'Notes: not audited: 1 nodes-not-known; written by other controllers: 2 Services; ' +
        'input dropped: 3 stale',
      diffLegend,
    ]);
  });

  const detail = {
    code: 'slice-conditions-different',
    object: 'EndpointSlice shop/web-x',
  } as const;
  const differences = [
    {
      ...detail,
      ...{ address: '10.1.0.12', pod: 'shop/web-2', field: 'endpoints.conditions.ready' },
      ...{ expected: 'false', actual: 'true' },
    },
    {
      ...detail,
      ...{ address: '10.1.0.14', pod: 'shop/web-4', field: 'endpoints' },
      ...{ expected: 'ready, http 8080/TCP', actual: null },
    },
    {
      ...detail,
      ...{ address: '10.1.0.15', pod: null, field: 'endpoints' },
      ...{ expected: null, actual: 'ready, http 8080/TCP' },
    },
  ];

  test('a finding is a header, what it means, a diff, the cause and the fix', () => {
    const finding = findingOf({ code: detail.code, differences, cause: 'hand-edited' });
    const report = reportOf(stateOf(), { kind: 'audit', findings: [finding] });
    const lines = table(report);
    expect(lines[0]).toBe('critical  slice-conditions-different  shop/web  endpointslices');
    const diff = lines.indexOf('  EndpointSlice shop/web-x');
    expect(lines.slice(1, diff).join(' ').replaceAll(/ +/g, ' ').trim()).toBe(
      `${catalogue[finding.code].title}. ${catalogue[finding.code].meaning}`,
    );
    expect(lines.slice(diff + 1, diff + 6)).toEqual([
      '    10.1.0.12 (pod shop/web-2) endpoints.conditions.ready:',
      '    - true',
      '    + false',
      '    + 10.1.0.14 (pod shop/web-4): ready, http 8080/TCP',
      '    - 10.1.0.15: ready, http 8080/TCP',
    ]);
    const rest = lines.slice(diff + 6).join('\n');
    expect(rest).toMatch(/^ {2}cause: [^]*\(hand-edited\)$/m);
    expect(rest).toMatch(/^ {2}fix \[1\]: /m);
  });

  test('a remedy is printed once and has a number', () => {
    const two = [findingOf(), findingOf({ service: 'other' })];
    const lines = table(reportOf(stateOf(), { kind: 'audit', findings: two }));
    expect(lines.filter((line) => line.startsWith('  fix [1]: '))).toHaveLength(2);
    expect(lines).toContain('  fix [1]: see above');
  });

  test('ten differences are listed on a terminal and a hundred in a pipe', () => {
    const many = times(120, (n) => ({ ...differences[1], address: `10.0.0.${n}` }));
    const finding = findingOf({ differences: many as typeof differences });
    const report = reportOf(stateOf(), { kind: 'audit', findings: [finding] });
    for (const [width, shown] of [
      [80, 10],
      [Infinity, 100],
    ] as const) {
      const lines = table(report, width);
      expect(lines.filter((line) => line.startsWith('    + '))).toHaveLength(shown);
      expect(lines).toContain(`  ... and ${120 - shown} more; -o json lists all`);
    }
  });

  test('lines fit into 80 columns, except commands', () => {
    const report = reportOf(stateOf(), { findings: [findingOf({ differences }), ...findings] });
    const lines = table(report).slice(0, -5);
    // A command in one line can be copied.
    const wrapped = lines.filter((line) => !line.startsWith('    kubectl '));
    for (const line of wrapped) expect(line.length).toBeLessThanOrEqual(80);
  });

  test('wide has a line for each finding, with every cell in full', () => {
    const actual = 'x'.repeat(900);
    const report = reportOf(stateOf(), { kind: 'audit', findings: [findingOf({ actual })] });
    const [head, row] = renderReport(report, 'wide', plain).split('\n');
    expect(head?.split(/ {3,}/).slice(6)).toEqual(['FIELD', 'EXPECTED', 'ACTUAL']);
    expect(row?.split(/ {3,}/).slice(6)).toEqual(['endpoints', '-', actual]);
  });

  test('times over several days have their day', () => {
    const report = reportOf(stateOf(), { findings: findings.slice(3) });
    const input = { ...report.input, from: moment - 86_400 };
    expect(table({ ...report, input }, 200)[0]).toContain('  opened 2026-11-21T10:56:46Z');
    // A history has findings that opened before its first moment that is read.
    const old = findingOf({ openedAt: moment - 86_400 });
    const found = table({ ...report, findings: [old] }, 200);
    expect(found[0]).toContain('  opened 2026-11-20T10:56:46Z');
    const wide = renderReport({ ...report, input }, 'wide', plain).split('\n');
    expect(wide[1]).toContain('   2026-11-21T10:56:46Z   -');
  });

  test('has one header, or one wide line, for each finding and no invisible characters', () => {
    fc.assert(
      fc.property(
        hostileReport,
        fc.constantFrom<ReportFormat>('table', 'wide'),
        (report, format) => {
          const text = renderReport(report, format, plain);
          expect(hides(text)).toBe(false);
          const heads = text.split('\n').filter((line) => /^(critical|warning|info) /.test(line));
          expect(heads).toHaveLength(report.findings.length);
        },
      ),
    );
  });

  test('colour changes nothing but colour', () => {
    const report = reportOf(stateOf());
    const coloured = renderReport(report, 'table', { colour: true, width: 80 });
    expect(coloured).toContain('\u001b[31mcritical');
    // oxlint-disable-next-line no-control-regex -- escape sequences are what is taken out
    const stripped = coloured.replace(/\u001b\[\d+m/g, '');
    expect(stripped).toBe(renderReport(report, 'table', plain));
  });
});

describe('the headline', () => {
  const quiet = reportOf(conformState());
  const allUnknown = { conform: 0, pending: 0, different: 0, unknown: 3 };
  const cases: [string, AuditReport, string][] = [
    ['all is well', quiet, 'All 21 Services are ok'],
    ['of one', { ...quiet, services: 1 }, 'The only Service is ok'],
    ['of none', { ...quiet, services: 0 }, 'No Services to audit'],
    [
      'after a finding',
      { ...quiet, findings: [findingOf({ resolvedAt: moment })] },
      'All 21 Services are ok; 1 finding resolved',
    ],
    [
      'what is unknown is not conform',
      { ...quiet, verdicts: { ...quiet.verdicts, mirrored: allUnknown } },
      'No findings, but not every output is known to be ok',
    ],
    [
      'nor is what is pending',
      {
        ...quiet,
        verdicts: { ...quiet.verdicts, mirrored: { ...allUnknown, unknown: 0, pending: 1 } },
      },
      'No findings, but not every output is known to be ok',
    ],
    ['findings', { ...quiet, findings: [findingOf(), findingOf()] }, '2 findings: 2 critical'],
  ];
  test.each(cases)('%s', (_, report, want) => {
    expect(table(report)).toContain(want);
  });

  test('lag and an unverified release are said below', () => {
    const state = conformState();
    for (const seconds of times(100, () => 0.02)) {
      countConvergence(state.convergence, { output: 'endpoints', operation: 'add', seconds });
    }
    countConvergence(state.convergence, { output: 'endpoints', operation: 'remove', seconds: 3 });
    const { input } = reportOf(state);
    const unverified = ['controllers of 1.34 were not compared'];
    const lines = table(reportOf(state, { input: { ...input, verified: false, unverified } }));
    expect(lines.slice(-2)).toEqual([
      'Notes: not verified: controllers of 1.34 were not compared',
      'Convergence lag p50 / p99: endpoints 18 ms / 25 ms of 101',
    ]);
  });
});

describe('the gate', () => {
  const ignored = findingOf({ code: 'slice-duplicate', severity: 'critical', service: 'api' });
  const minor = findingOf({ code: 'endpoints-truncated', severity: 'info', service: 'db' });
  const failing = findingOf({ code: 'endpoints-missing', severity: 'warning' });
  const report = reportOf(conformState(), { findings: [minor, ignored, failing] });
  const gate: GateOptions = {
    failOn: { severity: 'warning', unserved: false },
    ignored: [{ code: 'slice-duplicate', service: null }],
    baseline: null,
  };
  const codesIn = (lines: readonly string[]): string[] =>
    lines.filter((line) => /^(?:critical|warning|info) /.test(line));

  test('what fails it is first in a table, and what it accepts is marked', () => {
    const shown = (options: GateOptions) =>
      codesIn(renderReport(report, 'table', whole, options).split('\n'));
    expect(shown(gate)).toEqual([
      expect.stringMatching(/^warning {2}endpoints-missing (?!.*ignored)/),
      expect.stringMatching(/^critical {2}slice-duplicate .* {2}ignored$/),
      expect.stringMatching(/^info {2}endpoints-truncated (?!.*below)/),
    ]);
    const critical = { ...gate, failOn: { severity: 'critical', unserved: false } } as const;
    expect(shown(critical)[1]).toMatch(/^warning .* {2}below --fail-on critical$/);
  });

  test('has a column of the wide table if it accepts a finding', () => {
    const [head = '', ...rows] = renderReport(report, 'wide', whole, gate).split('\n');
    expect(head).toMatch(/ GATE$/);
    expect(codesIn(rows).map((row) => row.split(/ {3,}/).at(-1))).toEqual([
      'fails',
      'ignored',
      'accepted',
    ]);
    expect(renderReport(report, 'wide', whole)).not.toContain('GATE');
  });

  test('marks Services without usable endpoints', () => {
    const suppressed = { owner: 'ann', reason: 'later', expires: '2026-12-31', source: 'c:1' };
    const row = { namespace: 'shop', reason: 'no_ready_pod' as const, detail: 'none is ready' };
    const rows = [
      { ...row, name: 'api', suppressed },
      { ...row, name: 'db', suppressed: null },
      { ...row, name: 'web', suppressed: null },
    ];
    const some = reportOf(conformState(), { servicesWithoutEndpoints: rows });
    const strict: GateOptions = {
      ...gate,
      failOn: { severity: 'warning', unserved: true },
      ignored: [{ code: 'unserved', service: 'shop/db' }],
    };
    expect(renderReport(some, 'table', whole, strict).split('\n').slice(1, 8)).toEqual([
      '  shop/web  no_ready_pod',
      '    none is ready',
      '  shop/api  no_ready_pod',
      '    suppressed until 2026-12-31 by ann: later',
      '    none is ready',
      '  shop/db  no_ready_pod  ignored',
      '    none is ready',
    ]);
  });
});

test('the notes name foreign Services, and count unknown nodes with the reason', () => {
  const names = times(7, (index) => `shop/web-${index}`);
  const nodes = ['a', 'b'].map((node, index) => {
    return { node, conform: 1, pending: 0, different: 0, unknown: index };
  });
  const more = { foreign: 9, foreignServices: names, nodes, unknown: { 'rules-not-known': 1 } };
  const text = renderReport(reportOf(conformState(), more), 'table', whole);
  expect(text).toContain(
    'written by other controllers: 9 Services ' +
      '(shop/web-0, shop/web-1, shop/web-2, shop/web-3, shop/web-4 and 4 more); ' +
      'unknown on 1 of 2 nodes: no rules have been read from this node',
  );
});

test('the notes count the nodes without rules if others have them', () => {
  const nodes = [{ node: 'a', conform: 1, pending: 0, different: 0, unknown: 0 }];
  const render = (nodesWithoutRules: number | null): string =>
    renderReport(reportOf(conformState(), { nodes, nodesWithoutRules }), 'table', whole);
  expect(render(6)).toContain('no rules were read from 6 of 7 nodes, which are not audited');
  for (const count of [0, null]) expect(render(count)).not.toContain('no rules were read');
});

test('the summary wraps at the width of the terminal', () => {
  const foreignServices = times(5, (index) => `shop/web-${index}`);
  const report = reportOf(conformState(), { foreign: 5, foreignServices });
  const lines = renderReport(report, 'table', { colour: false, width: 40 }).split('\n');
  expect(lines.filter((line) => line.length > 40)).toEqual([]);
  expect(lines).toContain('Notes: written by other controllers: 5');
});

test('Services without usable endpoints are listed after the findings', () => {
  const reason = 'no_ready_pod' as const;
  const row = { namespace: 'shop', reason, detail: 'none is ready', suppressed: null };
  const rows = times(52, (index) => ({ ...row, name: `web-${index}` }));
  const render = (servicesWithoutEndpoints: typeof rows): string =>
    renderReport(reportOf(stateOf(), { servicesWithoutEndpoints }), 'table', plain);
  expect(render([])).not.toContain('without usable endpoints');
  const lines = render(rows).split('\n');
  const start = lines.indexOf('Services without usable endpoints: 52');
  expect(lines.slice(start + 1, start + 3)).toEqual([
    '  shop/web-0  no_ready_pod',
    '    none is ready',
  ]);
  expect(lines).toContain('  and 2 more: -o json lists all');
  expect(lines.findIndex((line) => line.startsWith('critical'))).toBeLessThan(start);
});

test('an assumed release is shown with its source', () => {
  const { input } = reportOf(conformState());
  const said = (
    releaseBy: AuditReport['input']['releaseBy'],
    releaseEvidence: string | null = null,
  ): string => {
    const chosen = { ...input, release: '1.33', releaseBy, releaseEvidence };
    return (
      renderReport(reportOf(conformState(), { input: chosen }), 'table', whole)
        .split('\n')
        .at(-2) ?? ''
    );
  };
  const pin = 'pin with --kubernetes-version)';
  expect(said('kubelets', 'kubelets 1.30 allow 1.30-1.33')).toBe(
    `Notes: assumed 1.33 (kubelets 1.30 allow 1.30-1.33; ${pin}`,
  );
  expect(said('newest')).toBe(`Notes: assumed 1.33 (the newest known; ${pin}`);
  expect(said('oldest')).toBe(`Notes: assumed 1.33 (the oldest known; ${pin}`);
  expect(said('version')).not.toContain('1.33');
  expect(said('option')).not.toContain('1.33');
});

test('JSON and YAML are the document itself', () => {
  const report = reportOf(stateOf(), { problems: ['a: b', '- c', '\u001b[31m', '\u0085 \u2028'] });
  for (const format of ['json', 'yaml'] as const) {
    const text = renderReport(report, format, plain);
    expect(format === 'json' ? JSON.parse(text) : parseYaml(text)).toEqual(report);
  }
});

test('JSON and YAML lose nothing and hide nothing, whatever the cluster named', () => {
  fc.assert(
    fc.property(hostileReport, (report) => {
      const json = renderReport(report, 'json', plain);
      expect(hides(json)).toBe(false);
      expect(JSON.parse(json)).toEqual(report);
      const yaml = renderReport(report, 'yaml', plain);
      expect(hides(yaml)).toBe(false);
      expect(parseYaml(yaml)).toEqual(report);
    }),
  );
});

test('a report names its cluster', () => {
  const text = renderReport(reportOf(stateOf(), { cluster: 'prod\u001b' }), 'table', plain);
  expect(text).toContain('\nCluster: prod\\u001b\n');
  expect(renderReport(reportOf(stateOf()), 'table', plain)).not.toContain('Cluster');
});

test('the JSON Schema describes every field and requires it', () => {
  const report = reportOf(stateOf());
  expect(schemaErrors(report)).toEqual([]);
  const [finding] = report.findings;
  for (const wrong of [
    { ...report, extra: 1 },
    { ...report, findings: [{ ...finding, differences: undefined }] },
    { ...report, findings: [{ ...finding, severity: 'fatal' }] },
  ]) {
    expect(schemaErrors(wrong)).not.toEqual([]);
  }
});

test('docs/report.md describes every field', () => {
  const text = readFileSync(new URL('../../../docs/report.md', import.meta.url), 'utf8');
  const state = stateOf();
  Object.assign(state.fill, fillOf([slice(), slice()], 100));
  const names = new Set<string>();
  const collect = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [name, inner] of Object.entries(value)) {
      if (!Array.isArray(value)) names.add(name);
      collect(inner);
    }
  };
  collect(reportOf(state));
  expect(names.size).toBeGreaterThan(50);
  expect([...names].filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
});

test('measures show the accumulators as numbers', () => {
  const state = stateOf();
  const slices = [2, 3].map((count) =>
    slice({ bytes: 2000, endpoints: times(count, () => endpoint()) }),
  );
  Object.assign(state.fill, fillOf(slices, 100));
  for (const after of slices) {
    trackSize(state.sizes, { resource: 'endpointslices', before: null, after, at: 0 }, null);
  }
  countConvergence(state.convergence, { output: 'mirrored', operation: 'add', seconds: 2 });
  countConvergence(state.convergence, { output: 'mirrored', operation: 'update', seconds: 4 });
  countTrigger(state.trigger, { resource: 'endpoints', quality: 'absent', seconds: null });
  const measures = summarizeMeasures(state, [['shop/web', state.fill]]);
  expect(measures.fill).toEqual({
    endpoints: 5,
    slices: 2,
    minimum: 1,
    surplus: 1,
    ratio: 0.025,
    worst: [{ namespace: 'shop', service: 'web', endpoints: 5, slices: 2, minimum: 1, surplus: 1 }],
  });
  expect(measures.sizes.endpointslices).toMatchObject({ objects: 2, maxBytes: 2000 });
  expect(measures.sizes.endpointslices.bytes.slice(0, 2)).toEqual([
    { atMost: 1024, objects: 0 },
    { atMost: 10_240, objects: 2 },
  ]);
  expect(measures.convergenceLag.mirrored.all).toMatchObject({ count: 2, max: 4 });
  expect(measures.convergenceLag.mirrored.remove).toEqual({
    count: 0,
    p50: null,
    p99: null,
    max: null,
  });
  expect(measures.triggerLag.endpoints).toMatchObject({ count: 0, p50: null });
  expect(measures.triggerLag.endpoints.qualities.absent).toBe(1);
});
