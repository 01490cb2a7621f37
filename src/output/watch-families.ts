// The families about live input: how each watch stands, and what became of the reads by which
// differences are confirmed. They are part of the catalogue (families.ts) and follow its rules.
// Where the input is not live, all of them are 0.

import type { InputState } from '../audit/cut.ts';
import { resources } from '../model/objects.ts';
import type { Family } from './family.ts';

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

/** Families of live input, in the order of the documentation. */
export const watchFamilies: readonly Family[] = [
  {
    name: `${prefix}ready`,
    type: 'gauge',
    help: 'Whether all that is needed is known and was seen within a minute: 1, else 0.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'status.ts',
    samples: ({ ready }) => [{ labels: {}, value: ready ? 1 : 0 }],
  },
  {
    name: `${prefix}watch_state`,
    type: 'gauge',
    help: 'The state of the watch of a resource: 1 for the one that it is in, else 0.',
    labels: { resource: resources, state: states },
    unit: 'none',
    stability: 'stable',
    source: 'audit/cut.ts',
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
    source: 'audit/cut.ts',
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
    source: 'audit/confirm.ts',
    samples: ({ watches }) =>
      results.map((result) => ({
        labels: { result },
        value: watches.confirmations[result],
      })),
  },
];
