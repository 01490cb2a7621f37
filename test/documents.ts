// docs/findings.md as the catalogue renders to it. `UPDATE=1 vitest run test/tidy.test.ts` writes
// it; without UPDATE the test compares the file with this.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { format } from 'prettier';

import type { CatalogueEntry, Code, Output } from '../src/audit/finding/catalogue.ts';
import { catalogue, severities } from '../src/audit/finding/catalogue.ts';
import type { RemedySteps } from '../src/audit/finding/remedy-steps.ts';
import { resync, resyncNode } from '../src/audit/finding/remedy-steps.ts';
import type { CauseEntry } from '../src/audit/finding/causes.ts';
import { causes } from '../src/audit/finding/causes.ts';
import { incidentKinds } from '../src/audit/incident/kinds.ts';
import type { TriggerQuality } from '../src/audit/measure/lag.ts';
import { behaviorOfRules } from '../src/audit/node/observation.ts';
import type { MetricFamily } from '../src/output/metrics/exposition.ts';
import { families, sections } from '../src/output/metrics/families.ts';
import { maxNamedIncidents } from '../src/output/metrics/incident-families.ts';
import { serviceFamilies } from '../src/output/metrics/service-rows.ts';
import { findAlert } from '../src/output/page/lists.ts';
import { isVerified, nameOf, releases } from '../src/shadow/release.ts';
import { readFolder } from './nodes/folder.ts';
import { forwardingOf, summarizeNode } from './nodes/walk.ts';
import { boundsOf } from './output/samples.ts';

const findingsIntroduction = `# Findings

A finding reports that an output of a Service differs from what the controllers should write, for
longer than the settle window. Or it reports a fault of the input, which no controller can correct.
A finding names the object and the field, the expected and the actual value, its start, and the
cause if one is known.

A test keeps this page equal to the catalogue in \`src/audit/finding/catalogue.ts\`.

## How to read a finding

- **Terms.** A controller _syncs_ a Service when it computes and writes its Endpoints or
  EndpointSlices. The _settle window_ (\`--settle\`, 30 s) is how long a difference lasts before it
  becomes a finding. _Upstream_ is the code of Kubernetes.
- **pending → open → resolved.** A difference is pending until the settle window ends. Then a
  finding opens. It is resolved when its last difference ends.
- **One finding for each code and cause.** All differences of a Service, of a node, or of a Service
  on a node that have the same code and cause are one finding. Its code and cause never change while
  it is open. Its severity is that of its worst present difference.
- **missing, unexpected, different.** Missing: something should exist and does not. Unexpected:
  something exists and should not. Different: something exists with another value.
- **A cause does not suppress a finding.** A cause explains why a difference lasts although every
  controller works. The severity is info if the only fault is a change that triggers no sync, and no
  traffic is affected.
- **Suppressed findings.** A file or an annotation of the Service accepts a finding until a date
  ([ci.md](ci.md#suppressions)). It stays in reports, fails no gate and fires no alert.
- **Remedies.** A report prints the commands of a remedy with the names of the objects. No command
  deletes a pod of a workload or a Service.
- **The reason.** \`endpoint-auditor explain\` shows for a Service, a pod or an address what is
  expected and why, what exists, and the smallest change that corrects it
  ([explain.md](explain.md), [upstream-blind-spots.md](upstream-blind-spots.md)).
- **Unknown is not a finding.** If an object was not delivered or could not be read, the outputs
  that depend on it are unknown. They are neither ok nor a mismatch.
- **Examples** come from tests. Each links to its scenario and shows the row of the report:
  severity, Service, output, code, cause (\`-\`: none is known), state and age. Examples of nodes
  show the Service port, its address and the outcome of packets.

## Severities
`;

const severityText = {
  critical: 'Traffic is lost or reaches a wrong destination.',
  warning:
    'Traffic is affected or will be after another event, or metadata that clients use is wrong.',
  info: 'No traffic is affected. No alert should page for it.',
} as const;

const outputs: readonly (readonly [Output, string])[] = [
  ['endpoints', 'the Endpoints object, written by the endpoints controller'],
  ['endpointslices', 'EndpointSlices, written by the endpointslice controller'],
  ['mirrored', 'EndpointSlices, copied from Endpoints by the endpointslicemirroring controller'],
  ['node', 'the forwarding rules of a Node'],
  ['input', 'what users and other managers wrote, which no controller can correct'],
];

