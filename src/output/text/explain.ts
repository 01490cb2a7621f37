// Renders an explanation: the verdict, the suggested change, and a tree of reasons that fits the
// terminal. docs/explain.md describes the JSON document.

import type { Explanation, Reason, ReasonMark } from '../../audit/explain/explanation.ts';
import type { HistoryEntry } from '../../audit/explain/history.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import type { RenderOptions } from './format.ts';
import {
  escapeInvisible,
  formatClock,
  formatJson,
  formatLag,
  formatTime,
  paint,
} from './format.ts';

export interface ExplainDocument extends Explanation {
  readonly format: 1;
  readonly kind: 'explain';
  /** The explained moment, Unix seconds on the input's clock; null if the input has no times. */
  readonly at: number | null;
  /** The changes of the subject; null if the input has no history. */
  readonly history: readonly HistoryEntry[] | null;
}

export const reasonSigns = { yes: '✓', no: '✗', unknown: '?', note: '·' } as const;

/** The object, field and upstream code that a negative reason comes from; else ''. */
export function formatOrigin({ mark, object, field, source }: Reason): string {
  if (mark !== 'no' || field === null) return '';
  const place = object === null ? field : `${object} ${field}`;
  return `by ${place}${source === null ? '' : `; Kubernetes code: ${source}`}`;
}

const styles = { yes: 'green', no: 'red', unknown: 'yellow', note: 'dim' } as const;

const formatMark = (mark: ReasonMark, { colour }: RenderOptions): string =>
  paint(colour, styles[mark], reasonSigns[mark]);

