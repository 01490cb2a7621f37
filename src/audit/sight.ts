// What is seen of a node: its rules, and what they tell of the kube-proxy that wrote them.

import type { Node } from '../model/objects.ts';
import type { ProxyConfig } from '../model/proxy.ts';
import { defaultProxyConfig } from '../model/proxy.ts';
import type { RulesDump } from '../rules/dumps.ts';
import type { RuleSet } from '../rules/ruleset.ts';
import { together } from '../rules/ruleset.ts';
import { modeIn, settingsIn } from '../rules/settings.ts';
import type { Rules } from './node.ts';
import { rulesAtHand } from './node.ts';

/** The rules of a node, and what is known with them. */
export interface Sight {
  readonly rules: Rules;
  /** Of kube-proxy, unless somebody has said so. */
  readonly config: ProxyConfig;
  readonly families: ReadonlySet<string>;
}

/** What stands on the node by its dumps; null: one could not be read. */
export function sightOf(
  dumps: Iterable<RulesDump | null>,
  { addresses }: Pick<Node, 'addresses'>,
  minor: number,
): Sight {
  const read = [...dumps].filter((dump) => dump !== null);
  const ruleset = together(read.map((dump) => dump.ruleset));
  return {
    rules: rulesAtHand(ruleset, { localAddresses: addresses }),
    config: configOf(ruleset, minor),
    families: new Set(read.flatMap((dump) => dump.families)),
  };
}

/** What rules tell of kube-proxy's configuration; what they do not tell is as it is by default. */
export const configOf = (ruleset: RuleSet, minor: number): ProxyConfig => ({
  ...defaultProxyConfig(modeIn(ruleset), minor),
  ...settingsIn(ruleset),
});
