// Rules that were right once. Where a node differs from what is expected now, what was expected
// earlier is tried: if the node does exactly that, it is known when the expectation went on without
// it. Is that so, and has nothing that changed since come to the node, then it is the node that is
// left behind, with one cause, and not its Services one by one.
//
// Left out: Nodes as they were. Their zones and addresses hardly change.

import type { EndpointSlice, Key, Service } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';
import { expectedForwarding } from '../../shadow/forwarding.ts';
import type { PacketDifference } from './aggregate.ts';
import { differenceKey } from './aggregate.ts';
import { auditNode, isServedAsExpected } from './audit-node.ts';
import type { NodeInput } from './node-behavior.ts';
import type { ServiceVersion, ProxyCache } from './proxy-cache.ts';

/** One node with its rules, and what is known of its past as long as they stand. */
export interface ObservedNode extends Pick<NodeInput, 'node' | 'rules'> {
  readonly config: ProxyConfig;
  readonly proxied: ProxyCache;
  /** When the expectation left what the node does, by Service; null: it never was so. */
  readonly left: Map<Key, Divergence>;
}

/** When the expectation left what the node does, and up to when that was tried. */
export interface Divergence {
  readonly at: number | null;
  readonly tried: number;
}

export interface NodeStaleness {
  /** The first change that did not come to the node, Unix seconds. */
  readonly since: number;
  readonly services: ReadonlySet<Key>;
}

/**
 * Whether the node is left behind. `standing` are its differences that have stood for long enough,
 * `differing` names all Services that differ at all.
 */
export function staleness(
  observer: ObservedNode,
  standing: readonly PacketDifference[],
  differing: ReadonlySet<Key>,
): NodeStaleness | null {
  const services = new Set<Key>();
  let since = Infinity;
  for (const key of new Set(
    standing.flatMap((one) => servicesOfDifference(observer.proxied, one)),
  )) {
    const left = divergedAt(observer, key);
    if (left === null) continue;
    services.add(key);
    since = Math.min(since, left);
  }
  if (services.size === 0 || isAlive(observer, since, differing)) return null;
  return { since, services };
}

/** The Service that a difference is about, also where it is gone; none: it never was. */
export function servicesOfDifference(
  { past, services }: ProxyCache,
  { port, frontend }: PacketDifference,
): readonly Key[] {
  if (port !== null) return [`${port.namespace}/${port.service}`];
  for (const [key, versions] of past) {
    const service = services.has(key) ? null : versions.findLast(({ service }) => service)?.service;
    const addresses = [...(service?.clusterIPs ?? []), service?.clusterIP];
    const [address] = frontend.split(/:(?=\d+\/)/);
    if (addresses.some((one) => one === address || `[${one ?? ''}]` === address)) return [key];
  }
  return [];
}

/**
 * Notes that the rules are those of a moment at which the Service was as expected: the next change
 * of it is the one that did not come.
 */
export function noteConforming({ left, proxied }: ObservedNode, key: Key, at: number): void {
  const next = proxied.past.get(key)?.find(({ until }) => until > at);
  if (next !== undefined) left.set(key, { at: next.until, tried: next.until });
}

/** When the expectation of a Service left what the node does; null: not within what is kept. */
export function divergedAt(observer: ObservedNode, key: Key): number | null {
  const { at = null, tried = -Infinity } = observer.left.get(key) ?? {};
  const past = observer.proxied.past.get(key) ?? [];
  const last = past.at(-1)?.until ?? tried;
  if (at !== null || last <= tried) return at;
  const left = past.findLast((one) => one.until > tried && does(observer, key, one));
  observer.left.set(key, { at: left?.until ?? null, tried: last });
  return left?.until ?? null;
}

/** What must be done on the node for one Service, were it so. */
function forwardingAt(
  { node, config, rules }: ObservedNode,
  key: Key,
  service: Service | null,
  slices: readonly EndpointSlice[],
): Forwarding {
  const services = service === null ? [] : [service];
  return expectedForwarding(services, new Map([[key, slices]]), node, config, rules.localAddresses);
}

/** Whether the node does what was expected of this Service at an earlier time. */
function does(observer: ObservedNode, key: Key, { service, slices }: ServiceVersion): boolean {
  const { node, rules, proxied } = observer;
  const then = forwardingAt(observer, key, service, slices);
  if (!isServedAsExpected({ node, rules, forwarding: then })) return false;
  // What is new must not be served yet.
  const { services, slices: bySlices } = proxied;
  const now = forwardingAt(observer, key, services.get(key) ?? null, bySlices.get(key) ?? []);
  const old = new Set(then.frontends.map(placeOf));
  const frontends = now.frontends.filter((one) => !old.has(placeOf(one)));
  return isServedAsExpected({ node, rules, forwarding: { ...then, frontends } });
}

const placeOf = ({ address, protocol, dport }: Frontend): string =>
  `${address} ${protocol} ${String(dport)}`;

/** Whether something that changed after this moment has come to the node. */
function isAlive(observer: ObservedNode, since: number, differing: ReadonlySet<Key>): boolean {
  for (const [key, versions] of observer.proxied.past) {
    if (differing.has(key)) continue;
    const then = versions.find(({ until }) => until > since);
    if (then !== undefined && !does(observer, key, then)) return true;
  }
  return false;
}

// Whether a difference was one all the time. Reports of a node may be far apart, and a Service may
// change to and fro between them: then what differs now differed the last time, too, and was in
// order meanwhile. So each version that the Service has had since is held against the rules as they
// are now; the last of them that does not show the difference began it.
//
// Left out: what a node did meanwhile, of which nobody knows.

/**
 * A function that tells until when a difference of a Service was none, since this moment; null: it
 * was one by all versions of the Service.
 */
export function persistedSince(
  observer: ObservedNode,
): (service: Key, difference: string, since: number) => number | null {
  const known = new Map<ServiceVersion, ReadonlySet<string>>();
  const keysAt = (service: Key, past: ServiceVersion): ReadonlySet<string> => {
    const before = known.get(past);
    if (before !== undefined) return before;
    const { node, rules } = observer;
    const forwarding = forwardingAt(observer, service, past.service, past.slices);
    // What no Service claims is no affair of one Service.
    const seen = auditNode({ forwarding, node, rules: { ...rules, frontends: [] } });
    const keys = new Set(seen.differences.map(differenceKey));
    known.set(past, keys);
    return keys;
  };
  return (service, difference, since) => {
    if (difference.endsWith(' claim')) return null;
    const versions = observer.proxied.past.get(service) ?? [];
    const last = versions.findLast(
      (past) => past.until > since && !keysAt(service, past).has(difference),
    );
    return last?.until ?? null;
  };
}
