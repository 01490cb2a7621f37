// Traces of journeys, for a backend that the standard variables of OpenTelemetry name:
//
//   journey ends ──► choice ──► queue ──timer──► otel.ts ──► SDK's queue ──► backend
//                      │          └── full: dropped, counted
//                      └── left out, counted
//
// The choice is made at the end of a journey: slow ones always have a trace, the others by the
// ratio of OTEL_TRACES_SAMPLER_ARG. The audit only waits for the choice and one push to a bounded
// queue. A timer makes the spans, a few at a time. A slow backend costs spans, which are counted.
//
// Only `startTracing` imports the SDK. Left out: the variables of samplers and exporters that do
// not apply to a journey, such as those about parents.

import { randomBytes } from 'node:crypto';

import type { Journey } from '../../audit/measure/journey.ts';
import { journeyLength } from '../../audit/measure/journey.ts';
import type { TracedJourney, TraceSender, TracingCounts, TracingSettings } from './sender.ts';

/** The length in seconds from which a journey is slow: a bound of a histogram bucket. */
export const slowSeconds = 2.5;

export function noTracingCounts(): TracingCounts {
  return {
    journeys: { slow: 0, ratio: 0, none: 0 },
    exported: 0,
    dropped: { queue: 0, export: 0, shutdown: 0 },
  };
}

type Environment = Readonly<Record<string, string | undefined>>;

function invalid(name: string, expected: string, value: string): never {
  throw new Error(`${name}: Expected ${expected}, not ${JSON.stringify(value)}`);
}

/** The first of these variables that is not empty, with its value. */
function find(environment: Environment, ...names: string[]): [name: string, value: string] | null {
  const name = names.find((name) => (environment[name]?.trim() ?? '') !== '');
  return name === undefined ? null : [name, environment[name]?.trim() ?? ''];
}

const read = (environment: Environment, name: string): string | null =>
  find(environment, name)?.[1] ?? null;

/** Reads a whole number above 0. */
function readCount(environment: Environment, name: string, fallback: number): number {
  const text = read(environment, name);
  const count = text === null ? fallback : Number(text);
  if (Number.isInteger(count) && count > 0) return count;
  return invalid(name, 'a whole number above 0', text ?? '');
}

/** `null` if no exporter is requested. */
function readExporter(environment: Environment): TracingSettings['exporter'] | null {
  const name = read(environment, 'OTEL_TRACES_EXPORTER');
  if (name === 'none') return null;
  if (name !== null && name !== 'otlp' && name !== 'zipkin') {
    return invalid('OTEL_TRACES_EXPORTER', 'otlp, zipkin or none', name);
  }
  const variable = (part: string): [string, string] | null =>
    find(environment, `OTEL_EXPORTER_OTLP_TRACES_${part}`, `OTEL_EXPORTER_OTLP_${part}`);
  const endpoint =
    name === 'zipkin' ? find(environment, 'OTEL_EXPORTER_ZIPKIN_ENDPOINT') : variable('ENDPOINT');
  if (endpoint === null) return name;
  if (!/^https?:$/.test(URL.parse(endpoint[1])?.protocol ?? '')) {
    return invalid(endpoint[0], 'a URL of http or https', endpoint[1]);
  }
  if (name === 'zipkin') return name;
  const protocol = variable('PROTOCOL');
  if (protocol === null || protocol[1] === 'http/protobuf') return 'otlp';
  return invalid(protocol[0], 'http/protobuf', protocol[1]);
}

/** `null` if no journey is traced, not even a slow one. */
function readRatio(environment: Environment): number | null {
  const sampler = read(environment, 'OTEL_TRACES_SAMPLER')?.replace(/^parentbased_/, '') ?? '';
  if (sampler === 'always_off') return null;
  if (sampler === '' || sampler === 'always_on') return 1;
  if (sampler !== 'traceidratio') {
    return invalid('OTEL_TRACES_SAMPLER', 'always_on, always_off or traceidratio', sampler);
  }
  const text = read(environment, 'OTEL_TRACES_SAMPLER_ARG') ?? '1';
  const ratio = Number(text);
  if (ratio >= 0 && ratio <= 1) return ratio;
  return invalid('OTEL_TRACES_SAMPLER_ARG', 'a ratio from 0 to 1', text);
}

/**
 * Reads the variables OTEL_*; `null` if they request no traces. They must name an endpoint, or an
 * exporter, which then uses its default endpoint. Throws an error for people if one is invalid.
 */
export function readTracingSettings(environment: Environment): TracingSettings | null {
  if (read(environment, 'OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return null;
  const exporter = readExporter(environment);
  const ratio = exporter === null ? null : readRatio(environment);
  if (exporter === null || ratio === null) return null;
  const limits = {
    queue: readCount(environment, 'OTEL_BSP_MAX_QUEUE_SIZE', 2048),
    batch: readCount(environment, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512),
    delayMs: readCount(environment, 'OTEL_BSP_SCHEDULE_DELAY', 5000),
    timeoutMs: readCount(environment, 'OTEL_BSP_EXPORT_TIMEOUT', 30_000),
  };
  return { exporter, ratio, limits };
}

export interface Tracing {
  readonly counts: TracingCounts;
  /**
   * Takes a journey that ended at this moment of the auditor's clock. Returns the id of its trace;
   * null if it has none or the queue is full.
   */
  take(journey: Journey, endedAt: number): string | null;
  close(): Promise<void>;
}

/** Milliseconds from a journey to its spans, and between two attempts to send. */
const drainMs = 50;
/** Journeys per attempt: some milliseconds of work. */
const drainedAtOnce = 64;

/** Whether a journey took long, or had lasted long when it ended incomplete. */
function isSlow(journey: Journey, endedAt: number): boolean {
  const { quality, end, begun } = journey;
  // The beginning of these journeys is unknown.
  if (quality === 'gap' || quality === 'skewed') return false;
  const seconds = end === 'complete' ? journeyLength(journey) : endedAt - begun;
  return seconds >= slowSeconds;
}

/**
 * Loads the SDK and starts to trace. `onTrouble` is called once when the backend stops accepting
 * traces, and once when it accepts them again.
 */
export async function startTracing(
  settings: TracingSettings,
  version: string,
  onTrouble: (text: string) => void,
): Promise<Tracing> {
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

/** The number of spans of a journey: the root and its stages. */
const countSpans = ({ stages }: Journey): number => stages.length + 1;

/** Selects journeys and queues them for the sender. */
export function createTracing(
  { ratio, limits }: TracingSettings,
  sender: TraceSender,
  counts: TracingCounts,
): Tracing {
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
