// The report of an audit or a replay: one document, and the texts that are rendered from it.
// docs/report.md describes each field; `format` counts the incompatible versions.
//
// Only this file and junit.ts decide the layout of a finding. Colour is never the only sign. Left
// out: the selection of what to report (namespaces, severities), which happens before.

import { stringify } from 'yaml';

import type { Finding, Severity } from '../../audit/finding/catalogue.ts';
import { severities } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import type { Fill } from '../../audit/measure/fill.ts';
import { fillRatio, mostSurplus, surplusOf } from '../../audit/measure/fill.ts';
import type { Histogram } from '../../audit/measure/histogram.ts';
import { merged, quantile } from '../../audit/measure/histogram.ts';
import type { ConvergenceLag, LagOutput, TriggerLag } from '../../audit/measure/lag.ts';
import { lagOutputs } from '../../audit/measure/lag.ts';
import type { Measurements, ServiceSums } from '../../audit/measure/measurements.ts';
import type { ResourceSizes } from '../../audit/measure/size.ts';
import { countsByBound, largestBytes, objectCount, sizeBounds } from '../../audit/measure/size.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import type { Summary } from '../../audit/summary.ts';
import { inOrder } from '../../audit/summary.ts';
import { recordOf } from '../../model/counts.ts';
import type { Key, OutputResource } from '../../model/objects.ts';
import { outputResources } from '../../model/objects.ts';
import type { DetectedRelease } from '../../shadow/detect-release.ts';
import type { RenderOptions, ReportedFinding, TextStyle } from './format.ts';
import {
  codeUnits,
  columnWidths,
  escapeInvisible,
  formatClock,
  formatCount,
  formatDetail,
  formatJson,
  formatLag,
  formatTable,
  formatTime,
  gap,
  invisible,
  paint,
  truncate,
} from './format.ts';
import { renderJunit } from './junit.ts';

// --- the document ---

/** Times in Unix seconds on the input's clock. */
export interface AuditReport extends Omit<Summary, 'findings' | 'pendingSince'> {
  readonly format: 1;
  readonly kind: 'audit' | 'replay';
  readonly input: {
    readonly sources: readonly string[];
    /** The version in the input: `v1.36.3`. */
    readonly kubernetes: string | null;
    /** The release whose controllers were shadowed: `1.36`. */
    readonly release: string;
    /** The source of the release; `newest` if the input does not contain one. */
    readonly releaseBy: DetectedRelease['by'];
    /** The release was compared with a real control plane. */
    readonly verified: boolean;
    readonly from: number | null;
    readonly until: number | null;
    /** Whether a recording has the end that its recorder writes; null for a dump. */
    readonly complete: boolean | null;
  };
  /** The reported namespace; null for all. Dropped input and measures are always of all. */
  readonly namespace: string | null;
  /** Open and resolved findings. */
  readonly findings: readonly ReportedFinding[];
  readonly dropped: Readonly<Record<string, number>>;
  readonly problems: readonly string[];
  readonly measures: ReturnType<typeof summarizeMeasures>;
}

/** The measurements that a report contains. */
type ReportedMeasurements = Pick<ServiceSums, 'fill' | 'duplicates'> &
  Pick<Measurements, 'sizes' | 'convergence' | 'trigger'>;

/** Seconds; null if there is no sample. */
export function summarizeLag(histogram: Histogram) {
  const { count, largest } = histogram;
  const [p50, p99] = [quantile(histogram, 0.5), quantile(histogram, 0.99)];
  return { count, p50, p99, max: count === 0 ? null : largest };
}

const summarizeFill = ({ endpoints, slices, minimum }: Fill) => ({
  endpoints,
  slices,
  minimum,
  surplus: surplusOf({ endpoints, slices, minimum }),
});

function summarizeSizes(sizes: ResourceSizes) {
  const counts = countsByBound(sizes);
  return {
    objects: objectCount(sizes),
    maxBytes: largestBytes(sizes),
    /** The number of objects of at most this many bytes. */
    bytes: sizeBounds.map((atMost, index) => ({ atMost, objects: counts[index] ?? 0 })),
    updates: sizes.updates,
    updateBytes: sizes.updateBytes,
    updateFanoutBytes: sizes.fanoutBytes,
  };
}

const summarizeConvergence = ({ add, remove, update }: ConvergenceLag[LagOutput]) => ({
  all: summarizeLag(merged([add, remove, update])),
  add: summarizeLag(add),
  remove: summarizeLag(remove),
  update: summarizeLag(update),
});

