// How far a node is behind the cluster. A node that does what an earlier version of a Service
// expected diverged when that version ended. If no later change has reached the node either, the
// node is stale: one cause, not one finding per Service.
//
// Programming lag: from the arrival of a slice or Service (of several, the first), at least to the
// last reading that was still wrong, and at most to the first one that is right. Changes that a
// node follows before the next reading count too; otherwise only slow nodes would be measured.
// A repair of broken rules is no sample of convergence lag. Left out: earlier versions of Nodes.

import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP, ipOf } from '../../model/ip.ts';
import type { Key } from '../../model/objects.ts';
import type { Frontend } from '../../shadow/forwarding.ts';
import { isForwarded } from '../../shadow/service-port.ts';
import { type ConvergenceSample, operationOf } from '../service/reconcile.ts';
import { isWorse } from '../finding/catalogue.ts';
import { nodeForwarding } from '../../shadow/cilium/node-forwarding.ts';
import type { PacketDifference, PacketDifferences } from './packet-difference.ts';
import { severityOf } from './aggregate.ts';
import { differencesFrom, isServedAsExpected } from './audit-node.ts';
import type { CurrentReading, DifferenceClock, NodeState } from './node-state.ts';
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
  const hasFollowed = [...proxied.past].some(([key, versions]) => {
    const then = byService.has(key) ? undefined : versions.find(({ until }) => until > since);
    return then !== undefined && !matches(reading, key, then);
  });
  return hasFollowed ? null : { since, services };
}

/**
 * The Service of a difference, even if it no longer exists or was created again with another
 * cluster IP; null if it never existed.
 */
export function serviceOf(proxied: ProxyCache, { port, frontend }: PacketDifference): Key | null {
  if (port !== null) return `${port.namespace}/${port.service}`;
  return formerOwners(proxied).get(ipOf(frontend)) ?? null;
}

const cachedOwners = new WeakMap<
  ProxyCache,
  { readonly revision: number; readonly byAddress: ReadonlyMap<string, Key> }
>();

