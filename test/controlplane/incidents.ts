// Incidents of a real control plane: each fault must be one incident of the right kind with the
// right object, which ends after the repair. The auditor writes Events, as with `--events`.
//
//   stopped     kube-controller-manager sleeps while pods change; nothing is written, since the
//               auditor runs without --events
//   relabelled  a Node gets another zone, and its pods stay where they were
//   cut off     the auditor does not reach the API server
//   restarted   the API server ends, and is started again
//   slice       a client with a field manager of its own takes a slice away from the controller
//   Endpoints   such a client replaces the addresses of an Endpoints (long form)
//   slow        kube-controller-manager may send one request a second (long form)
//   rules       rules of kube-proxy on a node are deleted (long form, needs root)
//
// In the long form a real Prometheus evaluates the shipped rules on a shorter clock, and a real
// Alertmanager routes and inhibits as docs/runbook.md advises: each fault is one notification, and
// one more when it has ended.
//
// Nothing here is about speed: every wait ends with what it awaits, and is long otherwise.

import { mkdirSync, mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { IncidentKind } from '../../src/audit/incident/kinds.ts';
import type { Incident } from '../../src/audit/incident/open-incident.ts';
import { createEventRecorder } from '../../src/auditor/incident/event-recorder.ts';
import { openCluster } from '../../src/commands/shared/cluster.ts';
import {
  advisedRouting,
  createExpectation,
  type ExpectOnly,
  oneNotification,
  reasonOf,
  startAlerting,
} from '../alerts/alertmanager.ts';
import { freePort } from '../processes.ts';
import {
  type Auditor,
  awaitSoon,
  pausing,
  report,
  say,
  startAuditor,
  startProxy,
  type Tally,
  textOfError,
} from './auditor.ts';
import { addressing, createNodes, createService, type Pod, reportState } from './cluster.ts';
import {
  awaitSettled,
  type Client,
  clientOf,
  type ControlPlane,
  createAccount,
  permitEvents,
  startControlPlane,
} from './controlplane.ts';
import { carry } from './inside.ts';
import { awaitConform, nodeFaults, putBack, rulesOf, withNodes } from './nodes.ts';

/** What is read of an incident. */
interface Shown {
  readonly id: string;
  readonly kind: IncidentKind;
  readonly objects: readonly string[];
  readonly since: number;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
  readonly changes: readonly {
    readonly kind: string;
    readonly name: string;
    readonly manager: string | null;
  }[];
}

/** Seconds of the settle window. A slow controller shows in 10 s. */
const settleWindow = { short: 5, long: 10 };
/** Seconds after which what is awaited will not come, on a machine that is very busy too. */
const patience = 240;

interface Notifying {
  readonly expectOnly: ExpectOnly;
  readonly stop: () => Promise<void>;
}

interface Scene {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly get: (path: string) => Promise<string>;
  readonly tally: Tally;
  /** Seconds of the settle window. */
  readonly settle: number;
  /** Starts Prometheus and Alertmanager; absent: nothing is notified. */
  readonly notify?: () => Promise<Notifying>;
}

interface Fault {
  readonly name: string;
  readonly kind: IncidentKind;
  readonly object: string;
  /** The field manager of a change of the object to blame; absent: not checked. */
  readonly manager?: string;
  /** Services with an Event of the incident; absent: not checked. */
  readonly events?: number;
  readonly begin: () => unknown;
  readonly end: () => unknown;
}

/** Open and resolved incidents, without those of Services that are configured wrongly. */
async function incidents({ get }: Pick<Scene, 'get'>): Promise<Record<'open' | 'all', Shown[]>> {
  const body = JSON.parse(await get('/api/v1/incidents')) as Record<string, Shown[]>;
  const { standing = [], resolved = [] } = body;
  const isFault = ({ kind }: Shown): boolean => kind !== 'service-without-endpoints';
  const open = standing.filter(isFault);
  return { open, all: [...open, ...resolved.filter(isFault)] };
}

/** What the auditor still sees: open incidents and findings, and differences that are pending. */
async function trouble(scene: Pick<Scene, 'get'>): Promise<string[]> {
  const { get } = scene;
  const { standing } = JSON.parse(await get('/api/v1/findings')) as { standing: object[] };
  const lines = (await get('/metrics')).split('\n');
  const isPending = /^endpoint_auditor_(?:outputs\{.*"pending".*|pending_oldest_seconds.*) [^0]/;
  const { open } = await incidents(scene);
  return [
    ...open.map(textOf),
    ...standing.map((it) => JSON.stringify(it)),
    ...lines.filter((line) => isPending.test(line)),
  ];
}

/** Waits until the auditor sees no difference; returns what it still sees. */
async function awaitQuiet(scene: Pick<Scene, 'get'>): Promise<string[]> {
  let seen: string[] = [];
  const isQuiet = async (): Promise<boolean> => {
    seen = await trouble(scene).catch((error: unknown) => [textOfError(error)]);
    return seen.length === 0;
  };
  return (await awaitSoon(isQuiet, patience)) === null ? seen : [];
}

const textOf = ({ kind, objects }: Shown): string => `${kind} of ${objects.join(', ')}`;

/**
 * Begins a fault, awaits its only incident and notification, ends the fault, and awaits the end of
 * both. What is resolved stays in a group of Alertmanager for 15 minutes, so that the next alert of
 * the group does not wait for what inhibits it. So each fault has an Alertmanager of its own.
 */
async function check(scene: Scene, fault: Fault): Promise<void> {
  const notifying = await scene.notify?.();
  try {
    await play(scene, fault, notifying?.expectOnly);
  } finally {
    await notifying?.stop();
  }
}

async function play(scene: Scene, fault: Fault, expectOnly?: ExpectOnly): Promise<void> {
  const { tally, settle } = scene;
  const wrong = await awaitQuiet(scene);
  const before = new Set((await incidents(scene)).all.map(({ id }) => id));
  const found = new Map<string, Shown>();
  const look = async (): Promise<Shown[]> => {
    const { open, all } = await incidents(scene);
    for (const one of all) if (!before.has(one.id)) found.set(one.id, one);
    return open;
  };
  const want = `${fault.kind} of ${fault.object}`;
  const isComplete = (one: Shown): boolean =>
    textOf(one) === want && (fault.manager === undefined || isBy(one, fault.manager));
  await fault.begin();
  const opened = await awaitSoon(async () => (await look()).some(isComplete), patience);
  if (opened === null) wrong.push(`no incident: ${want} ${fault.manager ?? ''}`);
  const [incident] = [...found.values()].filter(isComplete);
  // What comes later must not be a second incident.
  const later = sleep(settle * 1000);
  if (incident !== undefined) wrong.push(...(await checkEvents(scene, incident, fault.events)));
  await later;
  await look();
  await expectOnly?.(`notified, ${fault.name}`, oneNotification('firing', fault.kind));
  await look();
  const shown = [...found.values()];
  await fault.end();
  const ended = await awaitSoon(async () => (await look()).length === 0, patience);
  if (ended === null) wrong.push('it does not end');
  const { all } = await incidents(scene);
  const own = all.filter(({ id }) => !before.has(id));
  if (own.length !== 1 || own.some((one) => textOf(one) !== want)) {
    wrong.push(...[...shown, ...own].map((one) => JSON.stringify(one)));
  }
  const times = `${(opened ?? NaN).toFixed(1)} s, gone after ${(ended ?? NaN).toFixed(1)} s`;
  report(tally, `incident, ${fault.name}: ${want} after ${times}`, wrong);
  await expectOnly?.(`notified, ${fault.name} ends`, oneNotification('resolved', fault.kind));
}

/** Whether a change of the object to blame was made by a field manager. */
const isBy = ({ objects, changes }: Shown, manager: string): boolean =>
  changes.some((it) => it.manager === manager && objects.some((one) => one.endsWith(it.name)));

// Events.

interface KubernetesEvent {
  readonly metadata: { readonly name: string; readonly uid: string };
  readonly reason: string;
  readonly note: string;
  readonly reportingController: string;
  readonly regarding: { readonly kind: string; readonly name: string };
  readonly series?: { readonly count: number };
}

/** The Events that the auditor has written. */
async function ownEvents({ client }: Pick<Scene, 'client'>): Promise<KubernetesEvent[]> {
  const path = `/apis/events.k8s.io/v1/namespaces/${pausing}/events`;
  const { items } = (await client.call('GET', path)) as { items: KubernetesEvent[] };
  return items.filter((it) => it.reportingController === 'endpoint-auditor');
}

/** What is wrong with the Events of an incident: one for each Service. */
async function checkEvents(scene: Scene, { id, kind }: Shown, services?: number) {
  if (services === undefined) return [];
  // The auditor looks every ten seconds at what it has to write.
  if (services === 0) await sleep(12_000);
  let events: KubernetesEvent[] = [];
  const isThere = async (): Promise<boolean> => {
    events = (await ownEvents(scene)).filter(({ note }) => note.includes(id));
    return events.length >= services;
  };
  await awaitSoon(isThere, patience);
  const names = new Set(events.map(({ regarding }) => `${regarding.kind} ${regarding.name}`));
  const isOne = events.length === services && names.size === services;
  const isRight = events.every(
    ({ reason, regarding }) => reason === reasonOf(kind) && regarding.kind === 'Service',
  );
  if (isOne && isRight) return [];
  const lines = (await scene.get('/metrics')).split('\n');
  const counts = lines.filter((line) => line.startsWith('endpoint_auditor_kubernetes_events'));
  return [`not ${services} Events:`, JSON.stringify(events), ...counts];
}

/** Seconds between two repetitions of an Event. */
const repetition = 1800;

/**
 * An Event that is repeated is patched: its series counts. The recorder runs here, with the account
 * of the auditor and a clock that is set forward, since the auditor waits for half an hour.
 */
async function checkSeries(scene: Scene, kubeconfig: string): Promise<void> {
  const cluster = openCluster({ kubeconfig } as Parameters<typeof openCluster>[0]);
  const { environment } = cluster;
  let ahead = 0;
  const clock = { ...environment, now: () => environment.now() + ahead };
  const name = 'canary-0';
  const path = `/api/v1/namespaces/${pausing}/services/${name}`;
  const { metadata } = (await scene.client.call('GET', path)) as { metadata: { uid: string } };
  const id = 'edited-by-someone.series.1';
  const incident: Partial<Incident> = {
    id,
    kind: 'edited-by-someone',
    object: 'Endpoints',
    severity: 'critical',
    services: new Set([`${pausing}/${name}`]),
  };
  const problems: string[] = [];
  const newRecorder = () =>
    createEventRecorder({
      environment: clock,
      incidents: () => [incident as Incident],
      uidOf: () => metadata.uid,
      instance: 'test',
      onFailure: (reason) => problems.push(reason),
    });
  const seen: string[] = [];
  const run = async (recorder: ReturnType<typeof newRecorder>, until: 'created' | 'repeated') => {
    const stop = new AbortController();
    const running = recorder.run(stop.signal);
    await awaitSoon(() => recorder.counts[until] > 0 || problems.length > 0, patience);
    stop.abort();
    await running;
    const events = (await ownEvents(scene)).filter(({ note }) => note.includes(id));
    seen.push(events.map(({ series }) => `count ${series?.count ?? 'absent'}`).join(', '));
  };
  const recorder = newRecorder();
  await run(recorder, 'created');
  ahead += repetition + 1;
  await run(recorder, 'repeated');
  // Another process finds the Event that the first one has written.
  await run(newRecorder(), 'repeated');
  cluster.close();
  const want = ['count absent', 'count 2', 'count 2'];
  const wrong = seen.join('; ') === want.join('; ') ? problems : [...problems, ...seen];
  report(scene.tally, `Event: written once, then its series is patched: ${seen.join('; ')}`, wrong);
}

// The faults.

async function setState(client: Client, pods: readonly Pod[], state: 'ready' | 'unready') {
  for (const pod of pods) await reportState(client, pod, state);
}

const zoneLabel = 'topology.kubernetes.io/zone';

/** Writes as kubectl does, with a field manager. */
const patchAs = ({ client }: Scene, manager: string, path: string, body: object) =>
  client.call('PATCH', `${path}?fieldManager=${manager}`, body);

/** kube-controller-manager sleeps. */
const stoppedFault = ({ plane, client }: Scene, pods: readonly Pod[]): Fault => ({
  name: 'stopped',
  kind: 'controller-not-writing',
  object: 'kube-controller-manager',
  async begin() {
    await plane.pauseControllerManager();
    await setState(client, pods, 'unready');
  },
  async end() {
    plane.resumeControllerManager();
    await setState(client, pods, 'ready');
  },
});

const zoneFault = (scene: Scene, pods: readonly Pod[]): Fault => {
  const node = '/api/v1/nodes/node-a1';
  const setZone = (zone: string) =>
    patchAs(scene, 'kubectl-label', node, { metadata: { labels: { [zoneLabel]: zone } } });
  return {
    name: 'relabelled',
    kind: 'node-change-unnoticed',
    object: 'Node node-a1',
    manager: 'kubectl-label',
    events: pods.length,
    begin: () => setZone('zone-b'),
    end: () => setZone('zone-a'),
  };
};

const cutFaults = (
  { plane, client }: Scene,
  proxy: Awaited<ReturnType<typeof startProxy>>,
): Fault[] => [
  {
    name: 'cut off',
    kind: 'api-unavailable',
    object: 'API server',
    begin() {
      proxy.hold();
      proxy.cut();
    },
    end() {
      proxy.release();
      proxy.cut();
    },
  },
  {
    name: 'restarted',
    kind: 'api-unavailable',
    object: 'API server',
    begin: () => plane.killApiserver(),
    async end() {
      await plane.startApiserver();
      await awaitSettled(client);
    },
  },
];

const managedBy = 'endpointslice.kubernetes.io/managed-by';
const sliceController = 'endpointslice-controller.k8s.io';

/** The controller notices that a slice is not its own any more, and then cannot sync at all. */
async function sliceFault(scene: Scene, { labels: { app = '' } }: Pod): Promise<Fault> {
  const { client } = scene;
  const path = `/apis/discovery.k8s.io/v1/namespaces/${pausing}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${app}`;
  const { items } = (await client.call('GET', path + query)) as {
    items: { metadata: { name: string } }[];
  };
  const name = items[0]?.metadata.name ?? '';
  const assign = (manager: string) =>
    patchAs(scene, 'kubectl-edit', `${path}/${name}`, {
      metadata: { labels: { [managedBy]: manager } },
    });
  return {
    name: 'slice edited',
    kind: 'edited-by-someone',
    object: `EndpointSlice ${pausing}/${name}`,
    manager: 'kubectl-edit',
    events: 1,
    begin: () => assign('another'),
    async end() {
      await assign(sliceController);
      const annotations = { 'endpoint-auditor-touched': 'now' };
      const service = `/api/v1/namespaces/${pausing}/services/${app}`;
      await client.call('PATCH', service, { metadata: { annotations } });
    },
  };
}

async function endpointsFault(scene: Scene, { labels: { app = '' } }: Pod): Promise<Fault> {
  const path = `/api/v1/namespaces/${pausing}/endpoints/${app}`;
  const { subsets } = (await scene.client.call('GET', path)) as { subsets: unknown };
  return {
    name: 'Endpoints edited',
    kind: 'edited-by-someone',
    object: `Endpoints ${pausing}/${app}`,
    manager: 'kubectl-edit',
    events: 1,
    // Who only removes fields owns none, so that the manager would not be known.
    begin: () =>
      patchAs(scene, 'kubectl-edit', path, { subsets: [{ addresses: [{ ip: '10.99.0.1' }] }] }),
    end: () => patchAs(scene, 'kubectl-edit', path, { subsets }),
  };
}

/** The addresses that each output lists as ready. */
async function readyAddresses({ client }: Scene): Promise<readonly ReadonlySet<string>[]> {
  const [endpoints, slices] = (await Promise.all([
    client.call('GET', `/api/v1/namespaces/${pausing}/endpoints`),
    client.call('GET', `/apis/discovery.k8s.io/v1/namespaces/${pausing}/endpointslices`),
  ])) as [
    { items: { subsets?: { addresses?: { ip: string }[] }[] }[] },
    { items: { endpoints: { addresses: string[]; conditions: { ready: boolean } }[] | null }[] },
  ];
  const subsets = endpoints.items.flatMap((it) => it.subsets ?? []);
  const listed = slices.items.flatMap((it) => it.endpoints ?? []);
  return [
    new Set(subsets.flatMap(({ addresses = [] }) => addresses.map(({ ip }) => ip))),
    new Set(listed.filter((it) => it.conditions.ready).flatMap(({ addresses }) => addresses)),
  ];
}

/** Turns pods not ready and ready again, each when the controllers have written what it was. */
async function keepTurning(scene: Scene, pods: readonly Pod[], signal: AbortSignal): Promise<void> {
  const unready = new Set<Pod>();
  while (!signal.aborted) {
    const outputs = await readyAddresses(scene);
    for (const pod of pods) {
      const [ip = ''] = pod.ips;
      if (!outputs.every((ready) => ready.has(ip) !== unready.has(pod))) continue;
      await reportState(scene.client, pod, unready.has(pod) ? 'ready' : 'unready');
      if (!unready.delete(pod)) unready.add(pod);
    }
    await sleep(500);
  }
}

/** With one request a second, the controllers always have a queue of nearly all Services. */
function slowFault(scene: Scene, pods: readonly Pod[]): Fault {
  const stop = new AbortController();
  let turning = Promise.resolve();
  return {
    name: 'slow',
    kind: 'controller-slow',
    object: 'kube-controller-manager',
    begin() {
      turning = keepTurning(scene, pods, stop.signal);
      // It is reported when the fault ends.
      turning.catch(() => undefined);
    },
    async end() {
      stop.abort();
      await turning;
      // The controllers work off their queue by themselves.
      await awaitSettled(scene.client);
    },
  };
}

/** A Service that prefers its zone; it has another ready pod than the one that is returned. */
async function createCanary(
  client: Client,
  name: string,
  places: ReturnType<typeof addressing>,
): Promise<Pod> {
  const ips: string[] = [];
  const spec = { ports: [{ port: 80 }], trafficDistribution: 'PreferClose' };
  await createService(client, pausing, { name, spec, pods: { count: 2 } }, (families) => {
    const given = places(families);
    ips.push(...given);
    return given;
  });
  const node = { name: 'node-a1', zone: 'zone-a', number: 1 };
  const pod = { namespace: pausing, name: `${name}-0`, node, labels: { app: name } };
  const ports = [{ containerPort: 8080 }];
  return { ...pod, ips: ips.slice(0, 1), state: 'ready', spec: {}, ports };
}

/** Gives the Service of the API server an endpoint, as an API server with a public address does. */
const serveKubernetes = ({ call }: Client): Promise<unknown> =>
  call('POST', '/api/v1/namespaces/default/endpoints', {
    metadata: { name: 'kubernetes' },
    subsets: [{ addresses: [{ ip: '10.0.0.1' }], ports: [{ name: 'https', port: 6443 }] }],
  });

async function createCanaries(client: Client, count: number): Promise<Pod[]> {
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: pausing } });
  const places = addressing(3);
  const pods: Pod[] = [];
  for (let index = 0; index < count; index++) {
    pods.push(await createCanary(client, `canary-${index}`, places));
  }
  await awaitSettled(client);
  return pods;
}

