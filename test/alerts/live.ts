// The alerts on what controllers write, on a real control plane that is audited live:
//
//   churn     hundreds of pods change all the time: no alert
//   faults    the controllers sleep, and every class of fault of the end-to-end test is made that
//             has an alert, with what makes slices many, objects large and changes costly
//   lateness  the controllers put off what they write for longer than the objective allows

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { newestVersion } from '../controlplane/binaries.ts';
import {
  awaitSettled,
  clientOf,
  createAccount,
  liveFlags,
  startControlPlane,
} from '../controlplane/controlplane.ts';
import type { Auditor, Tally } from '../controlplane/auditor.ts';
import {
  awaitSoon,
  report,
  say,
  secondsSince,
  startAuditor,
  startProxy,
  textOfError,
} from '../controlplane/auditor.ts';
import { carry } from '../controlplane/inside.ts';
import type { Churn } from '../controlplane/churn.ts';
import { populate, startChurn } from '../controlplane/churn.ts';
import type { Client, ControlPlane } from '../controlplane/controlplane.ts';
import type { Fleet } from '../controlplane/cluster.ts';
import { createMembersOf, createNodesOf } from '../controlplane/cluster.ts';
import { createFaulty, injectedFor } from '../controlplane/injected.ts';
import type { Injected, Undo } from '../controlplane/faults.ts';
import {
  managedBy,
  namespace,
  planOf,
  serviceName,
  sliceNamed,
  slicesIn,
} from '../controlplane/faults.ts';
import type { Nodes, NodeSpace, Scene } from '../controlplane/nodes.ts';
import {
  awaitConform,
  nodeFaults,
  putBack,
  rulesOf,
  setEndpoints,
  whyNoNamespaces,
  withNodes,
} from '../controlplane/nodes.ts';
import { endProgram, freePort } from '../processes.ts';
import type { Arrivals, Expected, Notice, Rule, Theatre } from './alertmanager.ts';
import {
  advised,
  alerts,
  checkReplayed,
  codesOf,
  holdOf,
  isOnIncident,
  play,
  replay,
  replayed,
  shorter,
  speed,
  startAlerting,
  until,
} from './alertmanager.ts';

/** Enough Nodes to make a change of a large slice costly. */
const size = { services: 72, pods: 600, nodes: 150 };

/** Seconds of the settle window: longer than what is put off. */
const settle = 15;
const putOff = 11;

/** Changes a second. */
const rate = 12;

const within = `/api/v1/namespaces/${namespace}`;

// --- what the end-to-end test does not make, since it is no finding above information ---

/** More slices than would do: those that are too many hold nothing. */
const fragmented: Injected = {
  namespace,
  plan: planOf('fragmented', {}),
  finds: [],
  async spoil({ call }) {
    const { addressType, ports, metadata } = await sliceNamed({ call } as Client, 'fragmented');
    const { labels, ownerReferences } = metadata;
    const names = Array.from({ length: 80 }, (_, index) => `fragmented-${index}`);
    for (const name of names) {
      const copy = { metadata: { name, labels, ownerReferences }, addressType, ports };
      await call('POST', slicesIn, { ...copy, endpoints: [] });
    }
    return async () => {
      for (const name of names) await call('DELETE', `${slicesIn}/${name}`);
    };
  },
};

/** It asks for topology hints, and has too few endpoints for them. */
const unhinted: Injected = {
  namespace,
  plan: planOf('unhinted', { pods: { count: 2, states: ['ready'] } }),
  finds: [],
  async spoil({ call }) {
    const path = `${within}/services/unhinted`;
    const ask = (value: string | null): Promise<unknown> =>
      call('PATCH', path, {
        metadata: { annotations: { 'service.kubernetes.io/topology-mode': value } },
      });
    await ask('Auto');
    return () => ask(null);
  },
};

