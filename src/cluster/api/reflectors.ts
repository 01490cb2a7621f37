// The five reflectors of an auditor together. Lists go one at a time, the largest last; the API
// server counts each as up to ten requests.
//
// The version of the control plane is read before anything else, and again after the connection was
// lost, since an upgrade may be the reason. GET /version is open to all who are authenticated
// (ClusterRole system:public-info-viewer).

import { json } from 'node:stream/consumers';

import type { Resource } from '../../model/objects.ts';
import { isFields } from '../decode/json-fields.ts';
import type { ReflectorOptions, WatchStatus } from './reflector.ts';
import { createReflector } from './reflector.ts';
import type { ApiAnswer } from './transport/http2.ts';
import { createGate } from './transport/mutex.ts';
import type { Environment } from './transport/request.ts';
import { exchange } from './transport/request.ts';
import type { CachedObjects } from './version-filter.ts';

export interface ReflectorsOptions extends Pick<
  ReflectorOptions,
  'environment' | 'deliver' | 'onProblem' | 'watchList' | 'raw'
> {
  /** The cached objects; they contain the delivered changes once `deliver` has resolved. */
  readonly held: (resource: Resource) => CachedObjects;
  /** Whether Endpoints are watched. */
  readonly endpoints: boolean;
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
  const { held, endpoints } = options;
  const watched = order.filter((resource) => endpoints || resource !== 'endpoints');
  const gate = createGate();
  const versions = createVersionReader(options, watched);
  const onLost = () => versions.readAgain();
  const reflectors = watched.map((resource) =>
    createReflector({ ...options, resource, held: held(resource), gate, onLost }),
  );
  return {
    status: new Map(reflectors.map(({ resource, status }) => [resource, status])),
    async run(signal) {
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      try {
        await versions.readFirst(either);
        const runs = [...reflectors, versions].map((running) => running.run(either));
        await Promise.all(runs);
      } finally {
        failed.abort();
      }
    },
  };
}

interface VersionReader {
  /** Delivers what is watched, and the version. */
  readFirst(signal: AbortSignal): Promise<void>;
  /** Reads the version again whenever that was asked for. */
  run(signal: AbortSignal): Promise<void>;
  readAgain(): void;
}

function createVersionReader(
  { environment, deliver }: ReflectorsOptions,
  watched: readonly Resource[],
): VersionReader {
  let known: string | null = null;
  let wanted = Promise.withResolvers<null>();
  const read = async (signal: AbortSignal) => {
    const kubernetes = await readVersion(environment, signal);
    if (signal.aborted || (known !== null && (kubernetes === null || kubernetes === known))) return;
    known = kubernetes;
    await deliver([{ kind: 'header', at: environment.now(), kubernetes, resources: watched }]);
  };
  return {
    async readFirst(signal) {
      const off = order.filter((resource) => !watched.includes(resource));
      const at = environment.now();
      if (off.length > 0) {
        await deliver(off.map((resource) => ({ kind: 'watch', at, resource, state: 'off' })));
      }
      await read(signal);
    },
    async run(signal) {
      signal.addEventListener('abort', () => wanted.resolve(null));
      while (!signal.aborted) {
        await wanted.promise;
        wanted = Promise.withResolvers();
        await read(signal);
      }
    },
    readAgain: () => wanted.resolve(null),
  };
}

/** The version of the control plane; null if it has none. Retries until there is an answer. */
async function readVersion(environment: Environment, signal: AbortSignal): Promise<string | null> {
  const request = { path: '/version', query: {}, accept: 'application/json' };
  const limits = { mayBeSilent: false, total: versionSeconds };
  let pause: number = versionPause.first;
  while (!signal.aborted) {
    try {
      const version = await exchange(environment, request, limits, signal, readVersionAnswer);
      if (version !== undefined) return version;
    } catch {
      // No answer is final.
    }
    await environment.sleep(pause * (1 + environment.random()), signal);
    pause = Math.min(pause * 2, versionPause.most);
  }
  return null;
}

/** undefined if the answer is not final. */
async function readVersionAnswer({ status, body }: ApiAnswer): Promise<string | null | undefined> {
  if (status !== 200) return status === 403 || status === 404 ? null : undefined;
  const info: unknown = await json(body);
  return isFields(info) && typeof info.gitVersion === 'string' ? info.gitVersion : null;
}
