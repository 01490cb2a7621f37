// Journeys as traces, for a backend that the standard variables of OpenTelemetry name:
//
//   journey ends ──► choice ──► queue ──timer──► otel.ts ──► SDK's queue ──► backend
//                      │          └── full: dropped, counted
//                      └── left out, counted
//
// Choosing at the end of a journey is what its length allows: slow ones are traced always, the
// others by the ratio of OTEL_TRACES_SAMPLER_ARG. What the audit waits for is the choice and one
// push to a queue that is bounded; spans are made by a timer, a few at a time, and a backend that
// is slow or away costs spans, which are counted, and nothing else.
//
// Without an endpoint the SDK is not even loaded: only `startTracing` imports it.
//
// Left out: the other variables of samplers and exporters that a journey has no use for, such as
// those of parents: no journey has one.

import { randomBytes } from 'node:crypto';

import type { Journey } from '../../audit/measure/journey.ts';
import { journeyLength } from '../../audit/measure/journey.ts';
import type { TracedJourney, TraceSender, TracingCounts, TracingSettings } from './sender.ts';

/** Seconds from which a journey is slow; the bound of a bucket, so that those above it have one. */
export const slowSeconds = 2.5;

export function noTracingCounts(): TracingCounts {
  return {
    journeys: { slow: 0, ratio: 0, none: 0 },
    exported: 0,
    dropped: { queue: 0, export: 0, shutdown: 0 },
  };
}

// --- what the environment says ---

type Environment = Readonly<Record<string, string | undefined>>;

/** Wrong values, one sentence each; the variable, what is expected, what is there. */
class Wrong extends Error {}

const wrong = (name: string, expected: string, value: string): Wrong =>
  new Wrong(`${name}: Expected ${expected}, not ${JSON.stringify(value)}`);

function read(environment: Environment, name: string): string | null {
  const value = environment[name]?.trim() ?? '';
  return value === '' ? null : value;
}

/** A whole number above 0. */
function countOf(environment: Environment, name: string, fallback: number): number {
  const text = read(environment, name);
  if (text === null) return fallback;
  const count = Number(text);
  if (Number.isInteger(count) && count > 0) return count;
  throw wrong(name, 'a whole number above 0', text);
}

const otlpEndpoints = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'];
const otlpProtocols = ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL'];

/** null: none is asked for. */
function exporterOf(environment: Environment): TracingSettings['exporter'] | null {
  const name = read(environment, 'OTEL_TRACES_EXPORTER');
  if (name === 'none') return null;
  if (name !== null && name !== 'otlp' && name !== 'zipkin') {
    throw wrong('OTEL_TRACES_EXPORTER', 'otlp, zipkin or none', name);
  }
  const isZipkin = name === 'zipkin';
  const endpoints = isZipkin ? ['OTEL_EXPORTER_ZIPKIN_ENDPOINT'] : otlpEndpoints;
  const variable = endpoints.find((one) => read(environment, one) !== null);
  if (variable === undefined) return name;
  const endpoint = read(environment, variable) ?? '';
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol)) {
    throw wrong(variable, 'a URL of http or https', endpoint);
  }
  if (isZipkin) return 'zipkin';
  const spoken = otlpProtocols.find((one) => read(environment, one) !== null);
  const protocol = spoken === undefined ? null : read(environment, spoken);
  if (spoken !== undefined && protocol !== null && protocol !== 'http/protobuf') {
    throw wrong(spoken, 'http/protobuf', protocol);
  }
  return 'otlp';
}

/** null: nothing is traced, the slow ones neither. */
function ratioOf(environment: Environment): number | null {
  const sampler = read(environment, 'OTEL_TRACES_SAMPLER')?.replace(/^parentbased_/, '') ?? '';
  if (sampler === 'always_off') return null;
  if (sampler === '' || sampler === 'always_on') return 1;
  if (sampler !== 'traceidratio') {
    throw wrong('OTEL_TRACES_SAMPLER', 'always_on, always_off or traceidratio', sampler);
  }
  const text = read(environment, 'OTEL_TRACES_SAMPLER_ARG') ?? '1';
  const ratio = Number(text);
  if (ratio >= 0 && ratio <= 1) return ratio;
  throw wrong('OTEL_TRACES_SAMPLER_ARG', 'a ratio from 0 to 1', text);
}

