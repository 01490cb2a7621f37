// The notes of a history: what the auditor found, as it was at the time. They are for search and
// for restarts. A replay does not need them: it computes the same from the lines of the recording.
//
//   {"note":"open","at":T,"size":N,"findings":[…],"incidents":[…]}
//                                    all that is open, when a segment begins, and --history-size
//   {"note":"opened","at":T,"finding":{…}}                 {"note":"resolved",…} the same
//   {"note":"incident","at":T,"incident":{…}}              a new, a changed or a resolved one
//   {"note":"merged","at":T,"id":"…"}                      an incident that another one took
//   {"note":"lag","at":T,"interval":{…}}                   the lag of ten seconds

import { type Finding, openFindingKey } from '../audit/finding/catalogue.ts';
import { isCause, isCode, isFinding, isSeverity } from '../audit/finding/saved-finding.ts';
import { isReported } from '../audit/incident/saved-incidents.ts';
import { type ReportedIncident, reportIncident } from '../audit/incident/report.ts';
import type { LagOutput } from '../audit/measure/lag.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { parseJson } from '../cluster/decode/json-text.ts';
import {
  type Form,
  hasForms,
  isFields,
  isListOf,
  isNumber,
  isText,
  orNull,
} from '../model/collections.ts';
import type { HistoryFiles } from './files.ts';
import { framesIn, linesOf, lossText } from './frame.ts';
import type { Segment } from './segments.ts';

/** What the note of all open findings has of each. */
export type OpenFinding = Pick<
  Finding,
  'code' | 'severity' | 'namespace' | 'service' | 'node' | 'cause' | 'since' | 'openedAt'
>;

/** The changes that outputs followed in ten seconds; seconds of lag by output. */
export interface LagInterval {
  readonly changes: number;
  readonly median: Readonly<Partial<Record<LagOutput, number>>>;
  readonly longest: Readonly<Partial<Record<LagOutput, number>>>;
}

/** `at` is Unix seconds; of a lag the start of the interval. */
export type HistoryNote = { readonly at: number } & (
  | {
      readonly note: 'open';
      readonly findings: readonly OpenFinding[];
      readonly incidents: readonly ReportedIncident[];
      /** The most bytes of the history. */
      readonly size: number;
      /** Something with an unknown code was left out, so what is not listed may still be open. */
      readonly isPartial?: boolean;
    }
  | { readonly note: 'opened' | 'resolved'; readonly finding: Finding }
  | { readonly note: 'incident'; readonly incident: ReportedIncident }
  | { readonly note: 'merged'; readonly id: string }
  | { readonly note: 'lag'; readonly interval: LagInterval }
);

/** Differences of a finding that its note has: `audit --at` shows all. */
const shownDifferences = 5;

/** Findings and changes of an incident that its note has. */
export const shownOfIncident = 20;

const lineOf = (note: HistoryNote): string => `${JSON.stringify(note)}\n`;

/** The line of a finding that has opened or is resolved. */
export function findingNote(note: 'opened' | 'resolved', finding: Finding, at: number): string {
  const differences = finding.differences.slice(0, shownDifferences);
  return lineOf({ note, at, finding: { ...finding, differences } });
}

const incidentNote = (incident: ReportedIncident): ReportedIncident => ({
  ...incident,
  changes: incident.changes.slice(0, shownOfIncident),
  findings: incident.findings.slice(0, shownOfIncident),
});

type NotedState = ReturnType<typeof createState>;

const createState = () => ({
  noted: new Map<string, NotedIncident>(),
  revision: -1,
  /** Resolved incidents that were looked at, with those that are forgotten. */
  resolved: 0,
  /** The start of the last interval of lag that was noted. */
  lagAt: -Infinity,
});

/** Watches what an auditor has open, and returns notes of what is new. */
export function createNotes(auditor: Auditor) {
  const state = createState();
  return {
    /** All that is open now; `size` is the most bytes of the history. */
    open(at: number, size: number): string {
      const findings = auditor.findings.open().map((finding) => {
        const { code, severity, namespace, service, node, cause, since, openedAt } = finding;
        return { code, severity, namespace, service, node, cause, since, openedAt };
      });
      const incidents = auditor.incidents.list().map((it) => incidentNote(reportIncident(it)));
      return lineOf({ note: 'open', at, size, findings, incidents });
    },
    /** The incidents that have changed, and the lag of the intervals that have ended. */
    review: (at: number): string[] => [
      ...changedIncidents(auditor, state, at),
      ...lags(auditor, state, at),
    ],
  };
}

