// The event loop of a live cluster: a queue of entries, taken in slices of 10 ms, and a timer.
//
//   reflectors ──deliver──► queue ──slices of 10 ms──► auditor ──► findings
//                  ▲                                      │ ▲
//                  └── resolves when taken in             │ └── timer: the next window ends
//                                                         ▼
//                           fresh reads ◄── candidates that wait for confirmation
//
// Probes, scrapes and watches share the event loop of Node, so no slice may block it for long.
// Unread events stay with the API server. While entries are queued, no difference becomes a
// finding, since an event that ends it may be among them.

import type { FreshRead } from '../audit/pending/confirm.ts';
import type { Key, Resource } from '../model/objects.ts';
import { runToEnd } from '../model/run-to-end.ts';
import { type Auditor, type AuditorEntry, openedAtOnce } from './auditor.ts';

export interface MonotonicClock {
  /** Unix seconds that never run backwards. */
  now(): number;
  /** Seconds from any origin, which no correction changes. */
  monotonic(): number;
  /** Follows the wall clock, if it was set; absent if nothing sets it. */
  follow?(): ClockChange;
  /** Calls back once after this many seconds. Returns a function that cancels the call. */
  after(seconds: number, call: () => void): () => void;
  /** Calls back once after other events had their turn. */
  soon(call: () => void): void;
}

export interface ClockChange {
  /** Seconds by which `now` has jumped, at least 0. */
  readonly jump: number;
  /** Seconds until `now` goes on, since the wall clock was set back; 0 while it runs. */
  readonly held: number;
}

export interface EventLoopOptions {
  readonly auditor: Auditor;
  readonly clock: MonotonicClock;
  /** Reads the objects of some Services of a namespace, or all Nodes. Rejects if a read fails. */
  readonly reread: (
    namespace: string,
    names: readonly string[],
  ) => Promise<ReadonlyMap<string, FreshRead>>;
  /** Called when a watch has lost an event. */
  readonly onGap: (resource: Resource, key: Key) => void;
  /** Why the input hangs, for people; `null` if it does not. */
  readonly hang: () => string | null;
  /** Called with the reason of a lasting hang, and with `null` when it is over. */
  readonly onHang: (reason: string | null) => void;
  /** Seconds by which the clock is ahead of that of the API server; `null` if that is unknown. */
  readonly skew: () => number | null;
  /** Called with what happened to the clock, for people. */
  readonly onClock: (text: string) => void;
  /** Called for a programming error: the loop cannot continue. */
  readonly onError: (error: unknown) => void;
  /** Called when the auditor has taken in an entry. */
  readonly onTaken?: (entry: AuditorEntry) => void;
  /** Called whenever the queue is empty. */
  readonly onQuiet: () => void;
}

const sliceMs = 10;
/** Seconds between retries of waiting candidates: of all, or of the next batch of many. */
const retrySeconds = { all: 0.1, more: 0.02 };
/** Fresh reads at one time. */
const maxReads = 4;
/** Seconds until the next fresh read: after a Service, per Pod of a namespace, after a failure. */
const pause = { service: 0.025, pod: 0.0002, failure: 1 };
/** The loop is stuck if no slice has ended, or no tick, for this many seconds. */
const stuckSeconds = 60;
/**
 * Seconds that a hang lasts before it is one, and between two ticks that show it: a process that
 * was suspended has had no chance to go on.
 */
const hanging = { seconds: 60, apart: 5 };
/** Seconds by which the API server's clock may differ: the Date of an answer has whole seconds. */
const mostSkew = 2;
/** Seconds by which the clock may be set back until only a restart ends the wait soon. */
const longestHold = 900;

type State = ReturnType<typeof createState>;

const createState = (options: EventLoopOptions) => ({
  options,
  queue: [] as { readonly entries: readonly AuditorEntry[]; readonly done: () => void }[],
  working: false,
  stopped: false,
  cancelTimer: (): void => undefined,
  /** When the timer calls back, monotonic; Infinity: it is not set. */
  timerAt: Infinity,
  /** Monotonic times: when the latest slice ended, and the latest tick. */
  aliveAt: options.clock.monotonic(),
  tickedAt: null as number | null,
  /** The clock at the latest tick, and seconds until it goes on if it was set back. */
  shownAt: options.clock.now(),
  held: 0,
  /** Since when the input hangs, monotonic, and the reason once it has lasted. */
  hangsSince: null as number | null,
  hang: null as string | null,
  retryAt: -Infinity,
  readAt: -Infinity,
  reading: 0,
});

