// The first board: incidents, open findings, unknown verdicts, the lag of the controllers, and the auditor.
// The other boards have the details.

import type { Board } from './board.ts';
import {
  boardLink,
  findingsAtAuditor,
  incidentAtAuditor,
  kindMeaning,
  meaning,
  metrics,
  runbook,
  serviceAtAuditor,
} from './board.ts';
import type { PanelSpec } from './panel.ts';
import {
  bySeverity,
  increase,
  max,
  of,
  ofProcess,
  ofServices,
  quantile,
  ranked,
  rate,
  sum,
} from './query.ts';

const ofObjects = 'output!="node"';

const incidents: readonly PanelSpec[] = [
  {
    kind: 'stat',
    title: 'Open incidents',
    description:
      'Findings grouped by their cause, by the worst severity of their findings. One stopped ' +
      'controller is one incident.',
    unit: 'short',
    width: 12,
    queries: bySeverity((matcher) => of('incidents', matcher)),
    links: [metrics('Incidents'), runbook('EndpointsIncidentCauseUnknown')],
  },
  {
    kind: 'stat',
    title: 'Worst impact on a Service',
    description:
      'Of Services with findings, the largest estimated share of new connections that fail or ' +
      'reach a wrong address, and the largest share of ready pods that get none.',
    unit: 'percentunit',
    width: 12,
    queries: [
      { expr: max(ofServices('misrouted_connections_ratio')), legend: 'misrouted connections' },
      { expr: max(ofServices('unused_capacity_ratio')), legend: 'unused capacity' },
    ],
    max: 1,
    links: [metrics('Single Services')],
  },
  {
    kind: 'table',
    title: 'Incidents',
    description:
      'Open incidents, the worst severity first, with the number of Services that they affect. A ' +
      'click on the name opens the incident on the page of the auditor.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: ranked(
          max(
            of('incident_services'),
            ...['severity', 'kind', 'incident', 'namespace', 'service', 'node'],
          ),
        ),
        legend: 'Services',
      },
    ],
    columns: { incident: [incidentAtAuditor], kind: [kindMeaning] },
  },
  {
    kind: 'stack',
    title: 'Incidents by kind',
    description:
      'Open incidents over time. Marks on all graphs show when incidents were open and when ' +
      'alerts fired.',
    unit: 'short',
    width: 12,
    queries: [{ expr: `${sum(of('incidents'), 'kind')} > 0`, legend: '{{kind}}' }],
    links: [metrics('Incidents')],
  },
];

const now: readonly PanelSpec[] = [
  {
    kind: 'stat',
    title: 'Open findings',
    description:
      'Differences that lasted longer than the settle window. Critical: traffic is lost or ' +
      'reaches a wrong pod. Warning: it suffers, or will after another event. Info: no traffic ' +
      'is affected.',
    unit: 'short',
    width: 6,
    queries: bySeverity((matcher) => of('findings', matcher)),
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Correct outputs',
    description:
      'Share of the Endpoints, EndpointSlices and mirrored EndpointSlices with the verdict ok, ' +
      'of those with a known verdict.',
    unit: 'percentunit',
    width: 4,
    queries: [
      {
        expr:
          `${sum(of('outputs', ofObjects, 'verdict="ok"'))} / ` +
          sum(of('outputs', ofObjects, 'verdict!="unknown"')),
        legend: 'ok',
      },
    ],
    max: 1,
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Unknown outputs',
    description:
      'Share of the outputs with the verdict unknown. The auditor lacks an input, so it reports ' +
      'no findings about them.',
    unit: 'percentunit',
    width: 4,
    queries: [
      {
        expr:
          `${sum(of('outputs', ofObjects, 'verdict="unknown"'))} / ` +
          sum(of('outputs', ofObjects)),
        legend: 'unknown',
      },
    ],
    max: 1,
    links: [runbook('EndpointAuditorUnknownShareHigh')],
  },
  {
    kind: 'stat',
    title: 'Oldest pending difference',
    description:
      'Age of the oldest difference within the settle window. It may be a change in progress.',
    unit: 's',
    width: 4,
    queries: [{ expr: max(of('pending_oldest_seconds')), legend: 'oldest' }],
    links: [runbook('EndpointsControllerStuck')],
  },
  {
    kind: 'stat',
    title: 'Services',
    description:
      'Services that exist, and those whose endpoints a user or another controller writes ' +
      '(unmanaged). Unmanaged Services have no verdict.',
    unit: 'short',
    width: 4,
    queries: [
      { expr: sum(of('services')), legend: 'all' },
      { expr: sum(of('services_unmanaged')), legend: 'unmanaged' },
    ],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Auditor',
    description:
      'Whether every auditor has read what it needs, and received it within the last minute.',
    unit: 'bool_yes_no',
    width: 2,
    queries: [{ expr: `min (${of('ready')})`, legend: 'ready' }],
    links: [runbook('EndpointAuditorNotReady')],
  },
];