/** As many endpoints as a slice may have, each with a long reference. */
const longEndpoints = Array.from({ length: 1000 }, (_, index) => ({
  addresses: [`192.0.${2 + (index >> 8)}.${index & 255}`],
  targetRef: { kind: 'Machine', name: 'x'.repeat(1300) },
}));

/** A slice almost as large as can be, which is changed all the time. */
const large: Injected = {
  namespace,
  plan: { name: 'large', spec: { ports: [{ port: 80 }] } },
  finds: [],
  async spoil({ call }) {
    const labels = { [serviceName]: 'large', [managedBy]: 'somebody.example.com' };
    await call('POST', slicesIn, {
      metadata: { name: 'large-1', labels },
      addressType: 'IPv4',
      ports: [{ name: '', port: 80 }],
      endpoints: longEndpoints,
    });
    let isOver = false;
    const changing = async (): Promise<void> => {
      for (let turn = 0; !isOver; turn++) {
        const annotations = { turn: String(turn) };
        await call('PATCH', `${slicesIn}/large-1`, { metadata: { annotations } });
        await sleep(1000);
      }
    };
    const ended = changing();
    return async () => {
      isOver = true;
      await ended;
      await call('DELETE', `${slicesIn}/large-1`);
    };
  },
};

const measured: readonly Expected[] = [
  { alertname: 'EndpointsTwoManagers', code: 'managers-several' },
  { alertname: 'EndpointsAndSlicesDisagree' },
  { alertname: 'EndpointsTruncated' },
  { alertname: 'EndpointsObjectNearSizeLimit', resource: 'endpointslices' },
  { alertname: 'EndpointsWatchTrafficHigh' },
  { alertname: 'EndpointsSlicesFragmented' },
  { alertname: 'EndpointsHintsMissing', mode: 'auto', reason: 'few-endpoints' },
  { alertname: 'EndpointsNoneUsable', reason: 'ready_pods_not_listed' },
];

const stuck: Expected = { alertname: 'EndpointsControllerStuck' };
const burn: Expected = { alertname: 'EndpointsLagBudgetBurn' };
/** Services that ask for hints are scaled too, to where zones cannot share: that is true. */
const overload: Expected = { alertname: 'EndpointsHintsMissing', reason: 'overload' };
/** Once zones can share again, hints come back with the next write, which is put off. */
const lateHints: Expected = { alertname: 'EndpointsHintsMissing', reason: 'none' };

// --- faults ---

const codeOf = (found: string): string => found.slice(found.indexOf(' ') + 1);

/** One alert for each kind of finding, and the alerts that need no finding. */
function faults(): readonly Injected[] {
  const kinds = new Map<string, Injected>();
  for (const injected of injectedFor(newestVersion, false)) {
    const isForeign = injected.plan.name === 'slice-of-another-manager';
    const truncates = injected.plan.name === 'endpoints-over-capacity-annotation-uncalled-for';
    const kind = isForeign || truncates ? injected.plan.name : injected.finds.join();
    if (kind !== '' && !kinds.has(kind)) kinds.set(kind, injected);
  }
  return [large, fragmented, unhinted, ...kinds.values()];
}

function alertsOn(all: readonly Injected[]): Expected[] {
  const codes = new Set(all.flatMap(({ finds }) => finds.map(codeOf)));
  return [...codes].flatMap((code) =>
    alerts
      .filter((rule) => codesOf(rule).includes(code))
      .map(({ alert = '' }) => ({ alertname: alert, code })),
  );
}

interface Live {
  readonly theatre: Theatre;
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly fleet: Fleet;
}

/** Longer than any alert must hold, and longer than what it looks back at in ordinary times. */
const ordinary = shorter(3 * 86_400);

async function checkChurn({ theatre, client, fleet }: Live): Promise<void> {
  const begin = async (): Promise<void> => {
    const churn = startChurn({ client, fleet, rate, seed: 1 });
    await sleep(ordinary * 1000);
    await end(churn);
  };
  await play(theatre, {
    title: `${rate} changes a second`,
    expected: [],
    allowed: [overload],
    begin,
  });
}

