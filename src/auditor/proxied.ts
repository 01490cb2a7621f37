// What kube-proxies watch: the Services and EndpointSlices of all shards, and the Nodes. Without
// agents or without shards, the store of the audit has all of them.

import type { NodeListers } from '../audit/node/nodes.ts';
import { createStore, type Store } from '../cluster/store/store.ts';
import type {
  AnyObject,
  Change,
  EndpointSlice,
  Key,
  Resource,
  WatchEvent,
} from '../model/objects.ts';
import { needsAllServices, type Scope } from '../model/scope.ts';

const proxied: ReadonlySet<Resource> = new Set(['services', 'endpointslices', 'nodes']);

/** The store of what kube-proxies watch, beside the store of the audit if that is not enough. */
export function createProxied(scope: Scope, store: Store) {
  const { objects, listers } = store;
  const own = needsAllServices(scope) ? createStore(new Set(proxied)) : null;
  const { services, slices, nodes } = (own ?? { listers }).listers;
  const nodeListers: NodeListers = { services, slices, nodes, podsAt: (ip) => listers.podsAt(ip) };
  return {
    listers: nodeListers,
    /** With the slices by Service; `null` if there are no Services but those of the audit. */
    others: (slicesOf: (service: Key) => readonly EndpointSlice[]) =>
      own && { ...nodeListers, slicesOf },
    /** The objects of a resource that the input keeps up to date. */
    held: (resource: Resource): ReadonlyMap<Key, AnyObject> =>
      (own !== null && proxied.has(resource) ? own.objects : objects)[resource],
    /** A list of the resource is complete, in both stores. */
    listed(resource: Resource): void {
      store.listed(resource);
      own?.listed(resource);
    },
    /** Applies an event that made a change of the audit, or none; returns the change here. */
    apply(event: WatchEvent, audited: Change | null): Change | null {
      if (own === null || !proxied.has(event.resource)) return audited;
      // Both stores share the object.
      const object = event.type === 'deleted' ? event.object : (audited?.after ?? event.object);
      return own.apply({ ...event, object });
    },
  };
}
