// What the rules of nodes do, for the reference auditor: each dump is compared with everything that
// is known at its moment, from nothing, and all earlier versions of all Services are kept. From
// this history follows when each difference of a packet opens and which findings exist:
//
// - The clock of a difference starts with the first reading that shows it, or with the latest
//   change of its Service, if that is later, and again when it does more harm
//   (docs/decisions/0002, 0020).
// - It is due when readings of a whole window have shown it, and every version of the Service since
//   its start.
// - After each reading, the open findings of the auditor are those that follow from what is due,
//   and each difference that is due is in a finding of its Service or of the node.
//
// It shares the desired forwarding, the model of a node, the comparison of packets and the grouping
// of differences with the program. Dumps reach the auditor as dumps, or as reports of agents.
// Left out: `node-unlike-others`, which compares reports of many nodes.

import { severityOf } from '../../src/audit/node/aggregate.ts';
import { auditNode, differencesFrom } from '../../src/audit/node/audit-node.ts';
import { desiredFindings, pendingItem } from '../../src/audit/node/node-findings.ts';
import type { CurrentReading, DifferenceClock } from '../../src/audit/node/node-state.ts';
import { newNodeState } from '../../src/audit/node/node-state.ts';
import { observeDumps } from '../../src/audit/node/observation.ts';
import type { PacketDifference } from '../../src/audit/node/packet-difference.ts';
import type { ServiceVersion } from '../../src/audit/node/proxy-cache.ts';
import { serviceOf } from '../../src/audit/node/staleness.ts';
import type { Severity } from '../../src/audit/finding/catalogue.ts';
import { bySeverity, isWorse } from '../../src/audit/finding/catalogue.ts';
import type { AuditorEntry } from '../../src/auditor/auditor.ts';
import type { NodeConfigEntry, NodeRulesEntry } from '../../src/cluster/decode/entry.ts';
import type { Key, Listers, Resource } from '../../src/model/objects.ts';
import { readRulesDump } from '../../src/rules/parse/rules-dump.ts';
import { expectedForwarding, slicesByService } from '../../src/shadow/forwarding.ts';
import { refusedNodePortAddress } from '../../src/shadow/proxy-node.ts';
import type { Reference } from './reference.ts';

/** A finding of the auditor, as far as it is compared. */
interface NodeFindingTimes {
  readonly namespace: string;
  readonly service: string;
  readonly code: string;
  readonly severity: Severity;
  readonly since: number;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
  readonly node: string | null;
}

interface ExpectedNodeFinding {
  /** Service and code. */
  readonly text: string;
  /** null while a watch is gone: it opens when the watch is back. */
  openedAt: number | null;
  resolvedAt: number | null;
}

type NodeHistory = ReturnType<typeof createHistory>;

const createHistory = (name: string) => ({
  ...newNodeState(name),
  isMarkedUnknown: false,
  /** The dumps of this round and of the one before. */
  rounds: [] as { readonly source: string; readonly at: number }[][],
  /** Of each finding that the grouping names, the one that it is part of. */
  parts: new Map<string, ExpectedNodeFinding>(),
  findings: [] as ExpectedNodeFinding[],
});

interface History {
  readonly reference: Reference;
  /** Whether the dumps are reports of agents. */
  readonly agents: boolean;
  readonly nodes: Map<string, NodeHistory>;
  /** The first line about nodes has come. */
  begun: boolean;
  /** Lines from before the audit began. */
  readonly early: Map<string, NodeConfigEntry | NodeRulesEntry>;
  readonly current: Map<Key, Omit<ServiceVersion, 'until'>>;
  readonly past: Map<Key, ServiceVersion[]>;
  readings: number;
}

export function createNodeHistory(reference: Reference, agents: boolean) {
  const history: History = {
    ...{ reference, agents, nodes: new Map(), begun: false, early: new Map() },
    ...{ current: new Map(), past: new Map(), readings: 0 },
  };
  return {
    readings: () => history.readings,
    /** Takes an entry after the reference has taken it. */
    take(entry: AuditorEntry): void {
      if (entry.kind === 'node-config' || entry.kind === 'node-rules') takeLine(history, entry);
      else if (entry.kind === 'event' && isProxied(entry.event.resource)) {
        noteVersions(history, entry.event.at);
      }
      if (history.early.size > 0 && reference.state.begun) {
        const early = [...history.early.values()];
        history.early.clear();
        for (const line of early) takeLine(history, line);
      }
    },
    /** Compares the open findings of the auditor, after the same entry. */
    compare: (open: readonly NodeFindingTimes[]): string[] =>
      [...history.nodes.values()].flatMap((node) =>
        compareOpen(
          history,
          node,
          open.filter((it) => it.node === node.name),
        ),
      ),
    /** Compares when findings were open, at the end. */
    check: (observed: readonly NodeFindingTimes[]): string[] =>
      [...history.nodes.values()].flatMap(({ name, findings }) => {
        const got = observed
          .filter((it) => it.node === name && it.code !== unlike)
          .map((it) => `${textOf(it)} ${lifeText(it)}`);
        const want = findings.map((it) => `${it.text} ${lifeText(it)}`);
        return differing(want, got).map((line) => `node ${name}: ${line}`);
      }),
  };
}

