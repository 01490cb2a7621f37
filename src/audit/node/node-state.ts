// What is kept of one node between two readings of its rules, and what one reading shows.

import {
  hasForms,
  isFields,
  isListOf,
  isNumber,
  isOneOf,
  isText,
  orNull,
} from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import type { ProxyConfig } from '../../model/proxy-config.ts';
import type { RulesDump } from '../../rules/parse/rules-dump.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { DifferenceDetail, Finding, Severity } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import { isCode, isSeverity } from '../finding/saved-finding.ts';
import {
  type NodeUnknownReason,
  type UnknownReason,
  type Verdict,
  verdicts as verdictWords,
} from '../finding/verdicts.ts';
import type { PendingDifference } from '../pending/pending.ts';
import type { Operation } from '../service/reconcile.ts';
import type { NodeFinding } from './aggregate.ts';
import type { PacketDifferences } from './packet-difference.ts';
import type { NodeAudit } from './audit-node.ts';
import type { NodeInput, NodeObservation } from './observation.ts';
import type { ProxyCache } from './proxy-cache.ts';

interface Refusal {
  readonly message: string;
  readonly field?: string;
  readonly value?: string;
}

export type NodeState = ReturnType<typeof newNodeState>;

export const newNodeState = (name: string) => ({
  name,
  /** The known configuration of kube-proxy. */
  given: {} as Partial<ProxyConfig>,
  dumps: new Map<string, RulesDump | 'unreadable'>(),
  /** The sources whose dumps make one reading, and when those of the next reading were made. */
  sources: new Set<string>(),
  arrived: new Map<string, number>(),
  /** null if it must be made from the dumps. */
  observation: null as NodeObservation | null,
  /** Of the last report: the tag of the rules, and the version of the outcomes. */
  etag: null as string | null,
  version: null as string | null,
  /** Seconds for which the rules are known after a reading. */
  lasting: 0,
  /** Why the node cannot be observed; null if it can. */
  unknownReason: null as NodeUnknownReason | null,
  /** Since when it cannot be observed, Unix seconds. */
  unknownSince: 0,
  /** Why its configuration is not audited, for people; null if it is. */
  refused: null as Refusal | null,
  /** Its class, the hashes of its last ones, and when it lately got a new one, Unix seconds. */
  signature: null as string | null,
  classes: [] as readonly string[],
  changedAt: [] as readonly number[],
  last: null as LastAudit | null,
  divergences: new Map() as Divergences,
  clocks: new Map<string, DifferenceClock>(),
  open: new Map<string, { readonly item: PendingDifference; finding: NodeFinding }>(),
  verdicts: [] as readonly NodeVerdict[],
  /** The last reading, Unix seconds; null if there is none. */
  at: null as number | null,
  /** The first reading since the node was unknown, Unix seconds; null if it is unknown. */
  readSince: null as number | null,
  /** The results of its last reading, from a history; null if its rules are read. */
  saved: null as SavedNode | null,
  /** The findings of these results. */
  restored: new Map<string, PendingDifference>(),
  /** The revision at the last reading, and since when changes are late; null if that failed. */
  programming: null as { revision: number; at: number; readonly late: Map<Key, number> } | null,
});

/** When Services diverged, while the rules stay the same; null if no version until then matches. */
type Divergences = Map<Key, { readonly at: number | null; readonly comparedUntil: number }>;

/**
 * Notes a dump. Returns when the oldest dump of the reading was made, if it is complete: beside
 * rules of now, those of another family may be older than a change of the cluster. If a source has
 * no dump for a whole round, its rules are not known any more. The last round of a recording may
 * be incomplete: it is not compared.
 */
export function completeReading(state: NodeState, source: string, at: number): number | null {
  const { sources, arrived, dumps } = state;
  if (!sources.has(source)) {
    sources.add(source);
    return at;
  }
  if (arrived.has(source)) {
    for (const other of sources) {
      if (arrived.has(other)) continue;
      sources.delete(other);
      dumps.delete(other);
      state.observation = null;
    }
    arrived.clear();
  }
  arrived.set(source, at);
  if (![...sources].every((other) => arrived.has(other))) return null;
  const oldest = Math.min(...arrived.values());
  arrived.clear();
  return oldest;
}

export interface LastAudit {
  readonly audit: NodeAudit;
  /** Nodes of a class share the list. */
  readonly ports: readonly NodeVerdict[];
  /** What it was made from, in addition to the rules. */
  readonly inputs: string;
}

/** Since when a difference is known: the last dump without it, and the first with it. */
export interface DifferenceClock {
  readonly before: number;
  readonly since: number;
  /** At the last reading. */
  readonly severity: Severity;
  /** The change of the cluster that caused the difference; null if none did. */
  readonly lag: { divergedAt: number; service: Key; operation: Operation } | null;
}

export interface CurrentReading extends Pick<NodeInput, 'node' | 'rules'> {
  readonly config: ProxyConfig;
  readonly proxied: ProxyCache;
  readonly divergences: Divergences;
  readonly audit: NodeAudit;
  /** Its differences by Service; null for those without one. */
  readonly byService: ReadonlyMap<Key | null, PacketDifferences>;
  readonly isSame: boolean;
  /** Unix seconds. */
  readonly at: number;
}

export interface NodeVerdict {
  /** Name, protocol and family; '' for the whole node. */
  readonly port: string;
  readonly namespace: string;
  readonly verdict: Verdict;
  /** null unless the verdict is unknown. */
  readonly reason: UnknownReason | null;
}

