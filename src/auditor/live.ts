// A live cluster: reflectors deliver their entries to the event loop, and the event loop confirms
// differences by fresh reads over the same connection.

import type { FreshRead } from '../audit/pending/confirm.ts';
import type { ConnectionChange } from '../cluster/api/connection-state.ts';
import { readNodes, readServices } from '../cluster/api/read-fresh.ts';
import { createReflectors } from '../cluster/api/reflector.ts';
import type { Environment } from '../cluster/api/transport/request.ts';
import { type OnProblem, problemAt } from '../cluster/decode/problem.ts';
import type { Key, Resource } from '../model/objects.ts';
import { listedNamespaces } from '../model/scope.ts';
import type { AuditorEntry } from './auditor.ts';
import { createEventLoop, type EventLoopOptions } from './event-loop.ts';
import { createEventRecorder } from './incident/event-recorder.ts';
import { readManagersOfIncidents } from './incident/manager-reads.ts';

export interface LiveOptions extends Pick<
  EventLoopOptions,
  'auditor' | 'clock' | 'onQuiet' | 'onTaken'
> {
  readonly environment: Environment;
  readonly endpoints: boolean;
  /** Record Events on Services as this process; without it nothing is written. */
  readonly events?: { readonly instance: string } | undefined;
  readonly onProblem: OnProblem;
  /** Called with the reason why the input hangs, and with `null` when it goes on. */
  readonly onHang?: (reason: string | null) => void;
  /** Called when the connection to the API server is lost or restored. */
  readonly onConnection?: (change: ConnectionChange) => void;
}

export type LiveAuditor = ReturnType<typeof connectAuditor>;

export function connectAuditor(options: LiveOptions) {
  const { environment, clock, auditor, endpoints, onProblem } = options;
  const stop = new AbortController();
  const broken = Promise.withResolvers<never>();
  const loop = createEventLoop({
    auditor,
    clock,
    reread: (namespace, names) => reread(options, namespace, names, stop.signal),
    hang: oncePerSecond(clock, () => reflectors.hang() ?? describeLag(auditor, clock.now())),
    onHang: (reason) => options.onHang?.(reason),
    skew: () => environment.skew?.() ?? null,
    onClock: (text) => onProblem(problemAt('Clock', null, text)),
    onGap: (resource, key) => reflectors.relist(resource, key),
    onError: (error) => broken.reject(error),
    onQuiet: options.onQuiet,
    onTaken: (entry) => options.onTaken?.(entry),
  });
  const reflectors = createReflectors({
    environment,
    held: (resource) => auditor.held(resource),
    deliver: (entries) => loop.deliver(entries),
    onProblem,
    onConnection: (change) => options.onConnection?.(change),
    endpoints,
    namespaces: listedNamespaces(auditor.options.scope),
    watchList: true,
    raw: false,
  });
  const recorder = recorderOf(options);
  return {
    /** The Events that were written; `null` without the option. */
    events: recorder?.counts ?? null,
    /** Runs until the signal is aborted. Rejects for a programming error. */
    async run(signal: AbortSignal): Promise<void> {
      signal.addEventListener('abort', () => stop.abort());
      try {
        // The clock runs before the first answer.
        void loop.deliver([{ kind: 'clock', at: clock.now() }]);
        void readManagersOfIncidents({ environment, ...auditor }, stop.signal);
        void recorder?.run(stop.signal);
        await Promise.race([reflectors.run(signal), broken.promise]);
      } finally {
        stop.abort();
        loop.stop();
      }
    },
    stuck: () => loop.stuck(),
    /** State and counters of each watch. */
    watches: reflectors.status,
    reflectors,
    /** Delivers an entry of another source. Resolves when it is taken in. */
    deliver: (entry: AuditorEntry) => loop.deliver([entry]),
  };
}

function recorderOf({ environment, auditor, events, onProblem }: LiveOptions) {
  if (events === undefined) return null;
  const { services } = auditor.store.listers;
  return createEventRecorder({
    environment,
    incidents: () => auditor.incidents.list(),
    uidOf: (key) => services.get(key)?.uid ?? null,
    instance: events.instance,
    onFailure: (reason) => onProblem(problemAt('Events', null, `Not recorded: ${reason}`)),
  });
}

/** Seconds until a version that a read has shown must have arrived on its watch. */
const mostLag = 600;

/** Which watches lag although they are connected; `null` if none does. */
function describeLag(
  { progress }: Pick<LiveOptions['auditor'], 'progress'>,
  now: number,
): string | null {
  const lagging = progress.lagging(mostLag, now);
  if (lagging.length === 0) return null;
  const which = lagging.join(', ');
  return `The watch of ${which} lags: it lacks what a read has shown ${mostLag} s ago`;
}

/** Asks at most once per second: the streams may owe thousands of versions. */
function oncePerSecond<T>(clock: LiveOptions['clock'], ask: () => T): () => T {
  let known: { readonly at: number; readonly answer: T } | null = null;
  return () => {
    const at = clock.monotonic();
    if (known === null || at - known.at >= 1) known = { at, answer: ask() };
    return known.answer;
  };
}

/** Without a namespace it reads all Nodes. Rejects if a list fails. */
async function reread(
  { environment, endpoints, auditor }: LiveOptions,
  namespace: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, FreshRead>> {
  const { listers } = auditor.store;
  const reading = {
    environment,
    mayRead: (resource: Resource) =>
      (endpoints || resource !== 'endpoints') && auditor.mayRead(resource, namespace),
    previousPod: (key: Key) => listers.pods.get(key),
  };
  if (namespace === '') return new Map([['', await readNodes(reading, signal)]]);
  return readServices(reading, namespace, names, signal);
}
