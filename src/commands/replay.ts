// The `replay` command: audits a recording from its beginning to its end.

import { createReadStream } from 'node:fs';

import type { Finding } from '../audit/finding/catalogue.ts';
import { type Auditor, type AuditorOptions, createAuditor } from '../auditor/auditor.ts';
import type { SuppressionTarget } from '../audit/finding/suppressions.ts';
import { concerns } from '../audit/summary.ts';
import { listUnservedServices } from '../auditor/explanations.ts';
import { createReport, selectedServices, shownProblems } from '../auditor/queries.ts';
import { type Moment, replay } from '../auditor/replay.ts';
import { isFields } from '../cluster/decode/json-fields.ts';
import { lineBatches, plainBytes, textLimit } from '../cluster/decode/line-reader.ts';
import { type OnProblem, type Problem, problemAt, valueText } from '../cluster/decode/problem.ts';
import { kwokResources, readKwok } from '../cluster/files/kwok.ts';
import { readRecording, type RecordingEntry } from '../cluster/files/recording.ts';
import { type GateOptions, isUnused, targetOf } from '../output/text/gate.ts';
import type { AuditReport } from '../output/text/report.ts';
import { printFinding, problemLog, warnIfUnverified, withProgress } from './shared/console.ts';
import { openEmbedded } from './shared/embedded-file.ts';
import { printGated, readGate } from './shared/gate.ts';
import { type HistoryFlags, openMoment, settingsOf } from './shared/history.ts';
import { readInputKind } from './shared/input.ts';
import type { AuditFlags, InputFlags, ReportFlags } from './shared/options.ts';
import { auditorOptions } from './shared/options.ts';
import { UsageError } from './shared/process.ts';

export interface ReplayOptions extends AuditFlags, ReportFlags, InputFlags {
  readonly speed: number;
  readonly until?: Moment;
}

/** Entries of a recording of this program or of kwok. Rejects if the file is no recording. */
export async function recordingOf(
  path: string,
  auditor: Auditor,
  onProblem: (problem: Problem) => void,
): Promise<AsyncIterable<RecordingEntry>> {
  const options = { previousPod: (key: string) => auditor.store.listers.pods.get(key) };
  if (path === '-')
    return readRecording({ name: 'stdin', bytes: process.stdin }, onProblem, options);
  const embedded = openEmbedded(path);
  if (embedded !== null) return readRecording({ name: path, bytes: embedded }, onProblem, options);
  const kind = await readInputKind(path);
  if (kind === 'dump')
    throw new UsageError(`${path}: Expected a recording, found API objects: use "audit ${path}"`);
  if (kind === null) throw new UsageError(`${path}: Is neither a recording nor a dump`);
  const found = /\.ya?ml(?:\.gz)?$/.test(path) ? await kwokResources(createReadStream(path)) : null;
  const source = { name: path, bytes: createReadStream(path) };
  return found === null
    ? readRecording(source, onProblem, options)
    : readKwok(source, found, onProblem, options);
}

/**
 * The options of an auditor of a recording. Those that the header of a bundle states replace flags,
 * since its findings depend on them.
 */
export async function optionsFor(
  path: string,
  flags: AuditFlags,
  onProblem: OnProblem,
): Promise<AuditorOptions> {
  const stated = path === '-' || openEmbedded(path) !== null ? {} : await settingsIn(path);
  return { ...auditorOptions(flags, onProblem), ...stated };
}

/** The settings in the first line of a file; none if it cannot be read. */
async function settingsIn(path: string): Promise<Partial<AuditorOptions>> {
  try {
    const bytes = plainBytes(createReadStream(path), () => undefined);
    for await (const [first] of lineBatches(bytes, textLimit)) {
      const header: unknown = JSON.parse(first?.text ?? '');
      return isFields(header) && isFields(header.settings) ? settingsOf(header) : {};
    }
  } catch {
    // It is no JSON, or cannot be opened: the reader reports it.
  }
  return {};
}

export async function replayFile(path: string, options: ReplayOptions): Promise<number> {
  const gate = readGate(options);
  const log = problemLog();
  const { onProblem } = log;
  const isText = options.output === 'table' || options.output === 'wide';
  const printIfWanted = (finding: Finding): void => {
    const isWanted = concerns(selectedServices(auditor, options));
    // The report below has the whole differences.
    if (isText && isWanted(finding)) printFinding(finding, 100);
  };
  const auditor = createAuditor({
    ...(await optionsFor(path, options, onProblem)),
    onOpen: printIfWanted,
    onResolve: printIfWanted,
  });
  const recording = await recordingOf(path, auditor, onProblem);
  const entries = withProgress(path, recording, () => auditor.now());
  await replay(auditor, entries, { speed: options.speed, until: options.until ?? null });
  warnIfUnverified(auditor);
  if (isText) process.stdout.write('\n');
  return printAudit(auditor, 'replay', [path], options, gate, log);
}

export interface MomentFlags extends AuditFlags, Pick<HistoryFlags, 'history'> {
  readonly at?: Moment;
}

/** An auditor, and the entries that bring it to a moment of a history or of a recording. */
export async function openAuditAt(source: string, options: MomentFlags, onProblem: OnProblem) {
  const { history, at = null } = options;
  const moment = history === undefined ? null : await openMoment(history, at, onProblem);
  const audited =
    moment === null
      ? await optionsFor(source, options, onProblem)
      : { ...auditorOptions(options, onProblem), ...moment.settings };
  const auditor = createAuditor(audited);
  const entries = moment?.entries(auditor) ?? (await recordingOf(source, auditor, onProblem));
  const { until = at, losses = [], latest = null } = moment ?? {};
  return { auditor, entries, until, losses, latest };
}

/** The report with only what is open at its end. */
const openOf = (report: AuditReport): AuditReport => ({
  ...report,
  findings: report.findings.filter(({ resolvedAt }) => resolvedAt === null),
  incidents: report.incidents.filter(({ resolvedAt }) => resolvedAt === null),
});

/** Prints the report of an audit that has ended, and returns the exit code. */
export function printAudit(
  auditor: Auditor,
  kind: AuditReport['kind'] | 'moment',
  sources: readonly string[],
  options: ReportFlags,
  gate: GateOptions,
  { problems, onProblem }: ReturnType<typeof problemLog>,
): 0 | 1 | 2 {
  const { namespace = null, selector, clusterName: cluster = null, output } = options;
  const { findings, options: audited } = auditor;
  const all = [...findings.open(), ...findings.resolved()];
  const servicesWithoutEndpoints = listUnservedServices(auditor);
  const unserved = servicesWithoutEndpoints.map(targetOf);
  auditor.suppressions.reportUnused([...all, ...unserved], audited.scope);
  const found = { findings: all, servicesWithoutEndpoints };
  const about = { namespace, selector, cluster };
  const isMoment = kind === 'moment';
  const whole = createReport(auditor, {
    kind: isMoment ? 'replay' : kind,
    sources,
    ...about,
    problems,
  });
  // What ended before the moment is not a part of it.
  const report = isMoment ? openOf(whole) : whole;
  const isNamed = (finding: SuppressionTarget): boolean => auditor.suppressions.names(finding);
  for (const rule of gate.ignored.filter((it) => isUnused(it, found))) {
    const value = valueText([rule.code, rule.service ?? []].flat().join(':'));
    onProblem(problemAt('--ignore', null, 'Matches no finding', { value }));
  }
  const noted = { ...report, problems: problems.slice(0, shownProblems) };
  return printGated(noted, output, { ...gate, isNamed });
}
