// kube-state-metrics v2.18.0 beside the auditor: the exporter that everybody has, on the same
// cluster and the same resources, for what it costs. Built from its module
// (kube-state-metrics/go.mod).
//
// It has no signal for "everything is listed". The test derives it from its own metrics: a watch
// of every resource has begun, which follows the list. Whether the first scrape then has all pods
// is counted, and it is repeated until it has.
//
// Run alone, it measures: `node test/bench/ksm.ts [SHARE]`.

import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { freePort } from '../processes.ts';
import type { LoadServer } from './loadserver.ts';
import { startLoadServer } from './loadserver.ts';
import type { Usage } from './programs.ts';
import { build, start, usageOf } from './programs.ts';

const watched = ['pods', 'services', 'endpoints', 'endpointslices', 'nodes'];

/** What a scrape gave, counted while it came. */
export interface Scrape {
  readonly seconds: number;
  readonly bytes: number;
  /** Lines that begin with `kube_pod_info{`. */
  readonly pods: number;
}

export interface StateMetrics {
  readonly pid: number;
  readonly url: string;
  /** When it was started, by performance.now(). */
  readonly started: number;
  readonly scrape: () => Promise<Scrape>;
  /** Whether a watch of every resource has begun. */
  readonly isWatching: () => Promise<boolean>;
  readonly usage: () => Promise<Usage>;
  readonly hasEnded: () => boolean;
  readonly stop: () => Promise<void>;
}

/** Asks for a page and hands its parts on as they come. */
async function get(url: string, onPart: (part: Buffer) => void): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  const asked = request(url, (answer) => {
    answer.on('data', onPart);
    answer.on('error', reject);
    answer.on('end', () => resolve(undefined));
  });
  asked.on('error', reject);
  asked.end();
  await promise;
}

async function scrape(url: string): Promise<Scrape> {
  const begun = performance.now();
  const line = Buffer.from('\nkube_pod_info{');
  let [bytes, pods] = [0, 0];
  let rest: Buffer = Buffer.alloc(0);
  await get(url, (part) => {
    bytes += part.length;
    const text = Buffer.concat([rest, part]);
    for (let at = text.indexOf(line); at >= 0; at = text.indexOf(line, at + 1)) pods++;
    rest = text.subarray(Math.max(text.length - line.length + 1, 0));
  });
  return { seconds: (performance.now() - begun) / 1000, bytes, pods };
}

const watchForm = /^kube_state_metrics_watch_total\{[^}]*resource="\*v1\.(\w+)"[^}]*\} [1-9]/gm;

/** Starts kube-state-metrics against a server; it is built first, which may take minutes. */
export async function startStateMetrics(
  { kubeconfig }: Pick<LoadServer, 'kubeconfig'>,
  core: number | null = null,
): Promise<StateMetrics> {
  const name = 'kube-state-metrics';
  const path = await build(name, 'k8s.io/kube-state-metrics/v2', name);
  const [port, ownPort] = [await freePort(), await freePort()];
  const args = [
    `--kubeconfig=${kubeconfig}`,
    `--resources=${watched.join(',')}`,
    '--host=127.0.0.1',
    `--port=${port}`,
    '--telemetry-host=127.0.0.1',
    `--telemetry-port=${ownPort}`,
  ];
  // It logs everything to stderr.
  const program = start(path, args, core, { stderr: 'ignore' });
  program.child.stdout?.resume();
  const url = `http://127.0.0.1:${port}/metrics`;
  const isWatching = async (): Promise<boolean> => {
    const parts: Buffer[] = [];
    await get(`http://127.0.0.1:${ownPort}/metrics`, (part) => parts.push(part));
    const text = Buffer.concat(parts).toString();
    return new Set([...text.matchAll(watchForm)].map((match) => match[1])).size >= watched.length;
  };
  return {
    pid: program.pid,
    url,
    started: program.started,
    scrape: () => scrape(url),
    isWatching,
    usage: () => usageOf(program.pid),
    hasEnded: () => program.child.exitCode !== null,
    stop: program.stop,
  };
}

/** What kube-state-metrics needs from its start until a scrape has every pod. */
export interface FirstScrape {
  /** Seconds from its start until all watches have begun, and until the scrape has ended. */
  readonly watching: number;
  readonly scraped: number;
  readonly scrape: Scrape;
  /** What it had used by then. */
  readonly beforeScrape: Usage;
  readonly usage: Usage;
}

export async function measureFirstScrape(
  load: LoadServer,
  core: number | null = null,
): Promise<FirstScrape> {
  const { pods = 0 } = await load.world();
  const metrics = await startStateMetrics(load, core);
  const passed = (): number => (performance.now() - metrics.started) / 1000;
  try {
    while (!(await metrics.isWatching().catch(() => false))) {
      if (metrics.hasEnded()) throw new Error('kube-state-metrics has ended');
      await sleep(100);
    }
    const [watching, beforeScrape] = [passed(), await metrics.usage()];
    let scrape = await metrics.scrape();
    while (scrape.pods < pods) scrape = await metrics.scrape();
    const usage = await metrics.usage();
    return { watching, scraped: passed(), scrape, beforeScrape, usage };
  } finally {
    await metrics.stop();
  }
}

if (import.meta.main) {
  const load = await startLoadServer({ share: Number(process.argv[2] ?? 1), core: 0 });
  try {
    const found = await measureFirstScrape(load, 1);
    process.stdout.write(`${JSON.stringify({ ...found, requests: await load.requests() })}\n`);
  } finally {
    await load.stop();
  }
}
