// OpenTelemetry's SDK, behind one function, and loaded by nobody but who sends traces: it is as
// large as the rest of the program. What a journey becomes is said by spans.ts, and which journeys
// come here by tracing.ts.
//
// The SDK batches and sends; of what it drops it tells nobody. So no more spans are handed to it
// than its queue holds, counted from what has neither been sent nor failed, and its exporter is
// wrapped: every batch is answered for once, in time, and counted by how. A backend that never
// answers holds a few batches, and later ones fail at once until it does.
//
// Left out: metrics and logs, of which the SDK would send its own; gRPC and JSON, which every
// collector takes beside protobuf over HTTP.

import { randomBytes } from 'node:crypto';

import type { HrTime, Link, Span, SpanContext, Tracer } from '@opentelemetry/api';
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

import type { TracedJourney, TraceSender, SenderOptions } from './sender.ts';
import type { SpanPlan } from './spans.ts';
import { planTrace } from './spans.ts';

/** Batches that may wait for an answer at one time. */
const mostUnanswered = 4;
/** Writings whose first span is remembered, for links. */
const mostWritings = 4096;
/** Milliseconds that closing waits for the backend. */
const closingMs = 2000;

interface State {
  readonly options: SenderOptions;
  readonly tracer: Tracer;
  /** The trace that begins next. */
  readonly ids: { trace: string };
  /** The first span of each writing. */
  readonly writings: Map<string, SpanContext>;
  readonly flight: Flight;
}

/** Spans that were handed to the SDK and are not answered for. */
interface Flight {
  spans: number;
}

export function openSender(options: SenderOptions): TraceSender {
  const { limits, version, exporter } = options;
  const flight: Flight = { spans: 0 };
  const ids = { trace: '' };
  const bare = exporter === 'zipkin' ? new ZipkinExporter() : new OTLPTraceExporter();
  const processor = new BatchSpanProcessor({
    exporter: answering(bare, options, flight),
    maxQueueSize: limits.queue,
    maxExportBatchSize: Math.min(limits.batch, limits.queue),
    scheduledDelayMillis: limits.delayMs,
    // What is wrapped answers first.
    exportTimeoutMillis: limits.timeoutMs + 1000,
  });
  const sdk = new NodeSDK({
    resource: defaultResource().merge(
      resourceFromAttributes({
        [ATTR_SERVICE_NAME]: 'endpoint-auditor',
        [ATTR_SERVICE_VERSION]: version,
      }),
    ),
    // OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win over what is said here.
    resourceDetectors: [resourceAttributesEnvDetector, serviceNameEnvDetector],
    spanProcessors: [processor],
    // Which journeys are traced is chosen before they come here.
    sampler: new AlwaysOnSampler(),
    idGenerator: {
      generateTraceId: () => ids.trace,
      generateSpanId: () => randomBytes(8).toString('hex'),
    },
    instrumentations: [],
    metricReaders: [],
    logRecordProcessors: [],
    textMapPropagator: null,
  });
  sdk.start();
  const tracer = trace.getTracer('endpoint-auditor', version);
  const state: State = { options, tracer, ids, writings: new Map(), flight };
  return {
    send: (kept) => send(state, kept),
    close: () => close(state, sdk),
  };
}

/** False: there is no room for them now. */
function send(state: State, { journey, endedAt, traceId }: TracedJourney): boolean {
  const { flight, options, ids } = state;
  const { root, stages } = planTrace(journey, endedAt);
  const spans = stages.length + 1;
  if (flight.spans > 0 && flight.spans + spans > options.limits.queue) return false;
  flight.spans += spans;
  ids.trace = traceId;
  const parent = begin(state, root, null);
  for (const stage of stages) begin(state, stage, parent).end(hrTime(stage.end));
  parent.end(hrTime(root.end));
  return true;
}

function begin(state: State, plan: SpanPlan, parent: Span | null): Span {
  const { tracer, writings } = state;
  const { name, start, attributes, writing } = plan;
  const first = writing === null ? undefined : writings.get(writing);
  const links: Link[] = first === undefined ? [] : [{ context: first }];
  const startTime = hrTime(start);
  const context = parent === null ? ROOT_CONTEXT : trace.setSpan(ROOT_CONTEXT, parent);
  const span = tracer.startSpan(name, { startTime, attributes, links }, context);
  if (writing !== null && first === undefined) {
    const [oldest] = writings.keys();
    if (writings.size >= mostWritings && oldest !== undefined) writings.delete(oldest);
    writings.set(writing, span.spanContext());
  }
  return span;
}

/** Seconds and nanoseconds, since milliseconds would lose what a watch tells. */
function hrTime(seconds: number): HrTime {
  const micros = Math.round(seconds * 1e6);
  const whole = Math.floor(micros / 1e6);
  return [whole, (micros - whole * 1e6) * 1000];
}

/** An exporter that answers for each batch once, in time, and counts what became of it. */
function answering(exporter: SpanExporter, options: SenderOptions, flight: Flight): SpanExporter {
  const { counts, limits, onTrouble } = options;
  let unanswered = 0;
  return {
    export(spans, done) {
      let isSettled = false;
      const settle = (result: ExportResult): void => {
        if (isSettled) return;
        isSettled = true;
        clearTimeout(timer);
        flight.spans -= spans.length;
        const isSent = result.code === ExportResultCode.SUCCESS;
        if (isSent) counts.exported += spans.length;
        else counts.dropped.export += spans.length;
        onTrouble(isSent ? null : (result.error?.message ?? 'refused'));
        done(result);
      };
      const fail = (why: string): void => {
        settle({ code: ExportResultCode.FAILED, error: new Error(why) });
      };
      const timer = setTimeout(() => {
        fail(`no answer for ${limits.timeoutMs} ms`);
      }, limits.timeoutMs);
      if (unanswered >= mostUnanswered) {
        fail('earlier batches are not answered');
        return;
      }
      unanswered++;
      exporter.export(spans, (result) => {
        unanswered--;
        settle(result);
      });
    },
    forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve(),
    shutdown: () => exporter.shutdown(),
  };
}

/** Sends what it can; what is not answered for in time is lost. */
async function close({ flight, options }: State, sdk: NodeSDK): Promise<void> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => {
    late.resolve(undefined);
  }, closingMs);
  await Promise.race([sdk.shutdown().catch(() => undefined), late.promise]);
  clearTimeout(timer);
  trace.disable();
  options.counts.dropped.shutdown += flight.spans;
}