async function end(churn: Churn): Promise<void> {
  await churn.stop();
  const error = churn.error();
  if (error !== null) throw error;
}

async function checkFaults({ theatre, plane, client }: Live): Promise<void> {
  const all = faults();
  await createFaulty(client, all);
  const undo: Undo[] = [];
  const begin = async (): Promise<void> => {
    await plane.pauseControllerManager();
    // None must have been written for so long.
    await sleep(shorter(600) * 1000);
    for (const { spoil } of all) {
      undo.push(await spoil(client));
      await sleep(400);
    }
  };
  const repair = async (): Promise<void> => {
    await Promise.all(undo.map((one) => one()));
    plane.resumeControllerManager();
    await awaitSettled(client);
  };
  const expected = [...alertsOn(all), ...measured, { ...stuck, output: 'endpointslices' }];
  const allowed = [stuck, burn, overload];
  await play(theatre, { title: 'faults', expected, allowed, begin, repair });
}

async function checkLateness({ theatre, plane, client, fleet }: Live): Promise<void> {
  const churn = startChurn({ client, fleet, rate, seed: 2 });
  const flags = ['endpoint', 'endpointslice'].map(
    (name) => `--${name}-updates-batch-period=${putOff}s`,
  );
  const windows = alerts.flatMap(({ labels = {} }) => labels.long ?? []);
  const expected = ['endpoints', 'endpointslices'].flatMap((output) =>
    windows.map((long) => ({ ...burn, output, long })),
  );
  await play(theatre, {
    title: `controllers put off their work for ${putOff} s`,
    expected,
    // Ten minutes are 12 s here: hardly longer than what is put off.
    allowed: [stuck, overload, lateHints],
    begin: () => plane.restartControllerManager(flags),
    repair: () => plane.restartControllerManager(),
  });
  await end(churn);
}

/** `port`: where the auditor is to be found. */
async function checkControllers(theatre: Theatre, port: number): Promise<void> {
  const plane = await startControlPlane({ version: newestVersion, ...liveFlags });
  const client = clientOf(plane);
  const folder = join(plane.directory, 'auditor');
  mkdirSync(folder);
  let auditor: Auditor | null = null;
  try {
    const fleet = await populate(plane, client, size);
    const { kubeconfig } = await createAccount(plane, client, folder);
    const running = (auditor = await startAuditor({ kubeconfig, folder, settle }));
    const carrier = await carry(`127.0.0.1:${port}`, new URL(running.base).host);
    await awaitSoon(async () => (await running.notReady()) === null, 60);
    const live = { theatre, plane, client, fleet };
    await checkChurn(live);
    await checkFaults(live);
    await checkLateness(live);
    carrier.close();
  } finally {
    await auditor?.stop();
    client.close();
    await plane.stop();
  }
}

// The alerts on nodes and on an auditor that cannot see. A real kube-proxy writes rules in a
// network namespace, which an agent reads there, and is asked by the auditor; another auditor is
// cut off from the API server. Needs root.

const broken = { alertname: 'EndpointsNodeRulesBroken' };
const diverges = { alertname: 'EndpointsNodesDiverge' };
const unknown = { alertname: 'EndpointAuditorUnknownShareHigh' };

function faultOf({ of }: Scene, name: string) {
  const fault = nodeFaults[of.mode].find((one) => one.name === name);
  if (fault === undefined) throw new Error(`There is no fault ${name}`);
  return fault;
}

/** Services change now and then, longer than any alert must hold. */
async function change(scene: Scene): Promise<void> {
  const until = performance.now() + 1000 * shorter(3 * 86_400);
  for (let turn = 0; performance.now() < until; turn++) {
    await setEndpoints(scene, scene.targets.slice(turn % 10, (turn % 10) + 1), 2 + (turn % 2));
    await sleep(2500);
  }
}

