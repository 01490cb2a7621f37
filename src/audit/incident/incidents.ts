// Groups findings into incidents, one finding at a time. Every open finding belongs to exactly one
// incident, which is open while it has a finding (docs/decisions/0031-one-incident-per-cause.md).
//
// A finding stays in its incident, with two exceptions: evidence that arrives later moves it out of
// one with an unknown cause, and writes of a controller refute that it does not write. An incident
// that takes all of another takes its beginning and answers for its name.

import { getOrInsert } from '../../model/collections.ts';
import type { FieldManagers } from '../../model/managed-fields.ts';
import type { Key } from '../../model/objects.ts';
import { type Finding, openFindingKey } from '../finding/catalogue.ts';
import {
  type Claim,
  classify,
  controllerClaim,
  controllerKind,
  controllerManager,
  type Evidence,
  hasRecovered,
  unknownClaim,
  waitsForController,
} from './classify.ts';
import { recent } from './controllers.ts';
import { evidenceLines } from './evidence-lines.ts';
import type { ImpactSource } from './impact.ts';
import type { IncidentKind } from './kinds.ts';
import {
  type Beginning,
  countChange,
  type Incident,
  type IncidentCondition,
  isEmpty,
  isOutdated,
  keepWorst,
  kept,
  measure,
  type Member,
  type MemberFinding,
  type NamedObject,
  newIncident,
  noteManagers,
  type OpenIncident,
  remeasure,
  slug,
  snapshot,
  unreadObjects,
  worstOf,
} from './open-incident.ts';
import {
  continueIncident,
  continueMember,
  continueResolved,
  type EarlierMember,
  earlierMembers,
  type FindingOf,
  type NumberOf,
  type OpenBefore,
  type PastIncidents,
  placeOf,
  saveIncident,
  saveMembers,
  saveResolved,
} from './saved-incidents.ts';

export interface IncidentOptions {
  /** What is known at a time, beside the findings. */
  readonly evidence: (at: number) => Evidence;
  readonly impacts: ImpactSource;
  /** The open findings as they are now. */
  readonly findings: () => readonly Finding[];
  /** Whether objects can be read, to learn their field managers. */
  readonly live: boolean;
  /** Resolved incidents to keep. */
  readonly keep: number;
}

/** This many open incidents of one kind become one. */
const many = 10;

/** Seconds between two computations of the impact of open incidents. */
const impactInterval = 10;

/** The key of the incident that many of one kind have become. */
const all = '*';

const conditionKinds: readonly IncidentKind[] = [
  'service-without-endpoints',
  'api-unavailable',
  'agents-missing',
];

type State = ReturnType<typeof createState>;

const createState = (options: IncidentOptions) => ({
  options,
  /** By kind and key. */
  open: new Map<string, OpenIncident>(),
  /** By the key of the finding. */
  owners: new Map<string, OpenIncident>(),
  /** What was open before a restart, by the key of the finding, until it opens again. */
  earlier: new Map<string, EarlierMember>(),
  resolved: [] as Incident[],
  /** The name that now answers for a name, by that name. */
  merged: new Map<string, string>(),
  /** Resolved incidents that were forgotten. */
  forgotten: 0,
  /** When impacts were computed last. */
  measuredAt: -Infinity,
  /** Services whose impact may have changed since then. */
  changed: new Set<Key>(),
  /** Changes whenever an incident does. */
  revision: 0,
});