const unlike = 'node-unlike-others';

const isProxied = (resource: Resource): boolean =>
  resource === 'services' || resource === 'endpointslices';

// --- versions ---

/** Replaces what is known of all Services, and keeps what was. */
function noteVersions({ reference, begun, current, past }: History, at: number): void {
  const { view } = reference.state;
  if (!begun || view === null) return;
  const { services, slices } = view.listers;
  const byService = slicesByService(slices.values());
  for (const key of new Set([...current.keys(), ...services.keys(), ...byService.keys()])) {
    const version = { service: services.get(key) ?? null, slices: byService.get(key) ?? [] };
    const before = current.get(key) ?? { service: null, slices: [] };
    const isSame =
      before.service === version.service &&
      before.slices.length === version.slices.length &&
      version.slices.every((slice) => before.slices.includes(slice));
    if (isSame) continue;
    current.set(key, version);
    past.set(key, [...(past.get(key) ?? []), { ...before, until: at }]);
  }
}

// --- readings ---

function nodeOf({ nodes }: History, name: string): NodeHistory {
  const node = nodes.get(name) ?? createHistory(name);
  nodes.set(name, node);
  return node;
}

function takeLine(history: History, line: NodeConfigEntry | NodeRulesEntry): void {
  const { reference, early, agents } = history;
  const { begun, now } = reference.state;
  const source = line.kind === 'node-rules' ? `${line.tool} ${line.family}` : '';
  if (!begun) {
    const isUnchanged = line.kind === 'node-rules' && line.text === null;
    if (!isUnchanged && !agents) early.set(`${line.kind} ${line.node} ${source}`, line);
    if (!agents) return;
  }
  const node = nodeOf(history, line.node);
  if (!history.begun && begun) {
    history.begun = true;
    noteVersions(history, now);
    history.past.clear();
  }
  if (line.kind === 'node-config') {
    const { mode, clusterCIDRs } = line;
    node.given = { mode, ...(clusterCIDRs.length > 0 ? { clusterCIDRs } : {}) };
    return;
  }
  const { text, family } = line;
  if (text !== null) node.dumps.set(source, parsed(text, family));
  // An agent is asked when the audit has begun, and while the cluster is watched.
  if (agents && (!begun || reference.isBlind('node'))) return;
  const at = agents ? line.dumpedAt : Math.max(line.dumpedAt, now - (line.at - line.dumpedAt));
  const readAt = agents ? at : readingAt(node, source, at);
  if (readAt === null) return;
  history.readings++;
  readNode(history, node, readAt);
}

/**
 * Dumps of several sources are one reading, as old as the oldest of them. A round ends when a
 * source comes again, and has all sources of the round before; the first dump of a source is a
 * reading of its own. The rules of a source that misses a round are not known any more.
 */
function readingAt({ rounds, dumps }: NodeHistory, source: string, at: number): number | null {
  const known = rounds.flat().some((dump) => dump.source === source);
  const [round = [], before = []] = rounds;
  if (!known) {
    before.push({ source, at });
    rounds.splice(0, 2, round, before);
    return at;
  }
  const isNext = round.some((dump) => dump.source === source);
  const [now, last] = isNext ? [[{ source, at }], round] : [[...round, { source, at }], before];
  const kept = new Set([...now, ...last].map((dump) => dump.source));
  for (const other of dumps.keys()) if (!kept.has(other)) dumps.delete(other);
  const isWhole = last.every((dump) => now.some((other) => other.source === dump.source));
  rounds.splice(0, 2, ...(isWhole ? [[], now] : [now, last]));
  return isWhole ? Math.min(...now.map((dump) => dump.at)) : null;
}

function parsed(text: string, family: 'IPv4' | 'IPv6' | null) {
  try {
    return readRulesDump(text, family);
  } catch {
    return 'unreadable';
  }
}

