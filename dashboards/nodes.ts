// The rules on nodes: whether they are correct, how fast they follow changes, and the agents.

import type { Board } from './board.ts';
import { boardLink, findingsAtAuditor, meaning, metrics, nodeAtAuditor, runbook } from './board.ts';
import type { PanelSpec } from './panel.ts';
import { bySeverity, buckets, max, of, ofServices, quantile, ranked, rate, sum } from './query.ts';

const onNodes = 'output="node"';
const ofNodes = 'code=~"node-.*"';

const now: readonly PanelSpec[] = [
  {
    kind: 'stat',
    title: 'Service ports on nodes',
    description:
      'One per Service port and node whose rules are known, by verdict. Unknown: the auditor ' +
      'cannot interpret the rules.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('node_service_ports'), 'verdict'), legend: '{{verdict}}' }],
    links: [metrics('Verdicts and findings')],
  },
  {
    kind: 'stat',
    title: 'Findings on nodes',
    description:
      'Critical: packets are lost or reach a wrong pod. Warning: they suffer, or will after ' +
      'another event. Info: no packets are affected.',
    unit: 'short',
    width: 8,
    queries: bySeverity((matcher) => of('findings', ofNodes, matcher)),
    links: [runbook('EndpointsNodeRulesBroken')],
  },
  {
    kind: 'stat',
    title: 'Stale nodes',
    description: 'Nodes whose rules implement an earlier state of the cluster.',
    unit: 'short',
    width: 4,
    queries: [{ expr: sum(of('findings', 'code="node-rules-stale"')), legend: 'stale' }],
    links: [runbook('EndpointsNodeStale')],
  },
  {
    kind: 'stat',
    title: 'Oldest pending difference',
    description: 'Age of the oldest difference on a node that is within the settle window.',
    unit: 's',
    width: 4,
    queries: [{ expr: max(of('pending_oldest_seconds', onNodes)), legend: 'oldest' }],
    links: [runbook('EndpointsNodeStale')],
  },
];

const divergence: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Service ports that differ or are unknown',
    description:
      'Pending: a difference within the settle window. Mismatch: an open finding. Unknown: the ' +
      'auditor cannot interpret the rules.',
    unit: 'short',
    width: 8,
    queries: [
      {
        expr: sum(of('node_service_ports', 'verdict!="ok"'), 'verdict'),
        legend: '{{verdict}}',
      },
    ],
    links: [runbook('EndpointsNodeRulesBroken')],
  },
  {
    kind: 'stack',
    title: 'Findings on nodes by code',
    description: 'Open findings over time. A finding opens after the settle window.',
    unit: 'short',
    width: 8,
    queries: [{ expr: `${sum(of('findings', ofNodes), 'code')} > 0`, legend: '{{code}}' }],
    links: [runbook('EndpointsNodeRulesBroken')],
  },
  {
    kind: 'table',
    title: 'Findings by node',
    description:
      'Open findings of each node, the worst severity first. A click on a node or code opens the ' +
      'page of the auditor (at the address in the variable Auditor).',
    unit: 'short',
    width: 8,
    queries: [
      {
        expr: ranked(sum(of('node_findings'), 'severity', 'node', 'code')),
        legend: 'findings',
      },
    ],
    columns: {
      node: [nodeAtAuditor],
      code: [meaning, findingsAtAuditor],
    },
  },
  {
    kind: 'stack',
    title: 'Unknown nodes by reason',
    description:
      'Nodes and Service ports with the verdict unknown: their rules or their proxy mode are not ' +
      'known or not supported.',
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
    title: 'Endpoints that nodes should use',
    description:
      'Endpoints of the selected Services: the ready ones and, without any, those that are ' +
      'terminating and still serving.',
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
    title: 'Programming lag, upper bound',
    description:
      'Changes by their lag: from the arrival of an EndpointSlice or a Service to the first ' +
      'reading of rules that implement it.',
    unit: 's',
    width: 12,
    queries: [{ expr: buckets('node_programming_lag_seconds', 'bound="upper"'), legend: '' }],
    links: [metrics('Lag')],
  },
  {
    kind: 'lines',
    title: 'Programming lag',
    description:
      'Median and 99th percentile. Rules are read at intervals. Lower: to the last reading ' +
      'without the change. Upper: to the first reading with it.',
    unit: 's',
    isLog: true,
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
    description: 'From a change to the first reading of correct rules, by operation.',
    unit: 's',
    isLog: true,
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
    title: 'Pod changes to nodes, 99th percentile',
    description:
      'From the Ready transition or deletion of a pod to the first reading of rules with that ' +
      'change.',
    unit: 's',
    isLog: true,
    width: 12,
    queries: [
      { expr: quantile(0.99, 'readiness_lag_seconds', [], onNodes), legend: 'readiness' },
      { expr: quantile(0.99, 'removal_lag_seconds', [], onNodes), legend: 'removal' },
    ],
    links: [boardLink('lag', 'Lag')],
  },
];

const agents: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Nodes by state of their agent',
    description:
      'Stale: the agent has stopped answering. Refused: it rejects the auditor, or sends an ' +
      'invalid report. Absent: the node has no agent. The rules of these nodes are unknown.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('node_agents'), 'state'), legend: '{{state}}' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Oldest report',
    description: 'Age of the oldest report of an answering agent.',
    unit: 's',
    width: 8,
    queries: [{ expr: max(of('node_report_oldest_seconds')), legend: 'oldest' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Divergent Service ports',
    description:
      'Addresses and ports of Services on all nodes whose rules have another hash than expected. ' +
      'Excludes those with several correct outcomes.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(of('node_service_ports_divergent')), legend: 'divergent' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'stack',
    title: 'Requests to agents per second',
    description:
      'Success: a report. Not ready: no report exists yet. Refused: the agent rejected the ' +
      'auditor, or sent an invalid report. No answer: no connection or a timeout.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('agent_requests_total'), 'result'), legend: '{{result}}' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Traffic from agents',
    description: 'Bytes that all agents together send to the auditor.',
    unit: 'binBps',
    width: 8,
    queries: [{ expr: rate(of('agent_bytes_total')), legend: 'answers' }],
    links: [metrics('Agents of nodes')],
  },
  {
    kind: 'lines',
    title: 'Failed rounds per second',
    description: 'Rounds that failed, so that the node is unknown, by agent.',
    unit: 'short',
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
      'The ten agents with the highest use. 100 % is one core. Listing is the time in which ' +
      'iptables-save and nft list the rules.',
    unit: 'percentunit',
    width: 8,
    queries: [
      {
        expr: `topk(10, ${rate(of('agent_cpu_seconds_total'), 'instance')})`,
        legend: '{{instance}}',
      },
      {
        expr: `topk(10, ${rate(of('agent_collecting_seconds_total'), 'instance')})`,
        legend: '{{instance}} listing',
      },
    ],
  },
  {
    kind: 'lines',
    title: 'Memory of the agents',
    description: 'Resident memory of the ten agents that use most.',
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
    title: 'Size of the rules',
    description: 'Size of the rules that agents read last, the ten largest.',
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
  description:
    'Whether the rules on nodes are correct, how fast they follow changes, and the agents.',
  rows: [
    { title: 'Now', panels: now },
    { title: 'Divergence', panels: divergence },
    { title: 'Lag', panels: lags },
    { title: 'Agents', panels: agents },
  ],
};
