// Measures CPU time instead of the clock, because other work may share the machine. Everything runs
// several times. The output has the minimum (the cost of the code) and the median (the cost here).
//
// It is the CPU of the whole process, so the helper threads of garbage collector and compiler
// count too. (On Linux it is exact to a microsecond; that of a single thread would be exact to a
// tick.)

/** CPU used so far, microseconds. */
export function cpuMicros(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/** What asking for the time costs by itself: to be taken off each short span. */
export function askingMicros(): number {
  const asks = 10_000;
  const runs = Array.from({ length: 5 }, () => {
    const begun = cpuMicros();
    for (let ask = 1; ask < asks; ask++) cpuMicros();
    return (cpuMicros() - begun) / asks;
  });
  return Math.min(...runs);
}

/** Bytes of objects on the heap after all garbage is gone. */
export function heapBytes(): number {
  if (gc === undefined) throw new Error('Expected node --expose-gc');
  gc();
  gc();
  return process.memoryUsage().heapUsed;
}

/** Empties the young generation, so that garbage made before is not collected in what follows. */
export function sweep(): void {
  if (gc === undefined) throw new Error('Expected node --expose-gc');
  gc({ type: 'minor' });
}

/** One figure with the samples that it was taken from. */
export interface Figure {
  readonly min: number;
  readonly median: number;
  readonly runs: number;
}

export function figure(samples: readonly number[]): Figure {
  const sorted = [...samples].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low, high] = [sorted[(sorted.length - 1) >> 1] ?? 0, sorted[middle] ?? 0];
  return { min: round(sorted[0] ?? 0), median: round((low + high) / 2), runs: sorted.length };
}

/** What so great a share (0 to 1) of the samples are at most; NaN where there are none. */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? NaN;
}

/** Three significant digits: more is noise. */
export function round(value: number): number {
  return Number(value.toPrecision(3));
}

export type Samples = Readonly<Record<string, readonly number[]>>;

/** Joins what several runs measured under the same names. */
export function merge(runs: readonly Samples[]): Record<string, Figure> {
  const samples = new Map<string, number[]>();
  for (const run of runs) {
    for (const [name, values] of Object.entries(run)) {
      samples.set(name, [...(samples.get(name) ?? []), ...values]);
    }
  }
  return Object.fromEntries([...samples].map(([name, values]) => [name, figure(values)]));
}