/** What is seen of a node; null: nothing can be known, `unread`: the agent cannot read it. */
function observe({ reference, agents }: History, { name, dumps, given }: NodeHistory) {
  const { view, release } = reference.state;
  const node = view?.listers.nodes.get(name);
  const read = [...dumps.values()].filter((dump) => dump !== 'unreadable');
  const isUnread = read.length < dumps.size;
  if (agents && isUnread) return 'unread';
  if (view === null || node === undefined || isUnread) return null;
  const seen = observeDumps(read, node, release.minor, agents ? {} : given);
  const { rules, families, lacks } = seen;
  if (agents && lacks.length > 0) return 'unread';
  const config = { ...seen.config, minor: node.kubeletMinor ?? seen.config.minor };
  const isRefused = config.mode === 'ipvs' || refusedNodePortAddress(config) !== null;
  if (isRefused || lacks.length > 0) return null;
  return { node, rules, config, families: agents ? new Set(['IPv4', 'IPv6']) : families };
}

type Observed = Exclude<ReturnType<typeof observe>, string | null>;

/** The cluster as kube-proxies know it, with all that it was. */
const proxiedOf = ({ services, slices }: Listers, past: History['past']) => ({
  services,
  slices: slicesByService(slices.values()),
  past,
  revision: () => 0,
  changesSince: () => [],
  apply: () => undefined,
});

function forwardingFor(
  { node, rules, config, families }: Observed,
  services: Parameters<typeof expectedForwarding>[0],
  slices: Parameters<typeof expectedForwarding>[1],
) {
  const all = expectedForwarding(services, slices, node, config, rules.localAddresses);
  return { ...all, frontends: all.frontends.filter(({ port }) => families.has(port.family)) };
}

function readNode(history: History, node: NodeHistory, at: number): void {
  const { view } = history.reference.state;
  const observed = observe(history, node);
  if (observed === 'unread') {
    node.isMarkedUnknown = true;
    return;
  }
  if (view === null || observed === null) {
    node.clocks.clear();
    expect(history, node, [], at);
    node.at = at;
    return;
  }
  if (node.isMarkedUnknown) {
    node.isMarkedUnknown = false;
    node.at = null;
    const open = openKeys(node);
    for (const key of node.clocks.keys()) if (!open.has(key)) node.clocks.delete(key);
  }
  const proxied = proxiedOf(view.listers, history.past);
  const forwarding = forwardingFor(observed, proxied.services.values(), proxied.slices);
  const audit = auditNode({ forwarding, node: observed.node, rules: observed.rules });
  const reading: CurrentReading = {
    ...{ ...observed, proxied, audit, at, isSame: false, divergences: new Map() },
    byService: Map.groupBy(audit.differences, (it) => serviceOf(proxied, it)),
  };
  startClocks(node, reading);
  const due = dueIn(history, node, observed, reading);
  expect(history, node, desiredFindings(node, reading, due), at);
  node.at = at;
}

const openKeys = ({ open }: NodeHistory): ReadonlySet<string> =>
  new Set([...open.values()].flatMap(({ finding }) => finding.differences.map(({ key }) => key)));

function startClocks(node: NodeHistory, { audit, proxied, at }: CurrentReading): void {
  const clocks = new Map<string, DifferenceClock>();
  for (const difference of audit.differences) {
    const { key } = difference;
    const severity = severityOf(difference);
    const known = node.clocks.get(key);
    const changed = proxied.past.get(serviceOf(proxied, difference) ?? '')?.at(-1)?.until ?? 0;
    const fresh = { before: Math.max(node.at ?? at, changed), since: Math.max(at, changed) };
    const goesOn = known !== undefined && !isWorse(severity, known.severity);
    clocks.set(key, { ...(goesOn ? known : { ...fresh, lag: null }), severity });
  }
  node.clocks.clear();
  for (const [key, clock] of clocks) node.clocks.set(key, clock);
}

