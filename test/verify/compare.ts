// Runs the auditor beside the reference auditor, on a replay or on a random life of a cluster
// (test/apiserver), and compares every difference after every event, and every finding at the end.

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import type { OwnedDifference, PendingDifference } from '../../src/audit/pending/pending.ts';
import type { Auditor, AuditorEntry } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import type { RecordingEntry, Source } from '../../src/cluster/files/recording.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import type { Simulation } from '../apiserver/auditing.ts';
import { auditSeed } from '../apiserver/auditing.ts';
import { auditorDefaults } from '../build.ts';
import type { ExpectedFinding } from './findings.ts';
import { findingText } from './findings.ts';
import { createNodeHistory, differing } from './nodes.ts';
import type { Reference, ReferenceOptions } from './reference.ts';
import { createReference } from './reference.ts';
import { createReporter } from './reports.ts';

export interface Result {
  events: number;
  findings: number;
  /** Dumps of nodes, or reports of agents. */
  readings: number;
  disagreements: string[];
}

/** A finding of the auditor, with what it said when it opened. */
interface Observed {
  readonly opened: Finding;
  resolved: Finding | null;
  /** It is open, and this is what it says now. */
  readonly isCurrent?: boolean;
}

interface Run {
  readonly reference: Reference;
  readonly auditor: Auditor;
  readonly observed: Observed[];
  /** What happened, for people. */
  readonly log: { readonly at: number; readonly namespace: string; readonly text: string }[];
  /** Units that already disagree. */
  readonly wrong: Map<string, string>;
  readonly result: Result;
}

const timeText = (at: number | null): string =>
  at === null ? 'never' : new Date(at * 1000).toISOString().slice(11, 23);

function createRun(options: ReferenceOptions, settle = options.settle): Run {
  const observed: Observed[] = [];
  const result: Result = { events: 0, findings: 0, readings: 0, disagreements: [] };
  const auditor = createAuditor({
    ...auditorDefaults,
    // Of dumps that do not show all rules, both say that the node is unknown.
    onProblem: () => undefined,
    settle,
    release: options.release ?? null,
    ...(options.maxEndpointsPerSlice === undefined
      ? {}
      : { maxEndpointsPerSlice: options.maxEndpointsPerSlice }),
    live: options.live === true,
    onOpen: (opened) => void observed.push({ opened, resolved: null }),
    onResolve(resolved) {
      const one = observed.findLast(
        (it) =>
          it.resolved === null &&
          it.opened.openedAt === resolved.openedAt &&
          findingText(it.opened) === findingText(resolved) &&
          it.opened.node === resolved.node,
      );
      if (one !== undefined) one.resolved = resolved;
      else {
        result.disagreements.push(`${findingText(resolved)} is resolved and was never opened so`);
      }
    },
  });
  const reference = createReference(options);
  return { reference, auditor, observed, log: [], wrong: new Map(), result };
}

/** What the latest events were about, of one namespace and of Nodes. */
function around({ log }: Run, key: string, from: number, to: number): string {
  const namespace = key.slice(0, key.indexOf('/'));
  const lines = log.filter(
    (it) => it.at >= from - 1 && it.at <= to + 1 && ['', namespace].includes(it.namespace),
  );
  return lines
    .slice(-12)
    .map(({ at, text }) => `\n      ${timeText(at)} ${text}`)
    .join('');
}

/** What was wrong with the order of an event. */
type Order = ReturnType<Auditor['progress']['observe']>;

function note(run: Run, entry: AuditorEntry, wrong: Order = null): void {
  if (entry.kind === 'event') {
    run.result.events++;
    const { resource, type, object, at, gap } = entry.event;
    const order = gap === true ? ' gap' : ` ${wrong ?? ''}`;
    const text = `${resource} ${type} ${object.key}${order}`;
    run.log.push({ at, namespace: object.namespace, text });
  } else if (entry.kind === 'watch' || entry.kind === 'synced') {
    const text = `${entry.kind} ${entry.resource} ${'state' in entry ? entry.state : ''}`;
    run.log.push({ at: entry.at, namespace: '', text });
  }
  if (run.log.length > 20_000) run.log.splice(0, 10_000);
}

