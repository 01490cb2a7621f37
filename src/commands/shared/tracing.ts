// Traces of journeys: OTEL_* variables turn them on. An error of tracing never stops the audit.

import { exemplifyJourney } from '../../audit/measure/journey-lag.ts';
import type { Journey } from '../../audit/measure/journey.ts';
import type { Auditor } from '../../auditor/auditor.ts';
import { version } from '../../model/program-version.ts';
import type { Tracing } from '../../output/traces/tracing.ts';
import { readTracingSettings, startTracing } from '../../output/traces/tracing.ts';
import { fail } from './console.ts';

/** `null` if no traces are sent. An error in the settings is printed. */
export async function tracingOf(
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Tracing | null> {
  try {
    const settings = readTracingSettings(environment);
    return settings === null ? null : await startTracing(settings, version, fail);
  } catch (error) {
    // The SDK is a file beside the program, which may be missing.
    fail(`${error instanceof Error ? error.message : String(error)}; no traces are sent`);
    return null;
  }
}

/** Sends the trace of a journey that ends, and keeps the trace as an exemplar of its lag. */
export const traceJourneys =
  (tracing: Tracing | null, auditorOf: () => Auditor) =>
  (journey: Journey): void => {
    if (tracing === null) return;
    const auditor = auditorOf();
    const id = tracing.take(journey, auditor.now() ?? journey.begun);
    if (id !== null) exemplifyJourney(auditor.samples.travel, journey, id);
  };
