// Caches the expected forwarding of nodes of one class. Most Services have no endpoint on a node,
// and need the same forwarding on every node of the zone with the same configuration of kube-proxy:
// a class has the expected digests (rules/report/digest.ts) of all frontends. Audited by node are:
//
//   Services with another digest than expected
//   Services with an endpoint on the node, or a hint for it
//   endpoints or frontends at addresses of the node    their packets stay on the node
//   source ranges, health checks, several possible sets of endpoints    no digest covers them
//   two Services with one address and port             either is right
//   node ports at addresses that the agent leaves out  no digest covers them
//   frontends of the rules that no Service has         they must do nothing

import { addCount, getOrInsert, setLatest } from '../../model/collections.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Key, Service } from '../../model/objects.ts';
import type { Packet } from '../../model/proxy-config.ts';
import { runToEnd, type Steps } from '../../model/run-to-end.ts';
import { digestOf, expectedWordsAt, keyOf } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';
import { isAtNode } from '../../shadow/forwarding.ts';
import { isLoopback } from '../../shadow/proxy-node.ts';
import { nodeForwarding, nodeForwardingInSteps } from '../../shadow/cilium/node-forwarding.ts';
import type { Coverage } from './packet-difference.ts';
import { auditNodeInSteps } from './audit-node.ts';
import type { CurrentReading, LastAudit, NodeState, NodeVerdict } from './node-state.ts';
import { conformVerdicts } from './node-state.ts';
import { type ReportedBehavior, ruleFrontend } from './observation.ts';
import { coverageOf, probeSender } from './probes.ts';
import type { ProxyCache } from './proxy-cache.ts';

const nodePorts = 'node ports';

export type ClassAudit = ReturnType<typeof createClassAudit>;

/** Returns a function that audits a node by the report of its agent. */
export function createClassAudit(proxied: ProxyCache) {
  const classes = new Map<string, NodeClass>();
  return function* auditInSteps(node: ReportingNode, known: string | null = null) {
    const signature = known ?? signatureOf(node);
    const nodeClass = classes.get(signature) ?? newClass();
    setLatest(classes, signature, nodeClass, 32);
    yield* updateClass(nodeClass, proxied, node);
    return yield* auditByClass(nodeClass, proxied, node);
  };
}

export type ReportingNode = Pick<CurrentReading, 'node' | 'config'> & { rules: ReportedBehavior };

const newClass = () => ({
  entries: new Map<Key, ClassEntry>(),
  index: new Map<string, ClassEntry[]>(),
  /** Of Services, by content: nearly all have one of few. */
  coverages: new Map<string, Coverage>(),
  /** null if ports have changed. */
  ports: null as readonly NodeVerdict[] | null,
  /** The revision of the proxy cache up to which the entries are known; -1 before the first. */
  revision: -1,
});

type NodeClass = ReturnType<typeof newClass>;

/** Everything about a node that matters to Services without endpoints on it. */
function signatureOf({ node, config, rules: { localAddresses, report } }: ReportingNode): string {
  const { asking } = report;
  const { node: place } = nodeForwarding([], new Map(), node, config, localAddresses);
  const factsOf = (from: Packet['from'], ip: string | null) =>
    ip && [
      ip.includes(':'),
      isLoopback(ip),
      place.isLocal(ip),
      place.servesNodePorts(ip),
      place.isFromPod({ from, src: ip, dst: ip, protocol: 'tcp', dport: 1 }),
      asking.addresses.includes(ip),
    ];
  const senders = [asking.ip, asking.ip6].flatMap((ips) =>
    (['node', 'pod', 'outside'] as const).map((from) => factsOf(from, ips[from])),
  );
  const addresses = asking.addresses.map((address) => factsOf('node', address));
  // The facts about addresses say where Cilium has node ports.
  const cilium = config.cilium && { ...config.cilium, nodePortAddresses: [] };
  const shared = { ...config, cilium };
  // Annotations of Services choose nodes by this label, but only Cilium reads them.
  const label = cilium && node.ciliumNode;
  const facts = [asking.strays, senders, addresses, place.detects];
  return JSON.stringify([shared, node.zone, label, ...facts]);
}