const entries = Object.entries(catalogue) as [Code, CatalogueEntry][];
const codesOf = ({ codes }: CauseEntry): string =>
  Object.keys(catalogue)
    .filter((code) => codes.test(code))
    .map((code) => `\`${code}\``)
    .join(', ');

const causeEntries: readonly (readonly [string, CauseEntry])[] = Object.entries(causes);

// Examples come from the scenarios, which are played as tests.

interface Example {
  readonly scenario: string;
  /** What happens, the first sentence of its head comment. */
  readonly title: string;
  readonly row: string;
  readonly code: string;
  readonly cause: string;
  readonly isOpen: boolean;
}

const scenarios = join(import.meta.dirname, 'scenarios');
const rowForm = new RegExp(
  [
    '^ +(?<row>(?:critical|warning|info)',
    '\\S+',
    '\\S+',
    '(?<code>[a-z-]+)',
    '(?<cause>[a-z-]+)',
    '(?<state>open|pending)',
    '\\S+)',
  ].join(' +'),
);

/** Every expected row of every scenario, in the order of their names. */
function readExamples(): Example[] {
  const files = readdirSync(scenarios).filter((name) => name.endsWith('.txt'));
  return files.sort().flatMap((file) => {
    const lines = readFileSync(join(scenarios, file), 'utf8').split('\n');
    const end = lines.findIndex((line) => line === '#' || !line.startsWith('#'));
    const head = lines.slice(0, end).map((line) => line.slice(2));
    const title = head.join(' ').replace(/\.$/, '');
    return lines.flatMap((line) => {
      const { row, code, cause, state } = rowForm.exec(line)?.groups ?? {};
      if (row === undefined || code === undefined || cause === undefined) return [];
      const isOpen = state === 'open';
      const scenario = file.replace(/\.txt$/, '');
      return [{ scenario, title, row: row.replace(/\s+/g, ' '), code, cause, isOpen }];
    });
  });
}

const examples = readExamples();

/** The first open finding that fits, or else the first that is pending. */
function exampleText(fits: (example: Example) => boolean): string[] {
  const fitting = examples.filter(fits);
  const one = fitting.find(({ isOpen }) => isOpen) ?? fitting[0];
  if (one === undefined) return [];
  const { scenario, title, row } = one;
  return [`- Example: [${title}](../test/scenarios/${scenario}.txt): \`${row}\``];
}

// Examples of nodes are recorded rules that were broken in one way, which tests audit, too.

const broken = 'iptables-nft-node-a';

const brokenBy: Readonly<Partial<Record<Code, string>>> = {
  'node-frontend-missing': 'service-missing',
  'node-frontend-blocked': 'reject-instead-of-service',
  'node-frontend-unexpected': 'service-stale',
  'node-endpoint-missing': 'endpoint-jump-missing',
  'node-endpoint-unexpected': 'endpoint-stale',
  'node-policy-different': 'source-range-open',
  'node-share-different': 'probability-skewed',
  'node-masquerade-missing': 'hairpin-mark-missing',
  'node-masquerade-unexpected': 'mark-masq-for-all',
  'node-affinity-different': 'affinity-timeout-wrong',
  'node-reject-missing': 'reject-missing',
  'node-foreign-rule': 'foreign-dnat-shadow',
  'node-endpoint-blocked': 'foreign-drop-forward',
  'node-rules-flushed': 'nat-table-flushed',
  'node-rules-unreachable': 'output-jump-missing',
  'node-rules-different': 'forward-jump-missing',
  'node-backends-both': 'split-backends',
};

/** The finding of that code about a node that was broken so. Throws where there is none. */
function nodeExample(code: Code): string[] {
  const text = exampleTexts[code];
  if (text !== undefined) return [text.join(' ')];
  const name = brokenBy[code];
  if (name === undefined) return [];
  const path = `test/nodes/faults/${broken}/${name}`;
  const folder = readFolder(join(import.meta.dirname, '..', path));
  const known = forwardingOf(folder);
  if (known === null) throw new Error(`${path} has no objects`);
  const rules = behaviorOfRules(folder.ruleset, folder.node);
  const found = summarizeNode({ ...known, rules }).findings.find((one) => one.code === code);
  if (found === undefined) throw new Error(`${path} is no example of ${code}`);
  const { note } = JSON.parse(readFileSync(join(folder.path, 'fault.json'), 'utf8')) as {
    note: string;
  };
  const { object, actual } = found.difference;
  const got = (actual ?? 'nothing').replace(/ by .*$/, '');
  const [said = ''] = note.split('. ');
  return [`- Example: [${said}](../${path}): \`${found.severity} ${object}: found ${got}\``];
}