/** Services by the cluster IPs that they have no more. */
function formerOwners(proxied: ProxyCache): ReadonlyMap<string, Key> {
  const revision = proxied.revision();
  const cached = cachedOwners.get(proxied);
  if (cached?.revision === revision) return cached.byAddress;
  const byAddress = new Map<string, Key>();
  for (const [key, versions] of proxied.past) {
    const present = proxied.services.get(key);
    const has = new Set([...(present?.clusterIPs ?? []), present?.clusterIP]);
    let last = present ?? null;
    for (const { service } of versions.toReversed()) {
      // Most versions differ in the slices only.
      if (service === null || service === last) continue;
      last = service;
      for (const ip of [...service.clusterIPs, service.clusterIP]) {
        if (!has.has(ip)) byAddress.set(ip, key);
      }
    }
  }
  cachedOwners.set(proxied, { revision, byAddress });
  return byAddress;
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
  const forwarding = nodeForwarding(services, byKey, node, config, rules.localAddresses);
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

const frontendKey = ({ address, protocol, dport }: Frontend) => `${address} ${protocol} ${dport}`;

/** Finds when a difference of a Service began after `since`; null if all versions show it. */
export function persistedSince(reading: CurrentReading) {
  const cached = new Map<ServiceVersion, ReadonlySet<string>>();
  const keysAt = (service: Key, version: ServiceVersion): ReadonlySet<string> =>
    getOrInsert(cached, version, () => {
      const differences = differencesFrom(inputFor(reading, service, version));
      return new Set(differences.map(({ key }) => key));
    });
  return (service: Key, difference: string, since: number): number | null => {
    // A frontend that no Service has (audit-node.ts) depends on no version of a Service.
    if (difference.endsWith(' claim')) return null;
    const versions = reading.proxied.past.get(service) ?? [];
    const isAbsent = (version: ServiceVersion) => !keysAt(service, version).has(difference);
    return versions.findLast((it) => it.until > since && isAbsent(it))?.until ?? null;
  };
}

function followedChanges(state: NodeState, reading: CurrentReading) {
  const { programming } = state;
  const { proxied, byService, isSame, at } = reading;
  if (programming === null) {
    state.programming = { revision: proxied.revision(), at, late: new Map() };
    return [];
  }
  const { late, at: before } = programming;
  programming.at = at;
  const changes = proxied.changesSince(programming.revision);
  const isWhole = changes.length === 0 || changes[0]?.revision === programming.revision + 1;
  for (const change of changes) {
    // Rules that were read before a change show nothing about it.
    if (change.at > at) break;
    programming.revision = change.revision;
    const service = proxied.services.get(change.key);
    // Nodes forward nothing for it, as for a headless Service.
    if (service !== undefined && !isForwarded(service)) continue;
    if (late.size < 1024) getOrInsert(late, change.key, () => change.at);
  }
  // After a gap, the first change of a Service may be one that is no longer cached.
  if (!isWhole) late.clear();
  const done = [...late].filter(
    ([key]) => byService.get(key)?.some(({ harmless }) => !harmless) !== true,
  );
  for (const [key] of done) late.delete(key);
  if (isSame) return [];
  return done.map(([service, since]) => ({
    service,
    least: Math.max(0, before - since),
    most: at - since,
  }));
}

export type NodeReading = ReturnType<typeof readingOf>;

/** `current` is null if the rules are unknown. */
export function readingOf(state: NodeState, at: number, current: CurrentReading | null) {
  const differs = (service: Key, addresses: readonly string[]): boolean =>
    current?.byService
      .get(service)
      ?.some((it) => !it.harmless && concernsAddress(it, addresses)) === true;
  return {
    node: state.name,
    at,
    /** The reading before; null if there is none or it failed. */
    before: state.programming?.at ?? null,
    /** Whether the rules differ from what a Service needs at these addresses; null if unknown. */
    differs: current && differs,
    /** Changes that the node followed since the reading before; bounds of the lag in seconds. */
    programmed: current === null ? [] : followedChanges(state, current),
  };
}

/** Whether a difference is about one of these addresses, or about all endpoints. */
function concernsAddress({ key }: PacketDifference, addresses: readonly string[]): boolean {
  const endpoint = key.slice(key.lastIndexOf(' ') + 1);
  if (!endpoint.includes(':')) return true;
  const ip = canonicalIP(ipOf(endpoint));
  return addresses.some((address) => canonicalIP(address) === ip);
}

/** Starts and ends the clocks of differences; one sample for each Service and operation. */
export function updateClocks(state: NodeState, current: CurrentReading): ConvergenceSample[] {
  const { clocks, name } = state;
  const { audit, proxied, at } = current;
  const found = new Map(audit.differences.map((it) => [it.key, it]));
  const ended = new Map<string, NonNullable<DifferenceClock['lag']>>();
  for (const [key, { lag }] of clocks) {
    if (found.has(key)) continue;
    clocks.delete(key);
    // It ended at any time since the reading before; without one, that is too long ago.
    if (lag === null || current.isSame || state.at === null) continue;
    const group = `${lag.service} ${lag.operation}`;
    if (lag.divergedAt < (ended.get(group)?.divergedAt ?? Infinity)) ended.set(group, lag);
  }
  for (const [key, difference] of found) {
    const { code, harmless } = difference;
    const severity = severityOf(difference);
    const known = clocks.get(key);
    // What does more harm than before is other trouble, with a clock of its own.
    if (known !== undefined && !isWorse(severity, known.severity)) {
      if (severity !== known.severity) clocks.set(key, { ...known, severity });
      continue;
    }
    const service = serviceOf(proxied, difference) ?? '';
    // The latest change may have caused the difference, and be newer than the rules.
    const changed = proxied.past.get(service)?.at(-1)?.until ?? -Infinity;
    const diverged = service === '' || harmless ? null : divergedAt(current, service);
    const operation = operationOf(code);
    const lag = diverged === null ? null : { divergedAt: diverged, service, operation };
    const before = Math.max(state.at ?? at, changed);
    clocks.set(key, { before, since: Math.max(at, changed), severity, lag });
  }
  return [...ended.values()].map(({ divergedAt, service: key, operation }) => {
    const [namespace = '', service = ''] = key.split('/');
    const seconds = Math.max(0, at - divergedAt);
    return { output: 'node', operation, namespace, service, node: name, seconds, at };
  });
}
