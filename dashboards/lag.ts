// Lag: of the controllers by the auditor's clock and by their annotations, and of pod changes until
// the outputs and the nodes have them.

import type { Board } from './board.ts';
import { metrics, runbook, serviceAtAuditor } from './board.ts';
import type { PanelSpec } from './panel.ts';
import { buckets, max, of, ofServices, quantile, rate, sum } from './query.ts';

const shares = [0.5, 0.99];

/** Median and 99th percentile. */
const quantiles = (metric: string, label: string, ...matchers: readonly string[]) =>
  shares.map((share) => ({
    expr: quantile(share, metric, [label], ...matchers),
    legend: `{{${label}}} p${share * 100}`,
  }));

const controllers: readonly PanelSpec[] = [
  {
    kind: 'heatmap',
    title: 'Convergence lag',
    description:
      'Changes by their lag: from a change of a pod or Service to the write that follows it, by ' +
      'one clock.',
    unit: 's',
    width: 12,
    queries: [{ expr: buckets('convergence_lag_seconds', 'output!="node"'), legend: '' }],
    links: [metrics('Lag'), runbook('EndpointsLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Convergence lag by output',
    description: 'Median and 99th percentile of the lag, nodes included.',
    unit: 's',
    isLog: true,
    width: 12,
    queries: quantiles('convergence_lag_seconds', 'output'),
    links: [metrics('Lag'), runbook('EndpointsLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Convergence lag by operation, 99th percentile',
    description:
      'Whether endpoints were added, removed or updated. Late removals cause connection errors.',
    unit: 's',
    isLog: true,
    width: 8,
    queries: [
      { expr: quantile(0.99, 'convergence_lag_seconds', ['operation']), legend: '{{operation}}' },
    ],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Error budget burn rate',
    description:
      'Speed at which the budget for late changes (1 % later than 10 s) is used; 1 uses it up ' +
      'exactly. Alerts fire at 14.4 over one hour and at 6 over six hours. It needs the ' +
      'recording rules in alerts/lag.yaml.',
    unit: 'short',
    width: 8,
    queries: ['1h', '6h'].map((window) => ({
      expr: `cluster_output:endpoint_auditor_convergence_lag_errors:ratio_rate${window}{cluster=~"$cluster"} / 0.01`,
      legend: `{{output}} over ${window}`,
    })),
    links: [runbook('EndpointsLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Oldest pending difference',
    description:
      'Age of the oldest difference within the settle window. It grows while a controller does ' +
      'not write.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('pending_oldest_seconds'), 'output'), legend: '{{output}}' }],
    links: [runbook('EndpointsControllerStuck')],
  },
  {
    kind: 'lines',
    title: 'Trigger lag',
    description:
      'From the annotation last-change-trigger-time to the arrival of the object, overestimated ' +
      'by up to 1 s. Includes the clock offset. Removals have no trigger time.',
    unit: 's',
    isLog: true,
    width: 8,
    queries: quantiles('trigger_lag_seconds', 'resource'),
    links: [metrics('Trigger times')],
  },
  {
    kind: 'stack',
    title: 'Trigger times per second, by quality',
    description: 'Writes of the controllers, by the quality of their trigger time.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('trigger_times_total'), 'quality'), legend: '{{quality}}' }],
    links: [metrics('Trigger times')],
  },
  {
    kind: 'lines',
    title: 'Clock offset to the API server',
    description:
      'Positive: the clock of the auditor is ahead. Overestimated by up to 1 s plus latency. It ' +
      'is part of every lag that starts at a time of another clock.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('clock_offset_seconds')), legend: 'offset' }],
    isSigned: true,
    links: [metrics('Lag')],
  },
];

const journeys: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Readiness lag',
    description:
      'From the Ready transition of a pod to each output that lists it as ready. For nodes: to ' +
      'the first reading of rules with the pod.',
    unit: 's',
    isLog: true,
    width: 8,
    queries: quantiles('readiness_lag_seconds', 'output'),
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Removal lag',
    description:
      'From the deletion of a pod, or its transition to not ready, to each output without it. ' +
      'Until then it gets traffic.',
    unit: 's',
    isLog: true,
    width: 8,
    queries: quantiles('removal_lag_seconds', 'output'),
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Node programming lag',
    description:
      'From the arrival of an EndpointSlice or a Service to rules of a node that implement it. ' +
      'Lower: to the last reading without the change. Upper: to the first reading with it.',
    unit: 's',
    isLog: true,
    width: 8,
    queries: quantiles('node_programming_lag_seconds', 'bound'),
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Pod changes per second',
    description: 'Pod changes that the outputs should follow, one per Service.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('pod_changes_total'), 'operation'), legend: '{{operation}}' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Pod changes per second, by quality of the start time',
    description:
      'Changes of quality ok, coarse and arrival are in the readiness and removal lag. Those of ' +
      'skewed and gap are not.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('pod_changes_total'), 'quality'), legend: '{{quality}}' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Finished pod changes per second',
    description:
      'Complete: all outputs and nodes have the change. Superseded: the pod changed again ' +
      'before. Deleted: an awaited object was deleted. Dropped: too many were open.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('pod_changes_ended_total'), 'end'), legend: '{{end}}' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Open pod changes',
    description: 'Pod changes that some outputs or nodes do not have yet.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('pod_changes_open')), legend: 'open' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Traced pod changes per second',
    description:
      'Finished pod changes while tracing is on, by sampling decision: slow (always), ratio ' +
      '(sampled), none.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('pod_changes_traced_total'), 'choice'), legend: '{{choice}}' }],
    links: [metrics('Traces')],
  },
  {
    kind: 'lines',
    title: 'Spans per second',
    description:
      'Spans that the tracing backend accepted, and lost spans. Queue: it was full. Export: ' +
      'refused or no answer. Shutdown: not sent before the end.',
    unit: 'short',
    width: 8,
    queries: [
      { expr: rate(of('spans_exported_total')), legend: 'accepted' },
      { expr: rate(of('spans_dropped_total'), 'reason'), legend: 'lost: {{reason}}' },
    ],
    links: [metrics('Traces')],
  },
];

const services: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Services with pending differences',
    description:
      'Age of the oldest difference of each selected Service that is within the settle window.',
    unit: 's',
    width: 12,
    queries: [
      {
        expr: max(
          `${of('input_timestamp_seconds')} - on (cluster, job, instance) group_right () ` +
            ofServices('pending_since_timestamp_seconds'),
          'namespace',
          'service',
          'output',
        ),
        legend: '{{namespace}}/{{service}} {{output}}',
      },
    ],
    links: [runbook('EndpointsControllerStuck')],
  },
  {
    kind: 'table',
    title: 'Services evaluated most often',
    description:
      'The 20 selected Services with the most evaluations in this time range: they change most. ' +
      'A click on a name opens the Service.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: `topk(20, ${sum(
          `increase(${ofServices('audits_total')}[$__range])`,
          'namespace',
          'service',
        )} > 0)`,
        legend: 'evaluations',
      },
    ],
    columns: { service: [serviceAtAuditor] },
  },
];

export const lag: Board = {
  name: 'lag',
  title: 'Lag',
  description: 'Lag of controllers and nodes, and of pod changes.',
  rows: [
    { title: 'Controllers', panels: controllers },
    { title: 'Pod changes', panels: journeys },
    { title: 'Single Services', panels: services },
  ],
};
