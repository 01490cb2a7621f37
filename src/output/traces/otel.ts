// Sends traces with OpenTelemetry's SDK. Only tracing.ts imports this file, and only if traces are
// requested, since the SDK is as large as the rest of the program.
//
// The SDK does not report what it drops. So it gets only as many spans as its queue has room for,
// and its exporter is wrapped: each batch has one answer, in time, and is counted by its result.
// Left out: metrics and logs, and the protocols gRPC and JSON.

import { randomBytes } from 'node:crypto';

import type { Attributes, HrTime, Link, Span, SpanContext } from '@opentelemetry/api';
import { ROOT_CONTEXT, trace } from '@opentelemetry/api';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { ZipkinExporter } from '@opentelemetry/exporter-zipkin';
import * as resources from '@opentelemetry/resources';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { AlwaysOnSampler, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace';
import * as semantic from '@opentelemetry/semantic-conventions';

import type { Journey, JourneyStage, JourneyStageName } from '../../audit/measure/journey.ts';
import { lastOf } from '../../audit/measure/journey.ts';
import type { TracingCounts, TracingSettings } from './settings.ts';

const maxUnanswered = 4;
/** The maximum number of writings with a cached span, for links. */
const maxWritings = 4096;

export interface TracedJourney {
  readonly journey: Journey;
  /** Unix seconds on the auditor's clock. */
  readonly endedAt: number;
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  readonly isSlow: boolean;
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
    send({ journey, endedAt, traceId, isSlow }: TracedJourney): boolean {
      const spans = journey.stages.length + 1;
      // Half of the queue is reserved for slow journeys.
      const room = isSlow ? settings.limits.queue : settings.limits.queue / 2;
      if (unanswered > 0 && unanswered + spans > room) {
        counts.dropped.queue += spans;
        return false;
      }
      const { root, stages } = planTrace(journey, endedAt);
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
  const name = {
    [semantic.ATTR_SERVICE_NAME]: 'endpoint-auditor',
    [semantic.ATTR_SERVICE_VERSION]: version,
  };
  const sdk = new NodeSDK({
    resource: resources.defaultResource().merge(resources.resourceFromAttributes(name)),
    // OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override the resource.
    resourceDetectors: [resources.resourceAttributesEnvDetector, resources.serviceNameEnvDetector],
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

// --- the plan of a trace, as plain data ---
//
//   endpoint add ───────────────────────────────────────────────────────┐ from the pod's own time
//     pod seen ──────────┐                                              │ to the last stage
//                        ├ Endpoints written ──────┐                    │
//                        ├ EndpointSlice written ───────────┐           │
//                                                           ├ node programmed ─┐ …
//
// The beginning is by the clock of its writer, all other times by the auditor's clock
// (measure/journey.ts). If the two contradict each other, or a list hides the beginning, the trace
// begins with the arrival. There are few names of spans, so that a backend can group by them.

/** Names of the incubating conventions, which the package asks to copy. */
const serviceName = 'k8s.service.name';
const addressType = 'k8s.service.endpoint.address_type';

/** A future span; times in Unix seconds. */
export type SpanPlan = ReturnType<typeof planTrace>['stages'][number];

const names: Readonly<Record<JourneyStageName, string>> = {
  arrival: 'pod seen',
  endpoints: 'Endpoints written',
  endpointslices: 'EndpointSlice written',
  node: 'node programmed',
};

const own = 'endpoint_auditor';

const stageAttributes = (
  { namespace, service }: Journey,
  { object, resourceVersion, node, within }: JourneyStage,
): Attributes => ({
  [semantic.ATTR_K8S_NAMESPACE_NAME]: namespace,
  [serviceName]: service,
  [`${own}.object`]: object || undefined,
  [`${own}.resource_version`]: resourceVersion || undefined,
  [semantic.ATTR_K8S_NODE_NAME]: node ?? undefined,
  [`${own}.within_seconds`]: Math.round((within ?? 0) * 1e6) / 1e6 || undefined,
});

function rootAttributes(journey: Journey): Attributes {
  const [address] = journey.addresses;
  return {
    [semantic.ATTR_K8S_NAMESPACE_NAME]: journey.namespace,
    [serviceName]: journey.service,
    [semantic.ATTR_K8S_POD_NAME]: journey.pod,
    [semantic.ATTR_K8S_POD_UID]: journey.uid,
    [semantic.ATTR_K8S_NODE_NAME]: journey.podNode || undefined,
    [semantic.ATTR_K8S_POD_IP]: address,
    [addressType]: address && (address.includes(':') ? 'IPv6' : 'IPv4'),
    [`${own}.operation`]: journey.operation,
    [`${own}.quality`]: journey.quality,
    [`${own}.end`]: journey.end ?? '',
    [`${own}.nodes`]: journey.nodes,
  };
}

/** Plans the trace of a journey that ended at `endedAt`, Unix seconds. */
export function planTrace(journey: Journey, endedAt: number) {
  const arrival = lastOf(journey, 'arrival')?.at ?? journey.begun;
  const isKnown = journey.quality !== 'gap' && journey.quality !== 'skewed';
  const begun = isKnown ? Math.min(journey.begun, arrival) : arrival;
  const written = lastOf(journey, 'endpointslices')?.at ?? arrival;
  const follows: Readonly<Record<JourneyStageName, number>> = {
    arrival: begun,
    endpoints: arrival,
    endpointslices: arrival,
    node: written,
  };
  const stages = journey.stages.map((stage) => {
    const { object, resourceVersion, at } = stage;
    return {
      name: names[stage.stage],
      start: Math.min(follows[stage.stage], at),
      end: at,
      attributes: stageAttributes(journey, stage),
      /** The writing at its end; spans of other journeys with the same writing are linked. */
      writing: object === '' || resourceVersion === '' ? null : `${object} ${resourceVersion}`,
    };
  });
  const last = journey.end === 'complete' ? begun : endedAt;
  const root = {
    name: `endpoint ${journey.operation}`,
    start: Math.min(begun, ...stages.map(({ start }) => start)),
    end: Math.max(last, ...stages.map(({ end }) => end)),
    attributes: rootAttributes(journey),
    writing: null,
  };
  return { root, stages };
}