/** What changes within a minute of an event of its Service may be late work of the controller. */
const lateWrite = 65;

/** Prometheus and Alertmanager for the auditor at a port. */
const notifyingAt =
  (folder: string, port: number, tally: Tally) => async (): Promise<Notifying> => {
    const own = mkdtempSync(join(folder, 'alerting-'));
    const arrivals = await startAlerting(own, { plane: port }, advisedRouting());
    return { expectOnly: createExpectation(arrivals, tally), stop: arrivals.stop };
  };

/** Faults of the control plane; `long`: with those of the long form. */
export async function testIncidents(
  plane: ControlPlane,
  long: boolean,
  tally: Tally,
): Promise<void> {
  const folder = join(plane.directory, 'auditor');
  mkdirSync(folder);
  const client = clientOf(plane);
  const proxy = await startProxy(plane.server);
  const running: { auditor: Auditor | null } = { auditor: null };
  try {
    await createNodes(client);
    await awaitSettled(client);
    const { kubeconfig } = await createAccount(plane, client, folder, proxy.server);
    await permitEvents(client);
    await serveKubernetes(client);
    const pods = await createCanaries(client, long ? 30 : 4);
    const settle = long ? settleWindow.long : settleWindow.short;
    const start = async (...more: string[]): Promise<Scene> => {
      await running.auditor?.stop();
      const auditor = await startAuditor({ kubeconfig, folder, settle, more });
      running.auditor = auditor;
      const get = async (path: string): Promise<string> =>
        (await fetch(auditor.base + path, { signal: AbortSignal.timeout(30_000) })).text();
      await awaitSoon(async () => (await auditor.notReady()) === null, patience);
      const scene = { plane, client, get, tally, settle };
      const port = Number(new URL(auditor.base).port);
      return long ? { ...scene, notify: notifyingAt(folder, port, tally) } : scene;
    };
    await testFaults(start, pods, kubeconfig, proxy);
  } catch (error) {
    say(running.auditor?.tail() ?? '');
    throw error;
  } finally {
    await running.auditor?.stop();
    proxy.close();
    client.close();
  }
}

