// Caches the expected forwarding of nodes of one class. Of 10,000 Services a node has endpoints of
// a few. The others need the same forwarding on every node of the zone whose kube-proxy has the
// same configuration. A class therefore has the expected digests of all frontends
// (rules/report/digest.ts) and updates those of Services that change. A node whose digests are
// equal needs nothing else. These Services are audited for the node itself, as audit-node.ts does
// without a cache:
//
//   Services with another digest than expected
//   Services with an endpoint on the node, or a hint for it
//   endpoints or frontends at addresses of the node    their packets stay on the node
//   source ranges, health checks, several possible sets of endpoints    no digest covers them
//   two Services with one address and port             either is right
//   node ports at addresses that the agent leaves out  no digest covers them
//   frontends of the rules that no Service has         they must do nothing

import { canonicalIP } from '../../model/ip.ts';
import type { Key, Node, Service } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import type { Steps } from '../../model/run-to-end.ts';
import type { NodeSenders } from '../../rules/report/digest.ts';
import { digestOf, expectedWordsAt, keyOf } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';
import { expectedForwarding, isAtNode } from '../../shadow/forwarding.ts';
import { isLoopback, proxyNode } from '../../shadow/proxy-node.ts';
import type { Coverage } from './aggregate.ts';
import type { NodeAudit } from './audit-node.ts';
import { auditNodeInSteps } from './audit-node.ts';
import type { NodeBehavior, NodeDigest } from './node-behavior.ts';
import { countTranslated, fullCoverage } from './probes.ts';
import type { ProxyCache } from './proxy-cache.ts';
import type { NodeVerdict } from './verdicts.ts';
import { conformVerdicts } from './verdicts.ts';

export interface NodeClasses {
  /** Audits a node by the report of its agent. */
  auditInSteps(node: ReportingNode): Steps<ReportingNodeAudit>;
}

export interface ReportingNode {
  readonly node: Node;
  readonly rules: NodeBehavior;
  readonly digest: NodeDigest;
  readonly config: ProxyConfig;
  /** Addresses of the node's interfaces, in canonical form. */
  readonly localAddresses: readonly string[];
  /** Services that were audited for this node itself the last time. */
  readonly before: ReadonlySet<Key>;
}

export interface ReportingNodeAudit {
  readonly audit: NodeAudit;
  /** The conform verdicts of all ports; nodes of a class share the list. */
  readonly ports: readonly NodeVerdict[];
  /** Services that were audited for this node itself. */
  readonly individual: ReadonlySet<Key>;
}

/** One Service on the nodes of a class that have none of its endpoints. */
interface ClassEntry {
  readonly key: Key;
  /** By the keys of frontends; null if no digest covers the frontend. */
  readonly digests: ReadonlyMap<string, string | null>;
  /**
   * The keys of its frontends and their addresses, `nodePorts` if it has one, the nodes that its
   * endpoints and hints name, and addresses of endpoints that may be a node's own.
   */
  readonly indexKeys: ReadonlySet<string>;
  readonly ports: readonly NodeVerdict[];
  readonly coverage: Coverage;
}

interface NodeClass {
  readonly entries: Map<Key, ClassEntry>;
  readonly index: Map<string, ClassEntry[]>;
  /** The sum over all entries. */
  readonly coverage: Map<string, number>;
  /** null if ports have changed. */
  ports: readonly NodeVerdict[] | null;
  /** The revision of the proxy cache up to which the entries are known; -1 before the first. */
  revision: number;
}

/** The key of Services with node ports in the index. */
const nodePorts = 'node ports';

/** The cache keeps this many classes and evicts the least recently used. */
const maxClasses = 32;

export function createNodeClasses(proxied: ProxyCache): NodeClasses {
  const classes = new Map<string, NodeClass>();
  /** The reports of nodes share their frontends. */
  const keys = new WeakMap<RuleFrontend, string>();
  const cachedKeyOf = (frontend: RuleFrontend): string => {
    const cached = keys.get(frontend);
    if (cached !== undefined) return cached;
    const key = keyOf(frontend);
    keys.set(frontend, key);
    return key;
  };
  return {
    *auditInSteps(node) {
      const signature = signatureOf(node);
      const nodeClass = classes.get(signature) ?? newClass();
      classes.delete(signature);
      classes.set(signature, nodeClass);
      const [oldest] = classes.keys();
      if (classes.size > maxClasses && oldest !== undefined) classes.delete(oldest);
      yield* updateClass(nodeClass, proxied, node);
      return yield* auditByClass(nodeClass, proxied, node, cachedKeyOf);
    },
  };
}

