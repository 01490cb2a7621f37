// What a checkpoint of a recording has of lag and of the traffic of watches, and whether what was
// read back has its form. Journeys of pods are not in it.

import {
  type FormOf,
  hasForms,
  isFields,
  isListOf,
  isNumber,
  isOneOf,
  isText,
  orNull,
} from '../../model/collections.ts';
import { createHistogram } from './histogram.ts';
import { convergenceBounds, lagOperations, lagOutputs } from './lag.ts';
import { createMeasurements, type Measurements } from './measurements.ts';
import type { Interval } from './sample-history.ts';

type Tree = Readonly<Record<string, unknown>>;

/** What is the same in each process, or belongs to its objects or to its traces. */
const omitted: ReadonlySet<string> = new Set(['bounds', 'objects', 'exemplars']);

const entriesOf = (tree: object): [string, unknown][] =>
  Object.entries(tree).filter(([name]) => !omitted.has(name));

/** A copy of the counts in a tree of numbers, lists of numbers and other trees. */
const countsIn = (tree: object): Tree =>
  Object.fromEntries(
    entriesOf(tree).map(([name, value]) => {
      const isTree = isFields(value);
      return [name, isTree ? countsIn(value) : Array.isArray(value) ? [...(value as [])] : value];
    }),
  );

/** Whether a value has all counts of a tree. */
const hasCounts = (tree: object, saved: unknown): saved is Tree =>
  isFields(saved) &&
  entriesOf(tree).every(([name, value]) => {
    const other = saved[name];
    if (!Array.isArray(value)) return isFields(value) ? hasCounts(value, other) : isNumber(other);
    return isListOf(isNumber)(other) && (other as unknown[]).length === value.length;
  });

/** Sets all counts of a tree. */
function setCounts(tree: object, saved: Tree): void {
  for (const [name, value] of entriesOf(tree)) {
    if (isFields(value)) setCounts(value, saved[name] as Tree);
    else Object.assign(tree, { [name]: saved[name] });
  }
}

type Measured = Pick<Measurements, 'convergence' | 'trigger' | 'skew' | 'sizes'>;

export type SavedMeasures = ReturnType<typeof saveMeasures>;

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);

/** The counts of lag and of sizes, and the skew of clocks. */
export function saveMeasures({ convergence, trigger, sizes, skew }: Measured) {
  const { from, least, before } = skew;
  return {
    counts: countsIn({ convergence, trigger, sizes }),
    skew: { from, least: finite(least), before: finite(before) },
  };
}

const isTime = orNull(isNumber);

export const isSavedMeasures = hasForms({
  counts: (value): value is Tree => {
    const { convergence, trigger, sizes } = createMeasurements();
    return hasCounts({ convergence, trigger, sizes }, value);
  },
  skew: hasForms({ from: isTime, least: isTime, before: isTime }),
});

/** Sets what `saveMeasures` has. */
export function continueMeasures(measures: Measured, { counts, skew }: SavedMeasures): void {
  const { convergence, trigger, sizes } = measures;
  setCounts({ convergence, trigger, sizes }, counts);
  const { from, least, before } = skew;
  Object.assign(measures.skew, { from, least: least ?? Infinity, before: before ?? Infinity });
}

/** Ten seconds, by output. */
export type SavedInterval = FormOf<typeof isSavedInterval>;

export const saveInterval = (start: number, interval: Interval): SavedInterval => ({
  start,
  outputs: countsIn(interval) as SavedInterval['outputs'],
});

export const isSavedInterval = hasForms({
  start: isNumber,
  outputs: (value): value is Readonly<Record<string, Tree>> =>
    isFields(value) &&
    Object.entries(value).every(
      ([output, counts]) =>
        isOneOf(lagOutputs)(output) && hasCounts(createHistogram(convergenceBounds), counts),
    ),
});

export function continueInterval({ outputs }: SavedInterval): Interval {
  const interval = Object.entries(outputs).map(([output, counts]) => {
    const histogram = createHistogram(convergenceBounds);
    setCounts(histogram, counts);
    return [output, histogram];
  });
  return Object.fromEntries(interval) as Interval;
}

const lag = { output: isOneOf(lagOutputs), operation: isOneOf(lagOperations), seconds: isNumber };

/** The last changes of a Service, the latest first. */
export const isSavedChanges = isListOf(hasForms({ ...lag, service: isText, at: isNumber }));

/** A sample of convergence lag. */
export const isSavedSample = hasForms({
  ...lag,
  namespace: isText,
  service: isText,
  node: orNull(isText),
  at: isNumber,
});
