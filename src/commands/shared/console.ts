// The output of commands: problems and progress on stderr, findings and reports on stdout.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { Auditor } from '../../auditor/auditor.ts';
import { unverifiedIn } from '../../auditor/queries.ts';
import { type Problem, problemText } from '../../cluster/decode/problem.ts';
import { formatTime, formatUnverified } from '../../output/text/format.ts';
import type { AuditReport, ReportFormat } from '../../output/text/report.ts';
import { formatFindingLine, renderReport } from '../../output/text/report.ts';
import { nameOf } from '../../shadow/release.ts';

export const colour = process.stdout.isTTY && (process.env.NO_COLOR ?? '') === '';

/** Prints an error as one line on stderr. */
export function fail(text: string): void {
  process.stderr.write(`endpoint-auditor: ${text}\n`);
}

/** Prints problems to stderr, and keeps the first of them for the report. */
export function problemLog(): { problems: string[]; onProblem: (problem: Problem) => void } {
  const problems: string[] = [];
  return {
    problems,
    onProblem(problem) {
      const text = problemText(problem);
      // The report shows the first few; a server may run for months.
      if (problems.length < 100) problems.push(text);
      fail(text);
    },
  };
}

/** Shows on a terminal how many entries of a long input were read. */
export async function* withProgress<T>(
  what: string,
  entries: AsyncIterable<T>,
  now: () => number | null,
): AsyncGenerator<T> {
  let count = 0;
  let nextAt = performance.now() + 1000;
  let isVisible = false;
  try {
    for await (const entry of entries) {
      count++;
      if (process.stderr.isTTY && count % 1000 === 0 && performance.now() >= nextAt) {
        nextAt = performance.now() + 200;
        isVisible = true;
        const at = now();
        const moment = at === null ? '' : `, ${formatTime(at)}`;
        process.stderr.write(`\r\u001b[K${what}: ${count.toLocaleString('en')} read${moment}`);
      }
      yield entry;
    }
  } finally {
    if (isVisible) process.stderr.write('\r\u001b[K');
  }
}

/** Prints a finding that opened or was resolved as one line on stdout. */
export function printFinding(finding: Finding): void {
  process.stdout.write(`${formatFindingLine(finding, colour)}\n`);
}

/** Columns of the terminal, else COLUMNS; `null` if the output is a pipe or a file. */
export function screenWidth(): number | null {
  if (process.stdout.isTTY) return process.stdout.columns;
  const columns = Number(process.env.COLUMNS ?? '');
  return Number.isSafeInteger(columns) && columns > 0 ? columns : null;
}

/** Prints to stdout. A pipe or a file gets whole lines, as from kubectl. */
export function printReport(report: AuditReport, format: ReportFormat): void {
  const text = renderReport(report, format, { colour, width: screenWidth() ?? Infinity });
  process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
}

export function exitCodeOf({ unknown, services, foreign, findings }: AuditReport): 0 | 1 | 2 {
  if (Object.values(unknown).some((count) => count > 0)) return 2;
  // No Service was audited: a mistyped namespace must not look like a cluster that conforms.
  if (services === 0 && foreign === 0) return 2;
  return findings.some(({ severity }) => severity !== 'info') ? 1 : 0;
}

/** Warns if the verdicts on the cluster's release are not verified. */
export function warnIfUnverified(auditor: Auditor): void {
  const unverified = formatUnverified(unverifiedIn(auditor));
  if (unverified === '') return;
  const name = nameOf(auditor.released().release);
  fail(`Audited as Kubernetes ${name}, ${unverified} (see --kubernetes-version)`);
}
