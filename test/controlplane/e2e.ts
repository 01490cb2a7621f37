// The end-to-end test of dumps: starts a real control plane, creates a small cluster in it, takes
// dumps as kubectl writes them and runs the real command line on them:
//
//   settled   what the real controllers left behind has no finding above information
//   faults    with the controllers asleep, one object is spoilt: exactly the findings that it must
//             make, and none once it is undone
//   awake     a pod goes while they sleep; once they are awake again, they put it right

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { parseDuration } from '../../src/commands/shared/flag-values.ts';
import type { Auditor, Output, Stage, Tally } from './auditor.ts';
import {
  awaitSoon,
  awaitWritten,
  createCanary,
  isFollowed,
  loudSince,
  measureLags,
  outputs,
  pausing,
  program,
  report,
  say,
  secondsSince,
  startAuditor,
  startProxy,
  textOfError,
} from './auditor.ts';
import type { Version } from './binaries.ts';
import { newestVersion, versions } from './binaries.ts';
import { checkChaos, shrinkChaos, testChaos } from './chaos.ts';
import { storeFlags } from './chaos/history.ts';
import { callWitness } from './chaos/oracle.ts';
import { disturb, populate, startChurn } from './churn.ts';
import type { Fleet, Size } from './cluster.ts';
import { addressing, createCluster, createNodes, deletePod, reportState } from './cluster.ts';
import type { Client, ControlPlane, Options } from './controlplane.ts';
import {
  awaitSettled,
  clientOf,
  createAccount,
  liveFlags,
  startControlPlane,
  takeDump,
} from './controlplane.ts';
import { faults, inject } from './faults.ts';
import { testHistory } from './history.ts';
import { testIncidents } from './incidents.ts';
import { checkFaults } from './injected.ts';
import { testNodes, whyNoNamespaces } from './nodes.ts';

/** What is read of a report. */
interface Report {
  readonly findings: readonly {
    readonly code: string;
    readonly severity: string;
    readonly output: string;
    readonly namespace: string;
    readonly service: string;
    readonly object: string;
    readonly expected: string | null;
    readonly actual: string | null;
  }[];
  readonly services: number;
}

interface Expected {
  readonly exit: number;
  /** `namespace/service output code` of every finding above information, in order. */
  readonly finds: readonly string[];
}

const conform: Expected = { exit: 0, finds: [] };

interface Session {
  readonly plane: ControlPlane;
  readonly client: Client;
  /** Where dumps go. */
  readonly folder: string;
  readonly keep: boolean;
  readonly tally: Tally;
}

/** Runs the command line on a dump; the exit code null says that it was killed. */
async function audit(file: string, version: Version) {
  const args = [program, 'audit', file, '-o', 'json', '--kubernetes-version', version];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const [out, err] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ]);
  return { exit: child.exitCode, out, err };
}

/** What is wrong with an audit of the cluster as it is now; empty when nothing is. */
async function auditProblems(session: Session, file: string, want: Expected): Promise<string[]> {
  const dump = await takeDump(session.client);
  writeFileSync(file, dump.text);
  const { exit, out, err } = await audit(file, session.plane.version);
  // A program that does not even start ends with 1 as well, but without a report.
  if ((exit !== 0 && exit !== 1) || out === '') return [`exit ${String(exit)}`, err];
  const report = JSON.parse(out) as Report;
  const loud = report.findings.filter(({ severity }) => severity !== 'info');
  const found = loud
    .map(({ namespace, service, output, code }) => `${namespace}/${service} ${output} ${code}`)
    .sort();
  const services = dump.counts.get('Service') ?? 0;
  const wrong: string[] = [];
  if (exit !== want.exit) wrong.push(`exit ${exit}, not ${want.exit}`);
  if (report.services !== services)
    wrong.push(`${report.services} of ${services} Services audited`);
  if (found.join('\n') !== want.finds.join('\n')) {
    wrong.push(`expected ${want.finds.join(', ') || 'no finding'}; found:`);
    for (const one of loud) wrong.push(JSON.stringify(one));
  }
  return wrong;
}

