// Reads one Service with all that belongs to it anew, to confirm a difference before it is told.
//
// Every list asks for the newest state (no resourceVersion), so what it shows is not older than the
// request. The lists are not of one moment: each tells its version. What the Service selects is
// read after it.

import { compareVersions } from '../model/version.ts';
import { label } from '../model/objects.ts';
import { exchange } from './exchange.ts';
import { acceptOf, codecOf } from './frames.ts';
import { paths } from './listwatch.ts';

import type { Key, ObjectOf, Pod, Resource } from '../model/objects.ts';
import { selectorText } from '../model/selector.ts';
import type { Environment } from './exchange.ts';

/** A list, and the version as of which it is true. */
export interface Read<R extends Resource> {
  readonly objects: readonly ObjectOf[R][];
  readonly resourceVersion: string;
}

export type Reread =
  | {
      readonly kind: 'read';
      readonly services: Read<'services'>;
      /** null: not asked for. */
      readonly endpoints: Read<'endpoints'> | null;
      readonly endpointslices: Read<'endpointslices'>;
      /** null: not asked for, or the Service is gone or has no selector. */
      readonly pods: Read<'pods'> | null;
      /** The oldest of the versions: all that was written up to it has been seen. */
      readonly resourceVersion: string;
    }
  | { readonly kind: 'failed'; readonly message: string };

export interface RereadOptions {
  readonly environment: Environment;
  /** Whether Endpoints are read. */
  readonly endpoints: boolean;
  /** Whether pods are. */
  readonly pods: boolean;
  readonly previousPod: (key: Key) => Pod | undefined;
}

/** Seconds for each of the lists. */
const listSeconds = 15;

/** Reads a Service, its Endpoints, its slices and its pods. Never throws for what is read. */
export async function readService(
  options: RereadOptions,
  namespace: string,
  name: string,
  signal: AbortSignal,
): Promise<Reread> {
  const named = { fieldSelector: `metadata.name=${name}` };
  const list = <R extends Resource>(resource: R, query: Record<string, string>) =>
    readList(options, resource, namespace, query, signal);
  try {
    const services = await list('services', named);
    const selector = options.pods ? (services.objects[0]?.selector ?? null) : null;
    const [endpoints, endpointslices, pods] = await Promise.all([
      options.endpoints ? list('endpoints', named) : null,
      list('endpointslices', { labelSelector: `${label.serviceName}=${name}` }),
      selector === null ? null : list('pods', { labelSelector: selectorText(selector) }),
    ]);
    const reads = [services, endpoints, endpointslices, pods].filter((read) => read !== null);
    const versions = reads.map(({ resourceVersion }) => resourceVersion);
    const resourceVersion = versions.reduce((a, b) => (compareVersions(b, a) === -1 ? b : a));
    return { kind: 'read', services, endpoints, endpointslices, pods, resourceVersion };
  } catch (error) {
    return { kind: 'failed', message: error instanceof Error ? error.message : String(error) };
  }
}

async function readList<R extends Resource>(
  { environment, previousPod }: RereadOptions,
  resource: R,
  namespace: string,
  query: Record<string, string>,
  signal: AbortSignal,
): Promise<Read<R>> {
  const path = paths[resource].replace(/\/(\w+)$/, `/namespaces/${namespace}/$1`);
  const request = { path, query, accept: acceptOf('list', false) };
  const limits = { mayBeSilent: false, total: listSeconds };
  const { answer, body, end } = await exchange(environment, request, limits, signal);
  try {
    const codec = codecOf(answer.headers['content-type']);
    if (answer.status !== 200 || codec === null) throw new Error(`${path}: ${answer.status}`);
    const objects: ObjectOf[R][] = [];
    let resourceVersion: string | null = null;
    const reading = { resource, now: () => environment.now(), previousPod, raw: false };
    for await (const frames of codec.list(body, reading)) {
      for (const frame of frames) {
        if (frame.kind === 'page') resourceVersion = frame.version;
        else if (frame.kind === 'object' && frame.projection.problem === undefined) {
          objects.push(frame.projection.object as ObjectOf[R]);
        } else throw new Error(`${path}: An object cannot be read`);
      }
    }
    if (resourceVersion === null) throw new Error(`${path}: The list ended early`);
    return { objects, resourceVersion };
  } finally {
    end();
  }
}
