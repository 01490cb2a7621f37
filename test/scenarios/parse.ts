// Reads a scenario: lines into settings, steps, statements and expectations. statements.ts
// gives them their meaning; README.md describes the notation. Every error names file and
// line.

import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';

export class ScenarioError extends SyntaxError {
  constructor(file: string, line: number, message: string) {
    super(`${file}:${line}: ${message}`);
  }
}

/** One line of a file, without comment and indentation. */
export interface Line {
  readonly number: number;
  readonly indent: number;
  readonly text: string;
}

/** A statement with the deeper lines under it, which continue it. */
export interface Statement {
  readonly line: number;
  readonly words: readonly string[];
  /** The lines under it, unchanged, for blocks of YAML. */
  readonly block: readonly string[];
  readonly under: readonly Line[];
}

/** One row of an `expect` table. */
export interface Row {
  readonly line: number;
  /** Its seven columns, joined by one space. */
  readonly text: string;
  readonly code: string;
  readonly cause: string;
  readonly state: string;
  /** Texts that object, field, expected or actual must contain. */
  readonly mentions: readonly string[];
}

export interface ExpectedFindings {
  readonly line: number;
  /** `at most pending`: differences may be pending, but none has opened. */
  readonly atMostPending: boolean;
  readonly rows: readonly Row[];
}

export interface ExpectedVerdict {
  readonly line: number;
  readonly key: string;
  /** An output, or `foreign`. */
  readonly of: string;
  readonly verdict: string;
}

/** What was measured of lag since the step before that expected it, and nothing else. */
export interface ExpectedLag {
  readonly line: number;
  readonly rows: readonly string[];
}

/** The open incidents, each as `KIND OBJECT`. */
export interface ExpectedIncidents {
  readonly line: number;
  readonly rows: readonly string[];
}

export interface Step {
  readonly line: number;
  /** Seconds since the scenario began. */
  readonly at: number;
  readonly statements: readonly Statement[];
  readonly findings: ExpectedFindings | null;
  readonly verdicts: readonly ExpectedVerdict[];
  readonly lag: ExpectedLag | null;
  readonly incidents: ExpectedIncidents | null;
}

export interface Scenario {
  readonly file: string;
  /** The first sentence of the head comment. */
  readonly title: string;
  readonly release: Release;
  /** The settle window, seconds. */
  readonly window: number;
  readonly maxEndpointsPerSlice: number;
  readonly delivered: ReadonlySet<Resource>;
  readonly steps: readonly Step[];
}

export const columns = ['SEVERITY', 'SERVICE', 'OUTPUT', 'CODE', 'CAUSE', 'STATE', 'SINCE'];

interface Draft {
  file: string;
  title: string;
  release: Release;
  window: number;
  maxEndpointsPerSlice: number;
  delivered: Set<Resource>;
  steps: Step[];
}

const units: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600 };

/** `90s`, `0.5s`, `15m` or `2h` in seconds; null for anything else. */
export function parseDuration(text: string): number | null {
  const match = /^(?<count>\d+(?:\.\d+)?)(?<unit>[smh])$/.exec(text);
  if (match?.groups === undefined) return null;
  return Number(match.groups.count) * (units[match.groups.unit ?? ''] ?? 1);
}

