// What the selection of journeys (tracing.ts) and their sender (otel.ts) share.

import type { Journey } from '../../audit/measure/journey.ts';

export const traceChoices = ['slow', 'ratio', 'none'] as const;
export const spanLosses = ['queue', 'export', 'shutdown'] as const;

export interface TracingSettings {
  readonly exporter: 'otlp' | 'zipkin';
  /** The traced share of journeys that are not slow, 0 to 1. */
  readonly ratio: number;
  /** Queue and batch sizes in spans, times in milliseconds. */
  readonly limits: Readonly<Record<'queue' | 'batch' | 'delayMs' | 'timeoutMs', number>>;
}

/** Counts since the start. */
export interface TracingCounts {
  /** Ended journeys by the reason to trace them; `none` counts those without a trace. */
  readonly journeys: Record<(typeof traceChoices)[number], number>;
  /** Spans that the backend accepted. */
  exported: number;
  /** Lost spans by the place of the loss. */
  readonly dropped: Record<(typeof spanLosses)[number], number>;
}

/** A journey with a trace. */
export interface TracedJourney {
  readonly journey: Journey;
  /** Unix seconds on the auditor's clock. */
  readonly endedAt: number;
  /** 32 hexadecimal digits. */
  readonly traceId: string;
}

/** Makes spans of journeys and sends them. */
export interface TraceSender {
  /** False if the queue has no room now. */
  send(traced: TracedJourney): boolean;
  /** Sends the queue within two seconds, and counts the rest as lost. */
  close(): Promise<void>;
}