/** How often a node may get a class that is none of its last: it costs a look at all Services. */
const classChanges = { most: 5, within: 600, known: 8 };

/** Refuses a node whose agent reports one new configuration after the other. */
export function noteClass(state: NodeState, node: ReportingNode, at: number): void {
  const signature = signatureOf(node);
  const { most, within, known } = classChanges;
  const changedAt = state.changedAt.filter((moment) => at - moment < within);
  const name = digestOf([signature]);
  const isNew = state.signature !== null && !state.classes.includes(name);
  state.changedAt = isNew ? [...changedAt.slice(-most), at] : changedAt;
  // Rules show some settings only while there are certain endpoints, so that a class returns.
  state.classes = [...state.classes.filter((other) => other !== name), name].slice(-known);
  state.signature = signature;
  const message = `Its configuration has changed more than ${most} times in ${within} s`;
  if (state.changedAt.length > most) state.refused = { message };
}

function* updateClass(nodeClass: NodeClass, proxied: ProxyCache, node: ReportingNode): Steps {
  // Other nodes of the class, and changes, may come between two steps.
  while (nodeClass.revision !== proxied.revision()) {
    const revision = proxied.revision();
    const changes = proxied.changesSince(nodeClass.revision);
    const isWhole = changes[0]?.revision === nodeClass.revision + 1;
    const changed = isWhole
      ? changes.map(({ key }) => key)
      : [...proxied.services.keys(), ...nodeClass.entries.keys()];
    for (const key of new Set(changed)) {
      const service = proxied.services.get(key);
      const entry = service && entryOf(service, proxied, node);
      setEntry(nodeClass, key, entry ? { ...entry, coverage: shared(nodeClass, entry) } : null);
      yield;
    }
    nodeClass.revision = revision;
  }
}

function shared({ coverages }: NodeClass, { coverage }: ClassEntry): Coverage {
  if (coverages.size >= 1024) coverages.clear();
  return getOrInsert(coverages, JSON.stringify([...coverage]), () => coverage);
}

function setEntry(nodeClass: NodeClass, key: Key, entry: ClassEntry | null): void {
  const { entries, index } = nodeClass;
  const before = entries.get(key) ?? null;
  const names = (it: ClassEntry | null) => it?.ports.map(({ port }) => port).join('\n') ?? '';
  if (names(before) !== names(entry)) nodeClass.ports = null;
  for (const name of before?.indexKeys ?? []) {
    const others = index.get(name)?.filter((other) => other !== before) ?? [];
    if (others.length === 0) index.delete(name);
    else index.set(name, others);
  }
  entries.delete(key);
  if (entry === null) return;
  for (const name of entry.indexKeys) {
    const others = index.get(name);
    // Nearly always only one Service; a literal has no room for others.
    if (others === undefined) index.set(name, [entry]);
    else others.push(entry);
  }
  entries.set(key, entry);
}

type ClassEntry = ReturnType<typeof entryOf>;

/** One Service on the nodes of a class that have none of its endpoints. */
function entryOf(service: Service, { slices }: ProxyCache, reporting: ReportingNode) {
  const { config, rules } = reporting;
  const { asking } = rules.report;
  const nodeAddresses = new Set(asking.addresses.map(canonicalIP));
  const node = { ...reporting.node, name: '' };
  const forwarding = nodeForwarding([service], slices, node, config, rules.localAddresses);
  /** By the keys of frontends; null if no digest covers the frontend. */
  const digests = new Map<string, string | null>();
  /** Keys and addresses of frontends, and nodes and addresses that its endpoints may be at. */
  const indexKeys = new Set<string>();
  for (const frontend of forwarding.frontends) {
    const inRules = ruleFrontend(frontend, nodeAddresses);
    const key = keyOf(inRules);
    getOrInsert(digests, key, () => {
      if (!isCovered(forwarding, frontend)) return null;
      const words = expectedWordsAt(inRules, asking, (it) => forwarding.expect(it).outcomes);
      return words === null ? null : digestOf(words);
    });
    indexKeys.add(key).add(isAtNode(frontend.kind) ? nodePorts : frontend.address);
  }
  const endpoints = (slices.get(service.key) ?? []).flatMap((slice) => slice.endpoints);
  for (const { node: name, forNodes, target, addresses } of endpoints) {
    for (const named of [name ?? [], forNodes ?? []].flat()) indexKeys.add(named);
    // A pod is on its node, whatever its address is.
    if (name !== null && target !== null) continue;
    for (const address of addresses) indexKeys.add(canonicalIP(address));
  }
  const ports = conformVerdicts(forwarding.ports);
  const coverage = runToEnd(coverageOf(probeSender(forwarding, node)));
  return { key: service.key, digests, indexKeys, ports, coverage };
}