const summarizeTrigger = ({ lag, counts }: TriggerLag, resource: OutputResource) => ({
  ...summarizeLag(lag[resource]),
  qualities: { ...counts[resource] },
});

/** The numbers of a report; `fills` are those of each Service. */
export function summarizeMeasures(
  measured: ReportedMeasurements,
  fills: Iterable<readonly [Key, Fill]>,
) {
  const { fill, duplicates, sizes, convergence, trigger } = measured;
  return {
    fill: {
      ...summarizeFill(fill),
      ratio: fillRatio(fill, fill.max),
      /** The Services with the largest surplus. */
      worst: mostSurplus(fills, 10).map(([key, sums]) => {
        const [namespace = '', service = ''] = key.split('/');
        return { namespace, service, ...summarizeFill(sums) };
      }),
    },
    duplicates: { equal: duplicates.equal, conflicting: duplicates.conflicting },
    sizes: recordOf(outputResources, (resource) => summarizeSizes(sizes[resource])),
    convergenceLag: recordOf(lagOutputs, (output) => summarizeConvergence(convergence[output])),
    triggerLag: recordOf(outputResources, (resource) => summarizeTrigger(trigger, resource)),
  };
}

// --- findings as they open ---

const colours: Readonly<Record<Severity, TextStyle>> = {
  critical: ['bold', 'red'],
  warning: 'yellow',
  info: 'cyan',
};

/** The output, with the name of its node. */
const formatOutput = ({ output, node }: Pick<Finding, 'output' | 'node'>): string =>
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
    isOpen ? 'OPEN    ' : paint(colour, 'green', 'RESOLVED'),
    isOpen ? paint(colour, colours[severity], padded) : padded,
    ...(finding.service === '' ? [] : [escapeInvisible(`${finding.namespace}/${finding.service}`)]),
    formatOutput(finding),
    `${code} `,
    (isOpen ? formatDetail(finding, 200) : `after ${formatLag(resolvedAt - since)}`) +
      (cause === null ? '' : ` (${cause})`),
  ].join(' ');
}

// --- renderers ---

export type ReportFormat = 'table' | 'wide' | 'json' | 'yaml' | 'junit';

/** The report as text, with a newline at its end. */
export function renderReport(
  report: AuditReport,
  format: ReportFormat,
  options: RenderOptions,
): string {
  switch (format) {
    case 'table':
      return renderTable(report, false, options);
    case 'wide':
      return renderTable(report, true, options);
    case 'json':
      return formatJson(report);
    case 'yaml':
      return renderYaml(report);
    case 'junit':
      return renderJunit({ ...report, findings: sortFindings(report.findings) });
  }
}

