// The chaos part of the end-to-end test: a cluster changes at random for minutes while the
// controllers, the API server and etcd are disturbed and objects are spoilt. The log of the store
// is the witness: whether each finding is true, and whether one is missing, follows from it alone
// (chaos/oracle.ts).

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Source } from '../../src/cluster/files/recording.ts';
import { verifyReplays } from '../verify/compare.ts';
import type { Found, Tally } from './auditor.ts';
import { awaitSoon, program, report, say, secondsSince, startAuditor } from './auditor.ts';
import { disrupt } from './chaos/disruptions.ts';
import type { Disrupted } from './chaos/disruptions.ts';
import { readHistory, timesOf } from './chaos/history.ts';
import { checkReplay } from './chaos/replayed.ts';
import { runOperations } from './chaos/operations.ts';
import type { Disagreement } from './chaos/oracle.ts';
import { disagreements } from './chaos/oracle.ts';
import { joinRounds } from './chaos/rounds.ts';
import type { Probe } from './chaos/store-log.ts';
import { shrink } from './chaos/shrink.ts';
import { startStoreLog } from './chaos/store-log.ts';
import { populate, randomBy } from './churn.ts';
import type { Fleet, Size } from './cluster.ts';
import type { Client, ControlPlane, Method } from './controlplane.ts';
import { awaitSettled, clientOf, createAccount } from './controlplane.ts';
import { awaitConform, withNodes } from './nodes.ts';

export interface ChaosOptions extends Size {
  readonly seed: number;
  readonly minutes: number;
  /** Two nodes with a kube-proxy and an agent each. */
  readonly withNodes: boolean;
  /** Where recordings go; null: a temporary folder, which is kept if the test fails. */
  readonly folder: string | null;
}

/** What is known of a run and is not in the log of the store. */
interface Notes extends Disrupted {
  readonly seed: number;
  /** Seconds. */
  readonly settle: number;
  readonly probes: readonly Probe[];
  readonly findings: readonly Found[];
  readonly operations: Readonly<Record<string, number>>;
}

const files = {
  store: 'store.ndjson.gz',
  record: 'record.ndjson.gz',
  /** With the rules of nodes. */
  nodes: 'nodes.ndjson.gz',
};

/** Seconds of the settle window. */
const settle = 10;

/** Changes a second. */
const rate = 25;

/** Waits while the API server is gone, and calls again. */
function persistent(client: Client): Client {
  const call = async (method: Method, path: string, body?: object): Promise<unknown> => {
    const begun = performance.now();
    for (let tries = 0; ; tries++) {
      try {
        return await client.call(method, path, body);
      } catch (error) {
        const text = String(error);
        // The first try may have been stored before the connection broke.
        if (tries > 0 && method === 'POST' && text.includes(': 409 ')) return {};
        if (tries > 0 && method === 'DELETE' && text.includes(': 404 ')) return {};
        const isRefused = /: 4\d\d /.test(text) && !text.includes(': 429 ');
        // Right after its start, the API server may not know its roles yet.
        const isEarly = text.includes(': 403 ');
        if ((isRefused && !isEarly) || secondsSince(begun) > 120) throw error;
        await sleep(200);
      }
    }
  };
  return { ...client, call };
}

/** Lets calls pass at the rate, and counts them by name. */
function createCounter(client: Client) {
  const operations: Record<string, number> = {};
  let turn = performance.now();
  const counting = (name: string): Client => ({
    ...client,
    async call(method, path, body) {
      turn = Math.max(turn + 1000 / rate, performance.now() - 1000);
      await sleep(Math.max(0, turn - performance.now()));
      const answer = await client.call(method, path, body);
      operations[name] = (operations[name] ?? 0) + 1;
      return answer;
    },
  });
  return { operations, counting };
}

/** Asks the auditor; returns what it serves at a path. */
type Ask = (path: string) => Promise<string>;

