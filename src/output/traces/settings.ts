// The settings of traces from OpenTelemetry's standard variables, and the counts of traces. Left
// out: variables that do not apply to a journey, such as those about parents.

export type TracingCounts = ReturnType<typeof noTracingCounts>;

/** Counts since the start. */
export const noTracingCounts = () => ({
  /** Ended journeys by the reason to trace them; `none` counts those without a trace. */
  journeys: { slow: 0, ratio: 0, none: 0 },
  exported: 0,
  /** Lost spans by the place of the loss. */
  dropped: { queue: 0, export: 0, shutdown: 0 },
});

type Variables = ReadonlyMap<string, string>;

function invalid(name: string, expected: string, value = ''): never {
  throw new Error(`${name}: Expected ${expected}, not ${JSON.stringify(value)}`);
}

function readCount(variables: Variables, name: string, fallback: number): number {
  const text = variables.get(name);
  const count = Number(text ?? fallback);
  if (Number.isInteger(count) && count > 0) return count;
  return invalid(name, 'a whole number above 0', text);
}

/** `null` if no exporter is requested. */
function readExporter(variables: Variables): 'otlp' | 'zipkin' | null {
  const exporter = variables.get('OTEL_TRACES_EXPORTER') ?? null;
  if (exporter === 'none') return null;
  if (exporter !== null && exporter !== 'otlp' && exporter !== 'zipkin') {
    return invalid('OTEL_TRACES_EXPORTER', 'otlp, zipkin or none', exporter);
  }
  const find = (part: string): string => {
    const ofTraces = `OTEL_EXPORTER_OTLP_TRACES_${part}`;
    return variables.has(ofTraces) ? ofTraces : `OTEL_EXPORTER_OTLP_${part}`;
  };
  const endpoint = exporter === 'zipkin' ? 'OTEL_EXPORTER_ZIPKIN_ENDPOINT' : find('ENDPOINT');
  const url = variables.get(endpoint);
  if (url === undefined) return exporter;
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    return invalid(endpoint, 'a URL of http or https', url);
  }
  const protocol = variables.get(find('PROTOCOL')) ?? 'http/protobuf';
  if (exporter === 'zipkin' || protocol === 'http/protobuf') return exporter ?? 'otlp';
  return invalid(find('PROTOCOL'), 'http/protobuf', protocol);
}

/** `null` if no journey is traced, not even a slow one. */
function readRatio(variables: Variables): number | null {
  const sampler = variables.get('OTEL_TRACES_SAMPLER')?.replace(/^parentbased_/, '');
  if (sampler === 'always_off') return null;
  if (sampler === undefined || sampler === 'always_on') return 1;
  if (sampler !== 'traceidratio') {
    return invalid('OTEL_TRACES_SAMPLER', 'always_on, always_off or traceidratio', sampler);
  }
  const text = variables.get('OTEL_TRACES_SAMPLER_ARG') ?? '1';
  const ratio = Number(text);
  if (ratio >= 0 && ratio <= 1) return ratio;
  return invalid('OTEL_TRACES_SAMPLER_ARG', 'a ratio from 0 to 1', text);
}

export type TracingSettings = NonNullable<ReturnType<typeof readTracingSettings>>;

/**
 * Reads the variables OTEL_*; `null` if they request no traces. They must name an endpoint, or an
 * exporter, which then uses its default endpoint. Throws an error for people if one is invalid.
 */
export function readTracingSettings(environment: Readonly<Record<string, string | undefined>>) {
  const variables = new Map<string, string>();
  for (const [name, text = ''] of Object.entries(environment)) {
    if (text.trim() !== '') variables.set(name, text.trim());
  }
  if (variables.get('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return null;
  const exporter = readExporter(variables);
  /** The traced share of journeys that are not slow, 0 to 1. */
  const ratio = exporter === null ? null : readRatio(variables);
  if (exporter === null || ratio === null) return null;
  /** Queue and batch sizes in spans, times in milliseconds. */
  const limits = {
    queue: readCount(variables, 'OTEL_BSP_MAX_QUEUE_SIZE', 2048),
    batch: readCount(variables, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512),
    delayMs: readCount(variables, 'OTEL_BSP_SCHEDULE_DELAY', 5000),
    timeoutMs: readCount(variables, 'OTEL_BSP_EXPORT_TIMEOUT', 30_000),
  };
  return { exporter, ratio, limits };
}