/** One check: a dump, an audit, a line. */
async function check(session: Session, title: string, want: Expected): Promise<void> {
  const { tally } = session;
  const number = tally.passed + tally.failed + 1;
  const file = join(session.folder, `dump-${String(number).padStart(2, '0')}.json`);
  const wrong = await auditProblems(session, file, want);
  const where = session.keep ? ` (${file})` : '';
  const found = want.finds.length === 0 ? '' : `: ${want.finds.join(', ')}`;
  report(tally, `${title}${found}${where}`, wrong);
}

async function checkDumpsWithFaults(session: Session): Promise<void> {
  for (const fault of faults) {
    const undo = await inject(session.client, fault);
    await check(session, fault.title, { exit: 1, finds: fault.finds });
    await undo();
    await check(session, `${fault.title}, undone`, conform);
  }
}

/** A pod that is gone for good: only the controllers can put that right. */
async function checkAwake(session: Session): Promise<void> {
  const { plane, client } = session;
  const title = 'pod of shop/search: gone, and no client wrote it';
  const now = { kind: 'DeleteOptions', apiVersion: 'v1', gracePeriodSeconds: 0 };
  await client.call('DELETE', '/api/v1/namespaces/shop/pods/search-7', now);
  await check(session, title, {
    exit: 1,
    finds: [
      'shop/search endpoints endpoints-address-unexpected',
      'shop/search endpointslices slice-endpoint-unexpected',
    ],
  });
  plane.resumeControllerManager();
  await awaitSettled(client);
  await check(session, `${title}, put right by the controllers`, conform);
}

async function checkAllDumps(session: Session): Promise<void> {
  const { plane, client } = session;
  const begun = performance.now();
  await createCluster(client, plane.version);
  await awaitSettled(client);
  const { counts } = await takeDump(client);
  const kinds = [...counts]
    .map(([kind, count]) => `${kind} ${count}`)
    .sort()
    .join(', ');
  say(`     ${kinds}; settled after ${secondsSince(begun).toFixed(1)} s`);
  await check(session, 'settled', conform);
  await plane.pauseControllerManager();
  await checkDumpsWithFaults(session);
  await checkAwake(session);
}

/** `keep`: the folder where the dumps stay; null: they are deleted. */
async function testDumps(plane: ControlPlane, keep: string | null, tally: Tally): Promise<void> {
  const folder = keep === null ? plane.directory : join(keep, plane.version);
  mkdirSync(folder, { recursive: true });
  const client = clientOf(plane);
  try {
    await checkAllDumps({ plane, client, folder, keep: keep !== null, tally });
  } finally {
    client.close();
  }
}

// Lags on a control plane of their own, against the clock of the test: what the controllers take
// when they sleep, and what upstream cannot measure.
//
//   sleep     (auditor.ts) the controllers sleep for 5, 20 and 40 s
//   removal   pods are deleted, gracefully and at once, which clears upstream's trigger time
//   restart   the controllers are restarted while a pod changes; upstream's trigger time is then as
//             old as the Service, and must not be measured

/** What a lag may be wrong by; a pod's own time is whole seconds, cut. */
const tolerance = 0.5;
const resolution = 1;

/** Seconds of the settle window. */
const lagSettle = 5;

type Figures = Readonly<Record<string, number>>;

/** Counts and sums of lag, by family and output. */
async function figures({ auditor }: Stage): Promise<Figures> {
  const found: Record<string, number> = {};
  for (const output of outputs) {
    for (const family of ['convergence_lag_seconds', 'removal_lag_seconds']) {
      for (const part of ['count', 'sum']) {
        const key = `${family}_${part}`;
        found[`${key} ${output}`] = await auditor.metric(key, { output });
      }
    }
    const resource = output;
    found[`trigger ${output}`] = await auditor.metric('trigger_lag_seconds_sum', { resource });
    const quality = 'restarted';
    found[`restarted ${output}`] = await auditor.metric('trigger_times_total', {
      resource,
      quality,
    });
  }
  return found;
}

/** What a figure rose by. */
const rise = (was: Figures, now: Figures, key: string): number => (now[key] ?? 0) - (was[key] ?? 0);

