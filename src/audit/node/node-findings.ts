// Opens the findings of a node that must be open, and drops the others. Open must be: that of a
// stale node, open ones that still differ, and those past the settle window.

import { canonicalIP } from '../../model/ip.ts';
import type { Listers } from '../../model/objects.ts';
import { type DifferenceDetail, isWorse } from '../finding/catalogue.ts';
import type { OwnedDifference, PendingDifference, PendingFindings } from '../pending/pending.ts';
import type { NodeFinding } from './aggregate.ts';
import type { PacketDifference, PacketDifferences } from './packet-difference.ts';
import {
  aggregateFindings,
  areRulesGone,
  nodeFinding,
  packetDetails,
  partition,
  portFindings,
  severityOf,
} from './aggregate.ts';
import type { CurrentReading, DifferenceClock, NodeState, SavedNodeFinding } from './node-state.ts';
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
  // What belongs to an open finding stays in it while it does no more harm than it did there.
  const inPorts = [...open.values()].flatMap(({ finding }) =>
    finding.nodeWide ? [] : finding.differences,
  );
  const known = new Map(inPorts.map((it) => [`${it.code} ${it.key}`, severityOf(it)]));
  const [stillOpen, rest] = partition(fresh, (it) => {
    const severity = known.get(`${it.code} ${it.key}`);
    return severity !== undefined && !isWorse(severityOf(it), severity);
  });
  const isOld = new Set(settled);
  const all = aggregate(rest);
  const ids = new Set(all.map(({ id }) => id));
  const [wide, ports] = partition(
    aggregate(rest.filter((it) => isOld.has(it))),
    ({ nodeWide }) => nodeWide,
  );
  // Port findings that a pending node-wide finding will soon replace need not open.
  const single = ports.filter(({ id }) => ids.has(id)).flatMap(({ differences }) => differences);
  setBegins(clocks, reading, single);
  const findings = [
    ...wide,
    ...all.filter(({ nodeWide, id }) => nodeWide && open.has(id)),
    ...portFindings([...stillOpen, ...single]),
  ].map((finding) => {
    const begins = finding.differences.map(({ key }) => clocks.get(key)?.since ?? Infinity);
    return { ...finding, since: beginOf(finding, begins) };
  });
  if (stale === null) return findings;
  const finding = nodeFinding(name, 'node-rules-stale', settled.filter(isStale));
  return [...findings, { ...finding, since: stale.since }];
}

/**
 * When a finding began. A fault of the node may include what a Service lacked before for another
 * reason, so it began when half of its differences had begun.
 */
function beginOf({ nodeWide }: NodeFinding, begins: readonly number[]): number {
  const sorted = begins.toSorted((a, b) => a - b);
  return sorted[nodeWide ? (sorted.length - 1) >> 1 : 0] ?? Infinity;
}

/** Moves clocks back to the change since which all versions of the Service show the difference. */
function setBegins(
  clocks: NodeState['clocks'],
  reading: CurrentReading,
  differences: PacketDifferences,
): void {
  const findPersistence = persistedSince(reading);
  for (const difference of differences) {
    const { key } = difference;
    const clock = clocks.get(key);
    const service = serviceOf(reading.proxied, difference);
    const diverged = service === null ? null : divergedAt(reading, service);
    if (clock === undefined || service === null || diverged === null) continue;
    const since = findPersistence(service, key, diverged) ?? diverged;
    if (since < clock.since) clocks.set(key, { ...clock, since });
  }
}

/** A finding that must be open, and when it began, Unix seconds. */
type DesiredFinding = ReturnType<typeof desiredFindings>[number];

/** Opens desired findings that are not open, and drops open findings that are not desired. */
export function applyFindings(
  { settle, listers }: { readonly settle: PendingFindings; readonly listers: PodListers },
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
    const { difference, severity, since, namespace, service } = finding;
    const known = open.get(id);
    if (known === undefined) {
      const item = pendingItem(name, finding, listers);
      open.set(id, { item, finding });
      opened.push({ item, namespace, service });
    } else {
      known.finding = finding;
      // Another clock would make a candidate obsolete that waits for its confirmation.
      if (known.item.openedAt !== null) known.item.since = since;
      const details = detailsOfFinding(name, finding, listers);
      settle.update(Object.assign(known.item, { difference, severity, details }));
    }
  }
  settle.openNow(opened, at);
}

type PodListers = Pick<Listers, 'podsAt'>;

const detailsOfFinding =
  (node: string, { differences }: NodeFinding, listers: PodListers) =>
  (): DifferenceDetail[] =>
    packetDetails(node, differences, (ip) => listers.podsAt(canonicalIP(ip))[0]?.key ?? null);

export function pendingItem(
  node: string,
  finding: DesiredFinding,
  listers: PodListers,
): PendingDifference {
  const { difference, severity, since, nodeWide, differences } = finding;
  const port = nodeWide ? differences.find((it) => it.port !== null)?.port : null;
  return {
    ...(port ? { witness: `${port.namespace}/${port.service}` } : {}),
    difference,
    details: detailsOfFinding(node, finding, listers),
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

/** Opens and drops findings so that those of a history are open. */
export function restoreFindings(
  settle: PendingFindings,
  { name: node, restored }: NodeState,
  findings: readonly SavedNodeFinding[],
  at: number,
): void {
  const ids = new Set(findings.map(({ id }) => id));
  for (const [id, item] of restored) {
    if (ids.has(id)) continue;
    settle.drop(item, at);
    restored.delete(id);
  }
  // A finding has the time of its first difference.
  for (const it of findings.toSorted((a, b) => a.openedAt - b.openedAt)) {
    const { id, namespace, service, severity, since, openedAt, difference } = it;
    const shown = { difference, severity, since, details: () => it.details };
    const known = restored.get(id);
    if (known !== undefined) {
      settle.update(Object.assign(known, shown));
      continue;
    }
    const state = { cause: null, unseen: 0, openedAt: null, gone: false };
    const item: PendingDifference = { ...shown, ...state, output: 'node', node };
    restored.set(id, item);
    settle.reopen([{ item, namespace, service, at: openedAt, since }], openedAt);
  }
}