export function createIncidents(options: IncidentOptions) {
  const state = createState(options);
  return {
    /** Adds a finding that has opened; `at` is later if it had opened before a restart. */
    add(finding: Finding, at = finding.openedAt): void {
      if (at > finding.openedAt && rejoin(state, finding)) return;
      const evidence = options.evidence(at);
      const member = { finding, claim: openClaim(state, finding, evidence) };
      addMember(state, member, finding.openedAt, evidence);
      const incident = state.owners.get(openFindingKey(finding));
      // One that was open before a restart may join an incident of this process.
      if (incident !== undefined) {
        incident.openedAt = Math.min(incident.openedAt, finding.openedAt);
      }
    },
    /** Removes a finding that is resolved, or that does not count from `at` on. */
    remove(finding: Finding, at = finding.resolvedAt): void {
      const incident = state.owners.get(openFindingKey(finding));
      if (incident === undefined) return;
      removeMember(state, incident, openFindingKey(finding));
      incident.leftAt = at;
      const isKept = finding.resolvedAt !== null && incident.resolved.length < kept.findings;
      if (isKept) incident.resolved.push(finding);
    },
    /** Applies evidence that arrived later, and the conditions that hold at a time. */
    review(at: number, conditions: readonly IncidentCondition[]): void {
      reviewControllers(state, at);
      reviewConditions(state, at, conditions);
      reviewImpacts(state, at);
      closeEmpty(state, at);
      mergeMany(state);
    },
    /** Notes that the impact on a Service may have changed. */
    noteImpact(key: Key): void {
      if (state.open.size > 0) state.changed.add(key);
    },
    /** Open incidents with the findings as they are now, the oldest first; those, or all. */
    list: (ids?: ReadonlySet<string>): Incident[] => list(state, ids),
    /** What changes in open incidents, without measuring them; those that were reviewed. */
    marks: () =>
      [...state.open.values()]
        .filter((incident) => !isEmpty(incident) && incident.severity !== null)
        .map(({ id, kind, severity, members }) => ({ id, kind, severity, findings: members.size })),
    /** Resolved incidents, oldest first; `forgotten` is the number of earlier ones. */
    resolved: (): readonly Incident[] => state.resolved,
    forgotten: (): number => state.forgotten,
    /** Objects whose field managers the open incidents ask for, each once for an incident. */
    unread: (): NamedObject[] => [...state.open.values()].flatMap(unreadObjects),
    /** Notes the field managers of an object that `unread` has named. */
    noteManagers(object: NamedObject, read: FieldManagers): void {
      for (const incident of state.open.values()) noteManagers(incident, object, read);
      state.revision++;
    },
    /** The name of the incident that a finding belongs to; `null` if it is not open. */
    idOf: (finding: Finding): string | null =>
      state.owners.get(openFindingKey(finding))?.id ?? null,
    /** The name that answers for one which another incident took. */
    currentId: (id: string): string => currentId(state, id),
    revision: (): number => state.revision,
    past: (numberOf: NumberOf): PastIncidents => pastOf(state, numberOf),
    /** Notes what was open before a restart. A finding that opens again joins its incident. */
    continueAfterRestart: (before: OpenBefore): void => continueAfterRestart(state, before),
    /** Continues what `past` has given, in place of what was grouped before. */
    continuePast: (past: PastIncidents, findingOf: FindingOf): void =>
      continuePast(state, past, findingOf),
  };
}

function continueAfterRestart({ earlier, merged }: State, before: OpenBefore): void {
  for (const [key, member] of earlierMembers(before)) earlier.set(key, member);
  for (const [id, by] of before.merged) merged.set(id, by);
}

/** Whether a finding was open before a restart. What was measured then is measured again. */
function rejoin(state: State, finding: Finding): boolean {
  const key = openFindingKey(finding);
  const before = state.earlier.get(key);
  if (before === undefined) return false;
  const { saved, claim, findingOf } = before;
  const incident = getOrInsert(state.open, placeOf(saved), () =>
    continueIncident({ ...saved, conditions: [], reviewed: null }, findingOf),
  );
  incident.members.set(key, { finding, claim });
  incident.reviewed = null;
  incident.openedAt = Math.min(incident.openedAt, finding.openedAt);
  state.owners.set(key, incident);
  state.earlier.delete(key);
  state.revision++;
  return true;
}

