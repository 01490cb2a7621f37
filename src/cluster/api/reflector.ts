// Lists and watches one resource of the API server, and recovers from every failure, as
// k8s.io/client-go@v0.36.3 tools/cache/reflector.go does. In addition, an auditor needs this: the
// cache keeps all objects until a new list is complete, versions never go back (version-filter.ts),
// every unused frame is counted, and the state of the watch is always known.
//
//   list (WatchList, or pages) ──► synced ──► watch ──► ended ──► watch …
//     ▲                                        └─ gone, expired, disorder, history went back ─┐
//     └───────────────────────────────────────────────────────────────────────────────────────┘
//
// Lists ask for the newest state (no resourceVersion), which the API server answers by a quorum
// read or a cache that is as new; upstream's first list may be older. docs/decisions/0007 says why.
//
// Clock, random numbers and sockets come from the environment.

import type { Key, Pod, Resource } from '../../model/objects.ts';
import type { WatchState } from '../decode/entry.ts';
import type { OnProblem } from '../decode/problem.ts';
import { problemAt, valueText } from '../decode/problem.ts';
import type { DeliverBatch } from './batch-queue.ts';
import { createBatchQueue, Undeliverable } from './batch-queue.ts';
import type { Following } from './listwatch.ts';
import { list, paths, prove, watch } from './listwatch.ts';
import type { Gate } from './transport/mutex.ts';
import type { Environment } from './transport/request.ts';
import type { CachedObjects } from './version-filter.ts';
import type { ReconnectReason, RelistReason, WatchCounters, WatchResult } from './watch-result.ts';
import { denialText, newCounters, outcomeOfError } from './watch-result.ts';

export interface ReflectorOptions {
  readonly resource: Resource;
  readonly environment: Environment;
  /** The cached objects; they contain the delivered changes once `deliver` has resolved. */
  readonly held: CachedObjects;
  /** Nothing more is read before it resolves. */
  readonly deliver: DeliverBatch;
  readonly onProblem: OnProblem;
  /** Lists pass through it. */
  readonly gate: Gate;
  /** Whether to try WatchList before pages. */
  readonly watchList: boolean;
  /** Whether events carry the raw object. */
  readonly raw: boolean;
  /** The connection was lost: the server may be another. */
  readonly onLost: () => void;
}

export interface Reflector {
  /** Runs until the signal is aborted; rejects only when `deliver` does. */
  run(signal: AbortSignal): Promise<void>;
  readonly resource: Resource;
  readonly status: Readonly<WatchStatus>;
}

export interface WatchStatus {
  state: WatchState;
  /** Unix seconds. */
  since: number;
  readonly counters: WatchCounters;
}

/**
 * Seconds, as upstream has them; after `denials` refusals for want of a permission a reflector
 * waits longer than any of upstream's.
 */
const backoff = { first: 0.8, most: 30, forgottenAfter: 120, relist: 60, denied: 60, denials: 3 };

/** Seconds without any version from the server before one is asked for. */
const proofSeconds = 330;

interface State extends Following, Pick<ReflectorOptions, 'gate' | 'onLost'> {
  readonly status: WatchStatus;
  /** Failures in a row, and the monotonic time of the last. */
  failures: number;
  failedAt: number;
  /** Refusals for want of a permission in a row, and the one that was reported. */
  denials: number;
  denied: string;
}

export function createReflector(options: ReflectorOptions): Reflector {
  const { resource, environment } = options;
  const counters = newCounters();
  const status: WatchStatus = { state: 'listing', since: environment.now(), counters };
  return { resource, status, run: (signal) => run(newState(options, status, signal)) };
}

function newState(options: ReflectorOptions, status: WatchStatus, signal: AbortSignal): State {
  const { resource, environment, raw } = options;
  const delivery = createBatchQueue(environment, options.held, options.deliver, signal);
  const previousPod = (key: Key) => delivery.current.get(key) as Pod | undefined;
  const state: State = {
    ...options,
    signal,
    delivery,
    status,
    counters: status.counters,
    reading: { resource, now: () => environment.now(), previousPod, raw },
    raws: new WeakMap(),
    established: () => enter(state, 'synced'),
    version: null,
    needsList: true,
    paging: null,
    doubts: 0,
    doubtedAt: 0,
    suspicious: false,
    provenAt: 0,
    listedAt: -Infinity,
    bad: { place: '', count: 0 },
    failures: 0,
    failedAt: -Infinity,
    denials: 0,
    denied: '',
  };
  return state;
}

