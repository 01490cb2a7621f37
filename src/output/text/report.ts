// The report of an audit or a replay: one document, and the texts that are rendered from it.
// docs/report.md describes each field; `format` counts the incompatible versions.

import { stringify } from 'yaml';

import { type Finding, severities } from '../../audit/finding/catalogue.ts';
import { isUnsuppressed, suppressedText } from '../../audit/finding/suppressions.ts';
import {
  nodeUnknownReasons,
  unknownText,
  type Verdict,
  verdicts as verdictNames,
  verdictWords,
} from '../../audit/finding/verdicts.ts';
import type { Fill } from '../../audit/measure/endpoint-counts.ts';
import { fillRatio, mostSurplus, surplusOf } from '../../audit/measure/endpoint-counts.ts';
import type { ReportedIncident } from '../../audit/incident/report.ts';
import { type Histogram, merged, quantile } from '../../audit/measure/histogram.ts';
import { lagOperations, lagOutputs } from '../../audit/measure/lag.ts';
import type { Measurements, ServiceSums } from '../../audit/measure/measurements.ts';
import type { ResourceSizes } from '../../audit/measure/size.ts';
import { countsByBound, largestBytes, objectCount, sizeBounds } from '../../audit/measure/size.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { inOrder, type Summary } from '../../audit/summary.ts';
import { recordOf } from '../../model/collections.ts';
import { type Key, outputResources } from '../../model/objects.ts';
import type { DetectedRelease } from '../../shadow/detect-release.ts';
import {
  createRemedyNumbers,
  diffLegend,
  renderFinding,
  renderSuppressed,
  severityStyles,
} from './findings.ts';
import type { RenderOptions, ReportedFinding } from './format.ts';
import {
  type Acceptance,
  acceptanceOf,
  acceptanceWords,
  type Gate,
  type GateOptions,
  unservedAcceptanceOf,
} from './gate.ts';
import {
  codeUnits,
  escapeInvisible,
  formatCause,
  formatClock,
  formatCount,
  formatCounts,
  formatDetail,
  formatField,
  formatJson,
  formatLag,
  formatOutput,
  formatTable,
  formatTime,
  formatUnverified,
  invisible,
  paint,
  wrap,
} from './format.ts';
import { renderIncidents } from './incidents.ts';
import { formatUnserved, type UnservedRow } from './unserved.ts';

// --- the document ---

/** Times in Unix seconds on the input's clock. */
export interface AuditReport extends Omit<Summary, 'findings' | 'pendingSince' | 'unserved'> {
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
    /** What of a dump allows which releases; null if nothing does. */
    readonly releaseEvidence: string | null;
    /** Whether all verdicts on the cluster are verified, and why not. */
    readonly verified: boolean;
    readonly unverified: readonly string[];
    readonly from: number | null;
    readonly until: number | null;
    /** Whether a recording has the end that its recorder writes; null for a dump. */
    readonly complete: boolean | null;
  };
  /** The reported namespace; null for all. Dropped input and measures are always of all. */
  readonly namespace: string | null;
  /** Selects the reported Services by their labels; null for all. */
  readonly selector: string | null;
  /** The name of the cluster, which the user gives it; null without one. */
  readonly cluster: string | null;
  /** The first Services that `foreign` counts, by name. */
  readonly foreignServices: readonly string[];
  /** Nodes whose rules are not known; null if no rules are known at all, or no Nodes. */
  readonly nodesWithoutRules: number | null;
  readonly findings: readonly ReportedFinding[];
  /** Open ones first, each with the longest first. */
  readonly incidents: readonly ReportedIncident[];
  /** By namespace and name. */
  readonly servicesWithoutEndpoints: readonly UnservedRow[];
  readonly dropped: Readonly<Record<string, number>>;
  readonly problems: readonly string[];
  readonly measures: ReturnType<typeof summarizeMeasures>;
  /** Which findings fail the command that printed the report. */
  readonly gate?: Gate;
}

