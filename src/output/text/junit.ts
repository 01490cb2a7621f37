// Renders a report as JUnit XML, which CI systems show beside test results. Each finding is a test
// case in the suite of its output, and so is each verdict without findings.
//
// CI systems look at failures and errors. A finding fails if it makes the exit code of the command
// fail. An unknown output is an error, since it is neither right nor wrong. JUnit has no official
// schema, so this file writes only elements and attributes that every reader knows.

import type { Verdict } from '../../audit/finding/verdicts.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import type { Summary } from '../../audit/summary.ts';
import type { ReportedFinding } from './format.ts';
import { escapeInvisible, escapeMarkup, formatCount, formatDetail, formatTime } from './format.ts';

/** The parts of a report that become test cases. */
interface JunitInput extends Pick<Summary, 'verdicts' | 'unknown' | 'services' | 'foreign'> {
  readonly findings: readonly ReportedFinding[];
}

interface TestCase {
  readonly result: 'passed' | 'failure' | 'error' | 'skipped';
  readonly xml: string;
}

type Attributes = Readonly<Record<string, string | number | null>>;

/** An XML element without the attributes that are null; `children` is XML. */
function element(name: string, attributes: Attributes, children: string): string {
  const text = Object.entries(attributes).map(([key, value]) =>
    value === null ? '' : ` ${key}="${escapeMarkup(String(value))}"`,
  );
  return `<${name}${text.join('')}>${children}</${name}>`;
}

function testCase(
  classname: string,
  name: string,
  result: TestCase['result'],
  text: string,
  { type = null, body = '' }: { type?: string | null; body?: string } = {},
): TestCase {
  // Only the line ends of a body stay as they are.
  const escaped = body.split('\n').map(escapeMarkup).join('\n');
  const child =
    result === 'passed'
      ? element('system-out', {}, escapeMarkup(text))
      : element(result, { type, message: text }, escaped);
  return { result, xml: `    ${element('testcase', { classname, name }, child)}\n` };
}

function findingCase(finding: ReportedFinding): TestCase {
  const { code, severity, output, namespace, service, cause, resolvedAt } = finding;
  const resolved = resolvedAt === null ? '' : ` (resolved at ${formatTime(resolvedAt)})`;
  const body = [
    `object: ${escapeInvisible(finding.object)}`,
    `field: ${escapeInvisible(finding.field)}`,
    `expected: ${escapeInvisible(finding.expected ?? '-')}`,
    `actual: ${escapeInvisible(finding.actual ?? '-')}`,
    `since: ${formatTime(finding.since)}`,
  ].join('\n');
  const name = `${code} ${namespace}/${service}${cause === null ? '' : ` (${cause})`}`;
  const text = formatDetail(finding, 500) + resolved;
  return severity === 'info'
    ? testCase(output, name, 'skipped', text, { body })
    : testCase(output, name, 'failure', text, { type: severity, body });
}

/** One test case for each verdict that has outputs. */
function verdictCases(
  output: string,
  { conform, pending, unknown }: Readonly<Record<Verdict, number>>,
): TestCase[] {
  const counted = (count: number, text: string): string =>
    `${formatCount(count, 'output')} ${text}`;
  const cases: TestCase[] = [];
  if (conform > 0) cases.push(testCase(output, 'conform', 'passed', counted(conform, 'conform')));
  if (pending > 0) {
    const text = counted(pending, 'within the settle window');
    cases.push(testCase(output, 'pending', 'skipped', text));
  }
  if (unknown > 0) {
    const text = counted(unknown, 'cannot be judged');
    cases.push(testCase(output, 'unknown', 'error', text, { type: 'unknown' }));
  }
  return cases;
}

/** An error for unreadable Services, or for an input without Services. */
function inputCases({ verdicts, unknown, services, foreign }: JunitInput): TestCase[] {
  const error = (name: string, text: string): TestCase[] => [
    testCase('input', name, 'error', text, { type: 'unknown' }),
  ];
  const outputs = verdictOutputs.reduce((sum, output) => sum + verdicts[output].unknown, 0);
  const unread = Object.values(unknown).reduce((sum, count) => sum + count, -outputs);
  if (unread > 0) return error('unknown', `${formatCount(unread, 'Service')} cannot be read`);
  return services > 0 || foreign > 0 ? [] : error('nothing', 'No Services to judge');
}

function countAttributes(cases: readonly TestCase[]): Attributes {
  const count = (wanted: TestCase['result']): number =>
    cases.filter(({ result }) => result === wanted).length;
  const [failures, errors, skipped] = [count('failure'), count('error'), count('skipped')];
  return { tests: cases.length, failures, errors, skipped };
}

/** The XML text; the findings keep their order. */
export function renderJunit(input: JunitInput): string {
  const all: TestCase[] = [];
  let suites = '\n';
  for (const output of [...verdictOutputs, 'input' as const]) {
    const cases = [
      ...(output === 'input' ? inputCases(input) : verdictCases(output, input.verdicts[output])),
      ...input.findings.filter((finding) => finding.output === output).map(findingCase),
    ];
    if (cases.length === 0) continue;
    const lines = cases.map(({ xml }) => xml).join('');
    const attributes = { name: output, ...countAttributes(cases) };
    suites += `  ${element('testsuite', attributes, `\n${lines}  `)}\n`;
    all.push(...cases);
  }
  const root = element('testsuites', { name: 'endpoint-auditor', ...countAttributes(all) }, suites);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${root}\n`;
}