/** Compares the differences of the Services that the latest entry may have touched. */
function compareDifferences(run: Run): void {
  const { reference, auditor, wrong, result } = run;
  const { state } = reference;
  for (const key of state.touched) {
    const known = state.known.get(key) ?? [];
    const audited = auditor.serviceAuditor()?.audited.get(key);
    const items = [...(audited?.items ?? [])].flatMap(([unit, all]) =>
      all.map((item) => ({ unit, item })),
    );
    const text = (at: number | null): string => (at === null ? '-' : at.toFixed(3));
    const want = known.map(
      (it) =>
        `${it.unit} ${it.difference.code} ${it.difference.subject} cause ${it.cause ?? '-'} ` +
        `severity ${it.severity} clock ${text(it.clock)} opened ${text(it.openedAt)}`,
    );
    const got = items.map(
      ({ unit, item }) =>
        `${unit} ${item.difference.code} ${item.difference.subject} cause ${item.cause ?? '-'} ` +
        `severity ${item.severity} clock ${text(item.since)} opened ${text(item.openedAt)}`,
    );
    const both = differing(want.sort(), got.sort()).join('\n');
    if ((wrong.get(key) ?? '') === both) continue;
    wrong.set(key, both);
    if (both === '') continue;
    const { now } = state;
    result.disagreements.push(
      `${timeText(now)} ${key}: differences (- reference, + auditor)\n${both}\n` +
        `    events:${around(run, key, now - 2, now)}`,
    );
  }
}

const near = (a: number | null, b: number | null): boolean =>
  a === b || (a !== null && b !== null && Math.abs(a - b) < 1e-6);

/** Compares all findings, when the input has ended. */
function compareFindings(run: Run): void {
  const { reference, observed, result } = run;
  const left = observed.filter(({ opened }) => opened.output !== 'node');
  result.findings += reference.findings.length;
  for (const want of reference.findings) {
    const index = left.findIndex(
      ({ opened }) =>
        findingText(opened) === findingText(want) && near(opened.openedAt, want.openedAt),
    );
    const [got] = index < 0 ? [] : left.splice(index, 1);
    const wrong = got === undefined ? ['the auditor did not open it'] : wrongIn(want, got);
    if (wrong.length > 0) report(run, findingText(want), want, wrong);
  }
  for (const { opened, resolved } of left) {
    const { since, openedAt } = opened;
    const text = `the auditor opened it, resolved ${timeText(resolved?.resolvedAt ?? null)}`;
    report(run, findingText(opened), { since, openedAt, resolvedAt: null }, [text]);
  }
}

function report(
  run: Run,
  name: string,
  times: Pick<ExpectedFinding, 'since' | 'openedAt' | 'resolvedAt'>,
  wrong: readonly string[],
): void {
  const { since, openedAt, resolvedAt } = times;
  const begin = `since ${timeText(since)} opened ${timeText(openedAt)}`;
  const text = `${begin} resolved ${timeText(resolvedAt)}`;
  run.result.disagreements.push(
    `${timeText(openedAt)} ${name}\n    ${text}\n    ${wrong.join('; ')}\n` +
      `    events:${around(run, name, since, openedAt)}`,
  );
}

function wrongIn(want: ExpectedFinding, observed: Observed): string[] {
  const { opened, resolved, isCurrent = false } = observed;
  const wrong: string[] = [];
  const check = (name: string, expected: number | null, got: number | null): void => {
    if (near(expected, got)) return;
    wrong.push(`${name}: reference ${timeText(expected)}, auditor ${timeText(got)}`);
  };
  const current = [...want.open].map(({ clock }) => clock);
  const since = isCurrent ? Math.min(...current) : want.sinceAtOpen;
  if (opened !== resolved) check('since', since, opened.since);
  check('resolvedAt', want.resolvedAt, resolved?.resolvedAt ?? null);
  // A finding keeps the times of its first hundred differences.
  if (resolved !== null && want.differences <= 100) check('since', want.since, resolved.since);
  const { severity } = resolved ?? opened;
  if (resolved !== null && severity !== want.severity) {
    wrong.push(`severity: reference ${want.severity}, auditor ${severity}`);
  }
  return wrong;
}

