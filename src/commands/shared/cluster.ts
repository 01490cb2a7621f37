// How commands find a live cluster, connect to it and to its node agents, and audit it once.

import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';

import { type AgentCredentials, createAgentClient } from '../../agent/client/client.ts';
import { createNodeVerifier } from '../../agent/client/identity.ts';
import { createScraper, type Scraper } from '../../agent/client/scraper.ts';
import {
  type Auditor,
  type AuditorEntry,
  type AuditorOptions,
  createAuditor,
} from '../../auditor/auditor.ts';
import type { Within } from '../../audit/summary.ts';
import { connectAuditor, type LiveAuditor } from '../../auditor/live.ts';
import type { ConnectionChange } from '../../cluster/api/connection-state.ts';
import type { createReflectors } from '../../cluster/api/reflector.ts';
import type { WatchStatus } from '../../cluster/api/listwatch.ts';
import { createReviewer } from '../../cluster/api/review.ts';
import { createConnection } from '../../cluster/api/transport/connection.ts';
import { isConfigured, openAccount } from '../../cluster/api/transport/kubeconfig.ts';
import { type Environment, exchange } from '../../cluster/api/transport/request.ts';
import { type OnProblem, problemAt } from '../../cluster/decode/problem.ts';
import { type FailureReason, failureText } from '../../model/connection.ts';
import { isNodeInScope } from '../../model/scope.ts';
import { checkPair, checkPem } from '../../output/http/pem.ts';
import { createClock } from './clock.ts';
import { connectionText, fail, inform, warnIfUnverified } from './console.ts';
import type { AgentsFlags, AuditFlags, ClusterFlags } from './options.ts';
import { auditorOptions, scopeOf } from './options.ts';
import { stopSignal, UsageError } from './process.ts';

export type Cluster = ReturnType<typeof openCluster>;

/** Throws an Error for people if the configuration is wrong. Connects with the first request. */
export function openCluster(flags: ClusterFlags) {
  const { kubeconfig, context, cluster, user, as, asGroup, requestTimeout } = flags;
  if (asGroup !== undefined && as === undefined) throw new UsageError('--as-group needs --as');
  // In a pod, an incomplete service account is an error. No other cluster may replace it.
  const isInPod = process.env.KUBERNETES_SERVICE_HOST !== undefined;
  if ((kubeconfig ?? context) === undefined && !isInPod && !isConfigured(process.env)) {
    throw new Error(
      'No cluster is configured: no kubeconfig file, and not in a pod. Use --kubeconfig FILE, ' +
        'or --input FILE for a dump or a recording',
    );
  }
  const account = openAccount({
    kubeconfig: kubeconfig ?? null,
    context: context ?? null,
    cluster,
    user,
    as,
    asGroups: asGroup,
  });
  const clock = createClock();
  const environment = createConnection(account, () => clock.now(), {
    ...(requestTimeout === undefined ? {} : { answerWithin: requestTimeout || Infinity }),
    onPlainCredentials: () =>
      fail(`${account.server} is not encrypted: anyone on the network can read the credentials`),
  });
  return { server: account.server, environment, clock, close: () => environment.close() };
}

const ignore = (): void => undefined;

type LiveFlags = AuditFlags & ClusterFlags & AgentsFlags & { readonly events?: boolean };

type LiveListeners = Partial<Pick<AuditorOptions, 'onOpen' | 'onResolve' | 'onJourney'>> & {
  readonly onQuiet?: () => void;
  readonly onTaken?: (entry: AuditorEntry) => void;
  readonly onConnection?: (change: ConnectionChange) => void;
};

/** Prints why the program hangs, so that a failed liveness probe has a reason in the log. */
function printHang(reason: string | null): void {
  if (reason === null) inform('Nothing hangs any more');
  else fail(`${reason}. The liveness probe fails until this is over.`);
}

