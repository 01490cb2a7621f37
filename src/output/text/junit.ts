// A report as JUnit's XML, which CI systems show beside test results. Every finding is a test case
// of the suite of its output, and so is every verdict that findings do not tell of.
//
// CI decides by failures and errors: red is what the exit code of the command is red for, and what
// is unknown is an error, since it is neither right nor wrong. JUnit has no schema of record; only
// elements and attributes that every reader knows are written.

import type { Verdict } from '../../audit/finding/verdicts.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import type { Summary } from '../../audit/summary.ts';
import type { ReportedFinding } from './format.ts';
import { formatDetail, escapeMarkup, formatCount, escapeInvisible, formatTime } from './format.ts';

interface TestCase {
  readonly name: string;
  readonly classname: string;
  readonly result: 'passed' | 'failure' | 'error' | 'skipped';
  /** '' only where it is passed. */
  readonly type: string;
  readonly message: string;
  readonly body: string;
}

/** Red is what the exit code of the command is red for; information is shown as skipped. */
function findingCase(finding: ReportedFinding): TestCase {
  const { code, severity, output, namespace, service, cause, resolvedAt } = finding;
  const { object, field, expected, actual } = finding;
  const resolved = resolvedAt === null ? '' : ` (resolved at ${formatTime(resolvedAt)})`;
  return {
    name: `${code} ${namespace}/${service}${cause === null ? '' : ` (${cause})`}`,
    classname: output,
    result: severity === 'info' ? 'skipped' : 'failure',
    type: severity,
    message: formatDetail(finding, 500) + resolved,
    body: [
      `object: ${escapeInvisible(object)}`,
      `field: ${escapeInvisible(field)}`,
      `expected: ${escapeInvisible(expected ?? '-')}`,
      `actual: ${escapeInvisible(actual ?? '-')}`,
      `since: ${formatTime(finding.since)}`,
    ].join('\n'),
  };
}

/** What an output says besides its findings, one test case per verdict. */
function verdictCases(output: string, counts: Readonly<Record<Verdict, number>>): TestCase[] {
  const { conform, pending, unknown } = counts;
  const base = { classname: output, type: '', body: '' };
  const cases: TestCase[] = [];
  if (conform > 0) {
    const body = `${formatCount(conform, 'output')} conform`;
    cases.push({ ...base, name: 'conform', result: 'passed', message: '', body });
  }
  if (pending > 0) {
    const message = `${formatCount(pending, 'output')} within the settle window`;
    cases.push({ ...base, name: 'pending', result: 'skipped', message });
  }
  if (unknown > 0) {
    const message = `${formatCount(unknown, 'output')} cannot be judged`;
    cases.push({ ...base, name: 'unknown', result: 'error', type: 'unknown', message });
  }
  return cases;
}

function caseText({ name, classname, result, type, message, body }: TestCase): string {
  const attributes = `classname="${escapeMarkup(classname)}" name="${escapeMarkup(name)}"`;
  // The body is lines of printable text; only their ends are not to be spelt out.
  const text = body.split('\n').map(escapeMarkup).join('\n');
  if (result === 'passed') {
    return `    <testcase ${attributes}><system-out>${text}</system-out></testcase>`;
  }
  const kind = type === '' || result === 'skipped' ? '' : ` type="${escapeMarkup(type)}"`;
  const child = `<${result}${kind} message="${escapeMarkup(message)}">${text}</${result}>`;
  return `    <testcase ${attributes}>${child}</testcase>`;
}

function countAttributes(cases: readonly TestCase[]): string {
  const of = (result: TestCase['result']): number =>
    cases.filter((one) => one.result === result).length;
  return (
    `tests="${cases.length}" failures="${of('failure')}" ` +
    `errors="${of('error')}" skipped="${of('skipped')}"`
  );
}

/** What a report says besides: that Services could not be read, or that there are none. */
function inputCases({ verdicts, unknown, services, foreign }: JunitInput): TestCase[] {
  const base = { classname: 'input', result: 'error', type: 'unknown', body: '' } as const;
  const outputs = verdictOutputs.reduce((sum, output) => sum + verdicts[output].unknown, 0);
  const unread = Object.values(unknown).reduce((sum, count) => sum + count, -outputs);
  if (unread > 0) {
    return [
      { ...base, name: 'unknown', message: `${formatCount(unread, 'Service')} cannot be read` },
    ];
  }
  if (services > 0 || foreign > 0) return [];
  return [{ ...base, name: 'nothing', message: 'No Services to judge' }];
}

/** What of a report becomes test cases. */
interface JunitInput extends Pick<Summary, 'verdicts' | 'unknown' | 'services' | 'foreign'> {
  readonly findings: readonly ReportedFinding[];
}

/** The text; findings are listed in the order given. */
export function renderJunit(told: JunitInput): string {
  const { findings, verdicts } = told;
  const suites = [...verdictOutputs, 'input' as const].map((output) => {
    const own = findings.filter((finding) => finding.output === output);
    const cases = output === 'input' ? inputCases(told) : verdictCases(output, verdicts[output]);
    return { output, cases: [...cases, ...own.map(findingCase)] };
  });
  const filled = suites.filter(({ cases }) => cases.length > 0);
  const all = filled.flatMap(({ cases }) => cases);
  const texts = filled.flatMap(({ output, cases }) => [
    `  <testsuite name="${output}" ${countAttributes(cases)}>`,
    ...cases.map(caseText),
    '  </testsuite>',
  ]);
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="endpoint-auditor" ${countAttributes(all)}>`,
    ...texts,
    '</testsuites>',
    '',
  ].join('\n');
}