/** Seconds until both outputs list no ready endpoint of a Service. */
async function followed(stage: Stage, name: string): Promise<Readonly<Record<Output, number>>> {
  const begun = performance.now();
  const [endpoints = 0, endpointslices = 0] = await Promise.all(
    outputs.map(async (output) => {
      await awaitSoon(() => isFollowed(stage, output, name), 60);
      return secondsSince(begun);
    }),
  );
  return { endpoints, endpointslices };
}

/** Whether a slice of this Service still has upstream's trigger time. */
async function isStamped({ client }: Stage, name: string): Promise<boolean> {
  const path = `/apis/discovery.k8s.io/v1/namespaces/${pausing}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${name}`;
  const { items } = (await client.call('GET', path + query)) as {
    items: { metadata: { annotations?: Readonly<Record<string, string>> } }[];
  };
  const key = 'endpoints.kubernetes.io/last-change-trigger-time';
  return items.some(({ metadata: { annotations } }) => annotations?.[key] !== undefined);
}

/** Pods are deleted while the controllers sleep for three seconds. */
async function checkRemovals(stage: Stage): Promise<void> {
  const { plane, client, tally } = stage;
  const places = addressing(4);
  for (const now of [false, true]) {
    const name = now ? 'deleted-at-once' : 'deleted-gracefully';
    const pod = await createCanary(stage, name, places);
    await awaitWritten(stage);
    const was = await figures(stage);
    await plane.pauseControllerManager();
    const begun = performance.now();
    await deletePod(client, pod, now);
    await sleep(3000);
    plane.resumeControllerManager();
    const slept = secondsSince(begun);
    const after = await followed(stage, name);
    await sleep(1000);
    const rose = await figures(stage);
    const wrong: string[] = [];
    for (const output of outputs) {
      const want = slept + after[output];
      const count = rise(was, rose, `removal_lag_seconds_count ${output}`);
      const seconds = rise(was, rose, `removal_lag_seconds_sum ${output}`);
      if (count !== 1) wrong.push(`${output}: ${count} samples, not 1`);
      if (seconds < want - tolerance || seconds > want + tolerance + resolution) {
        wrong.push(`${output}: ${seconds} s, not ${want} s`);
      }
    }
    if (await isStamped(stage, name)) wrong.push('the trigger time was not cleared');
    report(tally, `removal lag, ${name}: measured, though the trigger time is cleared`, wrong);
  }
}

/** Seconds after which a trigger time that is the creation of the Service is taken for old. */
const old = 60;

async function checkRestart(stage: Stage): Promise<void> {
  const { plane, client, tally } = stage;
  const name = 'restarted';
  const pod = await createCanary(stage, name, addressing(5));
  await awaitWritten(stage);
  await sleep((old + 5) * 1000);
  // A first trigger time may be the creation of the Service, too: let both outputs have another.
  await reportState(client, pod, 'unready');
  await followed(stage, name);
  await reportState(client, pod, 'ready');
  await awaitWritten(stage);
  const was = await figures(stage);
  // A process that has not seen the Service before writes what changed while none was there.
  await plane.killControllerManager();
  const begun = performance.now();
  await reportState(client, pod, 'unready');
  await plane.restartControllerManager();
  const waited = secondsSince(begun);
  const after = await followed(stage, name);
  await sleep(1000);
  const now = await figures(stage);
  const wrong: string[] = [];
  for (const output of outputs) {
    if (rise(was, now, `restarted ${output}`) < 1) wrong.push(`${output}: none is restarted`);
    const trigger = rise(was, now, `trigger ${output}`);
    if (trigger > old) wrong.push(`${output}: trigger lag rose by ${trigger} s`);
    const want = waited + after[output];
    const seconds = rise(was, now, `convergence_lag_seconds_sum ${output}`);
    // Awaiting the restart may have hidden when the output was written; no more than that.
    if (seconds > want + tolerance) wrong.push(`${output}: late by ${seconds} s, not ${want} s`);
    if (seconds === 0) wrong.push(`${output}: no convergence lag`);
  }
  report(tally, 'restart of the controllers: no trigger time as old as its Service', wrong);
}

