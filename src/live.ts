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

import type { Reread } from './audit/confirm.ts';
import type { Key } from './model/objects.ts';
import type { Auditor, Entry } from './serve.ts';

/** Time as the loop has it. */
export interface LiveClock {
  /** Unix seconds that never run backwards. */
  now(): number;
  /** Calls back once after so many seconds; returns what cancels it. */
  after(seconds: number, call: () => void): () => void;
  /** Calls back once everything else that waits for the loop has had its turn. */
  soon(call: () => void): void;
}

export interface LiveOptions {
  readonly auditor: Auditor;
  readonly clock: LiveClock;
  /** Reads the objects of one Service; rejects when that fails. */
  readonly reread: (namespace: string, name: string) => Promise<Reread>;
  /** An error of ours: the loop cannot go on. */
  readonly onError: (error: unknown) => void;
  /** Called whenever the queue has been taken in. */
  readonly onQuiet?: () => void;
}

export interface Live {
  /** Takes in entries; resolves when all are taken in, or at once when it has stopped. */
  deliver(entries: readonly Entry[]): Promise<void>;
  /** Why nothing is taken in any more, for people; null: it is. */
  stuck(): string | null;
  stop(): void;
}

/** Unix seconds by the monotonic clock. */
export function createClock(): LiveClock {
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
/** Those that wait to be confirmed are asked for again at most that often. */
const retrySeconds = 0.1;
/** Reads at one time, and seconds from one to the next. */
const mostReads = 4;
const betweenReads = 0.05;
/** A slice takes 10 ms; when none has ended for so many seconds, something is wrong. */
const stuckSeconds = 60;

interface Batch {
  readonly entries: readonly Entry[];
  readonly done: () => void;
}

interface State {
  readonly options: LiveOptions;
  readonly queue: Batch[];
  working: boolean;
  stopped: boolean;
  /** Cancels the timer. */
  cancel: () => void;
  /** When the latest slice ended, and the latest look at what waits. */
  aliveAt: number;
  retriedAt: number;
  reading: number;
  readAt: number;
}

export function createLive(options: LiveOptions): Live {
  const state: State = {
    options,
    queue: [],
    working: false,
    stopped: false,
    cancel: () => undefined,
    aliveAt: options.clock.now(),
    retriedAt: -Infinity,
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
  const pause = async (): Promise<void> => {
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
        if (performance.now() >= ends) await pause();
        if (state.stopped) return;
        if (steps.next().done === true) break;
      }
    }
    queue.shift();
    batch.done();
  }
  state.working = false;
  options.onQuiet?.();
  look(state);
}

/** Opens what may be opened by now, has read what must be, and sets the timer for the next time. */
function look(state: State): void {
  const { options, stopped, working } = state;
  // Whatever is queued may end what waits; the timer is set when it is taken in.
  if (stopped || working) return;
  const { auditor } = options;
  const { settle } = auditor;
  const now = options.clock.now();
  auditor.advance(now);
  if (now >= state.retriedAt + retrySeconds) {
    state.retriedAt = now;
    settle.retry(now);
  }
  readNext(state, now);
  const isWaiting = settle.waiting()[Symbol.iterator]().next().done !== true;
  const next = Math.min(auditor.nextAt() ?? Infinity, isWaiting ? now + retrySeconds : Infinity);
  // Time goes on without entries too, for those who look at it: ages and readiness.
  const wait = Math.min(Math.max(next - now, 0.001), 1);
  state.cancel();
  state.cancel = options.clock.after(wait, () => {
    look(state);
  });
}

function readNext(state: State, now: number): void {
  const { auditor } = state.options;
  if (state.reading >= mostReads || now < state.readAt + betweenReads) return;
  const key = auditor.confirmer.next(auditor.settle.waiting(), now);
  if (key === null) return;
  state.reading++;
  state.readAt = now;
  void read(state, key);
}

async function read(state: State, key: Key): Promise<void> {
  const { auditor, reread } = state.options;
  const slash = key.indexOf('/');
  try {
    auditor.confirmer.answer(key, await reread(key.slice(0, slash), key.slice(slash + 1)));
  } catch {
    // It is counted, and made again; what keeps it from succeeding the watches say too.
    auditor.confirmer.answer(key, null);
  }
  state.reading--;
  state.retriedAt = -Infinity;
  look(state);
}
