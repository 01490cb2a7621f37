// What is expected of nodes that are alike, worked out once for all of them. Of 10,000 Services a
// node has endpoints of a few; what must come of packets to all others is the same on every node of
// its zone whose kube-proxy is configured alike. So each kind of node has the digests of all
// frontends (rules/digest.ts), which follow the Services that change, one by one. A node that tells
// the same digest needs nothing else; what it tells otherwise, and every Service of which the node
// itself matters, is judged as if there were no others (node.ts):
//
//   Services with an endpoint, or a hint, of the node      what is local decides
//   endpoints, or frontends, at addresses of the node      such packets stay on it
//   source ranges, health checks, several possible sets    no digest tells of them
//   two Services at one address and port                   either is right
//   addresses of the node, where the agent does not ask    node ports there have no digest
//   what rules answer for and no Service claims            nothing must come of it
//
// How much could have been found (rollup.ts) is what the kind has, and those Services again.

import { canonicalIP } from '../../model/ip.ts';
import type { Key, Node, Service } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import type { NodeSenders } from '../../rules/report/digest.ts';
import { digestOf, expectedWordsAt, keyOf } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';
import { expectedForwarding, isAtNode } from '../../shadow/forwarding.ts';
import { isLoopback, proxyNode } from '../../shadow/proxy-node.ts';
import type { NodeAudit } from './audit-node.ts';
import { auditNodeInSteps } from './audit-node.ts';
import type { NodeDigest, NodeBehavior } from './node-behavior.ts';
import { fullCoverage, countTranslated, proxiedPortKey } from './probes.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { PortName } from './verdicts.ts';

export interface NodeClasses {
  /** Judges a node by what its agent tells, in small steps. */
  observing(on: ReportingNode): Generator<undefined, ReportingNodeAudit>;
}

/** A node, and all that is known of it. */
export interface ReportingNode {
  readonly node: Node;
  readonly rules: NodeBehavior;
  readonly brief: NodeDigest;
  readonly config: ProxyConfig;
  /** Its own addresses, in canonical form. */
  readonly own: readonly string[];
  /** Services that were looked at by themselves the last time. */
  readonly before: ReadonlySet<Key>;
}

export interface ReportingNodeAudit {
  readonly observed: NodeAudit;
  /** The same list for nodes that are alike. */
  readonly ports: readonly PortName[];
  readonly apart: ReadonlySet<Key>;
}

/** One Service, as it is on all nodes of a kind. */
interface ClassEntry {
  readonly service: Service;
  /** By the keys of frontends; null: no digest tells enough. */
  readonly digests: ReadonlyMap<string, string | null>;
  readonly addresses: readonly string[];
  readonly hasNodePort: boolean;
  readonly ports: readonly PortName[];
  readonly asked: ReadonlyMap<string, number>;
}

/** Nodes of which the same is expected, as far as they are not mentioned themselves. */
interface NodeClass {
  readonly entries: Map<Key, ClassEntry>;
  /** Of all entries, by the keys of frontends: whose they are. */
  readonly claimed: Map<string, ClassEntry[]>;
  readonly byAddress: Map<string, Set<Key>>;
  readonly withNodePort: Set<Key>;
  readonly asked: Map<string, number>;
  /** null: must be put together anew. */
  ports: readonly PortName[] | null;
  /** Of what is told of Services (proxied.ts); -1: nothing is known yet. */
  revision: number;
  /** Services to be looked at before that is so. */
  readonly due: Set<Key>;
}

/** More kinds than these are nodes that are alike no more; the one unused for longest goes. */
const mostKinds = 32;

/** After more changes than these all is made anew. */
const mostChanges = 10_000;

export function createNodeClasses(proxied: ProxyCache): NodeClasses {
  const kinds = new Map<string, NodeClass>();
  const mentioned = createMentioned(proxied);
  return {
    *observing(on) {
      const signature = signatureOf(on);
      const kind = kinds.get(signature) ?? newKind();
      kinds.delete(signature);
      kinds.set(signature, kind);
      const [oldest] = kinds.keys();
      if (kinds.size > mostKinds && oldest !== undefined) kinds.delete(oldest);
      yield* bringUp(kind, proxied, on);
      return yield* judging(kind, proxied, on, mentioned(on));
    },
  };
}

const newKind = (): NodeClass => ({
  entries: new Map(),
  claimed: new Map(),
  byAddress: new Map(),
  withNodePort: new Set(),
  asked: new Map(),
  ports: null,
  revision: -1,
  due: new Set(),
});

/** All of a node that decides on Services which do not mention it. */
function signatureOf({ node, config, own, brief: { asking } }: ReportingNode): string {
  const place = proxyNode(node, config, own);
  const sender = (from: 'node' | 'pod' | 'outside', src: string | null): unknown =>
    src === null
      ? null
      : [
          place.isLocal(src),
          place.isFromPod({ from, src, dst: src, protocol: 'tcp', dport: 1 }),
          asking.addresses.includes(src),
        ];
  const senders = [asking.ip, asking.ip6].map(({ node, pod, outside }) => [
    sender('node', node),
    sender('pod', pod),
    sender('outside', outside),
  ]);
  const addresses = asking.addresses.map((address) => [
    ...[address.includes(':'), isLoopback(address), place.isLocal(address)],
    place.servesNodePorts(address),
    place.isFromPod({ from: 'node', src: address, dst: address, protocol: 'tcp', dport: 1 }),
  ]);
  return JSON.stringify([config, node.zone, asking.strays, senders, addresses, place.detects]);
}

