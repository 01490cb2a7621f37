// The rules of alerts/, as Prometheus reads them.

import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { parse } from 'yaml';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import type { IncidentKind } from '../../src/audit/incident/kinds.ts';
import type { Tally } from '../controlplane/auditor.ts';
import { report, say } from '../controlplane/auditor.ts';
import { freePort } from '../processes.ts';
import { groupedBy, startPrometheus, whenReady } from '../prometheus/server.ts';

export const folder = join(import.meta.dirname, '../../alerts');

export interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly for?: string;
  readonly keep_firing_for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

/** Names of the files, without the folder. */
export const ruleFiles = readdirSync(folder).filter((name) => name.endsWith('.yaml'));

export const readRules = (name: string): RuleFile =>
  parse(readFileSync(join(folder, name), 'utf8')) as RuleFile;

const all = ruleFiles.flatMap((name) => readRules(name).groups.flatMap(({ rules }) => rules));

export const alerts = all.filter(({ alert }) => alert !== undefined);
export const records = all.filter(({ record }) => record !== undefined);

/** What recording rules make, with the labels that their grouping leaves; any values. */
export const recorded: ReadonlyMap<string, Readonly<Record<string, readonly string[]>>> = new Map(
  records.map(({ record = '', expr }) => [
    record,
    Object.fromEntries(groupedBy(expr).map((label) => [label, []])),
  ]),
);

interface AlertmanagerConfig {
  readonly route: Readonly<Record<string, unknown>>;
  readonly inhibit_rules: readonly {
    readonly source_matchers: readonly string[];
    readonly target_matchers: readonly string[];
    readonly equal: readonly string[];
  }[];
}