/** The differences that readings of a whole window and all versions of their Service have shown. */
function dueIn(
  { reference }: History,
  node: NodeHistory,
  observed: Observed,
  { audit, proxied, at }: CurrentReading,
): PacketDifference[] {
  const { settle } = reference.state.options;
  const isPast = ({ before, since }: DifferenceClock): boolean =>
    settle === 0 || (at > since && at - before >= settle - 0.25);
  const open = openKeys(node);
  const whole = { ...observed, families: new Set(['IPv4', 'IPv6']) };
  const { node: within, rules } = observed;
  /** The differences that a version of a Service shows; many are asked for. */
  const shown = new Map<ServiceVersion, ReadonlySet<string>>();
  const shownBy = (version: ServiceVersion, key: Key): ReadonlySet<string> => {
    const known = shown.get(version);
    if (known !== undefined) return known;
    const { service, slices } = version;
    const services = service === null ? [] : [service];
    const forwarding = forwardingFor(whole, services, new Map([[key, slices]]));
    const found = differencesFrom({ forwarding, node: within, rules });
    const keys = new Set(found.map((it) => it.key));
    shown.set(version, keys);
    return keys;
  };
  return audit.differences.filter((difference) => {
    const { key } = difference;
    const clock = node.clocks.get(key);
    if (clock === undefined || !isPast(clock)) return false;
    const service = serviceOf(proxied, difference);
    if (open.has(key) || settle === 0 || service === null || key.endsWith(' claim')) return true;
    const versions = proxied.past.get(service) ?? [];
    const free = versions.findLast(
      (it) => it.until > clock.since && !shownBy(it, service).has(key),
    )?.until;
    if (free === undefined) return true;
    node.clocks.set(key, { ...clock, before: free, since: free });
    return isPast({ ...clock, before: free, since: free });
  });
}

// --- findings ---

/** Replaces the findings that must be open. */
function expect(
  { reference }: History,
  node: NodeHistory,
  desired: ReturnType<typeof desiredFindings>,
  at: number,
): void {
  const { open, parts, findings, name } = node;
  const ids = new Set(desired.map(({ id }) => id));
  for (const id of [...open.keys()].filter((one) => !ids.has(one))) {
    open.delete(id);
    const finding = parts.get(id);
    parts.delete(id);
    if (finding === undefined || [...parts.values()].includes(finding)) continue;
    finding.resolvedAt = at;
    // What ends while a watch is gone has never opened.
    const hasOpened = finding.openedAt !== null || !reference.isBlind('node');
    if (!hasOpened) findings.splice(findings.indexOf(finding), 1);
  }
  for (const finding of desired) {
    const { id, namespace, service, since } = finding;
    const item = open.get(id)?.item ?? pendingItem(name, finding, { podsAt: () => [] });
    open.set(id, { item: Object.assign(item, { since, severity: finding.severity }), finding });
    if (parts.has(id)) continue;
    const text = textOf({ namespace, service, code: finding.difference.code });
    const other = findings.findLast((it) => it.text === text && it.resolvedAt === null);
    const openedAt = reference.isBlind('node') ? null : at;
    const whole = other ?? { text, openedAt, resolvedAt: null };
    if (other === undefined) findings.push(whole);
    parts.set(id, whole);
  }
}

const textOf = ({
  namespace,
  service,
  code,
}: Pick<NodeFindingTimes, 'namespace' | 'service' | 'code'>) => `${namespace}/${service} ${code}`;

const timeText = (at: number | null): string =>
  at === null ? '-' : new Date(at * 1000).toISOString().slice(11, 23);

const lifeText = ({ openedAt, resolvedAt }: Pick<ExpectedNodeFinding, 'openedAt' | 'resolvedAt'>) =>
  `opened ${timeText(openedAt)} resolved ${timeText(resolvedAt)}`;

/** What is missing of one list, and what is too much in the other. */
export const differing = (want: readonly string[], got: readonly string[]): string[] => [
  ...want.filter((line) => !got.includes(line)).map((line) => `- ${line}`),
  ...got.filter((line) => !want.includes(line)).map((line) => `+ ${line}`),
];

function compareOpen(
  { reference }: History,
  { name, parts, open }: NodeHistory,
  observed: readonly NodeFindingTimes[],
): string[] {
  const known = observed.filter(({ code }) => code !== unlike);
  // What opens after a time without a watch opens with it.
  const isBlind = reference.isBlind('node');
  for (const whole of parts.values()) {
    const got = known.find((it) => textOf(it) === whole.text);
    if (!isBlind) whole.openedAt ??= got?.openedAt ?? null;
  }
  const wholes = new Set([...parts.values()].filter(({ openedAt }) => openedAt !== null));
  const want = [...wholes].map((whole) => {
    const items = [...open].flatMap(([id, { item }]) => (parts.get(id) === whole ? [item] : []));
    const since = Math.min(...items.map((item) => item.since));
    const [worst] = items.sort(bySeverity);
    return `${whole.text} ${worst?.severity ?? ''} since ${timeText(since)} ${lifeText(whole)}`;
  });
  const got = known.map(
    (it) => `${textOf(it)} ${it.severity} since ${timeText(it.since)} ${lifeText(it)}`,
  );
  return differing(want, got).map((line) => `node ${name}: ${line}`);
}