/** The auditor of a live cluster, and what keeps it up to date; no scraper without --agents. */
export function createLiveAuditor(
  cluster: Cluster,
  flags: LiveFlags,
  onProblem: OnProblem,
  { onQuiet = ignore, onTaken = ignore, onConnection = ignore, ...listeners }: LiveListeners = {},
) {
  const auditor = createAuditor({
    ...auditorOptions(flags, onProblem),
    scope: scopeOf(flags),
    live: true,
    onReportError(node, error) {
      const stack = error instanceof Error ? error.stack : undefined;
      const text = `Its report could not be audited: ${stack ?? String(error)}`;
      onProblem(problemAt(`Agent of node ${node}`, null, text.slice(0, longestStack), {}));
    },
    ...listeners,
  });
  const { environment, clock } = cluster;
  const { endpoints } = flags;
  // The page shows this time until the first answer.
  auditor.advance(clock.now());
  const listening = { onProblem, onQuiet, onTaken, onConnection, onHang: printHang };
  const events = flags.events === true ? { instance: hostname().slice(0, 128) } : undefined;
  const live = connectAuditor({ environment, clock, auditor, endpoints, events, ...listening });
  let isEnded = false;
  const scraper = createAgentScraper(flags, cluster, auditor, live, (problem) => {
    // The connection that ends also ends reviews.
    if (!isEnded) onProblem(problem);
  });
  /** Runs until `stop` is aborted, then closes the cluster. Rejects for a programming error. */
  const run = async (stop: AbortController): Promise<void> => {
    try {
      const auditing = live.run(stop.signal).finally(() => {
        isEnded = true;
        // A review of a token has no signal: it ends with the connection.
        cluster.close();
      });
      await Promise.all([auditing, scraper?.run(stop.signal)]);
    } finally {
      stop.abort();
      cluster.close();
    }
  };
  return { auditor, live, scraper, run };
}

/** Characters of a problem with a stack. */
const longestStack = 1000;

/** The kubelet replaces tokens once per hour. A review for each scrape would be too much load. */
const reviewsOfAgents = { most: 20_000, allowed: 600 };

/** Scrapes the agents and delivers their reports to the auditor; `null` without --agents. */
export function createAgentScraper(
  flags: AgentsFlags & ClusterFlags,
  { clock, environment }: Cluster,
  auditor: Auditor,
  live: LiveAuditor,
  onProblem: OnProblem,
): Scraper | null {
  const { agents, agentsServiceAccount: account, namespaces, excludeNamespaces } = flags;
  if (agents === undefined) return null;
  if (namespaces !== undefined || excludeNamespaces !== undefined) {
    throw new UsageError(
      '--agents needs the whole cluster: no --namespaces, no --exclude-namespaces',
    );
  }
  const key = `${agents.namespace}/${agents.name}`;
  const onReviewProblem = (text: string): void => {
    onProblem(problemAt('Tokens of agents', null, text));
  };
  const review = createReviewer(environment, onReviewProblem, reviewsOfAgents).owner;
  const verify = account === undefined ? null : createNodeVerifier(review, account);
  const credentials = renewedCredentials(flags, environment, onProblem);
  return createScraper({
    client: createAgentClient(credentials, undefined, verify),
    now: () => clock.now(),
    random: () => environment.random(),
    sleep: (seconds, signal) => environment.sleep(seconds, signal),
    slices: () => auditor.slicesOf(key),
    nodes: () => auditor.store.listers.nodes.keys(),
    isAsked: (node) => isNodeInScope(auditor.options.scope, node),
    deliver: live.deliver,
    onTrouble(node, why) {
      onProblem(problemAt(`Agent of node ${node}`, null, why, {}));
    },
  });
}

/** Seconds between two looks for another token or certificate. */
const renewalSeconds = 30;

/**
 * Credentials that are read again from time to time: the same object while the files are the same,
 * or cannot be read. Throws at first as `credentialsOf` does.
 */
export function renewedCredentials(
  flags: AgentsFlags,
  { monotonic }: Pick<Environment, 'monotonic'>,
  onProblem: OnProblem,
): () => AgentCredentials {
  let known = credentialsOf(flags);
  // The clock of the audit stops while it was set back.
  let readAt = monotonic();
  let problem = '';
  return () => {
    if (monotonic() - readAt < renewalSeconds) return known;
    readAt = monotonic();
    try {
      const next = credentialsOf(flags);
      if (JSON.stringify(next) !== JSON.stringify(known)) known = next;
      problem = '';
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      if (text !== problem) onProblem(problemAt('Credentials for agents', null, text));
      problem = text;
    }
    return known;
  };
}

