// The `lag` command: prints how long outputs took to follow their input, and the worst cases, of a
// recording or of a running server. Exit codes: 0 (a long lag is no finding), 2 without a report.

import { type Auditor, createAuditor } from '../auditor/auditor.ts';
import { type Moment, momentSince, replay } from '../auditor/replay.ts';
import { createSamples } from '../auditor/samples.ts';
import type { RecordingEntry } from '../cluster/files/recording.ts';
import { isFields, recordOf } from '../model/collections.ts';
import { createLagReport, type LagReport, renderLag } from '../output/text/lag.ts';
import { recordingOf } from './replay.ts';
import { problemLog } from './shared/console.ts';
import { type HistoryFlags, openMoment, openSpans } from './shared/history.ts';
import type { AuditFlags, InputFlags } from './shared/options.ts';
import { auditorOptions, inputsOf } from './shared/options.ts';
import { UsageError } from './shared/process.ts';
import { textOf } from './shared/remote.ts';

export interface LagOptions extends AuditFlags, InputFlags, Pick<HistoryFlags, 'history'> {
  readonly server?: string;
  /** Only what was measured from then on, and until then. */
  readonly from?: Moment;
  readonly to?: Moment;
  readonly output: 'table' | 'json';
}

/** The timeout of a request to the server. */
const deadlineMs = 10_000;

/** Prints the report of a recording, which the options or `files` name, or of a server. */
export async function lag(options: LagOptions, files: readonly string[] = []): Promise<0> {
  const { server, history, output } = options;
  const inputs = inputsOf(options, files);
  const named = [...inputs, ...[server, history].filter((it) => it !== undefined)];
  if (named.length !== 1) {
    throw new UsageError(
      'Expected one recording, as FILE or --input FILE, or --history FOLDER, or --server URL',
    );
  }
  const report = await reportOf(inputs[0] ?? '', options);
  process.stdout.write(renderLag(report, output));
  return 0;
}

async function reportOf(file: string, options: LagOptions): Promise<LagReport> {
  const { server, history } = options;
  if (server !== undefined) return ofServer(server);
  return history === undefined ? ofRecording(file, options) : ofHistory(history, options);
}

type Ends = LagReport['journeys']['ended'];

/** What was measured in a time span, and when that began; `null`: the span has nothing. */
interface Measured {
  readonly auditor: Auditor;
  readonly from: number | null;
  /** The journeys that ended. */
  readonly ended: Ends;
}

/** Replays until a moment, and measures from another one on, after what was measured before. */
async function measure(
  auditor: Auditor,
  entries: AsyncIterable<RecordingEntry>,
  [from, until]: readonly [Moment | null, Moment | null],
  before: Measured | null,
): Promise<Measured> {
  const { journeys } = auditor;
  const state = { from: null as number | null, ended: { ...journeys.ended } };
  let begin: number | null = null;
  async function* watched(): AsyncGenerator<RecordingEntry> {
    for await (const entry of entries) {
      const at = entry.kind === 'event' ? entry.event.at : entry.at;
      begin ??= from === null ? at : momentSince(from, at);
      if (state.from === null && at >= begin && auditor.serviceAuditor() !== null) {
        state.from = Math.max(begin, auditor.startedAt() ?? begin);
        state.ended = { ...journeys.ended };
        Object.assign(auditor.samples, before?.auditor.samples ?? createSamples());
      }
      yield entry;
    }
  }
  await replay(auditor, watched(), { speed: Infinity, until });
  if (state.from === null) {
    // All that was recorded is from before: the recorder did not run at that moment.
    Object.assign(auditor.samples, before?.auditor.samples ?? createSamples());
    state.ended = { ...journeys.ended };
  }
  const names = Object.keys(state.ended) as (keyof Ends)[];
  const ended = recordOf(names, (name) => {
    return journeys.ended[name] - state.ended[name] + (before?.ended[name] ?? 0);
  });
  return { auditor, from: before?.from ?? state.from, ended };
}

