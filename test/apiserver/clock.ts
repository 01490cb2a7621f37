// Time for tests: a clock that waits until every possible step has happened, and then
// jumps to the next timer. What runs on it is deterministic, and hours cost milliseconds.

export interface Clock {
  /** Unix seconds. */
  now(): number;
  /** Calls back once after a number of seconds; returns a function that cancels it. */
  after(seconds: number, call: () => void): () => void;
}

export interface VirtualClock extends Clock {
  /** Resolves after a number of seconds, or as soon as the signal is aborted. */
  sleep(seconds: number, signal?: AbortSignal): Promise<void>;
  /** Lets time pass, to this moment. */
  runUntil(at: number): Promise<void>;
  /** How many timers are set. */
  pending(): number;
}

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly call: () => void;
}

/** Everything that waits for a promise that is settled has run. */
const idle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export function virtualClock(start = 1_700_000_000): VirtualClock {
  let now = start;
  let order = 0;
  const timers: Timer[] = []; // the next one last
  const after = (seconds: number, call: () => void) => {
    const timer = { at: now + Math.max(seconds, 0), order: order++, call };
    let place = timers.length;
    while (place > 0 && (timers[place - 1]?.at ?? 0) <= timer.at) place--;
    timers.splice(place, 0, timer);
    return () => {
      const index = timers.indexOf(timer);
      if (index >= 0) timers.splice(index, 1);
    };
  };
  return {
    now: () => now,
    after,
    sleep: (seconds, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted === true) {
          resolve();
          return;
        }
        const done = () => {
          cancel();
          signal?.removeEventListener('abort', done);
          resolve();
        };
        const cancel = after(seconds, done);
        signal?.addEventListener('abort', done);
      }),
    async runUntil(at) {
      await idle();
      for (let next = timers.at(-1); next !== undefined && next.at <= at; next = timers.at(-1)) {
        timers.pop();
        now = next.at;
        next.call();
        await idle();
      }
      now = Math.max(now, at);
    },
    pending: () => timers.length,
  };
}

/** The machine's own time. */
export const realClock: Clock = {
  now: () => Date.now() / 1000,
  after(seconds, call) {
    const timer = setTimeout(call, seconds * 1000);
    return () => clearTimeout(timer);
  },
};