/**
 * A function that names the Services which mention a node: by endpoints on it, hints for it, or
 * endpoints at an address of its own. A pod is on its node whatever its address is.
 */
function createMentioned(proxied: ProxyCache): (on: ReportingNode) => Iterable<Key> {
  /** By the name or the address of a node. */
  const byNode = new Map<string, Set<Key>>();
  const byService = new Map<Key, ReadonlySet<string>>();
  let revision = -1;
  const renew = (key: Key): void => {
    for (const node of byService.get(key) ?? []) byNode.get(node)?.delete(key);
    const nodes = new Set<string>();
    for (const { endpoints } of proxied.slices.get(key) ?? []) {
      for (const { node, forNodes, target, addresses } of endpoints) {
        if (node !== null) nodes.add(node);
        for (const one of forNodes ?? []) nodes.add(one);
        if (node !== null && target !== null) continue;
        for (const address of addresses) nodes.add(canonicalIP(address));
      }
    }
    if (nodes.size === 0) byService.delete(key);
    else byService.set(key, nodes);
    for (const node of nodes) put(byNode, node, key);
  };
  return ({ node, own }) => {
    const changed = changedSince(proxied, revision);
    if (changed === null) {
      byNode.clear();
      byService.clear();
    }
    for (const key of changed ?? proxied.slices.keys()) renew(key);
    revision = proxied.revision();
    return [node.name, ...own].flatMap((name) => [...(byNode.get(name) ?? [])]);
  };
}

function put<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const known = map.get(key);
  if (known === undefined) map.set(key, new Set([value]));
  else known.add(value);
}

/** The Services that changed; null: all must be looked at. */
function changedSince(proxied: ProxyCache, revision: number): ReadonlySet<Key> | null {
  if (revision < 0 || proxied.revision() - revision > mostChanges) return null;
  return new Set([...proxied.changesSince(revision)].map(({ key }) => key));
}

/** Takes in what changed since the kind was last asked for; whoever else asks goes on with it. */
function* bringUp(kind: NodeClass, proxied: ProxyCache, on: ReportingNode): Generator<undefined> {
  for (;;) {
    if (kind.revision !== proxied.revision()) {
      const changed = changedSince(proxied, kind.revision);
      const all = [...proxied.services.keys(), ...kind.entries.keys()];
      for (const key of changed ?? all) kind.due.add(key);
      kind.revision = proxied.revision();
    }
    const [next] = kind.due;
    if (next === undefined) return;
    kind.due.delete(next);
    renew(kind, proxied, on, next);
    yield;
  }
}

function renew(kind: NodeClass, proxied: ProxyCache, on: ReportingNode, key: Key): void {
  const before = kind.entries.get(key);
  const service = proxied.services.get(key);
  const now = service === undefined ? undefined : entryOf(service, proxied, on);
  if (before !== undefined) takeOut(kind, before);
  if (now !== undefined) putIn(kind, now);
  const names = (entry: ClassEntry | undefined): string =>
    (entry?.ports ?? []).map(({ port }) => port).join('\n');
  if (names(before) !== names(now)) kind.ports = null;
}

function putIn(kind: NodeClass, entry: ClassEntry): void {
  const { key } = entry.service;
  kind.entries.set(key, entry);
  for (const name of entry.digests.keys()) {
    const known = kind.claimed.get(name);
    if (known === undefined) kind.claimed.set(name, [entry]);
    else known.push(entry);
  }
  for (const address of entry.addresses) put(kind.byAddress, address, key);
  if (entry.hasNodePort) kind.withNodePort.add(key);
  for (const [group, count] of entry.asked) {
    kind.asked.set(group, (kind.asked.get(group) ?? 0) + count);
  }
}

function takeOut(kind: NodeClass, entry: ClassEntry): void {
  const { key } = entry.service;
  kind.entries.delete(key);
  for (const name of entry.digests.keys()) {
    const others = (kind.claimed.get(name) ?? []).filter((other) => other !== entry);
    if (others.length === 0) kind.claimed.delete(name);
    else kind.claimed.set(name, others);
  }
  for (const address of entry.addresses) kind.byAddress.get(address)?.delete(key);
  kind.withNodePort.delete(key);
  for (const [group, count] of entry.asked) {
    kind.asked.set(group, (kind.asked.get(group) ?? 0) - count);
  }
}

