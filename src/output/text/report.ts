// The report of an audit or a replay: one document, and the texts that are made from it. What the
// document holds is described field by field in docs/report.md; `format` counts its incompatible
// versions.
//
// No text for people holds a character that cannot be seen (text.ts says why), and nothing but this
// file and junit.ts decides how a finding is laid out. Colour is never the only sign.
//
// Left out: sorting out what to report (namespaces, severities), which is done before.

import { styleText } from 'node:util';

import { stringify } from 'yaml';

import type { Finding, Severity } from '../../audit/finding/catalogue.ts';
import { severities } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import type { DuplicateTotals } from '../../audit/measure/duplicates.ts';
import type { FillTotals } from '../../audit/measure/fill.ts';
import { fillRatio, mostSurplus, surplusOf } from '../../audit/measure/fill.ts';
import type { Histogram } from '../../audit/measure/histogram.ts';
import type {
  ConvergenceLag,
  LagOperation,
  LagOutput,
  TriggerQuality,
  TriggerLag,
} from '../../audit/measure/lag.ts';
import { merged, quantile } from '../../audit/measure/lag.ts';
import type { Sizes } from '../../audit/measure/size.ts';
import { countsByBound, largestBytes, objectCount, sizeBounds } from '../../audit/measure/size.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import type { Summary } from '../../audit/summary.ts';
import { inOrder } from '../../audit/summary.ts';
import type { OutputResource } from '../../model/objects.ts';
import type { DetectedRelease } from '../../shadow/detect-release.ts';
import type { ReportedFinding } from './format.ts';
import {
  formatClock,
  truncate,
  formatDetail,
  formatLag,
  formatCount,
  escapeInvisible,
  formatTime,
} from './format.ts';
import { renderJunit } from './junit.ts';

// --- the document ---

/** Seconds; null where nothing was measured. */
interface LagFigures {
  readonly count: number;
  readonly p50: number | null;
  readonly p99: number | null;
  readonly max: number | null;
}

interface FillFigures {
  readonly endpoints: number;
  readonly slices: number;
  readonly minimum: number;
  readonly surplus: number;
}

interface SizeFigures {
  readonly objects: number;
  readonly maxBytes: number;
  /** How many objects have at most so many bytes. */
  readonly bytes: readonly { readonly atMost: number; readonly objects: number }[];
  readonly updates: number;
  readonly updateBytes: number;
  readonly updateFanoutBytes: number;
}

interface Measures {
  readonly fill: FillFigures & {
    readonly ratio: number | null;
    /** The Services with the largest surplus, at most ten. */
    readonly worst: readonly (FillFigures & {
      readonly namespace: string;
      readonly service: string;
    })[];
  };
  readonly duplicates: { readonly equal: number; readonly conflicting: number };
  readonly sizes: Readonly<Record<OutputResource, SizeFigures>>;
  readonly convergenceLag: Readonly<
    Record<LagOutput, Readonly<Record<'all' | LagOperation, LagFigures>>>
  >;
  readonly triggerLag: Readonly<
    Record<
      OutputResource,
      LagFigures & { readonly qualities: Readonly<Record<TriggerQuality, number>> }
    >
  >;
}

/** Times in Unix seconds on the input's clock. */
export interface AuditReport {
  readonly format: 1;
  readonly kind: 'audit' | 'replay';
  readonly input: {
    readonly sources: readonly string[];
    /** As the input names it: `v1.36.3`. */
    readonly kubernetes: string | null;
    /** The release whose controllers were shadowed: `1.36`. */
    readonly release: string;
    /** What told that release; `newest`: nothing did, and the newest was assumed. */
    readonly releaseBy: DetectedRelease['by'];
    /** That release was held against a real control plane. */
    readonly verified: boolean;
    readonly from: number | null;
    readonly until: number | null;
    /** A recording has the end that its recorder wrote, so it was not cut short; null: a dump. */
    readonly complete: boolean | null;
  };
  /** The only one that is reported; null: all. What was dropped and measured is of all anyhow. */
  readonly namespace: string | null;
  /** Those that stand and those that are resolved. */
  readonly findings: readonly ReportedFinding[];
  readonly services: number;
  readonly verdicts: Summary['verdicts'];
  readonly nodes: Summary['nodes'];
  readonly unknown: Summary['unknown'];
  readonly foreign: number;
  readonly dropped: Readonly<Record<string, number>>;
  readonly problems: readonly string[];
  readonly measures: Measures;
}