/** Whether one digest shows that a frontend is served, on all nodes of a class. */
function isCovered(
  { node: { isLocal }, config }: Forwarding,
  { port, kind, address }: Frontend,
): boolean {
  const isRestricted = kind === 'load balancer IP' || config.mode === 'cilium';
  const isRanged = isRestricted && port.sourceRanges.length > 0;
  if (isRanged || kind === 'health check node port') return false;
  const usable = port.usable();
  if (usable?.length !== 1) return false;
  // Nodes of a class have different addresses.
  const endpoints = usable.flatMap(({ cluster, local }) => [...cluster, ...local]);
  return (isAtNode(kind) || !isLocal(address)) && !endpoints.some(({ ip }) => isLocal(ip));
}

/** Entries and frontends that are compared in one step. */
const perStep = 256;

function* auditByClass(
  nodeClass: NodeClass,
  proxied: ProxyCache,
  { node, rules, config }: ReportingNode,
): Steps<Pick<LastAudit, 'audit' | 'ports'>> {
  const { entries, index } = nodeClass;
  const { asking, digests } = rules.report;
  const individual = new Set<Key>();
  const addAll = (name: string): void => {
    for (const { key } of index.get(name) ?? []) individual.add(key);
  };
  for (const name of [node.name, ...rules.localAddresses]) addAll(name);
  for (const key of rules.report.withRanges) addAll(key);
  let taken = 0;
  for (const entry of entries.values()) {
    for (const [key, expected] of entry.digests) {
      const isExpected = expected !== null && digests.get(key) === expected;
      if (!isExpected || index.get(key)?.length !== 1) individual.add(entry.key);
    }
    if (++taken % perStep === 0) yield;
  }
  const { node: place } = nodeForwarding([], new Map(), node, config, rules.localAddresses);
  const covered = new Set(asking.addresses.map(canonicalIP));
  const isMissing = (ip: string): boolean => place.servesNodePorts(ip) && !covered.has(ip);
  if ([...place.addresses, '127.0.0.1'].some(isMissing)) addAll(nodePorts);
  const keys = [...digests.keys()];
  const frontends: RuleFrontend[] = [];
  for (const [at, frontend] of rules.frontends.entries()) {
    const key = keys[at] ?? '';
    const { address, translators } = frontend;
    if (!index.has(key) || translators > 1) {
      addAll(key);
      if (address !== null) addAll(address);
      frontends.push(frontend);
    }
    if (at % perStep === 0) yield;
  }
  const ports = (nodeClass.ports ??= [...entries.values()].flatMap((entry) => entry.ports));
  const services = [...individual].flatMap((key) => proxied.services.get(key) ?? []);
  const { slices } = proxied;
  const { localAddresses } = rules;
  const forwarding = yield* nodeForwardingInSteps(services, slices, node, config, localAddresses);
  const audit = yield* auditNodeInSteps({ forwarding, node, rules: { ...rules, frontends } });
  if (audit.differences.length === 0) return { audit, ports };
  const coverage = new Map(audit.coverage);
  const others = [...entries.values()].filter(({ key }) => !individual.has(key));
  for (const [each, list] of Map.groupBy(others, (entry) => entry.coverage)) {
    for (const [name, size] of each) {
      addCount(coverage, name, size * list.length);
    }
  }
  return { audit: { ...audit, coverage }, ports };
}