function pastOf(state: State, numberOf: NumberOf): PastIncidents {
  const { open, resolved, merged, forgotten, measuredAt, changed } = state;
  const incidents = [...open.values()];
  const members = incidents.flatMap(({ id, members }) =>
    [...members.values()].map((member) => [id, member] as const),
  );
  return {
    open: incidents.map((it) => saveIncident(it, numberOf)),
    members: saveMembers(members),
    resolved: resolved.map((it) => saveResolved(it, numberOf)),
    grouping: {
      merged: [...merged],
      forgotten,
      measuredAt: measuredAt === -Infinity ? null : measuredAt,
      changed: [...changed],
    },
  };
}

function continuePast(state: State, past: PastIncidents, findingOf: FindingOf): void {
  const { options, open, owners } = state;
  const isOpen = new Set(options.findings().map(openFindingKey));
  const incidents = past.open.map((it) => continueIncident(it, findingOf));
  const byId = new Map(incidents.map((it) => [it.id, it]));
  open.clear();
  owners.clear();
  for (const incident of incidents) open.set(placeOf(incident), incident);
  for (const saved of past.members) {
    const [key, member] = continueMember(saved);
    const incident = byId.get(saved.incident);
    // Only what is open again can be resolved later.
    if (incident === undefined || !isOpen.has(key)) continue;
    incident.members.set(key, member);
    owners.set(key, incident);
  }
  state.resolved = past.resolved.slice(-options.keep).map((it) => continueResolved(it, findingOf));
  const { merged, forgotten, measuredAt, changed } = past.grouping;
  state.merged = new Map(merged.slice(-10 * options.keep));
  state.forgotten = forgotten;
  state.measuredAt = measuredAt ?? -Infinity;
  state.changed = new Set(changed);
  state.revision++;
}

function currentId({ merged }: State, id: string): string {
  let current = id;
  // Names that were read from a file may go in a circle.
  for (let left = merged.size; left > 0; left--) {
    const next = merged.get(current);
    if (next === undefined) break;
    current = next;
  }
  return current;
}

/** The claim on a new finding: what waits for a controller joins its open incident. */
function openClaim({ open }: State, finding: Finding, evidence: Evidence): Claim {
  const claim = classify(finding, evidence);
  if (!waitsForController(finding) || claim.kind === 'controller-not-writing') return claim;
  const known =
    open.get(`controller-not-writing ${controllerManager}`) ??
    open.get(`controller-slow ${controllerManager}`);
  const { controllers } = evidence;
  const output = finding.output as keyof typeof controllers;
  const { openedAt, since } = finding;
  if (known === undefined || since < known.since) return claim;
  // What began while the controller works off its queue has the same cause.
  if (hasRecovered(controllers[output], openedAt)) return claim;
  const { kind, key, object } = known;
  return { kind, key, object, likely: [] };
}

function addMember(state: State, member: Member, at: number, evidence: Evidence): void {
  const { finding, claim } = member;
  const incident = incidentFor(state, claim, at, () => ({
    since: finding.since,
    openedAt: at,
    evidence: evidenceLines(claim, finding, evidence),
  }));
  for (const change of evidence.changesOf(finding)) countChange(incident, change, 1);
  incident.since = Math.min(incident.since, finding.since);
  const key = openFindingKey(finding);
  incident.members.set(key, member);
  incident.reviewed = null;
  state.owners.set(key, incident);
  state.revision++;
}

function removeMember(state: State, incident: OpenIncident, key: string): void {
  incident.members.delete(key);
  state.owners.delete(key);
  state.revision++;
}

/** The open incident of a claim; a new one takes what it replaces. */
function incidentFor(state: State, claim: Claim, at: number, begin: () => Beginning): OpenIncident {
  const { open } = state;
  const known = open.get(`${claim.kind} ${all}`) ?? open.get(placeOf(claim));
  if (known !== undefined) return known;
  const beginning = begin();
  const incident = newIncident(freeId(state, claim, beginning.since), claim, beginning);
  open.set(placeOf(claim), incident);
  for (const other of open.values()) {
    if (other !== incident && isReplaced(other, incident, at)) merge(state, other, incident);
  }
  return incident;
}

