// Traces of commands that go on: begun where OTEL_* asks for them, and never a reason not to audit.

import { exemplifyJourney } from '../../audit/measure/exemplar.ts';
import type { Journey } from '../../audit/measure/journey.ts';
import type { Auditor } from '../../auditor/auditor.ts';
import { version } from '../../model/program-version.ts';
import type { Tracing } from '../../output/traces/tracing.ts';
import { startTracing, readTracingSettings } from '../../output/traces/tracing.ts';
import { fail } from './console.ts';

/** null: no traces are sent; where something is wrong with what asks for them, that is said. */
export async function tracingOf(
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Tracing | null> {
  const settings = readTracingSettings(environment);
  if (settings === null) return null;
  try {
    if (typeof settings === 'string') throw new Error(settings);
    return await startTracing({ ...settings, version, onTrouble: fail });
  } catch (error) {
    // That it cannot be loaded, too: what sends traces is a file beside the program.
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
