// The `bundle` command: writes what a Service, or an incident, needs from a history or a recording
// to a recording of its own.

import { isResolved, type ParsedTarget, resolveTarget } from '../audit/explain/target.ts';
import { type Auditor, createAuditor } from '../auditor/auditor.ts';
import { findIncident } from '../auditor/incident-queries.ts';
import { type Moment, momentSince, replay } from '../auditor/replay.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import type { RecordingEntry } from '../cluster/files/recording.ts';
import { type BundleContent, bundleOf, createAddressBook } from '../history/bundle.ts';
import { parseServiceSubject } from './explain.ts';
import { optionsFor, recordingOf } from './replay.ts';
import { fail, problemLog } from './shared/console.ts';
import { type HistoryFlags, openMoment } from './shared/history.ts';
import {
  type AuditFlags,
  auditorOptions,
  type InputFlags,
  onlyInput,
  type RedactionFlags,
  redactorOf,
} from './shared/options.ts';
import { UsageError } from './shared/process.ts';

export interface BundleOptions
  extends AuditFlags, InputFlags, RedactionFlags, Pick<HistoryFlags, 'history'> {
  readonly from?: Moment;
  readonly to?: Moment;
  readonly namespace?: string;
}

/**
 * Opens the history, or the recording: an auditor, the entries for it, and the times that the flags
 * name, `null` without one.
 */
async function open(options: BundleOptions, onProblem: OnProblem) {
  const { history, from = null, to = null } = options;
  if (history === undefined) {
    const path = onlyInput(options);
    if (path === '-') throw new UsageError('A bundle reads its input twice: expected a file');
    const auditor = createAuditor(await optionsFor(path, options, onProblem));
    const [begun, entries] = await withFirst(await recordingOf(path, auditor, onProblem));
    const [since = null, until = null] = [from, to].map((it) => it && momentSince(it, begun));
    return { auditor, entries, from: since, to: until };
  }
  const end = await openMoment(history, to, () => undefined);
  const begin = from === null ? null : await openMoment(history, from, () => undefined);
  const moment = await openMoment(history, end.until, onProblem, begin?.until ?? -Infinity);
  const auditor = createAuditor({ ...auditorOptions(options, onProblem), ...moment.settings });
  return { auditor, entries: moment.entries(auditor), from: begin?.until ?? null, to: end.until };
}

/** The time of the first entry, and all entries. */
async function withFirst(entries: AsyncIterable<RecordingEntry>) {
  const iterator = entries[Symbol.asyncIterator]();
  const first = await iterator.next();
  async function* all(): AsyncGenerator<RecordingEntry> {
    if (first.done !== true) yield first.value;
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) {
      yield next.value;
    }
  }
  if (first.done === true) return [0, all()] as const;
  const { value } = first;
  return [value.kind === 'event' ? value.event.at : value.at, all()] as const;
}

/** What a Service, or the Services of an incident, need. Throws an Error for people. */
async function objectsFor(
  subject: string,
  service: ParsedTarget | null,
  options: BundleOptions,
  onProblem: OnProblem,
): Promise<Pick<BundleContent, 'namespaces' | 'others'>> {
  const { auditor, entries, to } = await open(options, onProblem);
  const book = createAddressBook();
  async function* noted(): AsyncGenerator<RecordingEntry> {
    for await (const entry of entries) {
      book.note(entry);
      yield entry;
    }
  }
  await replay(auditor, noted(), { speed: Infinity, until: to });
  const namespaces = namespacesOf(subject, service, auditor);
  return { namespaces, others: book.sharing(namespaces) };
}

function namespacesOf(
  subject: string,
  service: ParsedTarget | null,
  auditor: Auditor,
): ReadonlySet<string> {
  if (service !== null) {
    const target = resolveTarget(service, auditor.store.listers);
    if (target.kind === 'service' && isResolved(target)) {
      return new Set([target.service.split('/')[0] ?? '']);
    }
    throw new Error(`There is no ${subject} at that time`);
  }
  const incident = findIncident(auditor, subject);
  if (incident === null) throw new Error(`There is no incident "${subject}" in that time`);
  const names = incident.findings.map(({ namespace }) => namespace).filter((name) => name !== '');
  if (names.length === 0) throw new Error(`The incident "${subject}" is about no Service`);
  return new Set(names);
}

/** Writes the bundle to stdout. */
export async function bundle(subject: string, options: BundleOptions): Promise<number> {
  const { from: begin, to: end } = options;
  if (typeof begin === 'number' && typeof end === 'number' && begin > end) {
    throw new UsageError('--from is after --to');
  }
  const isService = subject.includes('/');
  const service = isService ? parseServiceSubject(subject, options.namespace ?? null) : null;
  // Problems of the input were printed by the first replay.
  const objects = await objectsFor(subject, service, options, problemLog().onProblem);
  const { auditor, entries, ...times } = await open(options, () => undefined);
  const { from, to } = { from: times.from ?? -Infinity, to: times.to ?? Infinity };
  if (from > to) throw new UsageError('--from is after --to');
  const redactor = redactorOf(options);
  if (redactor === null) fail('The bundle has names and addresses in clear text; see --redact');
  for await (const line of bundleOf(auditor, entries, { from, to, ...objects, redactor })) {
    if (!process.stdout.write(line)) await drained();
  }
  return 0;
}

const drained = (): Promise<void> =>
  new Promise((resolve) => {
    process.stdout.once('drain', resolve);
  });