/** Codes that need more than one dump of one node. */
const exampleTexts: Readonly<Partial<Record<Code, readonly string[]>>> = {
  'node-rules-stale': [
    '- Example: kube-proxy on node-b of the recording hangs for two minutes:',
    '`endpoint-auditor explain node/node-b service/shop/web:http',
    '--input test/recordings/shop.ndjson.gz --at 2026-11-21T10:58:50Z`',
  ],
  'node-unlike-others': [
    '- Example: [four nodes handle a Service alike, the fifth does not, and all have a rule that',
    'the auditor cannot evaluate](../test/audit/node/peers.test.ts):',
    '`node-4 node-unlike-others info`',
  ],
};

const link = (name: string): string => `[\`${name}\`](#${name})`;

function codeTable(output: Output): string {
  const rows = entries
    .filter(([, entry]) => entry.output === output)
    .map(([code, { severity, title }]) => `| ${link(code)} | ${severity} | ${title} |`);
  return ['| code | severity | meaning |', '| --- | --- | --- |', ...rows].join('\n');
}

/** The remedy, and its commands with the kinds of names in place of the names. */
function remedyLines({ remedy, commands }: RemedySteps): string[] {
  const named = (text: string): string =>
    text.replace(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase());
  return [`- Remedy: ${remedy}`, ...commands.map((command) => `  - \`${named(command)}\``)];
}

function codeSection([code, entry]: readonly [Code, CatalogueEntry]): string {
  const alert = findAlert(code);
  return [
    `### ${code}`,
    `**${entry.title}.** ${entry.meaning}`,
    [
      `- Output: ${entry.output}; usually ${entry.severity}; difference: ${entry.difference}`,
      ...remedyLines(entry),
      ...(alert === null ? [] : [`- Alert: [${alert}](runbook.md#${alert.toLowerCase()})`]),
      `- Upstream: \`${entry.upstream}\``,
      ...exampleText((example) => example.code === code),
      ...nodeExample(code),
    ].join('\n'),
  ].join('\n\n');
}

function causeSection([name, entry]: readonly [string, CauseEntry]): string {
  return [
    `### Cause: ${name}`,
    `**${entry.title}.**`,
    [
      `- Condition: ${entry.condition}`,
      `- Differences: ${codesOf(entry)}`,
      ...remedyLines(entry),
      `- Upstream: \`${entry.upstream}\``,
      ...exampleText((example) => example.cause === name),
    ].join('\n'),
  ].join('\n\n');
}

/** Outputs that have codes, with what they are. */
const usedOutputs = outputs.filter(([output]) => entries.some(([, one]) => one.output === output));

/** The whole document, formatted. */
export async function findingsDocument(): Promise<string> {
  const parts = [
    findingsIntroduction,
    severities.map((severity) => `- **${severity}**: ${severityText[severity]}`).join('\n'),
    'A finding has another severity if it affects traffic more or less than usual.',
    '## Managed clusters',
    ...[resync, resyncNode].flatMap(({ managed }) => managed ?? []),
    '## Codes',
    ...usedOutputs.flatMap(([output, text]) => [
      `Output \`${output}\`: ${text}.`,
      codeTable(output),
    ]),
    '## What each code means',
    ...entries.map(codeSection),
    '## Causes',
    'Blind spots of the controllers: why a difference lasts although all of them work.',
    causeEntries.map(([name, { title }]) => `- [\`${name}\`](#cause-${name}): ${title}`).join('\n'),
    ...causeEntries.map(causeSection),
  ];
  return await format(parts.join('\n\n'), { parser: 'markdown' });
}

// The table of releases in README.md, from src/shadow/release.ts.