interface RecordingOptions extends ReferenceOptions {
  /** The rules of nodes reach the auditor as reports of agents, not as dumps. */
  readonly agents?: boolean;
}

/** Replays a recording with both auditors. */
export async function verifyRecording(
  source: Source,
  { agents = false, ...options }: RecordingOptions,
  { settle, prepare, skips }: Mutant = {},
): Promise<Result> {
  const run = createRun(options, settle === undefined ? options.settle : options.settle + settle);
  const { reference, auditor } = run;
  const nodes = createNodeHistory(reference, agents);
  const send = createReporter(auditor);
  let differing = '';
  prepare?.(auditor);
  const entries = readRecording(source, () => undefined, {
    previousPod: (key) => reference.state.cluster.pods.get(key),
  });
  async function* both(): AsyncGenerator<RecordingEntry> {
    for await (const entry of entries) {
      note(run, entry);
      reference.take(entry);
      nodes.take(entry);
      const isOfNode = entry.kind === 'node-rules' || entry.kind === 'node-config';
      const isSkipped = skips?.(entry) === true;
      if (!isSkipped && !(agents && isOfNode)) yield entry;
      if (!isSkipped && agents && entry.kind === 'node-rules') {
        send(entry, reference.state.view?.listers.nodes.get(entry.node));
      }
      compareDifferences(run);
      const lines = nodes.compare(auditor.findings.open()).join('\n');
      const { now } = reference.state;
      if (lines !== differing && lines !== '') {
        run.result.disagreements.push(
          `${timeText(now)} findings (- reference, + auditor)\n${lines}`,
        );
      }
      differing = lines;
    }
  }
  await replay(auditor, both(), { speed: Infinity, until: null });
  compareFindings(run);
  const onNodes = run.observed.filter(({ opened }) => opened.output === 'node');
  run.result.findings += onNodes.length;
  run.result.readings = nodes.readings();
  run.result.disagreements.push(
    ...nodes.check(onNodes.map(({ opened, resolved }) => resolved ?? opened)),
  );
  return run.result;
}

/** Replays a recording. If it has rules of nodes, agents report these in a second replay. */
export async function verifyReplays(
  open: () => Source,
  options: ReferenceOptions,
  mutant: () => Mutant = () => ({}),
): Promise<Result> {
  const result = await verifyRecording(open(), options, mutant());
  if (result.readings === 0) return result;
  const reported = await verifyRecording(open(), { ...options, agents: true }, mutant());
  result.readings += reported.readings;
  result.disagreements.push(...reported.disagreements.map((text) => `by reports: ${text}`));
  return result;
}

/** Lets differences open in the reference that the auditor has opened, if they may. */
function adopt({ reference, auditor, result }: Run): void {
  const { known } = reference.state;
  const { settle } = reference.state.options;
  for (const [key, all] of known) {
    const items = auditor.serviceAuditor()?.audited.get(key)?.items;
    for (const one of all) {
      if (one.openedAt !== null) continue;
      const item = items
        ?.get(one.unit)
        ?.find(
          ({ difference: { code, subject } }) =>
            code === one.difference.code && subject === one.difference.subject,
        );
      // A late event restarts what it is about, and may restart the rest of the Service.
      const lateAt = reference.state.lateAt.get(key);
      if (lateAt !== undefined && item?.since === lateAt && lateAt > one.clock) {
        reference.restart(one, lateAt);
      }
      const at = item?.openedAt ?? null;
      if (at === null) continue;
      const name = `${key} ${one.unit} ${one.difference.code}`;
      if (at < one.due - 1e-6) {
        const seconds = (settle - one.due + at).toFixed(2);
        result.disagreements.push(`${timeText(at)} ${name} opens after ${seconds} s`);
      }
      if (reference.isBlind(one.output)) {
        result.disagreements.push(`${timeText(at)} ${name} opens without a watch`);
      }
      reference.open([one], at);
    }
  }
}

