// The reflectors of an auditor. Each lists and watches one resource of the API server, and recovers
// from every failure, as k8s.io/client-go@v0.36.3 tools/cache/reflector.go does. In addition, the
// cache keeps all objects until a new list is complete, versions never go back (version-filter.ts),
// every unused frame is counted, and the state of the watch is always known.
//
//   list (WatchList, or pages) ──► synced ──► watch ──► ended ──► watch …
//     ▲                                        └─ gone, expired, disorder, history went back ─┐
//     └───────────────────────────────────────────────────────────────────────────────────────┘
//
// Where namespaces are named, each resource but the Nodes has a reflector per namespace, and
// merged-streams.ts makes one stream of these.
//
// Lists ask for the newest state (no resourceVersion), unlike upstream's first list
// (docs/decisions/0007), one at a time, since the API server counts each as up to ten requests.

import type { ConnectionFailure } from '../../model/connection.ts';
import type { Key, Resource } from '../../model/objects.ts';
import { isFields } from '../decode/json-fields.ts';
import { problemAt, valueText } from '../decode/problem.ts';
import { type DeliverBatch, Undeliverable } from './batch-queue.ts';
import type { ConnectionChange, ConnectionReports, ConnectionState } from './connection-state.ts';
import { createConnectionState } from './connection-state.ts';
import type { Following, ReflectorOptions, WatchStatus } from './listwatch.ts';
import { enter, list, newFollowing, newStatus, prove, watch } from './listwatch.ts';
import { mergedStatus, mergeStreams } from './merged-streams.ts';
import type { ApiAnswer } from './transport/connection.ts';
import {
  describeFailure,
  GivenUp,
  MissingCredentials,
  UnexpectedAnswer,
} from './transport/failure.ts';
import { bodyText, type Environment, exchange } from './transport/request.ts';
import type { CachedObjects } from './version-filter.ts';
import { parse } from './watch-codec.ts';
import { denialText, failed, type RelistReason, type WatchResult } from './watch-result.ts';

export interface ReflectorsOptions extends Pick<
  ReflectorOptions,
  'environment' | 'deliver' | 'onProblem' | 'watchList' | 'raw'
> {
  readonly held: (resource: Resource) => CachedObjects;
  readonly endpoints: boolean;
  /** The namespaces to list and watch, each by itself; `null`: the whole cluster. */
  readonly namespaces: readonly string[] | null;
  readonly onConnection?: (change: ConnectionChange) => void;
}

const order: readonly Resource[] = ['nodes', 'services', 'pods', 'endpointslices', 'endpoints'];

/** Lets one through at a time, in the order of asking. */
export function createGate(): ReflectorOptions['enterGate'] {
  let last = Promise.resolve();
  return async () => {
    const before = last;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    last = promise;
    await before;
    return () => resolve(undefined);
  };
}

export function createReflectors(options: ReflectorsOptions) {
  const { environment, deliver, endpoints, onConnection = () => undefined } = options;
  const connection = createConnectionState(() => environment.now(), onConnection);
  const watched = order.filter((resource) => endpoints || resource !== 'endpoints');
  let known: string | null = null;
  let lost = Promise.withResolvers<null>();
  const onLost = () => lost.resolve(null);
  const shared = { enterGate: createGate(), onLost, connection };
  const reflectors = watched.flatMap((resource) => createStreams(options, resource, shared));
  const deliverVersion = async (signal: AbortSignal) => {
    const kubernetes = await readVersion(environment, connection, signal);
    if (signal.aborted || (known !== null && (kubernetes === null || kubernetes === known))) return;
    known = kubernetes;
    await deliver([{ kind: 'header', at: environment.now(), kubernetes, resources: watched }]);
  };
  const followVersion = async (signal: AbortSignal) => {
    signal.addEventListener('abort', onLost);
    while (!signal.aborted) {
      // An upgrade may be why the connection was lost.
      await lost.promise;
      lost = Promise.withResolvers();
      await deliverVersion(signal);
    }
  };
  return {
    /** State and counters of each resource. */
    status: new Map(watched.map((resource) => [resource, statusOf(reflectors, resource)])),
    /** Whether each list is complete, or not permitted. */
    areListed: (): boolean =>
      reflectors.every(({ status }) => status.counters.lists > 0 || status.state === 'off'),
    connection,
    /** Which reflectors hang, for people; `null` if none does. */
    hang(): string | null {
      const isListing = reflectors.some((it) => it.isListing());
      const hangs = reflectors.flatMap((it) => it.hang(isListing) ?? []);
      return hangs.length === 0 ? null : hangs.slice(0, 3).join('; ');
    },
    /** Lists a resource again, since its watch has lost an event of an object. */
    relist(resource: Resource, key: Key): void {
      const isOf = (namespace: string | null): boolean =>
        namespace === null || key.startsWith(`${namespace}/`);
      reflectors.find((it) => it.resource === resource && isOf(it.namespace))?.relist(key);
    },
    /** Runs until the signal is aborted; rejects only when `deliver` does. */
    async run(signal: AbortSignal): Promise<void> {
      const end = new AbortController();
      const either = AbortSignal.any([signal, end.signal]);
      try {
        const off = order.filter((resource) => !watched.includes(resource));
        const at = environment.now();
        if (off.length > 0) {
          await deliver(off.map((resource) => ({ kind: 'watch', at, resource, state: 'off' })));
        }
        await deliverVersion(either);
        await Promise.all([...reflectors.map(({ run }) => run(either)), followVersion(either)]);
      } finally {
        end.abort();
      }
    },
  };
}

