// Walks packets on a node where each pod has an interface, as with Calico: that of a route to a
// single address without a gateway. A rule that matches the interface of one pod is a policy of
// that pod, and no property of a Service. So the walk uses a pod that no policy blocks. If a rule
// for one pod's interface blocks a packet on either side, its interfaces are unknown.

import { formatAddress, isWithin, parseAddress, parseNetwork } from '../model/ip.ts';
import type { Packet } from '../model/proxy-config.ts';
import type { Element, Rule, RuleSet, Statement } from '../rules/ruleset.ts';
import { mayBe } from '../rules/walk/match.ts';
import { hostsOf, routeLookup, type Routes } from '../rules/walk/routes.ts';
import type { NodeContext, TraceStep } from '../rules/walk/walk-state.ts';
import { createWalk, type PacketOutcome } from '../rules/walk/walk.ts';

export type Walker = (packet: Packet) => PacketOutcome;

/** The largest number of pods to try until the packets of one pass. */
const mostTried = 16;

/** Addresses for documentation, which no host has: RFC 5737 and RFC 3849. */
export const outsideAddress = { ip: '198.51.100.7', ip6: '2001:db8::7' } as const;

/** `podCIDRs` are networks of the node's pods. */
export function walkerOf(
  ruleset: RuleSet,
  context: NodeContext,
  routes: Routes | null,
  podCIDRs: readonly string[],
): Walker {
  const walkPlain = createWalk(ruleset, context);
  if (routes === null) return walkPlain;
  const lookup = routeLookup(routes);
  const interfaces = { ...context.interfaces, routes: lookup };
  const walk = createWalk(ruleset, { ...context, interfaces });
  const hosts = hostsOf(routes);
  const own = new Set(hosts.map((host) => host.interface));
  const walker: Walker = (packet) => {
    const outcome = walk(packet);
    if (own.size === 0 || !isPolicy(outcome, own)) return outcome;
    const { from, src, dst, protocol, dport } = packet;
    return walkPlain({ from, src, dst, protocol, dport });
  };
  const ranges = podCIDRs.flatMap((text) => parseNetwork(text) ?? []);
  const pods = hosts.filter(({ address }) => ranges.some((range) => isWithin(address, range)));
  const isFree = (address: number): boolean => {
    const [src, dst] = [formatAddress(address), outsideAddress.ip];
    const { drop, reject } = walk({ from: 'pod', src, dst, protocol: 'tcp', dport: 80 });
    return drop.probability + reject.probability === 0;
  };
  const standIn = pods.slice(0, mostTried).find(({ address }) => isFree(address));
  const interfaceOf = ({ from, src, iif }: Packet): string | null => {
    const source = parseAddress(src);
    if (source === null) return null;
    // A packet from outside arrives at the interface that the routes name, unless pods have it.
    if (from === 'outside' && iif?.startsWith('!') === true) {
      const way = lookup.from('outside', source);
      return way !== null && mayBe(iif, way) ? way : null;
    }
    if (from !== 'pod') return null;
    const usual = typeof source === 'number' ? (standIn?.interface ?? null) : null;
    const known = lookup.from('pod', source) ?? usual;
    if (iif === undefined) return known;
    // If kube-proxy detects pods by an interface prefix, the auditor sends the prefix with `*`, or
    // with `0` up to release 0.1. All interfaces with that prefix belong to pods.
    if (context.interfaces?.all?.includes(iif) !== false) return null;
    const isOne = (name: string): boolean => name.startsWith(iif.slice(0, -1));
    return known !== null && isOne(known) ? known : ([...own].find(isOne) ?? null);
  };
  return (packet) => {
    const iif = interfaceOf(packet);
    return walker(iif === null ? packet : { ...packet, iif });
  };
}

/** Whether a rule that names one of these interfaces stopped a packet, or called what did. */
const isPolicy = ({ drop, reject }: PacketOutcome, interfaces: ReadonlySet<string>): boolean =>
  [drop, reject].some(
    ({ probability, trace }) =>
      probability > 0 && callersIn(trace()).some(({ rule }) => isAbout(rule, interfaces)),
  );

function callersIn(trace: readonly TraceStep[]): TraceStep[] {
  const callers: TraceStep[] = [];
  for (const step of trace.toReversed()) {
    const called = callers.at(-1);
    if (called === undefined || calls(step, called)) callers.push(step);
  }
  return callers;
}

function calls({ rule, base }: TraceStep, called: TraceStep): boolean {
  const isCall = (target: Statement | Element['verdict']): boolean =>
    (target?.kind === 'jump' || target?.kind === 'goto') && target.chain === called.chain;
  return (
    base === called.base &&
    rule.statements.some(
      (statement) =>
        isCall(statement) ||
        (statement.kind === 'verdict map' &&
          statement.set.elements.some(({ verdict }) => isCall(verdict))),
    )
  );
}

function isAbout({ statements }: Rule, interfaces: ReadonlySet<string>): boolean {
  const isNamed = (name: unknown): boolean => typeof name === 'string' && interfaces.has(name);
  return statements.some((statement) => {
    if (statement.kind === 'interface') return statement.names.some(isNamed);
    if (statement.kind !== 'verdict map' && statement.kind !== 'lookup') return false;
    const { key, set } = statement;
    const asks = key.kind === 'fields' && (key.fields.includes('in') || key.fields.includes('out'));
    return asks && set.elements.some((element) => element.key.some(isNamed));
  });
}
