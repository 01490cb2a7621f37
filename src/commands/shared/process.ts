// The process of a command: its version of Node, its exit codes, its signals and its heap.
//
// While the first lists arrive, the heap doubles again and again, and each collection would mark
// all that arrived. So it may grow faster than main.ts says until it is no longer small or the
// lists are complete. V8 reads the flag at the end of each collection.

import v8 from 'node:v8';

/** `usage` is EX_USAGE of sysexits.h. */
export const exitCodes = { ok: 0, findings: 1, unknown: 2, usage: 64 } as const;

/** Bad usage that the parser of the command line does not find. */
export class UsageError extends Error {}

/** The first SIGINT or SIGTERM aborts it. Once aborted, a signal ends the process as usual. */
export function stopSignal(): AbortController {
  const stop = new AbortController();
  const signals = ['SIGINT', 'SIGTERM'] as const;
  const end = (): void => {
    stop.abort();
  };
  for (const signal of signals) process.on(signal, end);
  stop.signal.addEventListener('abort', () => {
    for (const signal of signals) process.off(signal, end);
  });
  return stop;
}

/**
 * Ends the process although a disk does not answer. Every other way to exit waits for the threads
 * that read and write files. The exit code is that of SIGKILL.
 */
export function endDespiteDisk(): void {
  process.kill(process.pid, 'SIGKILL');
}

/**
 * Growth between two collections in percent: while the heap is small, afterwards, and of a process
 * that ends soon.
 */
export const growth = { first: 100, then: 40, brief: 200 } as const;

const setGrowth = (percent: number): void =>
  v8.setFlagsFromString(`--heap-growing-percent=${percent}`);

/** A heap of at least this many bytes is not small. */
export const smallBytes = 70_000_000;

/** Else V8 learns from the first lists to allocate in the old generation (pretenuring). */
export function keepNewObjectsYoung(): void {
  v8.setFlagsFromString('--no-allocation-site-pretenuring');
}

const nodeMajor = Number.parseInt(process.versions.node);

/**
 * After the first lists, more functions become hot for hours, and their code makes the heap grow.
 * So V8 optimizes a function later: Node 24 does so after 400 and 3,000 calls. It makes no baseline
 * code, which is two thirds of all compiled code, except on Node 22, where only baseline code is
 * faster than the interpreter before that.
 */
export const codeFlags: readonly string[] = [
  ...(nodeMajor < 24 ? [] : ['--no-sparkplug']),
  '--invocation-count-for-maglev=8000',
  '--invocation-count-for-turbofan=20000',
];

/** The compilers that optimize functions. */
const optimizers = nodeMajor < 24 ? ['turbofan'] : ['maglev', 'turbofan'];

/**
 * `after`: milliseconds after the first lists in which V8 optimizes freely. `each`: milliseconds
 * between two looks at the load. `busy`: the utilization above which the process is busy.
 */
const optimizing = { after: 600_000, each: 10_000, busy: 0.5 };

/** Keeps compiled code small as soon as `isDone` returns true: the first lists need fast code. */
export function keepCodeSmall(isDone: () => boolean): void {
  actOnce(isDone, () => {
    for (const flag of codeFlags) v8.setFlagsFromString(flag);
    setTimeout(optimizeWhileBusy, optimizing.after).unref();
  });
}

/** Lets V8 optimize more functions only while the process is busy. Optimized ones stay so. */
function optimizeWhileBusy(): void {
  let before = performance.eventLoopUtilization();
  let isOptimizing = true;
  const look = (): void => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    const isBusy = utilization > optimizing.busy;
    if (isBusy === isOptimizing) return;
    isOptimizing = isBusy;
    for (const name of optimizers) v8.setFlagsFromString(`--${isBusy ? '' : 'no-'}${name}`);
  };
  setInterval(look, optimizing.each).unref();
}

/** Saves a command that opens a moment a quarter of its time, for a fifth more memory. */
export const growHeapFreely = (): void => setGrowth(growth.brief);

/** Lets the heap grow faster until it is no longer small or `isDone` returns true. */
export function growHeapFaster(isDone: () => boolean): void {
  setGrowth(growth.first);
  const isLarge = (): boolean => v8.getHeapStatistics().used_heap_size >= smallBytes;
  actOnce(
    () => isLarge() || isDone(),
    () => setGrowth(growth.then),
  );
}

/** Acts when a condition is true, and looks every 50 ms. */
function actOnce(isTrue: () => boolean, act: () => void): void {
  const timer = setInterval(() => {
    if (!isTrue()) return;
    act();
    clearInterval(timer);
  }, 50);
  timer.unref();
}

/** Why this version of Node cannot load all modules; `null` if it can. */
export function nodeProblem(found: string): string | null {
  const [major = 0, minor = 0] = found.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 19)) return null;
  const here = 'node_modules/.bin/node dist/endpoint-auditor.mjs';
  return `Needs Node 22.19 or later, and this is ${found}. In a clone with npm ci, use: ${here}`;
}
