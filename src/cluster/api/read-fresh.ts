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

/** Reads Services of a namespace with their objects, by name. Rejects if any list fails. */
export async function readServices(
  options: FreshReaderOptions,
  namespace: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, ReadService>> {
  const [name = '', ...others] = names;
  const isAlone = others.length === 0;
  const list = <R extends Resource>(resource: R, query: Record<string, string>) =>
    readList(options, resource, namespace, isAlone ? query : {}, signal);
  const byName = { fieldSelector: `metadata.name=${name}` };
  const services = await list('services', byName);
  const wanted = services.objects.find(({ selector }) => selector !== null)?.selector ?? null;
  const [endpoints, endpointslices, pods] = await Promise.all([
    options.endpoints ? list('endpoints', byName) : null,
    list('endpointslices', { labelSelector: `${label.serviceName}=${name}` }),
    options.pods && (wanted !== null || !isAlone)
      ? list('pods', { labelSelector: selectorText(wanted ?? {}) })
      : null,
  ]);
  const named = <T extends { readonly name: string }>({ objects }: { objects: readonly T[] }) =>
    Map.groupBy(objects, (object) => object.name);
  const servicesByName = named(services);
  const endpointsByName = named(endpoints ?? { objects: [] });
  const slices = Map.groupBy(endpointslices.objects, ({ labels }) => labels[label.serviceName]);
  const podsOf = podsByPair(pods?.objects ?? []);
  return new Map(
    names.map((name) => {
      const found = servicesByName.get(name) ?? [];
      const selector = found[0]?.selector ?? null;
      const read = together(
        { ...services, objects: found },
        endpoints && { ...endpoints, objects: endpointsByName.get(name) ?? [] },
        { ...endpointslices, objects: slices.get(name) ?? [] },
        selector && pods && { ...pods, objects: podsOf(selector) },
      );
      return [name, read];
    }),
  );
}

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

/** Pods by selector: one pair of it leads to few, which are looked at. */
function podsByPair(pods: readonly Pod[]): (selector: Labels) => Pod[] {
  const pairs = pods.flatMap((pod) =>
    Object.entries(pod.labels).map(([key, value]) => ({ pair: `${key}=${value}`, pod })),
  );
  const byPair = Map.groupBy(pairs, ({ pair }) => pair);
  return (selector) => {
    const [key, value] = Object.entries(selector).at(-1) ?? ['', ''];
    const candidates = byPair.get(`${key}=${value}`) ?? [];
    return candidates.map(({ pod }) => pod).filter(({ labels }) => selects(selector, labels));
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
  return exchange(environment, request, limits, signal, async ({ status, headers, body }) => {
    const codec = codecOf(headers['content-type']);
    if (status !== 200 || codec === null) throw new Error(`${path}: ${status}`);
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
  });
}