async function testLags(plane: ControlPlane, tally: Tally): Promise<void> {
  const folder = join(plane.directory, 'auditor');
  mkdirSync(folder);
  const client = clientOf(plane);
  const proxy = await startProxy(plane.server);
  let auditor: Auditor | null = null;
  try {
    // The controllers must receive the nodes before the pods.
    await createNodes(client);
    await awaitSettled(client);
    const account = await createAccount(plane, client, folder, proxy.server);
    auditor = await startAuditor({ kubeconfig: account.kubeconfig, folder, settle: lagSettle });
    const running = auditor;
    const stage: Stage = { plane, client, proxy, account, auditor, settle: lagSettle, tally };
    const ready = async () => (await running.notReady()) === null;
    report(tally, 'ready', (await awaitSoon(ready, 30)) === null ? [running.tail()] : []);
    await measureLags(stage, [5, 20, 40]);
    await checkRemovals(stage);
    await checkRestart(stage);
  } catch (error) {
    say(auditor?.tail() ?? '');
    throw error;
  } finally {
    await auditor?.stop();
    proxy.close();
    client.close();
  }
}

// The end-to-end test of the live auditor: it watches a real control plane with the permissions it
// asks for and no other, while the cluster changes, is spoilt, sleeps and is disturbed. All that is
// looked at is what the program serves.
//
//   churn        hundreds of Services and thousands of pods change all the time: no finding, but of
//                what really lasted, by the log of the store (chaos/oracle.ts)
//   faults       with the controllers asleep, objects are spoilt, a class each: found within the
//                settle window and two seconds, gone within two seconds of the repair
//   lag          the controllers sleep for a while: the lag is measured within half a second
//   disturbances (churn.ts) the API server, etcd, connections and tokens go: no finding

interface LiveOptions {
  /** Seconds. */
  readonly churn: number;
  /** A smaller cluster, shorter pauses. */
  readonly short: boolean;
}

/** Changes a second: what is aimed at, and the least that counts, also on a loaded machine. */
const rate = { aim: 28, least: 10 };

/**
 * Seconds of the settle window, and in which whatever is wrong would be found after it. A
 * controller whose cache is behind tries again after 1, 2 and 4 s, and later where many do; it is
 * not to be found for that.
 */
const liveSettle = 10;
const promise = 2;

const sizes = {
  whole: { services: 300, pods: 3000, nodes: 60 },
  short: { services: 72, pods: 600, nodes: 20 },
} satisfies Record<string, Size>;

async function checkChurn(stage: Stage, fleet: Fleet, seconds: number): Promise<void> {
  const { plane, client, auditor, tally } = stage;
  const from = Date.now() / 1000;
  const begun = performance.now();
  const cpuBefore = auditor.cpuSeconds();
  const samplesBefore = await auditor.metric('convergence_lag_seconds_count');
  const witness = await callWitness(plane);
  const churn = startChurn({ client, fleet, rate: rate.aim, seed: 1 });
  while (secondsSince(begun) < seconds && churn.error() === null) await sleep(100);
  const lasted = secondsSince(begun);
  const cpu = (auditor.cpuSeconds() - cpuBefore) / lasted;
  await churn.stop();
  await awaitSettled(client);
  await sleep((liveSettle + promise) * 1000);
  const changes = [...churn.changes.values()].reduce((sum, count) => sum + count, 0);
  const samples = (await auditor.metric('convergence_lag_seconds_count')) - samplesBefore;
  const found = await loudSince(auditor, from);
  const untrue = await witness.falseOf(found, liveSettle);
  const wrong = [...untrue];
  const error = churn.error();
  if (error !== null) wrong.push(String(error.stack));
  if (changes < rate.least * lasted)
    wrong.push(`only ${(changes / lasted).toFixed(1)} changes a second`);
  if (samples < changes / 10) wrong.push(`only ${samples} samples of lag`);
  const unknown = await auditor.metric('outputs', { verdict: 'unknown' });
  if (unknown !== 0) wrong.push(`${unknown} outputs unknown`);
  const title = `churn: ${changes} changes in ${lasted.toFixed(0)} s, no false finding`;
  report(tally, `${title}, ${found.length - untrue.length} true ones`, wrong);
  const kinds = [...churn.changes].map(([name, count]) => `${name} ${count}`).join(', ');
  say(`     ${kinds}`);
  const mebibytes = (auditor.residentBytes() / 2 ** 20).toFixed(0);
  say(`     ${samples} samples of lag; ${(cpu * 100).toFixed(0)} % of a core, ${mebibytes} MiB`);
}

