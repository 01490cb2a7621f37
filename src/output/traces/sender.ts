// The types that the choice of journeys to trace (tracing.ts) shares with their sender (otel.ts).

import type { Journey } from '../../audit/measure/journey.ts';

export const traceChoices = ['slow', 'ratio', 'none'] as const;
export const spanLosses = ['queue', 'export', 'shutdown'] as const;

/** Bounds of queues in spans, times in milliseconds. */
export interface TracingLimits {
  readonly queue: number;
  readonly batch: number;
  readonly delayMs: number;
  readonly timeoutMs: number;
}

/** A journey that is traced. */

export interface TracedJourney {
  readonly journey: Journey;
  /** Unix seconds on the auditor's clock. */
  readonly endedAt: number;
  /** 32 hexadecimal digits. */
  readonly traceId: string;
}
/** What makes spans of journeys and sends them. */

export interface TraceSender {
  /** False: there is no room for them now. */
  send(kept: TracedJourney): boolean;
  /** Sends what it can within seconds, and counts the rest as lost. */
  close(): Promise<void>;
}
export interface SenderOptions extends TracingSettings {
  /** Of endpoint-auditor. */
  readonly version: string;
  readonly counts: TracingCounts;
  /** Why a batch was not taken; null: it was. */
  readonly onTrouble: (why: string | null) => void;
}
/** What was counted since the start. */

export interface TracingCounts {
  /** Journeys that ended, by why they were traced; none: they were not. */
  readonly journeys: Record<(typeof traceChoices)[number], number>;
  /** Spans that the backend took. */
  exported: number;
  /** Spans that are lost, by where. */
  readonly dropped: Record<(typeof spanLosses)[number], number>;
}
export interface TracingSettings {
  readonly exporter: 'otlp' | 'zipkin';
  /** Of journeys that are not slow, 0 to 1. */
  readonly ratio: number;
  readonly limits: TracingLimits;
}