/** The accumulators of measure/, as MetricsState has them too. */
export interface Accumulators {
  readonly fill: FillTotals;
  readonly duplicates: DuplicateTotals;
  readonly sizes: Sizes;
  readonly convergence: ConvergenceLag;
  readonly trigger: TriggerLag;
}

export function summarizeLag(histogram: Histogram): LagFigures {
  const { count, largest } = histogram;
  const [p50, p99] = [quantile(histogram, 0.5), quantile(histogram, 0.99)];
  return { count, p50, p99, max: count === 0 ? null : largest };
}

/** The numbers of a report. */
export function summarizeMeasures(from: Accumulators): Measures {
  const { fill, duplicates, sizes, convergence, trigger } = from;
  const fillFigures = (of: {
    endpoints: number;
    slices: number;
    minimum: number;
  }): FillFigures => ({
    endpoints: of.endpoints,
    slices: of.slices,
    minimum: of.minimum,
    surplus: surplusOf(of),
  });
  const ofOutput = (output: LagOutput) => {
    const { add, remove, update } = convergence[output];
    return {
      all: summarizeLag(merged([add, remove, update])),
      add: summarizeLag(add),
      remove: summarizeLag(remove),
      update: summarizeLag(update),
    };
  };
  const ofTrigger = (resource: OutputResource) => ({
    ...summarizeLag(trigger.lag[resource]),
    qualities: { ...trigger.counts[resource] },
  });
  return {
    fill: {
      ...fillFigures(fill),
      ratio: fillRatio(fill, fill.max),
      worst: mostSurplus(fill, 10).map(([key, of]) => {
        const [namespace = '', service = ''] = key.split('/');
        return { namespace, service, ...fillFigures(of) };
      }),
    },
    duplicates: { equal: duplicates.equal, conflicting: duplicates.conflicting },
    sizes: {
      endpoints: sizeFigures(sizes, 'endpoints'),
      endpointslices: sizeFigures(sizes, 'endpointslices'),
    },
    convergenceLag: {
      endpoints: ofOutput('endpoints'),
      endpointslices: ofOutput('endpointslices'),
      mirrored: ofOutput('mirrored'),
      node: ofOutput('node'),
    },
    triggerLag: { endpoints: ofTrigger('endpoints'), endpointslices: ofTrigger('endpointslices') },
  };
}

function sizeFigures(sizes: Sizes, resource: OutputResource): SizeFigures {
  const of = sizes[resource];
  const counts = countsByBound(of);
  return {
    objects: objectCount(of),
    maxBytes: largestBytes(of),
    bytes: sizeBounds.map((atMost, index) => ({ atMost, objects: counts[index] ?? 0 })),
    updates: of.updates,
    updateBytes: of.updateBytes,
    updateFanoutBytes: of.fanoutBytes,
  };
}

// --- findings as they open ---

const colours: Readonly<Record<Severity, Parameters<typeof styleText>[0]>> = {
  critical: ['bold', 'red'],
  warning: 'yellow',
  info: 'cyan',
};

function painted(colour: boolean, style: Parameters<typeof styleText>[0], text: string): string {
  return colour ? styleText(style, text, { validateStream: false }) : text;
}

/** Of a node, with its name. */
const outputText = ({ output, node }: Pick<Finding, 'output' | 'node'>): string =>
  node === null ? output : `${output} ${escapeInvisible(node)}`;

/**
 * One line for a finding that opens or is resolved, without a newline:
 * `10:56:46 OPEN     critical shop/web endpointslices slice-endpoint-unexpected  10.1.2.3 of …`.
 */
export function formatFindingLine(finding: Finding, colour: boolean): string {
  const { code, severity, cause, since, openedAt, resolvedAt } = finding;
  const isOpen = resolvedAt === null;
  const padded = severity.padEnd(8);
  return [
    formatClock(isOpen ? openedAt : resolvedAt),
    isOpen ? 'OPEN    ' : painted(colour, 'green', 'RESOLVED'),
    isOpen ? painted(colour, colours[severity], padded) : padded,
    ...(finding.service === '' ? [] : [escapeInvisible(`${finding.namespace}/${finding.service}`)]),
    outputText(finding),
    `${code} `,
    (isOpen ? formatDetail(finding, 200) : `after ${formatLag(resolvedAt - since)}`) +
      (cause === null ? '' : ` (${cause})`),
  ].join(' ');
}