async function run(state: State): Promise<void> {
  const { delivery, environment, signal } = state;
  enter(state, 'listing');
  await delivery.flush();
  while (!signal.aborted) {
    const outcome = await attempt(state);
    if (isAborted(state)) break;
    const seconds = settle(state, outcome);
    await delivery.flush();
    if (seconds === 0) continue;
    state.suspicious = true; // whatever happened to the server meanwhile
    await environment.sleep(seconds, signal);
  }
}

const isAborted = ({ signal }: State): boolean => signal.aborted;

async function attempt(state: State): Promise<WatchResult> {
  const { environment, provenAt } = state;
  // After etcd was restored the versions of the server are lower than those that are known, and a
  // watch from there on is silent: no event, no bookmark, no error.
  const isInDoubt = state.suspicious || environment.monotonic() - provenAt > proofSeconds;
  try {
    if (!state.needsList && isInDoubt) {
      const outcome = await prove(state);
      // Who may not list has to do without.
      if (outcome !== null && outcome.kind !== 'denied') return outcome;
    }
    if (!state.needsList) return await watch(state, null);
    const leave = await state.gate.enter();
    try {
      const byWatch = state.watchList && environment.pings() && state.paging === null;
      return await (byWatch ? watch(state, leave) : list(state));
    } finally {
      leave();
    }
  } catch (error) {
    if (error instanceof Undeliverable) throw error;
    return outcomeOfError(error);
  }
}

/** Counts a result, reports the state that follows, and returns the seconds to wait. */
function settle(state: State, outcome: WatchResult): number {
  const { counters } = state;
  if (outcome.kind !== 'denied') Object.assign(state, { denied: '', denials: 0 });
  switch (outcome.kind) {
    case 'listed':
      return 0;
    case 'ended':
      counters.reconnects.eof++;
      interrupt(state);
      return outcome.short ? backoffSeconds(state) : 0;
    case 'relist':
      return relist(state, outcome.reason);
    case 'no-watch-list':
      state.watchList = false;
      return 0;
    case 'throttled': {
      counters.throttled++;
      interrupt(state);
      // Clients that got the same answer must not all come back at once.
      const { seconds } = outcome;
      return seconds === null ? backoffSeconds(state) : seconds + state.environment.random();
    }
    case 'unauthorised':
      counters.unauthorised++;
      interrupt(state);
      return backoffSeconds(state);
    case 'denied':
      return deny(state, outcome);
    case 'failed':
      return fail(state, outcome.reason);
  }
}

function fail(state: State, reason: ReconnectReason): number {
  state.counters.reconnects[reason]++;
  interrupt(state);
  if (reason === 'reset' || reason === 'idle' || reason === 'timeout') state.onLost();
  return backoffSeconds(state);
}

/** A new list: at once, unless the last one was only just complete. */
function relist(state: State, reason: RelistReason): number {
  const { counters, environment, listedAt } = state;
  counters.relists[reason]++;
  state.paging = null;
  if (state.version !== null) {
    state.needsList = true;
    if (state.status.state !== 'off') enter(state, 'relisting');
  }
  return environment.monotonic() - listedAt < backoff.relist ? backoffSeconds(state) : 0;
}

/** An API server that has just started knows of no permissions yet, so one refusal says little. */
function deny(state: State, { verb, status }: Extract<WatchResult, { kind: 'denied' }>): number {
  const { resource, counters, environment, onProblem } = state;
  counters.denied++;
  if (++state.denials < backoff.denials) {
    interrupt(state);
    return backoffSeconds(state);
  }
  enter(state, 'off');
  const message = denialText(resource, verb, status);
  if (state.denied !== message) {
    onProblem(problemAt(paths[resource], null, message, { value: valueText(status.message) }));
  }
  state.denied = message;
  return backoff.denied * (1 + environment.random() / 2);
}

function enter(state: State, next: WatchState): void {
  const { status, environment, delivery, resource } = state;
  const at = environment.now();
  if (status.state === next && next !== 'listing') return;
  Object.assign(status, { state: next, since: at });
  delivery.add({ kind: 'watch', at, resource, state: next });
}

/** An open watch has ended. */
function interrupt(state: State): void {
  if (state.status.state === 'synced') enter(state, 'stale');
}

/** Upstream's: doubled with every failure, up to twice as long by chance. */
function backoffSeconds(state: State): number {
  const { environment } = state;
  const now = environment.monotonic();
  if (now - state.failedAt > backoff.forgottenAfter) state.failures = 0;
  state.failedAt = now;
  const seconds = Math.min(backoff.first * 2 ** state.failures, backoff.most);
  state.failures++;
  return seconds * (1 + environment.random());
}
