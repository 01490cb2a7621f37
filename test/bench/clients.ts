// Clients of the auditor's web server, in processes of their own, so that what they spend does not
// delay the clock of others: a probe as the kubelet makes it, and a crowd of scrapers and pages.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/** How often what was answered, by status, or by the code of the error. */
type Counts = Record<string, number>;

export interface Probed {
  readonly answers: Counts;
  /** Seconds, of all answers. */
  readonly seconds: readonly number[];
  /** The same, without what the program and the probe waited while other work had the core. */
  readonly alone: readonly number[];
}

export interface Crowd {
  readonly scrapers: number;
  readonly pages: number;
  readonly seconds: number;
  /** Whether a scraper that is refused waits as Retry-After says, or asks again at once. */
  readonly isPatient: boolean;
}

export interface Crowded {
  readonly scrapes: Counts;
  readonly pages: Counts;
  /** Refusals without Retry-After. */
  readonly rude: number;
  /** Events that pages have received, and pages that were open in the end. */
  readonly events: number;
  readonly open: number;
}

type Order =
  | { readonly url: string; readonly probe: number }
  | { readonly url: string; readonly crowd: Crowd };

function add(counts: Counts, key: string): void {
  counts[key] = (counts[key] ?? 0) + 1;
}

const asked = (url: string, agent: Agent | false): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    request(url, { agent, headers: { 'accept-encoding': 'gzip' } }, resolve)
      .on('error', reject)
      .end();
  });

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? String(error);

/** Seconds that main threads of processes could have run and other work had the core. */
const waited = (...pids: readonly number[]): number =>
  pids.reduce((sum, pid) => {
    const [, nanoseconds] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ');
    return sum + Number(nanoseconds) / 1e9;
  }, 0);

/** Asks `/livez` ten times a second, each time by a new connection, until another message comes. */
async function probe(url: string, pid: number): Promise<void> {
  const probed = { answers: {} as Counts, seconds: [] as number[], alone: [] as number[] };
  const end = new AbortController();
  process.once('message', () => end.abort());
  const ask = async (): Promise<void> => {
    const [begun, waitedBefore] = [performance.now(), waited(pid, process.pid)];
    try {
      const answer = await asked(`${url}/livez`, false);
      add(probed.answers, String(answer.statusCode));
      await once(answer.resume(), 'end');
    } catch (error) {
      add(probed.answers, codeOf(error));
    }
    const seconds = (performance.now() - begun) / 1000;
    probed.seconds.push(seconds);
    probed.alone.push(Math.max(seconds - (waited(pid, process.pid) - waitedBefore), 0));
  };
  const asking: Promise<void>[] = [];
  while (!end.signal.aborted) {
    asking.push(ask());
    await sleep(100);
  }
  await Promise.all(asking);
  process.send?.(probed);
}

async function crowd(url: string, { scrapers, pages, seconds, isPatient }: Crowd): Promise<void> {
  const found = { scrapes: {} as Counts, pages: {} as Counts, rude: 0, events: 0, open: 0 };
  const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  const until = performance.now() + 1000 * seconds;
  const refused = (answer: IncomingMessage): number => {
    const after = answer.headers['retry-after'];
    if (answer.statusCode === 503 && after === undefined) found.rude++;
    return answer.statusCode === 503 && isPatient ? Number(after ?? 0) : 0;
  };
  const scrape = async (): Promise<void> => {
    while (performance.now() < until) {
      try {
        const answer = await asked(`${url}/metrics`, agent);
        add(found.scrapes, String(answer.statusCode));
        await once(answer.resume(), 'end');
        await sleep(1000 * refused(answer));
      } catch (error) {
        add(found.scrapes, codeOf(error));
        await sleep(1000);
      }
    }
  };
  const follow = async (): Promise<void> => {
    try {
      const answer = await asked(`${url}/api/v1/events`, false);
      add(found.pages, String(answer.statusCode));
      refused(answer);
      if (answer.statusCode !== 200) return void answer.resume();
      found.open++;
      answer.on('data', () => found.events++);
      answer.on('error', () => found.open--);
      answer.on('end', () => found.open--);
    } catch (error) {
      add(found.pages, codeOf(error));
    }
  };
  await Promise.all([
    ...Array.from({ length: pages }, follow),
    ...Array.from({ length: scrapers }, scrape),
  ]);
  process.send?.(found, () => process.exit());
}

function start(order: Order) {
  const child = fork(import.meta.filename, [], { execArgv: [] });
  const answered = once(child, 'message').then(([answer]) => answer as unknown);
  child.send(order);
  return { child, answered };
}

/** Starts a probe; `stop` ends it and returns what it saw. */
export function startProbe({ url, pid }: { readonly url: string; readonly pid: number }) {
  const { child, answered } = start({ url, probe: pid });
  return async (): Promise<Probed> => {
    child.send('stop');
    const probed = (await answered) as Probed;
    child.disconnect();
    return probed;
  };
}

/** Lets a crowd ask, and waits until it has ended. */
export async function sendCrowd(url: string, of: Crowd): Promise<Crowded> {
  return (await start({ url, crowd: of }).answered) as Crowded;
}

if (process.argv[1] === import.meta.filename) {
  process.once('message', (order: Order) => {
    void ('probe' in order ? probe(order.url, order.probe) : crowd(order.url, order.crowd));
  });
}