type Reflector = ReturnType<typeof createReflector>;

function statusOf(reflectors: readonly Reflector[], resource: Resource): WatchStatus {
  const streams = reflectors.filter((it) => it.resource === resource).map(({ status }) => status);
  return streams.length === 1 && streams[0] ? streams[0] : mergedStatus(streams);
}

/** The reflectors of a resource: one, or one per namespace. */
function createStreams(
  options: ReflectorsOptions,
  resource: Resource,
  shared: Pick<ReflectorOptions, 'enterGate' | 'onLost'> & { readonly connection: ConnectionState },
): Reflector[] {
  const { namespaces } = options;
  const held = options.held(resource);
  const create = (namespace: string | null, deliver: DeliverBatch): Reflector => {
    const stream = `${resource} ${namespace ?? ''}`;
    const connection: ConnectionReports = {
      succeeded: (request) => shared.connection.succeeded(request, stream),
      failed: (request, failure) => shared.connection.failed(request, failure, stream),
    };
    return createReflector({
      ...options,
      ...shared,
      resource,
      namespace,
      deliver,
      connection,
      held: namespace === null ? held : heldIn(held, namespace),
    });
  };
  if (namespaces === null || resource === 'nodes') return [create(null, options.deliver)];
  const [only] = namespaces;
  if (only !== undefined && namespaces.length === 1) return [create(only, options.deliver)];
  return [...mergeStreams(resource, namespaces, options.deliver)].map(([namespace, deliver]) =>
    create(namespace, deliver),
  );
}

/** The cached objects of one namespace. */
const heldIn = (held: CachedObjects, namespace: string): CachedObjects => ({
  get: (key) => held.get(key),
  *values() {
    for (const object of held.values()) if (object.namespace === namespace) yield object;
  },
});

/** The version of the control plane; null if it has none, or when aborted. */
async function readVersion(
  environment: Environment,
  connection: ConnectionState,
  signal: AbortSignal,
): Promise<string | null> {
  const request = { path: '/version', query: {}, accept: 'application/json' };
  const limits = { total: 10 };
  for (let pause = 1; !signal.aborted; pause = Math.min(pause * 2, 30)) {
    try {
      const version = await exchange(environment, request, limits, signal, readVersionAnswer);
      connection.succeeded('version');
      return version;
    } catch (error) {
      if (isAborted({ signal })) break;
      connection.failed('version', failureOf(environment, error));
    }
    await environment.sleep(pause * (1 + environment.random()), signal);
  }
  return null;
}

/** null if it may not be read. Throws an error of describeFailure if the answer is another. */
async function readVersionAnswer({ status, body, expiredAt }: ApiAnswer): Promise<string | null> {
  if (status === 403) return null;
  const content = (await bodyText(body)) ?? '';
  if (status !== 200) throw new UnexpectedAnswer(status, messageOf(content), expiredAt);
  const info = parse(content);
  if (isFields(info) && typeof info.gitVersion === 'string') return info.gitVersion;
  throw new UnexpectedAnswer(200, '');
}