/** All findings that an auditor had since now, with the time that they said first. */
function collectFindings(ask: Ask) {
  const known = new Map<string, Found>();
  const collect = async (): Promise<void> => {
    const text = await ask('/api/v1/findings');
    const all = JSON.parse(text) as { standing: Found[]; resolved: Found[] };
    for (const found of [...all.standing, ...all.resolved]) {
      const { namespace, service, output, code, cause, openedAt } = found;
      const id = [namespace, service, output, code, cause, openedAt].join(' ');
      const before = known.get(id);
      const since = Math.min(found.since, before?.since ?? Infinity);
      // The texts of the last answer: a resolved finding lists all that it ever had.
      known.set(id, { ...found, since });
    }
  };
  const end = new AbortController();
  const collecting = (async () => {
    while (!end.signal.aborted) {
      await collect().catch(() => undefined);
      await sleep(500);
    }
  })();
  return async (): Promise<Found[]> => {
    end.abort();
    await collecting;
    await collect();
    return [...known.values()];
  };
}

/** Starts `endpoint-auditor record`; the result ends it. */
function startRecording(kubeconfig: string, path: string): () => Promise<void> {
  const args = [program, 'record', path, '--kubeconfig', kubeconfig];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  return async () => {
    process.off('exit', kill);
    if (child.exitCode !== null || child.signalCode !== null) throw new Error('record has ended');
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    await gone;
  };
}

interface Cast {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly fleet: Fleet;
  readonly options: ChaosOptions;
}

/** Disturbs the cluster for the given time, and lets it settle. */
async function play({ plane, client, fleet, options }: Cast, disrupted: Disrupted) {
  const { seed, minutes } = options;
  const { operations, counting } = createCounter(persistent(client));
  const end = new AbortController();
  const random = randomBy(seed);
  const direct = persistent(client);
  const state = { client: direct, fleet, random, end: end.signal };
  const timer = setTimeout(() => end.abort(), minutes * 60_000);
  const work = [
    runOperations({ counting, fleet, seed, end: end.signal }),
    disrupt({ plane, client: direct, state, disrupted, settle }),
  ];
  try {
    await Promise.all(
      work.map((one) =>
        one.catch((error: unknown) => {
          end.abort();
          throw error;
        }),
      ),
    );
  } finally {
    clearTimeout(timer);
    end.abort();
    await Promise.allSettled(work);
  }
  await awaitSettled(client);
  await sleep((settle + 2) * 1000);
  return operations;
}

/** Plays while everything is recorded, and writes down what else is known. */
async function perform(cast: Cast, folder: string, ask: Ask): Promise<void> {
  const { plane, options } = cast;
  const disrupted: Disrupted = { log: [], faults: [], outages: [] };
  const path = (name: string): string => join(folder, name);
  const log = await startStoreLog(plane.etcd, path(files.store), plane.version);
  let probes: readonly Probe[] = [];
  try {
    const stopRecording = startRecording(plane.kubeconfig, path(files.record));
    const collected = collectFindings(ask);
    const operations = await play(cast, disrupted);
    const findings = await collected();
    await stopRecording();
    probes = await log.stop();
    const notes: Notes = { seed: options.seed, settle, operations, probes, findings, ...disrupted };
    writeFileSync(path('notes.json'), JSON.stringify(notes));
  } finally {
    if (probes.length === 0) await log.stop().catch(() => undefined);
  }
}

/** With an auditor that watches the cluster. */
async function performWatched(cast: Cast, folder: string): Promise<void> {
  const { plane, client } = cast;
  const { kubeconfig } = await createAccount(plane, client, folder);
  const auditor = await startAuditor({ kubeconfig, folder, settle });
  try {
    const ready = async () => (await auditor.notReady()) === null;
    if ((await awaitSoon(ready, 60)) === null) throw new Error(auditor.tail());
    await perform(cast, folder, async (path) => {
      const response = await fetch(auditor.base + path, { signal: AbortSignal.timeout(20_000) });
      return response.text();
    });
  } finally {
    await auditor.stop();
  }
}

/** With nodes whose agents the auditor asks too: in the end they must be as they should be. */
async function performWithNodes(cast: Cast, folder: string, tally: Tally): Promise<void> {
  await withNodes(
    cast.plane,
    ['iptables', 'nftables'],
    async (all) => {
      const before = await awaitConform(all, 120);
      if (before.length > 0) throw new Error(before.join());
      await perform(cast, folder, all.outside.get);
      await joinRounds(join(folder, files.record), all.nodes, join(folder, files.nodes));
      const wrong = await awaitConform(all, 120);
      const { standing, resolved } = await all.outside.findings();
      wrong.push(...standing.map((found) => JSON.stringify(found)));
      report(tally, `chaos: the nodes conform, ${resolved.length} findings are resolved`, wrong);
      for (const found of resolved) say(`     ${JSON.stringify(found)}`);
      // What the kube-proxies say of syncs that fail or come late.
      for (const { node, proxy } of all.nodes)
        writeFileSync(join(folder, `${node}.log`), proxy.log());
    },
    settle,
  );
}

