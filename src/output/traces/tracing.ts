// Traces of journeys, for a backend that the standard variables of OpenTelemetry name:
//
//   journey ends ──► choice ──► otel.ts ──► queue of the SDK ──timer──► backend
//                      │           └── full: dropped, counted
//                      └── left out, counted
//
// Slow journeys always have a trace, the others by the ratio of OTEL_TRACES_SAMPLER_ARG. The audit
// never waits for the backend: a slow one costs spans.

import { randomBytes } from 'node:crypto';

import { type Journey, journeyLength } from '../../audit/measure/journey.ts';
import type { TraceSender } from './otel.ts';
import { noTracingCounts, type TracingCounts, type TracingSettings } from './settings.ts';

/** The length in seconds from which a journey is slow: a bound of a histogram bucket. */
export const slowSeconds = 2.5;

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

export type Tracing = ReturnType<typeof createTracing>;

/** Selects the journeys that the sender gets. */
export const createTracing = (
  { ratio }: TracingSettings,
  sender: TraceSender,
  counts: TracingCounts,
) => ({
  counts,
  /** Returns the id of the journey's trace; null if it has none or the queue is full. */
  take(journey: Journey, endedAt: number): string | null {
    const choice = isSlow(journey, endedAt) ? 'slow' : Math.random() < ratio ? 'ratio' : 'none';
    counts.journeys[choice]++;
    if (choice === 'none') return null;
    const traceId = randomBytes(16).toString('hex');
    const isSent = sender.send({ journey, endedAt, traceId, isSlow: choice === 'slow' });
    return isSent ? traceId : null;
  },
  close: () => sender.close(),
});