/** The message of a Status, or a short text itself; HTML says nothing to people. */
function messageOf(content: string): string {
  const status = parse(content);
  if (isFields(status)) return typeof status.message === 'string' ? status.message : '';
  return content.includes('<') ? '' : content.slice(0, 200);
}

/** Seconds, as upstream has them; after `denials` refusals in a row a reflector waits longer. */
const backoff = { first: 0.8, most: 30, forgottenAfter: 120, relist: 60, denied: 60, denials: 3 };

/** Seconds between two lists after lost events, first and most; of pages after a WatchList. */
const pauses = { gap: 60, gapMost: 3600, pages: 600 };

export function createReflector(options: ReflectorOptions) {
  const status = newStatus(options.environment.now());
  let following: Following | null = null;
  return {
    resource: options.resource,
    namespace: options.namespace,
    status,
    run: (signal: AbortSignal) => run((following = newFollowing(options, status, signal))),
    /** Whether it lists now, so that others wait. */
    isListing: () => following?.turn === 'listing' && following.needsList,
    /** Why it hangs, for people; `null` if it does not. */
    hang: (isOtherListing: boolean) =>
      following === null ? null : describeHang(following, isOtherListing),
    /** Lists again, since an event of an object was lost; less and less often in an hour. */
    relist: (key: Key) => following !== null && closeGap(following, key),
  };
}

function describeHang(state: Following, isOtherListing: boolean): string | null {
  const { heartbeat, turn, resource, namespace } = state;
  if (isAborted(state) || (turn === 'waiting' && isOtherListing)) return null;
  const overdue = heartbeat.overdue();
  const what = namespace === null ? resource : `${resource} of namespace ${namespace}`;
  return overdue === null ? null : `The reflector of ${what} hangs: it waits for ${overdue}`;
}

function closeGap(state: Following, key: Key): void {
  const { gap, environment, path } = state;
  const now = environment.monotonic();
  if (state.needsList || gap.isOpen || now < gap.after) return;
  const pause = now - gap.after > pauses.gapMost ? pauses.gap : 2 * gap.pause;
  state.gap = { isOpen: true, after: now + pause, pause: Math.min(pause, pauses.gapMost) };
  const message = 'The watch has lost an event of an object. Listing again';
  state.onProblem(problemAt(path, null, message, { object: key }));
  state.cut.abort();
}

async function run(state: Following): Promise<void> {
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
    state.heartbeat.begin('a pause', () => seconds);
    await environment.sleep(seconds, signal);
  }
}

const isAborted = ({ signal }: Pick<Following, 'signal'>): boolean => signal.aborted;

async function attempt(state: Following): Promise<WatchResult> {
  const { environment, provenAt } = state;
  state.cut = new AbortController();
  // After etcd was restored the versions of the server are lower than those that are known, and a
  // watch from there on is silent: no event, no bookmark, no error.
  // A version is doubted after 330 seconds without a proof of it.
  const isInDoubt = state.suspicious || environment.monotonic() - provenAt > 330;
  try {
    if (state.gap.isOpen) throw new Error('An event was lost');
    if (!state.needsList && isInDoubt) {
      const outcome = await prove(state);
      // Who may not list has to do without.
      if (outcome !== null && outcome.kind !== 'denied') return outcome;
    }
    if (!state.needsList) return await watch(state, null);
    const leave = await takeTurn(state);
    try {
      const isWatchList = state.watchList && environment.monotonic() >= state.pagesUntil;
      const byWatch = isWatchList && environment.pings() && state.paging === null;
      return await (byWatch ? watch(state, leave) : list(state));
    } finally {
      leave();
    }
  } catch (error) {
    if (error instanceof Undeliverable) throw error;
    if (state.gap.isOpen) {
      state.gap.isOpen = false;
      return { kind: 'relist', reason: 'gap' };
    }
    const reason = error instanceof GivenUp ? error.reason : 'reset';
    if (reason !== 'silent') {
      noteFailure(state, error);
      return failed(reason);
    }
    return state.needsList ? { kind: 'endless' } : { kind: 'relist', reason: 'starved' };
  }
}

