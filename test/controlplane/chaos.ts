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
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync, gzipSync } from 'node:zlib';

import type { Source } from '../../src/cluster/files/recording.ts';
import { verifyReplays } from '../verify/compare.ts';
import type { Found, Tally } from './auditor.ts';
import { awaitSoon, program, report, say, secondsSince, startAuditor } from './auditor.ts';
import type { Disrupted } from './chaos/disruptions.ts';
import { disrupt, runOperations } from './chaos/disruptions.ts';
import type { Probe } from './chaos/history.ts';
import { readHistory, startStoreLog, timesOf } from './chaos/history.ts';
import type { Disagreement } from './chaos/oracle.ts';
import { checkReplay, disagreements } from './chaos/oracle.ts';
import { joinRounds } from './chaos/rounds.ts';
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
export function persistent(client: Client): Client {
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
        // Right after its start, the API server may not know its roles yet. Without etcd, it calls
        // a Service invalid that needs a cluster IP.
        const isEarly = text.includes(': 403 ') || text.includes('code = Unavailable');
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
    { window: settle },
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

// Shrinks a recording whose replay disagrees with what was the case: leaves out objects, changes
// and times for as long as the same disagreement remains.

interface Line {
  readonly text: string;
  readonly kind: string;
  readonly at: number;
  readonly type: string;
  /** `resource namespace/name`; '' for a line that is about no object. */
  readonly object: string;
  readonly namespace: string;
}

function lineOf(text: string): Line {
  const fields = JSON.parse(text) as {
    kind: string;
    at: number;
    resource?: string;
    type?: string;
    object?: { metadata: { namespace?: string; name?: string } };
  };
  const { kind, at, resource = '', type = '', object } = fields;
  const { namespace = '', name = '' } = object?.metadata ?? {};
  const isObject = kind === 'object' && type !== 'BOOKMARK';
  return {
    text,
    kind,
    at,
    type,
    namespace,
    object: isObject ? `${resource} ${namespace}/${name}` : '',
  };
}

const joined = (lines: readonly Line[]): string => lines.map(({ text }) => `${text}\n`).join('');

/** The code of the finding, or of the difference, that a disagreement is about. */
const codeOf = ({ text }: Disagreement): string =>
  /\b(?:endpoints|slice|mirror|left|address|pod|duplicate|managers|hints)-[a-z-]+/.exec(
    text,
  )?.[0] ?? '';

/** What must remain. */
interface Aim {
  readonly kind: Disagreement['kind'];
  readonly service: string;
  readonly code: string;
}

async function disagreementsIn(lines: readonly Line[], settle: number) {
  const text = joined(lines);
  const { wrong } = await checkReplay(
    () => ({ name: 'part', bytes: Readable.from([Buffer.from(text)]) }),
    settle,
  );
  return wrong;
}

async function remains(lines: readonly Line[], aim: Aim, settle: number): Promise<boolean> {
  const wrong = await disagreementsIn(lines, settle).catch(() => []);
  return wrong.some(
    (one) => one.kind === aim.kind && one.service === aim.service && codeOf(one) === aim.code,
  );
}

/** The objects at a moment as the first lists, and what comes after it. */
function startingAt(lines: readonly Line[], moment: number): Line[] {
  const present = new Map<string, Line>();
  const [header, ...rest] = lines;
  if (header === undefined) return [];
  const later = rest.filter(({ at, object }) => at >= moment || object === '');
  for (const line of rest) {
    if (line.at >= moment || line.object === '') continue;
    if (line.type === 'DELETED') present.delete(line.object);
    else present.set(line.object, line);
  }
  const first = [...present.values()].map((line) => {
    const fields = JSON.parse(line.text) as object;
    return { ...line, type: 'SYNC', text: JSON.stringify({ ...fields, type: 'SYNC' }) };
  });
  return [header, ...first, ...later];
}

/** Leaves out ever smaller parts of a list of units for as long as the aim remains. */
async function minimal<T>(
  units: readonly T[],
  isEnough: (kept: readonly T[]) => Promise<boolean>,
): Promise<readonly T[]> {
  let kept = units;
  for (
    let size = Math.ceil(units.length / 2);
    size >= 1;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let from = 0; from < kept.length;) {
      const fewer = kept.toSpliced(from, size);
      if (await isEnough(fewer)) kept = fewer;
      else from += size;
    }
  }
  return kept;
}

async function shrunk(all: readonly Line[], aim: Aim, settle: number): Promise<readonly Line[]> {
  const isEnough = (lines: readonly Line[]) => remains(lines, aim, settle);
  const namespace = aim.service.slice(0, aim.service.indexOf('/'));
  let lines = all.filter((line) => line.namespace === '' || line.namespace === namespace);
  if (!(await isEnough(lines))) lines = [...all];
  lines = lines.filter(({ type }) => type !== 'BOOKMARK');
  // Halve the time from its beginning, then from its end.
  let [from, to] = [lines[0]?.at ?? 0, lines.at(-1)?.at ?? 0];
  for (let step = (to - from) / 2; step > 1; step /= 2) {
    const later = startingAt(lines, from + step);
    if (await isEnough(later)) [lines, from] = [later, from + step];
    const earlier = lines.filter(({ at, object }) => object === '' || at < to - step);
    if (await isEnough(earlier)) [lines, to] = [earlier, to - step];
  }
  const objects = [...new Set(lines.map(({ object }) => object))].filter((object) => object !== '');
  const keptObjects = await minimal(objects, (kept) => {
    const set = new Set(kept);
    return isEnough(lines.filter(({ object }) => object === '' || set.has(object)));
  });
  const set = new Set(keptObjects);
  lines = lines.filter(({ object }) => object === '' || set.has(object));
  const changes = lines.filter(({ type }) => type === 'ADDED' || type === 'MODIFIED');
  const keptChanges = await minimal(changes, (kept) => {
    const left = new Set(kept);
    return isEnough(lines.filter((line) => !changes.includes(line) || left.has(line)));
  });
  return lines.filter((line) => !changes.includes(line) || keptChanges.includes(line));
}

/** Writes a short recording for each kind of disagreement beside a recording. */
export async function shrink(path: string, settle: number, tally: Tally): Promise<void> {
  const bytes = readFileSync(path);
  const text = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
  const lines = text.split('\n').filter(Boolean).map(lineOf);
  const known = new Set<string>();
  for (const one of await disagreementsIn(lines, settle)) {
    const aim = { kind: one.kind, service: one.service, code: codeOf(one) };
    const name = `${aim.kind}-${aim.code}`;
    if (known.has(name)) continue;
    known.add(name);
    const kept = await shrunk(lines, aim, settle);
    const target = path.replace(/(?:\.ndjson)?(?:\.gz)?$/, `-${name}.ndjson.gz`);
    writeFileSync(target, gzipSync(joined(kept)));
    report(tally, `${target}: ${kept.length} of ${lines.length} lines, ${aim.service}`, []);
  }
}
