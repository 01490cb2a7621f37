// An explanation for people and for programs: the verdict first, then the change that would help,
// then a tree of reasons that fits the terminal. Every mark has a word beside it, so that neither
// colour nor a font is needed to read it; what the JSON document holds, docs/explain.md says.
//
// Names come from the cluster, so no text here holds a character that cannot be seen (text.ts).

import { styleText } from 'node:util';

import type { Explanation } from '../../audit/explain/explanation.ts';
import type { HistoryEntry } from '../../audit/explain/history.ts';
import type { ReasonMark, Reason } from '../../audit/explain/reason.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { formatClock, formatLag, escapeInvisible, formatTime } from './format.ts';
import { formatJson } from './report.ts';

/** The document of `-o json`. */
export interface ExplainDocument extends Explanation {
  readonly format: 1;
  readonly kind: 'explain';
  /** The moment that is explained, Unix seconds on the input's clock; null: it has none. */
  readonly at: number | null;
  /** What became of the subject; null where the input has no history. */
  readonly history: readonly HistoryEntry[] | null;
}

interface RenderOptions {
  readonly colour: boolean;
  /** Columns. */
  readonly width: number;
}

const marks: Readonly<Record<ReasonMark, string>> = { yes: '✓', no: '✗', unknown: '?', note: '·' };

const styles: Readonly<Record<ReasonMark, Parameters<typeof styleText>[0]>> = {
  yes: 'green',
  no: 'red',
  unknown: 'yellow',
  note: 'dim',
};

const painted = (colour: boolean, style: Parameters<typeof styleText>[0], text: string): string =>
  colour ? styleText(style, text, { validateStream: false }) : text;

/** Words into lines of at most `width` characters; a longer word is a line of its own. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

const least = 24;

/** `first` before the first line, `rest` before the others. */
function indented(text: string, first: string, rest: string, width: number): string[] {
  const lines = wrap(escapeInvisible(text), Math.max(least, width - rest.length));
  return lines.map((line, index) => (index === 0 ? first : rest) + line);
}

function reasonLines(
  reasons: readonly Reason[],
  prefix: string,
  at: number | null,
  options: RenderOptions,
): string[] {
  return reasons.flatMap((one, index) => {
    const last = index === reasons.length - 1;
    const [branch, below] = last ? ['└─ ', '   '] : ['├─ ', '│  '];
    const stem = `${prefix}${below}${one.parts.length > 0 ? '│ ' : '  '}`;
    const mark = painted(options.colour, styles[one.mark], marks[one.mark]);
    const since = sinceText(one.since, at);
    const lines = indented(one.text + since, `${prefix}${branch}${mark} `, stem, options.width);
    const place = [one.object, one.field].filter((text) => text !== null).join(' ');
    if (one.mark === 'no' && one.field !== null) {
      const code = one.source === null ? '' : `; Kubernetes code: ${one.source}`;
      lines.push(...indented(`by ${place}${code}`, stem, `${stem}  `, options.width));
    }
    if (one.change !== null) {
      lines.push(...indented(`→ ${one.change}`, stem, `${stem}  `, options.width));
    }
    return [...lines, ...reasonLines(one.parts, prefix + below, at, options)];
  });
}

/** Since when, where that is known and was not just now; a day that differs is named. */
function sinceText(since: number | null, at: number | null): string {
  if (since === null || at === null) return '';
  return `, since ${momentText(since, at)}`;
}

const momentText = (moment: number, at: number): string =>
  formatTime(moment).slice(0, 10) === formatTime(at).slice(0, 10)
    ? formatClock(moment)
    : formatTime(moment);

const verdictMark = ({ found, verdict, severity }: Explanation): ReasonMark => {
  if (!found || verdict === 'unknown') return 'unknown';
  const troubled = verdict === 'different' || verdict === 'pending';
  return troubled || (severity !== null && severity !== 'info') ? 'no' : 'note';
};

const headings: Readonly<Record<Verdict, [string, string]>> = {
  conform: ['conform', 'the controllers wrote what they must'],
  pending: ['pending', 'it differs, but not for long enough to be a finding'],
  different: ['different', 'what stands is not what the controllers should have written'],
  unknown: ['unknown', 'the input does not hold all that it takes to judge'],
};

const nodeMeanings = {
  conform: 'kube-proxy wrote what it must',
  different: 'the rules there are not what kube-proxy should have written',
} as const;

const troubleMeaning = 'what the controllers are given is wrong, which they cannot put right';

