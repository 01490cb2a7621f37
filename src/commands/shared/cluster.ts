// How commands find a live cluster, connect to it and to its node agents, and audit it once.

import { readFileSync } from 'node:fs';

import { type AgentCredentials, createAgentClient } from '../../agent/client/client.ts';
import { createScraper, type Scraper } from '../../agent/client/scraper.ts';
import { type Auditor, type AuditorOptions, createAuditor } from '../../auditor/auditor.ts';
import { createClock } from '../../auditor/event-loop.ts';
import { connectAuditor, type LiveAuditor } from '../../auditor/live.ts';
import { createConnection } from '../../cluster/api/transport/connection.ts';
import { isConfigured, openAccount } from '../../cluster/api/transport/kubeconfig.ts';
import { type OnProblem, problemAt } from '../../cluster/decode/problem.ts';
import { warnIfUnverified } from './console.ts';
import type { AgentsFlags, AuditFlags, ClusterFlags } from './options.ts';
import { auditorOptions, scopeOf } from './options.ts';
import { stopSignal } from './process.ts';

export type Cluster = ReturnType<typeof openCluster>;

/** Throws an Error for people if the configuration is wrong. Connects with the first request. */
export function openCluster({ kubeconfig, context }: ClusterFlags) {
  // In a pod, an incomplete service account is an error. No other cluster may replace it.
  const isInPod = process.env.KUBERNETES_SERVICE_HOST !== undefined;
  if ((kubeconfig ?? context) === undefined && !isInPod && !isConfigured(process.env)) {
    throw new Error(
      'No cluster is configured: no kubeconfig file, and not in a pod (see --kubeconfig)',
    );
  }
  const account = openAccount({ kubeconfig: kubeconfig ?? null, context: context ?? null });
  const clock = createClock();
  const environment = createConnection(account, () => clock.now());
  return { server: account.server, environment, clock, close: () => environment.close() };
}

type LiveFlags = AuditFlags & ClusterFlags & AgentsFlags;

type LiveListeners = Partial<Pick<AuditorOptions, 'onOpen' | 'onResolve' | 'onJourney'>> & {
  readonly onQuiet?: () => void;
};

/** The auditor of a live cluster, and what keeps it up to date; no scraper without --agents. */
export function createLiveAuditor(
  cluster: Cluster,
  flags: LiveFlags,
  onProblem: OnProblem,
  { onQuiet = () => undefined, ...listeners }: LiveListeners = {},
) {
  const auditor = createAuditor({
    ...auditorOptions(flags, onProblem),
    scope: scopeOf(flags),
    live: true,
    ...listeners,
  });
  const { environment, clock } = cluster;
  const { endpoints } = flags;
  const live = connectAuditor({ environment, clock, auditor, endpoints, onProblem, onQuiet });
  const scraper = createAgentScraper(flags, cluster, auditor, live, onProblem);
  /** Runs until `stop` is aborted, then closes the cluster. Rejects for a programming error. */
  const run = async (stop: AbortController): Promise<void> => {
    try {
      await Promise.all([live.run(stop.signal), scraper?.run(stop.signal)]);
    } finally {
      stop.abort();
      cluster.close();
    }
  };
  return { auditor, live, scraper, run };
}

/** Scrapes the agents and delivers their reports to the auditor; `null` without --agents. */
export function createAgentScraper(
  flags: AgentsFlags & ClusterFlags,
  { clock, environment }: Cluster,
  auditor: Auditor,
  live: LiveAuditor,
  onProblem: OnProblem,
): Scraper | null {
  const { agents, namespaces, excludeNamespaces, shard } = flags;
  if (agents === undefined) return null;
  if (namespaces !== undefined || excludeNamespaces !== undefined || shard !== undefined) {
    throw new Error('--agents needs the whole cluster: no --namespaces, no --shard');
  }
  const key = `${agents.namespace}/${agents.name}`;
  return createScraper({
    client: createAgentClient(credentialsOf(flags)),
    now: () => clock.now(),
    random: () => environment.random(),
    sleep: (seconds, signal) => environment.sleep(seconds, signal),
    slices() {
      const services = auditor.serviceAuditor();
      return services && (services.audited.get(key)?.record.slices ?? []);
    },
    nodes: () => auditor.store.listers.nodes.keys(),
    deliver: live.deliver,
    onTrouble(node, why) {
      onProblem(problemAt(`Agent of node ${node}`, null, why, {}));
    },
  });
}

