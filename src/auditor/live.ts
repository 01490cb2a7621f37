// A live cluster and an auditor, put together: what the reflectors deliver goes to the loop, what
// the auditor holds goes back to them, and reads that confirm go over the same connection.

import type { FreshRead } from '../audit/pending/confirm.ts';
import type { ReadService } from '../cluster/api/read-fresh.ts';
import { readService, readServices } from '../cluster/api/read-fresh.ts';
import type { Reflectors } from '../cluster/api/reflectors.ts';
import { createReflectors } from '../cluster/api/reflectors.ts';
import type { Environment } from '../cluster/api/transport/request.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import { cachedObjects } from '../cluster/store/store.ts';
import type { Key } from '../model/objects.ts';
import type { Auditor, Entry } from './auditor.ts';
import type { MonotonicClock } from './event-loop.ts';
import { createEventLoop } from './event-loop.ts';

export interface LiveAuditorOptions {
  readonly environment: Environment;
  readonly clock: MonotonicClock;
  readonly auditor: Auditor;
  /** Whether Endpoints are watched. */
  readonly endpoints: boolean;
  readonly onProblem: OnProblem;
  /** Called whenever the queue is empty. */
  readonly onQuiet: () => void;
}

export interface LiveAuditor {
  /** Runs until the signal is aborted; rejects for an error of ours. */
  run(signal: AbortSignal): Promise<void>;
  /** Why nothing is taken in any more, for people; null: it is. */
  stuck(): string | null;
  /** State and counters of each watch. */
  readonly watches: Reflectors['status'];
  /** Takes in what comes from elsewhere; resolves when it is taken in. */
  readonly deliver: (entry: Entry) => Promise<void>;
}

export function connectAuditor(options: LiveAuditorOptions): LiveAuditor {
  const { environment, clock, auditor, endpoints, onProblem } = options;
  const stop = new AbortController();
  const broken = Promise.withResolvers<never>();
  const live = createEventLoop({
    auditor,
    clock,
    reread: (namespace, names) => reread(options, namespace, names, stop.signal),
    onError: (error) => {
      broken.reject(error);
    },
    onQuiet: options.onQuiet,
  });
  const reflectors = createReflectors({
    environment,
    held: (resource) => cachedObjects(auditor.store)[resource],
    deliver: (entries) => live.deliver(entries),
    onProblem,
    endpoints,
    watchList: true,
    raw: false,
  });
  return {
    async run(signal) {
      signal.addEventListener('abort', () => {
        stop.abort();
      });
      try {
        await Promise.race([reflectors.run(signal), broken.promise]);
      } finally {
        stop.abort();
        live.stop();
      }
    },
    stuck: () => live.stuck(),
    watches: reflectors.status,
    deliver: (entry) => live.deliver([entry]),
  };
}

/** Services of a namespace as they are now; rejects where they cannot be read. */
async function reread(
  { environment, endpoints, auditor }: LiveAuditorOptions,
  namespace: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, FreshRead>> {
  const reading = {
    environment,
    endpoints: endpoints && auditor.store.listers.knows('endpoints'),
    pods: auditor.store.listers.knows('pods'),
    previousPod: (key: Key) => auditor.store.listers.pods.get(key),
  };
  const [name = '', ...others] = names;
  if (others.length === 0) {
    const read = await readService(reading, namespace, name, signal);
    if (read.kind === 'failed') throw new Error(read.message);
    return new Map([[name, rereadOf(read)]]);
  }
  const read = await readServices(reading, namespace, names, signal);
  if (read.kind === 'failed') throw new Error(read.message);
  return new Map([...read.all].map(([each, of]) => [each, rereadOf(of)]));
}

function rereadOf(read: ReadService): FreshRead {
  const listed = <T>(list: { objects: readonly T[]; resourceVersion: string }) => ({
    objects: list.objects,
    version: list.resourceVersion,
  });
  return {
    service: read.services.objects[0] ?? null,
    endpoints: read.endpoints === null ? null : listed(read.endpoints),
    slices: listed(read.endpointslices),
    pods: read.pods === null ? null : listed(read.pods),
    version: read.resourceVersion,
  };
}