/** Whether one incident has become another: at one moment, or by evidence that came later. */
function isReplaced(other: OpenIncident, by: OpenIncident, at: number): boolean {
  // All incidents of the whole cluster have the empty key, also those with different causes.
  if (other.key !== by.key || by.key === '') return false;
  const isWorse = other.kind === 'controller-slow' && by.kind === 'controller-not-writing';
  return isWorse || (isEmpty(other) && other.leftAt === at);
}

function freeId({ open, resolved, merged }: State, { kind, object }: Claim, since: number) {
  const used = new Set([...open.values(), ...resolved].map(({ id }) => id));
  const id = [kind, slug(object), String(Math.floor(since))].join('.');
  let free = id;
  for (let n = 2; used.has(free) || merged.has(free); n++) free = `${id}-${String(n)}`;
  return free;
}

function merge(state: State, from: OpenIncident, into: OpenIncident): void {
  for (const [key, member] of from.members) {
    into.members.set(key, member);
    state.owners.set(key, into);
  }
  for (const [name, condition] of from.conditions) into.conditions.set(name, condition);
  for (const { change, findings } of from.changes.values()) countChange(into, change, findings);
  into.reviewed = null;
  into.since = Math.min(into.since, from.since);
  into.openedAt = Math.min(into.openedAt, from.openedAt);
  keepWorst(into, from);
  for (const [name, read] of from.managers) into.managers.set(name, read);
  const free = Math.max(0, kept.findings - into.resolved.length);
  into.resolved.push(...from.resolved.slice(0, free));
  for (const [place, incident] of state.open) if (incident === from) state.open.delete(place);
  state.merged.set(from.id, into.id);
  forgetOldest(state.merged, 10 * state.options.keep);
  state.revision++;
}

function forgetOldest(map: Map<string, unknown>, most: number): void {
  for (const key of map.keys()) {
    if (map.size <= most) return;
    map.delete(key);
  }
}

const isOfController = ({ kind }: OpenIncident): boolean => kind.startsWith('controller-');

/** Moves what waits for controllers, as far as their writes prove or refute what was claimed. */
function reviewControllers(state: State, at: number): void {
  const concerned = [...state.open.values()].filter(
    (it) => it.members.size > 0 && (isOfController(it) || it.kind === 'cause-unknown'),
  );
  if (concerned.length === 0) return;
  const evidence = state.options.evidence(at);
  const { controllers } = evidence;
  const all = Object.values(controllers);
  const isSuspect = all.some((it) => it.state !== 'writing');
  const isSilent = all.some((it) => it.state === 'silent');
  const isWriting = all.some((it) => hasRecovered(it, at));
  for (const incident of concerned) {
    const isUnknown = incident.kind === 'cause-unknown';
    const isDraining = at - (incident.leftAt ?? -Infinity) <= recent;
    if (isUnknown ? !isSuspect : isDraining) continue;
    // Thousands of findings may wait, and without other evidence they stay.
    const mayMove = isWriting || (isSilent && incident.kind === 'controller-slow');
    if (!isUnknown && !mayMove) continue;
    for (const [key, { finding }] of incident.members) {
      const claim = laterClaim(incident, finding, evidence, at);
      if (claim === null) continue;
      removeMember(state, incident, key);
      const { openedAt } = incident;
      addMember(state, { finding, claim }, isUnknown ? openedAt : at, evidence);
    }
    if (!isEmpty(incident)) continue;
    incident.leftAt = at;
    if (!isUnknown) continue;
    const heir = state.open.get(`controller-not-writing ${controllerManager}`);
    const into = heir ?? state.open.get(`controller-slow ${controllerManager}`);
    if (into !== undefined) merge(state, incident, into);
  }
}

