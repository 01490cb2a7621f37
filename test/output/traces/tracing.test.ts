import { describe, expect, test } from 'vitest';

import { convergenceBounds } from '../../../src/audit/measure/lag.ts';
import { noTracingCounts, readTracingSettings } from '../../../src/output/traces/settings.ts';
import { createTracing, slowSeconds } from '../../../src/output/traces/tracing.ts';
import { journeyOf, keeping, moment, settingsOf, usualStages } from '../samples.ts';

describe('the variables of the environment', () => {
  const endpoint = 'http://127.0.0.1:4318';

  test.each<[string, Record<string, string>]>([
    ['nothing', {}],
    ['an empty endpoint', { OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }],
    ['the SDK disabled', { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SDK_DISABLED: 'TRUE' }],
    ['no exporter', { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_EXPORTER: 'none' }],
    ['always off', { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER: 'always_off' }],
    ['an endpoint of another signal', { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: endpoint }],
    ['an endpoint of Zipkin alone', { OTEL_EXPORTER_ZIPKIN_ENDPOINT: endpoint }],
  ])('%s requests no traces', (_what, environment) => {
    expect(readTracingSettings(environment)).toBeNull();
  });

  test('an endpoint alone has default settings', () => {
    const want = {
      exporter: 'otlp',
      ratio: 1,
      limits: { queue: 2048, batch: 512, delayMs: 5000, timeoutMs: 30_000 },
    };
    expect(readTracingSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint })).toEqual(want);
    expect(readTracingSettings({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: endpoint })).toEqual(want);
    expect(readTracingSettings({ OTEL_TRACES_EXPORTER: 'otlp' })).toEqual(want);
    const zipkin = { OTEL_TRACES_EXPORTER: 'zipkin', OTEL_EXPORTER_ZIPKIN_ENDPOINT: endpoint };
    expect(readTracingSettings(zipkin)).toEqual({ ...want, exporter: 'zipkin' });
  });

  test.each([
    ['always_on', undefined, 1],
    ['traceidratio', '0.1', 0.1],
    ['parentbased_traceidratio', '0', 0],
    ['traceidratio', undefined, 1],
    ['always_on', '0.1', 1],
  ])('sampler %s with %s: ratio %f', (sampler, arg, ratio) => {
    const environment = { OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: arg };
    expect(
      readTracingSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...environment }),
    ).toMatchObject({ ratio });
  });

  test('the variables of the batch processor set the limits', () => {
    const limits = {
      OTEL_BSP_MAX_QUEUE_SIZE: '100',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '10',
      OTEL_BSP_SCHEDULE_DELAY: '50',
      OTEL_BSP_EXPORT_TIMEOUT: '70',
    };
    expect(readTracingSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...limits })).toMatchObject(
      {
        limits: { queue: 100, batch: 10, delayMs: 50, timeoutMs: 70 },
      },
    );
  });

  test.each<[Record<string, string>, string]>([
    [{ OTEL_TRACES_EXPORTER: 'jaeger' }, 'OTEL_TRACES_EXPORTER: Expected otlp, zipkin or none'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' }, 'OTEL_EXPORTER_OTLP_ENDPOINT: Expected a'],
    [
      { OTEL_TRACES_EXPORTER: 'zipkin', OTEL_EXPORTER_ZIPKIN_ENDPOINT: 'zipkin' },
      'OTEL_EXPORTER_ZIPKIN_ENDPOINT: Expected a URL of http or https, not "zipkin"',
    ],
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, 'OTEL_EXPORTER_OTLP_PROTOCOL: Expected http/proto'],
    [{ OTEL_TRACES_SAMPLER: 'mine' }, 'OTEL_TRACES_SAMPLER: Expected always_on, always_off'],
    [
      { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' },
      'OTEL_TRACES_SAMPLER_ARG: Expected a ratio from 0 to 1, not "2"',
    ],
    [{ OTEL_BSP_MAX_QUEUE_SIZE: '0' }, 'OTEL_BSP_MAX_QUEUE_SIZE: Expected a whole number above 0'],
  ])('the settings %j throw an error', (more, message) => {
    const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...more };
    expect(() => readTracingSettings(environment)).toThrow(message);
  });
});

describe('which journeys are traced', () => {
  const slow = journeyOf({ begun: moment + 0.9 - slowSeconds, quality: 'ok' });

  test('the limit of slow journeys is a bound of a bucket', () => {
    expect(convergenceBounds).toContain(slowSeconds);
  });

  test('slow journeys always have a trace, the others by the ratio', () => {
    const counts = noTracingCounts();
    const { sender, sent } = keeping();
    const tracing = createTracing(settingsOf({ ratio: 0 }), sender, counts);
    expect(tracing.take(journeyOf(), moment + 60)).toBeNull();
    const id = tracing.take(slow, moment + 60);
    expect(id).toMatch(/^[0-9a-f]{32}$/);
    expect(tracing.take(slow, moment + 60)).not.toBe(id);
    expect(counts.journeys).toEqual({ slow: 2, ratio: 0, none: 1 });
    expect(sent.map(({ traceId }) => traceId)[0]).toBe(id);
    expect(sent).toHaveLength(2);
  });

  test('the share of traced journeys is the ratio', () => {
    const counts = noTracingCounts();
    const { sender } = keeping();
    const tracing = createTracing(settingsOf({ ratio: 0.25 }), sender, counts);
    for (let count = 0; count < 4000; count++) tracing.take(journeyOf(), moment + 60);
    // Seven standard deviations.
    expect(counts.journeys.ratio).toBeGreaterThan(800);
    expect(counts.journeys.ratio).toBeLessThan(1200);
    expect(counts.journeys.ratio + counts.journeys.none).toBe(4000);
  });

  test('an overtaken journey is slow if it lasted long until its end', () => {
    const counts = noTracingCounts();
    const tracing = createTracing(settingsOf({ ratio: 0 }), keeping().sender, counts);
    const overtaken = journeyOf({ end: 'overtaken', stages: usualStages.slice(0, 1) });
    expect(tracing.take(overtaken, moment + slowSeconds - 0.1)).toBeNull();
    expect(tracing.take(overtaken, moment + slowSeconds)).not.toBeNull();
  });

  test.each(['gap', 'skewed'] as const)('quality %s is never slow', (quality) => {
    const counts = noTracingCounts();
    const tracing = createTracing(settingsOf({ ratio: 0 }), keeping().sender, counts);
    expect(tracing.take(journeyOf({ quality, begun: 0 }), moment + 60)).toBeNull();
  });
});
