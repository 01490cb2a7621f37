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

const { gauge } = familiesOf<ServiceSeriesState>('endpoint_auditor_service_');
const experimental = familiesOf<ServiceSeriesState>('endpoint_auditor_service_', 'experimental');

/** The families, in the order of the documentation. */
export const serviceFamilies = [
  gauge(
    'verdict',
    'Always 1; the verdict on an output of the Service. Other verdicts are absent.',
    ({ numbers: { share }, stale }, { output, verdict }) => {
      const audited = share.verdicts[output];
      if (audited === null) return null;
      return verdict === (isStale(output, stale) ? 'unknown' : audited) ? 1 : null;
    },
    { output: serviceOutputs, verdict: verdicts },
  ),
  gauge(
    'findings',
    'Findings about the Service that stand, but for those on nodes; absent without any.',
    ({ findings }, labels) =>
      findings.filter(({ severity }) => severity === labels.severity).length || null,
    { severity: severities },
  ),
  gauge(
    'pending_since_timestamp_seconds',
    'Since when the oldest difference within the settle window stands, on the clock of the ' +
      'input; absent where there is none.',
    ({ numbers }, { output }) => numbers.share.pendingSince[output] ?? null,
    { output: serviceOutputs },
  ),
  experimental.counter(
    'audits_total',
    'Times that something of the Service was judged, since it was first seen.',
    ({ numbers }) => numbers.audits,
  ),
  gauge(
    'endpoints',
    'Endpoints by condition in the slices that the controllers wrote.',
    ({ numbers }, { condition }) => numbers.conditions[condition],
    { condition: endpointConditions },
  ),
  gauge('endpointslices', 'Slices that the controllers wrote.', ({ numbers }) => numbers.slices),
  gauge(
    'endpointslices_surplus',
    'Slices of the endpointslice controller beyond the fewest that would do.',
    ({ numbers }) => numbers.surplus,
  ),
  gauge(
    'object_bytes',
    'Bytes of the Endpoints, and of the slices that the controllers wrote together.',
    ({ numbers }, { resource }) => numbers.bytes[resource],
    { resource: outputResources },
  ),
];
