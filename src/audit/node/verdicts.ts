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

/** The keys of ports that are not conform. */
export interface PortKeys {
  readonly different: ReadonlySet<string>;
  readonly pending: ReadonlySet<string>;
  readonly unknown: ReadonlySet<string>;
}

export const conformVerdicts = (ports: readonly ProxiedPort[]): readonly NodeVerdict[] =>
  ports.map((port) => {
    const { namespace } = port;
    return { port: proxiedPortKey(port), namespace, verdict: 'conform', reason: null };
  });

/** Replaces the conform verdicts that do not apply. `families`: those whose rules are known. */
export function portVerdicts(
  conform: readonly NodeVerdict[],
  families: ReadonlySet<string>,
  { different, pending, unknown }: PortKeys,
): readonly NodeVerdict[] {
  if (different.size + pending.size + unknown.size === 0 && families.size === 2) return conform;
  const verdictOn = (port: string): [Verdict, NodeUnknownReason | null] => {
    const family = port.slice(port.lastIndexOf(' ') + 1);
    if (!families.has(family)) return ['unknown', 'rules-not-known'];
    if (different.has(port)) return ['different', null];
    if (pending.has(port)) return ['pending', null];
    return unknown.has(port) ? ['unknown', 'rules-not-understood'] : ['conform', null];
  };
  return conform.map((entry) => {
    const [verdict, reason] = verdictOn(entry.port);
    return verdict === 'conform' ? entry : { ...entry, verdict, reason };
  });
}