const newClass = (): NodeClass => ({
  entries: new Map(),
  index: new Map(),
  coverage: new Map(),
  ports: null,
  revision: -1,
});

/** Everything about a node that matters to Services without endpoints on it. */
function signatureOf({ node, config, localAddresses, digest: { asking } }: ReportingNode): string {
  const place = proxyNode(node, config, localAddresses);
  const isFromPod = (from: 'node' | 'pod' | 'outside', src: string): boolean =>
    place.isFromPod({ from, src, dst: src, protocol: 'tcp', dport: 1 });
  const sender = (from: 'node' | 'pod' | 'outside', src: string | null): unknown =>
    src && [place.isLocal(src), isFromPod(from, src), asking.addresses.includes(src)];
  const senders = [asking.ip, asking.ip6].map(({ node, pod, outside }) => [
    sender('node', node),
    sender('pod', pod),
    sender('outside', outside),
  ]);
  const addresses = asking.addresses.map((address) => [
    ...[address.includes(':'), isLoopback(address), place.isLocal(address)],
    ...[place.servesNodePorts(address), isFromPod('node', address)],
  ]);
  return JSON.stringify([config, node.zone, asking.strays, senders, addresses, place.detects]);
}

/** Updates the entries of Services that have changed. */
function* updateClass(nodeClass: NodeClass, proxied: ProxyCache, node: ReportingNode): Steps {
  // Other nodes of the class, and changes, may come between two steps.
  while (nodeClass.revision !== proxied.revision()) {
    const revision = proxied.revision();
    const changed = proxied.changedSince(nodeClass.revision);
    for (const key of changed ??
      new Set([...proxied.services.keys(), ...nodeClass.entries.keys()])) {
      const service = proxied.services.get(key);
      setEntry(nodeClass, key, service === undefined ? null : entryOf(service, proxied, node));
      yield;
    }
    nodeClass.revision = revision;
  }
}

function setEntry(nodeClass: NodeClass, key: Key, entry: ClassEntry | null): void {
  const { entries, index, coverage } = nodeClass;
  const before = entries.get(key) ?? null;
  if (before !== null) {
    for (const name of before.indexKeys) {
      const others = index.get(name)?.filter((other) => other !== before) ?? [];
      if (others.length === 0) index.delete(name);
      else index.set(name, others);
    }
    addCoverage(coverage, before.coverage, -1);
    entries.delete(key);
  }
  if (entry !== null) {
    for (const name of entry.indexKeys) {
      const others = index.get(name);
      if (others === undefined) index.set(name, [entry]);
      else others.push(entry);
    }
    addCoverage(coverage, entry.coverage, 1);
    entries.set(key, entry);
  }
  const names = (it: ClassEntry | null) => it?.ports.map(({ port }) => port).join('\n') ?? '';
  if (names(before) !== names(entry)) nodeClass.ports = null;
}

function addCoverage(
  sum: Map<string, number>,
  coverage: Iterable<readonly [string, number]>,
  sign: 1 | -1,
): void {
  for (const [group, count] of coverage) sum.set(group, (sum.get(group) ?? 0) + sign * count);
}

function entryOf(service: Service, { slices }: ProxyCache, reporting: ReportingNode): ClassEntry {
  const { config, localAddresses, digest } = reporting;
  const node = { ...reporting.node, name: '' };
  const forwarding = expectedForwarding([service], slices, node, config, localAddresses);
  const { ports, frontends } = forwarding;
  const digests = new Map<string, string | null>();
  const indexKeys = new Set<string>();
  for (const frontend of frontends) {
    const inRules = ruleFrontend(frontend, digest.asking);
    const key = keyOf(inRules);
    if (!digests.has(key)) {
      digests.set(key, expectedDigest(forwarding, frontend, inRules, digest.asking));
    }
    indexKeys.add(key).add(isAtNode(frontend.kind) ? nodePorts : frontend.address);
  }
  for (const { endpoints } of slices.get(service.key) ?? []) {
    for (const { node: name, forNodes, target, addresses } of endpoints) {
      for (const named of [name ?? [], forNodes ?? []].flat()) indexKeys.add(named);
      // A pod is on its node, whatever its address is.
      if (name !== null && target !== null) continue;
      for (const address of addresses) indexKeys.add(canonicalIP(address));
    }
  }
  const coverage = fullCoverage(forwarding, node);
  return { key: service.key, digests, indexKeys, ports: conformVerdicts(ports), coverage };
}