/** What an incident was when it was noted last. */
type NotedIncident = ReturnType<Auditor['incidents']['marks']>[number] & { readonly at: number };

/** Seconds between two notes of an incident if only the number of its findings has changed. */
const countInterval = 10;

function hasChanged(before: NotedIncident | undefined, it: NotedIncident): boolean {
  if (before?.kind !== it.kind || before.severity !== it.severity) return true;
  return before.findings !== it.findings && it.at >= before.at + countInterval;
}

/** Only those that have changed are measured: in a storm, some have thousands of findings. */
function changedIncidents({ incidents }: Auditor, state: NotedState, at: number): string[] {
  const marks = incidents.marks().map((it) => ({ ...it, at }));
  const changed = marks.filter((it) => hasChanged(state.noted.get(it.id), it));
  const revision = incidents.revision();
  if (revision === state.revision && changed.length === 0) return [];
  state.revision = revision;
  const gone = [...state.noted.keys()].filter((id) => incidents.currentId(id) !== id);
  const open = new Set(marks.map(({ id }) => id));
  for (const id of state.noted.keys()) if (!open.has(id)) state.noted.delete(id);
  for (const it of changed) state.noted.set(it.id, it);
  const resolved = incidents.resolved();
  const count = incidents.forgotten() + resolved.length;
  const fresh = resolved.slice(Math.max(0, resolved.length - (count - state.resolved)));
  state.resolved = count;
  const ids = new Set(changed.map(({ id }) => id));
  const measured = ids.size === 0 ? [] : incidents.list(ids);
  return [
    ...[...measured, ...fresh].map((it) =>
      lineOf({ note: 'incident', at, incident: incidentNote(reportIncident(it)) }),
    ),
    ...gone.map((id) => lineOf({ note: 'merged', at, id })),
  ];
}

/** Seconds of an interval of lag, and until it is over for certain. */
const interval = { seconds: 10, over: 15 };

function lags({ samples }: Auditor, state: NotedState, at: number): string[] {
  if (at < state.lagAt + interval.seconds + interval.over) return [];
  const { at: starts, changes, median, longest } = samples.history.series();
  const valuesAt = (index: number, lines: typeof median) =>
    Object.fromEntries(
      Object.entries(lines).flatMap(([output, values]) => {
        const value = values[index] ?? null;
        return value === null ? [] : [[output, value]];
      }),
    );
  const due = starts.flatMap((start, index): (HistoryNote & { readonly note: 'lag' })[] => {
    if (start <= state.lagAt || start + interval.over > at) return [];
    const values = { median: valuesAt(index, median), longest: valuesAt(index, longest) };
    return [{ note: 'lag', at: start, interval: { changes: changes[index] ?? 0, ...values } }];
  });
  const latest = Math.max(...due.map((note) => note.at));
  state.lagAt = Math.max(state.lagAt, at - interval.over - interval.seconds, latest);
  return due.map(lineOf);
}

// --- reading ---

/** A note with its place: the number of its frame. */
export interface PlacedNote {
  readonly frame: number;
  readonly note: HistoryNote;
}

/**
 * The notes of a segment from a frame on. What is damaged is skipped, and `onLoss` is called for it
 * with a text for people, once for all lines that are no notes. So is what has a code that this
 * version does not know; `onUnknown` is called with their number.
 */
export async function* readNotes(
  files: Pick<HistoryFiles, 'read'>,
  { name, number }: Segment,
  from: number,
  onLoss: (text: string) => void,
  onUnknown = (count: number) => onLoss(`${count} entries about findings have unknown codes`),
): AsyncGenerator<PlacedNote> {
  let [unreadable, unknown] = [0, 0];
  for (const part of framesIn(await files.read(name), number)) {
    // The end may be incomplete, since the recorder is at work.
    if ('lost' in part && part.lost !== 'cut') onLoss(lossText(part));
    if (!('frame' in part) || part.frame.kind !== 'notes' || part.frame.number < from) continue;
    const { frame } = part;
    const lines = await linesOf(frame).catch(() => null);
    if (lines === null) onLoss('A frame cannot be decompressed');
    for (const line of Buffer.from(lines ?? [])
      .toString()
      .split('\n')) {
      if (line === '') continue;
      const { note, skipped } = parseNote(line);
      unknown += skipped;
      if (note !== null) yield { frame: frame.number, note };
      else if (skipped === 0) unreadable++;
    }
  }
  if (unreadable > 0) onLoss(`${unreadable} notes cannot be read`);
  if (unknown > 0) onUnknown(unknown);
}