async function testFaults(
  start: (...more: string[]) => Promise<Scene>,
  pods: readonly Pod[],
  kubeconfig: string,
  proxy: Awaited<ReturnType<typeof startProxy>>,
): Promise<void> {
  const first = await start();
  const [edited, ...others] = pods;
  if (edited === undefined) throw new Error('No pod');
  // Written without the flag, an Event would be there by the end of this.
  await check(first, { ...stoppedFault(first, others), events: 0 });
  const scene = await start('--events');
  await check(scene, zoneFault(scene, pods));
  for (const fault of cutFaults(scene, proxy)) await check(scene, fault);
  await check(scene, await sliceFault(scene, edited));
  await checkSeries(scene, kubeconfig);
  if (scene.notify === undefined) return;
  // The faults before this woke the controllers for all Services.
  await sleep(lateWrite * 1000);
  await check(scene, await endpointsFault(scene, others[0] ?? edited));
  const { plane, client } = scene;
  await plane.restartControllerManager(['--kube-api-qps=1', '--kube-api-burst=1']);
  await awaitSettled(client);
  await check(scene, slowFault(scene, pods));
}

/** Rules of kube-proxy that are deleted on a node. */
const testIncidentsOnNodes = (plane: ControlPlane, tally: Tally): Promise<void> =>
  withNodes(plane, ['iptables'], async (all) => {
    const { client, nodes, outside, targets } = all;
    await serveKubernetes(client);
    await awaitSettled(client);
    const [of] = nodes;
    const fault = of && nodeFaults[of.mode].find(({ name }) => name === 'nat flushed');
    if (of === undefined || fault === undefined) throw new Error('No such fault');
    report(tally, 'incidents: the node is audited', await awaitConform(all, patience));
    const rules = rulesOf(of);
    const port = await freePort();
    const carrier = await carry(`127.0.0.1:${port}`, outside.socket);
    const notify = notifyingAt(plane.directory, port, tally);
    try {
      await check(
        { plane, client, get: outside.get, tally, settle: settleWindow.short, notify },
        {
          name: fault.name,
          kind: 'node-rules-lost',
          object: `Node ${of.node}`,
          begin: () => fault.begin({ client, of, targets }),
          end: () => putBack(of, rules),
        },
      );
    } finally {
      carrier.close();
    }
  });

/** The long form, on control planes of its own. */
async function testAll(): Promise<void> {
  const tally: Tally = { passed: 0, failed: 0 };
  const tests = [
    (plane: ControlPlane) => testIncidents(plane, true, tally),
    (plane: ControlPlane) => testIncidentsOnNodes(plane, tally),
  ];
  for (const test of tests) {
    const plane = await startControlPlane();
    try {
      await test(plane);
    } catch (error) {
      report(tally, 'incidents', [textOfError(error)]);
    } finally {
      await plane.stop();
    }
  }
  say(`${tally.passed} passed, ${tally.failed} failed`);
  process.exitCode = tally.failed > 0 ? 1 : 0;
}

if (import.meta.main) await testAll();
