// The families about live input: how each watch stands, and what became of the reads by which
// differences are confirmed. They are part of the catalogue (families.ts) and follow its rules.
// Where the input is not live, all of them are 0.

import type { InputState } from '../../audit/pending/progress.ts';
import { resources } from '../../model/objects.ts';
import type { MetricFamily, WatchCounts } from './family.ts';
import type { Sample } from './sample.ts';

const prefix = 'endpoint_auditor_';

// Made from records, so that a state that is new in audit/cut.ts cannot be forgotten here.
const states = Object.keys({
  listing: true,
  synced: true,
  relisting: true,
  stale: true,
  off: true,
} satisfies Record<InputState, true>) as InputState[];

const results = ['confirmed', 'lagging', 'failed'] as const;

type Counts = (of: WatchCounts) => number;

/** A counter per resource and one more label, whose values are those of the counts. */
function counter(
  name: string,
  help: string,
  label: string,
  counts: Readonly<Record<string, Counts>>,
): MetricFamily {
  const values = Object.keys(counts);
  return {
    name: `${prefix}watch_${name}_total`,
    type: 'counter',
    help,
    labels: { resource: resources, [label]: values },
    unit: 'none',
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    samples: ({ watches }) =>
      resources.flatMap((resource): Sample[] => {
        const of = watches.counters.get(resource);
        return values.map((value) => ({
          labels: { resource, [label]: value },
          value: of === undefined ? 0 : (counts[value]?.(of) ?? 0),
        }));
      }),
  };
}

const counters: readonly MetricFamily[] = [
  counter('requests', 'Lists that were complete, and watches that were accepted.', 'verb', {
    list: ({ lists }) => lists,
    watch: ({ watches }) => watches,
  }),
  counter('frames', 'What watches and lists have sent, by what became of it.', 'result', {
    delivered: ({ events }) => events,
    repeated: ({ repeated }) => repeated,
    stale: ({ stale }) => stale,
    bookmark: ({ bookmarks }) => bookmarks,
    garbled: ({ badFrames }) => badFrames,
    unreadable: ({ unreadable }) => unreadable,
  }),
  counter('refusals', 'Requests that the API server refused.', 'reason', {
    throttled: ({ throttled }) => throttled,
    unauthorised: ({ unauthorised }) => unauthorised,
    denied: ({ denied }) => denied,
  }),
  counter('relists', 'New lists since history was lost.', 'reason', {
    gone: ({ relists }) => relists.gone,
    expired: ({ relists }) => relists.expired,
    reset: ({ relists }) => relists.reset,
    disorder: ({ relists }) => relists.disorder,
  }),
  counter('reconnects', 'Watches that ended and were opened again.', 'reason', {
    eof: ({ reconnects }) => reconnects.eof,
    timeout: ({ reconnects }) => reconnects.timeout,
    reset: ({ reconnects }) => reconnects.reset,
    idle: ({ reconnects }) => reconnects.idle,
    status: ({ reconnects }) => reconnects.status,
    frame: ({ reconnects }) => reconnects.frame,
    older: ({ reconnects }) => reconnects.older,
  }),
  {
    name: `${prefix}watch_bytes_total`,
    type: 'counter',
    help: 'Bytes that lists and watches have sent.',
    labels: { resource: resources },
    unit: 'bytes',
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    samples: ({ watches }) =>
      resources.map((resource) => ({
        labels: { resource },
        value: watches.counters.get(resource)?.bytes ?? 0,
      })),
  },
];

/** Families of live input, in the order of the documentation. */
export const watchFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}ready`,
    type: 'gauge',
    help: 'Whether all that is needed is known and was seen within a minute: 1, else 0.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'auditor/queries.ts',
    samples: ({ ready }) => [{ labels: {}, value: ready ? 1 : 0 }],
  },
  {
    name: `${prefix}watch_state`,
    type: 'gauge',
    help: 'The state of the watch of a resource: 1 for the one that it is in, else 0.',
    labels: { resource: resources, state: states },
    unit: 'none',
    stability: 'stable',
    source: 'audit/pending/progress.ts',
    samples: ({ watches }) =>
      resources.flatMap((resource) =>
        states.map((state) => ({
          labels: { resource, state },
          value: watches.inputs.get(resource)?.state === state ? 1 : 0,
        })),
      ),
  },
  {
    name: `${prefix}watch_unseen_seconds`,
    type: 'gauge',
    help: 'For how long the watch of a resource has not been synced; 0 while it is.',
    labels: { resource: resources },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/pending/progress.ts',
    samples: ({ watches, now }) =>
      resources.map((resource) => ({
        labels: { resource },
        value: Math.max(0, now - (watches.inputs.get(resource)?.blindSince ?? now)),
      })),
  },
  {
    name: `${prefix}confirm_reads_total`,
    type: 'counter',
    help:
      'Reads of a Service before a difference of it becomes a finding: it stands (confirmed), ' +
      'the watch is behind what was read (lagging), or the read failed.',
    labels: { result: results },
    unit: 'none',
    stability: 'stable',
    source: 'audit/pending/confirm.ts',
    samples: ({ watches }) =>
      results.map((result) => ({
        labels: { result },
        value: watches.confirmations[result],
      })),
  },
  ...counters,
];
