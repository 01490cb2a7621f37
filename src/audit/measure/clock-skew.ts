// How far the clock of the API server is from that of the auditor.
//
// The API server stamps each object that it creates with its own time, cut to whole seconds, and
// the object arrives a little later. So arrival less creation is the distance of the clocks, plus
// the way, plus less than a second: the least of many is the nearest. It is too high by the way and
// by what was cut, and never too low; a negative one proves that the auditor's clock is behind.
//
// It is shown and never subtracted: whoever reads a lag that spans two clocks can judge it by this,
// and nobody reads numbers that were mended by a guess.
//
// Left out: the clocks of nodes, by which kubelets tell when pods turn ready. Each has its own, and
// a pod's time that lies after its arrival is told as skewed (journey.ts).

/** The least distance of a while, and of the while before; Unix seconds and seconds. */
export interface ClockSkew {
  /** When the while began; null: nothing was created yet. */
  from: number | null;
  least: number;
  before: number;
}

/** Seconds after which a distance is forgotten, once or twice as many: clocks are set. */
const span = 900;

export const createClockSkew = (): ClockSkew => ({ from: null, least: Infinity, before: Infinity });

/**
 * Takes in an object that was created just now, as far as a watch tells: objects of a list were
 * created long before they arrive, and tell of no distance, but do no harm either.
 */
export function observeCreated(skew: ClockSkew, created: number, at: number): void {
  skew.from ??= at;
  if (at - skew.from >= span) {
    skew.before = at - skew.from >= 2 * span ? Infinity : skew.least;
    skew.least = Infinity;
    skew.from = at;
  }
  skew.least = Math.min(skew.least, at - created);
}

/** Seconds by which the auditor's clock is ahead, at most; null: nothing was created for long. */
export function skewSeconds({ from, least, before }: ClockSkew, now: number): number | null {
  if (from === null || now - from >= 2 * span) return null;
  const seconds = Math.min(least, now - from >= span ? Infinity : before);
  return seconds === Infinity ? null : seconds;
}
