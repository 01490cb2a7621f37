// Sends traces with OpenTelemetry's SDK. Only tracing.ts imports this file, and only if traces are
// requested, since the SDK is as large as the rest of the program.
//
// The SDK does not report what it drops. So it gets only as many spans as its queue has room for,
// and its exporter is wrapped: each batch has one answer, in time, and is counted by its result.
// Left out: metrics and logs, and the protocols gRPC and JSON.

import { randomBytes } from 'node:crypto';

import type { HrTime, Link, Span, SpanContext } from '@opentelemetry/api';
import { ROOT_CONTEXT, trace } from '@opentelemetry/api';
import type { ExportResult } from '@opentelemetry/core';
import { ExportResultCode } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { ZipkinExporter } from '@opentelemetry/exporter-zipkin';
import {
  defaultResource,
  resourceAttributesEnvDetector,
  resourceFromAttributes,
  serviceNameEnvDetector,
} from '@opentelemetry/resources';
import { NodeSDK } from '@opentelemetry/sdk-node';
import type { SpanExporter } from '@opentelemetry/sdk-trace';
import { AlwaysOnSampler, BatchSpanProcessor } from '@opentelemetry/sdk-trace';
import { ATTR_SERVICE_NAME, ATTR_SERVICE_VERSION } from '@opentelemetry/semantic-conventions';

import type { Journey } from '../../audit/measure/journey.ts';
import type { TracingCounts, TracingSettings } from './settings.ts';
import type { SpanPlan } from './spans.ts';
import { planTrace } from './spans.ts';

const maxUnanswered = 4;
/** The maximum number of writings with a cached span, for links. */
const maxWritings = 4096;

export interface TracedJourney {
  readonly journey: Journey;
  /** Unix seconds on the auditor's clock. */
  readonly endedAt: number;
  /** 32 hexadecimal digits. */
  readonly traceId: string;
}

export type TraceSender = ReturnType<typeof openSender>;

/** `onAnswer` gets the reason why a batch failed; `null` if it was sent. */
export function openSender(
  settings: TracingSettings,
  version: string,
  counts: TracingCounts,
  onAnswer: (reason: string | null) => void,
) {
  const tracer = trace.getTracer('endpoint-auditor', version);
  const writings = new Map<string, SpanContext>();
  let nextTraceId = '';
  let unanswered = 0;
  const exporter = wrapExporter(settings, (spans, reason) => {
    unanswered -= spans;
    if (reason === null) counts.exported += spans;
    else counts.dropped.export += spans;
    onAnswer(reason);
  });
  const sdk = startSdk(settings, version, exporter, () => nextTraceId);

  function startSpan(plan: SpanPlan, parent: Span | null): Span {
    const { name, start, attributes, writing } = plan;
    const first = writing === null ? undefined : writings.get(writing);
    const links: Link[] = first === undefined ? [] : [{ context: first }];
    const context = parent === null ? ROOT_CONTEXT : trace.setSpan(ROOT_CONTEXT, parent);
    const span = tracer.startSpan(name, { startTime: toHrTime(start), attributes, links }, context);
    if (writing !== null && first === undefined) {
      const [oldest] = writings.keys();
      if (writings.size >= maxWritings && oldest !== undefined) writings.delete(oldest);
      writings.set(writing, span.spanContext());
    }
    return span;
  }

  return {
    /** Makes and ends all spans of a journey; false if the queue has no room now. */
    send({ journey, endedAt, traceId }: TracedJourney): boolean {
      const { root, stages } = planTrace(journey, endedAt);
      const spans = stages.length + 1;
      if (unanswered > 0 && unanswered + spans > settings.limits.queue) return false;
      unanswered += spans;
      nextTraceId = traceId;
      const parent = startSpan(root, null);
      for (const stage of stages) startSpan(stage, parent).end(toHrTime(stage.end));
      parent.end(toHrTime(root.end));
      return true;
    },
    /** Sends the queue within two seconds, and counts the rest as lost. */
    async close(): Promise<void> {
      const late = Promise.withResolvers<undefined>();
      const timer = setTimeout(() => late.resolve(undefined), 2000);
      await Promise.race([sdk.shutdown().catch(() => undefined), late.promise]);
      clearTimeout(timer);
      trace.disable();
      counts.dropped.shutdown += unanswered;
    },
  };
}

function startSdk(
  { limits }: TracingSettings,
  version: string,
  exporter: SpanExporter,
  generateTraceId: () => string,
): NodeSDK {
  const processor = new BatchSpanProcessor({
    exporter,
    maxQueueSize: limits.queue,
    maxExportBatchSize: Math.min(limits.batch, limits.queue),
    scheduledDelayMillis: limits.delayMs,
    // The wrapped exporter answers first.
    exportTimeoutMillis: limits.timeoutMs + 1000,
  });
  const name = { [ATTR_SERVICE_NAME]: 'endpoint-auditor', [ATTR_SERVICE_VERSION]: version };
  const sdk = new NodeSDK({
    resource: defaultResource().merge(resourceFromAttributes(name)),
    // OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override the resource.
    resourceDetectors: [resourceAttributesEnvDetector, serviceNameEnvDetector],
    spanProcessors: [processor],
    sampler: new AlwaysOnSampler(),
    idGenerator: { generateTraceId, generateSpanId: () => randomBytes(8).toString('hex') },
    instrumentations: [],
    metricReaders: [],
    logRecordProcessors: [],
    textMapPropagator: null,
  });
  sdk.start();
  return sdk;
}

/** Seconds and nanoseconds: milliseconds would be too coarse for the times of a watch. */
function toHrTime(seconds: number): HrTime {
  const micros = Math.round(seconds * 1e6);
  const whole = Math.floor(micros / 1e6);
  return [whole, (micros - whole * 1e6) * 1000];
}

/** An exporter that answers each batch once and in time, with the number of its spans. */
function wrapExporter(
  { exporter: name, limits: { timeoutMs } }: TracingSettings,
  onAnswer: (spans: number, reason: string | null) => void,
): SpanExporter {
  const exporter = name === 'zipkin' ? new ZipkinExporter() : new OTLPTraceExporter();
  let batches = 0;
  return {
    export(spans, done) {
      let isSettled = false;
      const settle = (result: ExportResult): void => {
        if (isSettled) return;
        isSettled = true;
        clearTimeout(timer);
        const isSent = result.code === ExportResultCode.SUCCESS;
        onAnswer(spans.length, isSent ? null : (result.error?.message ?? 'refused'));
        done(result);
      };
      const fail = (reason: string): void =>
        settle({ code: ExportResultCode.FAILED, error: new Error(reason) });
      const timer = setTimeout(() => fail(`no answer for ${timeoutMs} ms`), timeoutMs);
      if (batches >= maxUnanswered) {
        fail('earlier batches are not answered');
        return;
      }
      batches++;
      exporter.export(spans, (result) => {
        batches--;
        settle(result);
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}
