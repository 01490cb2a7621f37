// Decides which findings of a node must be open, and converts them for the pending findings. Open
// must be: the finding of a stale node, findings that were open and still differ, and those past
// the settle window.

import type { Code } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import { difference as differenceOf } from '../finding/difference.ts';
import type { PendingDifference } from '../pending/pending.ts';
import { operationOf } from '../service/reconcile.ts';
import type { NodeFinding, PacketDifference } from './aggregate.ts';
import {
  aggregateFindings,
  differenceKey,
  portFinding,
  rulesGoneCodes,
  staleFinding,
} from './aggregate.ts';
import type { NodeAudit } from './audit-node.ts';
import type { DifferenceClock } from './programming-lag.ts';
import type { NodeStaleness, ObservedNode } from './staleness.ts';
import { divergedAt, servicesOfDifference, staleness } from './staleness.ts';

/** An open finding. */
export interface OpenNodeFinding {
  readonly item: PendingDifference;
  readonly nodeWide: boolean;
  /** The keys of its differences. */
  keys: ReadonlySet<string>;
}

/** The part of a node's state that decides on its findings. */
export interface TrackedNode {
  readonly name: string;
  /** By the keys of differences, and by the codes of findings without differences. */
  readonly clocks: ReadonlyMap<string, DifferenceClock>;
  /** By identity. */
  readonly open: ReadonlyMap<string, OpenNodeFinding>;
}

/** A finding that must be open. */
export interface DesiredFinding extends NodeFinding {
  /** Unix seconds. */
  readonly since: number;
}

/** A node-wide finding has its code, others their Service port or frontend. */
const identityOf = ({ nodeWide, code, port, differences }: NodeFinding): string =>
  nodeWide ? code : port || (differences[0]?.frontend ?? '');

/** The findings that must be open, by identity. `settled`: differences past the settle window. */
export function desiredFindings(
  state: TrackedNode,
  audit: NodeAudit,
  observed: ObservedNode,
  settled: readonly PacketDifference[],
  isSettled: (key: string) => boolean,
): Map<string, DesiredFinding> {
  const { name, open } = state;
  const { coverage, translated, differences } = audit;
  const aggregate = (list: readonly PacketDifference[]): NodeFinding[] =>
    aggregateFindings(name, list, coverage, translated);
  // A node without rules matches versions from before its Services existed, and is not stale.
  const isGone = aggregate(settled).some(({ code }) => rulesGoneCodes.has(code));
  const stale = isGone ? null : stalenessOf(observed, differences, settled);
  const isStale = (it: PacketDifference): boolean =>
    servicesOfDifference(observed.proxied, it).some((key) => stale?.services.has(key) === true);
  const fresh = differences.filter((it) => !isStale(it));
  const stillOpen = [...open.values()].flatMap(({ nodeWide, keys }) => {
    const list = nodeWide ? [] : fresh.filter((it) => keys.has(differenceKey(it)));
    return list.length === 0 ? [] : [portFinding(name, list)];
  });
  const explained = new Set(stillOpen.flatMap((finding) => finding.differences));
  const rest = fresh.filter((it) => !explained.has(it));
  const isOld = new Set(settled);
  const findings = [
    ...admitted(aggregate(rest.filter((it) => isOld.has(it))), aggregate(rest), open),
    ...audit.others.filter(({ code }) => isSettled(code)),
    ...stillOpen,
  ];
  const desired = findings.map((finding): DesiredFinding => {
    return { ...finding, since: beginOf(state, observed, finding) };
  });
  if (stale !== null) {
    desired.push({ ...staleFinding(name, settled.filter(isStale)), since: stale.since });
  }
  return new Map(desired.map((finding) => [identityOf(finding), finding]));
}

function stalenessOf(
  observed: ObservedNode,
  differences: readonly PacketDifference[],
  settled: readonly PacketDifference[],
): NodeStaleness | null {
  const real = settled.filter(({ harmless }) => !harmless);
  if (real.length === 0) return null;
  const services = differences.flatMap((it) => servicesOfDifference(observed.proxied, it));
  return staleness(observed, real, new Set(services));
}

/**
 * Settled findings, except those that a pending node-wide finding will soon replace; and open
 * node-wide findings that still apply.
 */
function admitted(
  settled: readonly NodeFinding[],
  all: readonly NodeFinding[],
  open: ReadonlyMap<string, OpenNodeFinding>,
): NodeFinding[] {
  const identities = new Set(all.map(identityOf));
  const isOpen = (it: NodeFinding): boolean => it.nodeWide && open.has(identityOf(it));
  return [
    ...settled.filter((it) => it.nodeWide || identities.has(identityOf(it))),
    ...all.filter(isOpen),
  ];
}

/** When a finding began: when its Service diverged, if that is known. */
function beginOf({ clocks }: TrackedNode, observed: ObservedNode, finding: NodeFinding): number {
  const { nodeWide, differences, code } = finding;
  const keys = differences.length === 0 ? [code] : differences.map(differenceKey);
  const seen = Math.min(...keys.map((key) => clocks.get(key)?.since ?? Infinity));
  const [first] = nodeWide ? [] : differences;
  const [service] = first === undefined ? [] : servicesOfDifference(observed.proxied, first);
  return Math.min(seen, (service === undefined ? null : divergedAt(observed, service)) ?? Infinity);
}

/** A pending item that has not opened yet; `at` and the finding's `since` are Unix seconds. */
export function toPendingItem(finding: DesiredFinding, at: number): PendingDifference {
  const port = finding.differences.find((it) => it.port !== null)?.port;
  return {
    ...(finding.nodeWide && port ? { witness: `${port.namespace}/${port.service}` } : {}),
    ...{ difference: toDifference(finding), output: 'node', node: finding.node },
    ...{ severity: finding.severity, operation: operationOf(finding.code) },
    ...{ since: finding.since, lateSince: finding.since, unseen: 0, byInput: false },
    ...{ cause: null, causeAt: at, shown: false, proven: false, openedAt: null, gone: false },
  };
}

/** What reports show of a finding. */
export function toDifference(finding: NodeFinding): Difference {
  const { code, port, object, expected, actual, rule } = finding;
  const place = port === '' ? object : `${port} at ${object}`;
  const by = rule === null ? '' : ` by ${rule}`;
  return differenceOf(code, place, fieldOf(code), expected, `${actual}${by}`);
}

/** The field that differs. */
function fieldOf(code: Code): string {
  if (code.startsWith('node-masquerade')) return 'masquerade';
  if (code === 'node-affinity-different') return 'affinity';
  if (code === 'node-share-different') return 'share';
  return code.startsWith('node-endpoint') || code === 'node-policy-different'
    ? 'endpoints'
    : 'fate';
}
