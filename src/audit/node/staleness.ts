// Compares the rules of a node with earlier versions of Services. A node that does what an earlier
// version expected diverged when that version ended. If no later change has reached the node
// either, the node is stale: one cause, not one finding per Service. A difference has persisted
// only since the last version that does not show it with the rules as they are now.
// Left out: earlier versions of Nodes, whose zones and addresses hardly change.

import { getOrInsert } from '../../model/get-or-insert.ts';
import type { Key } from '../../model/objects.ts';
import type { Frontend } from '../../shadow/forwarding.ts';
import { expectedForwarding } from '../../shadow/forwarding.ts';
import type { PacketDifference, PacketDifferences } from './aggregate.ts';
import { differencesFrom, isServedAsExpected } from './audit-node.ts';
import type { CurrentReading } from './node-state.ts';
import type { NodeInput } from './observation.ts';
import type { ProxyCache, ServiceVersion } from './proxy-cache.ts';

/** The first change that did not reach a stale node, and the Services; null if it is not stale. */
export function staleness(reading: CurrentReading, settled: PacketDifferences) {
  const { proxied, byService } = reading;
  const services = new Set<Key>();
  let since = Infinity;
  for (const key of new Set(settled.map((it) => serviceOf(proxied, it)))) {
    const at = key === null ? null : divergedAt(reading, key);
    if (at === null || key === null) continue;
    services.add(key);
    since = Math.min(since, at);
  }
  if (services.size === 0) return null;
  // A change after that moment has reached the node.
  const hasFollowed = [...proxied.past].some(([key, versions]) => {
    const then = byService.has(key) ? undefined : versions.find(({ until }) => until > since);
    return then !== undefined && !matches(reading, key, then);
  });
  return hasFollowed ? null : { since, services };
}

/** The Service of a difference, even if it no longer exists; null if it never did. */
export function serviceOf(proxied: ProxyCache, { port, frontend }: PacketDifference): Key | null {
  const { past, services } = proxied;
  if (port !== null) return `${port.namespace}/${port.service}`;
  const [address] = frontend.split(/:(?=\d+\/)/);
  for (const [key, versions] of past) {
    const service = services.has(key) ? null : versions.findLast(({ service }) => service)?.service;
    const addresses = [...(service?.clusterIPs ?? []), service?.clusterIP];
    if (addresses.some((ip) => ip === address || `[${ip ?? ''}]` === address)) return key;
  }
  return null;
}

/** Finds at once when Services diverged: earlier versions are cached for a limited time. */
export function noteDivergences(reading: CurrentReading, before: number | null): void {
  const { divergences, byService, proxied, isSame } = reading;
  for (const key of divergences.keys()) if (!byService.has(key)) divergences.delete(key);
  for (const key of byService.keys()) {
    if (key === null) continue;
    if (isSame && before !== null && !divergences.has(key)) {
      // The same rules matched the Service then, so its next change diverged.
      const next = proxied.past.get(key)?.find(({ until }) => until > before);
      if (next !== undefined) divergences.set(key, { at: next.until, comparedUntil: next.until });
    }
    divergedAt(reading, key);
  }
}

/** When a Service diverged from the rules; null if the rules match no cached version. */
export function divergedAt(reading: CurrentReading, key: Key): number | null {
  const known = reading.divergences.get(key);
  const { at, comparedUntil } = known ?? { at: null, comparedUntil: -Infinity };
  const versions = reading.proxied.past.get(key) ?? [];
  const last = versions.at(-1)?.until ?? comparedUntil;
  if (at !== null || (known !== undefined && last <= comparedUntil)) return at;
  const matched = versions.findLast((it) => it.until > comparedUntil && matches(reading, key, it));
  const found = matched?.until ?? null;
  reading.divergences.set(key, { at: found, comparedUntil: last });
  return found;
}

function inputFor(reading: CurrentReading, key: Key, version: ServiceVersion): NodeInput {
  const { node, config, rules } = reading;
  const services = version.service === null ? [] : [version.service];
  const byKey = new Map([[key, version.slices]]);
  const forwarding = expectedForwarding(services, byKey, node, config, rules.localAddresses);
  return { forwarding, node, rules };
}

/** Whether the rules do what an earlier version expected, and do not serve newer frontends. */
function matches(reading: CurrentReading, key: Key, version: ServiceVersion): boolean {
  const then = inputFor(reading, key, version);
  if (!isServedAsExpected(then)) return false;
  const { services, slices } = reading.proxied;
  const [service, until] = [services.get(key) ?? null, Infinity];
  const now = inputFor(reading, key, { service, slices: slices.get(key) ?? [], until });
  const old = new Set(then.forwarding.frontends.map(frontendKey));
  const frontends = now.forwarding.frontends.filter((it) => !old.has(frontendKey(it)));
  return isServedAsExpected({ ...then, forwarding: { ...then.forwarding, frontends } });
}

const frontendKey = ({ address, protocol, dport }: Frontend): string =>
  `${address} ${protocol} ${String(dport)}`;

/** Finds when a difference of a Service began after `since`; null if all versions show it. */
export function persistedSince(reading: CurrentReading) {
  const cached = new Map<ServiceVersion, ReadonlySet<string>>();
  const keysAt = (service: Key, version: ServiceVersion): ReadonlySet<string> =>
    getOrInsert(cached, version, () => {
      const differences = differencesFrom(inputFor(reading, service, version));
      return new Set(differences.map(({ key }) => key));
    });
  return (service: Key, difference: string, since: number): number | null => {
    if (difference.endsWith(' claim')) return null;
    const versions = reading.proxied.past.get(service) ?? [];
    const isAbsent = (version: ServiceVersion) => !keysAt(service, version).has(difference);
    return versions.findLast((it) => it.until > since && isAbsent(it))?.until ?? null;
  };
}
