// Whether a node's rules are what they were: a hash of all that a round reads, without what changes
// by itself and says nothing: comments, which have the time in them, and the counters of base
// chains. What else changes by itself (counters of nft, what sets remember) makes the next round
// read again, which costs and is never wrong.
//
// Format: iptables 1.8, iptables/iptables-save.c and nft-shared.c: base chains come first.

import { createHash } from 'node:crypto';

import type { CollectedRules } from './collect.ts';
import type { NodeFacts } from './report.ts';

/** The same text while digests must be the same; null: not all rules are known. */
export function fingerprintOf(
  { dumps, states, problems }: CollectedRules,
  place: NodeFacts,
): string | null {
  if (problems.length > 0) return null;
  const hash = createHash('sha256').update(JSON.stringify([states, place]));
  for (const { program, bytes } of dumps) {
    hash.update(`\n${program.name}\n`);
    const parts = program.prints === 'iptables-save' ? lastingIn(bytes) : [bytes];
    for (const part of parts) hash.update(part);
  }
  return hash.digest('base64url');
}

const [newline, hashSign, colon, star, minus] = [10, 35, 58, 42, 45];

/** A dump by iptables-save without what changes by itself. */
function* lastingIn(bytes: Buffer): Generator<Buffer> {
  let from = 0;
  let at = 0;
  while (at < bytes.length) {
    const found = bytes.indexOf(newline, at);
    const end = found < 0 ? bytes.length : found;
    const counters = bytes[at] === colon ? bytes.indexOf(' [', at) : end;
    const isBase = bytes[at] === colon && counters < end && bytes[counters - 1] !== minus;
    if (bytes[at] === hashSign || isBase) {
      yield bytes.subarray(from, isBase ? counters : at);
      from = end;
    } else if (bytes[at] !== star) {
      // Behind the base chains nothing changes by itself until the table's end.
      const comment = bytes.indexOf('\n#', at);
      at = comment < 0 ? bytes.length : comment + 1;
      continue;
    }
    at = end + 1;
  }
  yield bytes.subarray(Math.min(from, bytes.length));
}