/** Throws an Error for people if flags conflict or a file cannot be read. */
function credentialsOf(flags: AgentsFlags): AgentCredentials {
  const { agents, agentsTokenFile, agentsCa, agentsCert, agentsKey, agentsServerName } = flags;
  if ((agentsCert === undefined) !== (agentsKey === undefined)) {
    throw new UsageError('--agents-cert and --agents-key belong together');
  }
  const read = (path?: string): string | undefined =>
    path === undefined ? path : readFileSync(path, 'utf8');
  const token = read(agentsTokenFile)?.trim() ?? null;
  if (token === '') throw new Error(`${String(agentsTokenFile)}: The token is empty`);
  const isPlain = [agentsCa, agentsCert, agentsServerName].every((value) => value === undefined);
  if (isPlain) return { token, tls: null };
  const readPem = (kind: Parameters<typeof checkPem>[0], path?: string): string | undefined =>
    path === undefined ? path : checkPem(kind, readFileSync(path, 'utf8'), path);
  const servername = agentsServerName ?? `${agents?.name ?? ''}.${agents?.namespace ?? ''}.svc`;
  const ca = readPem('certificate', agentsCa);
  const cert = readPem('certificate', agentsCert);
  const key = readPem('private key', agentsKey);
  if (cert !== undefined && key !== undefined) checkPair(cert, key, String(agentsKey));
  return { token, tls: { ca, cert, key, servername } };
}

/**
 * Seconds: without an answer until that is printed and until the audit gives up, of confirmation
 * after the settle window, that agents may prolong the audit, to wait for an agent without a
 * report, and between two checks.
 */
const limits = {
  notice: 1.5,
  requestTimeout: 10,
  confirmation: 15,
  rounds: 240,
  agentSilence: 15,
  poll: 0.05,
};

/** Reasons that do not go away by themselves: the audit ends at once. */
const lasting: readonly FailureReason[] = [
  'tls',
  'exec',
  'credentials',
  'unauthorized',
  'not_kubernetes',
];

/** What has not answered yet. */
const silenceOf = ({ environment }: Cluster): string => {
  const plugin = environment.runningPlugin();
  return plugin === null ? 'no answer' : `no answer from the exec plugin ${plugin}`;
};

/** Whether nothing has come from the API server: no answer, no bytes and no failure. */
const isSilent = ({ connection, status }: ReturnType<typeof createReflectors>): boolean =>
  connection.lost() === null &&
  !connection.hasAnswered() &&
  [...status.values()].every(({ counters }) => counters.bytes === 0);

/** Objects that came, and complete lists, which may have none. */
const objectsOf = ({ events, repeated, unreadable, lists }: WatchStatus['counters']): number =>
  events + repeated + unreadable + lists;

/** Prints after a moment that no answer of the API server has come, if that is so. */
export function noteSilence(cluster: Cluster, { reflectors }: LiveAuditor, signal: AbortSignal) {
  cluster.clock.after(limits.notice, () => {
    if (signal.aborted || !isSilent(reflectors)) return;
    inform(`Waiting for the API server ${cluster.server}: ${silenceOf(cluster)} yet`);
  });
}

/** Prints why there is no first answer of the API server, and decides when to give up. */
export function followAnswers(
  cluster: Cluster,
  reflectors: () => ReturnType<typeof createReflectors>,
  { requestTimeout: seconds = limits.requestTimeout }: ClusterFlags,
) {
  const { clock, server } = cluster;
  let heard = { objects: 0, at: clock.now() };
  let isNoticed = false;
  const limit = seconds === 0 ? 'no time limit' : `up to ${seconds} s`;
  return {
    onConnection(change: ConnectionChange): void {
      if (change.kind === 'restored' || lasting.includes(change.failure.reason)) return;
      isNoticed = true;
      const { message } = change.failure;
      fail(`${failureText(change.failure)} ${server}: ${message}. Retrying (${limit}).`);
    },
    /** Whether to give up. */
    isOver(now: number): boolean {
      const { connection, status, areListed } = reflectors();
      const lost = connection.lost();
      // Not bytes: a server may send some of them forever.
      const objects = [...status.values()].reduce(
        (sum, { counters }) => sum + objectsOf(counters),
        0,
      );
      // All has arrived once every list is complete; the evaluation of many Services takes time.
      if ((objects > heard.objects && lost === null) || areListed()) heard = { objects, at: now };
      if (isSilent(reflectors()) && !isNoticed && now - heard.at >= limits.notice) {
        isNoticed = true;
        inform(`Waiting for the API server ${server}: ${silenceOf(cluster)} yet (${limit})`);
      }
      if (lost !== null && lasting.includes(lost.reason)) return true;
      return seconds > 0 && now - heard.at >= seconds;
    },
    reason(): string {
      const lost = reflectors().connection.lost();
      if (lost !== null) return connectionText(server, lost);
      if (!isSilent(reflectors())) {
        return `Cannot read from the API server ${server}: no object came within ${seconds} s`;
      }
      return `Cannot reach the API server ${server}: ${silenceOf(cluster)} within ${seconds} s`;
    },
  };
}

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
  const answers = followAnswers(cluster, () => live.reflectors, flags);
  const { auditor, live, scraper, run } = createLiveAuditor(cluster, flags, onProblem, {
    onConnection: (change) => answers.onConnection(change),
  });
  const longest = flags.settle + limits.confirmation + (scraper === null ? 0 : limits.rounds);
  const { clock, server } = cluster;
  let begunAt: number | null = null;
  const end = { reason: null as string | null };
  const isOver = (now: number): boolean => {
    if (auditor.serviceAuditor() === null) {
      // The stop ends an exec plugin that the reason names.
      if (answers.isOver(now)) end.reason = answers.reason();
      return end.reason !== null || areServicesRefused(live);
    }
    begunAt ??= now;
    if (now > begunAt + longest) return true;
    const areDone = scraper === null || (now > begunAt + 1 && areAgentsDone(auditor, scraper, now));
    return areDone && isDone(auditor);
  };
  const poll = (): void => {
    if (stop.signal.aborted) return;
    if (isOver(clock.now())) stop.abort();
    else clock.after(limits.poll, poll);
  };
  clock.after(limits.poll, poll);
  await run(stop);
  if (auditor.serviceAuditor() === null) {
    if (areServicesRefused(live)) {
      throw new Error(`No Services could be read from ${server}: there is nothing to audit`);
    }
    if (end.reason === null) throw new Error('Stopped before the first lists were complete');
    const awaited = auditor.awaited().join(', ');
    if (awaited === '') throw new Error(end.reason);
    throw new Error(`${end.reason.replace(/\.$/v, '')}. Incomplete lists: ${awaited}`);
  }
  warnIfUnverified(auditor);
  return auditor;
}

