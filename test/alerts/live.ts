// The alerts before a real Prometheus and a real Alertmanager: `npm run alerts`. The program
// replays the recording, Prometheus scrapes it and judges by the rules as they are shipped, but for
// the time that each must hold, which is shorter; Alertmanager sends what arrives to this process.
// Every alert on a finding that stood long enough must have arrived, and have been resolved if the
// finding was; no other alert may have arrived at all: most of the recording is ordinary change.
// Last the program goes away and comes back.
//
// Not here: alerts on lag, whose windows are hours.

import type { ChildProcess } from 'node:child_process';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { endProgram, freePort } from '../processes.ts';
import { programOf } from '../prometheus/programs.ts';
import { alerts, codesOf, readRules, ruleFiles } from './rules.ts';

const root = join(import.meta.dirname, '../..');

/** Of the recording's own speed, and by how much less the alerts must hold. */
const speed = 5;
const shorterOf = (alert: string): number =>
  // A machine that is busy with other things may well not scrape for ten seconds.
  alert === 'EndpointAuditorAbsent' ? 10 : 30;

/** Seconds that a finding may need beyond `for`: a scrape, an evaluation, a busy machine. */
const slack = 8;

const counts = { passed: 0, failed: 0 };

function check(name: string, problem: string | null): void {
  if (problem === null) counts.passed += 1;
  else counts.failed += 1;
  process.stdout.write(problem === null ? `ok      ${name}\n` : `FAILED  ${name}: ${problem}\n`);
}

const now = (): number => performance.now() / 1000;

// --- processes ---

const running = new Set<ChildProcess>();

function start(command: string, args: readonly string[]): ChildProcess {
  const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'ignore'] });
  running.add(child);
  child.stdout.resume();
  return child;
}

async function stop(child: ChildProcess): Promise<void> {
  running.delete(child);
  await endProgram(child);
}

async function awaitReady(url: string): Promise<void> {
  for (let tries = 0; tries < 600; tries++) {
    const answer = await fetch(`${url}/-/ready`).catch(() => null);
    if (answer?.ok === true) return;
    await sleep(100);
  }
  throw new Error(`${url} is not ready after a minute`);
}

/** The program, replaying: when it serves, and when the recording has ended. */
async function replay(
  port: number,
  factor: string,
): Promise<{ child: ChildProcess; ended: Promise<void> }> {
  const where = ['--recording', '--listen', `127.0.0.1:${port}`, '--speed', factor];
  const child = start(process.execPath, ['src/main.ts', 'serve', ...where]);
  const serving = Promise.withResolvers<undefined>();
  const ended = Promise.withResolvers<undefined>();
  if (child.stdout === null) throw new Error('Expected stdout to be a pipe');
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
  // On a busy machine it takes seconds to read the first lists, and nobody is answered meanwhile.
  for (let took = Infinity; took > 0.5;) {
    const began = now();
    await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    took = now() - began;
  }
  return { child, ended: ended.promise };
}

// --- what Alertmanager sends ---