const verdicts: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Outputs that differ or are unknown',
    description:
      'Pending: a difference within the settle window. Mismatch: an open finding. Unknown: the ' +
      'auditor lacks an input.',
    unit: 'short',
    width: 8,
    queries: [
      {
        expr: sum(of('outputs', ofObjects, 'verdict!="ok"'), 'verdict'),
        legend: '{{verdict}}',
      },
    ],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stack',
    title: 'Findings by severity',
    description: 'Open findings over time. A finding opens after the settle window.',
    unit: 'short',
    width: 8,
    queries: bySeverity((matcher) => of('findings', matcher)),
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stack',
    title: 'Findings opened',
    description: 'Findings that opened within one step of the graph, resolved findings included.',
    unit: 'short',
    width: 8,
    queries: [{ expr: `${increase(of('findings_opened_total'), 'code')} > 0`, legend: '{{code}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'table',
    title: 'Findings by code',
    description:
      'Open findings, the worst severity first. A click on a code opens its meaning and remedy, ' +
      'or the findings on the page of the auditor (at the address in the variable Auditor).',
    unit: 'short',
    width: 12,
    queries: [
      { expr: ranked(`${sum(of('findings'), 'severity', 'code')} > 0`), legend: 'findings' },
    ],
    columns: {
      code: [meaning, findingsAtAuditor],
    },
  },
  {
    kind: 'table',
    title: 'Services with findings',
    description:
      'Open findings of each Service, the worst severity first, those on nodes included. A row ' +
      'without a name has the Services above --metrics-max-services. A click on a name opens the ' +
      'Service.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: ranked(
          sum(ofServices('findings'), 'severity', 'namespace', 'service', 'code', 'cause'),
        ),
        legend: 'findings',
      },
    ],
    columns: {
      service: [
        serviceAtAuditor,
        boardLink(
          'endpointslices',
          'EndpointSlices of the Service',
          '&var-namespace=${__data.fields.namespace}&var-service=${__data.fields.service}',
        ),
      ],
    },
  },
];

const firing: PanelSpec = {
  kind: 'table',
  title: 'Firing alerts',
  description:
    'Alerts of endpoint-auditor that fire in this Prometheus, the worst severity first. It needs ' +
    'the rules in alerts/.',
  unit: 'short',
  width: 24,
  queries: [
    {
      expr: ranked(
        'max by (severity, alertname, cluster, namespace, service, node, code, incident) (' +
          'ALERTS{cluster=~"$cluster", alertname=~"Endpoint.*", alertstate="firing"})',
      ),
      legend: 'firing',
    },
  ],
  columns: { service: [serviceAtAuditor], incident: [incidentAtAuditor] },
};

const lags: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Convergence lag, 99th percentile',
    description:
      'From a change of a pod or Service to the write that follows it. For nodes: to the first ' +
      'reading of correct rules.',
    unit: 's',
    isLog: true,
    width: 12,
    queries: [
      { expr: quantile(0.99, 'convergence_lag_seconds', ['output']), legend: '{{output}}' },
    ],
    links: [boardLink('lag', 'Lag'), runbook('EndpointsLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Changes written within 10 s',
    description: 'The objective is 99 % of the changes of each output.',
    unit: 'percentunit',
    width: 12,
    queries: [
      {
        expr:
          `${rate(of('convergence_lag_seconds_bucket', 'le=~"10|10.0"'), 'output')} / ` +
          rate(of('convergence_lag_seconds_count'), 'output'),
        legend: '{{output}}',
      },
    ],
    max: 1,
    links: [boardLink('lag', 'Lag'), runbook('EndpointsLagBudgetBurn')],
  },
];

