// The clock of a live auditor: Unix time that never runs backwards. It runs by the monotonic clock
// of the machine, and follows the wall clock when that was set or the machine was suspended.

import type { MonotonicClock } from '../../auditor/event-loop.ts';

/** Seconds by which the wall clock may differ: NTP corrects less without a step. */
const tolerance = 2;

/** `wall` and `monotonic` are in seconds. */
export function createClock(
  wall = (): number => Date.now() / 1000,
  monotonic = (): number => performance.now() / 1000,
): MonotonicClock {
  let offset = wall() - monotonic();
  let latest = -Infinity;
  const now = (): number => (latest = Math.max(latest, monotonic() + offset));
  return {
    now,
    monotonic,
    follow() {
      const before = now();
      const drift = wall() - (monotonic() + offset);
      if (Math.abs(drift) > tolerance) offset += drift;
      const jump = Math.max(0, now() - before);
      return { jump: jump > tolerance / 2 ? jump : 0, held: latest - (monotonic() + offset) };
    },
    after(seconds, call) {
      const timer = setTimeout(call, seconds * 1000);
      return () => clearTimeout(timer);
    },
    soon: (call) => void setImmediate(call),
  };
}
