import { readFileSync } from 'node:fs';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';

import { fillOf } from '../../../src/audit/measure/endpoint-counts.ts';
import { countConvergence, countTrigger } from '../../../src/audit/measure/lag.ts';
import { trackSize } from '../../../src/audit/measure/size.ts';
import type { AuditReport, ReportFormat } from '../../../src/output/text/report.ts';
import {
  formatFindingLine,
  renderReport,
  summarizeMeasures,
} from '../../../src/output/text/report.ts';
import { endpoint, slice, times } from '../../build.ts';
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
const table = (report: AuditReport, width = 80): string[] =>
  renderReport(report, 'table', { colour: false, width }).trimEnd().split('\n');

describe('one line for each finding that opens or is resolved', () => {
  test('open', () => {
    const likely = findingOf({ cause: 'hand-edited', causeProven: false });
    expect(formatFindingLine(likely, false)).toMatch(/ \(likely hand-edited\)$/);
    expect(formatFindingLine(findingOf({ cause: 'hand-edited' }), false)).toBe(
      '10:56:46 OPEN     critical shop/web endpointslices slice-endpoint-unexpected  ' +
        '10.1.2.3 of pod web-1, ready (hand-edited)',
    );
  });

  test('resolved', () => {
    expect(formatFindingLine(findingOf({ resolvedAt: moment + 28, severity: 'info' }), false)).toBe(
      '10:57:14 RESOLVED info     shop/web endpointslices slice-endpoint-unexpected  after 58 s',
    );
  });

  test('colour changes nothing but colour', () => {
    for (const resolvedAt of [null, moment]) {
      const finding = findingOf({ resolvedAt });
      const coloured = formatFindingLine(finding, true);
      expect(coloured).toContain('\u001b[');
      // eslint-disable-next-line no-control-regex -- escape sequences are what is taken out
      expect(coloured.replace(/\u001b\[\d+m/g, '')).toBe(formatFindingLine(finding, false));
    }
  });

  test('hides nothing', () => {
    fc.assert(
      fc.property(hostileFinding, (finding) => {
        expect(formatFindingLine(finding, false)).not.toMatch(invisible);
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

  test('sorts the worst findings first and resolved ones last, with details', () => {
    const lines = table(reportOf(stateOf(), { findings }), 140);
    const what = '10.1.2.3 of pod web-1, re…';
    const rows = [
      ['SEVERITY', 'NAMESPACE', 'SERVICE', 'OUTPUT        ', 'CODE                     '],
      ['critical', 'shop     ', 'd      ', 'endpointslices', 'slice-endpoint-unexpected'],
      ['warning ', 'shop     ', 'c      ', 'endpointslices', 'slice-orphaned           '],
      ['info    ', 'shop     ', 'a      ', 'endpointslices', 'slice-duplicate          '],
      ['critical', 'shop     ', 'b      ', 'endpointslices', 'slice-endpoint-unexpected'],
    ];
    const more = [
      ['CAUSE      ', 'OPENED  ', 'RESOLVED', 'WHAT'],
      ['-          ', '10:56:46', '-       ', what],
      ['hand-edited', '10:56:46', '-       ', what],
      ['-          ', '10:56:46', '-       ', what],
      ['-          ', '10:56:46', '10:57:16', what],
    ];
    const gap = '   ';
    const want = rows.map((row, index) => [...row, ...(more[index] ?? [])].join(gap));
    expect(lines.slice(0, 5)).toEqual(want);
    expect(lines.slice(5)).toEqual([
      '',
      '3 findings open: 1 critical, 1 warning, 1 info; 1 finding resolved',
      'Verdicts: endpoints 19 conform, 1 pending; endpointslices 19 conform, 2 different; ' +
        'mirrored 1 unknown',
      'Besides: not judged: 1 nodes-not-known; written by others: 2 Services; ' +
        'input dropped: 3 stale',
    ]);
  });

  test('a dump has no times, and a narrow terminal only the columns', () => {
    const report = reportOf(stateOf(), { kind: 'audit', findings: findings.slice(3) });
    expect(table(report, 40).slice(0, 3)).toEqual([
      'SEVERITY   NAMESPACE   SERVICE   OUTPUT           CODE                        CAUSE',
      'critical   shop        d         endpointslices   slice-endpoint-unexpected   -',
      '',
    ]);
  });

  test('a table without room for details has a hint to -o wide', () => {
    const report = reportOf(stateOf(), { kind: 'audit', findings: findings.slice(3) });
    const hint = 'What is wrong with them has no room in these columns: -o wide says it';
    expect(table(report, 80).at(-1)).toBe(hint);
    expect(table(reportOf(conformState()), 80)).not.toContain(hint);
    expect(renderReport(report, 'wide', plain)).not.toContain(hint);
    for (const width of [160, Infinity]) {
      const [head, row, ...rest] = table(report, width);
      expect(head).toMatch(/WHAT$/);
      expect(row).toMatch(/10\.1\.2\.3 of pod web-1, ready$/);
      expect(rest).not.toContain(hint);
    }
  });

  test('wide says field, expected and actual, whatever the width', () => {
    const report = reportOf(stateOf(), { kind: 'audit', findings: findings.slice(3) });
    const [head, row] = renderReport(report, 'wide', plain).split('\n');
    expect(head?.split(/ {3,}/).slice(6)).toEqual(['FIELD', 'EXPECTED', 'ACTUAL']);
    expect(row?.split(/ {3,}/).slice(6)).toEqual([
      'endpoints',
      '-',
      '10.1.2.3 of pod web-1, ready',
    ]);
  });

  test('times over several days have their day', () => {
    const report = reportOf(stateOf(), { findings: findings.slice(3) });
    const input = { ...report.input, from: moment - 86_400 };
    expect(table({ ...report, input })[1]).toContain('   2026-11-21T10:56:46Z   -');
  });

  test('each finding is one line, in the order of the report, without invisible characters', () => {
    fc.assert(
      fc.property(
        hostileReport,
        fc.constantFrom<ReportFormat>('table', 'wide'),
        (report, format) => {
          const text = renderReport(report, format, plain);
          expect(hides(text)).toBe(false);
          const lines = text.split('\n');
          const listed = report.findings.length === 0 ? 0 : report.findings.length + 2;
          expect(lines.length - 1 - listed).toBeGreaterThanOrEqual(2);
          expect(lines.length - 1 - listed).toBeLessThanOrEqual(5);
          const starts = ['critical ', 'warning  ', 'info     '];
          for (const line of lines.slice(1, 1 + report.findings.length)) {
            expect(starts).toContain(line.slice(0, 9));
          }
        },
      ),
    );
  });

  test('colours the severity only', () => {
    const report = reportOf(stateOf());
    const coloured = renderReport(report, 'table', { colour: true, width: 80 });
    expect(coloured).toContain('\u001b[31mcritical');
    // eslint-disable-next-line no-control-regex -- escape sequences are what is taken out
    const stripped = coloured.replace(/\u001b\[\d+m/g, '');
    expect(stripped).toBe(renderReport(report, 'table', plain));
  });
});

describe('the headline', () => {
  const quiet = reportOf(conformState());
  const unjudged = { conform: 0, pending: 0, different: 0, unknown: 3 };
  const cases: [string, AuditReport, string][] = [
    ['all is well', quiet, 'All 21 Services conform'],
    ['of one', { ...quiet, services: 1 }, 'The only Service conforms'],
    ['of none', { ...quiet, services: 0 }, 'No Services to judge'],
    [
      'after a finding',
      { ...quiet, findings: [findingOf({ resolvedAt: moment })] },
      'All 21 Services conform; 1 finding resolved',
    ],
    [
      'what is unknown is not conform',
      { ...quiet, verdicts: { ...quiet.verdicts, mirrored: unjudged } },
      'No findings, but not every output is known to conform',
    ],
    [
      'nor is what is pending',
      {
        ...quiet,
        verdicts: { ...quiet.verdicts, mirrored: { ...unjudged, unknown: 0, pending: 1 } },
      },
      'No findings, but not every output is known to conform',
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
      'Besides: not verified: controllers of 1.34 were not compared',
      'Convergence lag p50 / p99: endpoints 18 ms / 25 ms of 101',
    ]);
  });
});

test('an assumed release is shown with its source', () => {
  const { input } = reportOf(conformState());
  const said = (
    releaseBy: AuditReport['input']['releaseBy'],
    kubernetes: string | null = null,
  ): string => {
    const chosen = { ...input, release: '1.33', releaseBy, kubernetes };
    return table(reportOf(conformState(), { input: chosen })).at(-1) ?? '';
  };
  expect(said('kubelets and labels')).toBe('Besides: judged as 1.33, by its kubelets and labels');
  expect(said('newest')).toBe('Besides: judged as 1.33, the newest known');
  expect(said('newest', 'v1.99.0')).toBe('Besides: judged as 1.33, the newest known');
  expect(said('oldest', 'v1.20.0')).toBe('Besides: judged as 1.33, the oldest known');
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

test('JUnit lists open findings before resolved ones', () => {
  const findings = [findingOf({ resolvedAt: moment }), findingOf({ severity: 'info' })];
  const report = reportOf(stateOf(), { findings });
  const text = renderReport(report, 'junit', plain);
  expect(text.indexOf('<skipped')).toBeGreaterThan(0);
  expect(text.indexOf('(resolved at')).toBeGreaterThan(text.indexOf('<skipped'));
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
