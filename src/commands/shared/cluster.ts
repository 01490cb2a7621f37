// Commands on a live cluster: how they find it, connect to it, and audit it once or until they are
// stopped.

import type { Auditor, AuditorOptions } from '../../auditor/auditor.ts';
import { createAuditor } from '../../auditor/auditor.ts';
import type { MonotonicClock } from '../../auditor/event-loop.ts';
import { createClock } from '../../auditor/event-loop.ts';
import type { LiveAuditor } from '../../auditor/live.ts';
import { connectAuditor } from '../../auditor/live.ts';
import { createConnection, environmentOf } from '../../cluster/api/transport/connection.ts';
import { isConfigured, openAccount } from '../../cluster/api/transport/kubeconfig.ts';
import type { Environment } from '../../cluster/api/transport/request.ts';
import type { OnProblem } from '../../cluster/decode/problem.ts';
import { fail, warnIfReleaseUnknown } from './console.ts';
import type { AuditFlags, ClusterFlags } from './options.ts';
import { auditorOptions, scopeOf } from './options.ts';
import { stopSignal } from './process.ts';

/** Whether a cluster is named, or a kubeconfig file or a service account exists. */
export function hasCluster({ kubeconfig, context }: ClusterFlags): boolean {
  if (kubeconfig !== undefined || context !== undefined) return true;
  // In a pod, an incomplete service account is an error. No other cluster may replace it.
  return isConfigured(process.env) || process.env.KUBERNETES_SERVICE_HOST !== undefined;
}

export interface Cluster {
  /** The address of the API server, for people. */
  readonly server: string;
  readonly environment: Environment;
  readonly clock: MonotonicClock;
  close(): void;
}

/** Throws an Error for people if the configuration is wrong. Connects with the first request. */
export function openCluster(flags: ClusterFlags): Cluster {
  if (!hasCluster(flags)) {
    throw new Error(
      'No cluster is configured: no kubeconfig file, and not in a pod (see --kubeconfig)',
    );
  }
  const { kubeconfig = null, context = null } = flags;
  const account = openAccount({ kubeconfig, context });
  const connection = createConnection(account);
  const clock = createClock();
  return {
    server: account.server,
    environment: environmentOf(connection, () => clock.now()),
    clock,
    close: () => {
      connection.close();
    },
  };
}

/** Listeners of `serve`. Commands that audit once have none. */
type LiveListeners = Partial<Pick<AuditorOptions, 'onOpen' | 'onResolve' | 'onJourney'>> & {
  readonly onQuiet?: () => void;
};

/** The auditor of a live cluster, and the watches that keep it up to date. */
export function createLiveAuditor(
  { environment, clock }: Cluster,
  flags: ClusterFlags & AuditFlags,
  onProblem: OnProblem,
  { onQuiet = () => undefined, ...listeners }: LiveListeners = {},
): { auditor: Auditor; live: LiveAuditor } {
  const auditor = createAuditor({
    ...auditorOptions(flags, onProblem),
    scope: scopeOf(flags),
    live: true,
    ...listeners,
  });
  const { endpoints } = flags;
  const live = connectAuditor({ environment, clock, auditor, endpoints, onProblem, onQuiet });
  return { auditor, live };
}

/** Seconds without any byte after which the first lists are given up. */
const silenceLimit = 60;
/** Seconds that confirmation may take after the settle window. */
const confirmationLimit = 15;
/** Seconds between two looks at the progress. */
const pollInterval = 0.05;

/** Work beside the audit, which may prolong it. */
export interface Companion {
  run(signal: AbortSignal): Promise<void>;
  isDone(now: number): boolean;
  /** By how many seconds it may prolong the audit. */
  readonly seconds: number;
}

/**
 * Audits a live cluster until `isDone`, but not beyond the settle window and the time to confirm
 * differences. Returns `null`, after a message to people, if the cluster cannot be read.
 */
export async function auditOnce(
  flags: AuditFlags & ClusterFlags,
  cluster: Cluster,
  onProblem: OnProblem,
  isDone: (auditor: Auditor) => boolean,
  begin: (auditor: Auditor, live: LiveAuditor) => Companion | null = () => null,
): Promise<Auditor | null> {
  const stop = stopSignal();
  const { auditor, live } = createLiveAuditor(cluster, flags, onProblem);
  const companion = begin(auditor, live);
  const longest = flags.settle + confirmationLimit + (companion?.seconds ?? 0);
  const { clock } = cluster;
  let received = { bytes: 0, at: clock.now() };
  let begunAt: number | null = null;
  const isOver = (now: number): boolean => {
    const bytes = bytesOf(live);
    if (bytes > received.bytes) received = { bytes, at: now };
    if (auditor.serviceAuditor() === null) return now - received.at > silenceLimit;
    begunAt ??= now;
    if (now > begunAt + longest) return true;
    const isAlone = companion === null || (now > begunAt + 1 && companion.isDone(now));
    return isAlone && isDone(auditor);
  };
  const poll = (): void => {
    if (isOver(clock.now())) stop.abort();
    else clock.after(pollInterval, poll);
  };
  clock.after(pollInterval, poll);
  try {
    await Promise.all([live.run(stop.signal), companion?.run(stop.signal)]);
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

const bytesOf = ({ watches }: LiveAuditor): number =>
  [...watches.values()].reduce((sum, { counters }) => sum + counters.bytes, 0);

/** Whether every watch is synced, no difference is pending and no candidate waits. */
export function isSettled(auditor: Auditor): boolean {
  const { progress, findings } = auditor;
  const states = [...progress.inputs.values()].map(({ state }) => state);
  if (!states.every((state) => state === 'synced' || state === 'off')) return false;
  return auditor.nextAt() === null && [...findings.waiting()].every(({ item }) => item.gone);
}
