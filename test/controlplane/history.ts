// The history of a real control plane: what happened is asked of the folder of `serve --history`
// alone, when neither auditor nor controller shows it any more, and is compared with the log of the
// test.
//
//   first     kube-controller-manager sleeps while pods of three Services turn not ready, and then
//             writes again
//   SIGTERM   the auditor is restarted
//   second    the controller sleeps again, while pods of two other Services turn not ready
//   SIGKILL   the auditor is restarted; its findings and its incident keep their times
//   answers   the auditor is killed; the commands say what was different in the first fault, what
//             changed before, and how long it took
//
// Nothing here is about speed: every wait ends with what it awaits, and is long otherwise.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  type Auditor,
  awaitSoon,
  awaitWritten,
  createCanary,
  isFollowed,
  outputs,
  pausing,
  program,
  report,
  say,
  startAuditor,
  type Tally,
} from './auditor.ts';
import { addressing, createNodes, type Pod, reportState } from './cluster.ts';
import {
  awaitSettled,
  type Client,
  clientOf,
  type ControlPlane,
  createAccount,
} from './controlplane.ts';

/** Seconds of the settle window: a busy machine reads the end of the history within it. */
const settle = 10;
/** Seconds after which what is awaited will not come, on a machine that is very busy too. */
const patience = 240;
/** Seconds by which a time may differ from that of the log, on such a machine. */
const tolerance = 5;
/** Seconds that the first fault lasts after it is found, more than the tolerance. */
const longer = 10;

/** What the commands and the API answer, as far as it is read. Times in Unix seconds. */
interface Answers {
  readonly findings: readonly {
    readonly output: string;
    readonly service: string;
    readonly severity: string;
    readonly since: number;
    readonly openedAt: number;
  }[];
  readonly incidents: readonly Incident[];
  readonly changes: readonly {
    readonly what: 'object' | 'expected' | 'finding';
    readonly name: string;
    readonly field: string;
    readonly before: string | null;
    readonly after: string | null;
  }[];
  readonly worst: {
    readonly convergence: readonly {
      readonly output: string;
      readonly service: string;
      readonly seconds: number;
    }[];
  };
  readonly verdict: string;
  readonly reasons: readonly object[];
}

interface Incident {
  readonly id: string;
  readonly kind: string;
  readonly since: number;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
  readonly findings: readonly { readonly service: string }[];
}

interface Scene {
  readonly plane: ControlPlane;
  readonly client: Client;
  /** The folder of the history. */
  readonly folder: string;
  readonly tally: Tally;
  /** Starts another auditor. */
  readonly start: () => Promise<Auditor>;
  auditor: Auditor;
}

/** The log of a fault, by the clock of the test. */
interface Fault {
  readonly services: readonly string[];
  /** All was right. */
  readonly before: number;
  /** The pods turned not ready between these. */
  readonly changed: readonly [number, number];
  /** The controller slept, and what is different was found. */
  readonly during: number;
  /** The controller was woken, and had written all of it. */
  readonly written: readonly [number, number];
  /** The auditor has seen it. */
  readonly after: number;
}

type Begun = Omit<Fault, 'written' | 'after'>;

const now = (): number => Date.now() / 1000;

const sorted = (values: Iterable<string>): string => [...new Set(values)].sort().join(', ');

/** Empty if two texts are equal, else both. */
const unequal = (what: string, found: string, want: string): string[] =>
  found === want ? [] : [`${what}: ${found || 'none'}, not ${want}`];

/** Empty if a number is in a range, with the tolerance. */
const outside = (what: string, found: number, [least, most]: readonly [number, number]) =>
  found >= least - tolerance && found <= most + tolerance
    ? []
    : [`${what}: ${found}, not ${least} to ${most}`];

const get = async <T>({ auditor }: Scene, path: string): Promise<T> =>
  (await (
    await fetch(auditor.base + path, { signal: AbortSignal.timeout(patience * 1000) })
  ).json()) as T;

type Listed<T> = Readonly<Record<'standing' | 'resolved', readonly T[]>>;

const isLoud = ({ severity }: { readonly severity: string }): boolean => severity !== 'info';

const openFindings = async (scene: Scene): Promise<Answers['findings']> =>
  (await get<Listed<Answers['findings'][number]>>(scene, '/api/v1/findings')).standing.filter(
    isLoud,
  );

/** The only pod of a Service is not ready, so that it has no endpoints either. */
const isOurs = ({ kind }: Incident): boolean => kind !== 'service-without-endpoints';

