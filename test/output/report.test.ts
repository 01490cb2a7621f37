import { readFileSync } from 'node:fs';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';

import { conformState, findingOf, moment, reportOf, stateOf } from './samples.ts';
import type { Finding } from '../../src/audit/findings.ts';
import { countConvergence, countTrigger } from '../../src/measure/lag.ts';
import { trackSize } from '../../src/measure/size.ts';
import { setFill } from '../../src/measure/fill.ts';
import type { Report, ReportFormat } from '../../src/output/report.ts';
import {
  clockText,
  cut,
  detailText,
  escapeMarkup,
  findingLine,
  headline,
  lagText,
  measuresOf,
  printable,
  renderReport,
  timeText,
} from '../../src/output/report.ts';
import { endpoint, slice, times } from '../build.ts';

const plain = { colour: false, width: 80 };
const table = (report: Report, width = 80): string[] =>
  renderReport(report, 'table', { colour: false, width }).trimEnd().split('\n');

/** Text as somebody would write it who wants it to be read as something else. */
const hostileText = fc
  .array(
    fc.oneof(
      fc.constantFrom('\u001b[31m', '\u009b2J', '\r', '\n', '\t', '\u202e', '\u2028', '\u0000'),
      fc.constantFrom('<b>', '&amp;', '"', "'", ']]>', '<!--', '\ufffe', '\ud800', '\udc00', '😀'),
      fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
      fc.string({ unit: 'binary' }),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));

const hostileFinding: fc.Arbitrary<Finding> = fc
  .record({
    namespace: hostileText,
    service: hostileText,
    object: hostileText,
    field: hostileText,
    expected: fc.option(hostileText),
    actual: fc.option(hostileText),
    resolvedAt: fc.option(fc.constant(moment + 5)),
    severity: fc.constantFrom('critical', 'warning', 'info'),
    difference: fc.constantFrom('missing', 'unexpected', 'different'),
  })
  .map((more) => findingOf(more as Partial<Finding>));

const hostileReport: fc.Arbitrary<Report> = fc
  .tuple(fc.array(hostileFinding, { maxLength: 4 }), hostileText)
  .map(([findings, text]) =>
    reportOf(stateOf(), {
      findings,
      problems: [text],
      dropped: { [text]: 3 },
      input: { ...reportOf(stateOf()).input, sources: [text], release: text, verified: false },
    }),
  );

/** What no text for people may hold, newlines apart: what cannot be seen, and half characters. */
const invisible = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
const hides = (text: string): boolean => invisible.test(text.replaceAll('\n', ''));