/** Splits at white space; double quotes keep it together and are taken off. */
export function splitWords(text: string): string[] {
  const words = text.match(/(?:[^\s"]|"[^"]*")+/g) ?? [];
  return words.map((word) => word.replaceAll('"', ''));
}

/** The line without its comment: `#` at the beginning or after white space, outside of quotes. */
function withoutComment(text: string): string {
  let quoted = false;
  for (let index = 0; index < text.length; index++) {
    if (text[index] === '"') quoted = !quoted;
    const free = index === 0 || /\s/.test(text[index - 1] ?? '');
    if (text[index] === '#' && !quoted && free) return text.slice(0, index);
  }
  return text;
}

function linesOf(file: string, text: string): Line[] {
  const lines: Line[] = [];
  for (const [index, raw] of text.split('\n').entries()) {
    if (raw.includes('\t')) throw new ScenarioError(file, index + 1, 'Tab where a space should be');
    const bare = withoutComment(raw).trimEnd();
    if (bare.trim() === '') continue;
    const indent = bare.length - bare.trimStart().length;
    lines.push({ number: index + 1, indent, text: bare.trimStart() });
  }
  return lines;
}

/** The first sentence of the comment that the file begins with. */
function titleOf(file: string, text: string): string {
  const comment = /^(?:#.*\n)+/.exec(text)?.[0] ?? '';
  const prose = comment.replaceAll(/^# ?/gm, '').replaceAll(/\s+/g, ' ').trim();
  if (prose === '') throw new ScenarioError(file, 1, 'No comment that tells what the scenario is');
  return /^.*?[.:](?= |$)/.exec(prose)?.[0] ?? prose;
}

/** Reads a whole scenario; throws a ScenarioError that names file and line. */
export function parseScenario(file: string, text: string): Scenario {
  const draft: Draft = {
    file,
    title: titleOf(file, text),
    release: newestRelease,
    window: 30,
    maxEndpointsPerSlice: 100,
    delivered: new Set(resources),
    steps: [],
  };
  const lines = linesOf(file, text);
  const raw = text.split('\n');
  for (let index = 0; index < lines.length;) {
    const line = lines[index];
    if (line === undefined) break;
    if (line.indent > 0) throw new ScenarioError(file, line.number, 'Expected a setting or `at`');
    let end = index + 1;
    while ((lines[end]?.indent ?? 0) > 0) end++;
    const body = lines.slice(index + 1, end);
    if (line.text.startsWith('at ')) draft.steps.push(parseStep(draft, line, body, raw));
    else if (body[0] === undefined) parseSetting(draft, line);
    else throw new ScenarioError(file, body[0].number, 'Expected no lines under a setting');
    index = end;
  }
  checkSteps(draft);
  return draft;
}

function checkSteps({ file, steps }: Draft): void {
  const [first, last] = [steps[0], steps.at(-1)];
  if (first === undefined || last === undefined) throw new ScenarioError(file, 1, 'No steps');
  if (first.at !== 0) throw new ScenarioError(file, first.line, 'The first step must be `at 0s`');
  if (last.findings === null && last.incidents === null)
    throw new ScenarioError(file, last.line, 'No `expect` in the last step');
}

function parseSetting(draft: Draft, { number, text }: Line): void {
  const { file, steps } = draft;
  if (steps.length > 0)
    throw new ScenarioError(file, number, `Setting after the first step: ${text}`);
  const [name = '', value = ''] = splitWords(text);
  switch (name) {
    case 'kubernetes': {
      const release = releaseOf(value);
      if (release === null) throw new ScenarioError(file, number, `Unknown release: ${value}`);
      draft.release = release;
      return;
    }
    case 'settle': {
      const window = parseDuration(value);
      if (window === null) throw new ScenarioError(file, number, `Expected a duration: ${value}`);
      draft.window = window;
      return;
    }
    case 'max-endpoints-per-slice':
      draft.maxEndpointsPerSlice = Number(value);
      return;
    case 'without':
      if (!draft.delivered.delete(value as Resource)) {
        throw new ScenarioError(file, number, `Unknown resource: ${value}`);
      }
      return;
    default:
      throw new ScenarioError(file, number, `Unknown setting: ${name}`);
  }
}

function parseStep(draft: Draft, head: Line, body: readonly Line[], raw: readonly string[]): Step {
  const { file } = draft;
  const at = parseDuration(head.text.slice('at '.length).trim());
  if (at === null) throw new ScenarioError(file, head.number, `Expected a duration: ${head.text}`);
  const before = draft.steps.at(-1);
  if (before !== undefined && at <= before.at) {
    throw new ScenarioError(file, head.number, `Step not later than the one before: ${head.text}`);
  }
  const statements: Statement[] = [];
  const verdicts: ExpectedVerdict[] = [];
  let findings: ExpectedFindings | null = null;
  let lag: ExpectedLag | null = null;
  let incidents: ExpectedIncidents | null = null;
  for (const statement of statementsOf(file, body, raw)) {
    const { line, words } = statement;
    if (words[0] === 'verdict') verdicts.push(parseVerdict(file, statement));
    else if (words[0] === 'lag') lag = parseRows(file, statement);
    else if (words[0] === 'incidents') incidents = parseRows(file, statement);
    else if (words[0] === 'expect') {
      if (findings !== null) throw new ScenarioError(file, line, 'Second `expect` of the step');
      findings = parseFindings(file, statement);
    } else if (findings !== null || lag !== null || incidents !== null || verdicts.length > 0) {
      throw new ScenarioError(file, line, 'Statement after what is expected of its step');
    } else statements.push(statement);
  }
  return { line: head.number, at, statements, findings, verdicts, lag, incidents };
}

/** Lines of the least indentation begin statements, deeper ones continue them. */
function statementsOf(file: string, body: readonly Line[], raw: readonly string[]): Statement[] {
  const statements: Statement[] = [];
  const indent = body[0]?.indent ?? 0;
  for (let index = 0; index < body.length;) {
    const line = body[index];
    if (line === undefined) break;
    if (line.indent !== indent)
      throw new ScenarioError(file, line.number, 'Unexpected indentation');
    let end = index + 1;
    while ((body[end]?.indent ?? 0) > indent) end++;
    const under = body.slice(index + 1, end);
    const last = under.at(-1)?.number ?? line.number;
    statements.push({
      line: line.number,
      words: splitWords(line.text),
      block: raw.slice(line.number, last),
      under,
    });
    index = end;
  }
  return statements;
}

function parseVerdict(file: string, { line, words, under }: Statement): ExpectedVerdict {
  const [, key, of, ...verdict] = words;
  const complete = of !== undefined && (verdict.length > 0 || of === 'foreign');
  if (key?.includes('/') !== true || !complete || under.length > 0) {
    throw new ScenarioError(file, line, 'Expected `verdict NAMESPACE/SERVICE OUTPUT VERDICT`');
  }
  return { line, key, of, verdict: verdict.join(' ') };
}

/** A block of lines, or `none`: of `lag` and of `incidents`. */
function parseRows(file: string, { line, words, under }: Statement): ExpectedLag {
  const [what = ''] = words;
  const isNone = words.length === 2 && words[1] === 'none';
  if (words.length > 1 && !isNone) throw new ScenarioError(file, line, `Expected \`${what} none\``);
  if (isNone !== (under.length === 0)) {
    throw new ScenarioError(file, line, `Expected \`${what} none\`, or \`${what}\` and lines`);
  }
  return { line, rows: under.map(({ text }) => splitWords(text).join(' ')) };
}

function parseFindings(file: string, { line, words, under }: Statement): ExpectedFindings {
  const what = words.slice(1).join(' ');
  if (what === 'none' || what === 'at most pending') {
    if (under[0] !== undefined) throw new ScenarioError(file, under[0].number, 'Expected no table');
    return { line, atMostPending: what !== 'none', rows: [] };
  }
  if (what !== '') throw new ScenarioError(file, line, `Unknown expectation: ${what}`);
  const isHead = under[0]?.text.split(/\s+/).join() === columns.join();
  const rows = under.slice(isHead ? 1 : 0).map((row) => parseRow(file, row));
  if (rows.length === 0) throw new ScenarioError(file, line, 'Expected `none` or a table');
  return { line, atMostPending: false, rows };
}

const severities = ['critical', 'warning', 'info'];
const states = ['pending', 'open', 'resolved'];

function parseRow(file: string, { number, text }: Line): Row {
  const words = splitWords(text);
  const [severity = '', , , code = '', cause = '', state = '', since = ''] = words;
  if (words.length < columns.length) {
    throw new ScenarioError(file, number, `Expected ${columns.length} columns: ${text}`);
  }
  if (!severities.includes(severity)) {
    throw new ScenarioError(file, number, `Expected ${severities.join(', ')}: ${severity}`);
  }
  if (!states.includes(state)) {
    throw new ScenarioError(file, number, `Expected ${states.join(', ')}: ${state}`);
  }
  if (parseDuration(since) === null) {
    throw new ScenarioError(file, number, `Expected a duration: ${since}`);
  }
  const mentions: string[] = [];
  for (let rest = words.slice(columns.length); rest.length > 0; rest = rest.slice(2)) {
    const [word, mention] = rest;
    if (word !== 'mentions' || mention === undefined) {
      throw new ScenarioError(file, number, `Expected \`mentions "TEXT"\`: ${rest.join(' ')}`);
    }
    mentions.push(mention);
  }
  const columnsText = words.slice(0, columns.length).join(' ');
  return { line: number, text: columnsText, code, cause, state, mentions };
}
