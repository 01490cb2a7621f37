// The loop for a live cluster:
//
//   reflectors ──deliver──► queue ──slices of 10 ms──► auditor ──► findings
//                  ▲                                      │ ▲
//                  └── resolved when taken in             │ └── timer: the next window ends
//                                                         ▼
//                                  reader ◄── differences that wait to be confirmed
//
// Nothing may hold the event loop for long, since probes, scrapes and the watches themselves wait
// for it. So what is delivered is taken in for 10 ms at a time, also within one entry that makes
// much work, as the first audit does; and whoever delivers waits until it is taken in, so that what
// has not been read stays with the API server. Time is that of the entries while any are queued,
// and runs on only when none are: nothing opens for what has come but has not been looked at.
//
// The clock is Unix time when the program started and the monotonic clock from there on. It does
// not follow the wall clock when that is set: no difference would have stood for longer by it.

import type { FreshRead } from '../audit/pending/confirm.ts';
import type { Key } from '../model/objects.ts';
import type { Auditor, Entry } from './auditor.ts';
import { openedAtOnce } from './auditor.ts';

/** Time as the loop has it. */
export interface MonotonicClock {
  /** Unix seconds that never run backwards. */
  now(): number;
  /** Calls back once after so many seconds; returns what cancels it. */
  after(seconds: number, call: () => void): () => void;
  /** Calls back once everything else that waits for the loop has had its turn. */
  soon(call: () => void): void;
}

export interface EventLoopOptions {
  readonly auditor: Auditor;
  readonly clock: MonotonicClock;
  /** Reads the objects of some Services of a namespace, by name; rejects when that fails. */
  readonly reread: (
    namespace: string,
    names: readonly string[],
  ) => Promise<ReadonlyMap<string, FreshRead>>;
  /** An error of ours: the loop cannot go on. */
  readonly onError: (error: unknown) => void;
  /** Called whenever the queue has been taken in. */
  readonly onQuiet?: () => void;
}

export interface EventLoop {
  /** Takes in entries; resolves when all are taken in, or at once when it has stopped. */
  deliver(entries: readonly Entry[]): Promise<void>;
  /** Why nothing is taken in any more, for people; null: it is. */
  stuck(): string | null;
  stop(): void;
}

/** Unix seconds by the monotonic clock. */
export function createClock(): MonotonicClock {
  const offset = Date.now() - performance.now();
  return {
    now: () => (performance.now() + offset) / 1000,
    after(seconds, call) {
      const timer = setTimeout(call, seconds * 1000);
      return () => {
        clearTimeout(timer);
      };
    },
    soon: (call) => void setImmediate(call),
  };
}

const sliceMs = 10;
/**
 * Those that wait to be confirmed are asked for again at most that often; where they are more than
 * are looked at in one go, the next go comes sooner.
 */
const retrySeconds = { all: 0.1, more: 0.02 };
/**
 * Reads at one time, and seconds from one to the next: of a Service; for each pod of a namespace
 * that was read as a whole; and after one that failed.
 */
const mostReads = 4;
const pause = { service: 0.025, pod: 0.0002, failure: 1 };
/** A slice takes 10 ms; when none has ended for so many seconds, something is wrong. */
const stuckSeconds = 60;

interface Batch {
  readonly entries: readonly Entry[];
  readonly done: () => void;
}

interface State {
  readonly options: EventLoopOptions;
  readonly queue: Batch[];
  working: boolean;
  stopped: boolean;
  /** Cancels the timer. */
  cancel: () => void;
  /** When the latest slice ended, and when those that wait are asked for again. */
  aliveAt: number;
  retryAt: number;
  reading: number;
  /** When the next read may begin. */
  readAt: number;
}

