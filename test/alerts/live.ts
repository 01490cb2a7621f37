// The alerts before a real Prometheus and a real Alertmanager: `npm run alerts`. Each arrives for
// its fault and is resolved by the repair, and none arrives in ordinary times. At once:
//
//   replayed     (replayed.ts) a recording, with what happened in it
//   controllers  (controllers.ts) a real control plane, with the faults of the end-to-end test
//   nodes        (nodes.ts) a real kube-proxy and an agent, whose rules are broken
//   blind        (nodes.ts) an auditor that is cut off
//
// Last all auditors go away, and one comes back; then every alert of alerts/ must have been seen.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { parse } from 'yaml';

import type { Tally } from '../controlplane/checks.ts';
import { report, say, secondsSince, textOfError } from '../controlplane/checks.ts';
import { whyNoNamespaces } from '../controlplane/nodes.ts';
import { endProgram, freePort } from '../processes.ts';
import type { Arrivals, Notice } from './arrivals.ts';
import { holdOf, startAlerting, until } from './arrivals.ts';
import { checkControllers } from './controllers.ts';
import { checkNodes } from './nodes.ts';
import { checkReplayed, replay, replayed, speed } from './replayed.ts';
import type { Rule } from './rules.ts';
import { alerts, folder as alertsFolder } from './rules.ts';

const tally: Tally = { passed: 0, failed: 0 };

const clusters = [replayed, 'controllers', 'nodes', 'blind'] as const;
type Ports = Readonly<Record<(typeof clusters)[number], number>>;

async function goAwayAndComeBack({ notices }: Arrivals, port: number): Promise<void> {
  const alertname = 'EndpointAuditorAbsent';
  const from = notices.length;
  const has = (status: Notice['status']): boolean =>
    notices.slice(from).some((one) => one.labels.alertname === alertname && one.status === status);
  const came = await until(() => has('firing'), 10 * holdOf(alertname));
  report(tally, `${alertname} arrives when all are gone`, came ? [] : ['it does not']);
  const { child } = await replay(port, 'max');
  const went = await until(() => has('resolved'), 60);
  report(tally, `${alertname} is resolved when one is back`, went ? [] : ['it is not']);
  await endProgram(child);
}

/** Whether this alert has arrived, and has been resolved. */
function isSeen({ notices }: Arrivals, { alert, labels = {} }: Rule): boolean {
  const own = notices.filter(
    (one) =>
      one.labels.alertname === alert &&
      (labels.long === undefined || one.labels.long === labels.long),
  );
  return ['firing', 'resolved'].every((status) => own.some((one) => one.status === status));
}

function checkAll(arrivals: Arrivals, isWhole: boolean): void {
  const unseen = alerts.filter((rule) => !isSeen(arrivals, rule));
  const names = unseen.map(({ alert = '', labels = {} }) => `${alert} ${labels.long ?? ''}`.trim());
  if (isWhole) report(tally, `all ${alerts.length} alerts have arrived and been resolved`, names);
  else say(`     Not seen: ${names.join(', ')}`);
  const unfinished = arrivals.notices.filter(({ annotations }) =>
    Object.values(annotations).some((text) => /\{\{|<no value>|error expanding/.test(text)),
  );
  const wrong = unfinished.map(({ labels }) => labels.alertname ?? '');
  report(tally, 'texts are whole', [...new Set(wrong)]);
}

/** What the runbook advises Alertmanager to silence is a configuration that it takes. */
function checkInhibition(folder: string): void {
  const runbook = readFileSync(join(alertsFolder, '../docs/runbook.md'), 'utf8');
  const advice = /```yaml\n(inhibit_rules:[^`]*)```/.exec(runbook)?.[1] ?? '';
  const rest = { route: { receiver: 'none' }, receivers: [{ name: 'none' }] };
  const file = join(folder, 'advised.yml');
  writeFileSync(file, JSON.stringify({ ...rest, ...(parse(advice) as object) }));
  const { status, stdout, stderr } = spawnSync('amtool', ['check-config', file]);
  const said = `${stdout.toString()}${stderr.toString()}`;
  const isTaken = status === 0 && said.includes('4 inhibit rules');
  report(tally, 'the inhibition that the runbook advises is taken', isTaken ? [] : [said]);
}

async function checkReplay(arrivals: Arrivals, port: number): Promise<void> {
  const { child, ended } = await replay(port, speed);
  try {
    await checkReplayed(arrivals, tally, port, ended);
  } finally {
    await endProgram(child);
  }
}

/** Whether all of them could be played. */
async function checkParts(arrivals: Arrivals, ports: Ports): Promise<boolean> {
  const theatre = (cluster: (typeof clusters)[number]) => ({ arrivals, tally, cluster });
  const parts = [
    checkReplay(arrivals, ports.replayed),
    checkControllers(theatre('controllers'), ports.controllers),
  ];
  const why = process.env.NETNS_TESTS === 'required' ? null : whyNoNamespaces();
  if (why === null) {
    const theatres = { nodes: theatre('nodes'), blind: theatre('blind') };
    parts.push(checkNodes(theatres, ports));
  } else say(`     Left out: nodes, and an auditor that is cut off (${why})`);
  for (const part of await Promise.allSettled(parts)) {
    if (part.status === 'rejected') report(tally, 'a part ends', [textOfError(part.reason)]);
  }
  return why === null;
}

if (spawnSync('prometheus-alertmanager', ['--version']).error !== undefined) {
  throw new Error('There is no prometheus-alertmanager; apt has it');
}
const begun = performance.now();
const folder = mkdtempSync(join(tmpdir(), 'alerts-'));
const [first = 0, second = 0, third = 0, fourth = 0] = await Promise.all(
  clusters.map(() => freePort()),
);
const ports: Ports = { replayed: first, controllers: second, nodes: third, blind: fourth };
const arrivals = await startAlerting(folder, ports);
try {
  checkInhibition(folder);
  const isWhole = await checkParts(arrivals, ports);
  await goAwayAndComeBack(arrivals, ports.replayed);
  checkAll(arrivals, isWhole);
} finally {
  await arrivals.stop();
  rmSync(folder, { recursive: true, force: true });
}
say(`${tally.passed} passed, ${tally.failed} failed in ${Math.round(secondsSince(begun))} s`);
process.exitCode = tally.failed === 0 ? 0 : 1;
