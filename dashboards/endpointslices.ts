// How slices are packed, how large objects are, what their changes cost, and topology hints.

import type { Board } from './board.ts';
import { metrics, runbook, serviceAtAuditor } from './board.ts';
import type { PanelSpec } from './panel.ts';
import { buckets, max, of, ofServices, quantile, rate, sum } from './query.ts';

const duplicates = [
  { expr: sum(of('duplicate_endpoints'), 'kind'), legend: '{{kind}}' },
  { expr: sum(of('findings', 'code="duplicate-conflicting"')), legend: 'between managers' },
];

const now: readonly PanelSpec[] = [
  {
    kind: 'stat',
    title: 'Slices',
    description:
      'Slices of the endpointslice controller, and the fewest that could list the same endpoints.',
    unit: 'short',
    width: 6,
    queries: [
      { expr: sum(of('endpointslices')), legend: 'are' },
      { expr: sum(of('endpointslices_minimum')), legend: 'would do' },
    ],
    links: [runbook('EndpointAuditorSliceFillRatioLow')],
  },
  {
    kind: 'stat',
    title: 'Fill ratio',
    description: 'Endpoints over the places that the slices have.',
    unit: 'percentunit',
    width: 4,
    queries: [{ expr: `min (${of('fill_ratio')})`, legend: 'filled' }],
    max: 1,
    links: [runbook('EndpointAuditorSliceFillRatioLow')],
  },
  {
    kind: 'stat',
    title: 'Endpoints listed more than once',
    description:
      'In the slices that the controllers wrote for one Service: equal entries are legal, ' +
      'conflicting ones contradict each other. Between managers: findings that somebody else ' +
      'contradicts them.',
    unit: 'short',
    width: 6,
    queries: duplicates,
    links: [runbook('EndpointAuditorConflictingDuplicates')],
  },
  {
    kind: 'stat',
    title: 'Largest object',
    description: 'Of the bytes that the API server takes in one request (1572864), those it has.',
    unit: 'percentunit',
    width: 4,
    queries: [{ expr: `${max(of('object_bytes_max'))} / 1572864`, legend: 'largest' }],
    max: 1,
    links: [runbook('EndpointAuditorObjectNearSizeLimit')],
  },
  {
    kind: 'stat',
    title: 'Cut or too full',
    description:
      'Endpoints that say that they were cut down to 1000 addresses, and objects that have more ' +
      'than they may.',
    unit: 'short',
    width: 4,
    queries: [
      { expr: sum(of('truncated_objects')), legend: 'cut' },
      { expr: sum(of('over_capacity_objects')), legend: 'too full' },
    ],
    links: [runbook('EndpointAuditorEndpointsTruncated')],
  },
];

const packing: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Slices',
    description:
      'Slices of the endpointslice controller, and the fewest that could list the same endpoints. ' +
      'Each slice more is a watch event and memory on every node.',
    unit: 'short',
    width: 8,
    queries: [
      { expr: sum(of('endpointslices')), legend: 'are' },
      { expr: sum(of('endpointslices_minimum')), legend: 'would do' },
      { expr: sum(of('endpointslices_surplus')), legend: 'surplus' },
    ],
    links: [runbook('EndpointAuditorSliceFillRatioLow')],
  },
  {
    kind: 'lines',
    title: 'Fill ratio',
    description:
      'Endpoints over the places that the slices have. Many small Services keep it low, which is ' +
      'no harm; surplus slices are.',
    unit: 'percentunit',
    width: 8,
    queries: [{ expr: `min by (cluster) (${of('fill_ratio')})`, legend: 'filled {{cluster}}' }],
    max: 1,
    links: [runbook('EndpointAuditorSliceFillRatioLow')],
  },
  {
    kind: 'lines',
    title: 'Endpoints listed more than once',
    description: 'The same over time: within the slices of the controllers, and between managers.',
    unit: 'short',
    width: 8,
    queries: duplicates,
    links: [runbook('EndpointAuditorConflictingDuplicates')],
  },
  {
    kind: 'stack',
    title: 'Endpoints by condition',
    description: 'In the slices that the controllers wrote, mirrored ones too.',
    unit: 'short',
    width: 12,
    queries: [{ expr: sum(of('endpoints'), 'condition'), legend: '{{condition}}' }],
    links: [metrics('Packing of slices')],
  },
  {
    kind: 'lines',
    title: 'Objects',
    description: 'Endpoints and EndpointSlice objects that exist, whoever writes them.',
    unit: 'short',
    width: 12,
    queries: [{ expr: sum(of('objects'), 'resource'), legend: '{{resource}}' }],
    links: [metrics('Sizes and watch traffic')],
  },
];