/** `blind`: the part with the auditor that is cut off, which audits the same cluster. */
async function checkNode(theatre: Theatre, scene: Scene, blind: Promise<void>): Promise<void> {
  const { of } = scene;
  const begin = (): Promise<void> => change(scene);
  await play(theatre, { title: 'Services change', expected: [], begin });
  const rules = rulesOf(of);
  await play(theatre, {
    title: 'all of nat is flushed',
    expected: [broken, diverges],
    begin: async () => faultOf(scene, 'nat flushed').begin(scene),
    repair() {
      putBack(of, rules);
      return Promise.resolve();
    },
  });
  const stopped = faultOf(scene, 'kube-proxy stopped');
  await play(theatre, {
    title: 'kube-proxy hangs',
    expected: [{ alertname: 'EndpointsNodeStale' }, diverges],
    begin: async () => stopped.begin(scene),
    repair: async () => stopped.end?.(scene),
  });
  // Both auditors would report the version.
  await blind;
  const report = (kubeletVersion: string) => async () => {
    const status = { nodeInfo: { kubeletVersion } };
    await scene.client.call('PATCH', `/api/v1/nodes/${of.node}/status`, { status });
  };
  await play(theatre, {
    title: 'a kubelet is newer than every known release',
    expected: [{ alertname: 'EndpointAuditorReleaseNotVerified' }],
    begin: report('v1.999.0'),
    repair: report(newestVersion),
  });
  const signal = (name: NodeJS.Signals) => () => Promise.resolve(of.agent.child.kill(name));
  await play(theatre, {
    title: 'the agent hangs',
    expected: [{ alertname: 'EndpointAuditorAgentMissing', state: 'stale' }, unknown],
    begin: signal('SIGSTOP'),
    repair: signal('SIGCONT'),
  });
}

/** An auditor with a wire of its own, which is cut; nothing changes meanwhile. */
async function checkBlind(theatre: Theatre, plane: ControlPlane, port: number): Promise<void> {
  const folder = join(plane.directory, 'nodes');
  const proxy = await startProxy(plane.server);
  const kubeconfig = join(folder, 'wired');
  const direct = readFileSync(plane.kubeconfig, 'utf8');
  writeFileSync(kubeconfig, direct.replace(plane.server, proxy.server));
  const auditor = await startAuditor({ kubeconfig, folder, settle: 5 });
  let carrier: Awaited<ReturnType<typeof carry>> | null = null;
  try {
    carrier = await carry(`127.0.0.1:${port}`, new URL(auditor.base).host);
    await awaitSoon(async () => (await auditor.notReady()) === null, 60);
    await play(theatre, {
      title: 'nothing comes through',
      expected: [
        { alertname: 'EndpointAuditorNotReady' },
        { alertname: 'EndpointAuditorDisconnected' },
        ...['pods', 'services', 'nodes', 'endpoints', 'endpointslices'].map((resource) => ({
          alertname: 'EndpointAuditorWatchStale',
          resource,
        })),
        { ...unknown, output: 'endpoints' },
        { ...unknown, output: 'endpointslices' },
      ],
      begin() {
        proxy.hold();
        proxy.cut();
        return Promise.resolve();
      },
      repair() {
        proxy.release();
        return Promise.resolve();
      },
    });
  } finally {
    await auditor.stop();
    carrier?.close();
    proxy.close();
  }
}

/** Services with pods on the node, so that there is something to be blind to. */
async function createServices(client: Client, node: NodeSpace): Promise<void> {
  const size = { services: 10, pods: 30, nodes: 0 };
  const fleet = await createNodesOf(client, size);
  fleet.nodes.push({ name: node.node, zone: 'zone-a', number: 200 });
  await createMembersOf(client, fleet, size);
  await awaitSettled(client);
}

