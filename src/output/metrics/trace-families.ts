// The families that say what became of traces (tracing.ts). Where none are sent, all are 0. They
// are part of the catalogue (families.ts).

import { spanLosses, traceChoices } from '../traces/sender.ts';
import type { MetricFamily } from './family.ts';

const prefix = 'endpoint_auditor_';

export const traceFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}journeys_traced_total`,
    type: 'counter',
    help:
      'Journeys that ended while traces are sent, by why they have one: slow ones always, the ' +
      'others by the ratio; none: they have none.',
    labels: { choice: traceChoices },
    unit: 'none',
    stability: 'experimental',
    source: 'output/traces/tracing.ts',
    samples: ({ tracing }) =>
      traceChoices.map((choice) => ({ labels: { choice }, value: tracing.journeys[choice] })),
  },
  {
    name: `${prefix}spans_exported_total`,
    type: 'counter',
    help: 'Spans that the backend of traces took.',
    labels: {},
    unit: 'none',
    stability: 'experimental',
    source: 'output/traces/otel.ts',
    samples: ({ tracing }) => [{ labels: {}, value: tracing.exported }],
  },
  {
    name: `${prefix}spans_dropped_total`,
    type: 'counter',
    help:
      'Spans that are lost: they found no room (queue), the backend refused them, was away or ' +
      'did not answer (export), or were not sent before the end (shutdown).',
    labels: { reason: spanLosses },
    unit: 'none',
    stability: 'experimental',
    source: 'output/traces/otel.ts',
    samples: ({ tracing }) =>
      spanLosses.map((reason) => ({ labels: { reason }, value: tracing.dropped[reason] })),
  },
];
