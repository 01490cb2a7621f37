// A queue in the order of times, for the ends of settle windows. An entry may become obsolete while
// it is in the queue.

interface Timed {
  readonly at: number;
}

/** The queue has at most this many obsolete entries beside as many as are current. */
export const mostObsolete = 1024;

/** `isCurrent` is false for an obsolete entry, which is removed later. */
export function createTimedQueue<T extends Timed>(isCurrent: (entry: T) => boolean) {
  let queue: T[] = [];
  /** Where the first is: to remove the first of many, all others would have to be moved. */
  let head = 0;
  const replace = (entries: T[]): void => {
    queue = entries;
    head = 0;
  };
  const removeUntil = (place: number): void => {
    head = place;
    if (head * 2 >= queue.length) replace(queue.slice(head));
  };
  const current = (): T[] => queue.slice(head).filter(isCurrent);
  /** The first place of an entry after a moment. */
  const placeAfter = (moment: number): number => {
    let [from, to] = [head, queue.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((queue[middle]?.at ?? Infinity) > moment) to = middle;
      else from = middle + 1;
    }
    return from;
  };
  return {
    first: (): T | undefined => queue[head],
    size: (): number => queue.length - head,
    /** Inserts an entry, and removes the obsolete ones if there are more than `most`. */
    insert(entry: T, most: number): void {
      queue.splice(placeAfter(entry.at), 0, entry);
      if (queue.length > most) replace(current());
    },
    /** Removes and returns those whose times are at most `now`, at most `most`. */
    take(now: number, most: number): T[] {
      const taken = queue.slice(head, Math.min(placeAfter(now), head + most));
      removeUntil(head + taken.length);
      return taken;
    },
    /** Removes obsolete entries before the first current one. */
    trim(): void {
      let place = head;
      for (let it = queue[place]; it !== undefined && !isCurrent(it); it = queue[place]) place++;
      removeUntil(place);
    },
    current,
    replace: (entries: readonly T[]): void => replace(entries.toSorted((a, b) => a.at - b.at)),
  };
}
