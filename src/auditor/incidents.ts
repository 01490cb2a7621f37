// Gathers the evidence of incidents (audit/incident) from the audits, as plain data.

import type { Finding } from '../audit/finding/catalogue.ts';
import { isUnsuppressed, unservedWord } from '../audit/finding/suppressions.ts';
import { unknownText } from '../audit/finding/verdicts.ts';
import type { Evidence } from '../audit/incident/classify.ts';
import { createControllerActivity, noControllers } from '../audit/incident/controllers.ts';
import type { ImpactSource } from '../audit/incident/impact.ts';
import { createIncidents } from '../audit/incident/incidents.ts';
import type { IncidentCondition } from '../audit/incident/open-incident.ts';
import type { Nodes } from '../audit/node/nodes.ts';
import type {
  FindingOf,
  NumberOf,
  PastIncidents,
  SavedEvidence,
} from '../audit/incident/saved-incidents.ts';
import { staleGrace, type WatchProgress } from '../audit/pending/progress.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { changeKey, type ObjectChange } from '../audit/service/object-changes.ts';
import type { ConvergenceSample } from '../audit/service/reconcile.ts';
import { unservedReason } from '../audit/service/unserved.ts';
import type { Key, Listers } from '../model/objects.ts';
import type { createSuppressions } from './suppressions.ts';

/** How many resolved findings and incidents an auditor keeps. */
export interface KeptResolved {
  readonly findings: number;
  readonly incidents: number;
}

/** What it keeps unless a test needs its memory to be full sooner. */
export const keptResolved: KeptResolved = { findings: 10_000, incidents: 1000 };

export interface IncidentLedgerOptions {
  readonly listers: Listers;
  /** The settle window in seconds. */
  readonly window: number;
  /** `null` before the audit has begun. */
  readonly services: () => ServiceAuditor | null;
  /** `null` without rules of nodes. */
  readonly nodes: () => Pick<Nodes, 'readSince' | 'withoutAgent'> | null;
  readonly impacts: ImpactSource;
  readonly suppressions: Pick<ReturnType<typeof createSuppressions>, 'review' | 'suppressedBy'>;
  /** The open findings as they are now. */
  readonly findings: () => readonly Finding[];
  readonly live: boolean;
  /** Resolved incidents to keep. */
  readonly keep: number;
  readonly progress: Pick<WatchProgress, 'inputs' | 'interruptedFor'>;
}

/** Seconds between two reviews without a change of findings. */
const interval = 1;

/** Seconds without an agent until that is an incident: a new Node has none at first. */
const agentGrace = 120;

/** Changed Services that are looked at in one review. */
const mostChanged = 1000;

/** Why a Service cannot receive traffic that only its configuration explains. */
const misconfigured: Readonly<Record<string, string>> = {
  named_port_missing: 'Pods are ready, but no container has the target port',
  ip_family_missing: 'Pods are ready, but have no address of an IP family of the Service',
  node_missing: 'Pods are ready, but their Nodes do not exist',
  no_service_ports: 'Pods are ready, but the Service has no ports',
};