// --- renderers ---

export type ReportFormat = 'table' | 'wide' | 'json' | 'yaml' | 'junit';

interface RenderOptions {
  /** For table and wide: with the escape sequences of a terminal. */
  readonly colour: boolean;
  /** Columns, or Infinity; the table says what is wrong in what its own columns leave of a line. */
  readonly width: number;
}

/** The report as text, with a newline at its end. */
export function renderReport(
  report: AuditReport,
  format: ReportFormat,
  options: RenderOptions,
): string {
  switch (format) {
    case 'table':
      return tableText(report, false, options);
    case 'wide':
      return tableText(report, true, options);
    case 'json':
      return formatJson(report);
    case 'yaml':
      return yamlText(report);
    case 'junit':
      return renderJunit({ ...report, findings: ordered(report.findings) });
  }
}

const invisible = /[\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u007f-\u009f]/gu;
const codeUnits = (text: string): string =>
  text.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A document as JSON, with a newline at its end and nothing hidden. */
export function formatJson(document: unknown): string {
  // JSON.stringify escapes what JSON must; terminals obey more than that.
  return `${JSON.stringify(document, null, 2).replace(invisible, codeUnits)}\n`;
}

function yamlText(report: AuditReport): string {
  const text = stringify(report, { lineWidth: 0 });
  const bare = text.replaceAll('\n', '');
  if (escapeInvisible(bare) === bare) return text;
  // Only double-quoted scalars can spell characters out.
  const quoted = stringify(report, {
    lineWidth: 0,
    defaultStringType: 'QUOTE_DOUBLE',
    defaultKeyType: 'QUOTE_DOUBLE',
    doubleQuotedMinMultiLineLength: Infinity,
  });
  return quoted.replace(invisible, (character) =>
    character.length > 1
      ? `\\U${(character.codePointAt(0) ?? 0).toString(16).padStart(8, '0')}`
      : codeUnits(character),
  );
}

// --- table ---

/** Findings that stand first, each part worst first. */
function ordered(findings: readonly ReportedFinding[]): ReportedFinding[] {
  const standing = findings.filter(({ resolvedAt }) => resolvedAt === null);
  const resolved = findings.filter(({ resolvedAt }) => resolvedAt !== null);
  return [...inOrder(standing), ...inOrder(resolved)];
}

interface Column {
  readonly head: string;
  readonly cell: (finding: ReportedFinding) => string;
}

const fullCell = 200;

/** The columns of a report; a dump has no times. */
function columnsOf(report: AuditReport, wide: boolean): Column[] {
  const { from, until } = report.input;
  const oneDay = formatTime(from).slice(0, 10) === formatTime(until).slice(0, 10);
  const moment = oneDay ? formatClock : formatTime;
  const text = (value: string | null): string => truncate(escapeInvisible(value ?? '-'), fullCell);
  const columns: Column[] = [
    { head: 'SEVERITY', cell: ({ severity }) => severity },
    { head: 'NAMESPACE', cell: ({ namespace }) => text(namespace) },
    { head: 'SERVICE', cell: ({ service }) => text(service) },
    { head: 'OUTPUT', cell: outputText },
    { head: 'CODE', cell: ({ code }) => code },
    { head: 'CAUSE', cell: ({ cause }) => cause ?? '-' },
  ];
  if (report.kind === 'replay') {
    columns.push({ head: 'OPENED', cell: ({ openedAt }) => moment(openedAt) });
    columns.push({ head: 'RESOLVED', cell: ({ resolvedAt }) => moment(resolvedAt) });
  }
  if (wide) {
    columns.push({ head: 'FIELD', cell: ({ field }) => text(field) });
    columns.push({ head: 'EXPECTED', cell: ({ expected }) => text(expected) });
    columns.push({ head: 'ACTUAL', cell: ({ actual }) => text(actual) });
  }
  return columns;
}

const gap = '   ';
/** The least columns in which it is worth saying what is wrong. */
const leastDetail = 20;
const narrow = 'What is wrong with them has no room in these columns: -o wide says it';