/** Lives a random life, and compares the auditor in it with the reference. */
export async function verifyLife(seed: number): Promise<Result> {
  let run: Run | undefined;
  const { violations } = await auditSeed(seed, (sim) => {
    run = follow(sim);
  });
  if (run === undefined) throw new Error('There is no life');
  const { findings } = run.auditor;
  for (const opened of findings.open()) {
    run.observed.push({ opened, resolved: null, isCurrent: true });
  }
  for (const one of findings.resolved()) run.observed.push({ opened: one, resolved: one });
  compareFindings(run);
  run.result.disagreements.push(...violations);
  return run.result;
}

function follow({ auditor }: Simulation): Run {
  const { options, findings, progress } = auditor;
  const run = { ...createRun({ settle: options.settle, live: true }), auditor };
  const { reference } = run;
  let wrong: Order = null;
  const observe = progress.observe.bind(progress);
  progress.observe = (...words) => (wrong = observe(...words));
  const takeInSteps = auditor.takeInSteps.bind(auditor);
  auditor.takeInSteps = function* (entry) {
    wrong = null;
    yield* takeInSteps(entry);
    const order = wrong as Order;
    const isGap = entry.kind === 'event' && order === 'gap';
    const taken = isGap ? { ...entry, event: { ...entry.event, gap: true } } : entry;
    note(run, taken, order);
    reference.take(taken, order === 'late');
    adopt(run);
    compareDifferences(run);
  };
  const advance = findings.advance.bind(findings);
  const retry = findings.retry.bind(findings);
  findings.advance = (now) => {
    advance(now);
    reference.advance(now);
    adopt(run);
  };
  findings.retry = (now) => {
    retry(now);
    adopt(run);
  };
  return run;
}

// Faults of the auditor that a comparison must report.

export interface Mutant {
  readonly settle?: number;
  readonly prepare?: (auditor: Auditor) => void;
  readonly skips?: (entry: RecordingEntry) => boolean;
}

/** Changes every difference before its window starts. */
const changed =
  (change: (item: PendingDifference) => void) =>
  ({ findings }: Auditor): void => {
    const watch = findings.watch.bind(findings);
    findings.watch = (item, ...words) => {
      change(item);
      watch(item, ...words);
    };
  };

const isChange = (entry: RecordingEntry): boolean =>
  entry.kind === 'event' && entry.event.type !== 'added';

/** Leaves out the first entry that is so. */
const withoutFirst = (matches: (entry: RecordingEntry) => boolean) => (): Mutant => {
  let skipped = false;
  return { skips: (entry) => !skipped && (skipped = matches(entry)) };
};

/** Called for each run, since some remember what they did. */
export const mutants: Readonly<Record<string, () => Mutant>> = {
  'another settle window': () => ({ settle: 2 }),
  'a skipped event': withoutFirst(isChange),
  'a wrong cause': () => ({
    prepare: changed((item) => {
      Object.assign(item, { cause: item.cause === null ? 'hand-edited' : null });
    }),
  }),
  'a stale clock': () => ({
    prepare: changed((item) => {
      Object.assign(item, { since: item.since - 5 });
    }),
  }),
};

/** Those of nodes. */
export const nodeMutants: Readonly<Record<string, () => Mutant>> = {
  'skipped rules': withoutFirst((entry) => entry.kind === 'node-rules' && entry.text !== null),
  'a wrong start': () => ({
    prepare({ findings }) {
      const openNow = findings.openNow.bind(findings);
      findings.openNow = (items: readonly OwnedDifference[], at) => {
        for (const { item } of items) item.since -= 5;
        openNow(items, at);
      };
    },
  }),
  'a longer window': () => ({ settle: 3 }),
};
