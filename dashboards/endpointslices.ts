// How full EndpointSlices are, how large objects are, the traffic of their changes, and hints.

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
      'EndpointSlices of the endpointslice controller, and the minimum for the same endpoints.',
    unit: 'short',
    width: 6,
    queries: [
      { expr: sum(of('endpointslices')), legend: 'slices' },
      { expr: sum(of('endpointslices_minimum')), legend: 'minimum' },
    ],
    links: [runbook('EndpointsSlicesFragmented')],
  },
  {
    kind: 'stat',
    title: 'Fill ratio',
    description: 'Endpoints divided by the capacity of all EndpointSlices.',
    unit: 'percentunit',
    width: 4,
    queries: [{ expr: `min (${of('fill_ratio')})`, legend: 'fill ratio' }],
    max: 1,
    links: [runbook('EndpointsSlicesFragmented')],
  },
  {
    kind: 'stat',
    title: 'Endpoints listed more than once',
    description:
      'Endpoints that several EndpointSlices of one Service list. Equal entries are legal. ' +
      'Conflicting entries have different conditions. Between managers: findings about ' +
      'EndpointSlices of another manager.',
    unit: 'short',
    width: 6,
    queries: duplicates,
    links: [runbook('EndpointsDuplicatesConflict')],
  },
  {
    kind: 'stat',
    title: 'Largest object',
    description:
      'Size of the largest object as a share of the limit of the API server (1572864 bytes).',
    unit: 'percentunit',
    width: 4,
    queries: [{ expr: `${max(of('object_max_bytes'))} / 1572864`, legend: 'largest' }],
    max: 1,
    links: [runbook('EndpointsObjectNearSizeLimit')],
  },
  {
    kind: 'stat',
    title: 'Truncated or over capacity',
    description:
      'Endpoints that are truncated to 1000 addresses, and objects with more endpoints than ' +
      'their maximum.',
    unit: 'short',
    width: 4,
    queries: [
      { expr: sum(of('truncated_objects')), legend: 'truncated' },
      { expr: sum(of('over_capacity_objects')), legend: 'over capacity' },
    ],
    links: [runbook('EndpointsTruncated')],
  },
];

