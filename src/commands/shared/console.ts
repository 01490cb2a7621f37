// The output of commands: problems and progress on stderr, findings and reports on stdout.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { Auditor } from '../../auditor/auditor.ts';
import { unverifiedIn } from '../../auditor/queries.ts';
import type { ConnectionChange } from '../../cluster/api/connection-state.ts';
import { type Problem, problemText } from '../../cluster/decode/problem.ts';
import { type ConnectionFailure, failureText } from '../../model/connection.ts';
import {
  escapeInvisible,
  formatCount,
  formatTime,
  formatUnverified,
} from '../../output/text/format.ts';
import { type Gate, type GateOptions, isFailed } from '../../output/text/gate.ts';
import type { AuditReport, ReportFormat } from '../../output/text/report.ts';
import { formatFindingLine, renderReport } from '../../output/text/report.ts';
import { nameOf } from '../../shadow/release.ts';
import type { Log } from './log.ts';

export const colour = process.stdout.isTTY && (process.env.NO_COLOR ?? '') === '';

/** Prints a message as one line on stderr. */
const printLine: Log = (_level, text) => {
  process.stderr.write(`endpoint-auditor: ${escapeInvisible(text)}\n`);
};

let log = printLine;

/** Writes all further messages to a log; `null`: as lines with the name of the program. */
export function useLog(other: Log | null): void {
  log = other ?? printLine;
}

/** Prints an error as one line on stderr. */
export function fail(text: string): void {
  log('error', text);
}

/** Prints a message that is no error as one line on stderr. */
export function inform(text: string): void {
  log('info', text);
}

/** Prints that the connection to the API server is lost, and why, or that it is restored. */
export function printConnection(server: string, change: ConnectionChange): void {
  if (change.kind === 'restored') {
    inform(`The API server ${server} answers again after ${Math.round(change.seconds)} s`);
    return;
  }
  fail(`${connectionText(server, change.failure)} Retrying.`);
}

/** `Cannot reach the API server URL: connection refused. What to do.` */
export const connectionText = (server: string, failure: ConnectionFailure): string =>
  [`${failureText(failure)} ${server}: ${failure.message}.`, failure.advice]
    .filter((part) => part !== null)
    .join(' ');

/** Prints problems to stderr, and keeps the first of them for the report. */
export function problemLog(): { problems: string[]; onProblem: (problem: Problem) => void } {
  const problems: string[] = [];
  return {
    problems,
    onProblem(problem) {
      const text = problemText(problem);
      // The report shows the first few; a server may run for months.
      if (problems.length < 100) problems.push(text);
      log('warn', text);
    },
  };
}

const clearLine = '\r\u001b[K';

/** Shows that a command waits: on a terminal one line that counts down, elsewhere one line once. */
export function createWaitNotice() {
  let shown = '';
  return {
    /** `seconds` are those that are left. */
    show(differences: number, seconds: number): void {
      const left = Math.ceil(seconds);
      const persist = differences === 1 ? 'it persists' : 'they persist';
      const rest = left > 0 ? `waiting ${left} s to see whether ${persist}` : 'reading again';
      const text = `${formatCount(differences, 'difference')}; ${rest}`;
      if (process.stderr.isTTY && text !== shown) process.stderr.write(`${clearLine}${text}`);
      else if (shown === '') inform(text);
      shown = text;
    },
    clear(): void {
      if (process.stderr.isTTY && shown !== '') process.stderr.write(clearLine);
      shown = '';
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
        process.stderr.write(`${clearLine}${what}: ${count.toLocaleString('en')} read${moment}`);
      }
      yield entry;
    }
  } finally {
    if (isVisible) process.stderr.write(clearLine);
  }
}

/** Prints a finding that opened or was resolved as one line of at most `width` on stdout. */
export function printFinding(finding: Finding, width = Infinity): void {
  const options = { colour, width: screenWidth() ?? width };
  process.stdout.write(`${formatFindingLine(finding, options)}\n`);
}

/** Columns of the terminal, else COLUMNS; `null` if the output is a pipe or a file. */
export function screenWidth(): number | null {
  if (process.stdout.isTTY) return process.stdout.columns;
  const columns = Number(process.env.COLUMNS ?? '');
  return Number.isSafeInteger(columns) && columns > 0 ? columns : null;
}

/** Prints to stdout. */
export function printReport(report: AuditReport, format: ReportFormat, gate?: GateOptions): void {
  // A pipe or a file gets whole lines, as from kubectl.
  const options = { colour, width: screenWidth() ?? Infinity };
  const text = renderReport(report, format, options, gate);
  process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
}

export function exitCodeOf({ unknown, services, foreign }: AuditReport, gate: Gate): 0 | 1 | 2 {
  if (Object.values(unknown).some((count) => count > 0)) return 2;
  // No Service was audited: a mistyped namespace must not look like a cluster that conforms.
  if (services === 0 && foreign === 0) return 2;
  return isFailed(gate) ? 1 : 0;
}

/** Warns if the verdicts on the cluster's release are not verified. */
export function warnIfUnverified(auditor: Auditor): void {
  const unverified = formatUnverified(unverifiedIn(auditor));
  if (unverified === '') return;
  const name = nameOf(auditor.released().release);
  log('warn', `Audited as Kubernetes ${name}, ${unverified} (see --kubernetes-version)`);
}
