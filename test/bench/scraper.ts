// A scraper in a process of its own, as Prometheus is, so that what it spends is not counted among
// the cost of being scraped, and what it waits is what a scraper waits.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import { gunzipSync } from 'node:zlib';

interface Errand {
  readonly port: number;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Scraped {
  /** From the request to the last byte, ms by the clock of the scraper. */
  readonly elapsed: number;
  /** On the wire. */
  readonly bytes: number;
  readonly series: number;
}

export interface Scraper {
  readonly scrape: (errand: Errand) => Promise<Scraped>;
  readonly stop: () => void;
}

/** How many series a text shows. */
export const seriesIn = (text: string): number =>
  text.split('\n').filter((line) => /^[a-z]/.test(line)).length;

function fetchMetrics({ port, headers }: Errand): Promise<Scraped> {
  const begun = performance.now();
  return new Promise((resolve, reject) => {
    request({ port, path: '/metrics', headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const elapsed = performance.now() - begun;
        const all = Buffer.concat(chunks);
        const isPacked = response.headers['content-encoding'] === 'gzip';
        const text = (isPacked ? gunzipSync(all) : all).toString('latin1');
        resolve({ elapsed, bytes: all.length, series: seriesIn(text) });
      });
    })
      .on('error', reject)
      .end();
  });
}

/** Starts one; it ends with this process. */
export function startScraper(): Scraper {
  const child = fork(import.meta.filename, { execArgv: [] });
  return {
    scrape: async (errand) => {
      child.send(errand);
      const [answer] = (await once(child, 'message')) as [Scraped];
      return answer;
    },
    stop: () => child.disconnect(),
  };
}

if (process.argv[1] === import.meta.filename) {
  process.on('message', (errand: Errand) => {
    void fetchMetrics(errand).then((scraped) => process.send?.(scraped));
  });
}
