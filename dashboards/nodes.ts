// What the rules on nodes do with packets: whether it is what they must do, how soon they follow,
// and of how many nodes it is known.

import type { Board } from './board.ts';
import { atAuditor, boardLink, meaning, metrics, runbook } from './board.ts';
import type { PanelSpec } from './panel.ts';
import { buckets, max, of, ofServices, quantile, rate, sum } from './query.ts';

const onNodes = 'output="node"';
const ofNodes = 'code=~"node-.*"';

const now: readonly PanelSpec[] = [
  {
    kind: 'stat',
    title: 'Service ports on nodes',
    description:
      'Service ports of the nodes whose rules are known, by verdict. Unknown: the rules, or what ' +
      'they must do, cannot be understood.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('outputs', onNodes), 'verdict'), legend: '{{verdict}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Findings on nodes',
    description:
      'Critical: packets go astray or nowhere; warning: they suffer, or will; info: no harm by ' +
      'itself.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('findings', ofNodes), 'severity'), legend: '{{severity}}' }],
    links: [runbook('EndpointAuditorNodeRulesBroken')],
  },
  {
    kind: 'stat',
    title: 'Stale nodes',
    description: 'Findings that a node forwards by an earlier state of the cluster.',
    unit: 'short',
    width: 4,
    queries: [{ expr: sum(of('findings', 'code="node-rules-stale"')), legend: 'stale' }],
    links: [runbook('EndpointAuditorNodeStale')],
  },
  {
    kind: 'stat',
    title: 'Oldest that waits',
    description: 'Age of the oldest difference on a node that is still within the settle window.',
    unit: 's',
    width: 4,
    queries: [{ expr: max(of('pending_oldest_seconds', onNodes)), legend: 'oldest' }],
    links: [runbook('EndpointAuditorNodeStale')],
  },
];

const divergence: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Service ports that are not as expected',
    description:
      'Pending: the rules differ, for less than the settle window. Different: a finding stands. ' +
      'Unknown: they cannot be judged.',
    unit: 'short',
    width: 8,
    queries: [
      {
        expr: sum(of('outputs', onNodes, 'verdict!="conform"'), 'verdict'),
        legend: '{{verdict}}',
      },
    ],
    links: [runbook('EndpointAuditorNodeRulesBroken')],
  },
  {
    kind: 'stack',
    title: 'Findings on nodes by code',
    description:
      'Findings that stand, over time: after the settle window, before they are resolved.',
    unit: 'short',
    width: 8,
    queries: [{ expr: `${sum(of('findings', ofNodes), 'code')} > 0`, legend: '{{code}}' }],
    links: [runbook('EndpointAuditorNodeRulesBroken')],
  },
  {
    kind: 'table',
    title: 'Findings on nodes now',
    description:
      'A click on a code says what it means and what to do, or lists the nodes and Service ports ' +
      'that are meant (the auditor must be reachable where the variable says).',
    unit: 'short',
    width: 8,
    queries: [
      { expr: `${sum(of('findings', ofNodes), 'code', 'severity')} > 0`, legend: 'findings' },
    ],
    columns: {
      code: [
        meaning,
        atAuditor('Who is meant, at the auditor', '/api/v1/findings?code=${__data.fields.code}'),
      ],
    },
  },
  {
    kind: 'stack',
    title: 'Why a node cannot be judged',
    description:
      'Nodes, and Service ports on them, that cannot be judged, by the reason: their rules or ' +
      'their proxy mode are not known, not modelled or not understood.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: sum(of('outputs_unknown', 'reason=~"node-.*|proxy-.*|rules-.*|agent-.*"'), 'reason'),
        legend: '{{reason}}',
      },
    ],
    links: [runbook('EndpointAuditorUnknownShareHigh')],
  },
  {
    kind: 'stack',
    title: 'What nodes should forward to',
    description:
      'Endpoints of the Services chosen that rules use: the ready ones and, where there are none, ' +
      'those that are terminating and still serve.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: sum(ofServices('endpoints', 'condition=~"ready|terminating-serving"'), 'condition'),
        legend: '{{condition}}',
      },
    ],
    links: [boardLink('endpointslices', 'EndpointSlices')],
  },
];