export function createEventLoop(options: EventLoopOptions): EventLoop {
  const state: State = {
    options,
    queue: [],
    working: false,
    stopped: false,
    cancel: () => undefined,
    aliveAt: options.clock.now(),
    retryAt: -Infinity,
    reading: 0,
    readAt: -Infinity,
  };
  return {
    deliver(entries) {
      if (state.stopped) return Promise.resolve();
      return new Promise((resolve) => {
        state.queue.push({ entries, done: resolve });
        start(state);
      });
    },
    stuck() {
      const seconds = options.clock.now() - state.aliveAt;
      if (!state.working || seconds < stuckSeconds) return null;
      return `Nothing has been taken in for ${Math.round(seconds)} s`;
    },
    stop() {
      state.stopped = true;
      state.cancel();
      for (const { done } of state.queue.splice(0)) done();
    },
  };
}

function start(state: State): void {
  if (state.working) return;
  state.working = true;
  state.aliveAt = state.options.clock.now();
  // Not at once, since whoever delivers has work of its own to end first.
  state.options.clock.soon(() => {
    work(state).catch(state.options.onError);
  });
}

async function work(state: State): Promise<void> {
  const { queue, options } = state;
  const { auditor, clock } = options;
  let ends = performance.now() + sliceMs;
  const breathe = async (): Promise<void> => {
    state.aliveAt = clock.now();
    await new Promise<void>((resolve) => {
      clock.soon(resolve);
    });
    ends = performance.now() + sliceMs;
  };
  for (let batch = queue[0]; batch !== undefined; batch = queue[0]) {
    for (const entry of batch.entries) {
      const steps = auditor.takeInSteps(entry);
      for (;;) {
        if (performance.now() >= ends) await breathe();
        if (state.stopped) return;
        if (steps.next().done === true) break;
      }
    }
    queue.shift();
    batch.done();
  }
  state.working = false;
  options.onQuiet?.();
  tick(state);
}

/** Opens what may be opened by now, has read what must be, and sets the timer for the next time. */
function tick(state: State): void {
  const { options, stopped, working } = state;
  // Whatever is queued may end what waits; the timer is set when it is taken in.
  if (stopped || working) return;
  const { auditor } = options;
  const { findings } = auditor;
  const now = options.clock.now();
  auditor.advance(now);
  if (now >= state.retryAt) {
    const isMore = findings.waiting().size > openedAtOnce;
    state.retryAt = now + (isMore ? retrySeconds.more : retrySeconds.all);
    findings.retry(now);
  }
  const dueAt = auditor.nextAt() ?? Infinity;
  // All whose windows have passed are known first, since those of a namespace are read together.
  if (dueAt > now) readNext(state, now);
  const isWaiting = findings.waiting().size > 0;
  const retryAt = isWaiting ? state.retryAt : Infinity;
  const readAt = isWaiting && state.reading < mostReads ? state.readAt : Infinity;
  // Time goes on without entries too, for those who look at it: ages and readiness.
  const wait = Math.min(Math.max(Math.min(dueAt, retryAt, readAt) - now, 0.001), 1);
  state.cancel();
  state.cancel = options.clock.after(wait, () => {
    tick(state);
  });
}

function readNext(state: State, now: number): void {
  const { auditor } = state.options;
  if (state.reading >= mostReads || now < state.readAt) return;
  const keys = auditor.confirmer.next(auditor.findings.waiting(), now);
  const [key] = keys;
  if (key === undefined) {
    // Those that were read may be read again later.
    state.readAt = now + retrySeconds.all;
    return;
  }
  const namespace = key.slice(0, key.indexOf('/'));
  const pods = keys.length === 1 ? 0 : auditor.store.listers.podsIn(namespace).length;
  state.reading++;
  state.readAt = now + pause.service + pause.pod * pods;
  void read(state, namespace, keys);
}

async function read(state: State, namespace: string, keys: readonly Key[]): Promise<void> {
  const { auditor, reread, clock } = state.options;
  const names = keys.map((key) => key.slice(namespace.length + 1));
  try {
    const all = await reread(namespace, names);
    for (const name of names) {
      auditor.confirmer.answer(`${namespace}/${name}`, all.get(name) ?? null);
    }
  } catch {
    // It is counted, and made again; what keeps it from succeeding the watches say too.
    for (const key of keys) auditor.confirmer.answer(key, null);
    state.readAt = clock.now() + pause.failure;
  }
  state.reading--;
  state.retryAt = -Infinity;
  tick(state);
}
