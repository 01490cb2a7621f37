// The first board: what is wrong, how much cannot be known, how late the controllers are, and
// whether the auditor itself is well. Details are on the other boards.

import type { Board } from './board.ts';
import { atAuditor, boardLink, meaning, metrics, runbook, serviceAtAuditor } from './board.ts';
import type { PanelSpec } from './panel.ts';
import { increase, max, of, ofProcess, ofServices, quantile, rate, sum } from './query.ts';

const now: readonly PanelSpec[] = [
  {
    kind: 'stat',
    title: 'Findings that stand',
    description:
      'Differences that have stood for the settle window. Critical: traffic goes astray or ' +
      'nowhere; warning: it suffers, or will; info: no harm by itself.',
    unit: 'short',
    width: 6,
    queries: [{ expr: sum(of('findings'), 'severity'), legend: '{{severity}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Outputs as expected',
    description:
      'Of the outputs that can be judged (Endpoints, EndpointSlices and mirrored slices of ' +
      'Services, and Service ports on nodes), the share that is as it must be.',
    unit: 'percentunit',
    width: 4,
    queries: [
      {
        expr: `${sum(of('outputs', 'verdict="conform"'))} / ${sum(of('outputs', 'verdict!="unknown"'))}`,
        legend: 'as expected',
      },
    ],
    max: 1,
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Cannot be judged',
    description:
      'Share of the outputs whose input is not known or not understood: what is silent about ' +
      'them is no health.',
    unit: 'percentunit',
    width: 4,
    queries: [
      {
        expr: `${sum(of('outputs', 'verdict="unknown"'))} / ${sum(of('outputs'))}`,
        legend: 'unknown',
      },
    ],
    max: 1,
    links: [runbook('EndpointAuditorUnknownShareHigh')],
  },
  {
    kind: 'stat',
    title: 'Oldest that waits',
    description:
      'Age of the oldest difference that is still within the settle window, so that it may be a ' +
      'change in flight.',
    unit: 's',
    width: 4,
    queries: [{ expr: max(of('pending_oldest_seconds')), legend: 'oldest' }],
    links: [runbook('EndpointAuditorControllerStuck')],
  },
  {
    kind: 'stat',
    title: 'Services',
    description:
      'Services that exist, and those among them, or names without a Service, whose endpoints ' +
      'somebody else writes: they are not judged.',
    unit: 'short',
    width: 4,
    queries: [
      { expr: sum(of('services')), legend: 'all' },
      { expr: sum(of('services_foreign')), legend: 'not judged' },
    ],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Auditor',
    description: 'Whether every auditor knows all that is needed, and saw it within a minute.',
    unit: 'bool_yes_no',
    width: 2,
    queries: [{ expr: `min (${of('ready')})`, legend: 'ready' }],
    links: [runbook('EndpointAuditorNotReady')],
  },
];

const verdicts: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Outputs that are not as expected',
    description:
      'Pending: they differ, for less than the settle window. Different: a finding stands. ' +
      'Unknown: they cannot be judged.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('outputs', 'verdict!="conform"'), 'verdict'), legend: '{{verdict}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stack',
    title: 'Findings by severity',
    description:
      'Findings that stand, over time: after the settle window, before they are resolved.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('findings'), 'severity'), legend: '{{severity}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stack',
    title: 'Findings opened',
    description:
      'Findings that were opened within one step of the graph, those that are resolved again ' +
      'included.',
    unit: 'short',
    width: 8,
    queries: [{ expr: `${increase(of('findings_opened_total'), 'code')} > 0`, legend: '{{code}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'table',
    title: 'Findings by code',
    description:
      'What stands now. A click on a code says what it means and what to do, or lists who is ' +
      'meant (the auditor must be reachable where the variable says).',
    unit: 'short',
    width: 12,
    queries: [{ expr: `${sum(of('findings'), 'code', 'severity')} > 0`, legend: 'findings' }],
    columns: {
      code: [
        meaning,
        atAuditor('Who is meant, at the auditor', '/api/v1/findings?code=${__data.fields.code}'),
      ],
    },
  },
  {
    kind: 'table',
    title: 'Services with findings',
    description:
      'Findings about single Services, but for those on nodes. Which Services have series of ' +
      'their own, --metrics.per-service says. A click on a name shows the Service in full.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: sum(ofServices('findings'), 'namespace', 'service', 'severity'),
        legend: 'findings',
      },
    ],
    columns: {
      service: [
        serviceAtAuditor,
        boardLink(
          'endpointslices',
          'Its slices',
          '&var-namespace=${__data.fields.namespace}&var-service=${__data.fields.service}',
        ),
      ],
    },
  },
];

const lags: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Convergence lag, 99th percentile',
    description:
      'From the change that made an output differ to the writing that made it right again; at ' +
      'nodes, to the first reading of their rules that is as expected.',
    unit: 's',
    width: 12,
    queries: [
      { expr: quantile(0.99, 'convergence_lag_seconds', ['output']), legend: '{{output}}' },
    ],
    links: [boardLink('lag', 'Lag and journeys'), runbook('EndpointAuditorLagBudgetBurn')],
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
    links: [boardLink('lag', 'Lag and journeys'), runbook('EndpointAuditorLagBudgetBurn')],
  },
];