const unknowns: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Unknown verdicts by reason',
    description:
      'Outputs and Service ports with the verdict unknown, and Services that cannot be decoded.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('outputs_unknown'), 'reason'), legend: '{{reason}}' }],
    links: [runbook('EndpointAuditorUnknownShareHigh')],
  },
  {
    kind: 'lines',
    title: 'Stale watches',
    description: 'Time since the watch of a resource was last synced. 0 while it is synced.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('watch_unseen_seconds'), 'resource'), legend: '{{resource}}' }],
    links: [runbook('EndpointAuditorWatchStale')],
  },
  {
    kind: 'lines',
    title: 'Relists and reconnects per second',
    description:
      'Lists that replace a watch, and watches that were opened again. Both happen in every ' +
      'cluster. Many of them load the API server.',
    unit: 'short',
    width: 8,
    queries: [
      { expr: rate(of('watch_relists_total'), 'resource'), legend: '{{resource}} list' },
      { expr: rate(of('watch_reconnects_total'), 'resource'), legend: '{{resource}} watch' },
    ],
    links: [runbook('EndpointAuditorWatchStale')],
  },
  {
    kind: 'lines',
    title: 'Dropped input per second',
    description:
      'Stale: older than the cached object. Repeated: the same version. Unreadable: not a valid ' +
      'object. Skipped: an invalid line of a recording.',
    unit: 'short',
    width: 12,
    queries: [{ expr: rate(of('dropped_total'), 'reason'), legend: '{{reason}}' }],
    links: [metrics('Input and build')],
  },
  {
    kind: 'lines',
    title: 'Confirmation reads per second',
    description:
      'Before a finding opens, the auditor reads its Service again. Confirmed: the cache is ' +
      'current. Lagging: the cache lacks a change. Failed: the read failed.',
    unit: 'short',
    width: 12,
    queries: [{ expr: rate(of('confirm_reads_total'), 'result'), legend: '{{result}}' }],
    links: [metrics('Live input')],
  },
];

const costs: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'CPU',
    description: 'CPU time of the auditor. 100 % is one core.',
    unit: 'percentunit',
    width: 6,
    queries: [
      {
        expr: ofProcess('rate(process_cpu_seconds_total[$__rate_interval])'),
        legend: '{{instance}}',
      },
    ],
    links: [metrics('The process itself')],
  },
  {
    kind: 'lines',
    title: 'Memory',
    description: 'Resident memory of the auditor, and its heap in use.',
    unit: 'bytes',
    width: 6,
    queries: [
      { expr: ofProcess('process_resident_memory_bytes'), legend: '{{instance}} resident' },
      { expr: ofProcess('nodejs_heap_size_used_bytes'), legend: '{{instance}} heap' },
    ],
    links: [metrics('The process itself')],
  },
  {
    kind: 'lines',
    title: 'Evaluation, 99th percentile',
    description: 'CPU-blocking time per input event. Full: the initial evaluation of everything.',
    unit: 's',
    width: 6,
    queries: [{ expr: quantile(0.99, 'audit_duration_seconds', ['scope']), legend: '{{scope}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'lines',
    title: 'Series of single Services',
    description:
      'Services that have series of their own, and those without because of ' +
      '--metrics-max-services.',
    unit: 'short',
    width: 6,
    queries: [
      { expr: sum(of('services_with_series')), legend: 'with series' },
      { expr: sum(of('services_without_series')), legend: 'above the limit' },
    ],
    links: [metrics('Single Services')],
  },
];

export const overview: Board = {
  name: 'overview',
  title: 'Overview',
  description:
    'Incidents, open findings about Endpoints, EndpointSlices and nodes, lag, and unknown verdicts.',
  rows: [
    { title: 'Incidents', panels: incidents },
    { title: 'Now', panels: now },
    { title: 'Findings', panels: [...verdicts, firing] },
    { title: 'Lag', panels: lags },
    { title: 'Unknown verdicts and watches', panels: unknowns },
    { title: 'Cost of the auditor', panels: costs },
  ],
};