export function createEventLoop(options: EventLoopOptions) {
  const state = createState(options);
  return {
    /** Resolves when the entries are taken in, or at once if the loop has stopped. */
    deliver(entries: readonly AuditorEntry[]): Promise<void> {
      if (state.stopped) return Promise.resolve();
      return new Promise((resolve) => {
        state.queue.push({ entries, done: resolve });
        start(state);
      });
    },
    /** Why no entry is taken in any more, for people; `null` if the loop runs. */
    stuck(): string | null {
      const now = options.clock.monotonic();
      const seconds = now - (state.working ? state.aliveAt : (state.tickedAt ?? now));
      if (!state.stopped && state.held > longestHold) {
        return `The clock was set back: it waits for ${Math.round(state.held)} s`;
      }
      if (state.stopped || seconds < stuckSeconds) return state.hang;
      const what = state.working ? 'Nothing has been taken in' : 'No timer has run';
      return `${what} for ${Math.round(seconds)} s`;
    },
    stop(): void {
      state.stopped = true;
      state.cancelTimer();
      for (const { done } of state.queue.splice(0)) done();
    },
  };
}

function start(state: State): void {
  if (state.working) return;
  state.working = true;
  // After a stop of the process, events that waited may come before the timer of the next tick.
  if (state.tickedAt !== null && secondsAsleep(state) > hanging.apart) followClock(state);
  state.aliveAt = state.options.clock.monotonic();
  // Later, since the caller of `deliver` has to finish its own work first.
  state.options.clock.soon(() => void processQueue(state).catch(state.options.onError));
}

async function processQueue(state: State): Promise<void> {
  const { queue, options } = state;
  let endOfSlice = performance.now() + sliceMs;
  for (let batch = queue[0]; batch !== undefined; batch = queue[0]) {
    for (const entry of batch.entries) {
      const steps = options.auditor.takeInSteps(entry);
      for (;;) {
        if (performance.now() >= endOfSlice) {
          state.aliveAt = options.clock.monotonic();
          await new Promise<void>((resolve) => options.clock.soon(resolve));
          endOfSlice = performance.now() + sliceMs;
        }
        if (state.stopped) return;
        if (steps.next().done === true) break;
      }
      options.onTaken?.(entry);
    }
    queue.shift();
    batch.done();
  }
  state.working = false;
  options.onQuiet();
  tick(state);
}

function tick(state: State): void {
  const { options, stopped, working } = state;
  // A queued event may end a pending difference. The next tick follows when it is taken in.
  if (stopped || working) return;
  const { auditor, clock } = options;
  const { findings } = auditor;
  const isAwake = clock.monotonic() - (state.tickedAt ?? -Infinity) <= hanging.apart;
  followClock(state);
  checkHang(state, isAwake);
  const now = clock.now();
  auditor.advance(now);
  if (now >= state.retryAt) {
    const isMore = findings.waiting().size > openedAtOnce;
    state.retryAt = now + (isMore ? retrySeconds.more : retrySeconds.all);
    findings.retry(now);
  }
  const dueAt = auditor.nextAt() ?? Infinity;
  // A read is of all candidates of a namespace, so every due difference is a candidate first.
  if (dueAt > now) startRead(state, now);
  for (const [resource, key] of auditor.confirmer.gaps) options.onGap(resource, key);
  auditor.confirmer.gaps.clear();
  const isWaiting = findings.waiting().size > 0;
  const retryAt = isWaiting ? state.retryAt : Infinity;
  const readAt = isWaiting && state.reading < maxReads ? state.readAt : Infinity;
  // At least one tick per second, for ages and readiness.
  const wait = Math.min(Math.max(Math.min(dueAt, retryAt, readAt) - now, 0.001), 1);
  setTimer(state, wait);
}