/** The incidents of a running auditor, with what the auditor must note for them. */
export function createIncidentLedger(options: IncidentLedgerOptions) {
  const { services, nodes, window, impacts, findings, live, keep } = options;
  const activity = createControllerActivity(window);
  const changed = new Set<Key>();
  const unserved = new Map<Key, Unserved>();
  const evidence = (at: number): Evidence => ({
    // A dump has no history of writes.
    controllers:
      window === 0 ? noControllers : activity.assess(services()?.audited ?? new Map(), at),
    changesOf: (finding) => changesOf(services(), finding),
    nodesOf: (finding) => nodesOf(options.listers, finding),
    isRelabelled: ({ namespace, service }) =>
      (services()?.audited.get(`${namespace}/${service}`)?.record.relabelled.size ?? 0) > 0,
    readSince: (node) => nodes()?.readSince(node) ?? null,
  });
  const incidents = createIncidents({ evidence, impacts, findings, live, keep });
  const loss = { ...noLoss };
  const reviewed = { firstAt: null as number | null, at: -Infinity, revision: -1, accepted: -1 };
  const state = { options, activity, incidents, changed, unserved, loss, reviewed };
  return {
    ...incidents,
    evidence,
    /** Adds a finding that has opened. Of the time before a restart, no writes are known. */
    add(finding: Finding): void {
      const { firstAt } = reviewed;
      const isEarlier = firstAt !== null && finding.openedAt < firstAt;
      incidents.add(finding, isEarlier ? reviewed.at : finding.openedAt);
    },
    /** Notes that a Service was evaluated. */
    noteChange(key: Key): void {
      activity.noteChange(key);
      changed.add(key);
      incidents.noteImpact(key);
    },
    noteWrite: (sample: ConvergenceSample) => activity.noteWrite(sample),
    past: (numberOf: NumberOf) => pastOf(state, numberOf),
    /** Continues what `past` has given, after what is open has opened again. */
    continuePast: (past: PastIncidents, evidence: SavedEvidence, findingOf: FindingOf) =>
      continuePast(state, past, evidence, findingOf),
    /** Reviews the incidents, if findings have changed or a second has passed. */
    reviewAt(at: number): void {
      if (at < reviewed.at + interval && incidents.revision() === reviewed.revision) return;
      reviewed.firstAt ??= at;
      reviewSuppressed(state, at);
      activity.recountSome(services()?.audited ?? new Map(), mostChanged);
      noteUnserved(services(), changed, unserved, at, window === 0 ? Infinity : mostChanged);
      incidents.review(at, [
        ...unavailable(options, loss, at),
        ...withoutAgents(options, at),
        ...unservedConditions(state, at - window),
      ]);
      Object.assign(reviewed, { at, revision: incidents.revision() });
    },
  };
}

interface State {
  readonly options: IncidentLedgerOptions;
  readonly activity: ReturnType<typeof createControllerActivity>;
  readonly incidents: ReturnType<typeof createIncidents>;
  readonly changed: Set<Key>;
  readonly unserved: Map<Key, Unserved>;
  readonly loss: typeof noLoss;
  readonly reviewed: {
    firstAt: number | null;
    at: number;
    revision: number;
    /** The revision of the suppressions. */
    accepted: number;
  };
}

interface Unserved {
  readonly reason: string;
  readonly since: number;
}

function pastOf(
  { activity, incidents, changed, unserved, loss, reviewed }: State,
  numberOf: NumberOf,
): PastIncidents & { readonly evidence: SavedEvidence } {
  const evidence = {
    controllers: activity.past(),
    evaluated: [...changed],
    unserved: [...unserved].map(([key, it]) => ({ key, ...it })),
    loss: { condition: loss.condition, at: timeOf(loss.at) },
    firstAt: reviewed.firstAt,
    reviewedAt: timeOf(reviewed.at),
    isReviewed: reviewed.revision === incidents.revision(),
  };
  return { ...incidents.past(numberOf), evidence };
}

function continuePast(
  { options, activity, incidents, changed, unserved, loss, reviewed }: State,
  past: PastIncidents,
  evidence: SavedEvidence,
  findingOf: FindingOf,
): void {
  activity.continuePast(evidence.controllers);
  changed.clear();
  for (const key of evidence.evaluated) changed.add(key);
  unserved.clear();
  for (const { key, reason, since } of evidence.unserved) unserved.set(key, { reason, since });
  const { condition, at: lostAt } = evidence.loss;
  Object.assign(loss, { condition, at: lostAt ?? -Infinity });
  incidents.continuePast(past, findingOf);
  const { firstAt, reviewedAt, isReviewed } = evidence;
  const revision = isReviewed ? incidents.revision() : -1;
  Object.assign(reviewed, { firstAt, at: reviewedAt ?? -Infinity, revision, accepted: -1 });
  for (const finding of options.findings()) {
    if (isUnsuppressed(finding) && incidents.idOf(finding) === null) incidents.add(finding);
  }
}

/**
 * Removes findings from their incidents if they were suppressed after they opened. Adds findings
 * whose suppression has ended.
 */