/** The verdict in a word, and what the word means. */
function headOf(document: ExplainDocument): [string, string] {
  const { found, verdict, severity, change, subject } = document;
  if (!found) return ['not found', 'nothing of that name is there'];
  const loud = severity !== null && severity !== 'info' ? ` (${severity})` : '';
  if (loud !== '' && (verdict === null || verdict === 'conform')) {
    return [`trouble${loud}`, troubleMeaning];
  }
  if (verdict === null) return ['nothing to judge', 'no controller has to write anything for it'];
  const [word, meaning] = headings[verdict];
  if (subject.kind === 'node' && (verdict === 'conform' || verdict === 'different')) {
    return [`${word}${loud}`, nodeMeanings[verdict]];
  }
  const own = verdict === 'conform' && change !== null ? '; the rest is up to you' : '';
  return [`${word}${loud}`, `${meaning}${own}`];
}

function explanationText(document: ExplainDocument, options: RenderOptions): string {
  const { at, answer, change, reasons, history } = document;
  const mark = verdictMark(document);
  const [word, meaning] = headOf(document);
  const head = painted(options.colour, 'bold', word.toUpperCase());
  const when = at === null || history === null ? '' : ` at ${formatTime(at)}`;
  const lines = [
    `${painted(options.colour, styles[mark], marks[mark])} ${head}${when}: ${meaning}`,
    ...indented(answer, '  ', '  ', options.width),
  ];
  if (change !== null) lines.push(...indented(`→ ${change}`, '  ', '    ', options.width));
  const tree = reasonLines(reasons, '', history === null ? null : at, options);
  if (tree.length > 0) lines.push('', ...tree);
  if (history !== null) lines.push(...historyLines(history, at ?? 0, options));
  return `${lines.join('\n')}\n`;
}

const shownMoments = 20;

interface Row {
  readonly at: number;
  readonly text: string;
}

function rowOf({ at, what, before, after, lag }: HistoryEntry): Row {
  const change = before === null ? after : `${before} → ${after}`;
  const hop = lag === null ? '' : ` (${formatLag(lag)} after the change)`;
  return { at, text: `${what}: ${change}${hop}` };
}

/**
 * The moments as rows. Changes that the controllers followed, one after the other, are one row of
 * each output: of a Service that is rolled out there are hundreds.
 */
function rowsOf(history: readonly HistoryEntry[], now: number): Row[] {
  const rows: Row[] = [];
  const begun = new Map<string, HistoryEntry>();
  const followed = new Map<string, HistoryEntry[]>();
  const flush = (): void => {
    const hops = [...followed].map(([what, ends]) => followedRow(what, ends, now));
    rows.push(...[...hops, ...[...begun.values()].map(rowOf)].sort((a, b) => a.at - b.at));
    begun.clear();
    followed.clear();
  };
  for (const moment of history) {
    const { what, before, after, lag } = moment;
    if (before === 'conform' && after === 'pending') begun.set(what, moment);
    else if (after === 'conform' && lag !== null && begun.delete(what)) {
      followed.set(what, [...(followed.get(what) ?? []), moment]);
    } else {
      flush();
      rows.push(rowOf(moment));
    }
  }
  flush();
  return rows;
}

function followedRow(what: string, ends: readonly HistoryEntry[], now: number): Row {
  const beginnings = ends.map(({ at, lag }) => at - (lag ?? 0));
  const longest = formatLag(Math.max(...ends.map(({ lag }) => lag ?? 0)));
  const [at = 0] = beginnings;
  if (ends.length === 1) return { at, text: `${what}: a change, followed after ${longest}` };
  const until = momentText(beginnings.at(-1) ?? at, now);
  return {
    at,
    text: `${what}: ${ends.length} changes until ${until}, each followed within ${longest}`,
  };
}

/** The end of the story; what came first is left out. */
function historyLines(
  history: readonly HistoryEntry[],
  at: number,
  options: RenderOptions,
): string[] {
  if (history.length === 0) return [];
  const all = rowsOf(history, at);
  const shown = all.slice(-shownMoments);
  const left = all.length - shown.length;
  const rows = shown.map((row) => {
    const time = momentText(row.at, at);
    const indent = ' '.repeat(time.length + 3);
    return indented(row.text, ` ${time}  `, indent, options.width);
  });
  const more = left === 0 ? [] : [` (${left} earlier)`];
  return ['', 'History', ...more, ...rows.flat()];
}

/** The explanation as text, with a newline at its end. */
export function renderExplanation(
  document: ExplainDocument,
  format: 'text' | 'json',
  options: RenderOptions,
): string {
  return format === 'json' ? formatJson(document) : explanationText(document, options);
}