/** Where the auditor's kubeconfig and log are; both go with the control plane. */
function folderOf({ directory }: ControlPlane): string {
  const folder = join(directory, 'auditor');
  mkdirSync(folder);
  return folder;
}

async function checkAll(stage: Stage, fleet: Fleet, options: LiveOptions): Promise<void> {
  const { auditor, tally, plane } = stage;
  await checkChurn(stage, fleet, options.churn);
  await checkFaults(stage, !options.short);
  const long = options.churn >= 300;
  await measureLags(stage, options.short ? [5] : [5, 20, 40]);
  if (!options.short) await disturb(stage, fleet, long);
  const wrong = auditor.isRunning() ? [] : [auditor.tail()];
  report(tally, `${plane.version}: the auditor still runs`, wrong);
}

async function testLive(plane: ControlPlane, options: LiveOptions, tally: Tally): Promise<void> {
  const folder = folderOf(plane);
  const client = clientOf(plane);
  const proxy = await startProxy(plane.server);
  let auditor: Auditor | null = null;
  try {
    const fleet = await populate(plane, client, options.short ? sizes.short : sizes.whole);
    const account = await createAccount(plane, client, folder, proxy.server);
    auditor = await startAuditor({ kubeconfig: account.kubeconfig, folder, settle: liveSettle });
    const running = auditor;
    const stage: Stage = { plane, client, proxy, account, auditor, settle: liveSettle, tally };
    const ready = async () => (await running.notReady()) === null;
    report(tally, 'ready', (await awaitSoon(ready, 30)) === null ? [running.tail()] : []);
    await checkAll(stage, fleet, options);
  } catch (error) {
    say(auditor?.tail() ?? '');
    throw error;
  } finally {
    await auditor?.stop();
    proxy.close();
    client.close();
  }
}

// The end-to-end test: `npm run e2e`. Runs the auditor against real control planes, on dumps
// and live, all of them above, prints a line for every check and last how many passed.
//
//   --churn 10m      how long the live cluster changes (60s)
//   --version V      only this control plane (several times)
//   --part dumps     only this part: dumps, live, lags, incidents, history or nodes, which needs
//                    root (several times)
//   --keep FOLDER    keeps the dumps, whose names are then printed, and recordings
//   --part chaos --seed 1 --minutes 10 --pods 3000 --services 150 [--with-nodes]
//   --check FOLDER   only checks a run of chaos again that was kept
//   --shrink FILE    only shrinks such a recording to what its replay disagrees with
//
// Without --version: everything on the newest, and a short live test on the oldest release that
// upstream maintains beside it. Ends with 1 if a check failed, and with 2
// if no check ran, or none of a part that --part names. Chaos takes place only if it is asked for.

const tally: Tally = { passed: 0, failed: 0 };

/** Starts a control plane, which is torn down whatever happens. */
async function within(
  options: Options & { readonly version: Version },
  what: string,
  test: (plane: ControlPlane) => Promise<void>,
): Promise<void> {
  const begun = performance.now();
  const name = `${options.version}, ${what}`;
  say(`     ${name}: starting; what is not built yet is built first, which takes minutes`);
  let plane: ControlPlane | null = null;
  try {
    plane = await startControlPlane(options);
    say(`     ${name}: up after ${secondsSince(begun).toFixed(1)} s`);
    await test(plane);
  } catch (error) {
    report(tally, name, [textOfError(error)]);
  } finally {
    await plane?.stop();
  }
  say(`     ${name}: done after ${secondsSince(begun).toFixed(1)} s`);
}