function renderYaml(report: AuditReport): string {
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

const isOpen = ({ resolvedAt }: ReportedFinding): boolean => resolvedAt === null;

/** Sorts open findings before resolved ones, each part worst first. */
const sortFindings = (findings: readonly ReportedFinding[]): ReportedFinding[] => [
  ...inOrder(findings.filter(isOpen)),
  ...inOrder(findings.filter((finding) => !isOpen(finding))),
];

type Column = readonly [head: string, cell: (finding: ReportedFinding) => string];

/** The columns of a report; a dump has no times. */
function listColumns({ kind, input }: AuditReport, wide: boolean): Column[] {
  const { from, until } = input;
  const isOneDay = formatTime(from).slice(0, 10) === formatTime(until).slice(0, 10);
  const moment = isOneDay ? formatClock : formatTime;
  const text = (value: string | null): string => truncate(escapeInvisible(value ?? '-'), 200);
  const columns: Column[] = [
    ['SEVERITY', ({ severity }) => severity],
    ['NAMESPACE', ({ namespace }) => text(namespace)],
    ['SERVICE', ({ service }) => text(service)],
    ['OUTPUT', formatOutput],
    ['CODE', ({ code }) => code],
    ['CAUSE', ({ cause }) => cause ?? '-'],
  ];
  if (kind === 'replay') {
    columns.push(['OPENED', ({ openedAt }) => moment(openedAt)]);
    columns.push(['RESOLVED', ({ resolvedAt }) => moment(resolvedAt)]);
  }
  if (wide) {
    columns.push(['FIELD', ({ field }) => text(field)]);
    columns.push(['EXPECTED', ({ expected }) => text(expected)]);
    columns.push(['ACTUAL', ({ actual }) => text(actual)]);
  }
  return columns;
}

/** The minimum width of the column of details. */
const minDetail = 20;
const narrow = 'What is wrong with them has no room in these columns: -o wide says it';

function renderTable(report: AuditReport, wide: boolean, options: RenderOptions): string {
  const findings = sortFindings(report.findings);
  if (findings.length === 0) return `${summarizeReport(report).join('\n')}\n`;
  const columns = listColumns(report, wide);
  const head = columns.map(([name]) => name);
  const rows = findings.map((finding) => columns.map(([, cell]) => cell(finding)));
  const used = columnWidths([head, ...rows]).reduce((sum, width) => sum + width + gap.length, 0);
  const left = wide ? 0 : options.width - used;
  if (left >= minDetail) {
    head.push('WHAT');
    for (const [index, finding] of findings.entries()) {
      rows[index]?.push(formatDetail(finding, left));
    }
  }
  const lines = formatTable([head, ...rows], (cell, row, column) => {
    const severity = findings[row - 1]?.severity;
    const isPlain = severity === undefined || column > 0;
    return isPlain ? cell : paint(options.colour, colours[severity], cell);
  });
  const hint = wide || left >= minDetail ? [] : [narrow];
  return `${[...lines, '', ...summarizeReport(report), ...hint].join('\n')}\n`;
}

/** Formats counts as `3 different, 1 unknown`, without those that are 0. */
function formatCounts(counts: Readonly<Record<string, number | undefined>>): string {
  return Object.entries(counts)
    .filter(([, count]) => (count ?? 0) > 0)
    .map(([word, count]) => `${count ?? 0} ${escapeInvisible(word)}`)
    .join(', ');
}

const notConform: readonly Verdict[] = ['pending', 'different', 'unknown'];

/** The verdict on all Services in one line. */
function formatHeadline(report: AuditReport): string {
  const { findings, services, unknown, verdicts } = report;
  const open = findings.filter(isOpen);
  const resolved = findings.length - open.length;
  const after = resolved === 0 ? '' : `; ${formatCount(resolved, 'finding')} resolved`;
  if (open.length > 0) {
    const bySeverity = Object.fromEntries(
      severities.map((severity) => [
        severity,
        open.filter((finding) => finding.severity === severity).length,
      ]),
    );
    const which = resolved === 0 ? '' : ' open';
    return `${formatCount(open.length, 'finding')}${which}: ${formatCounts(bySeverity)}${after}`;
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

/** The assumed release and its source; '' if the input or the user names the release. */
function formatRelease({ release, releaseBy }: AuditReport['input']): string {
  if (releaseBy === 'option' || releaseBy === 'version') return '';
  const by = releaseBy === 'newest' ? 'the newest known: none is told' : `by its ${releaseBy}`;
  return `judged as ${escapeInvisible(release)}, ${by}`;
}

function summarizeReport(report: AuditReport): string[] {
  const { verdicts, unknown, foreign, dropped, input, measures } = report;
  const outputs = verdictOutputs.flatMap((output) => {
    const counts = formatCounts({ ...verdicts[output] });
    return counts === '' ? [] : [`${output} ${counts}`];
  });
  // Neither is counted by namespace.
  const all = report.namespace === null ? '' : ' (all namespaces)';
  const notes = [
    input.complete === false ? 'the recording is cut short' : '',
    formatCounts(unknown) === '' ? '' : `not judged: ${formatCounts(unknown)}`,
    foreign === 0 ? '' : `written by others: ${formatCount(foreign, 'Service')}`,
    formatCounts(dropped) === '' ? '' : `input dropped${all}: ${formatCounts(dropped)}`,
    formatRelease(input),
    input.verified ? '' : `release ${escapeInvisible(input.release)} is not verified`,
  ].filter((note) => note !== '');
  const lags = verdictOutputs.flatMap((output) => {
    const { count, p50, p99 } = measures.convergenceLag[output].all;
    if (count === 0) return [];
    return [`${output} ${formatLag(p50)} / ${formatLag(p99)} of ${count}`];
  });
  const lines = [formatHeadline(report)];
  if (outputs.length > 0) lines.push(`Verdicts: ${outputs.join('; ')}`);
  if (notes.length > 0) lines.push(`Besides: ${notes.join('; ')}`);
  if (lags.length > 0) lines.push(`Convergence lag p50 / p99${all}: ${lags.join('; ')}`);
  return lines;
}
