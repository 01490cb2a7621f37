// The report as JUnit XML, which CI systems show beside test results.
//
// Each finding is a test case in the suite of its output, and so is each verdict without findings.
// A finding that the gate accepts is skipped. An unknown output is an error, since it is neither
// right nor wrong. JUnit has no official schema, so only elements and attributes are written that
// every reader knows.

import { type Verdict, verdictWords } from '../../audit/finding/verdicts.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { ownerOf } from './annotations.ts';
import {
  escapeMarkup,
  formatCause,
  formatCount,
  formatDetail,
  formatField,
  formatTime,
  type ReportedFinding,
} from './format.ts';
import { acceptanceOf, acceptanceWords, type GateOptions, unservedFailures } from './gate.ts';
import { type AuditReport, sortFindings } from './report.ts';

type TestCase = ReturnType<typeof testCase>;

function testCase(
  output: string,
  name: string,
  result: 'passed' | 'failure' | 'error' | 'skipped',
  message: string,
  body: readonly string[] = [],
  severity: string | null = null,
) {
  const type = result === 'error' ? 'unknown' : severity;
  const attributes = `${type === null ? '' : ` type="${type}"`} message="${escapeMarkup(message)}"`;
  const text = body.map(escapeMarkup).join('\n');
  const child =
    result === 'passed'
      ? `<system-out>${escapeMarkup(message)}</system-out>`
      : `<${result}${attributes}>${text}</${result}>`;
  const opening = `<testcase classname="${output}" name="${escapeMarkup(name)}">`;
  return { result, xml: `    ${opening}${child}</testcase>\n` };
}

function findingCase(finding: ReportedFinding, options: GateOptions): TestCase {
  const { code, severity, output, resolvedAt } = finding;
  const cause = formatCause(finding);
  const body = [
    `object: ${finding.object}`,
    `field: ${formatField(finding.field)}`,
    `expected: ${finding.expected ?? '-'}`,
    `actual: ${finding.actual ?? '-'}`,
    `since: ${formatTime(finding.since)}`,
  ];
  const name = `${code} ${ownerOf(finding)}${cause === '' ? '' : ` (${cause})`}`;
  const resolved = resolvedAt === null ? '' : ` (resolved at ${formatTime(resolvedAt)})`;
  const text = formatDetail(finding, 500) + resolved;
  const acceptance = acceptanceOf(finding, options);
  if (acceptance === null) return testCase(output, name, 'failure', text, body, severity);
  return testCase(output, name, 'skipped', `${acceptanceWords[acceptance]}: ${text}`, body);
}

const verdictTexts = [
  ['conform', 'passed', 'ok'],
  ['pending', 'skipped', 'within the settle window'],
  ['unknown', 'error', 'cannot be audited'],
] as const;

const verdictCases = (output: string, counts: Readonly<Record<Verdict, number>>): TestCase[] =>
  verdictTexts
    .filter(([verdict]) => counts[verdict] > 0)
    .map(([verdict, result, text]) =>
      testCase(
        output,
        verdictWords[verdict],
        result,
        `${formatCount(counts[verdict], 'output')} ${text}`,
      ),
    );

function inputCases({ verdicts, unknown, services, foreign }: AuditReport): TestCase[] {
  const error = (name: string, text: string) => [testCase('input', name, 'error', text)];
  const outputs = verdictOutputs.reduce((sum, output) => sum + verdicts[output].unknown, 0);
  const unread = Object.values(unknown).reduce((sum, count) => sum + count, -outputs);
  if (unread > 0) return error('unknown', `${formatCount(unread, 'Service')} cannot be read`);
  return services > 0 || foreign > 0 ? [] : error('nothing', 'No Services to audit');
}

function suite(tag: string, name: string, cases: readonly TestCase[], children: string): string {
  const numbers = Object.entries({ failures: 'failure', errors: 'error', skipped: 'skipped' })
    .map(([key, wanted]) => [key, cases.filter(({ result }) => result === wanted).length] as const)
    .map(([key, count]) => ` ${key}="${count}"`);
  return `<${tag} name="${name}" tests="${cases.length}"${numbers.join('')}>${children}</${tag}>`;
}

const unservedCases = (report: AuditReport, options: GateOptions): TestCase[] =>
  unservedFailures(report, options).map(({ namespace, name, reason, detail }) =>
    testCase('traffic', `unserved ${namespace}/${name}`, 'failure', detail, [], reason),
  );

export function renderJunit(report: AuditReport, options: GateOptions): string {
  const findings = sortFindings(report.findings);
  const casesOf = (output: (typeof verdictOutputs)[number] | 'input'): TestCase[] => [
    ...(output === 'input' ? inputCases(report) : verdictCases(output, report.verdicts[output])),
    ...findings
      .filter((finding) => finding.output === output)
      .map((finding) => findingCase(finding, options)),
  ];
  const groups = [...verdictOutputs, 'input' as const].map(
    (output) => [output, casesOf(output)] as const,
  );
  const all = [...groups, ['traffic', unservedCases(report, options)] as const];
  const suites = all.flatMap(([output, cases]) => {
    const lines = cases.map(({ xml }) => xml).join('');
    const xml = `  ${suite('testsuite', output, cases, `\n${lines}  `)}\n`;
    return cases.length === 0 ? [] : [{ cases, xml }];
  });
  const name = ['endpoint-auditor', report.cluster ?? []].flat().map(escapeMarkup).join(' ');
  const children = `\n${suites.map(({ xml }) => xml).join('')}`;
  const cases = suites.flatMap((group) => group.cases);
  const root = suite('testsuites', name, cases, children);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${root}\n`;
}
