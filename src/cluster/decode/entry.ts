// The entries of a recording: what a live cluster delivers, and lines about nodes:
//
//   {"kind":"node-config","at":T,"node":"node-a","mode":"iptables","clusterCIDR":"10.244.0.0/16"}
//   {"kind":"node-rules","at":T,"node":"node-a","tool":"iptables-save","family":"IPv4","text":…}
//   {"kind":"node-rules","at":T,"node":"node-a","tool":…,"family":"IPv4","unchanged":true}

import type { Resource, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import { proxyModes } from '../../model/proxy-config.ts';
import type { Fields } from './json-fields.ts';
import { oneOf, optionalFlag, optionalText, text, word, WrongType } from './json-fields.ts';

/** `at` is the arrival, Unix seconds; the entries of a resource are in order. */
export type LiveEntry =
  | {
      /** The first entry, and again when the control plane has changed. */
      readonly kind: 'header';
      readonly at: number;
      /** Of the control plane, such as `v1.36.3`; null if it is unknown. */
      readonly kubernetes: string | null;
      readonly resources: readonly Resource[];
    }
  | { readonly kind: 'event'; readonly event: WatchEvent }
  | {
      readonly kind: 'unreadable';
      readonly at: number;
      readonly type: WatchEvent['type'] | null;
      readonly lost: UnreadableObject;
    }
  /** A list is complete: objects that are missing in it have been delivered as deleted. */
  | { readonly kind: 'synced'; readonly at: number; readonly resource: Resource }
  | {
      /** All up to this version has been delivered. */
      readonly kind: 'progress';
      readonly at: number;
      readonly resource: Resource;
      readonly resourceVersion: string;
    }
  | {
      readonly kind: 'watch';
      readonly at: number;
      readonly resource: Resource;
      readonly state: WatchState;
    }
  | {
      /** Whether a resource may be read in a namespace, if others of it may be read elsewhere. */
      readonly kind: 'access';
      readonly at: number;
      readonly resource: Resource;
      readonly namespace: string;
      readonly permitted: boolean;
    };

/**
 * - listing: the first list is not complete
 * - synced: the list is complete and the server has accepted the watch
 * - stale: the watch is lost and not yet established again
 * - relisting: history is lost, and a new list is under way
 * - off: not watched, by choice or for want of a permission
 */
export type WatchState = 'listing' | 'synced' | 'stale' | 'relisting' | 'off';

/** `at` is the arrival, Unix seconds; it never decreases from entry to entry. */
export type NodeConfigEntry = ReturnType<typeof readNodeConfig>;
export type NodeRulesEntry = ReturnType<typeof readNodeRules>;

/** Throws WrongType, with the field, as readNodeRules does. */
export function readNodeConfig(fields: Fields, at: number) {
  const mode = oneOf(fields, 'mode', proxyModes);
  const clusterCIDRs: readonly string[] = text(fields, 'clusterCIDR').split(',').filter(Boolean);
  return { kind: 'node-config' as const, at, node: nodeOf(fields), mode, clusterCIDRs };
}

export function readNodeRules(fields: Fields, at: number) {
  const family = oneOf(fields, 'family', ['IPv4', 'IPv6']);
  const unchanged = optionalFlag(fields, 'unchanged') === true;
  const dump = optionalText(fields, 'text');
  if (!unchanged && dump === null) throw new WrongType('text', 'a dump', fields.text);
  return {
    kind: 'node-rules' as const,
    at,
    /** When the dump began. */
    dumpedAt: typeof fields.at === 'number' && fields.at < at ? fields.at : at,
    node: nodeOf(fields),
    tool: text(fields, 'tool'),
    family,
    /** null: the same as the one before it, of this node, tool and family. */
    text: unchanged ? null : dump,
  };
}

function nodeOf(fields: Fields): string {
  const name = word(fields, 'node');
  if (name === '') throw new WrongType('node', 'the name of a node', fields.node);
  return name;
}
