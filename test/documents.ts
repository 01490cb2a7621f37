// docs/findings.md as the catalogue renders to it. `UPDATE=1 vitest run test/tidy.test.ts` writes
// it; without UPDATE the test compares the file with this.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { format } from 'prettier';

import type { CatalogueEntry, Code, Output } from '../src/audit/finding/catalogue.ts';
import { catalogue, severities } from '../src/audit/finding/catalogue.ts';
import type { CauseEntry } from '../src/audit/finding/causes.ts';
import { causes } from '../src/audit/finding/causes.ts';
import type { TriggerQuality } from '../src/audit/measure/lag.ts';
import { behaviorOfRules } from '../src/audit/node/observation.ts';
import type { MetricFamily } from '../src/output/metrics/exposition.ts';
import { families, sections } from '../src/output/metrics/families.ts';
import { serviceFamilies } from '../src/output/metrics/service-rows.ts';
import { findAlert } from '../src/output/page/lists.ts';
import { isVerified, nameOf, releases } from '../src/shadow/release.ts';
import { readFolder } from './nodes/folder.ts';
import { forwardingOf, summarizeNode } from './nodes/walk.ts';
import { boundsOf } from './output/samples.ts';

const findingsIntroduction = `# Findings

A finding says that one output of a Service differs from what the controllers mean to write, and
has differed for longer than the settle window; or that the input itself is in trouble. It names
the object and field, what was expected and what is there, since when, and, where one is known,
the cause.

This page is written from the catalogue in \`src/audit/finding/catalogue.ts\`, and a test keeps
the two equal.

## How to read a finding

- **Words.** A controller _syncs_ a Service when it computes and writes all of its Endpoints or
  EndpointSlices; a change that makes it do so _wakes_ it. The _settle window_ (\`--settle\`, 30 s)
  is how long a difference may stand before it counts. _Upstream_ is the code of Kubernetes.
- **pending → open → resolved.** A difference is pending until it has stood for the settle window.
  Then a finding is opened; it is resolved when the last difference that belongs to it is gone.
- **One code and one cause, one finding.** All differences of a Service, of a node, or of a Service
  on a node that have the same code and cause are one finding. Its code and cause never change while
  it is open; its severity is that of the worst difference it has now.
- **missing, unexpected, different.** Missing: it must be there and is not. Unexpected: it is
  there and must not be. Different: it is there, and says something else than it must.
- **A cause is no excuse.** It explains why the difference stands although every controller works,
  and what cures it. A finding with a cause is reported like any other; where nothing but a
  sleeping controller is to blame and no traffic suffers, it is information.
- **Why is this so?** \`endpoint-auditor explain\` says, for a Service, a pod or an address, what is
  expected and why, what stands, and the smallest change that would put it right
  ([explain.md](explain.md), [upstream-blind-spots.md](upstream-blind-spots.md)).
- **Unknown is not a finding.** What cannot be judged, since an object was not delivered or could
  not be read, is counted as unknown, and neither as different nor as conform.
- **Examples** are cases that are played as tests, each linked by what happens in it, with the row
  that a report then has: severity, Service, output, code, cause (\`-\`: none is known), state, and
  for how long it has stood. Those of nodes have the Service port, the frontend and what comes of
  packets to it.

## Severities
`;

const severityText = {
  critical: 'Traffic goes astray, or goes nowhere.',
  warning:
    'Traffic suffers, or will when something else happens; or metadata that matters is wrong.',
  info: 'Nothing suffers. Worth knowing, never worth a page.',
} as const;

