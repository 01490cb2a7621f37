// The worst of what was measured, for people who ask what it was: at most so many, and none that
// is older than a day.

/** What can be among the worst. */
interface Measured {
  readonly seconds: number;
  /** When it ended, Unix seconds. */
  readonly at: number;
}

export interface TopSamples<T extends Measured> {
  note(one: T): void;
  /** Worst first. */
  list(now: number): readonly T[];
}

const day = 86_400;

/** `most`: how many are kept. */
export function createTopSamples<T extends Measured>(most: number): TopSamples<T> {
  let kept: T[] = [];
  /** No later than when the first of them will be too old. */
  let until = Infinity;
  return {
    note(one) {
      if (one.at >= until) {
        kept = kept.filter(({ at }) => one.at - at < day);
        until = kept.reduce((first, { at }) => Math.min(first, at), Infinity) + day;
      }
      const last = kept.at(-1);
      if (kept.length >= most && last !== undefined && one.seconds <= last.seconds) return;
      let place = kept.length;
      while (place > 0 && (kept[place - 1]?.seconds ?? Infinity) < one.seconds) place--;
      kept.splice(place, 0, one);
      if (kept.length > most) kept.pop();
      until = Math.min(until, one.at + day);
    },
    list: (now) => kept.filter(({ at }) => now - at < day),
  };
}