export const conformVerdicts = (ports: readonly ProxiedPort[]): readonly NodeVerdict[] =>
  ports.map(({ key: port, namespace }) => ({ port, namespace, verdict: 'conform', reason: null }));

/** Replaces the verdicts of ports with these keys, and of families whose rules are unknown. */
export function portVerdicts(
  conform: readonly NodeVerdict[],
  families: ReadonlySet<string>,
  keys: Readonly<Record<'different' | 'pending' | 'unknown', ReadonlySet<string>>>,
): readonly NodeVerdict[] {
  const { different, pending, unknown } = keys;
  if (different.size + pending.size + unknown.size === 0 && families.size === 2) return conform;
  return conform.map((entry): NodeVerdict => {
    const { port } = entry;
    if (!families.has(port.slice(port.lastIndexOf(' ') + 1))) {
      return { ...entry, verdict: 'unknown', reason: 'rules-not-known' };
    }
    if (different.has(port)) return { ...entry, verdict: 'different' };
    if (pending.has(port)) return { ...entry, verdict: 'pending' };
    if (!unknown.has(port)) return entry;
    return { ...entry, verdict: 'unknown', reason: 'rules-not-understood' };
  });
}

/** A finding of a node in a history. Its rules are not there, so it has its details. */
export interface SavedNodeFinding extends Pick<Finding, 'namespace' | 'service' | 'severity'> {
  readonly id: string;
  readonly since: number;
  readonly openedAt: number;
  readonly difference: Difference;
  readonly details: readonly DifferenceDetail[];
}

/** What a history has of a node: the results of its last reading, but no rules. */
export interface SavedNode {
  readonly unknownReason: NodeUnknownReason | null;
  readonly unknownSince: number;
  readonly readSince: number | null;
  /** The configuration of kube-proxy; null if it is unknown. */
  readonly config: ProxyConfig | null;
  /** The verdict of most ports, and the ports with another one; null without verdicts. */
  readonly usual: Pick<NodeVerdict, 'verdict' | 'reason'> | null;
  readonly verdicts: readonly NodeVerdict[];
  readonly findings: readonly SavedNodeFinding[];
  /** The number of its other findings, which are not saved; absent without any. */
  readonly moreFindings?: number;
}

/** What is saved of the findings of a node at most. Verdicts are bounded by the Services. */
const saved = { findings: 1000, details: 20 };

/** The results of the last reading of a node. */
export function saveNode(state: NodeState): SavedNode {
  if (state.saved !== null) return state.saved;
  const { unknownReason, unknownSince, readSince, observation, verdicts, open } = state;
  // Most nodes are right, and share the list of their ports.
  const isRight = verdicts === state.last?.ports;
  const kindOf = ({ verdict, reason }: NodeVerdict): string => `${verdict} ${reason ?? ''}`;
  const groups = isRight ? [verdicts] : [...Map.groupBy(verdicts, kindOf).values()];
  groups.sort((a, b) => b.length - a.length);
  const [[most] = [], ...others] = groups;
  const isWhole = most?.port === '';
  const opened = [...open].filter(([, { item }]) => item.openedAt !== null);
  const moreFindings = opened.length - saved.findings;
  return {
    unknownReason,
    unknownSince,
    readSince,
    config: observation?.config ?? null,
    usual: most === undefined || isWhole ? null : { verdict: most.verdict, reason: most.reason },
    verdicts: isWhole ? [most] : others.flat(),
    findings: opened.slice(0, saved.findings).flatMap(([id, { item, finding }]) => {
      const { difference, severity, since, openedAt } = item;
      if (openedAt === null) return [];
      const { namespace, service } = finding;
      const details = (item.details?.() ?? []).slice(0, saved.details);
      return [{ id, namespace, service, severity, since, openedAt, difference, details }];
    }),
    ...(moreFindings > 0 && { moreFindings }),
  };
}

const isVerdict = hasForms({ verdict: isOneOf(verdictWords) });

const isSavedFinding = hasForms({
  id: isText,
  namespace: isText,
  service: isText,
  since: isNumber,
  openedAt: isNumber,
  severity: isSeverity,
  difference: hasForms({ code: isCode }),
  details: isListOf(isFields),
});

const isSavedNode: (value: unknown) => boolean = hasForms({
  unknownReason: orNull(isText),
  unknownSince: isNumber,
  readSince: orNull(isNumber),
  config: orNull(isFields),
  usual: orNull(isVerdict),
  verdicts: isListOf(isVerdict),
  findings: isListOf(isSavedFinding),
  moreFindings: (count) => count === undefined || isNumber(count),
});

/** Reads what saveNode wrote; null if it has another form. */
export const readSavedNode = (value: unknown): SavedNode | null =>
  isSavedNode(value) ? (value as SavedNode) : null;

/** The verdicts of these ports by what was saved. */
export function savedVerdicts(
  { usual, verdicts }: SavedNode,
  ports: readonly NodeVerdict[],
): readonly NodeVerdict[] {
  if (usual === null) return verdicts;
  // Nodes share the list of their ports if all are right.
  if (verdicts.length === 0 && usual.verdict === 'conform') return ports;
  const others = new Map(verdicts.map((it) => [it.port, it]));
  return ports.map((it) => others.get(it.port) ?? { ...it, ...usual });
}