function tableText(report: AuditReport, wide: boolean, { colour, width }: RenderOptions): string {
  const findings = ordered(report.findings);
  const columns = columnsOf(report, wide);
  const rows = findings.map((finding) => columns.map(({ cell }) => cell(finding)));
  const widths = columns.map(({ head }, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), head.length),
  );
  const used = widths.reduce((sum, one) => sum + one + gap.length, 0);
  const left = wide ? 0 : width - used;
  const line = (cells: readonly string[], detail: string, severity: Severity | null): string => {
    const padded = cells.map((cell, column) => cell.padEnd(widths[column] ?? 0));
    if (severity !== null) padded[0] = painted(colour, colours[severity], padded[0] ?? '');
    if (left >= leastDetail) padded.push(detail);
    return padded.join(gap).trimEnd();
  };
  const head = line(
    columns.map(({ head }) => head),
    'WHAT',
    null,
  );
  const body = findings.map((finding, index) =>
    line(rows[index] ?? [], formatDetail(finding, left), finding.severity),
  );
  const listed = findings.length === 0 ? [] : [head, ...body, ''];
  const hint = wide || left >= leastDetail || findings.length === 0 ? [] : [narrow];
  return `${[...listed, ...summaryLines(report), ...hint].join('\n')}\n`;
}

/** `3 different, 1 unknown` of counts that are not 0, in the order given. */
function countsText(counts: Readonly<Record<string, number | undefined>>): string {
  return Object.entries(counts)
    .filter(([, count]) => (count ?? 0) > 0)
    .map(([word, count]) => `${count ?? 0} ${escapeInvisible(word)}`)
    .join(', ');
}

const notConform: readonly Verdict[] = ['pending', 'different', 'unknown'];

/** The verdict on the whole in one line. */
function headline(report: AuditReport): string {
  const { findings, services, unknown, verdicts } = report;
  const standing = findings.filter(({ resolvedAt }) => resolvedAt === null);
  const resolved = findings.length - standing.length;
  const after = resolved === 0 ? '' : `; ${formatCount(resolved, 'finding')} resolved`;
  if (standing.length > 0) {
    const bySeverity = Object.fromEntries(
      severities.map((severity) => [
        severity,
        standing.filter((finding) => finding.severity === severity).length,
      ]),
    );
    const open = resolved === 0 ? '' : ' open';
    return `${formatCount(standing.length, 'finding')}${open}: ${countsText(bySeverity)}${after}`;
  }
  if (services === 0) return `No Services to judge${after}`;
  const isAllConform =
    Object.values(unknown).every((count) => count === 0) &&
    verdictOutputs.every((output) =>
      notConform.every((verdict) => verdicts[output][verdict] === 0),
    );
  const all = services === 1 ? 'The only Service conforms' : `All ${services} Services conform`;
  return (isAllConform ? all : 'No findings, but not every output is known to conform') + after;
}

/** Which release was guessed, and by what; '': it was told. */
function releaseText({ release, releaseBy }: AuditReport['input']): string {
  if (releaseBy === 'option' || releaseBy === 'version') return '';
  const by = releaseBy === 'newest' ? 'the newest known: none is told' : `by its ${releaseBy}`;
  return `judged as ${escapeInvisible(release)}, ${by}`;
}

function summaryLines(report: AuditReport): string[] {
  const { verdicts, unknown, foreign, dropped, input, measures } = report;
  const outputs = verdictOutputs.flatMap((output) => {
    const counts = countsText({ ...verdicts[output] });
    return counts === '' ? [] : [`${output} ${counts}`];
  });
  // Neither is counted by namespace.
  const all = report.namespace === null ? '' : ' (all namespaces)';
  const notes = [
    input.complete === false ? 'the recording is cut short' : '',
    countsText(unknown) === '' ? '' : `not judged: ${countsText(unknown)}`,
    foreign === 0 ? '' : `written by others: ${formatCount(foreign, 'Service')}`,
    countsText(dropped) === '' ? '' : `input dropped${all}: ${countsText(dropped)}`,
    releaseText(input),
    input.verified ? '' : `release ${escapeInvisible(input.release)} is not verified`,
  ].filter((note) => note !== '');
  const lags = verdictOutputs.flatMap((output) => {
    const { count, p50, p99 } = measures.convergenceLag[output].all;
    if (count === 0) return [];
    return [`${output} ${formatLag(p50)} / ${formatLag(p99)} of ${count}`];
  });
  const lines = [headline(report)];
  if (outputs.length > 0) lines.push(`Verdicts: ${outputs.join('; ')}`);
  if (notes.length > 0) lines.push(`Besides: ${notes.join('; ')}`);
  if (lags.length > 0) lines.push(`Convergence lag p50 / p99${all}: ${lags.join('; ')}`);
  return lines;
}