const traffic: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Largest objects',
    description: 'As protobuf. What has more than 1572864 bytes (1.5 MiB) stays as it is for good.',
    unit: 'bytes',
    width: 8,
    queries: [{ expr: max(of('object_bytes_max'), 'resource'), legend: '{{resource}}' }],
    links: [runbook('EndpointAuditorObjectNearSizeLimit')],
  },
  {
    kind: 'heatmap',
    title: 'Sizes of slices that were written',
    description: 'Versions of EndpointSlices that arrived, by their bytes as protobuf.',
    unit: 'bytes',
    width: 8,
    queries: [{ expr: buckets('object_bytes', 'resource="endpointslices"'), legend: '' }],
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Sizes of what was written',
    description: 'Median and 99th percentile of the bytes of versions that arrived.',
    unit: 'bytes',
    width: 8,
    queries: [0.5, 0.99].map((share) => ({
      expr: quantile(share, 'object_bytes', ['resource']),
      legend: `{{resource}} p${share * 100}`,
    })),
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Changes',
    description: 'Changes of objects, deletions included.',
    unit: 'cps',
    width: 8,
    queries: [{ expr: rate(of('updates_total'), 'resource'), legend: '{{resource}}' }],
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Bytes to one watcher',
    description: 'Bytes of the objects that changed, as protobuf: what one watcher of all is sent.',
    unit: 'binBps',
    width: 8,
    queries: [{ expr: rate(of('update_bytes_total'), 'resource'), legend: '{{resource}}' }],
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Bytes to all nodes',
    description:
      'The same times the Nodes, without what kube-proxy leaves out; for Endpoints, what it would ' +
      'be if nodes still watched them.',
    unit: 'binBps',
    width: 8,
    queries: [{ expr: rate(of('update_fanout_bytes_total'), 'resource'), legend: '{{resource}}' }],
    links: [runbook('EndpointAuditorSliceFanoutTooCostly')],
  },
];

const hints: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Services with topology hints',
    description:
      'Services whose ready endpoints carry hints, all of them or some, by what asks for hints: ' +
      'the annotation topology-mode (auto) or trafficDistribution (zone, node).',
    unit: 'short',
    width: 12,
    queries: [
      { expr: sum(of('services_hinted'), 'mode', 'endpoints'), legend: '{{mode}}: {{endpoints}}' },
    ],
    links: [runbook('EndpointAuditorHintsMissing')],
  },
  {
    kind: 'stack',
    title: 'Services that ask for hints and have none',
    description:
      'By the reason that their input gives now; none: it gives no reason. Their traffic crosses ' +
      'zones.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: `${sum(of('services_unhinted'), 'mode', 'reason')} > 0`,
        legend: '{{mode}}: {{reason}}',
      },
    ],
    links: [runbook('EndpointAuditorHintsMissing')],
  },
];

const services: readonly PanelSpec[] = [
  {
    kind: 'table',
    title: 'Largest Services',
    description:
      'Of the Services chosen, those whose slices have most bytes together. A click on a name ' +
      'shows the Service in full.',
    unit: 'bytes',
    width: 8,
    queries: [
      {
        expr: `topk(20, ${sum(
          ofServices('object_bytes', 'resource="endpointslices"'),
          'namespace',
          'service',
        )})`,
        legend: 'bytes',
      },
    ],
    columns: { service: [serviceAtAuditor] },
  },
  {
    kind: 'table',
    title: 'Services with surplus slices',
    description:
      'Of the Services chosen, those with most slices beyond the fewest that would do, and the ' +
      'slices that they have.',
    unit: 'short',
    width: 8,
    queries: [
      {
        expr: `topk(20, ${sum(ofServices('endpointslices_surplus'), 'namespace', 'service')} > 0)`,
        legend: 'surplus',
      },
      {
        expr:
          `${sum(ofServices('endpointslices'), 'namespace', 'service')} and on (namespace, service) ` +
          `${sum(ofServices('endpointslices_surplus'), 'namespace', 'service')} > 0`,
        legend: 'slices',
      },
    ],
    columns: { service: [serviceAtAuditor] },
  },
  {
    kind: 'stack',
    title: 'Endpoints of the Services chosen',
    description: 'By condition, in the slices that the controllers wrote.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(ofServices('endpoints'), 'condition'), legend: '{{condition}}' }],
    links: [metrics('Single Services')],
  },
];

export const endpointslices: Board = {
  name: 'endpointslices',
  title: 'EndpointSlices',
  description: 'How slices are filled, how large objects are, what their changes cost, and hints.',
  rows: [
    { title: 'Now', panels: now },
    { title: 'Packing', panels: packing },
    { title: 'Sizes and watch traffic', panels: traffic },
    { title: 'Topology hints', panels: hints },
    { title: 'Single Services', panels: services },
  ],
};
