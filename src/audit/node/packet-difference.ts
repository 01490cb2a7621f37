// A difference between what packets must do on a node and what its rules do with them.

import { getOrInsert } from '../../model/collections.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code } from '../finding/catalogue.ts';

export interface PacketDifference {
  readonly code: Code;
  /** null if no Service has the frontend. */
  readonly port: ProxiedPort | null;
  readonly frontend: string;
  /** Identifies it from one dump to the next. Its last word is the endpoint if it is about one. */
  readonly key: string;
  readonly kind: string;
  /** '' if it does not depend on the origin of packets. */
  readonly origin: string;
  /** What happens to the packets, without the endpoint, or the foreign rule that does it. */
  readonly effect: string;
  /** Properties of the expected outcomes that the effect may depend on. */
  readonly properties: readonly CoveredProperty[];
  readonly expected: string;
  readonly actual: string;
  /** `ip:port`; `null` if it is about all packets. */
  readonly endpoint: string | null;
  /** What is expected of `endpoint`, and what it gets; `null` if that is all packets. */
  readonly sides: readonly [expected: string | null, actual: string | null] | null;
  /** The rule that causes it; null if none does, or several do. */
  readonly rule: string | null;
  /** The packet did not reach the rules of its Service. */
  readonly untranslated?: boolean;
  readonly harmless: boolean;
}

export type PacketDifferences = readonly PacketDifference[];

/** The number of Service ports whose packets can show a difference, by class of packets. */
export type Coverage = ReadonlyMap<PacketClass, number>;

/** A property of a packet's expected outcome; stray: the packet is for a wrong port. */
export type CoveredProperty =
  'endpoints' | 'rejected' | 'dropped' | 'stray' | 'masqueraded' | 'not masqueraded' | 'affinity';

/** Packets with a property, from one origin to one kind of frontend. */
export interface PacketClass {
  readonly property: CoveredProperty;
  readonly kind: string;
  readonly family: string;
  readonly origin: string;
}

const classes = new Map<string, PacketClass>();

/** The same object for the same class, so that it can be the key of a map. */
export const packetClass = (it: PacketClass): PacketClass =>
  getOrInsert(classes, [it.property, it.kind, it.family, it.origin].join(), () => it);
