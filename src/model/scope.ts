// Which part of a cluster is audited: namespaces that are named, or all but some, and of these the
// Services of one shard, and the rules of its nodes. Every shard keeps pods and Nodes, which any
// Service may need. One that audits rules of nodes keeps the Services of all shards for that.

import { type AnyObject, type EndpointSlice, label, type Resource, resources } from './objects.ts';

export type Scope = Readonly<typeof wholeCluster>;

export const wholeCluster = {
  /** null: all. */
  namespaces: null as readonly string[] | null,
  excluded: [] as readonly string[],
  /** One of `count` shards, from 0. */
  shard: null as { readonly index: number; readonly count: number } | null,
  /** Whether Endpoints are audited, and with them the slices that mirror them. */
  endpoints: true,
  /** Whether agents are asked for the rules of their nodes. */
  agents: false,
};

/** FNV-1a, 32 bits without sign, over the UTF-8 of ASCII texts. */
export function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}

export function isInNamespaces({ namespaces, excluded }: Scope, namespace: string): boolean {
  if (excluded.includes(namespace)) return false;
  return namespaces === null || namespaces.includes(namespace);
}

/** The namespaces to list and watch, each by itself; `null`: the whole cluster at once. */
export const listedNamespaces = ({ namespaces, excluded }: Scope): readonly string[] | null =>
  namespaces && [...new Set(namespaces)].filter((name) => !excluded.includes(name));

/** The resources that a live auditor gets from one stream per namespace. */
export const mergedResources = (scope: Scope): readonly Resource[] =>
  (listedNamespaces(scope) ?? []).length > 1
    ? resources.filter((resource) => resource !== 'nodes')
    : [];

/** Whether a name is of the shard, by a hash that never changes: replicas of any version agree. */
const isInShard = ({ shard }: Scope, name: string): boolean =>
  shard === null || fnv1a(name) % shard.count === shard.index;

/** Whether the rules of a node are audited. One shard audits them, for the Services of all. */
export const isNodeInScope = (scope: Scope, name: string): boolean =>
  scope.agents && isInShard(scope, name);

/** Whether the rules of nodes depend on more Services than are audited. */
export const needsAllServices = ({ agents, shard }: Scope): boolean => agents && shard !== null;

/** Whether the Service of this name, or what is written for it, is in the scope. */
export function isServiceInScope(scope: Scope, namespace: string, name: string): boolean {
  return isInNamespaces(scope, namespace) && isInShard(scope, `${namespace}/${name}`);
}

/** Whether an object can have a say in what is audited. */
export function isInScope(scope: Scope, resource: Resource, object: AnyObject): boolean {
  const { namespace, name } = object;
  if (resource === 'nodes') return true;
  if (resource === 'pods') return isInNamespaces(scope, namespace);
  if (resource === 'endpoints' && !scope.endpoints) return false;
  if (resource !== 'endpointslices') return isServiceInScope(scope, namespace, name);
  // Those that were taken from a Service by their label are still its own by their owner.
  const { labels, owners } = object as EndpointSlice;
  const theirs = owners.filter(({ kind }) => kind === 'Service' || kind === 'Endpoints');
  const names = [labels[label.serviceName] ?? '', ...theirs.map((owner) => owner.name)];
  return names.some((serviceName) => isServiceInScope(scope, namespace, serviceName));
}