/** Whether everything has been listed but Services, without which nothing is audited. */
const areServicesRefused = ({ reflectors, watches }: Pick<LiveAuditor, 'reflectors' | 'watches'>) =>
  reflectors.areListed() && watches.get('services')?.state === 'off';

/** Whether every agent has reported or failed, and no difference on a node is pending. */
const areAgentsDone = (auditor: Auditor, scraper: Scraper, now: number): boolean =>
  [...scraper.status().values()].every(
    ({ state, seenAt, since }) =>
      state !== 'stale' || seenAt !== null || now - since >= limits.agentSilence,
  ) && (auditor.nodes()?.pendingSince ?? null) === null;

const everyService: Within = () => true;

/** Differences of some Services that are neither findings nor gone. */
export function pendingIn({ findings }: Auditor, within: Within) {
  const waiting = [...findings.waiting()].filter(({ item }) => !item.gone);
  return [...findings.pending(), ...waiting].filter(({ namespace, service }) =>
    within(namespace, service),
  );
}

/** Whether every watch is synced and no difference of some Services is pending. */
export function isSettled(auditor: Auditor, within = everyService): boolean {
  const states = [...auditor.progress.inputs.values()].map(({ state }) => state);
  if (!states.every((state) => state === 'synced' || state === 'off')) return false;
  return pendingIn(auditor, within).length === 0;
}

/** Names the namespaces that have no Services, once, and whether they exist where that is known. */
export function createNamespaceCheck(cluster: Cluster, namespaces: readonly string[]) {
  let texts: readonly string[] | null = namespaces.length === 0 ? [] : null;
  let isAsked = false;
  const ask = async (auditor: Auditor): Promise<void> => {
    const empty = namespaces.filter((name) => isEmpty(auditor, name));
    const found = await Promise.all(empty.map((name) => doesNamespaceExist(cluster, name)));
    texts = empty.map(
      (name, index) =>
        `Namespace ${name} ${found[index] === false ? 'does not exist' : 'has no Services'}`,
    );
  };
  return {
    /** Starts the check, and returns what there is to say; `null` while that is unknown. */
    texts(auditor: Auditor): readonly string[] | null {
      if (!isAsked) void ask(auditor);
      isAsked = true;
      return texts;
    },
  };
}

/** Services count even if another controller writes their endpoints. */
const isEmpty = ({ store, mayRead }: Auditor, namespace: string): boolean =>
  mayRead('services', namespace) &&
  ![...store.listers.services.values()].some((service) => service.namespace === namespace);

/**
 * Whether a namespace exists; `null` if that is unknown, such as without the permission to get it.
 * No role of the chart has that permission.
 */
async function doesNamespaceExist(
  { environment }: Cluster,
  namespace: string,
): Promise<boolean | null> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
  const request = { path, query: {}, accept: 'application/json' };
  const { signal } = new AbortController();
  return exchange(environment, request, { total: 5 }, signal, ({ status }) =>
    status === 200 ? true : status === 404 ? false : null,
  ).catch(() => null);
}
