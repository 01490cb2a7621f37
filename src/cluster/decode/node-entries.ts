// Reads the lines of a recording about nodes: the configuration of kube-proxy (`node-config`), and
// dumps of rules (`node-rules`). A dump that equals the one before it is marked as unchanged.
//
//   {"kind":"node-config","at":T,"node":"node-a","mode":"iptables","clusterCIDR":"10.244.0.0/16"}
//   {"kind":"node-rules","at":T,"node":"node-a","tool":"iptables-save","family":"IPv4","text":…}
//   {"kind":"node-rules","at":T,"node":"node-a","tool":…,"family":"IPv4","unchanged":true}

import type { ProxyConfig } from '../../model/proxy-config.ts';
import { proxyModes } from '../../model/proxy-config.ts';
import type { Fields } from './json-fields.ts';
import { oneOf, optionalFlag, optionalText, text, word, WrongType } from './json-fields.ts';

export interface NodeConfigEntry {
  readonly kind: 'node-config';
  /** Unix seconds; never decreases from entry to entry. */
  readonly at: number;
  readonly node: string;
  readonly mode: ProxyConfig['mode'];
  readonly clusterCIDRs: readonly string[];
}

export interface NodeRulesEntry {
  readonly kind: 'node-rules';
  /** As above; others may have come since the dump began. */
  readonly at: number;
  /** When the dump began. */
  readonly dumpedAt: number;
  readonly node: string;
  /** The program that printed it. */
  readonly tool: string;
  readonly family: 'IPv4' | 'IPv6';
  /** null: the same as the one before it, of this node, tool and family. */
  readonly text: string | null;
}

/** Reads such a line. Throws WrongType, with the field, for what is no such thing. */
export function readNodeConfig(fields: Fields, at: number): NodeConfigEntry {
  const mode = oneOf(fields, 'mode', proxyModes);
  const clusterCIDRs = text(fields, 'clusterCIDR').split(',').filter(Boolean);
  return { kind: 'node-config', at, node: nodeOf(fields), mode, clusterCIDRs };
}

/** As above. */
export function readNodeRules(fields: Fields, at: number): NodeRulesEntry {
  const family = oneOf(fields, 'family', ['IPv4', 'IPv6']);
  const unchanged = optionalFlag(fields, 'unchanged') === true;
  const dump = optionalText(fields, 'text');
  if (!unchanged && dump === null) throw new WrongType('text', 'a dump', fields.text);
  return {
    kind: 'node-rules',
    at,
    dumpedAt: typeof fields.at === 'number' && fields.at < at ? fields.at : at,
    node: nodeOf(fields),
    tool: text(fields, 'tool'),
    family,
    text: unchanged ? null : dump,
  };
}

function nodeOf(fields: Fields): string {
  const name = word(fields, 'node');
  if (name === '') throw new WrongType('node', 'the name of a node', fields.node);
  return name;
}