/** Seconds; null if there is no sample. */
export function summarizeLag(histogram: Histogram) {
  const { count, largest } = histogram;
  const [p50, p99] = [quantile(histogram, 0.5), quantile(histogram, 0.99)];
  return { count, p50, p99, max: count === 0 ? null : largest };
}

function summarizeFill(fill: Fill) {
  const { endpoints, slices, minimum } = fill;
  return { endpoints, slices, minimum, surplus: surplusOf(fill) };
}

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

/** The numbers of a report; `fills` are those of each Service. */
export function summarizeMeasures(
  { fill, duplicates, sizes, convergence, trigger }: ServiceSums & Measurements,
  fills: Iterable<readonly [Key, Fill]>,
) {
  return {
    fill: {
      ...summarizeFill(fill),
      ratio: fillRatio(fill, fill.max),
      worst: mostSurplus(fills, 10).map(([key, sums]) => {
        const [namespace = '', service = ''] = key.split('/');
        return { namespace, service, ...summarizeFill(sums) };
      }),
    },
    duplicates: { equal: duplicates.equal, conflicting: duplicates.conflicting },
    sizes: recordOf(outputResources, (resource) => summarizeSizes(sizes[resource])),
    convergenceLag: recordOf(lagOutputs, (output) => ({
      all: summarizeLag(merged(lagOperations.map((operation) => convergence[output][operation]))),
      ...recordOf(lagOperations, (operation) => summarizeLag(convergence[output][operation])),
    })),
    triggerLag: recordOf(outputResources, (resource) => ({
      ...summarizeLag(trigger.lag[resource]),
      qualities: { ...trigger.counts[resource] },
    })),
  };
}

// --- findings as they open ---

/** The fewest columns in which a difference is still readable. */
const leastDetail = 20;

/**
 * `10:56:46 OPEN     critical shop/web endpointslices slice-endpoint-unexpected  10.1.2.3 of …`,
 * with as much of the difference as the width has room for.
 */
export function formatFindingLine(finding: Finding, { colour, width }: RenderOptions): string {
  const { code, severity, since, openedAt, resolvedAt, namespace, service, suppressed } = finding;
  const isOpen = resolvedAt === null;
  const padded = severity.padEnd(8);
  const state = isOpen
    ? `OPEN     ${paint(colour, severityStyles[severity], padded)}`
    : `${paint(colour, 'green', 'RESOLVED')} ${padded}`;
  const name = service === '' ? '' : `${escapeInvisible(`${namespace}/${service}`)} `;
  const clock = formatClock(isOpen ? openedAt : resolvedAt);
  const cause = formatCause(finding);
  const end = cause === '' ? '' : ` (${cause})`;
  const accepted =
    suppressed === null ? '' : ` (suppressed by ${escapeInvisible(suppressed.owner)})`;
  const head = `${clock} ${state} ${name}${formatOutput(finding)} ${code}`;
  const plain = `${clock} RESOLVED ${padded} ${name}${formatOutput(finding)} ${code}`;
  const room = width - plain.length - accepted.length - 2;
  const isBrief = room < leastDetail + end.length;
  const left = isBrief ? room : room - end.length;
  const text = isOpen ? formatDetail(finding, left) : `after ${formatLag(resolvedAt - since)}`;
  // Too narrow a cut would only hide what differs.
  const detail = isOpen && left < leastDetail ? '' : `  ${text}`;
  return `${head}${detail}${isBrief ? '' : end}${accepted}`;
}

// --- renderers ---

export type ReportFormat = 'table' | 'wide' | 'json' | 'yaml';