/** Whether a value is what the note of all open findings has of one. */
export const isOpenFinding = hasForms({
  code: isCode,
  severity: isSeverity,
  namespace: isText,
  service: isText,
  node: orNull(isText),
  cause: isCause,
  since: isNumber,
  openedAt: isNumber,
});

const forms: Readonly<Record<string, Form | undefined>> = {
  open: hasForms({
    findings: isListOf(isOpenFinding),
    incidents: isListOf(isReported),
    size: isNumber,
  }),
  opened: hasForms({ finding: isFinding }),
  resolved: hasForms({ finding: isFinding }),
  incident: hasForms({ incident: isReported }),
  merged: hasForms({ id: isText }),
  lag: hasForms({ interval: isFields }),
};

interface ParsedNote {
  /** `null` for what another version may have written. */
  readonly note: HistoryNote | null;
  /** How many entries about findings were left out, since they have unknown codes. */
  readonly skipped: number;
}

const noNote: ParsedNote = { note: null, skipped: 0 };

function parseNote(line: string): ParsedNote {
  let raw: unknown;
  try {
    raw = parseJson(line);
  } catch {
    return noNote;
  }
  if (!isFields(raw) || !isNumber(raw.at) || typeof raw.note !== 'string') return noNote;
  if (hasUnknownCode(raw.finding)) return { ...noNote, skipped: 1 };
  const { note, skipped } = withKnownCodes(raw);
  const form = Object.hasOwn(forms, raw.note) ? forms[raw.note] : undefined;
  return form?.(note) === true ? { note: note as unknown as HistoryNote, skipped } : noNote;
}

type Fields = Readonly<Record<string, unknown>>;

/** A note without the listed findings that have unknown codes, and how many these were. */
function withKnownCodes(raw: Fields): { readonly note: Fields; readonly skipped: number } {
  let skipped = 0;
  const known = (list: unknown): unknown => {
    if (!Array.isArray(list)) return list;
    const kept = list.filter((it) => !hasUnknownCode(it));
    skipped += list.length - kept.length;
    return kept;
  };
  const incidentOf = (value: unknown): unknown =>
    isFields(value) ? { ...value, findings: known(value.findings) } : value;
  if (raw.note === 'incident') {
    const incident = incidentOf(raw.incident);
    return { note: { ...raw, incident }, skipped };
  }
  if (raw.note !== 'open') return { note: raw, skipped };
  const findings = known(raw.findings);
  const incidents = Array.isArray(raw.incidents) ? raw.incidents.map(incidentOf) : raw.incidents;
  const note = { ...raw, findings, incidents, ...(skipped > 0 && { isPartial: true }) };
  return { note, skipped };
}

/** Whether it is a finding of a code that another version has. */
const hasUnknownCode = (value: unknown): boolean =>
  isFields(value) && isText(value.code) && !isCode(value.code);

/** When an open finding began and opened. */
export type Opening = Pick<Finding, 'since' | 'openedAt'>;

/**
 * Follows the notes of a segment: the findings that are open at its end, by their keys; `null` if
 * that is not known. `onUnknown` is called with the number of those that have unknown codes.
 */
export async function openingsIn(
  files: Pick<HistoryFiles, 'read'>,
  segment: Segment,
  onUnknown: (count: number) => void,
): Promise<ReadonlyMap<string, Opening> | null> {
  let openings: Map<string, Opening> | null = null;
  const losses: string[] = [];
  const lose = (text: string): unknown => losses.push(text);
  for await (const { note } of readNotes(files, segment, 0, lose, onUnknown)) {
    if (note.note === 'open') {
      openings = new Map(note.findings.map((it) => [openFindingKey(it), it]));
    } else if (note.note === 'opened') {
      openings?.set(openFindingKey(note.finding), note.finding);
    } else if (note.note === 'resolved') openings?.delete(openFindingKey(note.finding));
  }
  return losses.length === 0 ? openings : null;
}
