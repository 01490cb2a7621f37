import { once } from 'node:events';
import type { Server } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import type { Journey } from '../../../src/audit/measure/journey.ts';
import { openSender } from '../../../src/output/traces/otel.ts';
import type { TracingCounts } from '../../../src/output/traces/settings.ts';
import { noTracingCounts } from '../../../src/output/traces/settings.ts';
import type { Tracing } from '../../../src/output/traces/tracing.ts';
import { slowSeconds, startTracing } from '../../../src/output/traces/tracing.ts';
import type { OtlpSpan, Valued } from '../samples.ts';
import {
  decodeTraces,
  hex,
  journeyOf,
  moment,
  settingsOf,
  spansCounted,
  stageOf,
  usualStages,
} from '../samples.ts';

const limits = { queue: 512, batch: 128, delayMs: 20, timeoutMs: 60_000 };
const perTrace = usualStages.length + 1;

interface Received {
  readonly path: string;
  readonly type: string;
  readonly body: Buffer;
}

let server: Server;
let received: Received[];
/** What the backend answers; null: nothing at all. */
let answer: number | null;
/** Requests that are neither answered nor given up: now, and at most so far. */
let open: { now: number; most: number };

beforeEach(async () => {
  received = [];
  answer = 200;
  open = { now: 0, most: 0 };
  server = createServer((request, response) => {
    open.now++;
    open.most = Math.max(open.most, open.now);
    response.on('close', () => open.now--);
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const type = request.headers['content-type'] ?? '';
      received.push({ path: request.url ?? '', type, body: Buffer.concat(pieces) });
      if (answer !== null) response.writeHead(answer).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', url);
  vi.stubEnv('OTEL_EXPORTER_ZIPKIN_ENDPOINT', `${url}/api/v2/spans`);
});

afterEach(() => {
  vi.unstubAllEnvs();
  server.closeAllConnections();
  server.close();
});

/** Sends the journeys at once, each as the trace of its index, and waits until all is answered. */
async function sent(
  journeys: readonly Journey[],
  exporter: 'otlp' | 'zipkin' = 'otlp',
): Promise<TracingCounts> {
  const counts = noTracingCounts();
  const settings = settingsOf({ exporter, limits });
  const sender = openSender(settings, '1.2.3', counts, () => undefined);
  for (const [index, journey] of journeys.entries()) {
    const traceId = String(index + 1).padStart(32, '0');
    expect(sender.send({ journey, endedAt: moment + 60, traceId, isSlow: true })).toBe(true);
  }
  await sender.close();
  return counts;
}

const spansOf = (): OtlpSpan[] =>
  received.flatMap(({ body }) => decodeTraces(body)).flatMap(({ spans }) => spans);

const textOf = (attributes: readonly Valued[], key: string): string | undefined =>
  attributes.find((one) => one.key === key)?.value?.stringValue ?? undefined;

describe('OTLP over HTTP, decoded with the official definitions', () => {
  test('a request has the resource, and a trace per journey with its times', async () => {
    vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'k8s.cluster.name=kind,k8s.pod.name=auditor-0');
    const counts = await sent([journeyOf()]);
    expect(counts).toEqual({ ...noTracingCounts(), exported: perTrace });
    expect(received.map(({ path, type }) => [path, type])).toEqual([
      ['/v1/traces', 'application/x-protobuf'],
    ]);
    const [scope] = decodeTraces(received[0]?.body ?? Buffer.of());
    const resource = scope?.resource ?? [];
    expect(textOf(resource, 'service.name')).toBe('endpoint-auditor');
    expect(textOf(resource, 'service.version')).toBe('1.2.3');
    expect(textOf(resource, 'k8s.cluster.name')).toBe('kind');
    expect(textOf(resource, 'telemetry.sdk.language')).toBe('nodejs');
    expect(scope?.name).toBe('endpoint-auditor');
    const spans = spansOf();
    const root = spans.find(({ parentSpanId }) => hex(parentSpanId) === '');
    expect(root?.name).toBe('endpoint add');
    expect(textOf(root?.attributes ?? [], 'k8s.pod.name')).toBe('web-1');
    expect(spans).toHaveLength(perTrace);
    const nanos = (seconds: number): string => (BigInt(seconds * 1000) * 1_000_000n).toString();
    for (const span of spans) {
      expect(hex(span.traceId)).toBe('00000000000000000000000000000001');
      if (span !== root) expect(hex(span.parentSpanId)).toBe(hex(root?.spanId));
    }
    const written = spans.find(({ name }) => name === 'EndpointSlice written');
    expect(String(written?.startTimeUnixNano)).toBe(nanos(moment + 0.5));
    expect(String(written?.endTimeUnixNano)).toBe(nanos(moment + 0.75));
    expect(String(root?.startTimeUnixNano)).toBe(nanos(moment));
  });

  test('OTEL_SERVICE_NAME sets the name of the service', async () => {
    vi.stubEnv('OTEL_SERVICE_NAME', 'auditor-of-kind');
    await sent([journeyOf()]);
    const [scope] = decodeTraces(received[0]?.body ?? Buffer.of());
    expect(textOf(scope?.resource ?? [], 'service.name')).toBe('auditor-of-kind');
  });

  test('spans of one writing are linked to its first span', async () => {
    const another = (pod: string, version: string): Journey =>
      journeyOf({
        pod,
        stages: usualStages.map((stage) =>
          stage.stage === 'arrival' ? stageOf({ object: `Pod shop/${pod}` }) : stage,
        ),
        nodes: Number(version),
      });
    await sent([another('web-1', '1'), another('web-2', '1'), another('web-3', '1')]);
    const spans = spansOf();
    const named = (name: string): OtlpSpan[] => spans.filter((span) => span.name === name);
    for (const name of ['EndpointSlice written', 'Endpoints written']) {
      const [first, ...others] = named(name);
      expect(first?.links).toEqual([]);
      expect(others).toHaveLength(2);
      for (const { links } of others) {
        expect(links.map(({ traceId, spanId }) => [hex(traceId), hex(spanId)])).toEqual([
          [hex(first?.traceId), hex(first?.spanId)],
        ]);
      }
    }
    for (const name of ['pod seen', 'node programmed', 'endpoint add']) {
      expect(named(name).flatMap(({ links }) => links)).toEqual([]);
    }
  });

  test('times have microseconds', async () => {
    const stages = [stageOf({ at: moment + 0.123457 })];
    await sent([journeyOf({ stages, begun: moment + 0.000001 })]);
    const [seen] = spansOf().filter(({ name }) => name === 'pod seen');
    expect(String(seen?.endTimeUnixNano)).toBe(`${moment}123457000`);
    expect(String(seen?.startTimeUnixNano)).toBe(`${moment}000001000`);
  });
});

test('Zipkin gets the same spans in its format', async () => {
  const counts = await sent([journeyOf()], 'zipkin');
  expect(counts.exported).toBe(perTrace);
  const [request] = received;
  expect(request?.path).toBe('/api/v2/spans');
  const spans = JSON.parse(request?.body.toString() ?? '') as Record<string, unknown>[];
  const root = spans.find(({ parentId }) => parentId === undefined);
  expect(root).toMatchObject({
    traceId: '00000000000000000000000000000001',
    name: 'endpoint add',
    timestamp: moment * 1e6,
    duration: 900_000,
    localEndpoint: { serviceName: 'endpoint-auditor' },
    tags: { 'k8s.pod.name': 'web-1', 'endpoint_auditor.quality': 'coarse' },
  });
  expect(spans.filter(({ parentId }) => parentId === root?.id)).toHaveLength(perTrace - 1);
});

describe('a backend that takes no spans: they are counted', () => {
  interface Running {
    readonly tracing: Tracing;
    readonly said: string[];
  }

  async function running(exporter: 'otlp' | 'zipkin', timeoutMs = 60_000): Promise<Running> {
    const said: string[] = [];
    const settings = settingsOf({ exporter, limits: { ...limits, timeoutMs } });
    return { tracing: await startTracing(settings, '1.2.3', (text) => said.push(text)), said };
  }

  /** Takes 5,000 journeys in half a second. */
  async function takeMany({ tracing }: Running): Promise<void> {
    for (let round = 0; round < 20; round++) {
      for (let count = 0; count < 250; count++) tracing.take(journeyOf(), moment + 60);
      await sleep(20);
    }
  }

  test.each(['otlp', 'zipkin'] as const)('%s: no backend listens', async (exporter) => {
    server.close();
    await once(server, 'close');
    vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '200');
    const run = await running(exporter, 300);
    await takeMany(run);
    await run.tracing.close();
    const { counts } = run.tracing;
    expect(counts.exported).toBe(0);
    expect(counts.dropped.export).toBeGreaterThan(0);
    expect(spansCounted(counts)).toBe(5000 * perTrace);
    expect(run.said).toHaveLength(1);
    expect(run.said[0]).toMatch(/^Traces are not taken: /);
  });

  test.each(['otlp', 'zipkin'] as const)('%s: it never answers', async (exporter) => {
    answer = null;
    vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '200');
    const run = await running(exporter, 300);
    await takeMany(run);
    await expect.poll(() => run.tracing.counts.dropped.export).toBeGreaterThan(0);
    await run.tracing.close();
    const { counts } = run.tracing;
    expect(counts.exported).toBe(0);
    expect(spansCounted(counts)).toBe(5000 * perTrace);
    // It holds a few connections, however long it goes on.
    expect(open.most).toBeLessThan(40);
  });

  test.each(['otlp', 'zipkin'] as const)('%s: it refuses, then takes again', async (exporter) => {
    answer = 400;
    const run = await running(exporter);
    await takeMany(run);
    await expect.poll(() => run.tracing.counts.dropped.export).toBeGreaterThan(0);
    answer = 200;
    await takeMany(run);
    await run.tracing.close();
    const { counts } = run.tracing;
    expect(counts.exported).toBeGreaterThan(0);
    expect(counts.dropped.export).toBeGreaterThan(0);
    expect(spansCounted(counts)).toBe(10_000 * perTrace);
    expect(run.said.at(-1)).toBe('Traces are taken again');
  });

  test('half of the queue is for slow journeys, and spans without room are counted', async () => {
    answer = null;
    const { tracing } = await running('otlp');
    const slow = journeyOf({ begun: moment + 0.9 - slowSeconds, quality: 'ok' });
    const takeUntilFull = (journey: Journey): number => {
      for (let count = 0; ; count++) if (tracing.take(journey, moment + 60) === null) return count;
    };
    const [most, half] = [limits.queue, limits.queue / 2].map((room) =>
      Math.floor(room / perTrace),
    );
    expect(takeUntilFull(journeyOf())).toBe(half);
    expect(takeUntilFull(slow)).toBe((most ?? 0) - (half ?? 0));
    expect(tracing.counts.dropped.queue).toBe(2 * perTrace);
    await tracing.close();
  });

  test('a journey of more spans than the queue has room for is traced alone', async () => {
    answer = null;
    const settings = settingsOf({ limits: { ...limits, queue: 2, batch: 1 } });
    const tracing = await startTracing(settings, '1.2.3', () => undefined);
    expect(tracing.take(journeyOf(), moment + 60)).not.toBeNull();
    expect(tracing.take(journeyOf(), moment + 60)).toBeNull();
    await tracing.close();
  });
});
