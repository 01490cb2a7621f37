// How long nodes take to follow the cluster, from the readings of their rules.
//
// Rules are read now and then, so that all that is known of the moment when they became right is
// that it lies between two readings. Programming lag is told with both ends: from the arrival of a
// slice or a Service it is at least the time to the last reading that was still wrong, and at most
// that to the first which is right. Of several changes of one Service that a node has yet to
// follow, the first counts. Changes that came and were followed between two readings count too;
// without them, slow nodes alone would be measured.
//
// Convergence lag is told of what was seen to differ because the expectation had left the node:
// from when it did (stale.ts) to the first reading without the difference. Rules that somebody
// spoiled and somebody repaired followed nothing, and are no sample.
//
// Where the rules are those of the reading before, the node followed nothing: what differs no more
// was taken back, and changes that came meanwhile asked nothing of it.
//
// Left out: whether a change asks anything of a node whose rules did change. One that does not
// counts as followed at once.

import type { Key } from '../../model/objects.ts';
import type { Operation } from '../pending/pending.ts';
import type { ConvergenceSample } from '../service/reconcile.ts';
import { operationOf } from '../service/reconcile.ts';
import type { PacketDifference } from './aggregate.ts';
import { differenceKey } from './aggregate.ts';
import type { NodeAudit } from './audit-node.ts';
import { isAt } from './audit-node.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { ObservedNode } from './staleness.ts';
import { divergedAt, servicesOfDifference } from './staleness.ts';

/** A change that a node followed; seconds. */
export interface ProgrammedChange {
  readonly service: Key;
  readonly least: number;
  readonly most: number;
}

/** What is known of one node's way behind the changes. */
export interface ProgrammingState {
  /** Up to which change of the cluster it was looked at. */
  revision: number;
  /** The last reading; null: there was none. */
  at: number | null;
  /** Services whose change it has yet to follow, and when that arrived. */
  readonly late: Map<Key, number>;
}

/** Services that one node may be late with; further ones are not measured. */
const mostLate = 1024;

export const newProgrammingState = (): ProgrammingState => ({
  revision: 0,
  at: null,
  late: new Map(),
});

/** Begins anew: nothing is known of the node's rules any more. */
export function resetProgrammingState(following: ProgrammingState): void {
  following.at = null;
  following.late.clear();
}

/** The changes that a node followed, whose rules were read `at` and differ for these Services. */
function followed(
  { following, isSame }: Read,
  proxied: ProxyCache,
  at: number,
  differing: ReadonlySet<Key>,
): ProgrammedChange[] {
  const { late, at: before } = following;
  following.at = at;
  if (before === null) {
    // What was told before the first reading is not known to be late.
    following.revision = proxied.revision();
    return [];
  }
  for (const change of proxied.changesSince(following.revision)) {
    // Rules that were read before a change tell nothing of it.
    if (change.at > at) break;
    following.revision = change.revision;
    if (!late.has(change.key) && late.size < mostLate) late.set(change.key, change.at);
  }
  const done = [...late].filter(([key]) => !differing.has(key));
  for (const [key] of done) late.delete(key);
  if (isSame) return [];
  return done.map(([service, since]) => ({
    service,
    least: Math.max(0, before - since),
    most: at - since,
  }));
}

/** What a reading of a node's rules tells. */
export interface NodeReading {
  readonly node: string;
  readonly at: number;
  /** When they were read before; null: they were not, or could not be. */
  readonly before: number | null;
  /**
   * Whether the rules differ from what this Service wants at these addresses, or at all; null: that
   * is not known.
   */
  readonly differs: ((service: Key, addresses: readonly string[]) => boolean) | null;
  /** Changes that it followed since the reading before. */
  readonly programmed: readonly ProgrammedChange[];
}

/** The clock of one difference. */
export interface DifferenceClock {
  /** The last dump without the difference, and the first with it. */
  readonly before: number;
  readonly since: number;
  readonly lag: Lag | null;
}

/** What is measured when a difference ends; null: no change of the input made it. */
interface Lag {
  /** When the expectation left the node. */
  readonly left: number;
  readonly service: Key;
  readonly operation: Operation;
}

/** What is kept of a node between readings. */
interface Read {
  readonly name: string;
  /** The last reading. */
  readonly at: number | null;
  readonly clocks: Map<string, DifferenceClock>;
  readonly following: ProgrammingState;
  /** The rules are those of that reading. */
  readonly isSame: boolean;
}

interface Seen {
  readonly observed: NodeAudit;
  readonly observer: ObservedNode;
}

/** Starts and ends the clocks of differences; a Service's that ended alike are one sample. */
export function updateClocks(
  { clocks, name, at: before, isSame }: Read,
  { observed, observer }: Seen,
  at: number,
): ConvergenceSample[] {
  const found = new Map<string, PacketDifference | null>();
  for (const one of observed.differences) found.set(differenceKey(one), one);
  for (const { code } of observed.others) found.set(code, null);
  const ended = new Map<string, Lag>();
  for (const [key, { lag }] of clocks) {
    if (found.has(key)) continue;
    clocks.delete(key);
    if (lag === null || isSame) continue;
    const of = `${lag.service} ${lag.operation}`;
    if (lag.left < (ended.get(of)?.left ?? Infinity)) ended.set(of, lag);
  }
  for (const [key, one] of found) {
    if (clocks.has(key)) continue;
    const lag = one === null ? null : lagOf(observer, one);
    // It may be the latest change that made it so, which may be newer than what is seen.
    const changed = one === null ? -Infinity : changedAt(observer.proxied, one);
    const [known, since] = [Math.max(before ?? at, changed), Math.max(at, changed)];
    clocks.set(key, { before: known, since, lag });
  }
  return [...ended.values()].map(({ left, service: key, operation }) => {
    const [namespace = '', service = ''] = key.split('/');
    const seconds = Math.max(0, at - left);
    return { output: 'node', operation, namespace, service, node: name, seconds, at };
  });
}

/** When the Service that it is about last changed; -Infinity: it did not since all is known. */
function changedAt(proxied: ProxyCache, one: PacketDifference): number {
  const [service] = servicesOfDifference(proxied, one);
  const past = service === undefined ? undefined : proxied.past.get(service);
  return past?.at(-1)?.until ?? -Infinity;
}

function lagOf(observer: ObservedNode, one: PacketDifference): Lag | null {
  const [service] = one.harmless ? [] : servicesOfDifference(observer.proxied, one);
  const left = service === undefined ? null : divergedAt(observer, service);
  if (service === undefined || left === null) return null;
  return { left, service, operation: operationOf(one.code) };
}

/** What the reading shows of each Service. */
export function readingOf(
  read: Read,
  { observed, observer: { proxied } }: Seen,
  at: number,
): NodeReading {
  const wrong = new Map<Key, PacketDifference[]>();
  for (const one of observed.differences) {
    if (one.harmless) continue;
    for (const key of servicesOfDifference(proxied, one)) {
      const known = wrong.get(key);
      if (known === undefined) wrong.set(key, [one]);
      else known.push(one);
    }
  }
  const { name: node } = read;
  const before = read.following.at;
  const programmed = followed(read, proxied, at, new Set(wrong.keys()));
  const differs = (service: Key, addresses: readonly string[]): boolean =>
    wrong.get(service)?.some((one) => isAt(one, addresses)) === true;
  return { node, at, before, differs, programmed };
}
