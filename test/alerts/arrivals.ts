// Receives alerts: a real Prometheus evaluates the shipped rules on a shorter clock, and a real
// Alertmanager sends what fires to this process. Each auditor that is scraped has a cluster of its
// own.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { freePort } from '../processes.ts';
import { startPrometheus, whenReady } from '../prometheus/server.ts';
import type { Rule } from './rules.ts';
import { alerts, readRules, ruleFiles } from './rules.ts';

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

export interface Arrivals {
  /** All that ever arrived, in order. */
  readonly notices: readonly Notice[];
  /** Labels of what has arrived of a cluster, and is not resolved. */
  readonly standing: (cluster: string) => readonly Notice['labels'][];
  readonly stop: () => Promise<void>;
}

async function take(request: IncomingMessage, notices: Notice[]): Promise<void> {
  let text = '';
  for await (const part of request) text += String(part);
  notices.push(...(JSON.parse(text) as { alerts: Notice[] }).alerts);
}

async function receiver(notices: Notice[]) {
  const server = createServer((request, response) => {
    take(request, notices).then(
      () => response.end(),
      () => response.writeHead(500).end(),
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, close: () => void server.close() };
}

async function startAlertmanager(folder: string, url: string) {
  const config = join(folder, 'alertmanager.yml');
  const route = { receiver: 'test', group_by: ['...'], group_wait: '0s', group_interval: '1s' };
  const receivers = [{ name: 'test', webhook_configs: [{ url, send_resolved: true }] }];
  writeFileSync(config, JSON.stringify({ route, receivers }));
  const address = `127.0.0.1:${await freePort()}`;
  const args = [
    `--config.file=${config}`,
    `--storage.path=${join(folder, 'alertmanager')}`,
    `--web.listen-address=${address}`,
    '--cluster.listen-address=',
  ];
  return whenReady(spawn('prometheus-alertmanager', args, { stdio: 'ignore' }), address);
}

/** Starts all of it; `ports`: where the auditor of each cluster is, or will be. */
export async function startAlerting(
  folder: string,
  ports: Readonly<Record<string, number>>,
): Promise<Arrivals> {
  const notices: Notice[] = [];
  const sink = await receiver(notices);
  const alertmanager = await startAlertmanager(folder, sink.url);
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
  const prometheus = await startPrometheus(folder, config, ['--rules.alert.resend-delay=1s']);
  return {
    notices,
    standing(cluster) {
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
