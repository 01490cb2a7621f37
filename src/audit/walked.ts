// One Service port on one node, packet by packet: what should come of each, what the rules that
// stand do with it, and which rules it met on its ways, as the node prints them. The packets and
// the comparison are those of the audit (node.ts), so that both say the same.
//
// Left out: how long it has been so; a walk is of the rules as they were last seen.

import type { TraceStep } from '../rules/match.ts';
import type { Outcome } from '../rules/walk.ts';
import type { Fate } from '../shadow/forwarding.ts';
import type { NodeInput } from './node.ts';
import { viewOf } from './node.ts';
import { compare, described } from './outcome.ts';
import { probesOf, senderOf } from './probes.ts';

/** What becomes of one packet. */
export interface WalkedPort {
  readonly kind: string;
  /** `10.96.0.1:80/tcp` */
  readonly frontend: string;
  /** Where the packet comes from, for people. */
  readonly origin: string;
  readonly verdict: 'conform' | 'different' | 'unknown';
  readonly expected: string;
  readonly actual: string;
  /** Endpoints, `ip:port`, to which it must be able to come, may come, and does come. */
  readonly wanted: readonly string[];
  readonly allowed: readonly string[];
  readonly got: readonly string[];
  /** Rules that decided on any of its ways, in their order, each once. */
  readonly rules: readonly string[];
  /** Rules on which the outcome depends and that are not understood. */
  readonly unknown: readonly string[];
}

const mostRules = 40;

/** Walks the packets of the port of that name; none: it is not served there. */
export function walkedPort(input: NodeInput, name: string): WalkedPort[] {
  const { forwarding, node, rules } = input;
  const sender = senderOf(forwarding, node);
  const view = viewOf(input);
  return forwarding.frontends
    .filter(({ port }) => port.name === name)
    .flatMap((frontend) =>
      probesOf(sender, frontend).flatMap((probe) => {
        const { fates } = forwarding.expect(probe.packet);
        const outcome = rules.walk(probe.packet);
        if (outcome === null) return [];
        const { verdict } = compare(fates, outcome, view, probe.packet);
        return {
          kind: frontend.kind,
          ...described(probe, fates, outcome),
          verdict,
          ...endpointsOf(fates),
          got: [...outcome.destinations]
            .filter(([, { probability }]) => probability > 0)
            .map(([endpoint]) => endpoint),
          rules: rulesMet(outcome),
          unknown: outcome.unknown.map(({ reason, rule }) => `${reason}: ${rule}`),
        };
      }),
    );
}

/** Of several fates any is right: a must is what all of them have, a may what one has. */
function endpointsOf(fates: readonly Fate[]): Pick<WalkedPort, 'wanted' | 'allowed'> {
  const sets = fates.map((fate) => new Set(fate.kind === 'endpoints' ? fate.endpoints.keys() : []));
  const allowed = [...new Set(sets.flatMap((set) => [...set]))];
  return { allowed, wanted: allowed.filter((one) => sets.every((set) => set.has(one))) };
}

const lineOf = ({ rule, base }: TraceStep): string =>
  base.table.source === 'nft' ? rule.text : `-t ${base.table.name} ${rule.text}`;

function rulesMet({ destinations, reject, drop, pass }: Outcome): string[] {
  const met = new Set<string>();
  for (const fate of [...destinations.values(), reject, drop, pass]) {
    if (fate.probability === 0) continue;
    for (const step of fate.trace()) met.add(lineOf(step));
  }
  const rules = [...met];
  const more = rules.length - mostRules;
  return more > 0 ? [...rules.slice(0, mostRules), `and ${more} more`] : rules;
}