/**
 * What OTEL_* says; null: no traces are asked for, a text: what is wrong with it, for people. An
 * endpoint must be named, or an exporter, which then has its usual endpoint on this machine.
 */
export function readTracingSettings(environment: Environment): TracingSettings | string | null {
  if (read(environment, 'OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return null;
  try {
    const exporter = exporterOf(environment);
    if (exporter === null) return null;
    const ratio = ratioOf(environment);
    if (ratio === null) return null;
    const limits = {
      queue: countOf(environment, 'OTEL_BSP_MAX_QUEUE_SIZE', 2048),
      batch: countOf(environment, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512),
      delayMs: countOf(environment, 'OTEL_BSP_SCHEDULE_DELAY', 5000),
      timeoutMs: countOf(environment, 'OTEL_BSP_EXPORT_TIMEOUT', 30_000),
    };
    return { exporter, ratio, limits };
  } catch (error) {
    if (error instanceof Wrong) return error.message;
    throw error;
  }
}

export interface Tracing {
  readonly counts: TracingCounts;
  /**
   * A journey that ended at this moment of the auditor's clock. The id of its trace, if it has one
   * and found room.
   */
  take(journey: Journey, endedAt: number): string | null;
  close(): Promise<void>;
}

/** Milliseconds from a journey to its spans, and from one look for room to the next. */
const drainMs = 50;
/** Journeys that become spans in one go, some milliseconds. */
const drainedAtOnce = 64;

/** Whether a journey took long, or was on its way for long when it ended. */
function isSlow(journey: Journey, endedAt: number): boolean {
  const { quality, end, begun } = journey;
  // Of those, nobody knows when they began.
  if (quality === 'gap' || quality === 'skewed') return false;
  const seconds = end === 'complete' ? journeyLength(journey) : endedAt - begun;
  return seconds >= slowSeconds;
}

export interface TracingOptions extends TracingSettings {
  readonly version: string;
  /** Says to people that traces are not taken, and that they are again, once each. */
  readonly onTrouble: (text: string) => void;
}

/** Loads the SDK and begins to trace. */
export async function startTracing(options: TracingOptions): Promise<Tracing> {
  const { openSender } = await import('./otel.ts');
  const counts = noTracingCounts();
  const sender = openSender({ ...options, counts, onTrouble: onceEach(options.onTrouble) });
  return createTracing(options, sender, counts);
}

function onceEach(say: (text: string) => void): (why: string | null) => void {
  let isTroubled = false;
  return (why) => {
    if (isTroubled === (why !== null)) return;
    isTroubled = why !== null;
    say(why === null ? 'Traces are taken again' : `Traces are not taken: ${why}`);
  };
}

/** The trace itself, and its stages. */
const spansOf = ({ stages }: Journey): number => stages.length + 1;

/** The choice and the queue before a sender. */
export function createTracing(
  { ratio, limits }: TracingSettings,
  sender: TraceSender,
  counts: TracingCounts,
): Tracing {
  const queue: TracedJourney[] = [];
  let queued = 0;
  let timer: NodeJS.Timeout | null = null;
  /** Sends the first so many, while there is room. */
  function drain(most: number): void {
    let sent = 0;
    for (const kept of queue.slice(0, most)) {
      if (!sender.send(kept)) break;
      queued -= spansOf(kept.journey);
      sent++;
    }
    queue.splice(0, sent);
  }

  function later(): void {
    if (timer !== null || queue.length === 0) return;
    timer = setTimeout(() => {
      timer = null;
      drain(drainedAtOnce);
      later();
    }, drainMs);
    timer.unref();
  }

  function take(journey: Journey, endedAt: number): string | null {
    const choice = isSlow(journey, endedAt) ? 'slow' : Math.random() < ratio ? 'ratio' : 'none';
    counts.journeys[choice]++;
    if (choice === 'none') return null;
    const spans = spansOf(journey);
    // Half of the queue is for slow ones alone.
    const room = choice === 'slow' ? limits.queue : limits.queue / 2;
    if (queue.length > 0 && queued + spans > room) {
      counts.dropped.queue += spans;
      return null;
    }
    const traceId = randomBytes(16).toString('hex');
    queue.push({ journey, endedAt, traceId });
    queued += spans;
    later();
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