const { values } = parseArgs({
  options: {
    churn: { type: 'string', default: '60s' },
    version: { type: 'string', multiple: true },
    part: { type: 'string', multiple: true },
    keep: { type: 'string' },
    seed: { type: 'string', default: '1' },
    minutes: { type: 'string', default: '10' },
    pods: { type: 'string', default: '3000' },
    services: { type: 'string', default: '150' },
    'with-nodes': { type: 'boolean', default: false },
    check: { type: 'string' },
    shrink: { type: 'string' },
  },
});

function usage(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

const wanted = values.version?.map((name) => {
  const version = versions.find((one) => one === name);
  return version ?? usage(`--version ${name}: expected ${versions.join(' or ')}`);
});
const parts = ['dumps', 'live', 'lags', 'incidents', 'history', 'nodes', 'chaos'];
const unknown = values.part?.find((part) => !parts.includes(part));
if (unknown !== undefined) usage(`--part ${unknown}: expected ${parts.join(', ')}`);
const churn = parseDuration(values.churn);

const checks = (): number => tally.passed + tally.failed;

/** The parts with at least one check. */
const ran = new Set<string>();

async function runPart(part: string, test: () => Promise<void>): Promise<void> {
  if (values.part?.includes(part) === false) return;
  const before = checks();
  await test();
  if (checks() > before) ran.add(part);
}

async function testNodesOf(version: Version): Promise<void> {
  const why = whyNoNamespaces();
  if (why === null || process.env.NETNS_TESTS === 'required') {
    await within({ version }, 'nodes', (plane) => testNodes(plane, churn, tally));
  } else say(`     Left out: nodes (${why})`);
}

function numberOf(flag: 'seed' | 'minutes' | 'pods' | 'services'): number {
  const value = Number(values[flag]);
  return value > 0 ? value : usage(`--${flag} ${values[flag]}: expected a positive number`);
}

const chaos = {
  seed: numberOf('seed'),
  minutes: numberOf('minutes'),
  pods: numberOf('pods'),
  services: numberOf('services'),
  nodes: 40,
  folder: values.keep ?? null,
  withNodes: values['with-nodes'],
};

const loggedFlags = { ...liveFlags, apiserverFlags: storeFlags };

/** What is run of a version, one after the other. */
async function testVersion(version: Version, short: boolean): Promise<void> {
  await runPart('live', () => {
    const options = { churn: short ? Math.min(churn, 10) : churn, short };
    return within({ version, ...loggedFlags }, 'live', (plane) => testLive(plane, options, tally));
  });
  if (short) return;
  await runPart('lags', () =>
    within({ version, ...liveFlags }, 'lags', (plane) => testLags(plane, tally)),
  );
  await runPart('incidents', () =>
    within({ version }, 'incidents', (plane) => testIncidents(plane, false, tally)),
  );
  await runPart('history', () =>
    within({ version }, 'history', (plane) => testHistory(plane, tally)),
  );
  await runPart('nodes', () => testNodesOf(version));
  if (values.part?.includes('chaos') === true) {
    await runPart('chaos', () =>
      within({ version, ...loggedFlags }, 'chaos', (plane) => testChaos(plane, chaos, tally)),
    );
  }
  await runPart('dumps', () =>
    within({ version }, 'dumps', (plane) => testDumps(plane, values.keep ?? null, tally)),
  );
}

/** Upstream maintains the newest three releases. */
const maintained = versions.slice(-3);

if (values.check !== undefined) await checkChaos(values.check, tally);
if (values.shrink !== undefined) await shrinkChaos(values.shrink, tally);
const isOnlyFiles = values.check !== undefined || values.shrink !== undefined;
const usual = wanted ?? [...new Set([newestVersion, ...maintained.slice(0, 1)])];
for (const version of isOnlyFiles ? [] : usual) {
  await testVersion(version, wanted === undefined && version !== newestVersion);
}
const idle = (values.part ?? []).filter((part) => !ran.has(part));
if (idle.length > 0) process.stderr.write(`No check ran of ${idle.join(', ')}\n`);
say(`${tally.passed} passed, ${tally.failed} failed`);
process.exitCode = tally.failed > 0 ? 1 : idle.length > 0 || checks() === 0 ? 2 : 0;
