// The history of a running process: it opens the folder, writes each second, and tries again if the
// folder cannot be used. No failure reaches the auditor.

import type { Finding } from '../audit/finding/catalogue.ts';
import type { Auditor, AuditorEntry } from '../auditor/auditor.ts';
import type { MonotonicClock } from '../auditor/event-loop.ts';
import { errorText, openFolder, prepareFolder } from './files.ts';
import { type AuditorHistory, createAuditorHistory } from './history.ts';
import { type FolderLock, lockFolder } from './lock.ts';
import { type HistoryOptions, reportTrouble } from './recorder.ts';
import { continueFrom, type StopState } from './restart.ts';
import { listSegments } from './segments.ts';

export interface LiveHistoryOptions extends Pick<HistoryOptions, 'limits' | 'onTrouble'> {
  /** The folder; it is created if it does not exist. */
  readonly path: string;
  readonly clock: MonotonicClock;
  /** Reads what the folder proves of the time before the start; rejects if that is nothing. */
  readonly readStop?: (signal: AbortSignal) => Promise<StopState>;
  /** Called with what happens at the start, for people. */
  readonly onRestart?: (text: string) => void;
}

/**
 * Seconds between two writes, until the folder is tried again, and for the last write. What the
 * folder proves of the time before the start is awaited for `stop` seconds of the audit, and not
 * for longer than the settle window; after `slow` seconds, a line says so.
 */
const spans = { write: 1, retry: 10, close: 5, stop: 30, slow: 5 };

/** Whether the work ends in the time that it may take. Leaves no timer. */
const endsInTime = (work: Promise<void>, clock: MonotonicClock): Promise<boolean> =>
  new Promise((resolve) => {
    const cancel = clock.after(spans.close, () => resolve(false));
    void work.finally(() => {
      cancel();
      resolve(true);
    });
  });

type State = ReturnType<typeof createState>;

const createState = (auditor: Auditor, options: LiveHistoryOptions) => ({
  auditor,
  options,
  history: null as AuditorHistory | null,
  lock: null as FolderLock | null,
  trouble: null as string | null,
  retryAt: -Infinity,
  /** When the audit had begun, on the monotonic clock; `null` before. */
  begunAt: null as number | null,
  /** What was open before the start, until the audit has begun. */
  stop: null as StopState | null,
  /** Aborted when it is closed. */
  closing: new AbortController(),
  cancel: (): void => undefined,
  /** The work that was begun last. */
  ticking: Promise.resolve(),
});

/** Opens the folder, or reports why that failed. */
async function open(state: State): Promise<void> {
  const { auditor, options } = state;
  const { clock, path, limits } = options;
  const isClosing = (): boolean => state.closing.signal.aborted;
  if (clock.monotonic() < state.retryAt) return;
  try {
    await prepareFolder(path);
    if (isClosing()) return;
    state.lock = lockFolder(path);
    const files = openFolder(path);
    if ((await listSegments(files)).length > 0) await readStop(state);
    if (isClosing()) return;
    state.history = createAuditorHistory(auditor, {
      files,
      limits,
      now: () => clock.now(),
      pause: () => new Promise((resolve) => clock.soon(resolve)),
      onTrouble: (reason) => reportTrouble(state, reason),
    });
    reportTrouble(state, null);
  } catch (error) {
    state.lock?.release();
    state.lock = null;
    state.retryAt = clock.monotonic() + spans.retry;
    reportTrouble(state, errorText(error));
  }
}

/** Notes when the audit has begun. */
function noteBegin(state: State): void {
  const { auditor, options } = state;
  if (auditor.serviceAuditor() !== null) state.begunAt ??= options.clock.monotonic();
}

/** Seconds of the audit after which findings may have opened again, with new times. */
const longest = ({ auditor }: State): number => Math.min(spans.stop, auditor.options.settle);

const isLate = (state: State): boolean =>
  state.begunAt !== null && state.options.clock.monotonic() >= state.begunAt + longest(state);

/** Rejects when it is too late; `cancel` ends that. Says if recording has to wait for long. */
function waitUntilLate(state: State) {
  const { clock, onRestart } = state.options;
  const { promise, reject } = Promise.withResolvers<never>();
  const slowAt = clock.monotonic() + spans.slow;
  const waiting = { cancel: (): void => undefined, isSlow: false };
  const check = (): void => {
    noteBegin(state);
    if (isLate(state)) {
      const text = `The history was not read in the first ${longest(state)} s of the audit`;
      reject(new Error(text));
      return;
    }
    if (!waiting.isSlow && clock.monotonic() >= slowAt) {
      waiting.isSlow = true;
      onRestart?.('The end of the history is read before recording goes on');
    }
    waiting.cancel = clock.after(spans.write, check);
  };
  check();
  return { late: promise, cancel: () => waiting.cancel() };
}

/** Reads what was open before the start. The audit goes on without it. */
async function readStop(state: State): Promise<void> {
  const { options, closing } = state;
  const stopping = new AbortController();
  const { late, cancel } = waitUntilLate(state);
  const read = (): Promise<StopState | null> =>
    options.readStop?.(AbortSignal.any([closing.signal, stopping.signal])) ?? Promise.resolve(null);
  try {
    state.stop = await Promise.race([late, isLate(state) ? late : read()]);
  } catch (error) {
    if (closing.signal.aborted) return;
    options.onRestart?.(`Findings begin again: ${errorText(error)}`);
  } finally {
    cancel();
    stopping.abort();
  }
}

/** Before the first checkpoint, which must have the earlier times. */
function continueOnce(state: State): void {
  const { stop, auditor, options } = state;
  if (stop === null || auditor.serviceAuditor() === null) return;
  const { at, services, unknown } = stop;
  const count = continueFrom(auditor, stop);
  state.stop = null;
  if (unknown > 0) {
    options.onRestart?.(
      `${unknown} entries about findings, of another version, have unknown codes`,
    );
  }
  if (services.length === 0) return;
  const when = new Date(at * 1000).toISOString();
  options.onRestart?.(
    `Of ${services.length} Services with differences at ${when}, ${count} have not changed since`,
  );
}

async function tick(state: State): Promise<void> {
  const { clock } = state.options;
  noteBegin(state);
  if (state.history === null) await open(state);
  continueOnce(state);
  await state.history?.work();
  if (!state.closing.signal.aborted) state.cancel = clock.after(spans.write, () => begin(state));
}

function begin(state: State): void {
  state.ticking = tick(state);
}

async function finish(state: State): Promise<void> {
  await state.ticking;
  await state.history?.close();
  state.lock?.release();
}

export type LiveHistory = ReturnType<typeof startHistory>;

/** Records the auditor's entries until it is closed. */
export function startHistory(auditor: Auditor, options: LiveHistoryOptions) {
  const state = createState(auditor, options);
  begin(state);
  return {
    take: (entry: AuditorEntry) => state.history?.take(entry),
    /** Takes a finding that has opened or is resolved. */
    noteFinding: (finding: Finding) => state.history?.noteFinding(finding),
    /** Writes the rest, and releases the folder; false if the disk does not answer in time. */
    close(): Promise<boolean> {
      state.closing.abort();
      state.cancel();
      return endsInTime(finish(state), options.clock);
    },
    /** What was recorded, dropped and removed; `null` until the folder could be opened. */
    metrics() {
      if (state.history === null) return null;
      const { stored, counts, writtenAt } = state.history;
      return { bytes: stored.bytes, oldest: stored.oldest, writtenAt: writtenAt(), ...counts };
    },
  };
}
