// A recording in its own time: entries reach the auditor as far apart as they were written, or as
// fast as they can be read, and windows end between them. A recording tells all the time there is.

import type { RecordingEntry } from '../cluster/files/recording.ts';
import type { Auditor } from './auditor.ts';

export interface Pace {
  /** Factor over the input's own speed; Infinity does not wait at all. */
  readonly speed: number;
  /** Where to stop on the input's clock; null: at its end. */
  readonly until: number | null;
  /** Aborts the waiting, and with it the replay. */
  readonly signal?: AbortSignal;
}

/** Entries of a recording in their own time, timers of the settle window between them. */
export async function replay(
  auditor: Auditor,
  entries: AsyncIterable<RecordingEntry>,
  pace: Pace,
): Promise<void> {
  const begun = performance.now();
  let origin: number | null = null;
  for await (const entry of entries) {
    const at = entry.kind === 'event' ? entry.event.at : entry.at;
    origin ??= at;
    if (pace.until !== null && at > pace.until) {
      auditor.take({ kind: 'end', at: pace.until, complete: true, ...nothingMore });
      return;
    }
    if (pace.speed !== Infinity) {
      const due = (moment: number): number =>
        begun + ((moment - (origin ?? moment)) / pace.speed) * 1000;
      for (let next = auditor.nextAt(); next !== null && next < at; next = auditor.nextAt()) {
        await until(due(next), pace.signal);
        auditor.advance(next);
      }
      await until(due(at), pace.signal);
    }
    if (pace.signal?.aborted === true) return;
    auditor.take(entry);
  }
}

const nothingMore = { skipped: new Map<string, number>(), problems: new Map<string, number>() };

/** Waits for a moment of performance.now(); returns at once when it is past or the signal fires. */
async function until(moment: number, signal: AbortSignal | undefined): Promise<void> {
  const wait = moment - performance.now();
  if (wait <= 0 || signal?.aborted === true) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, wait);
    signal?.addEventListener('abort', done, { once: true });
  });
}
