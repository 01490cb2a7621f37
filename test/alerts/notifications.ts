// How many notifications one cause makes: `npm run notifications`. The program audits a fake API
// server with a controller of its own; a real Prometheus evaluates the shipped rules on a shorter
// clock, and a real Alertmanager routes and inhibits as docs/runbook.md advises. The controller
// stops, a Node is relabelled, and the API server goes away: each is one notification, and one more
// says that it is resolved. Ordinary changes make none.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { IncidentKind } from '../../src/audit/incident/kinds.ts';
import type { Truth } from '../apiserver/life.ts';
import { outputs, sync, truthOf } from '../apiserver/life.ts';
import type { FakeServer } from '../apiserver/server.ts';
import { createServer, listen, realClock } from '../apiserver/server.ts';
import type { Tally } from '../controlplane/auditor.ts';
import { awaitSoon, say, secondsSince, startAuditor } from '../controlplane/auditor.ts';
import type { ExpectOnly } from './alertmanager.ts';
import {
  advisedRouting,
  createExpectation,
  oneNotification,
  startAlerting,
} from './alertmanager.ts';

const namespace = 'shop';
const names = Array.from({ length: 36 }, (_, index) => `app-${String(index)}`);
const nodes = ['node-a', 'node-b', 'node-c'];

/** Seconds: the settle window; a Service has waited for 5 s before its controller is suspected. */
const settle = 6;

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
  readonly kind: IncidentKind | null;
  readonly begin: () => Promise<void> | void;
  readonly end: () => Promise<void> | void;
}

/** Plays a cause to its end. */
async function play(expectOnly: ExpectOnly, { title, kind, begin, end }: Cause): Promise<void> {
  await begin();
  await expectOnly(title, kind && oneNotification('firing', kind));
  if (kind === null) return;
  await end();
  await expectOnly(`${title}, then ends`, oneNotification('resolved', kind));
}

const causesOf = (cluster: Cluster): readonly Cause[] => [
  {
    title: 'pods are replaced',
    kind: null,
    begin: () => churn(cluster, 20),
    end: () => undefined,
  },
  {
    title: `the controller of ${String(names.length)} Services stops`,
    kind: 'controller-not-writing',
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
    kind: 'node-change-unnoticed',
    begin: () => putNode(cluster, 'node-a', 'zone-9'),
    end: () => writeAll(cluster, names),
  },
  {
    title: 'the API server goes away',
    kind: 'api-unavailable',
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

async function check(folder: string, tally: Tally): Promise<void> {
  const cluster = createCluster();
  const listener = await listen(cluster.server.ask, { protocols: 'plain' });
  const kubeconfig = writeKubeconfig(folder, listener.port);
  const auditor = await startAuditor({ kubeconfig, folder, settle });
  await awaitSoon(async () => (await auditor.notReady()) === null, 60);
  const port = Number(new URL(auditor.base).port);
  const arrivals = await startAlerting(folder, { fake: port }, advisedRouting());
  const expectOnly = createExpectation(arrivals, tally);
  try {
    for (const cause of causesOf(cluster)) {
      const begun = performance.now();
      await play(expectOnly, cause);
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
