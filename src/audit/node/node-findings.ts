// Which findings of a node must be open: what is left behind since a change that did not come, what
// was open before and still differs, and what has stood for long enough now.

import type { Code } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import { difference as differenceOf } from '../finding/difference.ts';
import type { Item } from '../pending/pending.ts';
import { operationOf } from '../service/reconcile.ts';
import type { NodeFinding, PacketDifference } from './aggregate.ts';
import { differenceKey, gone, portFinding, rollUp, staleFinding } from './aggregate.ts';
import type { Observed } from './audit-node.ts';
import type { Clock } from './programming-lag.ts';
import type { Observer } from './staleness.ts';
import { leftAt, serviceOf, staleness } from './staleness.ts';

/** A finding that is open, and the differences that make it. */
export interface Held {
  readonly item: Item;
  readonly wide: boolean;
  keys: ReadonlySet<string>;
}

/** What is followed of a node: its clocks by difference, its findings by identity. */
export interface Followed {
  readonly name: string;
  readonly clocks: ReadonlyMap<string, Clock>;
  readonly held: ReadonlyMap<string, Held>;
}

/** A finding that must be open, and since when it has been so. */
export interface Wanted {
  readonly finding: NodeFinding;
  readonly since: number;
}

const identityOf = ({ wide, code, port, of }: NodeFinding): string =>
  wide ? code : port || (of[0]?.frontend ?? '');

/** What must be open by identity: what is left behind, what was open before, and what is new. */
export function wantedOf(
  state: Followed,
  observed: Observed,
  observer: Observer,
  standing: readonly PacketDifference[],
  ripe: (key: string) => boolean,
): Map<string, Wanted> {
  const { name, held } = state;
  const { asked, claims, differences, others } = observed;
  const { proxied } = observer;
  // Without rules a node does what was right before there were Services.
  const isGone = rollUp(name, standing, asked, claims).some(({ code }) => gone.has(code));
  const stale = isGone ? null : staleIn(observer, differences, standing);
  const isLeft = (one: PacketDifference): boolean =>
    stale !== null && serviceOf(proxied, one).some((key) => stale.services.has(key));
  const rest = differences.filter((one) => !isLeft(one));
  const kept = [...held.values()].flatMap(({ wide, keys }) => {
    const own = wide ? [] : rest.filter((one) => keys.has(differenceKey(one)));
    return own.length === 0 ? [] : [portFinding(name, own)];
  });
  const known = new Set(kept.flatMap(({ of }) => of));
  const free = rest.filter((one) => !known.has(one));
  const now = new Set(standing);
  const old = free.filter((one) => now.has(one));
  const soon = rollUp(name, free, asked, claims);
  const fresh = [
    ...admitted(rollUp(name, old, asked, claims), soon, held),
    ...others.filter(({ code }) => ripe(code)),
  ];
  const found = [...fresh, ...kept].map((finding): [string, Wanted] => {
    return [identityOf(finding), { finding, since: beginning(state, observer, finding) }];
  });
  if (stale !== null) {
    const finding = staleFinding(name, standing.filter(isLeft));
    found.push([identityOf(finding), { finding, since: stale.since }]);
  }
  return new Map(found);
}

function staleIn(
  observer: Observer,
  differences: readonly PacketDifference[],
  standing: readonly PacketDifference[],
): ReturnType<typeof staleness> {
  const real = standing.filter(({ harmless }) => !harmless);
  if (real.length === 0) return null;
  const differing = differences.flatMap((one) => serviceOf(observer.proxied, one));
  return staleness(observer, real, new Set(differing));
}

/**
 * Of what has stood for long enough, what is no part of a finding about the whole node that will
 * have stood soon; and what is so of the whole node still.
 */
function admitted(
  now: readonly NodeFinding[],
  soon: readonly NodeFinding[],
  held: ReadonlyMap<string, Held>,
): NodeFinding[] {
  const own = new Set(soon.map(identityOf));
  const going = soon.filter((one) => one.wide && held.has(identityOf(one)));
  return [...now.filter((one) => one.wide || own.has(identityOf(one))), ...going];
}

/** When a finding began: when the expectation left the node, where that is known. */
function beginning({ clocks }: Followed, observer: Observer, finding: NodeFinding): number {
  const { wide, of, code } = finding;
  const keys = of.length === 0 ? [code] : of.map(differenceKey);
  const seen = Math.min(...keys.map((key) => clocks.get(key)?.since ?? Infinity));
  const [key] = wide || of[0] === undefined ? [] : serviceOf(observer.proxied, of[0]);
  return Math.min(seen, (key === undefined ? null : leftAt(observer, key)) ?? Infinity);
}

// A finding about a node as an item of the settle window: what the report shows of it.

/** An item that has not opened yet. */
export function itemOf(finding: NodeFinding, since: number, at: number): Item {
  const port = finding.of.find((one) => one.port !== null)?.port;
  return {
    ...(finding.wide && port ? { witness: `${port.namespace}/${port.service}` } : {}),
    difference: shown(finding),
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
export function shown({ code, port, object, expected, actual, rule }: NodeFinding): Difference {
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
