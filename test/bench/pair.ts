// What the event of a pod costs this bundle and another one. Both run on one core at the same time
// and receive the same events, so that other work on the machine slows down both:
//
//   node esbuild.config.ts && node test/bench/pair.ts OTHER.mjs [RATE] [RUNS] [SECONDS]

import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { quantile, round } from './measure.ts';
import { sampleOf, start, startLoadServer, usageOf } from './program.ts';

const [other = '', rate = '2500', runs = '5', seconds = '10'] = process.argv.slice(2);
const ours = join(import.meta.dirname, '../../dist/endpoint-auditor.mjs');
const ofPods = 'resource="pods",result="delivered"';

const load = await startLoadServer({ share: 10, core: 0 });
const programs = [resolve(other), ours].map((path) =>
  start(path, ['serve', '--kubeconfig', load.kubeconfig, '--listen', '127.0.0.1:0'], 1),
);

/** Where a program listens. */
async function urlOf({ child }: (typeof programs)[number]): Promise<string> {
  if (child.stdout === null) throw new Error('Expected a pipe');
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /http:\/\/[\d.]+:\d+/.exec(line)?.[0];
    if (url !== undefined) return url;
  }
  throw new Error('The program ended before it listened');
}

/** The CPU time, µs, and the events of pods until now. */
async function usedBy(url: string, pid: number) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const { cpu } = await usageOf(pid);
  return { cpu: 1e6 * cpu, events: sampleOf(text, 'endpoint_auditor_watch_frames_total', ofPods) };
}

try {
  const urls = await Promise.all(programs.map(urlOf));
  for (const url of urls) while ((await fetch(`${url}/readyz`)).status !== 200) await sleep(200);
  const used = () => Promise.all(programs.map(({ pid }, index) => usedBy(urls[index] ?? '', pid)));
  await load.churn(Number(rate), 'alone');
  await sleep(8000); // until the code is compiled
  const ratios: number[] = [];
  for (let run = 0; run < Number(runs); run++) {
    const before = await used();
    await sleep(1000 * Number(seconds));
    const [theirs = 0, mine = 0] = (await used()).map(({ cpu, events }, index) => {
      const begun = before[index] ?? { cpu: 0, events: 0 };
      return (cpu - begun.cpu) / (events - begun.events);
    });
    ratios.push(mine / theirs);
    process.stdout.write(`${round(theirs)} µs, here ${round(mine)} µs: ${round(mine / theirs)}\n`);
  }
  process.stdout.write(`median ${round(quantile(ratios, 0.5))}\n`);
} finally {
  for (const program of programs) await program.stop();
  await load.stop();
}
