// A live cluster once: it is listed and judged, and watched only for as long as it takes until what
// was asked for can be said. Whoever asks says when that is; differences in flight have the settle
// window and the time to confirm them, and no more.

import type { Auditor } from '../../auditor/auditor.ts';
import type { LiveAuditor } from '../../auditor/live.ts';
import type { Problem } from '../../cluster/decode/problem.ts';
import type { Cluster } from './cluster.ts';
import { auditorOf } from './cluster.ts';
import { fail, warnIfReleaseUnknown } from './console.ts';
import type { ClusterFlags, AuditFlags } from './options.ts';
import { stopSignal } from './stop-signal.ts';

/** Seconds without any answer after which the first lists are given up. */
const patience = 60;
/** Seconds that confirming may last beyond the settle window. */
const confirming = 15;

/** What goes on beside the judging, and how long it may make it last. */
export interface Beside {
  run(signal: AbortSignal): Promise<void>;
  /** Whether nothing more is to come of it. */
  isDone(now: number): boolean;
  readonly seconds: number;
}

/** Judges a live cluster until `isDone`; null, and it is said why, where it cannot be read. */
export async function auditOnce(
  options: AuditFlags & ClusterFlags,
  cluster: Cluster,
  onProblem: (problem: Problem) => void,
  isDone: (auditor: Auditor) => boolean,
  begin: (auditor: Auditor, attached: LiveAuditor) => Beside | null = () => null,
): Promise<Auditor | null> {
  const stop = stopSignal();
  const { auditor, attached } = auditorOf(cluster, options, onProblem);
  const beside = begin(auditor, attached);
  const longest = options.settle + confirming + (beside?.seconds ?? 0);
  const { clock } = cluster;
  const bytes = (): number =>
    [...attached.watches.values()].reduce((sum, { counters }) => sum + counters.bytes, 0);
  let heard = { bytes: 0, at: clock.now() };
  let judgedAt: number | null = null;
  const look = (): void => {
    const now = clock.now();
    if (bytes() > heard.bytes) heard = { bytes: bytes(), at: now };
    if (auditor.serviceAuditor() === null) {
      if (now - heard.at > patience) stop.abort();
      else clock.after(0.05, look);
      return;
    }
    judgedAt ??= now;
    const isSeen = beside === null || (now > judgedAt + 1 && beside.isDone(now));
    if (now > judgedAt + longest || (isSeen && isDone(auditor))) stop.abort();
    else clock.after(0.05, look);
  };
  clock.after(0.05, look);
  try {
    await Promise.all([attached.run(stop.signal), beside?.run(stop.signal)]);
  } finally {
    stop.abort();
    cluster.close();
  }
  if (!auditor.store.listers.knows('services')) {
    fail(`No Services could be read from ${cluster.server}: there is nothing to judge`);
    return null;
  }
  if (auditor.serviceAuditor() === null) {
    fail(`${cluster.server}: not all lists are complete: ${auditor.awaited().join(', ')}`);
    return null;
  }
  warnIfReleaseUnknown(auditor);
  return auditor;
}

/** Whether every watch stands, and nothing waits to become a finding or to be well again. */
export function isSettled(auditor: Auditor): boolean {
  const { progress, findings } = auditor;
  const states = [...progress.inputs.values()].map(({ state }) => state);
  if (!states.every((state) => state === 'synced' || state === 'off')) return false;
  return auditor.nextAt() === null && [...findings.waiting()].every(({ item }) => item.gone);
}