async function incidentsOf(scene: Scene): Promise<Listed<Incident>> {
  const { standing, resolved } = await get<Listed<Incident>>(scene, '/api/v1/incidents');
  return { standing: standing.filter(isOurs), resolved: resolved.filter(isOurs) };
}

async function awaitThat(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const isTrue = (): Promise<boolean> => isSo().catch(() => false);
  if ((await awaitSoon(isTrue, patience)) === null) throw new Error(`It never came: ${what}`);
}

/** Waits until all that happened until a moment is in the history. */
async function awaitRecorded({ auditor }: Scene, moment: number): Promise<void> {
  const written = () => auditor.metric('history_written_timestamp_seconds');
  await awaitThat('the history is written', async () => (await written()) >= moment);
}

/** Waits until the auditor has read everything, and records. */
async function awaitReady(scene: Scene): Promise<void> {
  await awaitThat('ready', async () => (await scene.auditor.notReady()) === null);
  await awaitRecorded(scene, 1);
}

async function restart(scene: Scene, how: 'stop' | 'kill'): Promise<void> {
  await scene.auditor[how]();
  scene.auditor = await scene.start();
  await awaitReady(scene);
}

/** The controller sleeps while pods turn not ready; ends when this is an incident. */
async function begin(scene: Scene, pods: readonly Pod[]): Promise<Begun> {
  const { plane, client } = scene;
  await awaitWritten(scene);
  await awaitThat('no finding', async () => (await openFindings(scene)).length === 0);
  await awaitThat('no incident', async () => (await incidentsOf(scene)).standing.length === 0);
  const before = now();
  await sleep(1000);
  await plane.pauseControllerManager();
  const from = now();
  for (const pod of pods) await reportState(client, pod, 'unready');
  const changed = [from, now()] as const;
  const services = pods.map(({ labels: { app = '' } }) => app);
  const keysOf = (found: Answers['findings']): string =>
    sorted(found.map(({ service, output }) => `${service} ${output}`));
  const all = sorted(
    services.flatMap((service) => outputs.map((output) => `${service} ${output}`)),
  );
  await awaitThat('the findings', async () => keysOf(await openFindings(scene)) === all);
  await awaitThat('the incident', async () => (await incidentsOf(scene)).standing.length === 1);
  return { services, before, changed, during: now() };
}

/** The controller writes again; ends when the auditor has seen it. */
async function end(scene: Scene, fault: Begun): Promise<Fault> {
  const { plane } = scene;
  await sleep(1000);
  const resumed = now();
  plane.resumeControllerManager();
  for (const service of fault.services) {
    for (const output of outputs) {
      await awaitThat('the write', () => isFollowed(scene, output, service));
    }
  }
  const written = [resumed, now()] as const;
  await awaitThat('no finding', async () => (await openFindings(scene)).length === 0);
  await awaitThat('no incident', async () => (await incidentsOf(scene)).standing.length === 0);
  return { ...fault, written, after: now() };
}

/** What is wrong with the kind and the times of an incident. */
const problemsOf = (
  { kind, since, resolvedAt }: Incident,
  { changed, written }: Fault,
): string[] => [
  ...unequal('kind', kind, 'controller-not-writing'),
  ...outside('since', since, changed),
  ...outside('resolved', resolvedAt ?? NaN, written),
];

const servicesOf = (list: readonly { readonly service: string }[]): string =>
  sorted(list.map(({ service }) => service));

// Restarts.

/** What was resolved before a restart stays visible, and can be asked for by its moment. */
async function checkResolved(scene: Scene, fault: Fault): Promise<void> {
  const { resolved } = await incidentsOf(scene);
  const [incident] = resolved;
  const wrong = unequal('resolved incidents', String(resolved.length), '1');
  if (incident !== undefined) {
    wrong.push(...unequal('Services', servicesOf(incident.findings), sorted(fault.services)));
    wrong.push(...problemsOf(incident, fault));
  }
  const { standing: then } = await get<Listed<Answers['findings'][number]>>(
    scene,
    `/api/v1/findings?at=${fault.during}`,
  );
  wrong.push(...unequal('?at=', servicesOf(then.filter(isLoud)), sorted(fault.services)));
  report(scene.tally, 'history, SIGTERM: what was resolved is still visible', wrong);
}

type Times = ReadonlyMap<string, readonly [since: number, openedAt: number]>;