const unknowns: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Why it cannot be judged',
    description: 'Outputs that cannot be judged and Services that cannot be read, by the reason.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('outputs_unknown'), 'reason'), legend: '{{reason}}' }],
    links: [runbook('EndpointAuditorUnknownShareHigh')],
  },
  {
    kind: 'lines',
    title: 'Resources not seen',
    description: 'For how long the watch of a resource has not been synced; 0 while it is.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('watch_unseen_seconds'), 'resource'), legend: '{{resource}}' }],
    links: [runbook('EndpointAuditorWatchStale')],
  },
  {
    kind: 'lines',
    title: 'Watches begun anew',
    description:
      'Lists since history was lost, and watches that ended and were opened again. Both happen ' +
      'in every cluster; many of them are work for the API server.',
    unit: 'cps',
    width: 8,
    queries: [
      { expr: rate(of('watch_relists_total'), 'resource'), legend: '{{resource}} listed' },
      { expr: rate(of('watch_reconnects_total'), 'resource'), legend: '{{resource}} watched' },
    ],
    links: [runbook('EndpointAuditorWatchStale')],
  },
  {
    kind: 'lines',
    title: 'Input that was not used',
    description:
      'Stale: older than what is held; repeated: equal to it; unreadable objects, and lines of a ' +
      'recording that were skipped.',
    unit: 'cps',
    width: 12,
    queries: [{ expr: rate(of('dropped_total'), 'reason'), legend: '{{reason}}' }],
    links: [metrics('Input and build')],
  },
  {
    kind: 'lines',
    title: 'Differences read again',
    description:
      'Before a difference becomes a finding, its Service is read anew: it stands (confirmed), ' +
      'the watch is behind what was read (lagging), or the read failed.',
    unit: 'cps',
    width: 12,
    queries: [{ expr: rate(of('confirm_reads_total'), 'result'), legend: '{{result}}' }],
    links: [metrics('Live input')],
  },
];

const costs: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'CPU',
    description: 'Processor time that the auditor uses: 100 % is one core.',
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
    description: 'Memory of the auditor: resident, and what is used of its heap.',
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
    title: 'Judging, 99th percentile',
    description:
      'How long taking in one entry kept the process busy. Full: judging began with it, and ' +
      'everything was judged.',
    unit: 's',
    width: 6,
    queries: [{ expr: quantile(0.99, 'audit_duration_seconds', ['scope']), legend: '{{scope}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'lines',
    title: 'Series of single Services',
    description:
      'Services that have series of their own, and those that would but for ' +
      '--metrics.max-services.',
    unit: 'short',
    width: 6,
    queries: [
      { expr: sum(of('services_with_series')), legend: 'have series' },
      { expr: sum(of('services_left_out')), legend: 'left out' },
    ],
    links: [metrics('Single Services')],
  },
];

export const overview: Board = {
  name: 'overview',
  title: 'Overview',
  description:
    'What is wrong with Endpoints, EndpointSlices and nodes, how late, and what is unknown.',
  rows: [
    { title: 'Now', panels: now },
    { title: 'Verdicts and findings', panels: verdicts },
    { title: 'Lag', panels: lags },
    { title: 'What the auditor does not see', panels: unknowns },
    { title: 'What the auditor costs', panels: costs },
  ],
};
