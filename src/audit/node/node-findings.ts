// Opens the findings of a node that must be open, and drops the others. Open must be: that of a
// stale node, open ones that still differ, and those past the settle window.

import type { OwnedDifference, PendingDifference, PendingFindings } from '../pending/pending.ts';
import type { NodeFinding } from './aggregate.ts';
import type { PacketDifference, PacketDifferences } from './packet-difference.ts';
import { aggregateFindings, areRulesGone, nodeFinding, portFinding } from './aggregate.ts';
import type { CurrentReading, DifferenceClock, NodeState } from './node-state.ts';
import { divergedAt, persistedSince, serviceOf, staleness } from './staleness.ts';

/**
 * Whether all dumps of a window have shown it, and at least two. A window may be 0.25 seconds
 * shorter, since dumps are not quite regular.
 */
export const isPastWindow = (clock: DifferenceClock, at: number, window: number): boolean =>
  window === 0 || (at > clock.since && at - clock.before >= window - 0.25);

export const openKeys = ({ open }: NodeState): ReadonlySet<string> =>
  new Set([...open.values()].flatMap(({ finding }) => finding.differences.map(({ key }) => key)));

/** The differences past the window. If no finding is open, every version since must show it. */
export function settledDifferences(state: NodeState, reading: CurrentReading, window: number) {
  const { clocks } = state;
  const { proxied, at } = reading;
  const open = openKeys(state);
  const findPersistence = persistedSince(reading);
  return reading.audit.differences.filter((difference) => {
    const { key } = difference;
    const clock = clocks.get(key);
    if (clock === undefined || !isPastWindow(clock, at, window)) return false;
    if (window === 0 || open.has(key)) return true;
    const service = serviceOf(proxied, difference);
    const since = service === null ? null : findPersistence(service, key, clock.since);
    if (since === null) return true;
    const restarted = { ...clock, before: since, since };
    clocks.set(key, restarted);
    return isPastWindow(restarted, at, window);
  });
}

/** The findings that must be open. `settled`: differences past the settle window. */
export function desiredFindings(
  { name, open, clocks }: NodeState,
  reading: CurrentReading,
  settled: PacketDifferences,
) {
  const { audit, rules, proxied } = reading;
  const aggregate = (list: PacketDifferences): NodeFinding[] =>
    aggregateFindings(name, list, audit.coverage, rules.frontends);
  // A node without rules matches versions from before its Services existed, and is not stale.
  const real = settled.filter(({ harmless }) => !harmless);
  const stale = areRulesGone(aggregate(settled)) ? null : staleness(reading, real);
  const isStale = (it: PacketDifference): boolean =>
    stale?.services.has(serviceOf(proxied, it) ?? '') === true;
  const fresh = audit.differences.filter((it) => !isStale(it));
  const stillOpen = [...open.values()].flatMap(({ finding }) => {
    const keys = new Set(finding.nodeWide ? [] : finding.differences.map(({ key }) => key));
    const list = fresh.filter((it) => keys.has(it.key));
    return list.length === 0 ? [] : [portFinding(list)];
  });
  const beginOf = ({ nodeWide, differences }: NodeFinding): number => {
    const seen = differences.map(({ key }) => clocks.get(key)?.since ?? Infinity);
    const [first] = nodeWide ? [] : differences;
    const service = first === undefined ? null : serviceOf(proxied, first);
    const diverged = service === null ? null : divergedAt(reading, service);
    return Math.min(...seen, diverged ?? Infinity);
  };
  const explained = new Set(stillOpen.flatMap((finding) => finding.differences));
  const rest = fresh.filter((it) => !explained.has(it));
  const isOld = new Set(settled);
  const all = aggregate(rest);
  const ids = new Set(all.map(({ id }) => id));
  const findings = [
    // Port findings that a pending node-wide finding will soon replace need not open.
    ...aggregate(rest.filter((it) => isOld.has(it))).filter((it) => it.nodeWide || ids.has(it.id)),
    ...all.filter(({ nodeWide, id }) => nodeWide && open.has(id)),
    ...stillOpen,
  ].map((finding) => ({ ...finding, since: beginOf(finding) }));
  if (stale === null) return findings;
  const finding = nodeFinding(name, 'node-rules-stale', settled.filter(isStale));
  return [...findings, { ...finding, since: stale.since }];
}

/** A finding that must be open, and when it began, Unix seconds. */
type DesiredFinding = ReturnType<typeof desiredFindings>[number];

/** Opens desired findings that are not open, and drops open findings that are not desired. */
export function applyFindings(
  settle: PendingFindings,
  { name, open }: NodeState,
  findings: readonly DesiredFinding[],
  at: number,
): void {
  const desired = new Map(findings.map((finding) => [finding.id, finding]));
  for (const [id, { item }] of open) {
    if (desired.has(id)) continue;
    settle.drop(item, at);
    open.delete(id);
  }
  const opened: OwnedDifference[] = [];
  for (const [id, finding] of desired) {
    const { difference, severity, namespace, service } = finding;
    const known = open.get(id);
    if (known === undefined) {
      const item = pendingItem(name, finding);
      open.set(id, { item, finding });
      opened.push({ item, namespace, service });
    } else {
      known.finding = finding;
      settle.reweigh(Object.assign(known.item, { difference, severity }));
    }
  }
  settle.openNow(opened, at);
}

export function pendingItem(node: string, finding: DesiredFinding): PendingDifference {
  const { difference, severity, since, nodeWide, differences } = finding;
  const port = nodeWide ? differences.find((it) => it.port !== null)?.port : null;
  return {
    ...(port ? { witness: `${port.namespace}/${port.service}` } : {}),
    difference,
    output: 'node',
    node,
    severity,
    cause: null,
    since,
    unseen: 0,
    openedAt: null,
    gone: false,
  };
}
