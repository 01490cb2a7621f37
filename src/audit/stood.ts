// Whether a difference was one all the time. Reports of a node may be far apart, and a Service may
// change to and fro between them: then what differs now differed the last time, too, and was in
// order meanwhile. So each version that the Service has had since is held against the rules as they
// are now; the last of them that does not show the difference began it.
//
// Left out: what a node did meanwhile, of which nobody knows.

import type { Key } from '../model/objects.ts';
import { observeNode } from './node.ts';
import type { Past } from './proxied.ts';
import { differenceKey } from './rollup.ts';
import type { Observer } from './stale.ts';
import { forwardingAt } from './stale.ts';

/**
 * A function that tells until when a difference of a Service was none, since this moment; null: it
 * was one by all versions of the Service.
 */
export function stoodThroughout(
  observer: Observer,
): (service: Key, difference: string, since: number) => number | null {
  const known = new Map<Past, ReadonlySet<string>>();
  const keysAt = (service: Key, past: Past): ReadonlySet<string> => {
    const before = known.get(past);
    if (before !== undefined) return before;
    const { node, rules } = observer;
    const forwarding = forwardingAt(observer, service, past.service, past.slices);
    // What no Service claims is no affair of one Service.
    const seen = observeNode({ forwarding, node, rules: { ...rules, claims: [] } });
    const keys = new Set(seen.differences.map(differenceKey));
    known.set(past, keys);
    return keys;
  };
  return (service, difference, since) => {
    if (difference.endsWith(' claim')) return null;
    const versions = observer.proxied.past.get(service) ?? [];
    const last = versions.findLast(
      (past) => past.until > since && !keysAt(service, past).has(difference),
    );
    return last?.until ?? null;
  };
}
