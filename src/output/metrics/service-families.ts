// The families of single Services, which have the labels namespace and service. They are part of
// the catalogue (families.ts) and follow its rules, but for one: a series that would say nothing is
// absent, since there are many. A Service has about ten.
//
// Which Services have them is for the command line to say (service-rows.ts). What may change by
// time alone is told as the moment since when it is so, so that a text stays right until something
// happens to the Service.

import type { Finding, Severity } from '../../audit/finding/catalogue.ts';
import { severities } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { verdicts } from '../../audit/finding/verdicts.ts';
import type { ConditionCounts } from '../../audit/measure/conditions.ts';
import { endpointConditions } from '../../audit/measure/conditions.ts';
import type { StaleResources } from '../../audit/service/verdict.ts';
import { isStale, serviceOutputs } from '../../audit/service/verdict.ts';
import type { ServiceShare } from '../../audit/summary.ts';
import type { OutputResource } from '../../model/objects.ts';
import { outputResources } from '../../model/objects.ts';
import type { FamilyBase, Sample } from './sample.ts';

/** The numbers of one Service; a change makes another object. */
export interface ServiceNumbers {
  readonly namespace: string;
  readonly name: string;
  readonly share: ServiceShare;
  /** Of the slices that the controllers wrote. */
  readonly conditions: ConditionCounts;
  readonly slices: number;
  /** Slices of the endpointslice controller beyond the fewest that would do. */
  readonly surplus: number;
  readonly bytes: Readonly<Record<OutputResource, number>>;
  /** Times that something was judged. */
  readonly audits: number;
}

/** All that the series of a Service are made from. */
export interface ServiceSeriesState {
  readonly numbers: ServiceNumbers;
  readonly findings: readonly Finding[];
  readonly stale: StaleResources;
}

export interface ServiceFamily extends FamilyBase {
  readonly type: 'gauge' | 'counter';
  /** The most series of one Service. */
  readonly most: number;
  readonly samples: (state: ServiceSeriesState) => readonly Sample[];
}

const prefix = 'endpoint_auditor_service_';

const one = (value: number): Sample[] => [{ labels: {}, value }];

function verdictSamples({ numbers: { share }, stale }: ServiceSeriesState): Sample[] {
  return serviceOutputs.flatMap((output) => {
    const judged = share.verdicts[output];
    if (judged === null) return [];
    const verdict: Verdict = isStale(output, stale) ? 'unknown' : judged;
    return [{ labels: { output, verdict }, value: 1 }];
  });
}

function pendingSamples({ numbers: { share } }: ServiceSeriesState): Sample[] {
  return serviceOutputs.flatMap((output) => {
    const since = share.pendingSince[output];
    return since === undefined ? [] : [{ labels: { output }, value: since }];
  });
}

function findingSamples({ findings }: ServiceSeriesState): Sample[] {
  const counts: Partial<Record<Severity, number>> = {};
  for (const { severity } of findings) counts[severity] = (counts[severity] ?? 0) + 1;
  return severities.flatMap((severity) => {
    const value = counts[severity];
    return value === undefined ? [] : [{ labels: { severity }, value }];
  });
}

const judgedFamilies: readonly ServiceFamily[] = [
  {
    name: `${prefix}verdict`,
    type: 'gauge',
    help: 'Always 1; the verdict on an output of the Service. Other verdicts are absent.',
    labels: { output: serviceOutputs, verdict: verdicts },
    most: serviceOutputs.length,
    unit: 'none',
    stability: 'stable',
    source: 'audit/service/verdict.ts',
    samples: verdictSamples,
  },
  {
    name: `${prefix}findings`,
    type: 'gauge',
    help: 'Findings about the Service that stand, but for those on nodes; absent without any.',
    labels: { severity: severities },
    most: severities.length,
    unit: 'none',
    stability: 'stable',
    source: 'audit/pending/pending.ts',
    samples: findingSamples,
  },
  {
    name: `${prefix}pending_since_timestamp_seconds`,
    type: 'gauge',
    help:
      'Since when the oldest difference within the settle window stands, on the clock of the ' +
      'input; absent where there is none.',
    labels: { output: serviceOutputs },
    most: serviceOutputs.length,
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/summary.ts',
    samples: pendingSamples,
  },
  {
    name: `${prefix}audits_total`,
    type: 'counter',
    help: 'Times that something of the Service was judged, since it was first seen.',
    labels: {},
    most: 1,
    unit: 'none',
    stability: 'experimental',
    source: 'audit/service/auditor.ts',
    samples: ({ numbers }) => one(numbers.audits),
  },
];

const measuredFamilies: readonly ServiceFamily[] = [
  {
    name: `${prefix}endpoints`,
    type: 'gauge',
    help: 'Endpoints by condition in the slices that the controllers wrote.',
    labels: { condition: endpointConditions },
    most: endpointConditions.length,
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/conditions.ts',
    samples: ({ numbers }) =>
      endpointConditions.map((condition) => ({
        labels: { condition },
        value: numbers.conditions[condition],
      })),
  },
  {
    name: `${prefix}endpointslices`,
    type: 'gauge',
    help: 'Slices that the controllers wrote.',
    labels: {},
    most: 1,
    unit: 'none',
    stability: 'stable',
    source: 'audit/service/cache.ts',
    samples: ({ numbers }) => one(numbers.slices),
  },
  {
    name: `${prefix}endpointslices_surplus`,
    type: 'gauge',
    help: 'Slices of the endpointslice controller beyond the fewest that would do.',
    labels: {},
    most: 1,
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/fill.ts',
    samples: ({ numbers }) => one(numbers.surplus),
  },
  {
    name: `${prefix}object_bytes`,
    type: 'gauge',
    help: 'Bytes of the Endpoints, and of the slices that the controllers wrote together.',
    labels: { resource: outputResources },
    most: outputResources.length,
    unit: 'bytes',
    stability: 'stable',
    source: 'cluster/decode/json-objects.ts',
    samples: ({ numbers }) =>
      outputResources.map((resource) => ({
        labels: { resource },
        value: numbers.bytes[resource],
      })),
  },
];

/** Families of single Services, in the order of the documentation. */
export const serviceFamilies: readonly ServiceFamily[] = [...judgedFamilies, ...measuredFamilies];