const packing: readonly PanelSpec[] = [
  {
    kind: 'lines',
    title: 'Slices',
    description:
      'EndpointSlices of the endpointslice controller, and the minimum for the same endpoints. ' +
      'Each EndpointSlice costs a watch event and memory on every node.',
    unit: 'short',
    width: 8,
    queries: [
      { expr: sum(of('endpointslices')), legend: 'slices' },
      { expr: sum(of('endpointslices_minimum')), legend: 'minimum' },
      { expr: sum(of('endpointslices_surplus')), legend: 'surplus' },
    ],
    links: [runbook('EndpointsSlicesFragmented')],
  },
  {
    kind: 'lines',
    title: 'Fill ratio',
    description:
      'Endpoints divided by the capacity of all EndpointSlices. Many small Services keep it low, ' +
      'which is normal.',
    unit: 'percentunit',
    width: 8,
    queries: [{ expr: `min by (cluster) (${of('fill_ratio')})`, legend: 'fill ratio {{cluster}}' }],
    max: 1,
    links: [runbook('EndpointsSlicesFragmented')],
  },
  {
    kind: 'lines',
    title: 'Endpoints listed more than once',
    description:
      'The same over time: within the EndpointSlices of the controllers, and between managers.',
    unit: 'short',
    width: 8,
    queries: duplicates,
    links: [runbook('EndpointsDuplicatesConflict')],
  },
  {
    kind: 'stack',
    title: 'Endpoints by condition',
    description:
      'Endpoints in the EndpointSlices that the controllers wrote, mirrored ones included.',
    unit: 'short',
    width: 12,
    queries: [{ expr: sum(of('endpoints'), 'condition'), legend: '{{condition}}' }],
    links: [metrics('Packing of slices')],
  },
  {
    kind: 'lines',
    title: 'Objects',
    description: 'Endpoints and EndpointSlice objects that exist, those of other writers included.',
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
    description: 'Size as protobuf. The API server refuses writes above 1572864 bytes (1.5 MiB).',
    unit: 'bytes',
    width: 8,
    queries: [{ expr: max(of('object_max_bytes'), 'resource'), legend: '{{resource}}' }],
    links: [runbook('EndpointsObjectNearSizeLimit')],
  },
  {
    kind: 'heatmap',
    title: 'Sizes of EndpointSlices that were written',
    description: 'Versions of EndpointSlices that arrived, by their bytes as protobuf.',
    unit: 'bytes',
    width: 8,
    queries: [{ expr: buckets('object_bytes', 'resource="endpointslices"'), legend: '' }],
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Sizes of written objects',
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
    title: 'Changes per second',
    description: 'Changes of objects, deletions included.',
    unit: 'short',
    width: 8,
    queries: [{ expr: rate(of('updates_total'), 'resource'), legend: '{{resource}}' }],
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Watch traffic to one client',
    description:
      'Size of the objects that changed, as protobuf: the traffic to one client that watches all.',
    unit: 'binBps',
    width: 8,
    queries: [{ expr: rate(of('update_bytes_total'), 'resource'), legend: '{{resource}}' }],
    links: [metrics('Sizes and watch traffic')],
  },
  {
    kind: 'lines',
    title: 'Watch traffic to all nodes',
    description:
      'Estimate: bytes changed multiplied by the number of nodes. Hypothetical for Endpoints, ' +
      'which nodes no longer watch.',
    unit: 'binBps',
    width: 8,
    queries: [{ expr: rate(of('update_fanout_bytes_total'), 'resource'), legend: '{{resource}}' }],
    links: [runbook('EndpointsWatchTrafficHigh')],
  },
];

const hints: readonly PanelSpec[] = [
  {
    kind: 'stack',
    title: 'Services with topology hints',
    description:
      'Services whose ready endpoints have hints, all of them or some, by what requests hints: ' +
      'the annotation topology-mode (auto) or trafficDistribution (zone, node).',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: sum(of('services_with_hints'), 'mode', 'coverage'),
        legend: '{{mode}}: {{coverage}}',
      },
    ],
    links: [runbook('EndpointsHintsMissing')],
  },
  {
    kind: 'stack',
    title: 'Services that request hints and have none',
    description: 'By reason. None: the input has no reason for it. Their traffic crosses zones.',
    unit: 'short',
    width: 12,
    queries: [
      {
        expr: `${sum(of('services_without_hints'), 'mode', 'reason')} > 0`,
        legend: '{{mode}}: {{reason}}',
      },
    ],
    links: [runbook('EndpointsHintsMissing')],
  },
];

const services: readonly PanelSpec[] = [
  {
    kind: 'table',
    title: 'Largest Services',
    description:
      'The 20 selected Services with the largest EndpointSlices. A click on a name opens the ' +
      'Service.',
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
      'The 20 selected Services with the most EndpointSlices above the minimum, and all their ' +
      'EndpointSlices.',
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
    title: 'Endpoints of the selected Services',
    description: 'By condition, in the EndpointSlices that the controllers wrote.',
    unit: 'short',
    width: 8,
    queries: [{ expr: sum(ofServices('endpoints'), 'condition'), legend: '{{condition}}' }],
    links: [metrics('Single Services')],
  },
];

export const endpointslices: Board = {
  name: 'endpointslices',
  title: 'EndpointSlices',
  description:
    'How full EndpointSlices are, how large objects are, the traffic of changes, and hints.',
  rows: [
    { title: 'Now', panels: now },
    { title: 'Packing', panels: packing },
    { title: 'Sizes and watch traffic', panels: traffic },
    { title: 'Topology hints', panels: hints },
    { title: 'Single Services', panels: services },
  ],
};
