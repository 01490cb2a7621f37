// Alerts on a recording of a real cluster, replayed at a higher speed. Every alert on a finding
// that lasted long enough must arrive, and must be resolved if the finding was. No other alert may
// arrive, because most of the recording is ordinary change.

import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Tally } from '../controlplane/checks.ts';
import { report } from '../controlplane/checks.ts';
import type { Arrivals, Notice } from './arrivals.ts';
import { holdOf, until } from './arrivals.ts';
import { alerts, codesOf } from './rules.ts';

const root = join(import.meta.dirname, '../..');

/** Its cluster. */
export const replayed = 'replayed';

/** Of the recording's own speed. */
export const speed = '5';

/** Seconds that a finding may need beyond `for`: a scrape, an evaluation, a busy machine. */
const slack = 8;

const now = (): number => performance.now() / 1000;

const keyOf = ({ alertname = '', code = '', severity = '' }: Notice['labels']): string =>
  [alertname, code, severity].filter((part) => part !== '').join(' ');

/** The program, replaying: when it serves, and when the recording has ended. */
export async function replay(
  port: number,
  factor: string,
): Promise<{ child: ChildProcess; ended: Promise<void> }> {
  const where = ['--recording', '--listen', `127.0.0.1:${port}`, '--speed', factor];
  const child = spawn(process.execPath, ['src/main.ts', 'serve', ...where], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const serving = Promise.withResolvers<undefined>();
  const ended = Promise.withResolvers<undefined>();
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line.startsWith('Serving ')) serving.resolve(undefined);
    if (line.startsWith('The recording has ended')) ended.resolve(undefined);
  });
  child.once('exit', () => {
    const error = new Error('The program has ended');
    serving.reject(error);
    ended.reject(error);
  });
  ended.promise.catch(() => undefined);
  await serving.promise;
  // On a busy machine the first lists take seconds, and the server does not answer meanwhile.
  for (let took = Infinity; took > 0.5;) {
    const began = now();
    await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    took = now() - began;
  }
  return { child, ended: ended.promise };
}

interface Found {
  readonly code: string;
  readonly severity: string;
}

/** The alerts on a finding, by what they are called when they arrive. */
function alertsOn({ code, severity }: Found): string[] {
  return alerts.flatMap((rule) => {
    const isTold = rule.labels?.severity?.startsWith('{{') === true;
    if (!codesOf(rule).includes(code) || (isTold && severity === 'info')) return [];
    const own = isTold ? severity : (rule.labels?.severity ?? '');
    return [keyOf({ alertname: rule.alert ?? '', code, severity: own })];
  });
}

/** How long findings with an alert last, in seconds of the test: the longest, and the current. */
type Standing = Map<string, { longest: number; since: number | null }>;

/** Reads the open findings. A finding may change its code while it is open. */
async function look(port: number, standing: Standing): Promise<void> {
  const answer = await fetch(`http://127.0.0.1:${port}/api/v1/findings`);
  const { standing: found } = (await answer.json()) as { standing: Found[] };
  const keys = new Set(found.flatMap(alertsOn));
  for (const key of keys) {
    if (!standing.has(key)) standing.set(key, { longest: 0, since: null });
  }
  for (const [key, one] of standing) {
    if (!keys.has(key)) one.since = null;
    else one.since ??= now();
    if (one.since !== null) one.longest = Math.max(one.longest, now() - one.since);
  }
}

async function lookUntil(ended: Promise<void>, port: number): Promise<Standing> {
  const standing: Standing = new Map();
  const over = ended.then(() => true);
  do await look(port, standing).catch(() => undefined);
  while (!(await Promise.race([over, sleep(300, false)])));
  await look(port, standing);
  return standing;
}

/** Alerts that the recording causes without findings: truncated and edited Endpoints. */
const besides = [
  'EndpointAuditorEndpointsTruncated warning',
  'EndpointAuditorEndpointsAndSlicesDisagree warning',
];

/** Its controllers hang for a minute, and are late by that. */
const late = ['EndpointAuditorLagBudgetBurn', 'EndpointAuditorControllerStuck'];

/** Looks at a replay until its recording has ended, and at what has arrived by then. */
export async function checkReplayed(
  { notices }: Arrivals,
  tally: Tally,
  port: number,
  ended: Promise<void>,
): Promise<void> {
  const own = (): readonly Notice[] => notices.filter(({ labels }) => labels.cluster === replayed);
  const has = (status: Notice['status'], key: string): boolean =>
    own().some((notice) => notice.status === status && keyOf(notice.labels) === key);
  const check = (what: string, isRight: boolean): void => {
    report(tally, `${replayed}: ${what}`, isRight ? [] : ['it does not']);
  };
  const standing = await lookUntil(ended, port);
  for (const [key, { longest, since }] of standing) {
    const hold = holdOf(key.split(' ')[0] ?? '');
    // Findings that are open at the end of the recording stay open.
    if (since === null && longest < hold + slack) continue;
    const seconds = since === null ? 0 : hold + slack;
    const came = await until(() => has('firing', key), seconds);
    check(`${key} arrives (it stood ${Math.round(longest)} s)`, came);
    if (since !== null) continue;
    check(`${key} is resolved`, await until(() => has('resolved', key), slack));
  }
  for (const key of besides) {
    const seconds = holdOf(key.split(' ')[0] ?? '') + slack;
    check(`${key} arrives`, await until(() => has('firing', key), seconds));
  }
  const others = own().filter(
    ({ labels }) =>
      !standing.has(keyOf(labels)) &&
      !besides.includes(keyOf(labels)) &&
      !late.includes(labels.alertname ?? ''),
  );
  const wrong = new Set(others.map(({ labels }) => keyOf(labels)));
  report(tally, `${replayed}: no other alert arrives`, [...wrong]);
}
