// Near misses: which Services nearly select a pod, and which pods a Service nearly selects. People
// misspell a label, forget one of several pairs, or look in the wrong namespace, and nothing in the
// API says so, because a selector that matches nothing is legal.
//
// A near miss is a guess for people and decides nothing: what selects what, model/selector.ts says.
// Everything is bounded: some Services or groups of pods are named, the others are counted.

import type { Labels, Pod, Service, Listers } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';

/** One pair of a selector that a pod does not carry. */
export interface MissedPair {
  readonly key: string;
  readonly want: string;
  /** null: the pod has no label of this key. */
  readonly got: string | null;
  /** The value, or where there is none the key, is spelt nearly the same. */
  readonly near: boolean;
  /** A key of the pod that is spelt nearly as the one that is wanted. */
  readonly nearKey: string | null;
}

/** Longer texts are compared no further: labels have at most 63 characters. */
const longest = 63;

/** How many characters two texts differ by: insertions, deletions, exchanges. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const exchanged = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(exchanged, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** Whether somebody may have meant the one and written the other. */
export function isNear(a: string, b: string): boolean {
  if (a === b || a.length > longest || b.length > longest) return false;
  const [one, other] = [a.toLowerCase(), b.toLowerCase()];
  const shorter = Math.min(one.length, other.length);
  if (one === other) return true;
  if (shorter >= 3 && (one.startsWith(other) || other.startsWith(one))) return true;
  const most = Math.min(2, Math.floor(shorter / 3));
  return Math.abs(one.length - other.length) <= most && editDistance(one, other) <= most;
}

/** The pairs of a selector that labels do not carry, in the order of the selector. */
export function missedPairs(selector: Labels, labels: Labels): MissedPair[] {
  const missed: MissedPair[] = [];
  for (const [key, want] of Object.entries(selector)) {
    const got = Object.hasOwn(labels, key) ? (labels[key] ?? null) : null;
    if (got === want) continue;
    const nearKey =
      got === null ? (Object.keys(labels).find((one) => isNear(one, key)) ?? null) : null;
    const near = got === null ? nearKey !== null : isNear(want, got);
    missed.push({ key, want, got, near, nearKey });
  }
  return missed;
}

/** How a Service and a pod just miss each other. */
export interface NearService {
  readonly service: Service;
  readonly missed: readonly MissedPair[];
  /** The selector matches, but the namespace is another. */
  readonly otherNamespace: boolean;
}

/** The smaller, the nearer; null: not near at all. */
function rankOf(selector: Labels, missed: readonly MissedPair[]): number | null {
  const pairs = Object.keys(selector).length;
  if (missed.length === 1 && missed[0]?.near === true) return 0;
  if (missed.length === 1 && pairs > 1) return 1;
  if (missed.length > 1 && missed.every(({ near }) => near)) return 2;
  return null;
}

export interface Near<T> {
  readonly nearest: readonly T[];
  /** How many more there are. */
  readonly more: number;
}

const shown = 5;

function nearest<T>(found: readonly { rank: number; name: string; one: T }[]): Near<T> {
  const sorted = [...found].sort((a, b) => a.rank - b.rank || (a.name < b.name ? -1 : 1));
  const best = sorted.slice(0, shown).map(({ one }) => one);
  return { nearest: best, more: found.length - best.length };
}

/** The Services that nearly select a pod, nearest first. Linear in the number of Services. */
export function servicesNear(listers: Listers, pod: Pod): Near<NearService> {
  const found: { rank: number; name: string; one: NearService }[] = [];
  for (const service of listers.services.values()) {
    const { selector, namespace, key } = service;
    if (selector === null) continue;
    if (namespace !== pod.namespace) {
      if (!selects(selector, pod.labels)) continue;
      found.push({ rank: 3, name: key, one: { service, missed: [], otherNamespace: true } });
      continue;
    }
    if (selects(selector, pod.labels)) continue;
    const missed = missedPairs(selector, pod.labels);
    const rank = rankOf(selector, missed);
    if (rank !== null)
      found.push({ rank, name: key, one: { service, missed, otherNamespace: false } });
  }
  return nearest(found);
}

/** Pods that miss a selector by the same pairs. */
export interface NearPods {
  readonly missed: readonly MissedPair[];
  readonly count: number;
  /** One of them. */
  readonly pod: Pod;
  /** They are what somebody may have meant; otherwise only the closest there is. */
  readonly near: boolean;
}

/**
 * The pods of the Service's namespace that come closest to its selector, in groups that miss the
 * same pairs: near misses first, then those that have the keys with other values. Linear in the
 * pods of the namespace.
 */
export function podsNear(listers: Listers, service: Service): Near<NearPods> {
  const { selector, namespace } = service;
  if (selector === null) return { nearest: [], more: 0 };
  const byLabels = new Map<Labels, { group: string; missed: MissedPair[] }>();
  const groups = new Map<string, { missed: MissedPair[]; count: number; pod: Pod }>();
  for (const pod of listers.podsIn(namespace)) {
    let known = byLabels.get(pod.labels);
    if (known === undefined) {
      const missed = missedPairs(selector, pod.labels);
      const group = JSON.stringify(missed.map(({ key, got, nearKey }) => [key, got, nearKey]));
      byLabels.set(pod.labels, (known = { group, missed }));
    }
    if (known.missed.length === 0) continue;
    const there = groups.get(known.group);
    if (there === undefined) groups.set(known.group, { missed: known.missed, count: 1, pod });
    else {
      there.count++;
      if (pod.name < there.pod.name) there.pod = pod;
    }
  }
  const found = [...groups.entries()].flatMap(([name, { missed, count, pod }]) => {
    const rank = rankOf(selector, missed);
    // A pod without any of the keys has nothing to do with the selector.
    if (rank === null && missed.every(({ got }) => got === null)) return [];
    const one = { missed, count, pod, near: rank !== null };
    return [{ rank: rank ?? 3 + missed.length + 1 / (1 + count), name, one }];
  });
  return nearest(found);
}

/** Some namespaces, other than the Service's, whose pods its selector matches; at most five. */
export function namespacesMatching(listers: Listers, service: Service): string[] {
  const { selector, namespace } = service;
  const found = new Set<string>();
  let last: Labels | null = null;
  for (const pod of listers.pods.values()) {
    // Pods of one template share their labels by reference and mostly come in a row.
    if (pod.labels === last || pod.namespace === namespace) continue;
    last = pod.labels;
    if (selects(selector, pod.labels)) found.add(pod.namespace);
    if (found.size === shown) break;
  }
  return [...found].sort();
}
