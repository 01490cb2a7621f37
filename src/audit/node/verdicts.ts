// The verdicts on all Service ports of a node. Nodes of a cluster have the same ports and nearly
// always the same verdicts, so both are held once, however many nodes there are.

import type { Forwarding } from '../../shadow/forwarding.ts';
import type { UnknownReason, NodeUnknownReason, Verdict } from '../finding/verdicts.ts';
import { proxiedPortKey } from './probes.ts';

/** One Service port on one node. */
export interface NodeVerdict {
  /** Name, protocol and family; '' for all of the node. */
  readonly port: string;
  readonly namespace: string;
  readonly verdict: Verdict;
  /** null unless the verdict is unknown. */
  readonly reason: UnknownReason | null;
}

/** A Service port, as verdicts name it. */
export type PortName = Pick<NodeVerdict, 'port' | 'namespace'> & {
  readonly family: 'IPv4' | 'IPv6';
};

/** A function that names the ports of a node, as those of the one before it where they are. */
export function createPortNames(): (forwarding: Forwarding) => readonly PortName[] {
  let last: readonly PortName[] = [];
  return ({ ports }) => {
    const isSame = (one: PortName, at: number): boolean => {
      const port = ports[at];
      return port !== undefined && proxiedPortKey(port) === one.port;
    };
    if (ports.length !== last.length || !last.every(isSame)) {
      last = ports.map((port) => {
        return { port: proxiedPortKey(port), namespace: port.namespace, family: port.family };
      });
    }
    return last;
  };
}

/** The ports that are not conform, by name. */
export interface Ported {
  readonly different: ReadonlySet<string>;
  readonly pending: ReadonlySet<string>;
  readonly unknown: ReadonlySet<string>;
}

const conform = new WeakMap<readonly PortName[], readonly NodeVerdict[]>();

/** `families` are those of which the rules are known. */
export function portVerdicts(
  ports: readonly PortName[],
  families: ReadonlySet<string>,
  ported: Ported,
): readonly NodeVerdict[] {
  const { different, pending, unknown } = ported;
  const isQuiet = different.size + pending.size + unknown.size === 0 && families.size === 2;
  const known = isQuiet ? conform.get(ports) : undefined;
  if (known !== undefined) return known;
  const verdictOn = (port: string, family: string): [Verdict, NodeUnknownReason | null] => {
    if (!families.has(family)) return ['unknown', 'rules-not-known'];
    if (different.has(port)) return ['different', null];
    if (pending.has(port)) return ['pending', null];
    return unknown.has(port) ? ['unknown', 'rules-not-understood'] : ['conform', null];
  };
  const verdicts = ports.map(({ port, namespace, family }) => {
    const [verdict, reason] = verdictOn(port, family);
    return { port, namespace, verdict, reason };
  });
  if (isQuiet) conform.set(ports, verdicts);
  return verdicts;
}
