// Caches what kube-proxies watch, by Service: the Service and the EndpointSlices that name it, now
// and in earlier versions. Rules that match an earlier version show since when a node is stale.
// Objects are immutable, so a version costs only what has changed.

import type { Change, EndpointSlice, Key, Service, Listers } from '../../model/objects.ts';
import { setLatest } from '../../model/collections.ts';
import { slicesByService } from '../../shadow/forwarding.ts';

export interface ServiceVersion {
  /** null if the Service did not exist. */
  readonly service: Service | null;
  readonly slices: readonly EndpointSlice[];
  /** Unix seconds. */
  readonly until: number;
}

/** Most nodes report more often than `seconds`: older changes are of no use to them. */
const limits = { versions: 64, services: 4096, changes: 65_536, seconds: 600 };

export type ProxyCache = ReturnType<typeof createProxyCache>;

export function createProxyCache(listers: Pick<Listers, 'services' | 'slices'>) {
  const slices = new Map(slicesByService(listers.slices.values()));
  const past = new Map<Key, ServiceVersion[]>();
  let revision = 0;
  /** Of Services or their slices: when, in Unix seconds, and the revision after the change. */
  let changes: { readonly key: Key; readonly at: number; readonly revision: number }[] = [];
  /** The length at which old changes are dropped. */
  let full = 1024;
  const dropOldChanges = (at: number): void => {
    const recent = changes.findIndex((change) => change.at > at - limits.seconds);
    changes = changes.slice(Math.max(recent, changes.length - limits.changes));
    full = changes.length + 1024;
  };
  const addVersion = (key: Key, service: Service | null, until: number): void => {
    revision++;
    changes.push({ key, at: until, revision });
    if (changes.length >= full) dropOldChanges(until);
    const versions = past.get(key) ?? [];
    setLatest(past, key, versions, limits.services);
    versions.push({ service, slices: slices.get(key) ?? [], until });
    if (versions.length > limits.versions) versions.shift();
  };
  return {
    services: listers.services,
    slices: slices as ReadonlyMap<Key, readonly EndpointSlice[]>,
    past: past as ReadonlyMap<Key, readonly ServiceVersion[]>,
    revision: (): number => revision,
    /** Changes after a revision, oldest first, as far as they are cached. */
    changesSince: (after: number) =>
      changes.slice(Math.max(0, after - (revision - changes.length))),
    apply({ resource, before, after, at }: Change): void {
      if (resource === 'services') {
        const object = after ?? before;
        if (object !== null) addVersion(object.key, before as Service | null, at);
      }
      if (resource !== 'endpointslices') return;
      const grouped = (it: Change['before']) =>
        slicesByService(it === null ? [] : [it as EndpointSlice]);
      const [old, now] = [grouped(before), grouped(after)];
      for (const key of new Set([...old.keys(), ...now.keys()])) {
        const service = listers.services.get(key) ?? null;
        // The key of the Service, since each slice has a text of its own.
        addVersion(service?.key ?? key, service, at);
        const kept = (slices.get(key) ?? []).filter((slice) => slice !== before);
        const list = [...kept, ...(now.get(key) ?? [])];
        if (list.length === 0) slices.delete(key);
        else slices.set(key, list);
      }
    },
  };
}
