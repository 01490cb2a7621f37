// Renders an explanation: the verdict, the suggested change, and a tree of reasons that fits the
// terminal. docs/explain.md describes the JSON document.

import type { Explanation, Reason, ReasonMark } from '../../audit/explain/explanation.ts';
import type { HistoryEntry } from '../../audit/explain/history.ts';
import { type Verdict, verdictWords } from '../../audit/finding/verdicts.ts';
import type { ReportedIncident } from '../../audit/incident/report.ts';
import { diffLegend, renderDifferences } from './findings.ts';
import { formatIncident } from './incidents.ts';
import {
  escapeInvisible,
  formatJson,
  formatLag,
  formatMoment,
  formatTime,
  paint,
  type RenderOptions,
  wrap,
} from './format.ts';

export interface ExplainDocument extends Explanation {
  readonly format: 1;
  readonly kind: 'explain';
  /** The explained moment, Unix seconds on the input's clock; null if the input has no times. */
  readonly at: number | null;
  /** When the auditor began to compare: a difference with this `since` may be older. */
  readonly begunAt: number | null;
  /** The changes of the subject; null if the input has no history. */
  readonly history: readonly HistoryEntry[] | null;
  /** The open incidents that it belongs to, the longest first. */
  readonly incidents: readonly ReportedIncident[];
}

export const reasonSigns = { yes: '✓', no: '✗', unknown: '?', note: '·' } as const;

/** The object, field and upstream code that a negative reason comes from; else ''. */
export function formatOrigin({ mark, object, field, source }: Reason): string {
  if (mark !== 'no' || field === null) return '';
  const place = object === null ? field : `${object} ${field}`;
  return `see ${place}${source === null ? '' : `; Kubernetes code: ${source}`}`;
}

const styles = { yes: 'green', no: 'red', unknown: 'yellow', note: 'dim' } as const;

const formatMark = (mark: ReasonMark, { colour }: RenderOptions): string =>
  paint(colour, styles[mark], reasonSigns[mark]);

interface Tree {
  readonly options: RenderOptions;
  /** The explained moment; null for a dump, which has no times. */
  readonly at: number | null;
  readonly begunAt: number | null;
}

/** What to do, with the commands below it, which are never wrapped, so that they can be copied. */
const renderRemedy = (
  { change, commands, managed }: Pick<Explanation, 'change' | 'commands' | 'managed'>,
  indent: string,
  options: RenderOptions,
): string[] => [
  ...(change === null ? [] : wrap(`→ ${change}`, indent, `${indent}  `, options)),
  ...(managed === null ? [] : wrap(managed, `${indent}  `, `${indent}  `, options)),
  ...commands.map((command) => `${indent}  ${escapeInvisible(command)}`),
];

const hasDifferences = (reasons: readonly Reason[]): boolean =>
  reasons.some((it) => it.differences.length > 0 || hasDifferences(it.parts));

function renderReasons(reasons: readonly Reason[], prefix: string, tree: Tree): string[] {
  const { options, at, begunAt } = tree;
  return reasons.flatMap((reason, index) => {
    const { mark, text, object, since, changed, differences, parts } = reason;
    const isLast = index === reasons.length - 1;
    const [branch, below] = isLast ? ['└─ ', '   '] : ['├─ ', '│  '];
    const stem = `${prefix}${below}${parts.length > 0 ? '│ ' : '  '}`;
    const earlier = (since ?? 0) <= (begunAt ?? -Infinity) ? ' or earlier' : '';
    const isTimed = since !== null && at !== null;
    const begun = isTimed ? `, since ${formatMoment(since, at)}${earlier}` : '';
    const suffix = changed === null ? begun : ` at ${formatMoment(changed.at, at ?? 0)}`;
    const origin = formatOrigin(reason);
    return [
      ...wrap(text + suffix, `${prefix}${branch}${formatMark(mark, options)} `, stem, options),
      ...(origin === '' ? [] : wrap(origin, stem, `${stem}  `, options)),
      ...renderDifferences(differences, stem, options, object),
      ...renderRemedy(reason, stem, options),
      ...renderReasons(parts, prefix + below, tree),
    ];
  });
}