/** The releases, grouped by what was compared with real output; the newest first. */
export function releasesTable(): Promise<string> {
  const cell = (isCompared: boolean, what: string): string =>
    isCompared ? `verified: compared with ${what}` : "audited by upstream's source, not verified";
  const groups = Map.groupBy(releases.toReversed(), ({ minor }) =>
    [
      cell(isVerified('controllers', minor), 'what real controllers wrote'),
      cell(isVerified('kubeProxy', minor), 'real rules and packets'),
      'unknown: rules are not read',
    ].join(' | '),
  );
  const rows = [...groups].map(
    ([cells, group]) => `| ${group.map(nameOf).join(', ')} | ${cells} |`,
  );
  const head =
    '| Kubernetes | Endpoints, EndpointSlices | nodes with iptables, nftables | IPVS, other eBPF |';
  return format([head, '|---|---|---|---|', ...rows].join('\n'), { parser: 'markdown' });
}

// docs/metrics.md as the catalogue renders to it.
// `vitest run -u test/output/metrics/families.test.ts` writes it; without -u the test compares.

/** A family of the process, which prom-client makes. */
interface ProcessFamily {
  readonly name: string;
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
}

const processFamily = (
  type: ProcessFamily['type'],
  name: string,
  help: string,
  labels: readonly string[] = [],
): ProcessFamily => ({ name, type, labels, help });

const inVersion = ['version', 'major', 'minor', 'patch'];

/** The families of the process that are selected. */
export const processFamilies: readonly ProcessFamily[] = [
  processFamily('counter', 'process_cpu_seconds_total', 'CPU time spent.'),
  processFamily('counter', 'process_cpu_user_seconds_total', 'CPU time spent in user mode.'),
  processFamily('counter', 'process_cpu_system_seconds_total', 'CPU time spent in system mode.'),
  processFamily('gauge', 'process_start_time_seconds', 'When the process started.'),
  processFamily('gauge', 'process_resident_memory_bytes', 'Resident memory.'),
  processFamily('gauge', 'process_virtual_memory_bytes', 'Virtual memory (Linux).'),
  processFamily('gauge', 'process_heap_bytes', 'Data segment (Linux).'),
  processFamily('gauge', 'process_open_fds', 'Open file descriptors (Linux).'),
  processFamily('gauge', 'process_max_fds', 'Maximum number of open file descriptors (Linux).'),
  processFamily('gauge', 'nodejs_eventloop_lag_seconds', 'Event loop: lag at the scrape.'),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_mean_seconds',
    'Event loop: mean delay since the previous scrape.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_p50_seconds',
    'Event loop: median delay since the previous scrape.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_p99_seconds',
    'Event loop: 99th percentile since the previous scrape.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_max_seconds',
    'Event loop: longest delay since the previous scrape.',
  ),
  processFamily('gauge', 'nodejs_heap_size_total_bytes', 'Heap that V8 has allocated.'),
  processFamily('gauge', 'nodejs_heap_size_used_bytes', 'Heap in use.'),
  processFamily(
    'gauge',
    'nodejs_external_memory_bytes',
    'Memory outside the heap, such as buffers.',
  ),
  processFamily(
    'gauge',
    'nodejs_version_info',
    'Always 1. The labels are the version of Node.js.',
    inVersion,
  ),
  processFamily('histogram', 'nodejs_gc_duration_seconds', 'Duration of garbage collections.', [
    'kind',
  ]),
];

/** Labels whose values are names; the number of their series has a limit. */
const nameLabels = ['namespace', 'service', 'node'];

/** The maximum of series of a family; null with names, for which an option is the limit. */
export function cardinality(family: MetricFamily<never>): number | null {
  let series = 1;
  if (Object.keys(family.labels).some((label) => nameLabels.includes(label))) return null;
  for (const [label, values] of Object.entries(family.labels)) {
    // An output of a Service has one verdict, and no series for the others.
    const isOne = label === 'verdict' && family.name === 'endpoint_auditor_service_verdict';
    const isInfo = family.name === 'endpoint_auditor_release_info';
    series *= isOne || isInfo ? 1 : Math.max(1, values.length);
  }
  // Of a histogram, a series per bucket, +Inf among them, and those of sum and count.
  return family.type === 'histogram' ? series * (boundsOf(family).length + 3) : series;
}

/** A Markdown table whose columns are padded, as Prettier wants it. */
function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), 3),
  );
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  const [head = [], ...body] = rows;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('\n');
}

const code = (words: readonly string[]): string =>
  words.length === 0 ? '' : words.map((word) => `\`${word}\``).join(', ');

