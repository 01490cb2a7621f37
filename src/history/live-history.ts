// The history of a running process: it opens the folder, writes each second, and tries again if the
// folder cannot be used. No failure reaches the auditor.

import type { Auditor, AuditorEntry } from '../auditor/auditor.ts';
import type { MonotonicClock } from '../auditor/event-loop.ts';
import { openFolder, prepareFolder } from './files.ts';
import { type AuditorHistory, createAuditorHistory } from './history.ts';
import { type FolderLock, lockFolder } from './lock.ts';
import type { HistoryLimits } from './segments.ts';

export interface LiveHistoryOptions {
  /** The folder; it is created if it does not exist. */
  readonly path: string;
  readonly limits: HistoryLimits;
  readonly clock: MonotonicClock;
  /** Called with why nothing is recorded, and with `null` when recording goes on. */
  readonly onTrouble: (reason: string | null) => void;
}

/** Seconds between two writes, until the folder is tried again, and for the last write. */
const spans = { write: 1, retry: 10, close: 5 };

/** Resolves when the work ends, or after the time that it may take. Leaves no timer. */
const endOf = (work: Promise<void>, clock: MonotonicClock): Promise<void> =>
  new Promise((resolve) => {
    const cancel = clock.after(spans.close, resolve);
    void work.finally(() => {
      cancel();
      resolve();
    });
  });

export type LiveHistory = ReturnType<typeof startHistory>;

/** Records the auditor's entries until it is closed. */
export function startHistory(auditor: Auditor, options: LiveHistoryOptions) {
  const { clock } = options;
  const state = {
    history: null as AuditorHistory | null,
    lock: null as FolderLock | null,
    trouble: null as string | null,
    retryAt: -Infinity,
    isClosed: false,
    cancel: (): void => undefined,
    /** The work that was begun last. */
    ticking: Promise.resolve(),
  };
  const report = (reason: string | null): void => {
    if (reason === state.trouble) return;
    state.trouble = reason;
    options.onTrouble(reason);
  };
  const open = async (): Promise<void> => {
    if (clock.monotonic() < state.retryAt) return;
    try {
      await prepareFolder(options.path);
      if (state.isClosed) return;
      state.lock = lockFolder(options.path);
      state.history = createAuditorHistory(auditor, {
        files: openFolder(options.path),
        limits: options.limits,
        now: () => clock.now(),
        pause: () => new Promise((resolve) => clock.soon(resolve)),
        onTrouble: report,
      });
      report(null);
    } catch (error) {
      state.retryAt = clock.monotonic() + spans.retry;
      report(error instanceof Error ? error.message : String(error));
    }
  };
  const tick = async (): Promise<void> => {
    if (state.history === null) await open();
    await state.history?.work();
    if (!state.isClosed) state.cancel = clock.after(spans.write, begin);
  };
  const begin = (): void => {
    state.ticking = tick();
  };
  begin();
  const finish = async (): Promise<void> => {
    await state.ticking;
    await state.history?.close();
    state.lock?.release();
  };
  return {
    take: (entry: AuditorEntry) => state.history?.take(entry),
    /** Writes the rest, and releases the folder. A disk that does not answer delays no exit. */
    async close(): Promise<void> {
      state.isClosed = true;
      state.cancel();
      await endOf(finish(), clock);
    },
    /** What was recorded, dropped and removed; `null` until the folder could be opened. */
    metrics() {
      if (state.history === null) return null;
      const { stored, counts, writtenAt } = state.history;
      return { bytes: stored.bytes, writtenAt: writtenAt(), ...counts };
    },
  };
}