describe('texts', () => {
  test.each<[string, string]>([
    ['web', 'web'],
    ['a\u001b[31mb', 'a\\u001b[31mb'],
    ['a\nb\r', 'a\\u000ab\\u000d'],
    ['\u202egnp.exe', '\\u202egnp.exe'],
    ['half \ud800', 'half \\ud800'],
    ['\u{e0041}', '\\u{e0041}'],
    ['Grüße 😀', 'Grüße 😀'],
  ])('%j is printed as %s', (text, want) => {
    expect(printable(text)).toBe(want);
  });

  test('nothing printable hides anything, and what hides nothing is not changed', () => {
    fc.assert(
      fc.property(hostileText, (text) => {
        expect(printable(text)).not.toMatch(invisible);
        expect(printable(printable(text))).toBe(printable(text));
        expect(escapeMarkup(text)).not.toMatch(/[<>"']|&(?!(?:amp|lt|gt|quot|#39);)/);
      }),
    );
  });

  test.each<[string, number, string]>([
    ['short', 5, 'short'],
    ['longer', 5, 'long…'],
    ['😀😀😀', 3, '😀😀😀'],
    ['😀😀😀😀', 3, '😀😀…'],
  ])('%s in %i characters', (text, length, want) => {
    expect(cut(text, length)).toBe(want);
  });

  test.each<[number | null, string]>([
    [null, '-'],
    [0, '0 ms'],
    [0.0214, '21 ms'],
    [0.9996, '1 s'],
    [1.23, '1.2 s'],
    [9.96, '9.96 s'],
    [58.09, '58.1 s'],
    [99.99, '1.7 min'],
    [600, '10 min'],
  ])('a lag of %s s is %s', (seconds, want) => {
    expect(lagText(seconds)).toBe(want);
  });

  test('times are UTC, and one that is none is not shown', () => {
    expect(timeText(moment)).toBe('2026-11-21T10:56:46Z');
    expect(clockText(moment + 0.9)).toBe('10:56:46');
    for (const none of [null, Number.NaN, Infinity, 1e300]) expect(clockText(none)).toBe('-');
  });
});

describe('what is wrong with a finding, in one line', () => {
  test.each<[Partial<Finding>, string]>([
    [{ difference: 'unexpected', actual: '10.1.2.3' }, '10.1.2.3'],
    [{ difference: 'missing', expected: '10.1.2.3', actual: null }, 'missing: 10.1.2.3'],
    [
      { difference: 'missing', expected: '10.1.2.3', actual: '10.9.9.9' },
      '10.9.9.9 in place of 10.1.2.3',
    ],
    [{ difference: 'different', expected: 'ready', actual: 'not ready' }, 'not ready, not ready'],
    [{ difference: 'different', expected: null, actual: null }, 'missing: nothing'],
  ])('%j', (more, want) => {
    expect(detailText(findingOf(more), 200)).toBe(want);
  });

  test('both sides keep their beginning where there is no room for all', () => {
    const long = (letter: string): string => letter.repeat(100);
    const of = (expected: string, actual: string, length: number): string =>
      detailText(findingOf({ difference: 'different', expected, actual }), length);
    expect(of(long('e'), long('a'), 26)).toBe('aaaaaaaaa…, not eeeeeeeee…');
    expect(of('e', long('a'), 26)).toBe(`${'a'.repeat(18)}…, not e`);
    expect(of(long('e'), 'a', 26)).toBe(`a, not ${'e'.repeat(18)}…`);
  });

  test('never longer than it may be', () => {
    fc.assert(
      fc.property(hostileFinding, fc.integer({ min: 30, max: 90 }), (finding, length) => {
        expect(Array.from(detailText(finding, length)).length).toBeLessThanOrEqual(length);
      }),
    );
  });
});

describe('one line per finding as it opens or is resolved', () => {
  test('open', () => {
    expect(findingLine(findingOf({ cause: 'hand-edited' }), false)).toBe(
      '10:56:46 OPEN     critical shop/web endpointslices slice-endpoint-unexpected  ' +
        '10.1.2.3 of pod web-1, ready (hand-edited)',
    );
  });

  test('resolved', () => {
    expect(findingLine(findingOf({ resolvedAt: moment + 28, severity: 'info' }), false)).toBe(
      '10:57:14 RESOLVED info     shop/web endpointslices slice-endpoint-unexpected  after 58 s',
    );
  });

  test('colour changes nothing but colour', () => {
    for (const resolvedAt of [null, moment]) {
      const finding = findingOf({ resolvedAt });
      const coloured = findingLine(finding, true);
      expect(coloured).toContain('\u001b[');
      // eslint-disable-next-line no-control-regex -- escape sequences are what is taken out
      expect(coloured.replace(/\u001b\[\d+m/g, '')).toBe(findingLine(finding, false));
    }
  });

  test('hides nothing', () => {
    fc.assert(
      fc.property(hostileFinding, (finding) => {
        expect(findingLine(finding, false)).not.toMatch(invisible);
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

  test('the worst first, those that are resolved last, what is wrong where there is room', () => {
    expect(table(reportOf(stateOf(), { findings }), 140)).toEqual([
      'SEVERITY   NAMESPACE   SERVICE   OUTPUT           CODE                        CAUSE         OPENED     RESOLVED   WHAT',
      'critical   shop        d         endpointslices   slice-endpoint-unexpected   -             10:56:46   -          10.1.2.3 of pod web-1, re…',
      'warning    shop        c         endpointslices   slice-orphaned              hand-edited   10:56:46   -          10.1.2.3 of pod web-1, re…',
      'info       shop        a         endpointslices   slice-duplicate             -             10:56:46   -          10.1.2.3 of pod web-1, re…',
      'critical   shop        b         endpointslices   slice-endpoint-unexpected   -             10:56:46   10:57:16   10.1.2.3 of pod web-1, re…',
      '',
      '3 findings open: 1 critical, 1 warning, 1 info; 1 finding resolved',
      'Verdicts: endpoints 19 conform, 1 pending; endpointslices 19 conform, 2 different; mirrored 1 unknown',
      'Besides: not judged: 1 nodes-not-known; written by others: 2 Services; input dropped: 3 stale',
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

  test('one finding is one line, in order of its report, and hides nothing', () => {
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
          expect(lines.length - 1 - listed).toBeLessThanOrEqual(4);
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
  const cases: [string, Report, string][] = [
    ['all is well', quiet, 'All 21 Services conform'],
    ['of one', { ...quiet, services: 1 }, 'The only Service conforms'],
    ['of none', { ...quiet, services: 0 }, 'No Services in the input'],
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
    expect(headline(report)).toBe(want);
    expect(table(report)).toContain(want);
  });

  test('lag and an unverified release are said below', () => {
    const state = conformState();
    for (const seconds of times(100, () => 0.02)) {
      countConvergence(state.convergence, { output: 'endpoints', operation: 'add', seconds });
    }
    countConvergence(state.convergence, { output: 'endpoints', operation: 'remove', seconds: 3 });
    const { input } = reportOf(state);
    const lines = table(reportOf(state, { input: { ...input, release: '1.34', verified: false } }));
    expect(lines.slice(-2)).toEqual([
      'Besides: release 1.34 is not verified',
      'Convergence lag p50 / p99: endpoints 18 ms / 25 ms of 101',
    ]);
  });
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
  test('is red for what the command is red for', () => {
    const findings = [
      findingOf(),
      findingOf({ severity: 'info', service: 'api', cause: 'hand-edited' }),
      findingOf({ resolvedAt: moment + 1, severity: 'warning', service: 'b' }),
      findingOf({ output: 'input', code: 'address-shared' }),
    ];
    const text = renderReport(reportOf(stateOf(), { findings }), 'junit', plain);
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
    expect(text).toContain('<system-out>19 outputs conform</system-out>');
    expect(text).toContain('(resolved at 2026-11-21T10:56:47Z)');
  });

  test('has one passing test case per output where all is well', () => {
    const text = renderReport(reportOf(conformState()), 'junit', plain);
    expect(text).toContain('tests="3" failures="0" errors="0" skipped="0">');
    expect(xmlTags(text).filter((tag) => tag === 'testcase').length).toBe(3);
  });

  test('is well-formed, whatever the cluster named', () => {
    fc.assert(
      fc.property(hostileReport, (report) => {
        const text = renderReport(report, 'junit', plain);
        expect(hides(text)).toBe(false);
        const cases = xmlTags(text).filter((tag) => tag === 'testcase').length;
        // conform and pending of endpoints, conform of endpointslices, unknown of mirrored
        expect(cases).toBe(report.findings.length + 4);
      }),
    );
  });
});

test('docs/report.md describes every field', () => {
  const text = readFileSync(new URL('../../docs/report.md', import.meta.url), 'utf8');
  const state = stateOf();
  setFill(state.fill, 'shop/web', [slice(), slice()]);
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

test('measures are the accumulators in numbers', () => {
  const state = stateOf();
  const slices = [2, 3].map((count) =>
    slice({ bytes: 2000, endpoints: times(count, () => endpoint()) }),
  );
  setFill(state.fill, 'shop/web', slices);
  for (const after of slices) {
    trackSize(state.sizes, { resource: 'endpointslices', before: null, after, at: 0 });
  }
  countConvergence(state.convergence, { output: 'mirrored', operation: 'add', seconds: 2 });
  countConvergence(state.convergence, { output: 'mirrored', operation: 'update', seconds: 4 });
  countTrigger(state.trigger, { resource: 'endpoints', quality: 'absent', seconds: null });
  const measures = measuresOf(state);
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
