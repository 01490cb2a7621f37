// How many notifications one cause makes: `npm run notifications`. The program audits a fake API
// server with a controller of its own; a real Prometheus evaluates the shipped rules on a shorter
// clock, and a real Alertmanager routes and inhibits as docs/runbook.md advises. The controller
// stops, a Node is relabelled, and the API server goes away: each is one notification, and one more
// says that it is resolved. Ordinary changes make none.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Truth } from '../apiserver/life.ts';
import { outputs, sync, truthOf } from '../apiserver/life.ts';
import type { FakeServer } from '../apiserver/server.ts';
import { createServer, listen, realClock } from '../apiserver/server.ts';
import type { Tally } from '../controlplane/auditor.ts';
import { awaitSoon, report, say, secondsSince, startAuditor } from '../controlplane/auditor.ts';
import type { Arrivals } from './alertmanager.ts';
import { advised, shorter, startAlerting, until } from './alertmanager.ts';

const namespace = 'shop';
const names = Array.from({ length: 36 }, (_, index) => `app-${String(index)}`);
const nodes = ['node-a', 'node-b', 'node-c'];

/** Seconds: the settle window; a Service has waited for 5 s before its controller is suspected. */
const settle = 6;

/** Seconds in which every alert of the rules on the shorter clock fires or ends, and is sent. */
const patience = 90;

/** Seconds without another notification after which none is expected any more. */
const calm = 2 * shorter(600);

interface Cluster {
  readonly server: FakeServer;
  readonly truth: Truth;
  /** While it is false, nothing is written. */
  isWriting: boolean;
  /** The number of the last pod. */
  pods: number;
}

function putNode({ server }: Cluster, name: string, zone: string): void {
  const labels = { 'topology.kubernetes.io/zone': zone };
  const conditions = [{ type: 'Ready', status: 'True' }];
  const status = { allocatable: { cpu: '4' }, conditions };
  server.objects.put('nodes', { metadata: { name, labels }, status });
}

function putService({ server }: Cluster, name: string): void {
  server.objects.put('services', {
    metadata: { name, namespace },
    spec: {
      type: 'ClusterIP',
      clusterIP: '10.96.0.9',
      ipFamilies: ['IPv4'],
      trafficDistribution: 'PreferClose',
      selector: { app: name },
      ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
    },
  });
}

/** Another ready pod of a Service; the oldest of four is deleted. */
function replacePod(cluster: Cluster, app: string): void {
  const { server, truth } = cluster;
  const number = ++cluster.pods;
  const old = [...truth.held.pods.values()].filter(({ metadata }) => metadata.labels?.app === app);
  server.objects.put('pods', {
    metadata: { name: `${app}-${String(number)}`, namespace, labels: { app } },
    spec: { nodeName: nodes[number % nodes.length], containers: [{ name: 'web' }] },
    status: {
      phase: 'Running',
      podIPs: [{ ip: `10.1.${String(number >> 8)}.${String(number & 255)}` }],
      conditions: [{ type: 'Ready', status: 'True' }],
    },
  });
  const [oldest] = old;
  if (old.length < 3 || oldest === undefined) return;
  server.objects.remove('pods', `${namespace}/${oldest.metadata.name}`);
}

const writeAll = ({ truth }: Cluster, apps: readonly string[]): void => {
  for (const output of outputs) for (const app of apps) sync(truth.api, output, app);
};

/** Pods of some Services are replaced, and the controller follows if it writes. */
function change(cluster: Cluster, apps: readonly string[]): void {
  for (const app of apps) replacePod(cluster, app);
  if (cluster.isWriting) writeAll(cluster, apps);
}

function createCluster(): Cluster {
  const server = createServer(realClock);
  const cluster = { server, truth: truthOf(server, realClock, names), isWriting: true, pods: 0 };
  for (const [index, node] of nodes.entries()) putNode(cluster, node, `zone-${String(index)}`);
  for (const name of names) putService(cluster, name);
  for (let turn = 0; turn < 3; turn++) change(cluster, names);
  return cluster;
}

/** Pods of a few Services are replaced each half second. */
async function churn(cluster: Cluster, seconds: number): Promise<void> {
  for (let turn = 0; turn < 2 * seconds; turn++) {
    change(
      cluster,
      [0, 1, 2].flatMap((more) => names[(3 * turn + more) % names.length] ?? []),
    );
    await sleep(500);
  }
}

