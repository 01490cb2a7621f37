// Traces of journeys, for a backend that the standard variables of OpenTelemetry name:
//
//   journey ends ──► choice ──► queue ──timer──► otel.ts ──► SDK's queue ──► backend
//                      │          └── full: dropped, counted
//                      └── left out, counted
//
// Slow journeys always have a trace, the others by the ratio of OTEL_TRACES_SAMPLER_ARG. The audit
// only waits for the choice and one push to a bounded queue. A slow backend costs spans.

import { randomBytes } from 'node:crypto';

import { type Journey, journeyLength } from '../../audit/measure/journey.ts';
import type { TracedJourney, TraceSender } from './otel.ts';
import { noTracingCounts, type TracingCounts, type TracingSettings } from './settings.ts';

/** The length in seconds from which a journey is slow: a bound of a histogram bucket. */
export const slowSeconds = 2.5;

/** Milliseconds from a journey to its spans, and between two attempts to send. */
const drainMs = 50;
/** Journeys per attempt: some milliseconds of work. */
const drainedAtOnce = 64;

function isSlow(journey: Journey, endedAt: number): boolean {
  const { quality, end, begun } = journey;
  // The beginning of these journeys is unknown.
  if (quality === 'gap' || quality === 'skewed') return false;
  return (end === 'complete' ? journeyLength(journey) : endedAt - begun) >= slowSeconds;
}

/** `onTrouble` is called once when the backend stops accepting traces, and once when it resumes. */
export async function startTracing(
  settings: TracingSettings,
  version: string,
  onTrouble: (text: string) => void,
) {
  const { openSender } = await import('./otel.ts');
  const counts = noTracingCounts();
  let isTroubled = false;
  const sender = openSender(settings, version, counts, (reason) => {
    if (isTroubled === (reason !== null)) return;
    isTroubled = reason !== null;
    onTrouble(reason === null ? 'Traces are taken again' : `Traces are not taken: ${reason}`);
  });
  return createTracing(settings, sender, counts);
}

const countSpans = ({ stages }: Journey): number => stages.length + 1;

export type Tracing = ReturnType<typeof createTracing>;

/** Selects journeys and queues them for the sender. */
export function createTracing(
  { ratio, limits }: TracingSettings,
  sender: TraceSender,
  counts: TracingCounts,
) {
  const queue: TracedJourney[] = [];
  let queued = 0;
  let timer: NodeJS.Timeout | null = null;
  /** Sends at most this many journeys, until the sender is full. */
  function drain(most: number): void {
    let sent = 0;
    for (const traced of queue.slice(0, most)) {
      if (!sender.send(traced)) break;
      queued -= countSpans(traced.journey);
      sent++;
    }
    queue.splice(0, sent);
  }

  function schedule(): void {
    if (timer !== null || queue.length === 0) return;
    timer = setTimeout(() => {
      timer = null;
      drain(drainedAtOnce);
      schedule();
    }, drainMs).unref();
  }

  /** Returns the id of the journey's trace; null if it has none or the queue is full. */
  function take(journey: Journey, endedAt: number): string | null {
    const choice = isSlow(journey, endedAt) ? 'slow' : Math.random() < ratio ? 'ratio' : 'none';
    counts.journeys[choice]++;
    if (choice === 'none') return null;
    const spans = countSpans(journey);
    // Half of the queue is reserved for slow journeys.
    const room = choice === 'slow' ? limits.queue : limits.queue / 2;
    if (queue.length > 0 && queued + spans > room) {
      counts.dropped.queue += spans;
      return null;
    }
    const traceId = randomBytes(16).toString('hex');
    queue.push({ journey, endedAt, traceId });
    queued += spans;
    schedule();
    return traceId;
  }

  async function close(): Promise<void> {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    drain(Infinity);
    counts.dropped.shutdown += queued;
    queue.length = 0;
    queued = 0;
    await sender.close();
  }
  return { counts, take, close };
}
