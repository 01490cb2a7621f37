// What a scrape costs in a fleet: `node --expose-gc test/bench/scrape.ts`, with `--quick` a small
// version. Prints one table and, as the last line, all figures as JSON.
//
// Scrapes go over HTTP on the loopback, through the same server as in the program, by a scraper
// that is another process (scraper.ts): the clock is the scraper's, CPU that of the auditor alone.
// The output also has the rendering without HTTP. Every second scrape measures for how much of its
// CPU time the event loop could not run a task that is always ready. As a yardstick, in the same
// process, a registry of prom-client: all Services are summed up at the scrape, and a Gauge holds
// each series.

import { auditorDefaults } from '../build.ts';
import { Gauge, Registry } from 'prom-client';

import { summarize } from '../../src/audit/summary.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { createQueries, notLive } from '../../src/auditor/queries.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { createApp, listen } from '../../src/output/http/server.ts';
import { createMetricsRenderer } from '../../src/output/metrics/metrics.ts';
import type { PerServiceOptions } from '../../src/output/metrics/service-rows.ts';
import { createFleet, eventOf, rawObjects, rawSlice } from './generate.ts';
import type { Fleet } from './generate.ts';
import { cpuMicros, figure, quantile, round } from './measure.ts';
import type { Scraped } from './scraper.ts';
import { seriesIn, startScraper } from './scraper.ts';

const quick = process.argv.includes('--quick');
const scrapes = quick ? 3 : 100;
/** Of the yardstick. */
const fewer = quick ? 3 : 10;
/** Services whose slices change between two scrapes: 15 s at 20 changes per second. */
const changes = quick ? 20 : 300;

const fleet = createFleet({
  nodes: quick ? 50 : 500,
  namespaces: quick ? 20 : 500,
  sizes: quick
    ? [{ pods: 5, services: 200 }]
    : [
        { pods: 250, services: 20 },
        { pods: 5, services: 9980 },
      ],
});

/** Takes in one object as the door delivers it. */
function give(auditor: Auditor, resource: Resource, raw: object, at: number): void {
  const bytes = JSON.stringify(raw).length;
  const event = eventOf(auditor.store, resource, 'modified', raw, bytes, at);
  auditor.take({ kind: 'event', event });
}

function auditorOf(of: Fleet): Auditor {
  const auditor = createAuditor({ ...auditorDefaults });
  auditor.take({ kind: 'header', at: 0, kubernetes: 'v1.36.3', resources });
  for (const resource of resources) {
    for (const raw of rawObjects(of, resource)) give(auditor, resource, raw, 0);
  }
  for (const resource of resources) auditor.take({ kind: 'synced', at: 0, resource });
  return auditor;
}