/** The frontend that the rules must have. */
function ruleFrontend(
  { port, kind, address, protocol, dport }: Frontend,
  asking: NodeSenders,
): RuleFrontend {
  const family = port.family === 'IPv4' ? 'ip' : 'ip6';
  const isAny = isAtNode(kind) && asking.addresses.some((item) => canonicalIP(item) === address);
  return { family, address: isAny ? null : address, protocol, port: dport, translators: 1 };
}

function expectedDigest(
  forwarding: Forwarding,
  { port, kind, address }: Frontend,
  inRules: RuleFrontend,
  asking: NodeSenders,
): string | null {
  const isRanged = kind === 'load balancer IP' && port.sourceRanges.length > 0;
  if (isRanged || kind === 'health check node port' || port.usable?.length !== 1) return null;
  // Nodes of a class have different addresses.
  const { isLocal } = forwarding.node;
  const [usable] = port.usable;
  const endpoints = [...(usable?.cluster ?? []), ...(usable?.local ?? [])];
  if ((!isAtNode(kind) && isLocal(address)) || endpoints.some(({ ip }) => isLocal(ip))) return null;
  const words = expectedWordsAt(inRules, asking, (packet) => forwarding.expect(packet).outcomes);
  return words === null ? null : digestOf(words);
}

/** The Services to audit for the node itself, and the rules' frontends that the class lacks. */
function individualParts(
  { entries, index }: NodeClass,
  { rules, digest, config, node, localAddresses }: ReportingNode,
  cachedKeyOf: (frontend: RuleFrontend) => string,
) {
  const services = new Set<Key>();
  const addAll = (name: string): void => {
    for (const { key } of index.get(name) ?? []) services.add(key);
  };
  for (const name of [node.name, ...localAddresses]) addAll(name);
  for (const entry of entries.values()) {
    for (const [key, expected] of entry.digests) {
      const isExpected = expected !== null && digest.digests.get(key) === expected;
      if (!isExpected || index.get(key)?.length !== 1) services.add(entry.key);
    }
  }
  const place = proxyNode(node, config, localAddresses);
  const covered = new Set(digest.asking.addresses.map(canonicalIP));
  const isMissing = (ip: string): boolean => place.servesNodePorts(ip) && !covered.has(ip);
  if ([...place.addresses, '127.0.0.1'].some(isMissing)) addAll(nodePorts);
  const frontends = rules.frontends.filter((frontend) => {
    const key = cachedKeyOf(frontend);
    if (index.has(key) && frontend.translators < 2) return false;
    addAll(key);
    if (frontend.address !== null) addAll(frontend.address);
    return true;
  });
  return { services, frontends };
}

/** Audits these parts, and takes the rest from the class. */
function* auditByClass(
  nodeClass: NodeClass,
  proxied: ProxyCache,
  reporting: ReportingNode,
  cachedKeyOf: (frontend: RuleFrontend) => string,
): Steps<ReportingNodeAudit> {
  const { node, rules, config, localAddresses, before } = reporting;
  const { services: individual, frontends } = individualParts(nodeClass, reporting, cachedKeyOf);
  const { entries } = nodeClass;
  const keys = [...new Set([...individual, ...before])];
  const coverage = new Map(nodeClass.coverage);
  for (const key of keys) addCoverage(coverage, entries.get(key)?.coverage ?? [], -1);
  const ports = (nodeClass.ports ??= [...entries.values()].flatMap((entry) => entry.ports));
  const services = keys.flatMap((key) => proxied.services.get(key) ?? []);
  const forwarding = expectedForwarding(services, proxied.slices, node, config, localAddresses);
  const audit = yield* auditNodeInSteps({ forwarding, node, rules: { ...rules, frontends } });
  addCoverage(coverage, audit.coverage, 1);
  const translated = countTranslated(rules.frontends);
  return { audit: { ...audit, coverage, translated }, ports, individual };
}
