// What kube-proxies are told of each Service, now and in the past: the Service and the slices that
// name it. The past is kept so that rules which are no longer right can be recognized as those of
// an earlier moment, which tells since when a node is not kept up to date.
//
// Objects never change, so that the past costs what has changed since. It is bounded: of a Service
// the last versions, and of all Services those that changed last.

import type { Change, EndpointSlice, Key, Service, Listers } from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { slicesByService } from '../../shadow/forwarding.ts';

/** A Service as it was until then; null: there was none. */
export interface ServiceVersion {
  readonly service: Service | null;
  readonly slices: readonly EndpointSlice[];
  /** Unix seconds. */
  readonly until: number;
}

/** That something changed of what is told of a Service. */
export interface ServiceChange {
  readonly key: Key;
  /** Unix seconds. */
  readonly at: number;
  /** The revision that it made. */
  readonly revision: number;
}

export interface ProxyCache {
  readonly services: ReadonlyMap<Key, Service>;
  readonly slices: ReadonlyMap<Key, readonly EndpointSlice[]>;
  /** Services that have a past, by key: oldest first. */
  readonly past: ReadonlyMap<Key, readonly ServiceVersion[]>;
  /** Becomes another number whenever something changes. */
  revision(): number;
  /** Changes after a revision, oldest first; of very many, the last. */
  changesSince(revision: number): Iterable<ServiceChange>;
  /** Takes in one change, which the snapshot already holds. */
  apply(change: Change): void;
}

const bounds = { versions: 64, services: 4096, changes: 65_536 };

/** Begins with what the snapshot holds, and without a past. */
export function createProxyCache(listers: Listers): ProxyCache {
  const slices = new Map(slicesByService(listers.slices.values()));
  const past = new Map<Key, ServiceVersion[]>();
  let revision = 0;
  let changes: ServiceChange[] = [];
  const note = (key: Key, service: Service | null, until: number): void => {
    revision++;
    changes.push({ key, at: until, revision });
    if (changes.length > 2 * bounds.changes) changes = changes.slice(-bounds.changes);
    const known = past.get(key) ?? [];
    // What changed last comes last.
    past.delete(key);
    past.set(key, known);
    known.push({ service, slices: slices.get(key) ?? [], until });
    if (known.length > bounds.versions) known.shift();
    const [oldest] = past.keys();
    if (past.size > bounds.services && oldest !== undefined) past.delete(oldest);
  };
  return {
    services: listers.services,
    slices,
    past,
    revision: () => revision,
    *changesSince(after) {
      // Each change makes one revision.
      const missed = revision - changes.length;
      for (let index = Math.max(0, after - missed); index < changes.length; index++) {
        const change = changes[index];
        if (change !== undefined) yield change;
      }
    },
    apply({ resource, before, after, at }) {
      if (resource === 'services') {
        const object = after ?? before;
        if (object !== null) note(object.key, before as Service | null, at);
      }
      if (resource !== 'endpointslices') return;
      const [old, now] = [before as EndpointSlice | null, after as EndpointSlice | null];
      const keys = new Set([old, now].flatMap((slice) => (slice === null ? [] : keyOf(slice))));
      for (const key of keys) {
        note(key, listers.services.get(key) ?? null, at);
        const others = (slices.get(key) ?? []).filter((slice) => slice !== old);
        const own = now !== null && keyOf(now).includes(key) ? [...others, now] : others;
        if (own.length === 0) slices.delete(key);
        else slices.set(key, own);
      }
    },
  };
}

/** The Service that a slice names; none: it names none. */
function keyOf({ namespace, labels }: EndpointSlice): readonly Key[] {
  const service = labels[label.serviceName] ?? '';
  return service === '' ? [] : [`${namespace}/${service}`];
}
