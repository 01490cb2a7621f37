// Reads Services and their objects again, to confirm differences before they become findings. One
// Service is read by its name and selector. Several Services of a namespace are read by one list
// per resource, because the API server scans all pods of the namespace for each selector.
//
// Every list asks for the newest state (no resourceVersion), so what it shows is not older than the
// request. The lists are not of one moment: each has its version. The selected pods are read after
// the Services.

import type { Key, Labels, ObjectOf, Pod, Resource } from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { compareVersions } from '../../model/resource-version.ts';
import { selectorText, selects } from '../../model/selector.ts';
import { paths } from './listwatch.ts';
import type { Environment } from './transport/request.ts';
import { exchange } from './transport/request.ts';
import { acceptOf, codecOf } from './watch-codec.ts';

/** A list and its version. */
export interface FreshReader<R extends Resource> {
  readonly objects: readonly ObjectOf[R][];
  readonly resourceVersion: string;
}

/** What was read of one Service. */
export interface ReadService {
  readonly services: FreshReader<'services'>;
  /** null: not asked for. */
  readonly endpoints: FreshReader<'endpoints'> | null;
  readonly endpointslices: FreshReader<'endpointslices'>;
  /** null: not asked for, or the Service is gone or has no selector. */
  readonly pods: FreshReader<'pods'> | null;
  /** The oldest of the versions: all that was written up to it has been seen. */
  readonly resourceVersion: string;
}

interface Failed {
  readonly kind: 'failed';
  readonly message: string;
}

export type Reread = ({ readonly kind: 'read' } & ReadService) | Failed;

export interface FreshReaderOptions {
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
  options: FreshReaderOptions,
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
    return { kind: 'read', ...together(services, endpoints, endpointslices, pods) };
  } catch (error) {
    return failed(error);
  }
}

/** Reads all that a namespace has, once, and gives each of the Services its own, by name. */
export async function readServices(
  options: FreshReaderOptions,
  namespace: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly kind: 'read'; readonly all: ReadonlyMap<string, ReadService> } | Failed> {
  const list = <R extends Resource>(resource: R) =>
    readList(options, resource, namespace, {}, signal);
  try {
    const services = await list('services');
    const [endpoints, endpointslices, pods] = await Promise.all([
      options.endpoints ? list('endpoints') : null,
      list('endpointslices'),
      options.pods ? list('pods') : null,
    ]);
    const [serviceOf, endpointsOf] = [byName(services), byName(endpoints)];
    const slicesOf = Map.groupBy(endpointslices.objects, ({ labels }) => labels[label.serviceName]);
    const podsOf = podsByPair(pods?.objects ?? []);
    const all = new Map<string, ReadService>();
    for (const name of names) {
      const found = serviceOf(name);
      const selector = found[0]?.selector ?? null;
      const read = together(
        { ...services, objects: found },
        endpoints === null ? null : { ...endpoints, objects: endpointsOf(name) },
        { ...endpointslices, objects: slicesOf.get(name) ?? [] },
        pods === null || selector === null ? null : { ...pods, objects: podsOf(selector) },
      );
      all.set(name, read);
    }
    return { kind: 'read', all };
  } catch (error) {
    return failed(error);
  }
}

const failed = (error: unknown): Failed => ({
  kind: 'failed',
  message: error instanceof Error ? error.message : String(error),
});

function together(
  services: FreshReader<'services'>,
  endpoints: FreshReader<'endpoints'> | null,
  endpointslices: FreshReader<'endpointslices'>,
  pods: FreshReader<'pods'> | null,
): ReadService {
  const reads = [services, endpoints, endpointslices, pods].filter((read) => read !== null);
  const versions = reads.map(({ resourceVersion }) => resourceVersion);
  const resourceVersion = versions.reduce((a, b) => (compareVersions(b, a) === -1 ? b : a));
  return { services, endpoints, endpointslices, pods, resourceVersion };
}

/** The objects of a list by their names. */
function byName<R extends Resource>(read: FreshReader<R> | null): (name: string) => ObjectOf[R][] {
  const named = new Map((read?.objects ?? []).map((object) => [object.name, object]));
  return (name) => {
    const object = named.get(name);
    return object === undefined ? [] : [object];
  };
}

/** Pods by selector: one pair of it leads to few, which are looked at. */
function podsByPair(pods: readonly Pod[]): (selector: Labels) => Pod[] {
  const byPair = new Map<string, Pod[]>();
  for (const pod of pods) {
    for (const [key, value] of Object.entries(pod.labels)) {
      const pair = `${key}=${value}`;
      const there = byPair.get(pair);
      if (there === undefined) byPair.set(pair, [pod]);
      else there.push(pod);
    }
  }
  return (selector) => {
    const [key, value] = Object.entries(selector).at(-1) ?? ['', ''];
    const some = byPair.get(`${key}=${value}`) ?? [];
    return some.filter(({ labels }) => selects(selector, labels));
  };
}

async function readList<R extends Resource>(
  { environment, previousPod }: FreshReaderOptions,
  resource: R,
  namespace: string,
  query: Record<string, string>,
  signal: AbortSignal,
): Promise<FreshReader<R>> {
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