const outputs: readonly (readonly [Output, string])[] = [
  ['endpoints', 'the Endpoints object, written by the endpoints controller'],
  ['endpointslices', 'EndpointSlices, written by the endpointslice controller'],
  ['mirrored', 'EndpointSlices, copied from Endpoints by the endpointslicemirroring controller'],
  ['node', 'the forwarding rules of a Node'],
  ['input', 'what users and other managers wrote, which no controller can put right'],
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
  const text = told[code];
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
const told: Readonly<Partial<Record<Code, readonly string[]>>> = {
  'node-rules-stale': [
    '- Example: kube-proxy on node-b of the recording hangs for two minutes:',
    '`endpoint-auditor explain node/node-b service/shop/web:http',
    '--recording test/recordings/shop.ndjson.gz --at 2026-11-21T10:58:50Z`',
  ],
  'node-unlike-others': [
    '- Example: [four nodes do alike with a Service, the fifth does not, and all have a rule that',
    'nobody understands](../test/audit/node/peers.test.ts): `node-4 node-unlike-others info`',
  ],
};

const link = (name: string): string => `[\`${name}\`](#${name})`;

function codeTable(output: Output): string {
  const rows = entries
    .filter(([, entry]) => entry.output === output)
    .map(([code, { severity, title }]) => `| ${link(code)} | ${severity} | ${title} |`);
  return ['| code | severity | what it says |', '| --- | --- | --- |', ...rows].join('\n');
}

function codeSection([code, entry]: readonly [Code, CatalogueEntry]): string {
  const alert = findAlert(code);
  return [
    `### ${code}`,
    `**${entry.title}.** ${entry.meaning}`,
    [
      `- Output: ${entry.output}; usually ${entry.severity}; difference: ${entry.difference}`,
      `- Remedy: ${entry.remedy}`,
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
      `- Cure: ${entry.cure}`,
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
    'Where traffic suffers more or less than usual, a finding is more or less severe.',
    '## Codes',
    ...usedOutputs.flatMap(([output, text]) => [
      `Output \`${output}\`: ${text}.`,
      codeTable(output),
    ]),
    '## What each code means',
    ...entries.map(codeSection),
    '## Causes',
    'Blind spots of the controllers: what leaves a difference standing although all of them work.',
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
    '| Kubernetes | Endpoints, EndpointSlices | nodes with iptables, nftables | IPVS, eBPF |';
  return format([head, '|---|---|---|---|', ...rows].join('\n'), { parser: 'markdown' });
}

// docs/metrics.md as the catalogue renders to it.
// `vitest run -u test/output/metrics/families.test.ts` writes it; without -u the test compares.

/** The families by the file in src that measures them, without their prefix. */
const sources: Readonly<Record<string, readonly string[]>> = {
  'audit/pending/pending.ts': ['findings', 'findings_opened_total', 'service_findings'],
  'audit/summary.ts': [
    'services',
    'services_foreign',
    'pending_oldest_seconds',
    'service_pending_since_timestamp_seconds',
  ],
  'audit/service/verdict.ts': ['outputs', 'outputs_unknown', 'service_verdict'],
  'auditor/auditor.ts': [
    'audit_duration_seconds',
    'input_timestamp_seconds',
    'input_start_timestamp_seconds',
  ],
  'output/metrics/service-rows.ts': ['services_with_series', 'services_left_out'],
  'auditor/queries.ts': ['ready'],
  'audit/pending/progress.ts': ['watch_state', 'watch_unseen_seconds'],
  'audit/pending/confirm.ts': ['confirm_reads_total'],
  'cluster/api/reflector.ts': [
    'watch_requests_total',
    'watch_frames_total',
    'watch_refusals_total',
    'watch_relists_total',
    'watch_reconnects_total',
    'watch_bytes_total',
  ],
  'agent/client/scraper.ts': ['node_agents', 'node_report_oldest_seconds', 'agent_visits_total'],
  'audit/node/observation.ts': ['node_frontends_divergent'],
  'agent/client/client.ts': ['agent_bytes_total'],
  'cluster/store/store.ts': ['dropped_total'],
  'main.ts': ['build_info'],
  'shadow/release.ts': ['release_info'],
  'audit/measure/journey.ts': [
    'readiness_lag_seconds',
    'removal_lag_seconds',
    'node_programming_lag_seconds',
    'journeys_total',
    'journeys_ended_total',
    'journeys_open',
  ],
  'audit/measure/lag.ts': [
    'convergence_lag_seconds',
    'trigger_lag_seconds',
    'trigger_times_total',
    'clock_ahead_seconds',
  ],
  'output/traces/tracing.ts': ['journeys_traced_total'],
  'output/traces/otel.ts': ['spans_exported_total', 'spans_dropped_total'],
  'audit/measure/endpoint-counts.ts': [
    'endpointslices',
    'endpointslices_minimum',
    'endpointslices_surplus',
    'slice_endpoints',
    'fill_ratio',
    'service_endpointslices_surplus',
    'duplicate_endpoints',
    'endpoints',
    'truncated_objects',
    'over_capacity_objects',
    'service_endpoints',
  ],
  'auditor/totals.ts': ['services_hinted'],
  'shadow/hints.ts': ['services_unhinted'],
  'audit/measure/size.ts': [
    'objects',
    'object_bytes_max',
    'object_bytes',
    'updates_total',
    'update_bytes_total',
    'update_fanout_bytes_total',
  ],
  'audit/service/auditor.ts': ['service_audits_total'],
  'audit/service/cache.ts': ['service_endpointslices'],
  'cluster/decode/json-objects.ts': ['service_object_bytes'],
};

/** The file that measures a family; throws an error without one. */
function sourceOf({ name }: MetricFamily<never>): string {
  const short = name.replace('endpoint_auditor_', '');
  const source = Object.keys(sources).find((file) => sources[file]?.includes(short));
  if (source === undefined) throw new Error(`No source of ${name}`);
  return source;
}

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
  processFamily('gauge', 'process_max_fds', 'The most file descriptors that may be open (Linux).'),
  processFamily('gauge', 'nodejs_eventloop_lag_seconds', 'Event loop: lag at the scrape.'),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_mean_seconds',
    'Event loop: mean delay since the scrape before.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_p50_seconds',
    'Event loop: median delay since the scrape before.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_p99_seconds',
    'Event loop: 99th percentile since the scrape before.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_max_seconds',
    'Event loop: longest delay since the scrape before.',
  ),
  processFamily('gauge', 'nodejs_heap_size_total_bytes', 'Heap that V8 has allocated.'),
  processFamily('gauge', 'nodejs_heap_size_used_bytes', 'Heap that is used.'),
  processFamily(
    'gauge',
    'nodejs_external_memory_bytes',
    'Memory outside the heap, such as buffers.',
  ),
  processFamily(
    'gauge',
    'nodejs_version_info',
    'Always 1; the labels are the version of Node.',
    inVersion,
  ),
  processFamily('histogram', 'nodejs_gc_duration_seconds', 'Duration of garbage collections.', [
    'kind',
  ]),
];

/** The most series of a family in any cluster; for a family of Services, per Service. */
export function cardinality(family: MetricFamily<never>): number {
  let series = 1;
  for (const [label, values] of Object.entries(family.labels)) {
    // An output of a Service has one verdict, and no series for the others.
    const isOne = label === 'verdict' && family.name === 'endpoint_auditor_service_verdict';
    series *= isOne ? 1 : Math.max(1, values.length);
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

What \`/metrics\` shows. This page is generated from the catalogue in
\`src/output/metrics/families.ts\`, and a test keeps the two and the exposition equal.

No label holds the name of a pod, an address or an object, and but for the families of
[single Services](#single-services) none holds that of a Service, so their number of series does not
grow with the cluster: the column _series_ is the most there can be. What exactly is wrong is told
by \`/api/v1/findings\`. Scrapers that accept OpenMetrics get it: there, the names of counters have
no \`_total\` in what is said of the family. A family that is _experimental_ may change in a minor
release, a _stable_ one only in a major one.

Times are on the clock of the input: when a recording is replayed,
\`endpoint_auditor_input_timestamp_seconds\` is the time in the recording.`;

const singleServices = `## Single Services

These have the labels \`namespace\` and \`service\` besides those named here. Which Services have
them, \`--metrics.per-service\` says: \`findings\` (the default) those about which a finding stands,
\`all\`, or \`off\`. At most \`--metrics.max-services\` (1000) do: one that has them keeps them
while it may, the others are counted in \`endpoint_auditor_services_left_out\`. A Service that is
gone has no series. The column _series_ is the most that one Service has; most have about ten.`;

const triggerTimes = `## Trigger times

\`endpoint_auditor_trigger_times_total\` counts every writing of the endpoints and endpointslice
controllers by what its annotation \`endpoints.kubernetes.io/last-change-trigger-time\` is worth:`;

const qualityRows: readonly (readonly [TriggerQuality, string, string])[] = [
  ['ok', 'A second or more from it to the arrival, of which up to a second is rounding.', 'yes'],
  ['coarse', 'Less than the annotation’s resolution of one second; it falls into `le="1"`.', 'yes'],
  ['absent', 'No trigger time of its own: cleared, kept by an edit, or of an older event.', 'no'],
  ['restarted', 'The creation of the Service, which the controller writes after a restart.', 'no'],
  ['skewed', 'It arrived more than a second before its trigger time: the clocks differ.', 'no'],
];

const removals = `Removals and changes of the Service never have a trigger time.
\`endpoint_auditor_convergence_lag_seconds\` measures those too, by the auditor's own clock.`;

function rowsText(listed: readonly MetricFamily<never>[]): string {
  const rows = listed.map((family) => [
    code([family.name]),
    family.type,
    code(Object.keys(family.labels)),
    family.unit === 'none' ? '' : family.unit,
    String(cardinality(family)),
    family.stability,
    code([sourceOf(family)]),
    family.help,
  ]);
  const head = ['metric', 'type', 'labels', 'unit', 'series', 'stability', 'made by', 'help'];
  return table([head, ...rows]);
}

/** The labels and their values, each once; one name may have other values in another family. */
function labelsText(): string {
  const rows = new Map<string, string[]>();
  for (const { labels } of [...families, ...serviceFamilies]) {
    for (const [label, values] of Object.entries(labels)) {
      const isLong = values.length > 12;
      const text = isLong ? 'the codes in [findings.md](findings.md)' : code(values);
      rows.set(`${label} ${text}`, [code([label]), values.length === 0 ? 'one' : text]);
    }
  }
  return `## Labels\n\n${table([['label', 'values'], ...rows.values()])}`;
}

/** The text of docs/metrics.md. */
export function metricsDocument(): string {
  const blocks = [
    metricsIntroduction,
    ...sections.map(([title, section]) => `## ${title}\n\n${rowsText(section)}`),
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