interface Cause {
  readonly title: string;
  readonly alertname: string | null;
  readonly begin: () => Promise<void> | void;
  readonly end: () => Promise<void> | void;
}

/** What arrives from now on: the receiver, the status, the group and its alerts. */
function listenTo({ notifications }: Arrivals): () => string[] {
  const from = notifications.length;
  return () =>
    notifications
      .slice(from)
      .map(({ receiver, status, alerts, groupLabels }) =>
        [receiver, status, groupLabels.alertname, String(alerts.length)].join(' '),
      );
}

/** Waits for all that arrives, and compares it with what must. */
async function expectOnly(
  tally: Tally,
  title: string,
  expected: string | null,
  got: () => string[],
): Promise<void> {
  if (expected !== null) await until(() => got().length > 0, patience);
  await sleep(calm * 1000);
  const isRight = got().join() === (expected ?? '');
  const problems = got().length === 0 ? ['there is none'] : got();
  report(tally, `${title}: ${expected ?? 'no notification'}`, isRight ? [] : problems);
}

/** Plays a cause to its end. */
async function play(arrivals: Arrivals, tally: Tally, cause: Cause): Promise<void> {
  const { title, alertname, begin, end } = cause;
  const firing = listenTo(arrivals);
  await begin();
  await expectOnly(tally, title, alertname && `team firing ${alertname} 1`, firing);
  if (alertname === null) return;
  const resolved = listenTo(arrivals);
  await end();
  await expectOnly(tally, `${title}, then ends`, `team resolved ${alertname} 1`, resolved);
}

const causesOf = (cluster: Cluster): readonly Cause[] => [
  {
    title: 'pods are replaced',
    alertname: null,
    begin: () => churn(cluster, 20),
    end: () => undefined,
  },
  {
    title: `the controller of ${String(names.length)} Services stops`,
    alertname: 'EndpointsIncidentControllerNotWriting',
    async begin() {
      cluster.isWriting = false;
      await churn(cluster, 20);
    },
    async end() {
      cluster.isWriting = true;
      writeAll(cluster, names);
      await churn(cluster, 5);
    },
  },
  {
    title: 'a Node moves to another zone',
    alertname: 'EndpointsIncidentNodeChangeUnnoticed',
    begin: () => putNode(cluster, 'node-a', 'zone-9'),
    end: () => writeAll(cluster, names),
  },
  {
    title: 'the API server goes away',
    alertname: 'EndpointsIncidentApiUnavailable',
    begin() {
      cluster.server.faults.before = () => 'reset';
      cluster.server.reset();
    },
    end: () => void (cluster.server.faults.before = () => null),
  },
];

/** A kubeconfig of the server. */
function writeKubeconfig(folder: string, port: number): string {
  const path = join(folder, 'kubeconfig');
  const content = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${String(port)}` } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  writeFileSync(path, JSON.stringify(content));
  return path;
}

/** Seconds until an incident opens, and the scrape that shows it: not on the shorter clock. */
const unscaled = 7;

/** The advice of the runbook, with the times of Alertmanager on the shorter clock. */
function routing() {
  const { route, ...rest } = advised();
  const group_wait = `${(shorter(30) + unscaled).toFixed(0)}s`;
  const group_interval = `${shorter(300).toFixed(0)}s`;
  const times = { group_wait, group_interval, repeat_interval: '1h' };
  return { ...rest, route: { ...route, ...times } };
}

async function check(folder: string, tally: Tally): Promise<void> {
  const cluster = createCluster();
  const listener = await listen(cluster.server.ask, { protocols: 'plain' });
  const kubeconfig = writeKubeconfig(folder, listener.port);
  const auditor = await startAuditor({ kubeconfig, folder, settle });
  await awaitSoon(async () => (await auditor.notReady()) === null, 60);
  const port = Number(new URL(auditor.base).port);
  const arrivals = await startAlerting(folder, { fake: port }, routing());
  try {
    for (const cause of causesOf(cluster)) {
      const begun = performance.now();
      await play(arrivals, tally, cause);
      say(`     ${cause.title}: ${String(Math.round(secondsSince(begun)))} s`);
    }
  } finally {
    await arrivals.stop();
    await auditor.stop();
    await listener.close();
  }
}

const tally: Tally = { passed: 0, failed: 0 };
const folder = mkdtempSync(join(tmpdir(), 'notifications-'));
try {
  await check(folder, tally);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
say(`${String(tally.passed)} passed, ${String(tally.failed)} failed`);
process.exitCode = tally.failed === 0 ? 0 : 1;
