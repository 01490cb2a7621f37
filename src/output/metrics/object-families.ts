// The families about the objects that the controllers write: how slices are packed, what they list,
// how large objects are and what their changes cost. They are part of the catalogue (families.ts)
// and follow its rules.

import { endpointConditions } from '../../audit/measure/conditions.ts';
import { fillRatio, surplusOf } from '../../audit/measure/fill.ts';
import type { ResourceSizes } from '../../audit/measure/size.ts';
import { largestBytes, objectCount, sizeBounds } from '../../audit/measure/size.ts';
import { outputResources } from '../../model/objects.ts';
import type { MetricFamily, MetricsState } from './family.ts';
import { hintModes, hintReasons } from './family.ts';
import type { Sample } from './sample.ts';

const prefix = 'endpoint_auditor_';

const one = (value: number): Sample[] => [{ labels: {}, value }];

const perResource =
  (value: (sizes: ResourceSizes) => number) =>
  ({ sizes }: MetricsState): Sample[] =>
    outputResources.map((resource) => ({ labels: { resource }, value: value(sizes[resource]) }));

/** Families about slices and what they list, in the order of the documentation. */
export const packingFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}endpointslices`,
    type: 'gauge',
    help: 'Slices of the endpointslice controller.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/fill.ts',
    samples: ({ fill }) => one(fill.slices),
  },
  {
    name: `${prefix}endpointslices_minimum`,
    type: 'gauge',
    help: 'The fewest slices that could list the same endpoints.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/fill.ts',
    samples: ({ fill }) => one(fill.minimum),
  },
  {
    name: `${prefix}endpointslices_surplus`,
    type: 'gauge',
    help: 'Slices beyond the fewest that would do.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/fill.ts',
    samples: ({ fill }) => one(surplusOf(fill)),
  },
  {
    name: `${prefix}slice_endpoints`,
    type: 'gauge',
    help: 'Endpoints that the slices of the endpointslice controller list.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/fill.ts',
    samples: ({ fill }) => one(fill.endpoints),
  },
  {
    name: `${prefix}fill_ratio`,
    type: 'gauge',
    help: 'Endpoints over the places that the slices have; absent where there are no slices.',
    labels: {},
    unit: 'ratio',
    stability: 'stable',
    source: 'audit/measure/fill.ts',
    samples: ({ fill }) => {
      const ratio = fillRatio(fill, fill.max);
      return ratio === null ? [] : one(ratio);
    },
  },
  {
    name: `${prefix}duplicate_endpoints`,
    type: 'gauge',
    help: 'Endpoints listed more than once in the slices of one Service, by whether entries agree.',
    labels: { kind: ['equal', 'conflicting'] },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/duplicates.ts',
    samples: ({ duplicates }) => [
      { labels: { kind: 'equal' }, value: duplicates.equal },
      { labels: { kind: 'conflicting' }, value: duplicates.conflicting },
    ],
  },
  {
    name: `${prefix}endpoints`,
    type: 'gauge',
    help: 'Endpoints by condition in the slices that the controllers wrote, mirrored ones too.',
    labels: { condition: endpointConditions },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/conditions.ts',
    samples: ({ conditions: counts }) =>
      endpointConditions.map((condition) => ({ labels: { condition }, value: counts[condition] })),
  },
  {
    name: `${prefix}services_hinted`,
    type: 'gauge',
    help:
      'Services whose ready endpoints carry topology hints, all of them or some, by what asks ' +
      'for hints: the annotation topology-mode (auto) or trafficDistribution (zone, node).',
    labels: { mode: hintModes, endpoints: ['all', 'some'] },
    unit: 'none',
    stability: 'stable',
    source: 'auditor/totals.ts',
    samples: ({ hints }) =>
      hintModes.flatMap((mode) => [
        { labels: { mode, endpoints: 'all' }, value: hints[mode].all },
        { labels: { mode, endpoints: 'some' }, value: hints[mode].some },
      ]),
  },
  {
    name: `${prefix}services_unhinted`,
    type: 'gauge',
    help:
      'Services that ask for topology hints and have none, by the reason that their input gives ' +
      'now; none: it gives no reason.',
    labels: { mode: hintModes, reason: hintReasons },
    unit: 'none',
    stability: 'stable',
    source: 'shadow/hints.ts',
    samples: ({ hints }) =>
      hintModes.flatMap((mode) =>
        hintReasons.map((reason) => ({
          labels: { mode, reason },
          value: hints[mode].absent[reason] ?? 0,
        })),
      ),
  },
];

/** Families about single objects and their traffic, in the order of the documentation. */
export const sizeFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}objects`,
    type: 'gauge',
    help: 'Endpoints and EndpointSlice objects that exist, whoever writes them.',
    labels: { resource: outputResources },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/size.ts',
    samples: perResource(objectCount),
  },
  {
    name: `${prefix}object_bytes_max`,
    type: 'gauge',
    help: 'Bytes of the largest object, as protobuf; the API server refuses more than 1572864.',
    labels: { resource: outputResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'audit/measure/size.ts',
    samples: perResource(largestBytes),
  },
  {
    name: `${prefix}object_bytes`,
    type: 'histogram',
    help:
      'Bytes of every version of an object that arrived, as protobuf, the first list included; ' +
      'the API server refuses more than 1572864.',
    labels: { resource: outputResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'audit/measure/size.ts',
    bounds: sizeBounds,
    histograms: ({ sizes }) =>
      outputResources.map((resource) => ({
        labels: { resource },
        histogram: sizes[resource].versions,
      })),
  },
  {
    name: `${prefix}truncated_objects`,
    type: 'gauge',
    help: 'Endpoints that say that they were cut down to 1000 addresses.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/capacity.ts',
    samples: ({ capacity }) => one(capacity.truncated),
  },
  {
    name: `${prefix}over_capacity_objects`,
    type: 'gauge',
    help:
      'Endpoints with more than 1000 addresses, and slices of the controllers with more ' +
      'endpoints than --max-endpoints-per-slice.',
    labels: { resource: outputResources },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/capacity.ts',
    samples: ({ capacity }) =>
      outputResources.map((resource) => ({
        labels: { resource },
        value: capacity.over[resource],
      })),
  },
  {
    name: `${prefix}updates_total`,
    type: 'counter',
    help: 'Changes of objects, deletions included.',
    labels: { resource: outputResources },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/size.ts',
    samples: perResource(({ updates }) => updates),
  },
  {
    name: `${prefix}update_bytes_total`,
    type: 'counter',
    help: 'Bytes of the objects that changed, as protobuf: what one watcher is sent.',
    labels: { resource: outputResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'audit/measure/size.ts',
    samples: perResource(({ updateBytes }) => updateBytes),
  },
  {
    name: `${prefix}update_fanout_bytes_total`,
    type: 'counter',
    help:
      'The same times the Nodes, without what kube-proxy leaves out; for Endpoints, what it ' +
      'would be if Nodes still watched them.',
    labels: { resource: outputResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'audit/measure/size.ts',
    samples: perResource(({ fanoutBytes }) => fanoutBytes),
  },
];
