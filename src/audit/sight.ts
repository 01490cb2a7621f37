// What is seen of a node: its rules, and what they tell of the kube-proxy that wrote them.

import type { Node } from '../model/objects.ts';
import type { ProxyConfig } from '../model/proxy.ts';
import { defaultProxyConfig } from '../model/proxy.ts';
import type { RulesDump } from '../rules/dumps.ts';
import type { Lack, RuleSet } from '../rules/ruleset.ts';
import { together } from '../rules/ruleset.ts';
import { modeIn, settingsIn } from '../rules/settings.ts';
import type { Rules } from './node.ts';
import { rulesAtHand } from './node.ts';
import type { UnknownOfNode } from './verdict.ts';

/** The rules of a node, and what is known with them. */
export interface Sight {
  readonly rules: Rules;
  /** Of kube-proxy. */
  readonly config: ProxyConfig;
  readonly families: ReadonlySet<string>;
  /** What stands on the node and the dumps do not tell. */
  readonly lacks: readonly Lack[];
}

/** What stands on the node by its dumps; null: one could not be read. `given`: see configOf. */
export function sightOf(
  dumps: Iterable<RulesDump | null>,
  { addresses }: Pick<Node, 'addresses'>,
  minor: number,
  given: Partial<ProxyConfig> = {},
): Sight {
  const read = [...dumps].filter((dump) => dump !== null);
  const ruleset = together(read.map((dump) => dump.ruleset));
  return {
    rules: rulesAtHand(ruleset, { localAddresses: addresses }),
    config: configOf(ruleset, minor, given),
    families: new Set(read.flatMap((dump) => dump.families)),
    lacks: ruleset.lacks,
  };
}

/**
 * kube-proxy's configuration: what is given of it, else what its rules tell, else as it is by
 * default.
 */
export function configOf(
  ruleset: RuleSet,
  minor: number,
  given: Partial<ProxyConfig> = {},
): ProxyConfig {
  const mode = given.mode ?? modeIn(ruleset);
  return { ...defaultProxyConfig(mode, minor), ...settingsIn(ruleset, mode), ...given };
}

/** Why there is nothing to judge by; null: there is. A dump that is null could not be read. */
export function unreadable({ dumps, given, sight }: Seen): UnknownOfNode | null {
  if ([...dumps.values()].includes(null)) return 'rules-not-known';
  if (modeOf({ given, sight }) === 'ipvs') return 'proxy-mode-not-modelled';
  return lacksOf({ given, sight }).length === 0 ? null : 'rules-not-whole';
}

/** What must be known besides: not where rules send that are left over from another mode. */
export function lacksOf({ given, sight }: Omit<Seen, 'dumps'>): readonly Lack[] {
  const isNftables = modeOf({ given, sight }) === 'nftables';
  return (sight?.lacks ?? []).filter(({ kind }) => kind !== 'targets' || !isNftables);
}

const modeOf = ({ given, sight }: Omit<Seen, 'dumps'>): ProxyConfig['mode'] | undefined =>
  given.mode ?? sight?.config.mode;

interface Seen {
  readonly dumps: ReadonlyMap<string, RulesDump | null>;
  /** What somebody has said of kube-proxy's configuration. */
  readonly given: Partial<ProxyConfig>;
  readonly sight: Sight | null;
}
