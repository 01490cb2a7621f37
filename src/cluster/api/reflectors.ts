// The five reflectors of an auditor together. Lists go one at a time, the largest last; the API
// server counts each as up to ten requests.
//
// The version of the control plane is read before anything else, and again after the connection was
// lost, since an upgrade may be the reason. GET /version is open to all who are authenticated
// (ClusterRole system:public-info-viewer).

import { json } from 'node:stream/consumers';

import type { Resource } from '../../model/objects.ts';
import { isFields } from '../decode/json-fields.ts';
import type { ReflectorOptions } from './listwatch.ts';
import { createReflector } from './reflector.ts';
import type { ApiAnswer } from './transport/http2.ts';
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

export type Reflectors = ReturnType<typeof createReflectors>;

const order: readonly Resource[] = ['nodes', 'services', 'pods', 'endpointslices', 'endpoints'];

/** Seconds between attempts to read the version, doubled up to the most. */
const versionPause = { first: 1, most: 30 } as const;

/** Seconds for an answer to it. */
const versionSeconds = 30;

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
  const { environment, held, deliver, endpoints } = options;
  const watched = order.filter((resource) => endpoints || resource !== 'endpoints');
  const enterGate = createGate();
  let known: string | null = null;
  let lost = Promise.withResolvers<null>();
  const onLost = () => lost.resolve(null);
  const reflectors = watched.map((resource) =>
    createReflector({ ...options, resource, held: held(resource), enterGate, onLost }),
  );
  const deliverVersion = async (signal: AbortSignal) => {
    const kubernetes = await readVersion(environment, signal);
    if (signal.aborted || (known !== null && (kubernetes === null || kubernetes === known))) return;
    known = kubernetes;
    await deliver([{ kind: 'header', at: environment.now(), kubernetes, resources: watched }]);
  };
  const followVersion = async (signal: AbortSignal) => {
    signal.addEventListener('abort', onLost);
    while (!signal.aborted) {
      await lost.promise;
      lost = Promise.withResolvers();
      await deliverVersion(signal);
    }
  };
  return {
    /** The resources that are watched. */
    status: new Map(reflectors.map(({ resource, status }) => [resource, status])),
    /** Runs until the signal is aborted; rejects only when `deliver` does. */
    async run(signal: AbortSignal): Promise<void> {
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      try {
        const off = order.filter((resource) => !watched.includes(resource));
        const at = environment.now();
        if (off.length > 0) {
          await deliver(off.map((resource) => ({ kind: 'watch', at, resource, state: 'off' })));
        }
        await deliverVersion(either);
        await Promise.all([...reflectors.map(({ run }) => run(either)), followVersion(either)]);
      } finally {
        failed.abort();
      }
    },
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