const metricsIntroduction = `# Metrics

The families of \`/metrics\`. A test keeps this page equal to the catalogue in
\`src/output/metrics\` and to the exposition.

- **Labels.** No label has the name of a pod, an address or an object, except as a part of the name
  of an incident. Services, nodes and incidents are labels only of the families for
  [findings](#verdicts-and-findings), incidents and [single Services](#single-services), which have
  a limit. All other families have a fixed number of series, which does not grow with the cluster.
  The column _series_ has the maximum.
  [Labels](#labels) has the values of each label.
- **Series exist before the first event**, so that a rate includes it. Exceptions: families for
  single Services and nodes, and those that say "no series" in their help text.
- **Stability.** A minor release may change an _experimental_ family. Only a major release changes a
  _stable_ one, except for a name that was _deprecated_ one release before.
- **Formats.** The text format and OpenMetrics, as the client requests. OpenMetrics has exemplars
  with trace IDs.
- **Time.** All times are on the clock of the input. While a recording is replayed,
  \`endpoint_auditor_input_timestamp_seconds\` is the time in the recording.

\`/api/v1/findings\` and the page have the details of each finding.`;

const findingSeries = `## Findings of single Services and nodes

\`endpoint_auditor_service_findings\` and \`endpoint_auditor_node_findings\` have a series per
finding, so that an alert names the Service or the node. A finding about a Service on a node counts
in both; a finding about a whole node only in the second.

At most \`--metrics-max-services\` (1000) Services, and as many nodes, have their names in a label:
those with the oldest findings. All others share series with an empty name. With
\`--metrics-per-service=off\` all names are empty. So no finding is missing from the sum.

## Incidents

\`endpoint_auditor_incident_services\` has a series per open [incident](incidents.md). Its label
\`incident\` is the name in the address of its page, \`/incidents/NAME\`, and in the series of its
findings. The limit does not depend on the cluster, because ten open incidents of one kind become
one. \`--metrics-per-service=off\` does not change these series.`;

const singleServices = `## Single Services

These families also have the labels \`namespace\` and \`service\`. \`--metrics-per-service\` selects
the Services: \`findings\` (the default), those with an open finding; \`all\`; or \`off\`. The
limit is \`--metrics-max-services\` (1000). A Service keeps its series while it is selected;
\`endpoint_auditor_services_without_series\` counts those above the limit. A deleted Service has no
series. The column _series_ is the maximum per Service. Most Services have about ten series.`;

const triggerTimes = `## Trigger times

\`endpoint_auditor_trigger_times_total\` counts every write of the endpoints and endpointslice
controllers that a watch has delivered, except for those that a loss of the watch may have
delayed, by the quality of the annotation
\`endpoints.kubernetes.io/last-change-trigger-time\`:`;

const qualityRows: readonly (readonly [TriggerQuality, string, string])[] = [
  ['ok', 'The object arrived 1 s or more after its trigger time. Up to 1 s is rounding.', 'yes'],
  ['coarse', 'It arrived within 1 s, the resolution of the annotation: in `le="1"`.', 'yes'],
  ['absent', 'No trigger time of its own: removed, kept by an edit, or of an earlier event.', 'no'],
  ['restarted', 'The creation time of the Service, which a restarted controller writes.', 'no'],
  ['skewed', 'It arrived more than 1 s before its trigger time: the clocks differ.', 'no'],
];

const removals = `Removals and changes of the Service never have a trigger time.
\`endpoint_auditor_convergence_lag_seconds\` includes them. It uses only the clock of the auditor.`;

/** Label values that changed in release 0.2: metric, label, before, after. */
const changedValues: readonly (readonly [string, string, string, string])[] = [
  ['outputs`, `service_verdict', 'verdict', 'conform`, `different', 'ok`, `mismatch'],
  ['node_programming_lag_seconds', 'bound', 'least`, `most', 'lower`, `upper'],
  ['pod_changes_ended_total', 'end', 'overtaken`, `gone', 'superseded`, `deleted'],
  ['watch_frames_total', 'result', 'garbled', 'decode-error'],
  ['watch_refusals_total', 'reason', 'unauthorised`, `denied', 'unauthorized`, `forbidden'],
  [
    'agent_requests_total',
    'result',
    'seen`, `early`, `silent',
    'success`, `not-ready`, `no-answer',
  ],
];

