// Which findings of a node must be open: what is left behind since a change that did not come, what
// was open before and still differs, and what has stood for long enough now.

import type { Code } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import { difference as differenceOf } from '../finding/difference.ts';
import type { PendingDifference } from '../pending/pending.ts';
import { operationOf } from '../service/reconcile.ts';
import type { NodeFinding, PacketDifference } from './aggregate.ts';
import {
  differenceKey,
  rulesGoneCodes,
  portFinding,
  aggregateFindings,
  staleFinding,
} from './aggregate.ts';
import type { NodeAudit } from './audit-node.ts';
import type { DifferenceClock } from './programming-lag.ts';
import type { ObservedNode } from './staleness.ts';
import { divergedAt, servicesOfDifference, staleness } from './staleness.ts';

/** A finding that is open, and the differences that make it. */
export interface OpenNodeFinding {
  readonly item: PendingDifference;
  readonly wide: boolean;
  keys: ReadonlySet<string>;
}

/** What is followed of a node: its clocks by difference, its findings by identity. */
export interface TrackedNode {
  readonly name: string;
  readonly clocks: ReadonlyMap<string, DifferenceClock>;
  readonly held: ReadonlyMap<string, OpenNodeFinding>;
}

/** A finding that must be open, and since when it has been so. */
export interface DesiredFinding {
  readonly finding: NodeFinding;
  readonly since: number;
}

const identityOf = ({ nodeWide: wide, code, port, differences: of }: NodeFinding): string =>
  wide ? code : port || (of[0]?.frontend ?? '');

/** What must be open by identity: what is left behind, what was open before, and what is new. */
export function desiredFindings(
  state: TrackedNode,
  observed: NodeAudit,
  observer: ObservedNode,
  standing: readonly PacketDifference[],
  ripe: (key: string) => boolean,
): Map<string, DesiredFinding> {
  const { name, held } = state;
  const { coverage: asked, translated: claims, differences, others } = observed;
  const { proxied } = observer;
  // Without rules a node does what was right before there were Services.
  const isGone = aggregateFindings(name, standing, asked, claims).some(({ code }) =>
    rulesGoneCodes.has(code),
  );
  const stale = isGone ? null : staleIn(observer, differences, standing);
  const isLeft = (one: PacketDifference): boolean =>
    stale !== null && servicesOfDifference(proxied, one).some((key) => stale.services.has(key));
  const rest = differences.filter((one) => !isLeft(one));
  const kept = [...held.values()].flatMap(({ wide, keys }) => {
    const own = wide ? [] : rest.filter((one) => keys.has(differenceKey(one)));
    return own.length === 0 ? [] : [portFinding(name, own)];
  });
  const known = new Set(kept.flatMap(({ differences: of }) => of));
  const free = rest.filter((one) => !known.has(one));
  const now = new Set(standing);
  const old = free.filter((one) => now.has(one));
  const soon = aggregateFindings(name, free, asked, claims);
  const fresh = [
    ...admitted(aggregateFindings(name, old, asked, claims), soon, held),
    ...others.filter(({ code }) => ripe(code)),
  ];
  const found = [...fresh, ...kept].map((finding): [string, DesiredFinding] => {
    return [identityOf(finding), { finding, since: beginning(state, observer, finding) }];
  });
  if (stale !== null) {
    const finding = staleFinding(name, standing.filter(isLeft));
    found.push([identityOf(finding), { finding, since: stale.since }]);
  }
  return new Map(found);
}

function staleIn(
  observer: ObservedNode,
  differences: readonly PacketDifference[],
  standing: readonly PacketDifference[],
): ReturnType<typeof staleness> {
  const real = standing.filter(({ harmless }) => !harmless);
  if (real.length === 0) return null;
  const differing = differences.flatMap((one) => servicesOfDifference(observer.proxied, one));
  return staleness(observer, real, new Set(differing));
}

/**
 * Of what has stood for long enough, what is no part of a finding about the whole node that will
 * have stood soon; and what is so of the whole node still.
 */
function admitted(
  now: readonly NodeFinding[],
  soon: readonly NodeFinding[],
  held: ReadonlyMap<string, OpenNodeFinding>,
): NodeFinding[] {
  const own = new Set(soon.map(identityOf));
  const going = soon.filter((one) => one.nodeWide && held.has(identityOf(one)));
  return [...now.filter((one) => one.nodeWide || own.has(identityOf(one))), ...going];
}

/** When a finding began: when the expectation left the node, where that is known. */
function beginning({ clocks }: TrackedNode, observer: ObservedNode, finding: NodeFinding): number {
  const { nodeWide: wide, differences: of, code } = finding;
  const keys = of.length === 0 ? [code] : of.map(differenceKey);
  const seen = Math.min(...keys.map((key) => clocks.get(key)?.since ?? Infinity));
  const [key] = wide || of[0] === undefined ? [] : servicesOfDifference(observer.proxied, of[0]);
  return Math.min(seen, (key === undefined ? null : divergedAt(observer, key)) ?? Infinity);
}

// A finding about a node as an item of the settle window: what the report shows of it.

/** An item that has not opened yet. */
export function toPendingItem(finding: NodeFinding, since: number, at: number): PendingDifference {
  const port = finding.differences.find((one) => one.port !== null)?.port;
  return {
    ...(finding.nodeWide && port ? { witness: `${port.namespace}/${port.service}` } : {}),
    difference: toDifference(finding),
    output: 'node',
    node: finding.node,
    severity: finding.severity,
    cause: null,
    shown: false,
    proven: false,
    causeAt: at,
    since,
    unseen: 0,
    byInput: false,
    operation: operationOf(finding.code),
    lateSince: since,
    openedAt: null,
    gone: false,
  };
}

/** What of a finding is shown. */
export function toDifference({
  code,
  port,
  object,
  expected,
  actual,
  rule,
}: NodeFinding): Difference {
  const what = port === '' ? object : `${port} at ${object}`;
  const by = rule === null ? '' : ` by ${rule}`;
  return differenceOf(code, what, fieldOf(code), expected, `${actual}${by}`);
}

/** What of a frontend differs. */
function fieldOf(code: Code): string {
  if (code.startsWith('node-masquerade')) return 'masquerade';
  if (code === 'node-affinity-different') return 'affinity';
  if (code === 'node-share-different') return 'share';
  return code.startsWith('node-endpoint') || code === 'node-policy-different'
    ? 'endpoints'
    : 'fate';
}
