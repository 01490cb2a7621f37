// The verdicts on all Service ports of a node. Nodes with the same ports share one list of conform
// verdicts.

import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { UnknownReason, NodeUnknownReason, Verdict } from '../finding/verdicts.ts';
import { proxiedPortKey } from './probes.ts';

/** The verdict on one Service port at one node. */
export interface NodeVerdict {
  /** Name, protocol and family; '' for the whole node. */
  readonly port: string;
  readonly namespace: string;
  readonly verdict: Verdict;
  /** null unless the verdict is unknown. */
  readonly reason: UnknownReason | null;
}

export const conformVerdicts = (ports: readonly ProxiedPort[]): readonly NodeVerdict[] =>
  ports.map((port) => {
    const { namespace } = port;
    return { port: proxiedPortKey(port), namespace, verdict: 'conform', reason: null };
  });

/**
 * Replaces the conform verdicts that do not apply, by the keys of other ports. `families`: those
 * whose rules are known.
 */
export function portVerdicts(
  conform: readonly NodeVerdict[],
  families: ReadonlySet<string>,
  keys: Readonly<Record<'different' | 'pending' | 'unknown', ReadonlySet<string>>>,
): readonly NodeVerdict[] {
  const { different, pending, unknown } = keys;
  if (different.size + pending.size + unknown.size === 0 && families.size === 2) return conform;
  const verdictOn = (port: string): [Verdict, NodeUnknownReason | null] => {
    if (!families.has(port.slice(port.lastIndexOf(' ') + 1))) return ['unknown', 'rules-not-known'];
    if (different.has(port)) return ['different', null];
    if (pending.has(port)) return ['pending', null];
    return unknown.has(port) ? ['unknown', 'rules-not-understood'] : ['conform', null];
  };
  return conform.map((entry) => {
    const [verdict, reason] = verdictOn(entry.port);
    return verdict === 'conform' ? entry : { ...entry, verdict, reason };
  });
}
