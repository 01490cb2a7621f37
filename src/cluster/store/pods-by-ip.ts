// Pods by address: a hash table that holds nothing but the pods, which know their addresses
// themselves. A Map would hold every address again and three words beside it; in a large cluster
// that is a thirtieth of all that is held.
//
// Open addressing with linear probing: a pod has a slot near the hash of each of its addresses, and
// that hash beside it, so that hardly another pod is looked at than those that are meant, and none
// when the table is built anew, which must be quick. What is taken out leaves a mark until then.

import { fnv1a } from '../../model/hash.ts';
import { canonicalIP, isAt } from '../../model/ip.ts';
import type { Pod } from '../../model/objects.ts';

export interface AddressTable {
  /** Takes a pod in or out, or puts a new version in the place of the one before. */
  replace(before: Pod | null, after: Pod | null): void;
  /** The pods that have an address in canonical form, in no order. */
  at(address: string): readonly Pod[];
}

/** null: a pod was here. */
type Slot = Pod | null | undefined;

interface State {
  /** A power of two of them. */
  slots: Slot[];
  /** The hash that each slot was taken for. */
  hashes: Int32Array;
  /** Slots that are not undefined. */
  used: number;
  pods: number;
}

const least = 1024;

/**
 * Whether so many more do not fit. Small tables are rare and large ones have many addresses, so
 * that three quarters may be used.
 */
const isFull = ({ slots, used }: State, more: number): boolean =>
  (used + more) * 4 > slots.length * 3;

const emptySlots = (count: number): Slot[] => new Array<Slot>(count).fill(undefined);

/** The low bits are mixed, since addresses differ in their last digits. */
function hash(address: string): number {
  const value = fnv1a(address);
  return value ^ (value >>> 15);
}

/** The addresses of a pod in canonical form, each once. */
function addressesOf({ ips }: Pod): readonly string[] {
  return ips.length < 2 ? ips.map(canonicalIP) : [...new Set(ips.map(canonicalIP))];
}

function add(state: State, hashed: number, pod: Pod): void {
  const { slots, hashes } = state;
  const mask = slots.length - 1;
  let at = hashed & mask;
  while (slots[at] !== undefined && slots[at] !== null) at = (at + 1) & mask;
  if (slots[at] === undefined) state.used++;
  slots[at] = pod;
  hashes[at] = hashed;
  state.pods++;
}

/** Where a pod is for an address; it must be there. */
function find({ slots, hashes }: State, address: string, pod: Pod): number {
  const mask = slots.length - 1;
  const hashed = hash(address);
  let at = hashed & mask;
  while (slots[at] !== pod || hashes[at] !== hashed) {
    if (slots[at] === undefined) throw new Error(`${pod.key} is not at ${address}`);
    at = (at + 1) & mask;
  }
  return at;
}

/** Builds the table anew without marks, at most five eighths full with so many more. */
function rebuild(state: State, more: number): void {
  const { slots, hashes } = state;
  let size = least;
  while (size * 5 < (state.pods + more) * 8) size *= 2;
  state.slots = emptySlots(size);
  state.hashes = new Int32Array(size);
  state.used = 0;
  state.pods = 0;
  for (let at = 0; at < slots.length; at++) {
    const pod = slots[at];
    if (pod !== undefined && pod !== null) add(state, hashes[at] ?? 0, pod);
  }
}

/** An empty table. */
export function createAddressTable(): AddressTable {
  const state: State = {
    slots: emptySlots(least),
    hashes: new Int32Array(least),
    used: 0,
    pods: 0,
  };
  return {
    replace(before, after) {
      const was = before === null ? [] : addressesOf(before);
      const is = after === null ? [] : addressesOf(after);
      if (isFull(state, is.length)) rebuild(state, is.length);
      for (const address of was) {
        if (before === null) continue;
        const at = find(state, address, before);
        const stays = after !== null && is.includes(address);
        state.slots[at] = stays ? after : null;
        if (!stays) state.pods--;
      }
      for (const address of is) {
        if (after !== null && !was.includes(address)) add(state, hash(address), after);
      }
    },
    at(address) {
      const { slots, hashes } = state;
      const mask = slots.length - 1;
      const hashed = hash(address);
      const found: Pod[] = [];
      for (let at = hashed & mask; slots[at] !== undefined; at = (at + 1) & mask) {
        if (hashes[at] !== hashed) continue;
        const pod = slots[at];
        if (pod?.ips.some((ip) => isAt(ip, address)) !== true) continue;
        if (!found.includes(pod)) found.push(pod);
      }
      return found;
    },
  };
}
