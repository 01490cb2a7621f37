// The five reflectors of an auditor together: nothing else is read of the cluster, but the version
// of its control plane. Lists go one at a time, those that judging needs first and the largest last
// of what it needs; the API server counts each as up to ten requests.
//
// The version is read before anything else, and again after the connection was lost, since the
// control plane may have been upgraded meanwhile. GET /version is open to all who are authenticated
// (ClusterRole system:public-info-viewer).

import type { Resource } from '../../model/objects.ts';
import type { WatchState } from '../decode/entry.ts';
import { isFields } from '../decode/json-fields.ts';
import type { OnProblem } from '../decode/problem.ts';
import type { DeliverBatch } from './batch-queue.ts';
import type { Reflector } from './reflector.ts';
import { createReflector } from './reflector.ts';
import { createGate } from './transport/mutex.ts';
import type { Environment } from './transport/request.ts';
import { exchange } from './transport/request.ts';
import type { CachedObjects } from './version-filter.ts';
import type { WatchCounters } from './watch-counters.ts';

export interface ReflectorsOptions {
  readonly environment: Environment;
  /** The cached objects; they contain the delivered changes once `deliver` has resolved. */
  readonly held: (resource: Resource) => CachedObjects;
  /** Called for one batch of a resource at a time; that resource waits until it resolves. */
  readonly deliver: DeliverBatch;
  readonly onProblem: OnProblem;
  /** Whether Endpoints are watched. */
  readonly endpoints: boolean;
  /** Whether to try WatchList before pages. */
  readonly watchList: boolean;
  /** Whether events carry the raw object, for a recording. */
  readonly raw: boolean;
}

export interface WatchStatus {
  readonly state: WatchState;
  /** Unix seconds. */
  readonly since: number;
  readonly counters: WatchCounters;
}

export interface Reflectors {
  /** Runs until the signal is aborted; rejects only when `deliver` does. */
  run(signal: AbortSignal): Promise<void>;
  /** The resources that are watched. */
  readonly status: ReadonlyMap<Resource, WatchStatus>;
}

const order: readonly Resource[] = ['nodes', 'services', 'pods', 'endpointslices', 'endpoints'];

/** Seconds between attempts to read the version, doubled up to the most. */
const versionPause = { first: 1, most: 30 } as const;

/** Seconds for an answer to it. */
const versionSeconds = 30;

export function createReflectors(options: ReflectorsOptions): Reflectors {
  const { environment, held, deliver, onProblem, watchList, raw } = options;
  const watched = order.filter((resource) => options.endpoints || resource !== 'endpoints');
  const gate = createGate();
  let lost: () => void = () => undefined;
  const onLost = () => lost();
  const common = { environment, deliver, onProblem, gate, watchList, raw, onLost };
  const reflectors = new Map<Resource, Reflector>(
    watched.map((resource) => [
      resource,
      createReflector({ ...common, resource, held: held(resource) }),
    ]),
  );
  return {
    status: new Map(
      [...reflectors].map(([resource, { status, counters }]) => [
        resource,
        {
          get state() {
            return status.state;
          },
          get since() {
            return status.since;
          },
          counters,
        },
      ]),
    ),
    async run(signal) {
      const controller = new AbortController();
      const stop = () => controller.abort();
      signal.addEventListener('abort', stop);
      if (signal.aborted) stop();
      const tell = createTeller(options, watched, controller.signal);
      lost = tell.again;
      try {
        await tell.first();
        const runs = [...reflectors.values()].map((reflector) => reflector.run(controller.signal));
        await Promise.all([...runs, tell.run()]);
      } finally {
        signal.removeEventListener('abort', stop);
        controller.abort();
      }
    },
  };
}

interface Teller {
  /** Delivers what is watched, and the version. */
  readonly first: () => Promise<void>;
  /** Reads the version again whenever that was asked for. */
  readonly run: () => Promise<void>;
  readonly again: () => void;
}

function createTeller(
  { environment, deliver }: ReflectorsOptions,
  watched: readonly Resource[],
  signal: AbortSignal,
): Teller {
  let known: string | null = null;
  let wanted = false;
  let wake: () => void = () => undefined;
  const tell = async () => {
    const kubernetes = await readVersion(environment, signal);
    if (signal.aborted || (known !== null && (kubernetes === null || kubernetes === known))) return;
    known = kubernetes;
    await deliver([{ kind: 'header', at: environment.now(), kubernetes, resources: watched }]);
  };
  return {
    async first() {
      const off = order.filter((resource) => !watched.includes(resource));
      const at = environment.now();
      if (off.length > 0) {
        await deliver(off.map((resource) => ({ kind: 'watch', at, resource, state: 'off' })));
      }
      await tell();
    },
    async run() {
      signal.addEventListener('abort', () => wake());
      while (!signal.aborted) {
        if (!wanted) await new Promise<void>((resolve) => (wake = resolve));
        wanted = false;
        await tell();
      }
    },
    again() {
      wanted = true;
      wake();
    },
  };
}

/** The version of the control plane; null if it has none. Retries until there is an answer. */
async function readVersion(environment: Environment, signal: AbortSignal): Promise<string | null> {
  let pause: number = versionPause.first;
  while (!signal.aborted) {
    const version = await askVersion(environment, signal);
    if (version !== undefined) return version;
    await environment.sleep(pause * (1 + environment.random()), signal);
    pause = Math.min(pause * 2, versionPause.most);
  }
  return null;
}

/** undefined without a final answer. */
async function askVersion(
  environment: Environment,
  signal: AbortSignal,
): Promise<string | null | undefined> {
  const request = { path: '/version', query: {}, accept: 'application/json' };
  const limits = { mayBeSilent: false, total: versionSeconds };
  try {
    const { answer, body, end } = await exchange(environment, request, limits, signal);
    try {
      const chunks: Uint8Array[] = [];
      for await (const chunk of body) chunks.push(chunk);
      const { status } = answer;
      if (status !== 200) return status === 403 || status === 404 ? null : undefined;
      const info: unknown = JSON.parse(Buffer.concat(chunks).toString());
      return isFields(info) && typeof info.gitVersion === 'string' ? info.gitVersion : null;
    } finally {
      end();
    }
  } catch {
    return undefined;
  }
}