function reportOn({ auditor, from, ended }: Measured, name: string): LagReport {
  if ((auditor.serviceAuditor()?.audited.size ?? 0) === 0) {
    throw new Error(`${name}: Nothing was judged: the recording has no Service`);
  }
  if (from === null) throw new Error(`${name}: Nothing was recorded from --from to --to`);
  const report = createLagReport(auditor);
  return { ...report, from, journeys: { ...report.journeys, ended } };
}

/** The report of a history. Its parts, between which nothing was recorded, are measured in turn. */
async function ofHistory(path: string, options: LagOptions): Promise<LagReport> {
  const { onProblem } = problemLog();
  let last: Measured | null = null;
  for (const { from, to } of await openSpans(path, options.from ?? null, options.to ?? null)) {
    const { settings, entries } = await openMoment(path, to, onProblem, from);
    const auditor: Auditor = createAuditor({ ...auditorOptions(options, onProblem), ...settings });
    last = await measure(auditor, entries(auditor), [from, to], last);
  }
  if (last === null) throw new Error(`${path}: Nothing was recorded from --from to --to`);
  return reportOn(last, path);
}

async function ofRecording(file: string, options: LagOptions): Promise<LagReport> {
  const { onProblem } = problemLog();
  const auditor = createAuditor(auditorOptions(options, onProblem));
  const entries = await recordingOf(file, auditor, onProblem);
  const { from, to = null } = options;
  if (from !== undefined) {
    return reportOn(await measure(auditor, entries, [from, to], null), file);
  }
  await replay(auditor, entries, { speed: Infinity, until: to });
  if ((auditor.serviceAuditor()?.audited.size ?? 0) > 0) return createLagReport(auditor);
  throw new Error(`${file}: Nothing was measured: the recording has no Service`);
}

async function ofServer(server: string): Promise<LagReport> {
  if (!URL.canParse(server) || !/^https?:$/.test(new URL(server).protocol)) {
    throw new Error(`Expected a URL such as http://127.0.0.1:9465: ${server}`);
  }
  const url = new URL('/api/v1/lag', server);
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(deadlineMs) });
    if (!response.ok) throw new Error(`it answers ${String(response.status)}`);
    const document: unknown = JSON.parse(await textOf(response));
    if (isLagReport(document)) return document;
    throw new Error('its answer is no lag document of this format');
  } catch (error) {
    throw new Error(`${url.href}: ${reasonOf(error)}`, { cause: error });
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'TimeoutError') return `no answer within ${String(deadlineMs / 1000)} s`;
  if (error instanceof SyntaxError) return 'its answer is no JSON';
  return error.cause instanceof Error ? error.cause.message : error.message;
}

/** Whether every item of a list has these texts, and these numbers, which may be null. */
const isListOf = (list: unknown, texts: readonly string[], numbers: readonly string[]): boolean =>
  Array.isArray(list) &&
  list.every(
    (item: unknown) =>
      isFields(item) &&
      texts.every((name) => typeof item[name] === 'string') &&
      numbers.every((name) => item[name] === null || typeof item[name] === 'number'),
  );

function isLagReport(document: unknown): document is LagReport {
  if (!isFields(document) || document.format !== 1) return false;
  const { distributions, journeys, triggerTimes, worst } = document;
  if (!isFields(journeys) || !isFields(worst) || !isFields(triggerTimes)) return false;
  const { begun, ended } = journeys;
  if (!isFields(begun) || !isFields(ended)) return false;
  const { endpoints, endpointslices } = triggerTimes;
  const sample = ['namespace', 'service', 'operation'];
  return (
    [begun.add, begun.remove, begun.update, endpoints, endpointslices].every(isFields) &&
    isListOf([journeys], [], ['open', 'oldestBegun']) &&
    isListOf(distributions, ['lag', 'output'], ['count', 'p50', 'p99', 'max']) &&
    isListOf(worst.convergence, [...sample, 'output'], ['seconds', 'at']) &&
    isListOf(worst.journeys, [...sample, 'pod', 'quality'], ['seconds', 'begun']) &&
    (worst.journeys as { stages: unknown }[]).every(({ stages }) =>
      isListOf(stages, ['stage'], ['at']),
    )
  );
}
