// Contains histograms with fixed buckets, as Prometheus has them, and their exemplars.

import { addCounts } from '../../model/collections.ts';

/** The latest traced value of a bucket; `at` in Unix seconds. */
export interface Exemplar {
  readonly traceId: string;
  readonly value: number;
  readonly at: number;
}

export interface Histogram {
  /** Upper bounds of the buckets, ascending; a last bucket without bound follows. */
  readonly bounds: readonly number[];
  /** Values of each bucket alone; one more than bounds. */
  readonly counts: number[];
  count: number;
  sum: number;
  /** 0 without values. */
  largest: number;
  exemplars?: (Exemplar | undefined)[];
}

export function createHistogram(bounds: readonly number[]): Histogram {
  const counts = new Array<number>(bounds.length + 1).fill(0);
  return { bounds, counts, count: 0, sum: 0, largest: 0 };
}

function bucketOf(bounds: readonly number[], value: number): number {
  const index = bounds.findIndex((bound) => value <= bound);
  return index === -1 ? bounds.length : index;
}

export function observe(histogram: Histogram, value: number): void {
  const { bounds, counts, largest } = histogram;
  const index = bucketOf(bounds, value);
  counts[index] = (counts[index] ?? 0) + 1;
  histogram.count++;
  histogram.sum += value;
  histogram.largest = Math.max(largest, value);
}

export function exemplify(histogram: Histogram, exemplar: Exemplar): void {
  const index = bucketOf(histogram.bounds, exemplar.value);
  if ((histogram.counts[index] ?? 0) === 0) return;
  (histogram.exemplars ??= [])[index] = exemplar;
}

/** The sum of histograms with equal bounds; there must be at least one. */
export function merged(histograms: readonly Histogram[]): Histogram {
  const total = createHistogram(histograms[0]?.bounds ?? []);
  for (const { counts, count, sum, largest } of histograms) {
    addCounts<object>(total, { counts, count, sum }, 1);
    total.largest = Math.max(total.largest, largest);
  }
  return total;
}

/** A quantile (0 to 1) as histogram_quantile of Prometheus estimates it; null without values. */
export function quantile(histogram: Histogram, q: number): number | null {
  const { bounds, counts, count, largest } = histogram;
  if (count === 0) return null;
  const rank = q * count;
  let below = 0;
  for (const [index, upper] of bounds.entries()) {
    const here = counts[index] ?? 0;
    if (here > 0 && below + here >= rank) {
      const lower = bounds[index - 1] ?? 0;
      return Math.min(largest, lower + ((upper - lower) * (rank - below)) / here);
    }
    below += here;
  }
  return largest;
}