function wrap(text: string, first: string, rest: string, { width }: RenderOptions): string[] {
  const most = Math.max(24, width - rest.length);
  const lines: string[] = [];
  let line = '';
  for (const word of escapeInvisible(text).split(' ')) {
    if (line !== '' && line.length + 1 + word.length > most) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map((content, index) => (index === 0 ? first : rest) + content);
}

function renderReasons(
  reasons: readonly Reason[],
  prefix: string,
  at: number | null,
  options: RenderOptions,
): string[] {
  return reasons.flatMap((reason, index) => {
    const { mark, text, since, change, changed, parts } = reason;
    const isLast = index === reasons.length - 1;
    const [branch, below] = isLast ? ['└─ ', '   '] : ['├─ ', '│  '];
    const stem = `${prefix}${below}${parts.length > 0 ? '│ ' : '  '}`;
    const begun = since === null || at === null ? '' : `, since ${formatMoment(since, at)}`;
    const suffix = changed === null ? begun : ` at ${formatMoment(changed.at, at ?? 0)}`;
    const notes = [formatOrigin(reason), change === null ? '' : `→ ${change}`];
    return [
      ...wrap(text + suffix, `${prefix}${branch}${formatMark(mark, options)} `, stem, options),
      ...notes.flatMap((note) => (note === '' ? [] : wrap(note, stem, `${stem}  `, options))),
      ...renderReasons(parts, prefix + below, at, options),
    ];
  });
}

/** The time of day; the date too if it is another day than `at`. */
const formatMoment = (moment: number, at: number): string =>
  formatTime(moment).slice(0, 10) === formatTime(at).slice(0, 10)
    ? formatClock(moment)
    : formatTime(moment);

function chooseMark({ found, verdict, severity }: Explanation): ReasonMark {
  if (!found || verdict === 'unknown') return 'unknown';
  const isTroubled = verdict === 'different' || verdict === 'pending';
  return isTroubled || (severity !== null && severity !== 'info') ? 'no' : 'note';
}

const meanings: Readonly<Record<Verdict, string>> = {
  conform: 'the controllers wrote what they must',
  pending: 'it differs, but not for long enough to be a finding',
  different: 'what stands is not what the controllers should have written',
  unknown: 'the input does not hold all that it takes to judge',
};

const nodeMeanings: Readonly<Partial<Record<Verdict, string>>> = {
  conform: 'kube-proxy wrote what it must',
  different: 'the rules there are not what kube-proxy should have written',
};

function describeVerdict(document: ExplainDocument): [string, string] {
  const { found, verdict, severity, change, subject } = document;
  if (!found) return ['not found', 'nothing of that name is there'];
  const loud = severity !== null && severity !== 'info' ? ` (${severity})` : '';
  if (loud !== '' && (verdict === null || verdict === 'conform')) {
    const meaning = 'what the controllers are given is wrong, which they cannot put right';
    return [`trouble${loud}`, meaning];
  }
  if (verdict === null) return ['nothing to judge', 'no controller has to write anything for it'];
  const onNode = subject.kind === 'node' ? nodeMeanings[verdict] : undefined;
  const isYours = onNode === undefined && verdict === 'conform' && change !== null;
  const rest = isYours ? '; the rest is up to you' : '';
  return [`${verdict}${loud}`, `${onNode ?? meanings[verdict]}${rest}`];
}

function renderText(document: ExplainDocument, options: RenderOptions): string {
  const { at, answer, change, reasons, history } = document;
  const [word, meaning] = describeVerdict(document);
  const head = paint(options.colour, 'bold', word.toUpperCase());
  const when = at === null || history === null ? '' : ` at ${formatTime(at)}`;
  const tree = renderReasons(reasons, '', history === null ? null : at, options);
  const lines = [
    `${formatMark(chooseMark(document), options)} ${head}${when}: ${meaning}`,
    ...wrap(answer, '  ', '  ', options),
    ...(change === null ? [] : wrap(`→ ${change}`, '  ', '    ', options)),
    ...(tree.length > 0 ? ['', ...tree] : []),
    ...(history === null ? [] : renderHistory(history, at ?? 0, options)),
  ];
  return `${lines.join('\n')}\n`;
}

type HistoryRow = readonly [at: number, text: string];

function changeRow({ at, what, before, after, lag }: HistoryEntry): HistoryRow {
  const change = before === null ? after : `${before} → ${after}`;
  const delay = lag === null ? '' : ` (${formatLag(lag)} after the change)`;
  return [at, `${what}: ${change}${delay}`];
}

/** One row for consecutive changes of one output that the controllers followed. */
function followedRow(what: string, ends: readonly HistoryEntry[], now: number): HistoryRow {
  const begun = ends.map(({ at, lag }) => at - (lag ?? 0));
  const longest = formatLag(Math.max(...ends.map(({ lag }) => lag ?? 0)));
  const [at = 0] = begun;
  if (ends.length === 1) return [at, `${what}: a change, followed after ${longest}`];
  const until = formatMoment(begun.at(-1) ?? at, now);
  return [at, `${what}: ${ends.length} changes until ${until}, each followed within ${longest}`];
}

/** Combines consecutive followed changes: a rollout of a Service has hundreds. */
function listRows(history: readonly HistoryEntry[], now: number): HistoryRow[] {
  const rows: HistoryRow[] = [];
  const begun = new Map<string, HistoryEntry>();
  const followed = new Map<string, HistoryEntry[]>();
  const flush = (): void => {
    const ended = [...followed].map(([what, ends]) => followedRow(what, ends, now));
    const open = [...begun.values()].map(changeRow);
    rows.push(...[...ended, ...open].sort(([a], [b]) => a - b));
    begun.clear();
    followed.clear();
  };
  for (const entry of history) {
    const { what, before, after, lag } = entry;
    if (before === 'conform' && after === 'pending') begun.set(what, entry);
    else if (after === 'conform' && lag !== null && begun.delete(what)) {
      followed.set(what, [...(followed.get(what) ?? []), entry]);
    } else {
      flush();
      rows.push(changeRow(entry));
    }
  }
  flush();
  return rows;
}

function renderHistory(
  history: readonly HistoryEntry[],
  now: number,
  options: RenderOptions,
): string[] {
  if (history.length === 0) return [];
  const rows = listRows(history, now);
  const lines = rows.slice(-20).flatMap(([at, text]) => {
    const time = formatMoment(at, now);
    return wrap(text, ` ${time}  `, ' '.repeat(time.length + 3), options);
  });
  const earlier = rows.length > 20 ? [` (${rows.length - 20} earlier)`] : [];
  return ['', 'History', ...earlier, ...lines];
}

/** The explanation as text or JSON, with a newline at its end. */
export const renderExplanation = (
  document: ExplainDocument,
  format: 'text' | 'json',
  options: RenderOptions,
): string => (format === 'json' ? formatJson(document) : renderText(document, options));