/** The configuration of Alertmanager that the runbook advises, without receivers. */
export function advised(): AlertmanagerConfig {
  const runbook = readFileSync(join(folder, '../docs/runbook.md'), 'utf8');
  const [, text = ''] = /```yaml\n(route:[^`]*)```/.exec(runbook) ?? [];
  return parse(text) as AlertmanagerConfig;
}

/** The codes of findings that an alert is about; none: it is about something else. */
export function codesOf({ expr }: Rule): string[] {
  const matcher = /findings\{\s*code=~?"(?<pattern>.*?)"(?:,\s*code!="(?<except>.*?)")?/.exec(expr);
  if (matcher === null) return [];
  const { pattern = '', except } = matcher.groups ?? {};
  const all = new RegExp(`^(?:${pattern})$`);
  return Object.keys(catalogue).filter((code) => all.test(code) && code !== except);
}

// Receives alerts: a real Prometheus evaluates the shipped rules on a shorter clock, and a real
// Alertmanager sends what fires to this process. Each auditor that is scraped has a cluster of its
// own.

/**
 * The clock of the test, in seconds: it leaves shorter what is shorter, so that windows and the
 * time that an alert must hold keep their order. 2 minutes become 8 s, 10 minutes 12 s, 3 days
 * 54 s.
 */
export const shorter = (seconds: number): number => 10 * (seconds / 300) ** 0.25;

const units = { s: 1, m: 60, h: 3600, d: 86_400 } as const;

const secondsOf = (text: string): number =>
  Number.parseInt(text) * units[text.at(-1) as keyof typeof units];

const onTheClock = (text: string): string => `${Math.ceil(shorter(secondsOf(text)) * 1000)}ms`;

/** How long an alert must hold, on the clock of the test. */
export function holdOf(name: string): number {
  const rules = alerts.filter(({ alert }) => alert === name);
  return Math.max(...rules.map((rule) => shorter(secondsOf(rule.for ?? '0s'))));
}

/** A rule as it is shipped, with all its times on the clock of the test. */
const shortened = (rule: Rule): Rule => ({
  ...rule,
  expr: rule.expr
    .replace(/(?<=\[|offset )\d+[smhd]/g, onTheClock)
    .replace(/\d+(?= # threshold: watchUnseenSeconds)/, (text) => shorter(Number(text)).toFixed(1)),
  ...(rule.for === undefined ? {} : { for: onTheClock(rule.for) }),
  ...(rule.keep_firing_for === undefined
    ? {}
    : { keep_firing_for: onTheClock(rule.keep_firing_for) }),
});

function writeRules(folder: string): string[] {
  return ruleFiles.map((name) => {
    const groups = readRules(name).groups.map((group) => ({
      name: group.name,
      rules: group.rules.map(shortened),
    }));
    const path = join(folder, name);
    // JSON is YAML.
    writeFileSync(path, JSON.stringify({ groups }));
    return path;
  });
}

/** What Alertmanager says of an alert. */
export interface Notice {
  readonly status: 'firing' | 'resolved';
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** What Alertmanager sends at once: alerts of one group. */
export interface Notification {
  readonly receiver: string;
  readonly status: Notice['status'];
  readonly groupLabels: Notice['labels'];
  readonly alerts: readonly Notice[];
}

export interface Arrivals {
  /** All that ever arrived, in order. */
  readonly notices: readonly Notice[];
  readonly notifications: readonly Notification[];
  /** Labels of what has arrived of a cluster, and is not resolved. */
  readonly unresolved: (cluster: string) => readonly Notice['labels'][];
  readonly stop: () => Promise<void>;
}

async function notificationOf(request: IncomingMessage): Promise<Notification> {
  let text = '';
  for await (const part of request) text += String(part);
  return JSON.parse(text) as Notification;
}

async function receiver(notices: Notice[], notifications: Notification[]) {
  const server = createServer((request, response) => {
    const taken = notificationOf(request).then((notification) => {
      notifications.push(notification);
      notices.push(...notification.alerts);
    });
    taken.then(
      () => response.end(),
      () => response.writeHead(500).end(),
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, close: () => void server.close() };
}

/** Each alert is a notification of its own. */
const single = {
  route: { receiver: 'test', group_by: ['...'], group_wait: '0s', group_interval: '1s' },
};

/** Every receiver of the routes sends to one address. */
async function startAlertmanager(folder: string, url: string, routing: object) {
  const config = join(folder, 'alertmanager.yml');
  const names = new Set(JSON.stringify(routing).match(/(?<="receiver":")[^"]+/g));
  const webhook_configs = [{ url, send_resolved: true }];
  const receivers = [...names].map((name) => ({ name, webhook_configs }));
  writeFileSync(config, JSON.stringify({ ...routing, receivers }));
  const address = `127.0.0.1:${await freePort()}`;
  const args = [
    `--config.file=${config}`,
    `--storage.path=${join(folder, 'alertmanager')}`,
    `--web.listen-address=${address}`,
    '--cluster.listen-address=',
  ];
  return whenReady(spawn('prometheus-alertmanager', args, { stdio: 'ignore' }), address);
}

/**
 * Starts all of it; `ports`: where the auditor of each cluster is, or will be; `routing`: routes
 * and inhibition of Alertmanager.
 */
export async function startAlerting(
  folder: string,
  ports: Readonly<Record<string, number>>,
  routing: object = single,
): Promise<Arrivals> {
  const notices: Notice[] = [];
  const notifications: Notification[] = [];
  const sink = await receiver(notices, notifications);
  const alertmanager = await startAlertmanager(folder, sink.url, routing);
  const static_configs = Object.entries(ports).map(([cluster, port]) => ({
    targets: [`127.0.0.1:${port}`],
    labels: { cluster },
  }));
  const config = {
    global: { scrape_interval: '2s', scrape_timeout: '2s', evaluation_interval: '500ms' },
    rule_files: writeRules(folder),
    alerting: {
      alertmanagers: [{ static_configs: [{ targets: [new URL(alertmanager.url).host] }] }],
    },
    scrape_configs: [{ job_name: 'auditor', honor_labels: true, static_configs }],
  };
  // Alertmanager takes an alert for resolved when it has not been sent again for four such delays.
  const prometheus = await startPrometheus(folder, config, ['--rules.alert.resend-delay=30s']);
  return {
    notices,
    notifications,
    unresolved(cluster) {
      const latest = new Map<string, Notice>();
      for (const notice of notices) {
        if (notice.labels.cluster === cluster) latest.set(JSON.stringify(notice.labels), notice);
      }
      return [...latest.values()]
        .filter(({ status }) => status === 'firing')
        .map(({ labels }) => labels);
    },
    async stop() {
      await prometheus.stop();
      await alertmanager.stop();
      sink.close();
    },
  };
}

/** Waits for a condition, at most for a number of seconds; returns whether it became true. */
export async function until(isTrue: () => boolean, seconds: number): Promise<boolean> {
  const deadline = performance.now() + seconds * 1000;
  while (!isTrue() && performance.now() < deadline) await sleep(100);
  return isTrue();
}

/** Seconds that nothing takes on a machine that is not stuck. */
const patience = 150;

// What one cause must send: Alertmanager routes and inhibits as docs/runbook.md advises, and sends
// one notification when the cause begins, and one when it has ended.

/** Seconds without another notification after which none is expected any more. */
const calm = 2 * shorter(600);

/** Seconds until an incident opens, and the scrape that shows it: not on the shorter clock. */
const unscaled = 7;

/** The advice of the runbook, with the times of Alertmanager on the shorter clock. */
export function advisedRouting() {
  const { route, ...rest } = advised();
  const group_wait = `${(shorter(30) + unscaled).toFixed(0)}s`;
  const group_interval = `${shorter(300).toFixed(0)}s`;
  const times = { group_wait, group_interval, repeat_interval: '1h' };
  return { ...rest, route: { ...route, ...times } };
}

/** The kind of an incident in the form of Events and alerts: `ControllerNotWriting`. */
export const reasonOf = (kind: IncidentKind): string =>
  kind.replaceAll(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** A notification with a single incident: its receiver, status, alert, and how many alerts. */
export const oneNotification = (status: Notice['status'], kind: IncidentKind): string =>
  `team ${status} EndpointsIncident${reasonOf(kind)} 1`;

/** Waits for a notification, `null`: for none, and reports all that have arrived. */
export type ExpectOnly = (title: string, expected: string | null) => Promise<void>;

const lineOf = ({ receiver, status, alerts, groupLabels }: Notification): string =>
  [receiver, status, groupLabels.alertname, alerts.length].join(' ');

/** Compares what arrives with what must. Each call looks at what has arrived since the last. */
export function createExpectation({ notifications }: Arrivals, tally: Tally): ExpectOnly {
  let from = 0;
  const got = (): readonly Notification[] => notifications.slice(from);
  return async (title, expected) => {
    if (expected !== null) await until(() => got().length > 0, patience);
    await sleep(calm * 1000);
    const all = got();
    from += all.length;
    const isRight = all.map(lineOf).join() === (expected ?? '');
    const lines = all.flatMap((it) => [lineOf(it), ...it.alerts.map((one) => JSON.stringify(one))]);
    const problems = all.length === 0 ? ['there is none'] : lines;
    report(tally, `${title}: ${expected ?? 'no notification'}`, isRight ? [] : problems);
  };
}

// Stages of a cluster: something is done to it, and the alerts on that must arrive, and no others;
// it is repaired, and all of them must be resolved.

/** Some labels of an alert, its name first. */
export interface Expected {
  readonly alertname: string;
  readonly [label: string]: string;
}

interface Stage {
  readonly title: string;
  readonly expected: readonly Expected[];
  /** Other alerts that may arrive, because their condition may last long enough. */
  readonly allowed?: readonly Expected[];
  readonly begin: () => Promise<unknown>;
  readonly repair?: () => Promise<unknown>;
}

/** What stages of one cluster have in common. */
export interface Theatre {
  readonly arrivals: Arrivals;
  readonly tally: Tally;
  readonly cluster: string;
}

/** In any stage, Services may be scaled to zero or have pods that are not ready. */
const unserved: Expected = { alertname: 'EndpointsNoneUsable' };

/** Whether an alert is on an incident: findings have one, of a kind that notifications.ts tests. */
export const isOnIncident = ({ alertname = '' }: Notice['labels']): boolean =>
  alertname.startsWith('EndpointsIncident');

const isOne = ({ labels }: Pick<Notice, 'labels'>, expected: Expected): boolean =>
  Object.entries(expected).every(([label, value]) => labels[label] === value);

const textOf = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .filter(([label]) => !['cluster', 'instance', 'job'].includes(label))
    .map(([label, value]) => (label === 'alertname' ? value : `${label}=${value}`))
    .sort()
    .join(' ');

/** Plays a stage to its end. */
export async function play({ arrivals, tally, cluster }: Theatre, stage: Stage): Promise<void> {
  const { expected, allowed = [], begin, repair } = stage;
  const title = `${cluster}, ${stage.title}`;
  const [from, begun] = [arrivals.notices.length, performance.now()];
  const seconds = (): string => `${Math.round((performance.now() - begun) / 1000)} s`;
  const notices = (status: Notice['status']): readonly Notice[] =>
    arrivals.notices
      .slice(from)
      .filter((one) => one.status === status && one.labels.cluster === cluster);
  const missing = (): readonly Expected[] =>
    expected.filter((one) => !notices('firing').some((notice) => isOne(notice, one)));
  await begin();
  await until(() => missing().length === 0, patience);
  say(`     ${title}: after ${seconds()}`);
  report(tally, `${title}: ${expected.length} alerts arrive`, missing().map(textOf));
  await repair?.();
  // Information that is allowed may go on to be true.
  const unresolved = (): readonly Notice['labels'][] =>
    arrivals
      .unresolved(cluster)
      .filter(
        (labels) => labels.severity !== 'info' || expected.some((one) => isOne({ labels }, one)),
      );
  await until(() => unresolved().length === 0, patience);
  say(`     ${title}: over after ${seconds()}`);
  report(tally, `${title}: all are resolved`, unresolved().map(textOf));
  const others = notices('firing').filter(
    (notice) =>
      ![...expected, ...allowed, unserved].some((one) => isOne(notice, one)) &&
      !(expected.length > 0 && isOnIncident(notice.labels)),
  );
  const wrong = new Set(others.map(({ labels }) => textOf(labels)));
  report(tally, `${title}: no other alert arrives`, [...wrong]);
}

// Alerts on a recording of a real cluster, replayed at a higher speed. Every alert on a finding
// that lasted long enough must arrive, and must be resolved if the finding was. No other alert may
// arrive, because most of the recording is ordinary change.

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
  const where = ['--demo', '--listen', `127.0.0.1:${port}`, '--speed', factor];
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
    const isTemplated = rule.labels?.severity?.startsWith('{{') === true;
    if (!codesOf(rule).includes(code) || (isTemplated && severity === 'info')) return [];
    const own = isTemplated ? severity : (rule.labels?.severity ?? '');
    return [keyOf({ alertname: rule.alert ?? '', code, severity: own })];
  });
}

/** How long findings with an alert last, in seconds of the test: the longest, and the current. */
type Durations = Map<string, { longest: number; since: number | null }>;

/** Reads the open findings. A finding may change its code while it is open. */
async function look(port: number, durations: Durations): Promise<void> {
  const answer = await fetch(`http://127.0.0.1:${port}/api/v1/findings`);
  const { standing: found } = (await answer.json()) as { standing: Found[] };
  const keys = new Set(found.flatMap(alertsOn));
  for (const key of keys) {
    if (!durations.has(key)) durations.set(key, { longest: 0, since: null });
  }
  for (const [key, one] of durations) {
    if (!keys.has(key)) one.since = null;
    else one.since ??= now();
    if (one.since !== null) one.longest = Math.max(one.longest, now() - one.since);
  }
}