const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);

/**
 * Findings without a cause that no disruption and no spoilt object explains. They are no error if
 * they are true: the machine was slow. But where the machine was not, the shadows are wrong.
 */
function unexplained({ findings, faults, log }: Notes): Found[] {
  const spoilt = new Set(faults.map(({ service }) => service));
  return findings.filter(
    ({ cause, output, severity, namespace, service, since, openedAt }) =>
      cause === null &&
      output !== 'node' &&
      output !== 'input' &&
      severity !== 'info' &&
      !spoilt.has(`${namespace}/${service}`) &&
      !log.some(({ from, to }) => from <= openedAt && to >= since),
  );
}

/** What a run has left, compared with what was the case. */
interface Checked {
  readonly line: string;
  readonly wrong: readonly string[];
}

const counted = (all: readonly Disagreement[]): string => {
  const wrong = all.filter(({ kind }) => kind === 'false').length;
  return `${wrong} false, ${all.length - wrong} missed`;
};

/**
 * Reads what a run has left in a folder: first what was found live, then replays of both logs, and
 * last what the reference auditor says of a recording.
 */
async function* check(folder: string): AsyncGenerator<Checked> {
  const notes = JSON.parse(readFileSync(join(folder, 'notes.json'), 'utf8')) as Notes;
  const open = (name: string) => (): Source => {
    const path = join(folder, name);
    return { name: path, bytes: createReadStream(path) };
  };
  const history = await readHistory(open(files.store)(), true);
  const live = disagreements({ ...notes, history, times: timesOf(history, notes.probes) });
  const line =
    `chaos, seed ${notes.seed}: ${sum(Object.values(notes.operations))} operations, ` +
    `${notes.log.length} disruptions, ${notes.faults.length} faults by hand, ` +
    `${history.stamps.length} versions, ${history.spells.length} differences, ` +
    `${notes.findings.length} findings, ${counted(live)}, ` +
    `${unexplained(notes).length} that no disruption explains`;
  const texts = (all: readonly Disagreement[]) => all.map(({ kind, text }) => `${kind}: ${text}`);
  yield { line, wrong: texts(live) };
  for (const name of [files.store, files.record]) {
    const { findings, wrong } = await checkReplay(open(name), notes.settle, notes.outages);
    const title = `chaos, seed ${notes.seed}: replay of ${name}: ${findings.length} findings`;
    yield { line: `${title}, ${counted(wrong)}`, wrong: texts(wrong) };
  }
  const name = existsSync(join(folder, files.nodes)) ? files.nodes : files.record;
  const options = { settle: notes.settle };
  const { disagreements: all, ...counts } = await verifyReplays(open(name), options);
  const { events, findings, readings } = counts;
  const sums = `${events} events, ${findings} findings, ${readings} readings of nodes`;
  const title = `chaos, seed ${notes.seed}: reference auditor on ${name}`;
  yield { line: `${title}: ${sums}, ${all.length} disagreements`, wrong: all };
}

/** Checks a run again whose folder was kept. */
export async function checkChaos(folder: string, tally: Tally): Promise<void> {
  for await (const { line, wrong } of check(folder)) report(tally, line, wrong);
}

/** Shrinks a log whose replay disagrees with what was the case. */
export const shrinkChaos = (path: string, tally: Tally): Promise<void> =>
  shrink(path, settle, tally);

export async function testChaos(
  plane: ControlPlane,
  options: ChaosOptions,
  tally: Tally,
): Promise<void> {
  const before = tally.failed;
  const folder = options.folder ?? mkdtempSync(join(tmpdir(), `chaos-${options.seed}-`));
  mkdirSync(folder, { recursive: true });
  const client = clientOf(plane);
  try {
    const fleet = await populate(plane, client, options);
    const cast = { plane, client, fleet, options };
    if (options.withNodes) await performWithNodes(cast, folder, tally);
    else await performWatched(cast, folder);
  } finally {
    client.close();
  }
  await checkChaos(folder, tally);
  if (tally.failed > before) say(`     the recordings are in ${folder}`);
  else if (options.folder === null) rmSync(folder, { recursive: true });
}
