// How much garbage V8 lets gather before it collects the whole heap: a share of what is held, by
// the flag --heap-growing-percent that the program is started with (main.ts).
//
// While a first list is taken in the heap doubles again and again, and a share that keeps memory
// small in the end has all that came marked over and over on the way. So the share is larger until
// the heap is no longer small or the list is done: the garbage is then still less than what is
// allowed later of a large heap. V8 asks for the flag at the end of each collection.
//
// Nor may V8 learn from a first list, nearly all of which is kept, that what is decoded lives long:
// it would put the same objects of every later change among the old ones at once (pretenuring),
// where only a collection of the whole heap finds that they were looked at and dropped.

import v8 from 'node:v8';

/** Percent of what is held, while the heap is small and grows, and from then on. */
export const growth = { first: 100, then: 40 } as const;

/** Bytes from which a heap is no longer small. */
export const smallBytes = 70_000_000;

const intervalMs = 50;

interface Heap {
  /** Bytes in use. */
  size(): number;
  setGrowth(percent: number): void;
}

const ownHeap: Heap = {
  size: () => v8.getHeapStatistics().used_heap_size,
  setGrowth(percent) {
    v8.setFlagsFromString(`--heap-growing-percent=${percent}`);
  },
};

/** From now on V8 takes everything that is made for young. */
export function keepNewObjectsYoung(): void {
  v8.setFlagsFromString('--no-allocation-site-pretenuring');
}

/** Lets the heap grow faster until it is no longer small or `isDone` says so. */
export function growHeapFaster(isDone: () => boolean, heap: Heap = ownHeap): void {
  heap.setGrowth(growth.first);
  const timer = setInterval(() => {
    if (heap.size() < smallBytes && !isDone()) return;
    heap.setGrowth(growth.then);
    clearInterval(timer);
  }, intervalMs);
  timer.unref();
}