/** Waits for its turn to list. Returns what ends it. */
async function takeTurn(state: Following): Promise<() => void> {
  state.turn = 'waiting';
  state.heartbeat.begin('its turn to list', () => 0);
  const leave = await state.enterGate();
  state.turn = 'listing';
  state.heartbeat.begin('its list', () => 0);
  return () => {
    state.turn = 'none';
    leave();
  };
}

/** A request that waits in vain for an exec plugin fails because of that. */
function failureOf(environment: Environment, error: unknown): ConnectionFailure {
  const plugin = environment.runningPlugin?.() ?? null;
  if (plugin === null || !(error instanceof GivenUp)) return describeFailure(error);
  const message = `no answer from the exec plugin ${plugin} within ${Math.round(error.seconds)} s`;
  return describeFailure(new MissingCredentials('exec', message));
}

/** A watch that the server ends is opened again, which then shows whether the server has gone. */
function noteFailure(state: Following, error: unknown): void {
  const failure = failureOf(state.environment, error);
  const isOpen = state.status.state === 'synced' && failure.reason === 'closed';
  if (!isOpen && !isAborted(state)) state.connection.failed(state.resource, failure);
}

/** Returns the seconds to wait. */
function settle(state: Following, outcome: WatchResult): number {
  const { counters } = state;
  if (outcome.kind !== 'denied') Object.assign(state, { denied: '', denials: 0 });
  switch (outcome.kind) {
    case 'listed':
      return 0;
    case 'ended':
      counters.reconnects.eof++;
      interrupt(state);
      return outcome.seconds;
    case 'relist':
      return relist(state, outcome.reason);
    case 'no-watch-list':
      state.watchList = false;
      return 0;
    case 'endless': {
      counters.reconnects.endless++;
      state.pagesUntil = state.environment.monotonic() + pauses.pages;
      const message = 'A WatchList did not end. Listing in pages';
      state.onProblem(problemAt(state.path, null, message));
      return 0;
    }
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
      counters.reconnects[outcome.reason]++;
      interrupt(state);
      if (['reset', 'idle', 'timeout'].includes(outcome.reason)) state.onLost();
      return backoffSeconds(state);
  }
}

/** A new list: at once, unless a list failed or was complete within the last minute. */
function relist(state: Following, reason: RelistReason): number {
  const { counters, environment, listedAt } = state;
  const isOfList = state.version === null || state.needsList;
  counters.relists[reason]++;
  state.paging = null;
  // As in client-go@v0.37.2 tools/cache/reflector.go: after an error of a WatchList come pages.
  if (isOfList) state.pagesUntil = environment.monotonic() + pauses.pages;
  if (state.version !== null) {
    state.needsList = true;
    if (state.status.state !== 'off') enter(state, 'relisting');
  }
  const isRecent = environment.monotonic() - listedAt < backoff.relist;
  return isOfList || isRecent ? backoffSeconds(state) : 0;
}

/** An API server that has just started knows of no permissions yet, so one refusal says little. */
function deny(state: Following, { verb, status }: Extract<WatchResult, { kind: 'denied' }>) {
  const { path, resource, namespace, counters, environment, onProblem } = state;
  counters.denied++;
  if (++state.denials < backoff.denials) {
    interrupt(state);
    return backoffSeconds(state);
  }
  enter(state, 'off');
  const message = denialText(resource, namespace, verb, status);
  if (state.denied !== message) {
    onProblem(problemAt(path, null, message, { value: valueText(status.message) }));
  }
  state.denied = message;
  return backoff.denied * (1 + environment.random() / 2);
}

function interrupt(state: Following): void {
  if (state.status.state === 'synced') enter(state, 'stale');
}

/** Upstream's: doubled with every failure, up to twice as long by chance. */
function backoffSeconds(state: Following): number {
  const { environment } = state;
  const now = environment.monotonic();
  if (now - state.failedAt > backoff.forgottenAfter) state.failures = 0;
  state.failedAt = now;
  const seconds = Math.min(backoff.first * 2 ** state.failures, backoff.most);
  state.failures++;
  return seconds * (1 + environment.random());
}
