// How commands write the history of a live cluster, and read a moment of it.

import type { Auditor, AuditorOptions } from '../../auditor/auditor.ts';
import type { Moment } from '../../auditor/replay.ts';
import { isFields } from '../../cluster/decode/json-fields.ts';
import { type OnProblem, problemAt } from '../../cluster/decode/problem.ts';
import { readRecording } from '../../cluster/files/recording.ts';
import { openFolder } from '../../history/files.ts';
import { latestMoment, type OnLoss, openHistory, spansBetween } from '../../history/reader.ts';
import { type LiveHistory, startHistory } from '../../history/live-history.ts';
import type { StopState } from '../../history/restart.ts';
import { releases } from '../../shadow/release.ts';
import type { Cluster } from './cluster.ts';
import { fail, inform } from './console.ts';
import { growHeapFreely } from './process.ts';

export interface HistoryFlags {
  /** A folder. */
  readonly history?: string;
  /** Bytes. */
  readonly historySize?: number;
  /** Seconds. */
  readonly historyAge?: number;
}

/** Records the history of a live auditor if the flags name a folder. */
export function recordHistory(
  auditor: Auditor,
  { history: path, historySize: size = 2 ** 31, historyAge: age = 7 * 86_400 }: HistoryFlags,
  { clock }: Cluster,
  readStop?: (path: string, signal: AbortSignal) => Promise<StopState>,
): LiveHistory | null {
  if (path === undefined) return null;
  const onTrouble = (reason: string | null): void => {
    if (reason === null) inform(`The history is recorded to ${path} again`);
    else fail(`The history is not recorded: ${reason}. The audit goes on.`);
  };
  return startHistory(auditor, {
    path,
    limits: { size, age },
    clock,
    onTrouble,
    ...(readStop && { readStop: (signal) => readStop(path, signal), onRestart: inform }),
  });
}

/** Reports what is lost of a history as problems of its files. */
export const lossReporter =
  (path: string, onProblem: OnProblem): OnLoss =>
  (segment, text) =>
    onProblem(problemAt(`${path}/${segment}`, null, text));

/**
 * Opens a moment; the latest if it is `null`: its entries, and the settings of its auditor. The
 * entries begin with a checkpoint before it, or before `from`. Throws an Error for people if there
 * is none.
 */
export async function openMoment(
  path: string,
  moment: Moment | null,
  onProblem: OnProblem,
  from: number | null = null,
) {
  growHeapFreely();
  const files = openFolder(path);
  /** What is missing or damaged, for people; complete when all entries are read. */
  const losses: string[] = [];
  const reportLoss = lossReporter(path, onProblem);
  const onLoss: OnLoss = (segment, text) => {
    losses.push(text);
    reportLoss(segment, text);
  };
  const latest = await latestMoment(files, onLoss);
  const until = momentBefore(moment, latest);
  const { name, header, bytes } = await openHistory(files, until, onLoss, from ?? until);
  return {
    until,
    latest,
    losses,
    settings: settingsOf(header),
    entries: (auditor: Auditor) =>
      readRecording({ name: `${path}/${name}`, bytes }, onProblem, {
        previousPod: (key) => auditor.store.listers.pods.get(key),
        previousOutput: (resource, key) =>
          resource === 'endpoints' && !auditor.options.scope.endpoints
            ? null
            : auditor.store.objects[resource].get(key),
      }),
  };
}

/** The parts of a time span that were recorded; the whole history without its ends. */
export async function openSpans(path: string, from: Moment | null, to: Moment | null) {
  const files = openFolder(path);
  const latest = await latestMoment(files);
  const begin = from === null ? -Infinity : momentBefore(from, latest);
  return spansBetween(files, begin, momentBefore(to, latest));
}

/** A time of day is the last one before the end of the history. */
function momentBefore(moment: Moment | null, latest: number): number {
  if (moment === null) return latest;
  if (typeof moment === 'number') return moment;
  const at = latest - (latest % 86_400) + moment.ofDay;
  return at <= latest ? at : at - 86_400;
}

/** The settings that a checkpoint states; others have their defaults. */
export function settingsOf(header: unknown): Partial<AuditorOptions> {
  if (!isFields(header) || !isFields(header.settings)) return {};
  const { settle, maxEndpointsPerSlice, minor } = header.settings;
  const release = releases.find((it) => it.minor === minor) ?? null;
  return {
    ...(typeof settle === 'number' && { settle }),
    ...(typeof maxEndpointsPerSlice === 'number' && { maxEndpointsPerSlice }),
    release,
  };
}
