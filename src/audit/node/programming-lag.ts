// Measures how long nodes take to follow the cluster, from the readings of their rules.
//
// Programming lag: from the arrival of a slice or Service it is at least the time to the last
// reading that was still wrong, and at most the time to the first one that is right. Of several
// changes of one Service that a node has yet to follow, the first counts. Changes that a node
// follows before the next reading count too; otherwise only slow nodes would be measured.
//
// Convergence lag: from the change after which the node diverged (staleness.ts) to the first
// reading without the difference. A repair of broken rules follows no change and is no sample.
// A node with the rules of the last reading followed nothing. Left out: whether a change requires
// anything of a node whose rules have changed.

import { getOrInsert } from '../../model/get-or-insert.ts';
import { canonicalIP, ipOf } from '../../model/ip.ts';
import type { Key } from '../../model/objects.ts';
import type { ConvergenceSample } from '../service/reconcile.ts';
import { operationOf } from '../service/reconcile.ts';
import type { PacketDifference } from './aggregate.ts';
import type { CurrentReading, DifferenceClock, NodeState } from './node-state.ts';
import { divergedAt, serviceOf } from './staleness.ts';

/** Further late Services of a node are not measured. */
const maxLate = 1024;

function followedChanges(state: NodeState, reading: CurrentReading): NodeReading['programmed'] {
  const { programming } = state;
  const { proxied, byService, isSame, at } = reading;
  if (programming === null) {
    state.programming = { revision: proxied.revision(), at, late: new Map() };
    return [];
  }
  const { late, at: before } = programming;
  programming.at = at;
  for (const change of proxied.changesSince(programming.revision)) {
    // Rules that were read before a change show nothing about it.
    if (change.at > at) break;
    programming.revision = change.revision;
    if (late.size < maxLate) getOrInsert(late, change.key, () => change.at);
  }
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

/** What one reading of a node's rules shows. */
export interface NodeReading {
  readonly node: string;
  readonly at: number;
  /** The reading before; null if there is none or it failed. */
  readonly before: number | null;
  /** Whether the rules differ from what this Service needs at these addresses; null if unknown. */
  readonly differs: ((service: Key, addresses: readonly string[]) => boolean) | null;
  /** Changes that the node followed since the reading before; bounds of the lag in seconds. */
  readonly programmed: readonly { service: Key; least: number; most: number }[];
}

export function readingOf(state: NodeState, current: CurrentReading): NodeReading {
  return {
    node: state.name,
    at: current.at,
    before: state.programming?.at ?? null,
    differs: (service, addresses) =>
      current.byService
        .get(service)
        ?.some((it) => !it.harmless && concernsAddress(it, addresses)) === true,
    programmed: followedChanges(state, current),
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
    if (lag === null || current.isSame) continue;
    const group = `${lag.service} ${lag.operation}`;
    if (lag.divergedAt < (ended.get(group)?.divergedAt ?? Infinity)) ended.set(group, lag);
  }
  for (const [key, difference] of found) {
    if (clocks.has(key)) continue;
    const { code, harmless } = difference;
    const service = serviceOf(proxied, difference) ?? '';
    // The latest change may have caused the difference, and be newer than the rules.
    const changed = proxied.past.get(service)?.at(-1)?.until ?? -Infinity;
    const diverged = service === '' || harmless ? null : divergedAt(current, service);
    const operation = operationOf(code);
    const lag = diverged === null ? null : { divergedAt: diverged, service, operation };
    const before = Math.max(state.at ?? at, changed);
    clocks.set(key, { before, since: Math.max(at, changed), lag });
  }
  return [...ended.values()].map(({ divergedAt, service: key, operation }) => {
    const [namespace = '', service = ''] = key.split('/');
    const seconds = Math.max(0, at - divergedAt);
    return { output: 'node', operation, namespace, service, node: name, seconds, at };
  });
}