/** Keeps a timer that calls back early enough: most events come before it does. */
function setTimer(state: State, wait: number): void {
  const { clock } = state.options;
  const timerAt = clock.monotonic() + wait;
  if (state.timerAt <= timerAt) return;
  state.cancelTimer();
  state.timerAt = timerAt;
  state.cancelTimer = clock.after(wait, () => {
    state.timerAt = Infinity;
    tick(state);
  });
}

/** Seconds since a slice or a tick has ended. */
const secondsAsleep = ({ options, aliveAt, tickedAt }: State): number =>
  options.clock.monotonic() - Math.max(aliveAt, tickedAt ?? aliveAt);

/**
 * Restarts all settle windows after a time in which the clock was wrong or the process did not run:
 * nothing is known of what began and ended in it.
 */
function followClock(state: State): void {
  const { auditor, clock, onClock, skew } = state.options;
  const { jump = 0, held = 0 } = clock.follow?.() ?? {};
  const now = clock.now();
  const asleep = secondsAsleep(state);
  if (jump > 0) onClock(`The clock went forward by ${Math.round(jump)} s: restarting all windows`);
  else if (asleep > hanging.apart) {
    onClock(`The process did not run for ${Math.round(asleep)} s: restarting all windows`);
  }
  if (held > 0 && state.held === 0) {
    onClock(`The clock was set back: verdicts are unknown for ${Math.round(held)} s`);
  }
  const isSet = auditor.clock.isWrong !== held > 0;
  auditor.clock.isWrong = held > 0;
  auditor.clock.isSkewed = Math.abs(skew() ?? 0) > mostSkew;
  if (isSet || jump > 0 || asleep > hanging.apart) interrupt(auditor, state.shownAt, now);
  Object.assign(state, { shownAt: now, held });
}

/** Restarts all windows: nothing is known of the time between two moments. */
function interrupt(auditor: Auditor, from: number, to: number): void {
  const { progress, findings, options, clock } = auditor;
  progress.setClock(true, from);
  auditor.serviceAuditor()?.restartClocks(to);
  auditor.restartMeasures();
  for (const { outputs } of progress.setClock(clock.isWrong, to)) {
    runToEnd(findings.delay({ outputs, from, to, least: options.settle }));
  }
}

/** Reports a hang that several ticks have shown, and its end. */
function checkHang(state: State, isAwake: boolean): void {
  const { clock, hang, onHang } = state.options;
  const now = clock.monotonic();
  state.tickedAt = now;
  const reason = hang();
  if (reason === null || !isAwake) state.hangsSince = null;
  else state.hangsSince ??= now;
  const isLasting = state.hangsSince !== null && now - state.hangsSince >= hanging.seconds;
  const before = state.hang;
  state.hang = isLasting ? reason : null;
  if ((before === null) !== (state.hang === null)) onHang(state.hang);
}

function startRead(state: State, now: number): void {
  const { auditor } = state.options;
  if (state.reading >= maxReads || now < state.readAt) return;
  const keys = auditor.confirmer.next(auditor.findings.waiting(), now);
  const [key] = keys;
  if (key === undefined) {
    // Candidates that were read can be read again later.
    state.readAt = now + retrySeconds.all;
    return;
  }
  const namespace = key.slice(0, key.indexOf('/'));
  const pods = keys.length === 1 ? 0 : auditor.store.listers.podsIn(namespace).length;
  state.reading++;
  state.readAt = now + pause.service + pause.pod * pods;
  void readFresh(state, namespace, keys);
}

async function readFresh(state: State, namespace: string, keys: readonly Key[]): Promise<void> {
  const { auditor, reread, clock } = state.options;
  const names = keys.map((key) => key.slice(namespace.length + 1));
  let reads: ReadonlyMap<string, FreshRead> = new Map();
  try {
    reads = await reread(namespace, names);
  } catch {
    // The confirmer counts failed reads and repeats them. The watches report why they fail.
    state.readAt = clock.now() + pause.failure;
  }
  for (const name of names) {
    auditor.confirmer.answer(`${namespace}/${name}`, reads.get(name) ?? null);
  }
  state.reading--;
  state.retryAt = -Infinity;
  tick(state);
}
