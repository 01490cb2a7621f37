// Compares the digests that a node computes from its rules with those that follow from its objects:
// for every frontend with only one correct outcome for every client.

import {
  digestOf,
  expectedWordsAt,
  keyOf,
  wordsAt,
  wordsOf,
} from '../../src/rules/report/digest.ts';
import { frontendsInRules } from '../../src/rules/report/frontends.ts';
import { walk } from '../../src/rules/walk/walk.ts';
import { forwardingOf } from './audit.ts';
import type { Folder } from './folder.ts';
import { askingOf } from './reporting.ts';

export interface DigestCounts {
  readonly equal: number;
  /** Frontends whose digests differ, with the words of both sides. */
  readonly different: readonly string[];
  /** More than one outcome is correct, or the correct one is unknown. */
  readonly open: number;
}

/** null: there are no objects to hold the node against. */
export function compareDigests(folder: Folder): DigestCounts | null {
  const expected = forwardingOf(folder);
  if (expected === null) return null;
  const { forwarding, node } = expected;
  const asking = askingOf(folder, node, forwarding.config.mode);
  let [equal, open] = [0, 0];
  const different: string[] = [];
  for (const claim of frontendsInRules(folder.ruleset)) {
    const want = expectedWordsAt(claim, asking, (packet) => forwarding.expect(packet).outcomes);
    if (want === null) {
      open++;
      continue;
    }
    const got = wordsAt(claim, asking, (packet) => {
      const outcome = walk(folder.ruleset, folder.node, packet);
      return { words: wordsOf(outcome), endpoints: outcome.destinations.keys() };
    });
    if (digestOf(want) === digestOf(got)) equal++;
    else different.push(`${keyOf(claim)}: want ${want.join(' | ')} got ${got.join(' | ')}`);
  }
  return { equal, different, open };
}