const lags: readonly PanelSpec[] = [
  {
    kind: 'heatmap',
    title: 'Programming lag, at most',
    description:
      'Changes by how long nodes took at most: from the arrival of a slice or a Service to the ' +
      'first reading of rules that do as it says.',
    unit: 's',
    width: 12,
    queries: [{ expr: buckets('node_programming_lag_seconds', 'bound="most"'), legend: '' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Programming lag',
    description:
      'Median and 99th percentile. Rules are read now and then: it was at least to the last ' +
      'reading that was wrong (least), and at most to the first that was right (most).',
    unit: 's',
    width: 12,
    queries: [0.5, 0.99].map((share) => ({
      expr: quantile(share, 'node_programming_lag_seconds', ['bound']),
      legend: `{{bound}} p${share * 100}`,
    })),
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Convergence lag of nodes, 99th percentile',
    description:
      'From the change that made rules differ to the first reading of them that is as expected, ' +
      'by what had to be done.',
    unit: 's',
    width: 12,
    queries: [
      {
        expr: quantile(0.99, 'convergence_lag_seconds', ['operation'], onNodes),
        legend: '{{operation}}',
      },
    ],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'From a pod to the nodes, 99th percentile',
    description:
      'From the Ready transition of a pod, or its end, to the first reading of a node’s rules ' +
      'that shows it.',
    unit: 's',
    width: 12,
    queries: [
      { expr: quantile(0.99, 'readiness_lag_seconds', [], onNodes), legend: 'readiness' },
      { expr: quantile(0.99, 'removal_lag_seconds', [], onNodes), legend: 'removal' },
    ],
    links: [boardLink('lag', 'Lag and journeys')],
  },
];

const agents: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Agents',
    description:
      'Nodes by how their agent stands: it answers, is not heard of (stale), does not accept us ' +
      'or is not understood (refused), or there is none (absent). Of the last three nothing is ' +
      'known.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('node_agents'), 'state'), legend: '{{state}}' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Oldest report',
    description: 'Age of the oldest report of an agent that answers.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('node_report_oldest_seconds')), legend: 'oldest' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Frontends that diverge',
    description:
      'Frontends of all nodes whose digest is not the one that follows from the cluster; those ' +
      'that no digest can tell of, such as with several right fates, are not among them.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('node_frontends_divergent')), legend: 'diverge' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'stack',
    title: 'Visits to agents',
    description:
      'A report was there (seen), there was none yet (early), the agent did not accept us or was ' +
      'not understood (refused), or it did not answer (silent).',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('agent_visits_total'), 'result'), legend: '{{result}}' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Bytes of their answers',
    description: 'What all agents together send to the auditor.',
    unit: 'binBps',
    width: 8,
    queries: [{ expr: rate(of('agent_bytes_total')), legend: 'answers' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Rounds that failed',
    description: 'Rounds of agents after which their node was unknown, by agent.',
    unit: 'cps',
    width: 8,
    queries: [
      { expr: `${rate(of('agent_failed_rounds_total'), 'instance')} > 0`, legend: '{{instance}}' },
    ],
    links: [runbook('EndpointAuditorUnknownShareHigh')],
  },
  {
    kind: 'lines',
    title: 'CPU of the agents',
    description:
      'Of the ten that use most: 100 % is one core. Asking is the time that the kernel took to ' +
      'tell the rules.',
    unit: 'percentunit',
    width: 8,
    queries: [
      {
        expr: `topk(10, ${rate(of('agent_cpu_seconds_total'), 'instance')})`,
        legend: '{{instance}}',
      },
      {
        expr: `topk(10, ${rate(of('agent_collecting_seconds_total'), 'instance')})`,
        legend: '{{instance}} asking',
      },
    ],
  },
  {
    kind: 'lines',
    title: 'Memory of the agents',
    description: 'Resident memory, of the ten that use most.',
    unit: 'bytes',
    width: 8,
    queries: [
      {
        expr: `topk(10, ${sum(of('agent_resident_memory_bytes'), 'instance')})`,
        legend: '{{instance}}',
      },
    ],
  },
  {
    kind: 'lines',
    title: 'Rules that were read',
    description: 'Size of the last dumps, the ten largest.',
    unit: 'bytes',
    width: 8,
    queries: [
      { expr: `topk(10, ${sum(of('agent_dump_bytes'), 'instance')})`, legend: '{{instance}}' },
    ],
  },
];

export const nodes: Board = {
  name: 'nodes',
  title: 'Nodes',
  description: 'Whether the rules on nodes do what they must, how soon they follow, and agents.',
  rows: [
    { title: 'Now', panels: now },
    { title: 'Divergence', panels: divergence },
    { title: 'Lag', panels: lags },
    { title: 'Agents', panels: agents },
  ],
};
