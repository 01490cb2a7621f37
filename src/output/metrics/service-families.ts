// The metric families of single Services, with the labels namespace and service. Unlike in other
// families a series without news is absent, since there are many: a Service has about ten.
//
// service-rows.ts selects the Services. Time alone never changes a sample: families contain the
// moment since when something is so. So the text of a Service is valid until its next change.

import type { Finding } from '../../audit/finding/catalogue.ts';
import { severities } from '../../audit/finding/catalogue.ts';
import { verdicts } from '../../audit/finding/verdicts.ts';
import type { ConditionCounts } from '../../audit/measure/endpoint-counts.ts';
import { endpointConditions } from '../../audit/measure/endpoint-counts.ts';
import type { StaleResources } from '../../audit/service/verdict.ts';
import { isStale, serviceOutputs } from '../../audit/service/verdict.ts';
import type { ServiceShare } from '../../audit/summary.ts';
import type { OutputResource } from '../../model/objects.ts';
import { outputResources } from '../../model/objects.ts';
import { familiesOf } from './family.ts';

/** The numbers of one Service; a change makes another object. */
export interface ServiceNumbers {
  readonly namespace: string;
  readonly name: string;
  readonly share: ServiceShare;
  /** Of the slices that the controllers wrote. */
  readonly conditions: ConditionCounts;
  readonly slices: number;
  /** Slices of the endpointslice controller beyond the necessary ones. */
  readonly surplus: number;
  readonly bytes: Readonly<Record<OutputResource, number>>;
  /** The number of evaluations of the Service. */
  readonly audits: number;
}

/** The state that the series of one Service are collected from. */
export interface ServiceSeriesState {
  readonly numbers: ServiceNumbers;
  readonly findings: readonly Finding[];
  readonly stale: StaleResources;
}

const { gauge, counter } = familiesOf<ServiceSeriesState>('endpoint_auditor_service_');

/** The families, in the order of the documentation. */
export const serviceFamilies = [
  gauge({
    name: 'verdict',
    help: 'Always 1; the verdict on an output of the Service. Other verdicts are absent.',
    labels: { output: serviceOutputs, verdict: verdicts },
    source: 'audit/service/verdict.ts',
    value({ numbers: { share }, stale }, { output, verdict }) {
      const audited = share.verdicts[output];
      if (audited === null) return null;
      return verdict === (isStale(output, stale) ? 'unknown' : audited) ? 1 : null;
    },
  }),
  gauge({
    name: 'findings',
    help: 'Findings about the Service that stand, but for those on nodes; absent without any.',
    labels: { severity: severities },
    source: 'audit/pending/pending.ts',
    value: ({ findings }, labels) =>
      findings.filter(({ severity }) => severity === labels.severity).length || null,
  }),
  gauge({
    name: 'pending_since_timestamp_seconds',
    help:
      'Since when the oldest difference within the settle window stands, on the clock of the ' +
      'input; absent where there is none.',
    labels: { output: serviceOutputs },
    source: 'audit/summary.ts',
    value: ({ numbers }, { output }) => numbers.share.pendingSince[output] ?? null,
  }),
  counter({
    name: 'audits_total',
    help: 'Times that something of the Service was judged, since it was first seen.',
    stability: 'experimental',
    source: 'audit/service/auditor.ts',
    value: ({ numbers }) => numbers.audits,
  }),
  gauge({
    name: 'endpoints',
    help: 'Endpoints by condition in the slices that the controllers wrote.',
    labels: { condition: endpointConditions },
    source: 'audit/measure/endpoint-counts.ts',
    value: ({ numbers }, { condition }) => numbers.conditions[condition],
  }),
  gauge({
    name: 'endpointslices',
    help: 'Slices that the controllers wrote.',
    source: 'audit/service/cache.ts',
    value: ({ numbers }) => numbers.slices,
  }),
  gauge({
    name: 'endpointslices_surplus',
    help: 'Slices of the endpointslice controller beyond the fewest that would do.',
    source: 'audit/measure/fill.ts',
    value: ({ numbers }) => numbers.surplus,
  }),
  gauge({
    name: 'object_bytes',
    help: 'Bytes of the Endpoints, and of the slices that the controllers wrote together.',
    labels: { resource: outputResources },
    source: 'cluster/decode/json-objects.ts',
    value: ({ numbers }, { resource }) => numbers.bytes[resource],
  }),
];