/** When each open finding and incident began, and when it was found. */
async function timesNow(scene: Scene): Promise<Times> {
  const findings = await openFindings(scene);
  const { standing: incidents } = await incidentsOf(scene);
  return new Map([
    ...findings.map((it) => [`${it.service} ${it.output}`, [it.since, it.openedAt]] as const),
    ...incidents.map((it) => [it.id, [it.since, it.openedAt]] as const),
  ]);
}

/** Findings and an incident that are open when the auditor is killed keep their times. */
async function checkContinued(scene: Scene, before: Times): Promise<void> {
  // A finding opens again when the objects have been read again.
  await awaitSoon(async () => (await timesNow(scene)).size >= before.size, patience);
  const after = await timesNow(scene);
  const wrong = unequal('open', sorted(after.keys()), sorted(before.keys()));
  for (const [name, times] of before) {
    const now = after.get(name) ?? [];
    // The history has milliseconds.
    const isKept = times.every((time, index) => Math.abs(time - (now[index] ?? NaN)) < 0.002);
    if (!isKept) wrong.push(`${name}: ${now.join(' ')}, not ${times.join(' ')}`);
  }
  const title = `history, SIGKILL: ${before.size} open findings and incidents keep their times`;
  report(scene.tally, title, wrong);
}

// Answers from the folder alone.

/** Runs a command on the history; nothing else is there to ask. */
async function ask(scene: Scene, ...args: readonly string[]) {
  const more = ['--history', scene.folder, '-o', 'json'];
  const env = { PATH: process.env.PATH ?? '', KUBECONFIG: '/nonexistent' };
  const child = spawn(process.execPath, [program, ...args, ...more], { env });
  const [out, problems] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ]);
  // A program that does not answer ends with another code, and prints nothing.
  if (out === '') throw new Error(`${args.join(' ')}: code ${child.exitCode}: ${problems}`);
  return { exit: child.exitCode, problems, answer: JSON.parse(out) as Answers };
}

/** Which Services were different at a moment. */
async function checkMoment(
  scene: Scene,
  when: 'before' | 'during' | 'after',
  fault: Fault,
): Promise<void> {
  const { before, during, services, changed, after } = fault;
  const at = { before, during, after }[when];
  const { exit, problems, answer } = await ask(scene, 'audit', '--at', String(at));
  const found = answer.findings.filter(isLoud);
  const want = when === 'during' ? services : [];
  const wrong = [
    ...unequal('Services', servicesOf(found), sorted(want)),
    ...unequal('exit', String(exit), want.length > 0 ? '1' : '0'),
    ...unequal('problems', problems, ''),
    ...found.flatMap(({ since }) => outside('since', since, changed)),
  ];
  const title = `history, audit --at, ${when}: ${servicesOf(found) || 'nothing is different'}`;
  report(scene.tally, title, wrong);
}

/** How long it took: each fault is an incident of its own. */
async function checkIncidents(scene: Scene, faults: readonly Fault[]): Promise<void> {
  const { answer } = await ask(scene, 'incidents', '--since', '1h');
  const found = answer.incidents.filter(isOurs);
  const wrong = unequal('incidents', String(found.length), String(faults.length));
  for (const [index, incident] of found.entries()) {
    const fault = faults[index];
    if (fault === undefined) continue;
    wrong.push(...unequal('Services', servicesOf(incident.findings), sorted(fault.services)));
    wrong.push(...problemsOf(incident, fault));
  }
  const seconds = found.map(({ since, resolvedAt }) => ((resolvedAt ?? NaN) - since).toFixed(1));
  report(scene.tally, `history, incidents --since: ${seconds.join(' s and ')} s`, wrong);
}

/** What changed before: a pod did, but no output that the controllers write. */
async function checkDiff(scene: Scene, fault: Fault): Promise<void> {
  const [service = ''] = fault.services;
  const span = ['--from', String(fault.before), '--to', String(fault.during)];
  const { answer } = await ask(scene, 'diff', `service/${service}`, '-n', pausing, ...span);
  const { changes } = answer;
  const kindOf = (name: string): string => name.split(' ')[0] ?? '';
  const objects = changes.filter(({ what }) => what === 'object').map(({ name }) => kindOf(name));
  const expected = changes.filter(({ what }) => what === 'expected');
  const wrong = [
    ...unequal('objects', sorted(objects), 'Pod'),
    ...unequal('expected before', sorted(expected.map(({ before }) => String(before))), 'ready'),
    ...unequal('findings', String(changes.filter(({ what }) => what === 'finding').length), '2'),
  ];
  if (wrong.length > 0) wrong.push(JSON.stringify(changes));
  report(scene.tally, 'history, diff: the pod had changed, and the outputs had not', wrong);
}