/** The Service on a node of this kind that nobody mentions. */
function entryOf(service: Service, { slices }: ProxyCache, on: ReportingNode): ClassEntry {
  const { config, own, brief } = on;
  const node = { ...on.node, name: '' };
  const forwarding = expectedForwarding([service], slices, node, config, own);
  const { ports, frontends } = forwarding;
  const digests = new Map<string, string | null>();
  for (const frontend of frontends) {
    const claim = claimAt(frontend, brief.asking);
    const key = keyOf(claim);
    if (!digests.has(key)) digests.set(key, digestAt(forwarding, frontend, claim, brief.asking));
  }
  const asked = [...fullCoverage(forwarding, node)].map(
    ([group, { size }]) => [group, size] as const,
  );
  return {
    service,
    digests,
    addresses: frontends.filter(({ kind }) => !isAtNode(kind)).map(({ address }) => address),
    hasNodePort: frontends.some(({ kind }) => isAtNode(kind)),
    ports: ports.map((port) => {
      return { port: proxiedPortKey(port), namespace: port.namespace, family: port.family };
    }),
    asked: new Map(asked),
  };
}

/** What rules must answer for: at addresses of the node at any of them. */
function claimAt(
  { port, kind, address, protocol, dport }: Frontend,
  asking: NodeSenders,
): RuleFrontend {
  const family = port.family === 'IPv4' ? 'ip' : 'ip6';
  const isAny = isAtNode(kind) && asking.addresses.some((one) => canonicalIP(one) === address);
  return { family, address: isAny ? null : address, protocol, port: dport, translators: 1 };
}

function digestAt(
  forwarding: Forwarding,
  { port, kind, address }: Frontend,
  claim: RuleFrontend,
  asking: NodeSenders,
): string | null {
  const isRanged = kind === 'load balancer IP' && port.sourceRanges.length > 0;
  if (isRanged || kind === 'health check node port' || port.usable?.length !== 1) return null;
  // What is this node's own is no other's, though both are alike.
  const { isLocal } = forwarding.node;
  const [usable] = port.usable;
  const endpoints = [...(usable?.cluster ?? []), ...(usable?.local ?? [])];
  if ((!isAtNode(kind) && isLocal(address)) || endpoints.some(({ ip }) => isLocal(ip))) return null;
  const words = expectedWordsAt(claim, asking, (packet) => forwarding.expect(packet).outcomes);
  return words === null ? null : digestOf(words);
}

/** Reports of nodes have the same claims (fleet/report.ts). */
const keys = new WeakMap<RuleFrontend, string>();

function keyOfKnown(claim: RuleFrontend): string {
  const known = keys.get(claim);
  if (known !== undefined) return known;
  const key = keyOf(claim);
  keys.set(claim, key);
  return key;
}

/** Services to be looked at by themselves, and what rules answer for besides. */
function partOf(kind: NodeClass, on: ReportingNode, mentioned: Iterable<Key>) {
  const { rules, brief, config, node, own } = on;
  const apart = new Set(mentioned);
  const add = (keys: Iterable<Key> = []): void => {
    for (const key of keys) apart.add(key);
  };
  const owners = (entries: readonly ClassEntry[]): Key[] =>
    entries.map(({ service }) => service.key);
  for (const [key, entries] of kind.claimed) {
    const [entry] = entries;
    const digest = entries.length === 1 ? (entry?.digests.get(key) ?? null) : null;
    if (digest === null || brief.digests.get(key) !== digest) add(owners(entries));
  }
  const place = proxyNode(node, config, own);
  const isAsked = new Set(brief.asking.addresses.map(canonicalIP));
  const isUnasked = (one: string): boolean => place.servesNodePorts(one) && !isAsked.has(one);
  if ([...place.addresses, '127.0.0.1'].some(isUnasked)) add(kind.withNodePort);
  for (const address of own) add(kind.byAddress.get(address));
  const claims = rules.frontends.filter((claim) => {
    const entries = kind.claimed.get(keyOfKnown(claim));
    if (entries !== undefined && claim.translators < 2) return false;
    add(owners(entries ?? []));
    add(kind.byAddress.get(claim.address ?? ''));
    return true;
  });
  return { apart, claims };
}

/** Judges what is not as the kind has it. */
function* judging(
  kind: NodeClass,
  proxied: ProxyCache,
  on: ReportingNode,
  mentioned: Iterable<Key>,
): Generator<undefined, ReportingNodeAudit> {
  const { node, rules, config, own, before } = on;
  const { apart, claims } = partOf(kind, on, mentioned);
  const looked = new Set([...apart, ...before]);
  const asked = new Map(kind.asked);
  const count = (group: string, more: number): void => {
    asked.set(group, (asked.get(group) ?? 0) + more);
  };
  for (const key of looked) {
    for (const [group, size] of kind.entries.get(key)?.asked ?? []) count(group, -size);
  }
  const ports = (kind.ports ??= [...kind.entries.values()].flatMap((entry) => entry.ports));
  const services = [...looked].flatMap((key) => proxied.services.get(key) ?? []);
  const forwarding = expectedForwarding(services, proxied.slices, node, config, own);
  const observed = yield* auditNodeInSteps({
    forwarding,
    node,
    rules: { ...rules, frontends: claims },
  });
  for (const [group, { size }] of observed.coverage) count(group, size);
  const sizes = new Map([...asked].map(([group, size]) => [group, { size }]));
  return {
    observed: { ...observed, coverage: sizes, translated: countTranslated(rules.frontends) },
    ports,
    apart,
  };
}
