// Reads Services and their objects again, to confirm differences before they become findings.
// Several Services of a namespace are read by one list per resource, because the API server scans
// all pods of the namespace for each selector. Every list asks for the newest state (no
// resourceVersion), and has its own version.

import type { Key, Labels, ObjectOf, Pod, Resource } from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { compareVersions } from '../../model/resource-version.ts';
import { selectorText, selects } from '../../model/selector.ts';
import { pathOf } from './listwatch.ts';
import { type Environment, exchange } from './transport/request.ts';
import { acceptOf, codecOf } from './watch-codec.ts';

interface FreshReaderOptions {
  readonly environment: Environment;
  /** Whether a resource may be read; Services are always read. */
  readonly mayRead: (resource: Resource) => boolean;
  readonly previousPod: (key: Key) => Pod | undefined;
}

/**
 * Reads Services by name. All that was written up to `version`, the oldest of the lists, has been
 * seen. A list is null if it was not asked for, and that of pods also if the Service is gone or has
 * no selector. Rejects if any list fails.
 */
export async function readServices(
  options: FreshReaderOptions,
  namespace: string,
  names: readonly string[],
  signal: AbortSignal,
) {
  const { mayRead } = options;
  const [name = '', ...others] = names;
  const isAlone = others.length === 0;
  const list = <R extends Resource>(resource: R, query: Record<string, string>) =>
    readList(options, resource, namespace, isAlone ? query : {}, signal);
  const byName = { fieldSelector: `metadata.name=${name}` };
  const services = await list('services', byName);
  const wanted = isAlone ? (services.objects[0]?.selector ?? null) : {};
  const [endpoints, slices, pods] = await Promise.all([
    mayRead('endpoints') ? list('endpoints', byName) : null,
    mayRead('endpointslices')
      ? list('endpointslices', { labelSelector: `${label.serviceName}=${name}` })
      : null,
    mayRead('pods') && wanted !== null
      ? list('pods', { labelSelector: selectorText(wanted) })
      : null,
  ]);
  const servicesByName = new Map(services.objects.map((service) => [service.name, service]));
  const endpointsByName = Map.groupBy(endpoints?.objects ?? [], (object) => object.name);
  const slicesOf = Map.groupBy(slices?.objects ?? [], ({ labels }) => labels[label.serviceName]);
  const podsOf = podsByPair(pods?.objects ?? []);
  const readOf = (name: string) => {
    const service = servicesByName.get(name) ?? null;
    const selector = service?.selector ?? null;
    const parts = {
      services: { ...services, objects: service === null ? [] : [service] },
      endpoints: endpoints && { ...endpoints, objects: endpointsByName.get(name) ?? [] },
      endpointslices: slices && { ...slices, objects: slicesOf.get(name) ?? [] },
      pods: selector && pods && { ...pods, objects: podsOf(selector) },
    };
    const versions = Object.values(parts).flatMap((read) => read?.version ?? []);
    const version = versions.reduce((a, b) => (compareVersions(b, a) === -1 ? b : a));
    return { ...parts, version };
  };
  return new Map(names.map((name) => [name, readOf(name)]));
}

/** Reads all Nodes. Rejects if the list fails. */
export async function readNodes(options: FreshReaderOptions, signal: AbortSignal) {
  const nodes = await readList(options, 'nodes', null, {}, signal);
  return { nodes, version: nodes.version };
}

/** Returns a function that finds what a selector selects, by the rarest pair of the selector. */
export function podsByPair(pods: readonly Pod[]): (selector: Labels) => Pod[] {
  const pairs = pods.flatMap((pod) =>
    Object.entries(pod.labels).map(([key, value]) => ({ pair: `${key}=${value}`, pod })),
  );
  const byPair = Map.groupBy(pairs, ({ pair }) => pair);
  return (selector) => {
    const wanted = Object.entries(selector).map(([key, value]) => `${key}=${value}`);
    // Only pods with its rarest pair are compared: all pods of a namespace may share another one.
    const found = wanted.map((pair) => byPair.get(pair) ?? []);
    const [rarest = []] = found.sort((a, b) => a.length - b.length);
    return rarest.flatMap(({ pod }) => (selects(selector, pod.labels) ? pod : []));
  };
}

async function readList<R extends Resource>(
  { environment, previousPod }: FreshReaderOptions,
  resource: R,
  namespace: string | null,
  query: Record<string, string>,
  signal: AbortSignal,
) {
  const path = pathOf(resource, namespace);
  const request = { path, query, accept: acceptOf('list', false) };
  return exchange(environment, request, { total: 15 }, signal, async (answer) => {
    const { status, headers, body } = answer;
    const codec = codecOf(headers['content-type']);
    if (status !== 200 || codec === null) throw new Error(`${path}: ${status}`);
    const objects: ObjectOf[R][] = [];
    let version: string | null = null;
    const reading = { resource, now: () => environment.now(), previousPod, raw: false };
    for await (const frames of codec.list(body, reading)) {
      for (const frame of frames) {
        if (frame.kind === 'page' && !frame.isOther) ({ version } = frame);
        else if (frame.kind === 'object' && frame.projection.problem === undefined) {
          objects.push(frame.projection.object as ObjectOf[R]);
        } else throw new Error(`${path}: An object cannot be read`);
      }
    }
    if (version === null) throw new Error(`${path}: The list ended early`);
    return { objects, version };
  });
}
