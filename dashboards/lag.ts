// How late: the controllers by the auditor's own clock, what their annotations say, and the way of
// single changes of pods to where traffic feels them.

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
      'Changes by how long they took, from the change that made an output differ to the writing ' +
      'that made it right again, by one clock.',
    unit: 's',
    width: 12,
    queries: [{ expr: buckets('convergence_lag_seconds', 'output!="node"'), legend: '' }],
    links: [metrics('Lag'), runbook('EndpointAuditorLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Convergence lag by output',
    description: 'Median and 99th percentile of the same, those of nodes included.',
    unit: 's',
    width: 12,
    queries: quantiles('convergence_lag_seconds', 'output'),
    links: [metrics('Lag'), runbook('EndpointAuditorLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Convergence lag by kind of change, 99th percentile',
    description:
      'Whether something had to be added, removed or changed. Removals are what clients feel as ' +
      'errors.',
    unit: 's',
    width: 8,
    queries: [
      { expr: quantile(0.99, 'convergence_lag_seconds', ['operation']), legend: '{{operation}}' },
    ],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Budget burnt',
    description:
      'How many times faster than allowed the budget of late changes (1 % later than 10 s) is ' +
      'spent. Alerts fire at 14.4 over an hour and 6 over six. It needs the recording rules of ' +
      'the alerts.',
    unit: 'short',
    width: 8,
    queries: ['1h', '6h'].map((window) => ({
      expr: `cluster_output:endpoint_auditor_convergence_lag_errors:ratio_rate${window}{cluster=~"$cluster"} / 0.01`,
      legend: `{{output}} over ${window}`,
    })),
    links: [runbook('EndpointAuditorLagBudgetBurn')],
  },
  {
    kind: 'lines',
    title: 'Oldest that waits',
    description:
      'Age of the oldest difference within the settle window. It grows while a controller does ' +
      'not write.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('pending_oldest_seconds'), 'output'), legend: '{{output}}' }],
    links: [runbook('EndpointAuditorControllerStuck')],
  },
  {
    kind: 'lines',
    title: 'Trigger lag',
    description:
      'From the annotation last-change-trigger-time to the arrival of the object, up to a second ' +
      'too high. Clock skew to the control plane enters it; removals have no trigger time.',
    unit: 's',
    width: 8,
    queries: quantiles('trigger_lag_seconds', 'resource'),
    links: [metrics('Trigger times')],
  },
  {
    kind: 'stack',
    title: 'Trigger times by worth',
    description: 'Writings of the controllers, by what their trigger time is worth.',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('trigger_times_total'), 'quality'), legend: '{{quality}}' }],
    links: [metrics('Trigger times')],
  },
  {
    kind: 'lines',
    title: 'Clock ahead of the API server',
    description:
      'By how much the auditor’s clock is ahead, up to a second and the way too high; negative: ' +
      'behind. It is in every lag that begins with a time that somebody else wrote.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('clock_ahead_seconds')), legend: 'ahead' }],
    isSigned: true,
    links: [metrics('Lag')],
  },
];

const journeys: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Readiness lag',
    description:
      'From the Ready transition of a pod to each output that lists it as ready; at nodes, to ' +
      'the first reading of their rules that does.',
    unit: 's',
    width: 8,
    queries: quantiles('readiness_lag_seconds', 'output'),
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Removal lag',
    description:
      'From the deletion of a pod, or its becoming not ready, to each output that says so: until ' +
      'then it is sent traffic.',
    unit: 's',
    width: 8,
    queries: quantiles('removal_lag_seconds', 'output'),
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Node programming lag',
    description:
      'From the arrival of a slice or a Service to rules of a node that do as it says: at least ' +
      'to the last reading that was wrong, at most to the first that was right.',
    unit: 's',
    width: 8,
    queries: quantiles('node_programming_lag_seconds', 'bound'),
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Journeys begun',
    description: 'Changes of pods that traffic is to see, one for each Service.',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('journeys_total'), 'operation'), legend: '{{operation}}' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Journeys by worth of their beginning',
    description:
      'Those of ok, coarse and arrival are measured; skewed and gap are counted, and not ' +
      'measured.',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('journeys_total'), 'quality'), legend: '{{quality}}' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Journeys ended',
    description:
      'Complete at all outputs and nodes, overtaken by another change of the pod, gone with what ' +
      'they awaited, or dropped since too many were open.',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('journeys_ended_total'), 'end'), legend: '{{end}}' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Journeys open',
    description: 'Journeys that have not come to all outputs and nodes.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('journeys_open')), legend: 'open' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'stack',
    title: 'Journeys with a trace',
    description:
      'Journeys that ended while traces are sent, by why they have one: slow ones always, the ' +
      'others by the ratio; none: they have none.',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('journeys_traced_total'), 'choice'), legend: '{{choice}}' }],
    links: [metrics('Traces')],
  },
  {
    kind: 'lines',
    title: 'Spans',
    description:
      'Spans that the backend of traces took, and those that are lost: no room (queue), refused ' +
      'or not answered for (export), not sent before the end (shutdown).',
    unit: 'cps',
    width: 8,
    queries: [
      { expr: rate(of('spans_exported_total')), legend: 'taken' },
      { expr: rate(of('spans_dropped_total'), 'reason'), legend: 'lost: {{reason}}' },
    ],
    links: [metrics('Traces')],
  },
];

const services: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Services that wait',
    description:
      'Of the Services chosen, for how long the oldest difference within the settle window ' +
      'stands, on the clock of the input.',
    unit: 's',
    width: 12,
    queries: [
      {
        expr: max(
          `${of('input_timestamp_seconds')} - on (job, instance) group_right () ` +
            ofServices('pending_since_timestamp_seconds'),
          'namespace',
          'service',
          'output',
        ),
        legend: '{{namespace}}/{{service}} {{output}}',
      },
    ],
    links: [runbook('EndpointAuditorControllerStuck')],
  },
  {
    kind: 'table',
    title: 'Services judged most often',
    description:
      'Of the Services chosen, those of which something was judged most often within the time ' +
      'shown: they change most. A click on a name shows the Service in full.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: `topk(20, ${sum(
          `increase(${ofServices('audits_total')}[$__range])`,
          'namespace',
          'service',
        )} > 0)`,
        legend: 'judged',
      },
    ],
    columns: { service: [serviceAtAuditor] },
  },
];

export const lag: Board = {
  name: 'lag',
  title: 'Lag and journeys',
  description: 'How long controllers and nodes take, and the way of single changes of pods.',
  rows: [
    { title: 'Controllers', panels: controllers },
    { title: 'Journeys of pods', panels: journeys },
    { title: 'Single Services', panels: services },
  ],
};