interface Notice {
  readonly status: 'firing' | 'resolved';
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

const notices: Notice[] = [];

const absent = 'EndpointAuditorAbsent critical';

const keyOf = ({ alertname = '', code = '', severity = '' }: Notice['labels']): string =>
  [alertname, code, severity].filter((part) => part !== '').join(' ');

const has = (status: Notice['status'], key: string): boolean =>
  notices.some((notice) => notice.status === status && keyOf(notice.labels) === key);

async function until(isTrue: () => boolean, seconds: number): Promise<boolean> {
  for (let waited = 0; waited < seconds; waited += 0.1) {
    if (isTrue()) return true;
    await sleep(100);
  }
  return isTrue();
}

async function take(request: IncomingMessage): Promise<void> {
  let text = '';
  for await (const part of request) text += String(part);
  notices.push(...(JSON.parse(text) as { alerts: Notice[] }).alerts);
}

async function receiver(): Promise<{ url: string; close: () => void }> {
  const server = createServer((request, response) => {
    take(request).then(
      () => response.end(),
      () => response.writeHead(500).end(),
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, close: () => void server.close() };
}

// --- Prometheus and Alertmanager ---

const seconds = (hold: string): number =>
  Number.parseInt(hold) * { s: 1, m: 60, h: 3600 }[hold.at(-1) as 's' | 'm' | 'h'];

/** The rules as they are shipped, but with a shorter `for`, and without alerts on lag. */
function writeRules(folder: string): string[] {
  return ruleFiles.map((name) => {
    const groups = readRules(name).groups.map(({ name: group, rules }) => ({
      name: group,
      rules: rules
        .filter(({ alert }) => name !== 'lag.yaml' || alert === undefined)
        .map((rule) =>
          rule.for === undefined
            ? rule
            : {
                ...rule,
                for: `${Math.ceil((seconds(rule.for) / shorterOf(rule.alert ?? '')) * 1000)}ms`,
              },
        ),
    }));
    const path = join(folder, name);
    // JSON is YAML.
    writeFileSync(path, JSON.stringify({ groups }));
    return path;
  });
}

async function startAlertmanager(folder: string, receiverUrl: string): Promise<string> {
  const config = join(folder, 'alertmanager.yml');
  const route = { receiver: 'test', group_by: ['...'], group_wait: '0s', group_interval: '1s' };
  const receivers = [
    { name: 'test', webhook_configs: [{ url: receiverUrl, send_resolved: true }] },
  ];
  writeFileSync(config, JSON.stringify({ route, receivers }));
  const address = `127.0.0.1:${await freePort()}`;
  start('prometheus-alertmanager', [
    `--config.file=${config}`,
    `--storage.path=${join(folder, 'alertmanager')}`,
    `--web.listen-address=${address}`,
    '--cluster.listen-address=',
  ]);
  await awaitReady(`http://${address}`);
  return address;
}

async function startPrometheus(
  folder: string,
  target: string,
  alertmanager: string,
): Promise<string> {
  const config = join(folder, 'prometheus.yml');
  const scraped = { job_name: 'auditor', honor_labels: true };
  writeFileSync(
    config,
    JSON.stringify({
      global: { scrape_interval: '2s', scrape_timeout: '2s', evaluation_interval: '500ms' },
      rule_files: writeRules(folder),
      alerting: { alertmanagers: [{ static_configs: [{ targets: [alertmanager] }] }] },
      scrape_configs: [{ ...scraped, static_configs: [{ targets: [target] }] }],
    }),
  );
  const address = `127.0.0.1:${await freePort()}`;
  start(await programOf('prometheus'), [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(folder, 'data')}`,
    `--web.listen-address=${address}`,
    '--rules.alert.resend-delay=1s',
  ]);
  await awaitReady(`http://${address}`);
  return `http://${address}`;
}

// --- what must arrive ---

interface Found {
  readonly code: string;
  readonly severity: string;
}

/** For how long, in seconds of the test, findings of a code stand: at most, and now. */
interface Standing {
  longest: number;
  since: number | null;
}

const standing = new Map<string, Standing>();

/** The alerts on a finding, by what they are called when they arrive. */
function alertsOn({ code, severity }: Found): string[] {
  return alerts.flatMap((rule) => {
    const isTold = rule.labels?.severity?.startsWith('{{') === true;
    if (!codesOf(rule).includes(code) || (isTold && severity === 'info')) return [];
    const own = isTold ? severity : (rule.labels?.severity ?? '');
    return [keyOf({ alertname: rule.alert ?? '', code, severity: own })];
  });
}

/** Looks at the findings that stand: a finding may change its code while it does. */
async function look(target: string): Promise<void> {
  const answer = await fetch(`http://${target}/api/v1/findings`);
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

async function lookUntil(ended: Promise<void>, target: string): Promise<void> {
  const over = ended.then(() => true);
  do await look(target).catch(() => undefined);
  while (!(await Promise.race([over, sleep(300, false)])));
  await look(target);
}

const holdOf = (key: string): number => {
  const rule = alerts.find(({ alert }) => alert === key.split(' ')[0]);
  return seconds(rule?.for ?? '0s') / shorterOf(rule?.alert ?? '');
};

/** What the recording has besides findings: Endpoints that are cut down, and edited ones. */
const besides = [
  'EndpointAuditorEndpointsTruncated warning',
  'EndpointAuditorEndpointsAndSlicesDisagree warning',
];

async function checkFindings(): Promise<void> {
  for (const [key, { longest, since }] of standing) {
    const hold = holdOf(key);
    // Whatever stands goes on to stand after the recording.
    if (since === null && longest < hold + slack) continue;
    const came = await until(() => has('firing', key), since === null ? 0 : hold + slack);
    check(`${key} arrives (it stood ${Math.round(longest)} s)`, came ? null : 'it did not');
    if (since !== null) continue;
    const went = await until(() => has('resolved', key), slack);
    check(`${key} is resolved`, went ? null : 'it is not');
  }
  const others = [...new Set(notices.map(({ labels }) => keyOf(labels)))].filter(
    (key) => !standing.has(key),
  );
  // Whether a busy machine can scrape says nothing about findings; it is looked at by itself below.
  const unfounded = others.filter((key) => !besides.includes(key) && key !== absent);
  check('nothing else arrives', unfounded.join(', ') || null);
  for (const key of besides) {
    const came = await until(() => has('firing', key), holdOf(key) + slack);
    check(`${key} arrives`, came ? null : 'it did not');
  }
  const unfinished = notices.filter(({ annotations }) =>
    Object.values(annotations).some((text) => /\{\{|<no value>|error expanding/.test(text)),
  );
  check('texts are whole', unfinished.map(({ labels }) => keyOf(labels)).join(', ') || null);
}

// --- all of it ---

async function goAwayAndComeBack(child: ChildProcess, port: number): Promise<void> {
  notices.length = 0;
  await stop(child);
  const came = await until(() => has('firing', absent), holdOf(absent) + slack);
  check(`${absent} arrives when the program is gone`, came ? null : 'it did not');
  await replay(port, 'max');
  const went = await until(() => has('resolved', absent), 4 * slack);
  check(`${absent} is resolved when it is back`, went ? null : 'it is not');
}

if (spawnSync('prometheus-alertmanager', ['--version']).error !== undefined) {
  throw new Error('There is no prometheus-alertmanager; apt has it');
}
const folder = mkdtempSync(join(tmpdir(), 'alerts-'));
const sink = await receiver();
try {
  const port = await freePort();
  const target = `127.0.0.1:${port}`;
  const alertmanager = await startAlertmanager(folder, sink.url);
  const { child, ended } = await replay(port, String(speed));
  await startPrometheus(folder, target, alertmanager);
  await lookUntil(ended, target);
  await checkFindings();
  await goAwayAndComeBack(child, port);
} finally {
  await Promise.all([...running].map(stop));
  sink.close();
  rmSync(folder, { recursive: true, force: true });
}
process.stdout.write(`${counts.passed} passed, ${counts.failed} failed\n`);
process.exitCode = counts.failed === 0 ? 0 : 1;