function reviewSuppressed({ options, incidents, reviewed }: State, at: number): void {
  const accepted = options.suppressions.review();
  if (accepted === reviewed.accepted) return;
  reviewed.accepted = accepted;
  for (const finding of options.findings()) {
    const isMember = incidents.idOf(finding) !== null;
    if (isMember === isUnsuppressed(finding)) continue;
    if (isMember) incidents.remove(finding, at);
    else incidents.add(finding, at);
  }
}

const timeOf = (at: number): number | null => (at === -Infinity ? null : at);

/** The changes that made the open differences of a finding, oldest first. */
function changesOf(
  services: ServiceAuditor | null,
  finding: Pick<Finding, 'namespace' | 'service' | 'code' | 'cause'>,
): ObjectChange[] {
  const { namespace, service, code, cause } = finding;
  const audit = services?.audited.get(`${namespace}/${service}`);
  const changes = new Map<string, ObjectChange>();
  for (const items of audit?.items.values() ?? []) {
    for (const it of items) {
      const isOpen = it.openedAt !== null && it.difference.code === code && it.cause === cause;
      if (isOpen) for (const change of it.changes) changes.set(changeKey(change), change);
    }
  }
  return [...changes.values()].sort((a, b) => a.at - b.at);
}

function nodesOf({ pods }: Listers, { differences }: Finding): string[] {
  const nodes = differences.flatMap(({ pod }) => (pod === null ? [] : (pods.get(pod)?.node ?? [])));
  return [...new Set(nodes)].filter((node) => node !== '');
}

/** A loss of the API server: its incident while it is open, and when a watch was interrupted. */
const noLoss = { condition: null as IncidentCondition | null, at: -Infinity };

/**
 * Watches that were interrupted for longer than their verdicts may be known. An API server that
 * starts may drop them again, so the incident lasts until they deliver for as long.
 */
function unavailable(
  { progress }: IncidentLedgerOptions,
  loss: typeof noLoss,
  at: number,
): IncidentCondition[] {
  if (progress.interruptedFor(0, at).size > 0) loss.at = at;
  const lost = [...progress.interruptedFor(staleGrace, at)];
  if (lost.length > 0) {
    const since = Math.min(...lost.map((it) => progress.inputs.get(it)?.blindSince ?? at));
    const text = `The watches of these resources are interrupted: ${lost.join(', ')}`;
    const object = 'API server';
    loss.condition = { kind: 'api-unavailable', key: '', name: '', object, since, text };
  } else if (at - loss.at > staleGrace) loss.condition = null;
  return loss.condition === null ? [] : [loss.condition];
}

function withoutAgents({ nodes }: IncidentLedgerOptions, at: number): IncidentCondition[] {
  const missing = nodes()?.withoutAgent() ?? [];
  return missing.flatMap(({ name, reason, since }) => {
    if (at - since < agentGrace) return [];
    const text = `Node ${name}: ${unknownText[reason]}`;
    return [{ kind: 'agents-missing', key: '', name, object: `Node ${name}`, since, text }];
  });
}

/** Notes which of the changed Services are configured so that they cannot receive traffic. */
function noteUnserved(
  services: ServiceAuditor | null,
  changed: Set<Key>,
  unserved: Map<Key, Unserved>,
  at: number,
  most: number,
): void {
  let left = most;
  for (const key of changed) {
    if (services === null || left-- <= 0) return;
    changed.delete(key);
    const audit = services.audited.get(key);
    const reason = audit === undefined ? null : unservedReason(services.context, audit);
    if (reason === null || misconfigured[reason] === undefined) unserved.delete(key);
    else if (unserved.get(key)?.reason !== reason) unserved.set(key, { reason, since: at });
  }
}

function unservedConditions({ options, unserved }: State, until: number): IncidentCondition[] {
  return [...unserved].flatMap(([key, { reason, since }]) => {
    if (since > until) return [];
    const [namespace = '', service = ''] = key.split('/');
    const target = { code: unservedWord, namespace, service, node: null } as const;
    if (options.suppressions.suppressedBy(target) !== null) return [];
    const object = `Service ${key}`;
    const text = misconfigured[reason] ?? reason;
    return [{ kind: 'service-without-endpoints', key: object, name: key, object, since, text }];
  });
}
