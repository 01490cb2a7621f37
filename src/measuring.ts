// What is measured while input comes: sizes, updates and trigger samples change by change, fill and
// duplicates per touched Service when somebody asks. How each is measured, the room measure says;
// which slices count for a Service, the ledger's records do.

import type { Ledger } from './audit/ledger.ts';
import { slicesOf } from './audit/service.ts';
import { createDuplicateTotals, setDuplicates } from './measure/duplicates.ts';
import { createFillTotals, setFill } from './measure/fill.ts';
import {
  countTrigger,
  createConvergenceLag,
  createTriggerLag,
  triggerSample,
} from './measure/lag.ts';
import { countUpdate, createSizes, trackSize } from './measure/size.ts';
import type { Change, EndpointSlice, Endpoints, Key, Snapshot } from './model/objects.ts';
import { isOutput, label } from './model/objects.ts';
import type { OpenedFindings } from './output/family.ts';
import type { Accumulators } from './output/report.ts';

/**
 * What was measured since the input began; totals over slices are brought up to date by `refresh`.
 */
export interface Measured extends Accumulators {
  /** Findings opened so far. */
  readonly opened: OpenedFindings;
  refresh(): void;
}

export interface Measuring {
  readonly measured: Measured;
  take(change: Change, snapshot: Snapshot): void;
}

/** Measures what changes; totals over slices wait until somebody asks, since they are many. */
export function createMeasuring(
  max: number,
  opened: OpenedFindings,
  ledger: () => Ledger | null,
): Measuring {
  const fill = createFillTotals(max);
  const duplicates = createDuplicateTotals();
  const sizes = createSizes();
  const convergence = createConvergenceLag();
  const trigger = createTriggerLag();
  const touched = new Set<Key>();

  function take(change: Change, snapshot: Snapshot): void {
    const { resource, at } = change;
    if (!isOutput(resource)) return;
    trackSize(sizes, change);
    const before = change.before as Endpoints | EndpointSlice | null;
    const after = change.after as Endpoints | EndpointSlice | null;
    const keys = [after, before].filter((one) => one !== null).map(serviceOf);
    for (const key of keys) touched.add(key);
    // The first list is no change: its objects were written long before they arrived.
    if (ledger() === null) return;
    countUpdate(sizes, change, snapshot.nodes.size);
    const service = snapshot.services.get(keys[0] ?? '') ?? null;
    const sample = triggerSample(before, after, service, at);
    if (sample !== null) countTrigger(trigger, sample);
  }

  function refresh(): void {
    const now = ledger();
    if (now === null) return;
    for (const key of touched) {
      const record = now.audited.get(key)?.record;
      const slices = record === undefined ? [] : slicesOf(now.snapshot, record, 'controller');
      setFill(fill, key, slices);
      setDuplicates(duplicates, key, slices);
    }
    touched.clear();
  }

  const measured = { fill, duplicates, sizes, convergence, trigger, opened, refresh };
  return { measured, take };
}

/** The Service that an output belongs to, by its label or by its name. */
function serviceOf(object: Endpoints | EndpointSlice): Key {
  if ('subsets' in object) return object.key;
  return `${object.namespace}/${object.labels[label.serviceName] ?? ''}`;
}
