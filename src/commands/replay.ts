// The `replay` command: audits a recording from its beginning to its end.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';

import type { Finding } from '../audit/finding/catalogue.ts';
import { type Auditor, createAuditor } from '../auditor/auditor.ts';
import { createReport } from '../auditor/queries.ts';
import { replay } from '../auditor/replay.ts';
import type { Problem } from '../cluster/decode/problem.ts';
import { kwokResources, readKwok } from '../cluster/files/kwok.ts';
import { readRecording, type RecordingEntry } from '../cluster/files/recording.ts';
import type { AuditReport } from '../output/text/report.ts';
import {
  exitCodeOf,
  printFinding,
  printReport,
  problemLog,
  warnIfUnverified,
  withProgress,
} from './shared/console.ts';
import { type AuditFlags, auditorOptions, type ReportFlags } from './shared/options.ts';

export interface ReplayOptions extends AuditFlags, ReportFlags {
  readonly speed: number;
  readonly until?: number;
}

/** Entries of a recording of this program or of kwok. */
export async function recordingOf(
  path: string,
  auditor: Auditor,
  onProblem: (problem: Problem) => void,
): Promise<AsyncIterable<RecordingEntry>> {
  const options = { previousPod: (key: string) => auditor.store.listers.pods.get(key) };
  if (path === '-')
    return readRecording({ name: 'stdin', bytes: process.stdin }, onProblem, options);
  if ((await stat(path)).isDirectory()) {
    throw new Error(`${path}: Expected a recording, found a directory (audit reads those)`);
  }
  const found = /\.ya?ml(?:\.gz)?$/.test(path) ? await kwokResources(createReadStream(path)) : null;
  const source = { name: path, bytes: createReadStream(path) };
  return found === null
    ? readRecording(source, onProblem, options)
    : readKwok(source, found, onProblem, options);
}

export async function replayFile(path: string, options: ReplayOptions): Promise<number> {
  const { problems, onProblem } = problemLog();
  const isText = options.output === 'table' || options.output === 'wide';
  const printIfWanted = (finding: Finding): void => {
    const isWanted = options.namespace === undefined || finding.namespace === options.namespace;
    if (isText && isWanted) printFinding(finding);
  };
  const auditor = createAuditor({
    ...auditorOptions(options, onProblem),
    onOpen: printIfWanted,
    onResolve: printIfWanted,
  });
  const recording = await recordingOf(path, auditor, onProblem);
  const entries = withProgress(path, recording, () => auditor.now());
  await replay(auditor, entries, { speed: options.speed, until: options.until ?? null });
  warnIfUnverified(auditor);
  if (isText) process.stdout.write('\n');
  return printAudit(auditor, 'replay', [path], options, problems);
}

/** Prints the report of an audit that has ended, and returns the exit code. */
export function printAudit(
  auditor: Auditor,
  kind: AuditReport['kind'],
  sources: readonly string[],
  { namespace, output }: ReportFlags,
  problems: readonly string[],
): 0 | 1 | 2 {
  const report = createReport(auditor, { kind, sources, namespace: namespace ?? null, problems });
  printReport(report, output);
  return exitCodeOf(report);
}
