import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';

import { journeyLagOutputs } from '../../src/audit/measure/journey.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import { recordingOf } from '../../src/commands/replay.ts';
import { useLog } from '../../src/commands/shared/console.ts';
import { traceJourneys, tracingOf } from '../../src/commands/serve.ts';
import { noTracingCounts } from '../../src/output/traces/settings.ts';
import { createTracing } from '../../src/output/traces/tracing.ts';
import { auditorDefaults } from '../build.ts';
import { keeping, settingsOf } from '../output/samples.ts';

// A command of another test file in this process may have set a log.
beforeEach(() => useLog(null));

afterEach(() => {
  vi.restoreAllMocks();
});

function saying(): string[] {
  const said: string[] = [];
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  return said;
}

test('without settings, there is no tracing and no message', async () => {
  const said = saying();
  expect(await tracingOf({})).toBeNull();
  expect(said).toEqual([]);
});

test('a wrong setting is printed, and there is no tracing', async () => {
  const said = saying();
  expect(await tracingOf({ OTEL_TRACES_EXPORTER: 'jaeger' })).toBeNull();
  expect(said).toEqual([
    'endpoint-auditor: OTEL_TRACES_EXPORTER: Expected otlp, zipkin or none, not "jaeger"; ' +
      'no traces are sent\n',
  ]);
});

test('with an endpoint, traces are accepted', async () => {
  const tracing = await tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' });
  expect(tracing?.counts.exported).toBe(0);
  await tracing?.close();
});

describe('journeys of a replay', () => {
  const shop = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

  const until = Date.parse('2026-11-21T10:57:00Z') / 1000;

  /** The recording up to a rolling update, and what a sender that may have room gets of it. */
  async function replayed(isOpen: () => boolean) {
    const counts = noTracingCounts();
    const { sender, sent } = keeping(isOpen);
    const tracing = createTracing(settingsOf(), sender, counts);
    const auditor: Auditor = createAuditor({
      ...auditorDefaults,
      onJourney: traceJourneys(tracing, () => auditor),
    });
    const entries = await recordingOf(shop, auditor, () => undefined);
    await replay(auditor, entries, { speed: Infinity, until });
    await tracing.close();
    return { auditor, counts, sent };
  }

  let open: Awaited<ReturnType<typeof replayed>>;

  beforeAll(async () => {
    open = await replayed(() => true);
  });

  test('are traced, and their traces are exemplars', () => {
    const { auditor, counts, sent } = open;
    const ended = Object.values(auditor.journeys.ended).reduce((sum, one) => sum + one);
    expect(ended).toBeGreaterThan(10);
    expect(sent).toHaveLength(ended);
    expect(counts.journeys.none).toBe(0);
    const ids = new Set(sent.map(({ traceId }) => traceId));
    const exemplars = journeyLagOutputs.flatMap((output) =>
      Object.values(auditor.samples.travel.readiness[output].exemplars ?? []),
    );
    expect(exemplars.length).toBeGreaterThan(0);
    for (const exemplar of exemplars) expect(ids).toContain(exemplar?.traceId);
  });

  test('a backend that rejects traces changes no measurement', async () => {
    const shut = await replayed(() => false);
    expect(shut.sent).toEqual([]);
    expect(shut.counts.journeys).toEqual(open.counts.journeys);
    const measuredOf = ({ auditor }: typeof open) => [
      auditor.journeys.ended,
      auditor.samples.travel.begun,
      journeyLagOutputs.map((output) => auditor.samples.travel.readiness[output].counts),
      auditor.samples.convergence,
      auditor.findings.open(),
      auditor.findings.resolved(),
    ];
    expect(measuredOf(shut)).toEqual(measuredOf(open));
  });

  test('are ignored without a tracing backend', () => {
    const { auditor } = open;
    const [journey = expect.unreachable()] = auditor.samples.worst.journeys.list(until);
    traceJourneys(null, () => expect.unreachable())(journey.journey);
  });
});

describe('the SDK is loaded only if traces are sent', () => {
  const directory = mkdtempSync(join(tmpdir(), 'tracing-'));
  const recording = join(directory, 'empty.ndjson');
  const header = { kind: 'header', format: 1, at: 1, kubernetes: 'v1.36.3', resources: ['pods'] };
  writeFileSync(recording, `${JSON.stringify(header)}\n{"kind":"end","at":2}\n`);
  const hook = join(directory, 'hook.mjs');
  writeFileSync(
    hook,
    `import { writeFileSync } from 'node:fs';
     import { registerHooks } from 'node:module';
     const loaded = [];
     registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
     process.on('exit', () => writeFileSync(process.env.LOADED, JSON.stringify(loaded)));`,
  );

  afterAll(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  function loadedWith(environment: Record<string, string>): string[] {
    const list = join(directory, 'loaded.json');
    const clean = Object.entries(process.env).filter(([name]) => !name.startsWith('OTEL_'));
    const run = spawnSync(
      process.execPath,
      [
        ...['--import', hook, join(import.meta.dirname, '../../src/main.ts'), 'serve', '--once'],
        ...['--input', recording, '--listen', '127.0.0.1:0', '--speed', 'max'],
      ],
      { encoding: 'utf8', env: { ...Object.fromEntries(clean), ...environment, LOADED: list } },
    );
    expect(run.status, run.stderr).toBe(0);
    return JSON.parse(readFileSync(list, 'utf8')) as string[];
  }

  // The API, which does nothing without the SDK, is loaded by prom-client too.
  const ofSdk = (urls: readonly string[]): string[] =>
    urls.filter((url) => /@opentelemetry\/(?!api\/)|output\/(?:otel|spans)\.ts/.test(url));

  test('without an endpoint', () => {
    const urls = loadedWith({ OTEL_SERVICE_NAME: 'auditor' });
    expect(urls.some((url) => url.endsWith('src/output/traces/tracing.ts'))).toBe(true);
    expect(ofSdk(urls)).toEqual([]);
  });

  test('with an endpoint', () => {
    const urls = loadedWith({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' });
    expect(ofSdk(urls).length).toBeGreaterThan(10);
    expect(urls.some((url) => url.includes('@opentelemetry/sdk-node/'))).toBe(true);
  });
});