/** Throws an Error for people if flags conflict or a file cannot be read. */
function credentialsOf(flags: AgentsFlags): AgentCredentials {
  const { agents, agentsTokenFile, agentsCa, agentsCert, agentsKey, agentsServerName } = flags;
  if ((agentsCert === undefined) !== (agentsKey === undefined)) {
    throw new Error('--agents-cert and --agents-key belong together');
  }
  const read = (path?: string): string | undefined =>
    path === undefined ? path : readFileSync(path, 'utf8');
  const token = read(agentsTokenFile)?.trim() ?? null;
  if (token === '') throw new Error(`${String(agentsTokenFile)}: The token is empty`);
  const isPlain = [agentsCa, agentsCert, agentsServerName].every((value) => value === undefined);
  if (isPlain) return { token, tls: null };
  const servername = agentsServerName ?? `${agents?.name ?? ''}.${agents?.namespace ?? ''}.svc`;
  return {
    token,
    tls: { ca: read(agentsCa), cert: read(agentsCert), key: read(agentsKey), servername },
  };
}

/**
 * Seconds: of the first lists without any byte, of confirmation after the settle window, that
 * agents may prolong the audit, to wait for an agent without a report, and between two checks.
 */
const limits = { silence: 60, confirmation: 15, rounds: 240, agentSilence: 15, poll: 0.05 };

/**
 * Audits a live cluster until `isDone`, but not beyond the settle window and the time to confirm
 * differences. Throws an Error for people if the cluster cannot be read.
 */
export async function auditOnce(
  flags: LiveFlags,
  cluster: Cluster,
  onProblem: OnProblem,
  isDone: (auditor: Auditor) => boolean,
): Promise<Auditor> {
  const stop = stopSignal();
  const { auditor, live, scraper, run } = createLiveAuditor(cluster, flags, onProblem);
  const longest = flags.settle + limits.confirmation + (scraper === null ? 0 : limits.rounds);
  const { clock, server } = cluster;
  let received = { bytes: 0, at: clock.now() };
  let begunAt: number | null = null;
  const isOver = (now: number): boolean => {
    const bytes = [...live.watches.values()].reduce((sum, { counters }) => sum + counters.bytes, 0);
    if (bytes > received.bytes) received = { bytes, at: now };
    if (auditor.serviceAuditor() === null) return now - received.at > limits.silence;
    begunAt ??= now;
    if (now > begunAt + longest) return true;
    const areDone = scraper === null || (now > begunAt + 1 && areAgentsDone(auditor, scraper, now));
    return areDone && isDone(auditor);
  };
  const poll = (): void => {
    if (isOver(clock.now())) stop.abort();
    else clock.after(limits.poll, poll);
  };
  clock.after(limits.poll, poll);
  await run(stop);
  if (!auditor.store.listers.knows('services')) {
    throw new Error(`No Services could be read from ${server}: there is nothing to judge`);
  }
  if (auditor.serviceAuditor() === null) {
    throw new Error(`${server}: not all lists are complete: ${auditor.awaited().join(', ')}`);
  }
  warnIfUnverified(auditor);
  return auditor;
}

/** Whether every agent has reported or failed, and no difference on a node is pending. */
const areAgentsDone = (auditor: Auditor, scraper: Scraper, now: number): boolean =>
  [...scraper.status().values()].every(
    ({ state, seenAt, since }) =>
      state !== 'stale' || seenAt !== null || now - since >= limits.agentSilence,
  ) && (auditor.nodes()?.pendingSince ?? null) === null;

/** Whether every watch is synced, no difference is pending and no candidate waits. */
export function isSettled(auditor: Auditor): boolean {
  const { progress, findings } = auditor;
  const states = [...progress.inputs.values()].map(({ state }) => state);
  if (!states.every((state) => state === 'synced' || state === 'off')) return false;
  return auditor.nextAt() === null && [...findings.waiting()].every(({ item }) => item.gone);
}