/** The report as text, with a newline at its end. */
export function renderReport(
  report: AuditReport,
  format: ReportFormat,
  options: RenderOptions,
  gate = everythingFails,
): string {
  if (format === 'json') return formatJson(report);
  if (format === 'yaml') return renderYaml(report);
  const acceptance = (it: UnservedRow): Acceptance | null => unservedAcceptanceOf(it, gate);
  const rows = failingFirst(report.servicesWithoutEndpoints, acceptance);
  const unserved = formatUnserved(rows, (it) => markOf(acceptance(it), gate), options);
  const incidents = renderIncidents(report.incidents, report.input.until, options);
  const findings = failingFirst(sortFindings(report.findings), (it) => acceptanceOf(it, gate));
  const sections =
    format === 'wide'
      ? renderWide(report, findings, gate, options)
      : renderTable(report, findings, gate, options);
  const lines = [...incidents, ...sections, ...unserved, ...summarizeReport(report, options)];
  const isLegend = format === 'table' && findings.some(isUnsuppressed);
  return `${[...lines, ...(isLegend ? [diffLegend] : [])].join('\n')}\n`;
}

/** The gate of a report that has none. */
const everythingFails: GateOptions = {
  failOn: { severity: 'info', unserved: false },
  ignored: [],
  baseline: null,
};

/** Those that do not fail the gate after the others, each in their order. */
const failingFirst = <T>(all: readonly T[], acceptance: (it: T) => Acceptance | null): T[] => [
  ...all.filter((it) => acceptance(it) === null),
  ...all.filter((it) => acceptance(it) !== null),
];

