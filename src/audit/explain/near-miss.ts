// Finds near misses: Services that nearly select a pod, and pods that a Service nearly selects. A
// selector that matches nothing is legal, so the API reports neither a misspelled label nor a wrong
// namespace. A near miss is a guess and decides nothing.

import { editDistance } from '../../model/edit-distance.ts';
import type { Labels, Listers, Pod, Service } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';

export type MissedPair = ReturnType<typeof missedPairs>[number];

/** `label app is "thumb", the selector wants "thumbnail"`. */
export function missedLabelText({ key, want, got, nearKey }: MissedPair): string {
  if (got !== null) return `label ${key} is "${got}", the selector wants "${want}"`;
  const meant = nearKey === null ? '' : ` (but there is a label ${nearKey})`;
  return `there is no label ${key}${meant}, the selector wants ${key}="${want}"`;
}

/** `app=web,tier=front`: the labels that the selector wants. */
export const wantedLabels = (missed: readonly MissedPair[]): string =>
  missed.map(({ key, want }) => `${key}=${want}`).join(',');

/** Whether one text may be a misspelling of the other. */
export function isNear(a: string, b: string): boolean {
  if (a === b || a.length > 63 || b.length > 63) return false;
  const [left, right] = [a.toLowerCase(), b.toLowerCase()];
  const shorter = Math.min(left.length, right.length);
  if (left === right) return true;
  if (shorter >= 3 && (left.startsWith(right) || right.startsWith(left))) return true;
  const most = Math.min(2, Math.floor(shorter / 3));
  return Math.abs(left.length - right.length) <= most && editDistance(left, right) <= most;
}

/**
 * The pairs of a selector that the labels lack, in the order of the selector. `got` is null without
 * a label of the key; then `nearKey` is a label key that is spelled nearly the same, or null.
 */
export const missedPairs = (selector: Labels, labels: Labels) =>
  Object.entries(selector).flatMap(([key, want]) => {
    const got = Object.hasOwn(labels, key) ? (labels[key] ?? null) : null;
    if (got === want) return [];
    const isAlike = (other: string): boolean => got === null && isNear(other, key);
    const nearKey = Object.keys(labels).find(isAlike) ?? null;
    return [{ key, want, got, nearKey, near: got === null ? nearKey !== null : isNear(want, got) }];
  });

/** The smaller, the nearer; null if it is no near miss. */
function rankOf(selector: Labels, missed: readonly MissedPair[]): number | null {
  if (missed.length === 1 && missed[0]?.near === true) return 0;
  if (missed.length === 1 && Object.keys(selector).length > 1) return 1;
  return missed.length > 1 && missed.every(({ near }) => near) ? 2 : null;
}

type Ranked = Readonly<{ rank: number; name: string }>;

const byRank = (a: Ranked, b: Ranked): number => a.rank - b.rank || (a.name < b.name ? -1 : 1);

/** Nearest first. Nothing is `missed` if the selector matches, but the namespace is another. */
export const servicesNear = ({ services }: Listers, pod: Pod) =>
  [...services.values()]
    .flatMap((service) => {
      const { selector, namespace, key: name } = service;
      if (selector === null) return [];
      const isElsewhere = namespace !== pod.namespace;
      if (isElsewhere && !selects(selector, pod.labels)) return [];
      const missed = missedPairs(selector, pod.labels);
      const rank = isElsewhere ? 3 : rankOf(selector, missed);
      return rank === null ? [] : [{ rank, name, service, missed }];
    })
    .sort(byRank);

/** The pods that come closest to a selector, in groups that lack the same pairs. */
export function podsNear(listers: Listers, { selector, namespace }: Service) {
  if (selector === null) return [];
  // Pods of one template share their labels by reference.
  const byLabels = Map.groupBy(listers.podsIn(namespace), ({ labels }) => labels);
  const missing = [...byLabels].map(([labels, pods]) => {
    const missed = missedPairs(selector, labels);
    const name = JSON.stringify(missed.map(({ key, got, nearKey }) => [key, got, nearKey]));
    return { name, missed, pods };
  });
  return [...Map.groupBy(missing, ({ name }) => name)]
    .flatMap(([name, group]) => {
      const missed = group[0]?.missed ?? [];
      const near = rankOf(selector, missed);
      // A pod without any of the keys has nothing to do with the selector.
      if (near === null && missed.every(({ got }) => got === null)) return [];
      const pods = group.flatMap((same) => same.pods);
      const count = pods.length;
      const pod = pods.reduce((first, other) => (other.name < first.name ? other : first));
      const rank = near ?? 3 + missed.length + 1 / (1 + count);
      return [{ rank, name, missed, count, pod, near: near !== null }];
    })
    .sort(byRank);
}

/** Up to five other namespaces with pods that the Service's selector matches. */
export function namespacesMatching(listers: Listers, service: Service): string[] {
  const found = new Set<string>();
  let last: Labels | null = null;
  for (const { labels, namespace } of listers.pods.values()) {
    if (labels === last || namespace === service.namespace) continue;
    last = labels;
    if (selects(service.selector, labels)) found.add(namespace);
    if (found.size === 5) break;
  }
  return [...found].sort();
}