/** Another claim on a member than that of its incident; `null` if it stays. */
function laterClaim(
  { kind }: OpenIncident,
  finding: MemberFinding,
  { controllers }: Evidence,
  at: number,
): Claim | null {
  if (!waitsForController(finding)) return null;
  const claim = controllerClaim(finding, controllers);
  if (kind === 'cause-unknown') return claim.kind === kind ? null : claim;
  const isWorse = kind === 'controller-slow' && claim.kind === 'controller-not-writing';
  if (isWorse) return claim;
  const isStill = controllerKind(finding, controllers) !== null;
  const { [finding.output as keyof typeof controllers]: own } = controllers;
  return isStill || !hasRecovered(own, at) ? null : unknownClaim(finding, claim.likely);
}

function reviewConditions(
  state: State,
  at: number,
  conditions: readonly IncidentCondition[],
): void {
  const holding = new Set(conditions.map(({ kind, name }) => `${kind} ${name}`));
  for (const incident of state.open.values()) {
    if (!conditionKinds.includes(incident.kind)) continue;
    for (const name of incident.conditions.keys()) {
      if (holding.has(`${incident.kind} ${name}`)) continue;
      incident.conditions.delete(name);
      incident.leftAt = at;
      state.revision++;
    }
  }
  for (const condition of conditions) {
    const { name, since, text } = condition;
    const incident = incidentFor(state, { ...condition, likely: [] }, at, () => ({
      since,
      openedAt: at,
      evidence: [{ text, at: since }],
    }));
    if (incident.conditions.has(name)) continue;
    incident.conditions.set(name, condition);
    state.revision++;
  }
}

/** Keeps the worst of each incident: of a new one at once, since findings may be resolved soon. */
function reviewImpacts(state: State, at: number): void {
  const { changed, options } = state;
  const isDue = at - state.measuredAt >= impactInterval;
  for (const incident of state.open.values()) {
    if (isEmpty(incident)) continue;
    const isNew = incident.severity === null;
    if (isNew || (isDue && isOutdated(incident, changed))) remeasure(incident, options.impacts);
  }
  if (!isDue) return;
  changed.clear();
  state.measuredAt = at;
}

function closeEmpty(state: State, at: number): void {
  const { open, resolved, options } = state;
  for (const [place, incident] of open) {
    if (!isEmpty(incident)) continue;
    open.delete(place);
    const { resolved: findings, leftAt } = incident;
    resolved.push(snapshot(incident, findings, leftAt ?? at, worstOf(incident), options.live));
    if (resolved.length > options.keep) {
      resolved.shift();
      state.forgotten++;
    }
    state.revision++;
  }
}

/** Makes many incidents of one kind one: they are likely to have one cause. */
function mergeMany(state: State): void {
  const groups = Map.groupBy(state.open.values(), ({ kind }) => kind);
  for (const [kind, incidents] of groups) {
    const [first, ...others] = incidents.sort((a, b) => a.since - b.since);
    if (first === undefined || incidents.length < many) continue;
    state.open.delete(placeOf(first));
    first.key = all;
    state.open.set(`${kind} ${all}`, first);
    for (const other of others) merge(state, other, first);
  }
}

function findingsByIncident({ owners, options }: State): Map<OpenIncident, Finding[]> {
  const current = new Map<OpenIncident, Finding[]>();
  for (const finding of options.findings()) {
    const owner = owners.get(openFindingKey(finding));
    if (owner !== undefined) getOrInsert(current, owner, () => []).push(finding);
  }
  return current;
}

function list(state: State, ids?: ReadonlySet<string>): Incident[] {
  const { impacts, live } = state.options;
  const current = findingsByIncident(state);
  return [...state.open.values()]
    .filter((incident) => !isEmpty(incident) && ids?.has(incident.id) !== false)
    .sort((a, b) => a.since - b.since)
    .map((incident) => {
      const own = current.get(incident) ?? [];
      return snapshot(incident, own, null, measure(incident, own, impacts), live);
    });
}