async function lookUntil(ended: Promise<void>, port: number): Promise<Durations> {
  const durations: Durations = new Map();
  const over = ended.then(() => true);
  do await look(port, durations).catch(() => undefined);
  while (!(await Promise.race([over, sleep(300, false)])));
  await look(port, durations);
  return durations;
}

/** Alerts that the recording causes without findings. */
const withoutFindings = [
  'EndpointsTruncated info',
  'EndpointsAndSlicesDisagree warning',
  'EndpointsNoneUsable info',
];

/** Its controllers hang for a minute. Then they are late, and many findings resolve. */
const late = ['EndpointsLagBudgetBurn', 'EndpointsControllerStuck', 'EndpointsFindingsFlapping'];

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
  const durations = await lookUntil(ended, port);
  for (const [key, { longest, since }] of durations) {
    const hold = holdOf(key.split(' ')[0] ?? '');
    // Findings that are open at the end of the recording stay open.
    if (since === null && longest < hold + slack) continue;
    const seconds = since === null ? 0 : hold + slack;
    const came = await until(() => has('firing', key), seconds);
    check(`${key} arrives (it lasted ${Math.round(longest)} s)`, came);
    if (since !== null) continue;
    check(`${key} is resolved`, await until(() => has('resolved', key), slack));
  }
  for (const key of withoutFindings) {
    const seconds = holdOf(key.split(' ')[0] ?? '') + slack;
    check(`${key} arrives`, await until(() => has('firing', key), seconds));
  }
  const others = own().filter(
    ({ labels }) =>
      !durations.has(keyOf(labels)) &&
      !withoutFindings.includes(keyOf(labels)) &&
      !isOnIncident(labels) &&
      !late.includes(labels.alertname ?? '') &&
      // On a busy machine, Prometheus may get no answer for ten seconds: here five minutes.
      !(labels.alertname === 'EndpointAuditorAbsent' && has('resolved', keyOf(labels))),
  );
  const wrong = new Set(others.map(({ labels }) => keyOf(labels)));
  report(tally, `${replayed}: no other alert arrives`, [...wrong]);
}