const deprecations = 'Release 0.2 has both names of these families. Release 0.3 removes the old.';

const valueChanges = `### Changed labels

Release 0.2 changes these label values. JSON documents keep the old values.`;

const newLabels = `\`endpoint_auditor_service_findings\` has the new labels \`code\`, \`cause\`
and \`incident\`, and includes findings about nodes and about the input. The label \`endpoints\` of
\`endpoint_auditor_services_hinted\` is \`coverage\` in \`endpoint_auditor_services_with_hints\`.
\`endpoint_auditor_outputs{output="node"}\` is deprecated: use
\`endpoint_auditor_node_service_ports\`. \`endpoint_auditor_findings\` and
\`endpoint_auditor_findings_opened_total\` have a series for every severity of every code.`;

const limited = '`--metrics-max-services`';
const limitOfIncidents = String(maxNamedIncidents + severities.length * incidentKinds.length);

function rowsText(listed: readonly MetricFamily<never>[]): string {
  const rows = listed.map((family) => [
    code([family.name]),
    family.type,
    code(Object.keys(family.labels)),
    family.unit === 'none' ? '' : family.unit,
    String(cardinality(family) ?? ('kind' in family.labels ? limitOfIncidents : limited)),
    family.help.startsWith('Deprecated') ? 'deprecated' : family.stability,
    family.help,
  ]);
  return table([['metric', 'type', 'labels', 'unit', 'series', 'stability', 'help'], ...rows]);
}

/** The values of a label, for a row of the table. */
function valuesText(label: string, values: readonly string[]): string {
  if (label === 'code') return 'the codes in [findings.md](findings.md#codes)';
  if (label === 'cause') return 'the causes in [findings.md](findings.md#causes), or empty';
  if (label === 'incident') return 'the name of an incident, or empty above the limit';
  if (nameLabels.includes(label)) return 'a name, or empty above the limit and for several';
  return values.length === 0 ? 'one value' : code(values);
}

/** The labels with the families that have them and their values there. */
function labelsText(): string {
  const current = [...families, ...serviceFamilies].filter(
    ({ help }) => !help.startsWith('Deprecated'),
  );
  const uses = current.flatMap(({ name, labels }) =>
    Object.entries(labels).map(([label, values]) => {
      return { label, name, values: valuesText(label, values) };
    }),
  );
  const groups = Map.groupBy(uses, ({ label, values }) => `${label} ${values}`).values();
  const rows = [...groups].map((group) => {
    const names = group.map(({ name }) => name.replace('endpoint_auditor_', ''));
    return [code([group[0]?.label ?? '']), group[0]?.values ?? '', code(names)];
  });
  const sorted = rows.sort(([a = ''], [b = '']) => (a < b ? -1 : a > b ? 1 : 0));
  const head = ['label', 'values', 'metrics, without the prefix `endpoint_auditor_`'];
  return `## Labels\n\n${table([head, ...sorted])}`;
}

const changesText = (): string =>
  table([
    ['metric', 'label', 'before', 'now'],
    ...changedValues.map(([metric, ...cells]) => [
      `\`endpoint_auditor_${metric.replaceAll('`, `', '`, `endpoint_auditor_')}\``,
      ...cells.map((cell) => `\`${cell}\``),
    ]),
  ]);

/** The text of docs/metrics.md. */
export function metricsDocument(): string {
  const blocks = [
    metricsIntroduction,
    ...sections.flatMap(([title, section]) => [
      `## ${title}`,
      ...(title === 'Deprecated names' ? [deprecations] : []),
      rowsText(section),
      ...(title === 'Verdicts and findings' ? [findingSeries] : []),
    ]),
    valueChanges,
    changesText(),
    newLabels,
    singleServices,
    rowsText(serviceFamilies),
    labelsText(),
    triggerTimes,
    table([
      ['quality', 'meaning', 'measured'],
      ...qualityRows.map(([quality, ...rest]) => [code([quality]), ...rest]),
    ]),
    removals,
    '## The process itself',
    table([
      ['metric', 'type', 'labels', 'help'],
      ...processFamilies.map(({ name, type, labels, help }) => [
        code([name]),
        type,
        code(labels),
        help,
      ]),
    ]),
  ];
  return `${blocks.join('\n\n')}\n`;
}