/** The lag of both outputs of each Service of the fault, and of no other. */
async function checkLag(scene: Scene, { services, before, changed, written, after }: Fault) {
  const span = ['--from', String(before), '--to', String(after)];
  const { answer } = await ask(scene, 'lag', ...span);
  const late = answer.worst.convergence.filter(({ seconds }) => seconds > settle);
  const all = services.flatMap((service) => outputs.map((output) => `${service} ${output}`));
  const range = [written[0] - changed[1], written[1] - changed[0]] as const;
  const wrong = [
    ...unequal('late', sorted(late.map((it) => `${it.service} ${it.output}`)), sorted(all)),
    ...late.flatMap(({ seconds }) => outside('lag', seconds, range)),
  ];
  const [longest = NaN] = late.map(({ seconds }) => seconds);
  report(scene.tally, `history, lag --from --to: at most ${longest.toFixed(1)} s`, wrong);
}

/** Why it was different, and that it was right before. */
async function checkExplanation(scene: Scene, fault: Fault): Promise<void> {
  const [service = ''] = fault.services;
  const subject = ['explain', `service/${service}`, '-n', pausing];
  const then = await ask(scene, ...subject, '--at', String(fault.during));
  const earlier = await ask(scene, ...subject, '--at', String(fault.before));
  const wrong = [
    ...unequal('verdict', then.answer.verdict, 'different'),
    ...unequal('verdict before', earlier.answer.verdict, 'conform'),
  ];
  const reasons = JSON.stringify(then.answer.reasons);
  if (!reasons.includes(`${service}-0`)) wrong.push(`the pod is not named: ${reasons}`);
  report(scene.tally, 'history, explain --at: different then, and conform before', wrong);
}

/** Two faults and two restarts; the auditor is killed in the end. */
async function makeHistory(scene: Scene, pods: readonly Pod[]): Promise<Fault[]> {
  await awaitReady(scene);
  const begun = await begin(scene, pods.slice(0, 3));
  await sleep(longer * 1000);
  const first = await end(scene, { ...begun, during: now() });
  await restart(scene, 'stop');
  await checkResolved(scene, first);
  const second = await begin(scene, pods.slice(3, 5));
  await awaitRecorded(scene, now());
  const times = await timesNow(scene);
  await restart(scene, 'kill');
  await checkContinued(scene, times);
  const faults = [first, await end(scene, second)];
  await awaitRecorded(scene, now());
  await scene.auditor.kill();
  return faults;
}

async function answerAll(scene: Scene, faults: readonly Fault[]): Promise<void> {
  const [first] = faults;
  if (first === undefined) return;
  for (const moment of ['before', 'during', 'after'] as const) {
    await checkMoment(scene, moment, first);
  }
  await checkIncidents(scene, faults);
  await checkDiff(scene, first);
  await checkLag(scene, first);
  await checkExplanation(scene, first);
}

/** The history of two faults and two restarts of the auditor. */
export async function testHistory(plane: ControlPlane, tally: Tally): Promise<void> {
  const [own, folder] = [join(plane.directory, 'auditor'), join(plane.directory, 'history')];
  mkdirSync(own);
  const client = clientOf(plane);
  const running: { auditor: Auditor | null } = { auditor: null };
  try {
    await createNodes(client);
    await client.call('POST', '/api/v1/namespaces', { metadata: { name: pausing } });
    const places = addressing(3);
    const pods: Pod[] = [];
    for (const name of ['web', 'api', 'cart', 'search', 'orders', 'quiet']) {
      pods.push(await createCanary({ client }, name, places));
    }
    await awaitSettled(client);
    const { kubeconfig } = await createAccount(plane, client, own);
    const more = ['--history', folder];
    const start = async (): Promise<Auditor> => {
      running.auditor = await startAuditor({ kubeconfig, folder: own, settle, more });
      return running.auditor;
    };
    const scene: Scene = { plane, client, folder, tally, start, auditor: await start() };
    await answerAll(scene, await makeHistory(scene, pods));
  } catch (error) {
    say(running.auditor?.tail() ?? '');
    throw error;
  } finally {
    await running.auditor?.stop();
    client.close();
  }
}
