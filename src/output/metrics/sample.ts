// The types of a metric family and its samples.

/** One series with its value. */
export interface Sample {
  readonly labels: SampleLabels;
  readonly value: number;
}

export interface FamilyBase {
  readonly name: string;
  readonly help: string;
  /** The labels with their values; no values: one, which only the state knows. */
  readonly labels: Readonly<Record<string, readonly string[]>>;
  readonly unit: 'seconds' | 'bytes' | 'ratio' | 'none';
  readonly stability: 'stable' | 'experimental';
  /** The file that makes the number. */
  readonly source: string;
}

export type SampleLabels = Readonly<Record<string, string>>;