function chooseMark({ found, verdict, severity, change, ...rest }: Explanation): ReasonMark {
  if (!found || verdict === 'unknown') return 'unknown';
  const isWrong = verdict === 'different' || verdict === 'pending';
  const isLoud = severity !== null && severity !== 'info';
  if (isWrong || isLoud || rest.withoutEndpoints !== null) return 'no';
  return verdict === 'conform' && change === null ? 'yes' : 'note';
}

const meanings: Readonly<Record<Verdict, string>> = {
  conform: 'the controllers wrote what they should',
  pending: 'there is a difference, but not yet for the settle window',
  different: 'Kubernetes did not write what it should',
  unknown: 'the input lacks something that the comparison needs',
};

const nodeMeanings: Readonly<Partial<Record<Verdict, string>>> = {
  conform: 'the node forwards as the objects require',
  different: 'the node does not forward as the objects require',
};

/** The first line: a few words in capitals, and what they mean. */
function describeVerdict(document: ExplainDocument): [words: string, meaning: string] {
  const { found, verdict, severity, change, subject, withoutEndpoints } = document;
  if (!found) return ['not found', 'no known object has this name or address'];
  const isLoud = severity !== null && severity !== 'info';
  const loud = isLoud ? ` (${severity})` : '';
  const onNode = subject.kind === 'node' && verdict !== null ? nodeMeanings[verdict] : undefined;
  const nothing = subject.kind === 'node' ? 'nothing is forwarded' : 'no controller writes it';
  const meaning = onNode ?? (verdict === null ? nothing : meanings[verdict]);
  const isRight = verdict === null || verdict === 'conform';
  if (withoutEndpoints !== null) {
    const state = isRight && !isLoud ? '' : `${verdictWord(verdict)}${loud}, `;
    return [
      `${state}cannot receive traffic`,
      `${withoutEndpoints.replaceAll('_', ' ')}; ${meaning}`,
    ];
  }
  if (isLoud && isRight) {
    return [`input problem${loud}`, 'the input has a fault that the controllers cannot fix'];
  }
  if (verdict === null) return ['nothing to compare', meaning];
  const isYours = onNode === undefined && isRight && change !== null;
  return [verdictWord(verdict) + loud, meaning + (isYours ? '; you can change the rest' : '')];
}

const verdictWord = (verdict: Verdict | null): string =>
  verdict === null ? 'input problem' : verdictWords[verdict];

function renderText(document: ExplainDocument, options: RenderOptions): string {
  const { at, begunAt, answer, reasons, history, incidents } = document;
  const [word, meaning] = describeVerdict(document);
  const head = paint(options.colour, 'bold', word.toUpperCase());
  const when = at === null || history === null ? '' : ` at ${formatTime(at)}`;
  const times = { at: begunAt === null ? null : at, begunAt };
  const tree = renderReasons(reasons, '', { options, ...times });
  const lines = [
    `${formatMark(chooseMark(document), options)} ${head}${when}: ${meaning}`,
    ...wrap(answer, '  ', '  ', options),
    ...incidents.flatMap((it) => wrap(formatIncident(it), '  ', '    ', options)),
    ...renderRemedy(document, '  ', options),
    ...(tree.length > 0 ? ['', ...tree] : []),
    ...(hasDifferences(reasons) ? ['', diffLegend] : []),
    ...(history === null ? [] : renderHistory(history, at ?? 0, options)),
  ];
  return `${lines.join('\n')}\n`;
}

type HistoryRow = readonly [at: number, text: string];

const words: Readonly<Record<string, string>> = verdictWords;

function changeRow({ at, what, before, after, lag }: HistoryEntry): HistoryRow {
  const [from, to] = [before, after].map((text) => text && (words[text] ?? text));
  const change = before === null ? to : `${String(from)} → ${String(to)}`;
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