/** How the text marks what the gate accepts; '' for what fails, or is minor as usual. */
function markOf(acceptance: Acceptance | null, { failOn }: GateOptions): string {
  if (acceptance === null || acceptance === 'suppressed') return '';
  if (acceptance !== 'minor') return acceptanceWords[acceptance];
  return failOn.severity === 'critical' ? 'below --fail-on critical' : '';
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

/** Open findings, then resolved ones, each worst first. */
export const sortFindings = (findings: readonly ReportedFinding[]): ReportedFinding[] => [
  ...inOrder(findings.filter(isOpen)),
  ...inOrder(findings.filter((finding) => !isOpen(finding))),
];

type Column = readonly [head: string, cell: (finding: ReportedFinding) => string];

/** Formats moments of a report: the time of day, with the date if they are of several days. */
function momentFormat({ input, findings }: AuditReport): (at: number | null) => string {
  const ofFindings = findings.flatMap(({ openedAt, resolvedAt }) => [openedAt, resolvedAt]);
  const moments = [input.from, input.until, ...ofFindings].filter((at) => at !== null);
  const days = new Set(moments.map((at) => formatTime(at).slice(0, 10)));
  return days.size <= 1 ? formatClock : formatTime;
}

const wordOf = (acceptance: Acceptance | null): string =>
  acceptance === null ? 'fails' : acceptanceWords[acceptance];

/** The columns of `-o wide`; no cell is cut. */
function listColumns(report: AuditReport, gate: GateOptions): Column[] {
  const moment = momentFormat(report);
  const text = (value: string | null): string => escapeInvisible(value ?? '-');
  const columns: readonly (Column | null)[] = [
    ['SEVERITY', ({ severity }) => severity],
    ['NAMESPACE', ({ namespace }) => text(namespace)],
    ['SERVICE', ({ service }) => text(service)],
    ['OUTPUT', formatOutput],
    ['CODE', ({ code }) => code],
    ['CAUSE', (finding) => formatCause(finding) || '-'],
    report.kind === 'audit' ? null : ['OPENED', ({ openedAt }) => moment(openedAt)],
    report.kind === 'audit' ? null : ['RESOLVED', ({ resolvedAt }) => moment(resolvedAt)],
    ['FIELD', ({ field }) => text(formatField(field))],
    ['EXPECTED', ({ expected }) => text(expected)],
    ['ACTUAL', ({ actual }) => text(actual)],
    report.findings.every((finding) => markOf(acceptanceOf(finding, gate), gate) === '')
      ? null
      : ['GATE', (finding) => wordOf(acceptanceOf(finding, gate))],
    report.findings.every(isUnsuppressed)
      ? null
      : ['SUPPRESSED', ({ suppressed }) => text(suppressed && suppressedText(suppressed))],
  ];
  return columns.filter((column) => column !== null);
}

/** One line per finding, whatever its length, for grep and awk. */
function renderWide(
  report: AuditReport,
  findings: readonly ReportedFinding[],
  gate: GateOptions,
  options: RenderOptions,
): string[] {
  const columns = listColumns(report, gate);
  const rows = [
    columns.map(([name]) => name),
    ...findings.map((finding) => columns.map(([, cell]) => cell(finding))),
  ];
  const lines = formatTable(rows, (cell, row, column) => {
    const severity = findings[row - 1]?.severity;
    const isPlain = severity === undefined || column > 0;
    return isPlain ? cell : paint(options.colour, severityStyles[severity], cell);
  });
  return findings.length === 0 ? [] : [...lines, ''];
}

/** A block of lines per finding; suppressed ones have one line each, after the others. */
function renderTable(
  report: AuditReport,
  findings: readonly ReportedFinding[],
  gate: GateOptions,
  options: RenderOptions,
): string[] {
  const moment = momentFormat(report);
  const numbers = createRemedyNumbers();
  const blocks = findings.filter(isUnsuppressed).flatMap((finding) => {
    const { openedAt, resolvedAt } = finding;
    const resolved = resolvedAt === null ? '' : `, resolved ${moment(resolvedAt)}`;
    const times = report.kind === 'audit' ? '' : `opened ${moment(openedAt)}${resolved}`;
    const notes = [times, markOf(acceptanceOf(finding, gate), gate)].filter((it) => it !== '');
    return [...renderFinding(finding, notes, numbers, options), ''];
  });
  const suppressed = findings.filter((finding) => !isUnsuppressed(finding));
  return [...blocks, ...renderSuppressed(suppressed, options)];
}

/** Why a report is about nothing. */
export function noServicesText({
  namespace,
  selector,
}: Pick<AuditReport, 'namespace' | 'selector'>): string {
  const place = namespace === null ? '' : `Namespace ${escapeInvisible(namespace)}`;
  if (selector !== null) {
    const where = place === '' ? 'The input' : place;
    return `${where} has no Services with the labels ${escapeInvisible(selector)}`;
  }
  return place === '' ? 'No Services to audit' : `${place} has no Services in the input`;
}

function formatHeadline(report: AuditReport): string {
  const { findings, services, unknown, verdicts, servicesWithoutEndpoints } = report;
  const all = findings.filter(isOpen);
  const open = all.filter(isUnsuppressed);
  const resolved = findings.length - all.length;
  const suppressed = all.length - open.length;
  const after = [
    suppressed === 0 ? '' : `; ${formatCount(suppressed, 'finding')} suppressed`,
    resolved === 0 ? '' : `; ${formatCount(resolved, 'finding')} resolved`,
  ].join('');
  if (open.length > 0) {
    const bySeverity = recordOf(
      severities,
      (severity) => open.filter((finding) => finding.severity === severity).length,
    );
    const which = resolved === 0 ? '' : ' open';
    return `${formatCount(open.length, 'finding')}${which}: ${formatCounts(bySeverity)}${after}`;
  }
  if (services === 0) return noServicesText(report) + after;
  const counts = verdictOutputs.map((output) => ({ ...verdicts[output], conform: 0 }));
  const isAllConform = [unknown, ...counts].every((group) => formatCounts(group) === '');
  const unserved = servicesWithoutEndpoints.filter((it) => it.suppressed === null).length;
  const isOk = services === 1 ? 'The only Service is ok' : `All ${services} Services are ok`;
  const ok =
    unserved === 0
      ? isOk
      : `No findings, but ${formatCount(unserved, 'Service')} cannot receive traffic`;
  if (suppressed > 0) return `No other findings${after}`;
  return (isAllConform ? ok : 'No findings, but not every output is known to be ok') + after;
}

/** The assumed release and its source; '' if the input or the user names the release. */
function formatRelease({ release, releaseBy, releaseEvidence }: AuditReport['input']): string {
  if (releaseBy === 'option' || releaseBy === 'version') return '';
  const why = releaseEvidence ?? `the ${releaseBy} known`;
  return `assumed ${escapeInvisible(release)} (${why}; pin with --kubernetes-version)`;
}

/** `19 ok, 1 pending`, without the counts that are 0. */
const formatVerdicts = (counts: Readonly<Record<Verdict, number>>): string =>
  formatCounts(
    Object.fromEntries(verdictNames.map((verdict) => [verdictWords[verdict], counts[verdict]])),
  );

/** Names of Services in one note; the others are counted. */
const mostNames = 5;

function formatForeign({ foreign, foreignServices }: AuditReport): string {
  const names = foreignServices.slice(0, mostNames).map(escapeInvisible).join(', ');
  const more = foreign - Math.min(mostNames, foreignServices.length);
  const rest = more > 0 && names !== '' ? ` and ${more} more` : '';
  const which = names === '' ? '' : ` (${names}${rest})`;
  return `written by other controllers: ${formatCount(foreign, 'Service')}${which}`;
}

/** From how many nodes no rules were read, while others have them; '' if from none. */
function formatNodesWithoutRules({ nodes, nodesWithoutRules: count }: AuditReport): string {
  if (count === null || count === 0) return '';
  const all = formatCount(nodes.length + count, 'node');
  return `no rules were read from ${count} of ${all}, which are not audited`;
}

/** How many nodes have an unknown verdict, and why; '' if none has. */
function formatUnknownNodes({ nodes, unknown: reasons }: AuditReport): string {
  const count = nodes.filter(({ unknown }) => unknown > 0).length;
  if (count === 0) return '';
  const why = nodeUnknownReasons.filter((reason) => (reasons[reason] ?? 0) > 0);
  const texts = why.map((reason) => unknownText[reason]).join('; ');
  return `unknown on ${count} of ${formatCount(nodes.length, 'node')}${texts && `: ${texts}`}`;
}

function summarizeReport(report: AuditReport, options: RenderOptions): string[] {
  const { verdicts, unknown, foreign, dropped, input, measures } = report;
  const outputs = verdictOutputs.flatMap((output) => {
    const counts = formatVerdicts(verdicts[output]);
    return counts === '' ? [] : [`${output} ${counts}`];
  });
  // Neither is counted by namespace or by Service.
  const part = report.selector === null ? 'namespaces' : 'Services';
  const all = report.namespace === null && report.selector === null ? '' : ` (all ${part})`;
  const [unknowns, drops] = [formatCounts(unknown), formatCounts(dropped)];
  const notes = [
    input.complete === false ? 'the recording is incomplete' : '',
    unknowns === '' ? '' : `not audited: ${unknowns}`,
    foreign === 0 ? '' : formatForeign(report),
    formatUnknownNodes(report),
    formatNodesWithoutRules(report),
    drops === '' ? '' : `input dropped${all}: ${drops}`,
    formatRelease(input),
    formatUnverified(input.unverified),
  ].filter((note) => note !== '');
  const lags = verdictOutputs.flatMap((output) => {
    const { count, p50, p99 } = measures.convergenceLag[output].all;
    return count === 0 ? [] : [`${output} ${formatLag(p50)} / ${formatLag(p99)} of ${count}`];
  });
  const line = (title: string, parts: readonly string[]): string[] =>
    parts.length === 0 ? [] : wrap(`${title}: ${parts.join('; ')}`, '', '  ', options);
  return [
    ...line('Cluster', report.cluster === null ? [] : [escapeInvisible(report.cluster)]),
    formatHeadline(report),
    ...line('Verdicts', outputs),
    ...line('Notes', notes),
    ...line(`Convergence lag p50 / p99${all}`, lags),
  ];
}
