// Whether the controllers write: which Services wait for each of them, when it last ended a
// difference by a write, and how late its last writes came.
//
// A write counts if it ended a difference that a change of the input had made (a sample of
// convergence lag). A write that made a difference worse may be by any client: it does not count.
// A Service waits if it has a difference without a cause that a change of the input made.

import type { Key } from '../../model/objects.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import type { ConvergenceSample, ServiceAudit, ServiceDifference } from '../service/reconcile.ts';
import { serviceOutputs } from '../service/verdict.ts';
import { recordOf } from '../../model/collections.ts';

/** The number of Services that must wait before the controller is suspected. */
const several = 2;
/** Seconds: a wait that counts, and by which workers of a controller overtake each other. */
const seconds = { waited: 5, apart: 1 };
/** The number of the last writes that are kept, and of those that show a slow controller. */
const kept = { writes: 64, least: 3 };
/** Seconds in which a write is recent. */
export const recent = 60;

export type ControllerState = 'silent' | 'slow' | 'writing';

/** What is known of one controller at one time. */
export interface ControllerEvidence {
  readonly state: ControllerState;
  /** When it last ended a difference by a write; `null` if the auditor has seen none. */
  readonly wroteAt: number | null;
  /** When its last late write arrived; `null` if it was never late. */
  readonly lateAt: number | null;
  /** Services that wait for it, and since when the first of them does; `null` if none waits. */
  readonly waiting: number;
  readonly since: number | null;
  /** Writes of the last minute, and the median of their lag in seconds; `null` without any. */
  readonly writes: number;
  readonly lag: number | null;
}

export type ControllersEvidence = Readonly<Record<ServiceOutput, ControllerEvidence>>;

/** The evidence of an input without history, such as a dump. */
export const noControllers: ControllersEvidence = recordOf(serviceOutputs, () => {
  const never = { wroteAt: null, lateAt: null, since: null, lag: null };
  return { state: 'writing', ...never, waiting: 0, writes: 0 };
});

/** A controller before anything is known of it. */
const newController = () => ({
  /** Since when each Service waits. */
  waiting: new Map<Key, number>(),
  /** The last writes, oldest first. */
  writes: [] as { readonly at: number; readonly seconds: number }[],
  lateAt: null as number | null,
});

type Controller = ReturnType<typeof newController>;

type SavedControllers = Readonly<
  Record<ServiceOutput, { readonly [F in 'writes' | 'lateAt']: Readonly<Controller[F]> }>
>;

/** `window`: the settle window in seconds. */
export function createControllerActivity(window: number) {
  const controllers = recordOf(serviceOutputs, newController);
  const changed = new Set<Key>();
  let last = { at: NaN, evidence: noControllers };
  /** From this lag on, a write is late. */
  const late = Math.max(seconds.waited, window / 3);
  const recountSome = (audited: ReadonlyMap<Key, ServiceAudit>, most: number): void => {
    if (changed.size > 0) last.at = NaN;
    let left = most;
    for (const key of changed) {
      if (left-- <= 0) return;
      changed.delete(key);
      recount(controllers, key, audited.get(key));
    }
  };
  return {
    /** Notes that the differences of a Service may have changed. */
    noteChange: (key: Key): void => void changed.add(key),
    noteWrite({ output, seconds: lag, at }: ConvergenceSample): void {
      if (output === 'node') return;
      const controller = controllers[output];
      const { writes } = controller;
      writes.push({ at, seconds: lag });
      if (writes.length > kept.writes) writes.shift();
      if (lag >= late) controller.lateAt = at;
      last.at = NaN;
    },
    /** What a checkpoint has of it. Which Services wait follows from their differences. */
    past: (): SavedControllers =>
      recordOf(serviceOutputs, (output) => {
        const { writes, lateAt } = controllers[output];
        return { writes: [...writes], lateAt };
      }),
    continuePast(past: SavedControllers): void {
      for (const output of serviceOutputs) {
        const { writes, lateAt } = past[output];
        Object.assign(controllers[output], { writes: writes.slice(-kept.writes), lateAt });
      }
      last.at = NaN;
    },
    /** Recounts changed Services early, so that the first finding need not wait for all. */
    recountSome,
    /** The evidence of every controller, at the full second before a time. */
    assess(audited: ReadonlyMap<Key, ServiceAudit>, now: number): ControllersEvidence {
      // Thousands of findings open within a second.
      const at = Math.floor(now);
      if (changed.size === 0 && last.at === at) return last.evidence;
      recountSome(audited, Infinity);
      const evidence = recordOf(serviceOutputs, (output) =>
        assess(controllers[output], late, window, at),
      );
      last = { at, evidence };
      return evidence;
    },
  };
}

/** Whether a difference waits for its controller. */
const isWaiting = ({ cause, byInput, severity }: ServiceDifference): boolean =>
  cause === null && byInput && severity !== 'info';

function recount(
  controllers: Readonly<Record<ServiceOutput, Controller>>,
  key: Key,
  audit: ServiceAudit | undefined,
): void {
  const first: Partial<Record<ServiceOutput, number>> = {};
  for (const items of audit?.items.values() ?? []) {
    for (const item of items) {
      const output = item.output as ServiceOutput;
      if (isWaiting(item)) first[output] = Math.min(first[output] ?? Infinity, item.lateSince);
    }
  }
  for (const output of serviceOutputs) {
    const { waiting } = controllers[output];
    const since = first[output];
    if (since === undefined) waiting.delete(key);
    else waiting.set(key, since);
  }
}

function assess(
  { waiting, writes, lateAt }: Controller,
  late: number,
  window: number,
  at: number,
): ControllerEvidence {
  const wroteAt = writes.at(-1)?.at ?? null;
  const last = writes.filter((write) => at - write.at <= recent);
  const lags = last.map((write) => write.seconds).sort((a, b) => a - b);
  const lag = lags[Math.floor(lags.length / 2)] ?? null;
  const known = { wroteAt, lateAt, waiting: waiting.size, writes: last.length, lag };
  let [since, unanswered, overdue] = [null as number | null, 0, 0];
  for (const began of waiting.values()) {
    since = Math.min(since ?? Infinity, began);
    if (began <= at - seconds.waited && began > (wroteAt ?? -Infinity) - seconds.apart) {
      unanswered++;
    }
    // With less than the rest of the second, the first finding would have an unknown cause.
    if (began < at + 1 - window) overdue++;
  }
  const isSlow = overdue >= several && last.length >= kept.least && lag !== null && lag >= late;
  const state = unanswered >= several ? 'silent' : isSlow ? 'slow' : 'writing';
  return { ...known, since, state };
}
