// How much could have been found on a node: what is wrong with most of what could show it is wrong
// with the node, and not with its Services one by one (rollup.ts).

import type { Claim } from '../rules/claims.ts';
import type { Fate, Forwarding, Frontend } from '../shadow/forwarding.ts';
import type { ProxiedPort } from '../shadow/serviceport.ts';
import type { Code } from './findings.ts';
import type { Probe } from './probes.ts';
import { probesOf, senderOf } from './probes.ts';
import type { Asked, Claims } from './rollup.ts';
import { groupOf } from './rollup.ts';

/** Names of Service ports by group. */
type Counted = Map<string, Set<string>>;

export const keyOfPort = ({ name, protocol, family }: ProxiedPort): string =>
  `${name} ${protocol} ${family}`;

/** Counts a frontend with those that could show what may differ from these fates. */
export function countAsked(asked: Counted, fates: readonly Fate[], frontend: Frontend): void {
  const { port, kind } = frontend;
  const name = keyOfPort(port);
  const add = (code: Code): void => {
    const key = groupOf(code, kind, port.family);
    const known = asked.get(key);
    if (known === undefined) asked.set(key, new Set([name]));
    else known.add(name);
  };
  for (const fate of fates) {
    if (fate.kind === 'pass') continue;
    if (fate.kind !== 'endpoints') {
      add('node-reject-missing');
      continue;
    }
    const own: readonly Code[] = [
      'node-frontend-missing',
      'node-frontend-blocked',
      'node-endpoint-missing',
      'node-endpoint-unexpected',
      'node-policy-different',
      'node-share-different',
      'node-foreign-rule',
      'node-endpoint-blocked',
    ];
    for (const code of own) add(code);
    const marks = [...fate.endpoints.values()];
    if (marks.includes(true)) add('node-masquerade-missing');
    if (marks.includes(false)) add('node-masquerade-unexpected');
    if (fate.affinitySeconds !== null) add('node-affinity-different');
  }
}

/** Counts what is as it must be with those that were asked for. */
export function countServed(
  asked: Counted,
  forwarding: Forwarding,
  frontend: Frontend,
  probes: readonly Probe[],
): void {
  for (const { packet } of probes) countAsked(asked, forwarding.expect(packet).fates, frontend);
}

/** All that a node may be asked for. */
export function askedOf(forwarding: Forwarding, node: Parameters<typeof senderOf>[1]): Asked {
  const asked: Counted = new Map();
  const sender = senderOf(forwarding, node);
  for (const frontend of forwarding.frontends) {
    countServed(asked, forwarding, frontend, probesOf(sender, frontend));
  }
  return asked;
}

/** How much the rules translate, by address family. */
export function countClaims(claims: readonly Claim[]): Claims {
  const of = (wanted: string): number =>
    claims.filter(({ family, translators }) => family === wanted && translators > 0).length;
  return { IPv4: of('ip'), IPv6: of('ip6') };
}
