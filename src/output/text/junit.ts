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
import { escapeMarkup, formatCount, formatDetail, formatTime } from './format.ts';

/** The parts of a report that become test cases. */
interface JunitInput extends Pick<Summary, 'verdicts' | 'unknown' | 'services' | 'foreign'> {
  readonly findings: readonly ReportedFinding[];
}

type Result = 'passed' | 'failure' | 'error' | 'skipped';

interface TestCase {
  readonly result: Result;
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
  result: Result,
  message: string,
  type: string | null = null,
  body: readonly string[] = [],
): TestCase {
  const child =
    result === 'passed'
      ? element('system-out', {}, escapeMarkup(message))
      : element(result, { type, message }, body.map(escapeMarkup).join('\n'));
  return { result, xml: `    ${element('testcase', { classname, name }, child)}\n` };
}

function findingCase(finding: ReportedFinding): TestCase {
  const { code, severity, output, namespace, service, cause, resolvedAt } = finding;
  const body = [
    `object: ${finding.object}`,
    `field: ${finding.field}`,
    `expected: ${finding.expected ?? '-'}`,
    `actual: ${finding.actual ?? '-'}`,
    `since: ${formatTime(finding.since)}`,
  ];
  const name = `${code} ${namespace}/${service}${cause === null ? '' : ` (${cause})`}`;
  const resolved = resolvedAt === null ? '' : ` (resolved at ${formatTime(resolvedAt)})`;
  const text = formatDetail(finding, 500) + resolved;
  return severity === 'info'
    ? testCase(output, name, 'skipped', text, null, body)
    : testCase(output, name, 'failure', text, severity, body);
}

const verdictTexts = [
  ['conform', 'passed', 'conform', null],
  ['pending', 'skipped', 'within the settle window', null],
  ['unknown', 'error', 'cannot be judged', 'unknown'],
] as const;

/** One test case for each verdict that has outputs. */
const verdictCases = (output: string, counts: Readonly<Record<Verdict, number>>): TestCase[] =>
  verdictTexts
    .filter(([verdict]) => counts[verdict] > 0)
    .map(([verdict, result, text, type]) => {
      const message = `${formatCount(counts[verdict], 'output')} ${text}`;
      return testCase(output, verdict, result, message, type);
    });

/** An error for unreadable Services, or for an input without Services. */
function inputCases({ verdicts, unknown, services, foreign }: JunitInput): TestCase[] {
  const error = (name: string, text: string): TestCase[] => [
    testCase('input', name, 'error', text, 'unknown'),
  ];
  const outputs = verdictOutputs.reduce((sum, output) => sum + verdicts[output].unknown, 0);
  const unread = Object.values(unknown).reduce((sum, count) => sum + count, -outputs);
  if (unread > 0) return error('unknown', `${formatCount(unread, 'Service')} cannot be read`);
  return services > 0 || foreign > 0 ? [] : error('nothing', 'No Services to judge');
}

/** An element with its name and the numbers of its test cases as attributes. */
function suite(tag: string, name: string, cases: readonly TestCase[], children: string): string {
  const count = (wanted: Result): number => cases.filter(({ result }) => result === wanted).length;
  const [failures, errors, skipped] = [count('failure'), count('error'), count('skipped')];
  return element(tag, { name, tests: cases.length, failures, errors, skipped }, children);
}

/** The XML text; the findings keep their order. */
export function renderJunit(input: JunitInput): string {
  const suites = [...verdictOutputs, 'input' as const].flatMap((output) => {
    const cases = [
      ...(output === 'input' ? inputCases(input) : verdictCases(output, input.verdicts[output])),
      ...input.findings.filter((finding) => finding.output === output).map(findingCase),
    ];
    const lines = cases.map(({ xml }) => xml).join('');
    const xml = `  ${suite('testsuite', output, cases, `\n${lines}  `)}\n`;
    return cases.length === 0 ? [] : [{ cases, xml }];
  });
  const all = suites.flatMap(({ cases }) => cases);
  const children = `\n${suites.map(({ xml }) => xml).join('')}`;
  const root = suite('testsuites', 'endpoint-auditor', all, children);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${root}\n`;
}