/** `ports`: where the two auditors are to be found. */
async function checkNodes(
  theatres: { readonly nodes: Theatre; readonly blind: Theatre },
  ports: { readonly nodes: number; readonly blind: number },
): Promise<void> {
  const plane = await startControlPlane({ version: newestVersion });
  const use = async (all: Omit<Nodes, 'tally'>): Promise<void> => {
    const { client, nodes, outside, targets } = all;
    const [of] = nodes;
    if (of === undefined) throw new Error('There is no node');
    await createServices(client, of);
    const carrier = await carry(`127.0.0.1:${ports.nodes}`, outside.socket);
    try {
      const late = await awaitConform(all, 60);
      if (late.length > 0) throw new Error(late.join('\n'));
      const blind = checkBlind(theatres.blind, plane, ports.blind);
      await Promise.all([checkNode(theatres.nodes, { client, of, targets }, blind), blind]);
    } finally {
      carrier.close();
    }
  };
  try {
    await withNodes(plane, ['iptables'], use);
  } finally {
    await plane.stop();
  }
}

// The alerts before a real Prometheus and a real Alertmanager: `npm run alerts`. Each arrives for
// its fault and is resolved by the repair, and none arrives in ordinary times. At once:
//
//   replayed     (replayed.ts) a recording, with what happened in it
//   controllers  (controllers.ts) a real control plane, with the faults of the end-to-end test
//   nodes        (nodes.ts) a real kube-proxy and an agent, whose rules are broken
//   blind        (nodes.ts) an auditor that is cut off
//
// Last all auditors go away, and one comes back; then every alert of alerts/ must have been seen.

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

/** Alerts that only promtool tests, and why. */
const unplayed: Readonly<Record<string, string>> = {
  EndpointsFindingsFlapping: 'findings would have to open and resolve for an hour',
  EndpointAuditorShardAbsent: 'no auditor here is a shard, which needs a live cluster',
};

function checkAll(arrivals: Arrivals, isWhole: boolean): void {
  const isPlayed = ({ alert = '' }: Rule): boolean =>
    !(alert in unplayed) && !isOnIncident({ alertname: alert });
  const played = alerts.filter(isPlayed);
  const unseen = played.filter((rule) => !isSeen(arrivals, rule));
  const incidents = arrivals.notices
    .map(({ labels }) => labels)
    .filter(isOnIncident)
    .map(({ alertname = '' }) => alertname);
  say(`     Incidents: ${[...new Set(incidents)].join(', ')}`);
  const names = unseen.map(({ alert = '', labels = {} }) => `${alert} ${labels.long ?? ''}`.trim());
  if (isWhole) report(tally, `all ${played.length} alerts have arrived and been resolved`, names);
  else say(`     Not seen: ${names.join(', ')}`);
  const unfinished = arrivals.notices.filter(({ annotations }) =>
    Object.values(annotations).some((text) => /\{\{|<no value>|error expanding/.test(text)),
  );
  const wrong = unfinished.map(({ labels }) => labels.alertname ?? '');
  report(tally, 'texts are whole', [...new Set(wrong)]);
}

/** What the runbook advises for Alertmanager is a configuration that it takes. */
function checkAdvice(folder: string): void {
  const receivers = ['team', 'low-priority'].map((name) => ({ name }));
  const file = join(folder, 'advised.yml');
  writeFileSync(file, JSON.stringify({ ...advised(), receivers }));
  const { status, stdout, stderr } = spawnSync('amtool', ['check-config', file]);
  const said = `${stdout.toString()}${stderr.toString()}`;
  const isTaken = status === 0 && said.includes('9 inhibit rules');
  report(tally, 'the configuration that the runbook advises is taken', isTaken ? [] : [said]);
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
  checkAdvice(folder);
  const isWhole = await checkParts(arrivals, ports);
  await goAwayAndComeBack(arrivals, ports.replayed);
  checkAll(arrivals, isWhole);
} finally {
  await arrivals.stop();
  rmSync(folder, { recursive: true, force: true });
}
say(`${tally.passed} passed, ${tally.failed} failed in ${Math.round(secondsSince(begun))} s`);
process.exitCode = tally.failed === 0 ? 0 : 1;
