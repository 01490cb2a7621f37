// Measures how long nodes take to follow the cluster, from the readings of their rules.
//
// Programming lag: a node follows a change between two readings, so a sample has two ends. From the
// arrival of a slice or Service it is at least the time to the last reading that was still wrong,
// and at most the time to the first one that is right. Of several changes of one Service that a
// node has yet to follow, the first counts. Changes that arrive and are followed between two
// readings count too; otherwise only slow nodes would be measured.
//
// Convergence lag: from the change after which the node diverged (staleness.ts) to the first
// reading without the difference. A repair of broken rules follows no change and is no sample.
//
// If the rules are equal to those of the last reading, the node followed nothing: differences ended
// because a change was reverted, and other changes required nothing of the node.
//
// Left out: whether a change requires anything of a node whose rules have changed. If not, it
// counts as followed at once.

import type { Key } from '../../model/objects.ts';
import type { Operation } from '../pending/pending.ts';
import type { ConvergenceSample } from '../service/reconcile.ts';
import { operationOf } from '../service/reconcile.ts';
import type { PacketDifference } from './aggregate.ts';
import { differenceKey } from './aggregate.ts';
import type { NodeAudit } from './audit-node.ts';
import { concernsAddress } from './audit-node.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { ObservedNode } from './staleness.ts';
import { divergedAt, servicesOfDifference } from './staleness.ts';

/** A change that a node followed; bounds of the lag in seconds. */
export interface ProgrammedChange {
  readonly service: Key;
  readonly least: number;
  readonly most: number;
}

/** How far a node has followed the changes. */
export interface ProgrammingState {
  /** The revision of the proxy cache that the last reading covers. */
  revision: number;
  /** The last reading, Unix seconds; null if there is none. */
  at: number | null;
  /** When the first change arrived that the node has yet to follow, by Service. */
  readonly late: Map<Key, number>;
}

/** Further late Services of a node are not measured. */
const maxLate = 1024;

export const newProgrammingState = (): ProgrammingState => ({
  revision: 0,
  at: null,
  late: new Map(),
});

/** Starts again after the node's rules were unknown. */
export function resetProgrammingState(state: ProgrammingState): void {
  state.at = null;
  state.late.clear();
}

/** The changes that the node has followed by the reading `at`. */
function followedChanges(
  { programming, isSame }: TrackedReadings,
  proxied: ProxyCache,
  at: number,
  differing: ReadonlyMap<Key, unknown>,
): ProgrammedChange[] {
  const { late, at: before } = programming;
  programming.at = at;
  if (before === null) {
    // It is unknown whether the node is late with earlier changes.
    programming.revision = proxied.revision();
    return [];
  }
  for (const change of proxied.changesSince(programming.revision)) {
    // Rules that were read before a change show nothing about it.
    if (change.at > at) break;
    programming.revision = change.revision;
    if (!late.has(change.key) && late.size < maxLate) late.set(change.key, change.at);
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

/** What one reading of a node's rules shows. */
export interface NodeReading {
  readonly node: string;
  readonly at: number;
  /** The reading before; null if there is none or it failed. */
  readonly before: number | null;
  /**
   * Whether the rules differ from what this Service needs at these addresses; null if that is not
   * known.
   */
  readonly differs: ((service: Key, addresses: readonly string[]) => boolean) | null;
  /** Changes that the node followed since the reading before. */
  readonly programmed: readonly ProgrammedChange[];
}

/** Since when a difference is known. */
export interface DifferenceClock {
  /** The last dump without the difference, and the first with it. */
  readonly before: number;
  readonly since: number;
  /** null if no change of the cluster caused the difference. */
  readonly lag: ConvergenceStart | null;
}

interface ConvergenceStart {
  readonly divergedAt: number;
  readonly service: Key;
  readonly operation: Operation;
}

/** The part of a node's state that is compared with the next reading. */
interface TrackedReadings {
  readonly name: string;
  /** The last reading; null if there is none. */
  readonly at: number | null;
  readonly clocks: Map<string, DifferenceClock>;
  readonly programming: ProgrammingState;
  /** The rules are those of the last reading. */
  readonly isSame: boolean;
}

interface CurrentReading {
  readonly audit: NodeAudit;
  readonly observed: ObservedNode;
}

/** Starts and ends the clocks of differences; one sample for each Service and operation. */
export function updateClocks(
  { clocks, name, at: before, isSame }: TrackedReadings,
  { audit, observed }: CurrentReading,
  at: number,
): ConvergenceSample[] {
  const found = new Map<string, PacketDifference | null>();
  for (const difference of audit.differences) found.set(differenceKey(difference), difference);
  for (const { code } of audit.others) found.set(code, null);
  const ended = new Map<string, ConvergenceStart>();
  for (const [key, { lag }] of clocks) {
    if (found.has(key)) continue;
    clocks.delete(key);
    if (lag === null || isSame) continue;
    const group = `${lag.service} ${lag.operation}`;
    if (lag.divergedAt < (ended.get(group)?.divergedAt ?? Infinity)) ended.set(group, lag);
  }
  for (const [key, difference] of found) {
    if (!clocks.has(key)) clocks.set(key, newClock(observed, difference, before ?? at, at));
  }
  return [...ended.values()].map(({ divergedAt, service: key, operation }) => {
    const [namespace = '', service = ''] = key.split('/');
    const seconds = Math.max(0, at - divergedAt);
    return { output: 'node', operation, namespace, service, node: name, seconds, at };
  });
}

function newClock(
  observed: ObservedNode,
  difference: PacketDifference | null,
  before: number,
  at: number,
): DifferenceClock {
  if (difference === null) return { before, since: at, lag: null };
  const { proxied } = observed;
  const [service] = servicesOfDifference(proxied, difference);
  if (service === undefined) return { before, since: at, lag: null };
  // The latest change may have caused the difference, and be newer than the rules.
  const changed = proxied.past.get(service)?.at(-1)?.until ?? -Infinity;
  const diverged = difference.harmless ? null : divergedAt(observed, service);
  return {
    before: Math.max(before, changed),
    since: Math.max(at, changed),
    lag:
      diverged === null
        ? null
        : { divergedAt: diverged, service, operation: operationOf(difference.code) },
  };
}

/** Evaluates a reading for each Service. */
export function readingOf(
  state: TrackedReadings,
  { audit, observed: { proxied } }: CurrentReading,
  at: number,
): NodeReading {
  const wrong = new Map<Key, PacketDifference[]>();
  for (const difference of audit.differences) {
    if (difference.harmless) continue;
    for (const key of servicesOfDifference(proxied, difference)) {
      const known = wrong.get(key);
      if (known === undefined) wrong.set(key, [difference]);
      else known.push(difference);
    }
  }
  const before = state.programming.at;
  const programmed = followedChanges(state, proxied, at, wrong);
  const differs = (service: Key, addresses: readonly string[]): boolean =>
    wrong.get(service)?.some((it) => concernsAddress(it, addresses)) === true;
  return { node: state.name, at, before, differs, programmed };
}