/** CPU of this thread, milliseconds. */
function threadMillis(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** The most CPU that was used between two turns of a task that was always ready. */
function watchStalls(): () => Promise<number> {
  let longest = 0;
  let before = threadMillis();
  let running = true;
  const look = (): void => {
    const now = threadMillis();
    longest = Math.max(longest, now - before);
    before = now;
    if (running) setImmediate(look);
  };
  setImmediate(look);
  return async () => {
    await new Promise((resolve) => setImmediate(resolve));
    running = false;
    return longest;
  };
}

type Row = Record<'cpu' | 'elapsed' | 'stall' | 'series' | 'megabytes', number[]>;

let number = 0;

function churn(auditor: Auditor): void {
  for (let count = 0; count < changes; count++) {
    const plan = fleet.plans[(number++ * 7919) % fleet.plans.length];
    if (plan !== undefined) give(auditor, 'endpointslices', rawSlice(fleet, plan, 0), 1);
  }
}

/** Measures CPU and stalls in turns, since looking for stalls costs CPU. */
async function measure(
  auditor: Auditor,
  scrape: () => Promise<Scraped>,
  times = scrapes,
): Promise<Row> {
  const row: Row = { cpu: [], elapsed: [], stall: [], series: [], megabytes: [] };
  // The first scrapes make every text, and compile what makes them.
  for (let count = -4; count < 2 * times; count++) {
    churn(auditor);
    const isForStalls = count % 2 !== 0;
    const stalls = isForStalls ? watchStalls() : null;
    const cpu = cpuMicros();
    const { elapsed, bytes, series } = await scrape();
    const spent = cpuMicros() - cpu;
    const stall = await stalls?.();
    if (count < 0) continue;
    if (stall !== undefined) row.stall.push(stall);
    else {
      row.cpu.push(spent / 1000);
      row.elapsed.push(elapsed);
    }
    row.series.push(series);
    row.megabytes.push(bytes / 1e6);
  }
  return row;
}

const scraper = startScraper();

/** What is made in this process. */
async function timed(make: () => Promise<Buffer>): Promise<Scraped> {
  const begun = performance.now();
  const all = await make();
  const elapsed = performance.now() - begun;
  return { elapsed, bytes: all.length, series: seriesIn(all.toString('latin1')) };
}

async function overHttp(
  auditor: Auditor,
  perService: PerServiceOptions,
  headers: Record<string, string>,
): Promise<Row> {
  const app = createApp(createQueries(auditor, 'bench', notLive, perService));
  const server = await listen(app, { host: '127.0.0.1', port: 0 });
  const row = await measure(auditor, () => scraper.scrape({ port: server.port, headers }));
  await server.close();
  return row;
}

/** What is rendered for a scrape, without pauses and HTTP. */
function rendered(auditor: Auditor, perService: PerServiceOptions): Promise<Row> {
  const answers = createQueries(auditor, 'bench', notLive, perService);
  const render = createMetricsRenderer();
  const make = async (): Promise<Buffer> => {
    const steps = answers.scrape();
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    const pieces: Buffer[] = [];
    for await (const piece of render(step.value, 'text')) pieces.push(Buffer.from(piece));
    return Buffer.concat(pieces);
  };
  return measure(auditor, () => timed(make));
}

/** The same by a registry: all Services are summed up, every series is an object. */
function byRegistry(auditor: Auditor, perService: boolean): Promise<Row> {
  const serviceAuditor = auditor.serviceAuditor();
  if (serviceAuditor === null) throw new Error('Nothing is audited');
  const make = async (): Promise<Buffer> => {
    const { services } = summarize(serviceAuditor);
    const registry = new Registry();
    const labelNames = ['namespace', 'service', 'of'];
    const name = 'endpoint_auditor_service_endpoints';
    const gauge = new Gauge({ name, help: 'One.', labelNames, registers: [registry] });
    gauge.set({ namespace: '', service: '', of: '' }, services);
    for (const plan of perService ? fleet.plans : []) {
      for (let of = 0; of < 11; of++) {
        gauge.set({ namespace: plan.namespace, service: plan.name, of: String(of) }, of);
      }
    }
    return Buffer.from(await registry.metrics());
  };
  return measure(auditor, () => timed(make), fewer);
}

const auditor = auditorOf(fleet);
const gzip = { 'accept-encoding': 'gzip' };
const all: PerServiceOptions = { mode: 'all', max: 100_000 };
const usual: PerServiceOptions = { mode: 'findings', max: 1000 };
const open = { accept: 'application/openmetrics-text' };
const rows: Record<string, Row> = {
  'registry, no Services': await byRegistry(auditor, false),
  'usual, rendered': await rendered(auditor, usual),
  'usual, HTTP': await overHttp(auditor, usual, {}),
  'usual, HTTP, gzip': await overHttp(auditor, usual, gzip),
  'registry, all Services': await byRegistry(auditor, true),
  'all, rendered': await rendered(auditor, all),
  'all, HTTP': await overHttp(auditor, all, {}),
  'all, HTTP, OpenMetrics': await overHttp(auditor, all, open),
  'all, HTTP, gzip': await overHttp(auditor, all, gzip),
};

scraper.stop();

const p99 = (samples: readonly number[]): number => round(quantile(samples, 0.99));
const most = (samples: readonly number[]): number => Math.round(10 * Math.max(...samples)) / 10;
process.stdout.write(
  `${String(fleet.plans.length)} Services, ${String(fleet.pods)} pods, ` +
    `${String(changes)} slices changed before each scrape\n\n` +
    '| scrape | series | MB | CPU ms min | median | ms median | p99 | most | ' +
    'stall CPU ms median | p99 | most |\n' +
    '| :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n',
);
for (const [name, row] of Object.entries(rows)) {
  const [cpu, elapsed, stall] = [figure(row.cpu), figure(row.elapsed), figure(row.stall)];
  const cells = [
    name,
    Math.max(...row.series),
    figure(row.megabytes).median,
    cpu.min,
    cpu.median,
    elapsed.median,
    p99(row.elapsed),
    most(row.elapsed),
    stall.median,
    p99(row.stall),
    most(row.stall),
  ];
  process.stdout.write(`| ${cells.join(' | ')} |\n`);
}
process.stdout.write(`\n${JSON.stringify({ fleet: fleet.shape, changes, rows })}\n`);
