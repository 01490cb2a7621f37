// --- histograms ---
/** Counts of values by upper bound; plain data. */
export interface Histogram {
  /** Ascending; values above the last are counted too. */
  readonly bounds: readonly number[];
  /** Values up to each bound and above the one before; one more than bounds. */
  readonly counts: number[];
  count: number;
  sum: number;
  /** The largest value; 0 where there is none. */
  largest: number;
  /** Of each bucket that has one; absent: none has. */
  exemplars?: (Exemplar | undefined)[];
}

export interface Exemplar {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  readonly value: number;
  /** When it was observed, Unix seconds. */
  readonly at: number;
}
