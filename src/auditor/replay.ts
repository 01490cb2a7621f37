// Plays a recording: passes its entries to the auditor as fast as possible, or at a multiple of the
// recording's own speed.

import { setTimeout } from 'node:timers/promises';

import type { RecordingEntry } from '../cluster/files/recording.ts';
import type { Auditor } from './auditor.ts';

/** A moment of a recording: Unix seconds, or seconds of a day in UTC. */
export type Moment = number | { readonly ofDay: number };

/** The moment in Unix seconds: a time of day is the first one since the recording began. */
export function momentSince(moment: Moment, begun: number): number {
  if (typeof moment === 'number') return moment;
  const at = begun - (begun % 86_400) + moment.ofDay;
  // People do not write fractions of the second in which a recording begins.
  return at >= Math.floor(begun) ? at : at + 86_400;
}

export interface ReplayPace {
  /** Factor over the recording's own speed; Infinity does not wait. */
  readonly speed: number;
  /** Where to stop on the input's clock; `null` for the end of the recording. */
  readonly until: Moment | null;
  /** Aborts the waiting and the replay. */
  readonly signal?: AbortSignal;
  readonly onHeader?: () => void;
}

export async function replay(
  auditor: Auditor,
  entries: AsyncIterable<RecordingEntry>,
  { speed, until: moment, signal, onHeader }: ReplayPace,
): Promise<void> {
  const started = performance.now();
  let origin: number | null = null;
  for await (const entry of entries) {
    const at = entry.kind === 'event' ? entry.event.at : entry.at;
    const begun = (origin ??= at);
    const until = moment === null ? null : momentSince(moment, begun);
    if (until !== null && at > until) {
      auditor.take({ kind: 'end', at: until, complete: true, skipped: new Map() });
      return;
    }
    if (speed !== Infinity) {
      const waitFor = (moment: number): Promise<void> =>
        sleepUntil(started + ((moment - begun) / speed) * 1000, signal);
      for (let next = auditor.nextAt(); next !== null && next < at; next = auditor.nextAt()) {
        await waitFor(next);
        auditor.advance(next);
      }
      await waitFor(at);
    }
    if (signal?.aborted === true) return;
    auditor.take(entry);
    if (entry.kind === 'header') onHeader?.();
  }
}

/** Waits for a moment of performance.now(), or until the signal is aborted. */
async function sleepUntil(moment: number, signal: AbortSignal | undefined): Promise<void> {
  const wait = moment - performance.now();
  if (wait <= 0 || signal?.aborted === true) return;
  await setTimeout(wait, undefined, { signal }).catch(() => undefined);
}
