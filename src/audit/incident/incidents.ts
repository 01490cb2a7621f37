// Groups findings into incidents, one finding at a time. Every open finding belongs to exactly one
// incident, which is open while it has a finding (docs/decisions/0031-one-incident-per-cause.md).
//
// A finding stays in its incident, with two exceptions: evidence that arrives later moves it out of
// one with an unknown cause, and writes of a controller refute that it does not write. An incident
// that takes all of another takes its beginning and answers for its name.

import { getOrInsert } from '../../model/collections.ts';
import { type Finding, isWorse, openFindingKey, type Severity } from '../finding/catalogue.ts';
import type { ObjectChange } from '../service/object-changes.ts';
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
import { type EvidenceLine, evidenceLines } from './evidence-lines.ts';
import {
  effectOf,
  type ImpactSource,
  type IncidentEffect,
  type IncidentImpact,
  noImpacts,
} from './impact.ts';
import type { IncidentKind } from './kinds.ts';

/** A state that is an incident without findings, while it lasts. */
export interface IncidentCondition extends Pick<Claim, 'kind' | 'key' | 'object'> {
  /** Conditions of one kind have different names; those with equal keys are one incident. */
  readonly name: string;
  readonly since: number;
  readonly text: string;
}

/** Times in Unix seconds on the clock of the input. */
export interface Incident {
  /** The same while it is open; letters, digits, `.` and `-`. */
  readonly id: string;
  readonly kind: IncidentKind;
  /** The object that is to blame, and all of them: `Kind namespace/name`, or a program. */
  readonly object: string;
  readonly objects: readonly string[];
  /** If the cause is unknown: the likely kinds, the likeliest first. */
  readonly likely: readonly IncidentKind[];
  /** What proved the kind when the incident opened. */
  readonly evidence: readonly EvidenceLine[];
  /** The changes of objects that made its first differences, the likeliest cause first. */
  readonly changes: readonly ObjectChange[];
  /** When the first of its differences began. */
  readonly since: number;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
  /** What it does to traffic now, or did at most; `null` if that is not known. */
  readonly impact: IncidentImpact | null;
  /** At present, or the worst that it had. */
  readonly severity: Severity;
  /** The open findings; of a resolved incident the first 100 that it had. */
  readonly findings: readonly Finding[];
}

export interface IncidentOptions {
  /** What is known at a time, beside the findings. */
  readonly evidence: (at: number) => Evidence;
  readonly impacts: ImpactSource;
  /** Resolved incidents to keep. */
  readonly keep: number;
}

/** This many open incidents of one kind become one. */
const many = 10;

/** Resolved findings and changes that an incident keeps. */
const keptFindings = 100;
const keptChanges = 20;

/** Seconds between two computations of the impact of open incidents. */
const impactInterval = 10;

/** The key of the incident that many of one kind have become. */
const all = '*';

const conditionKinds: readonly IncidentKind[] = [
  'service-without-endpoints',
  'api-unavailable',
  'agents-missing',
];

interface Member {
  readonly finding: Finding;
  readonly claim: Claim;
}

type OpenIncident = ReturnType<typeof newIncident>;

interface Beginning {
  readonly since: number;
  readonly openedAt: number;
  readonly evidence: readonly EvidenceLine[];
}

const newIncident = (id: string, claim: Claim, { since, openedAt, evidence }: Beginning) => ({
  id,
  evidence,
  /** The number of findings that each change made differ. */
  changes: new Map<ObjectChange, number>(),
  kind: claim.kind,
  key: claim.key,
  object: claim.object,
  likely: claim.likely,
  since,
  openedAt,
  /** By the key of the finding. */
  members: new Map<string, Member>(),
  /** By name. */
  conditions: new Map<string, IncidentCondition>(),
  /** The first findings that were resolved. */
  resolved: [] as Finding[],
  /** The worst of all reviews. */
  impact: null as IncidentImpact | null,
  severity: null as Severity | null,
  /** When the last finding or condition left. */
  leftAt: null as number | null,
});

const isEmpty = ({ members, conditions }: OpenIncident): boolean =>
  members.size + conditions.size === 0;

const slug = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');

type State = ReturnType<typeof createState>;

const createState = (options: IncidentOptions) => ({
  options,
  /** By kind and key. */
  open: new Map<string, OpenIncident>(),
  /** By the key of the finding. */
  owners: new Map<string, OpenIncident>(),
  resolved: [] as Incident[],
  /** The name that now answers for a name, by that name. */
  merged: new Map<string, string>(),
  /** When impacts were computed last. */
  measuredAt: -Infinity,
  /** Changes whenever an incident does. */
  revision: 0,
});

export function createIncidents(options: IncidentOptions) {
  const state = createState(options);
  return {
    /** Adds a finding that has opened. */
    add(finding: Finding): void {
      const evidence = options.evidence(finding.openedAt);
      const member = { finding, claim: openClaim(state, finding, evidence) };
      addMember(state, member, finding.openedAt, evidence);
    },
    /** Removes a finding that is resolved. */
    remove(finding: Finding): void {
      const incident = state.owners.get(openFindingKey(finding));
      if (incident === undefined) return;
      removeMember(state, incident, openFindingKey(finding));
      incident.leftAt = finding.resolvedAt;
      if (incident.resolved.length < keptFindings) incident.resolved.push(finding);
    },
    /** Applies evidence that arrived later, and the conditions that hold at a time. */
    review(at: number, conditions: readonly IncidentCondition[]): void {
      reviewControllers(state, at);
      reviewConditions(state, at, conditions);
      reviewImpacts(state, at);
      closeEmpty(state);
      mergeMany(state);
    },
    /** Open incidents with the findings as they are now, the oldest first. */
    list: (findings: readonly Finding[]): Incident[] => list(state, findings),
    /** Resolved incidents, oldest first. */
    resolved: (): readonly Incident[] => state.resolved,
    /** The name of the incident that a finding belongs to; `null` if it is not open. */
    idOf: (finding: Finding): string | null =>
      state.owners.get(openFindingKey(finding))?.id ?? null,
    /** The name that answers for one which another incident took. */
    currentId: (id: string): string => currentId(state, id),
    revision: (): number => state.revision,
  };
}

function currentId({ merged }: State, id: string): string {
  let current = id;
  for (let next = merged.get(id); next !== undefined; next = merged.get(next)) current = next;
  return current;
}

const placeOf = ({ kind, key }: Pick<Claim, 'kind' | 'key'>): string => `${kind} ${key}`;

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
  incident.members.set(openFindingKey(finding), member);
  state.owners.set(openFindingKey(finding), incident);
  state.revision++;
}

/** The first changes are kept: later ones are more likely to be other trouble. */
function countChange({ changes }: OpenIncident, change: ObjectChange, findings: number): void {
  const known = changes.get(change);
  if (known === undefined && changes.size >= keptChanges) return;
  changes.set(change, (known ?? 0) + findings);
}

/** Changes of objects to blame first, then those of most findings, then the oldest. */
function rankChanges(
  changes: OpenIncident['changes'],
  objects: readonly string[],
): readonly ObjectChange[] {
  const isBlamed = ({ kind, namespace, name }: ObjectChange): boolean =>
    objects.includes(`${kind} ${namespace === '' ? name : `${namespace}/${name}`}`);
  return [...changes]
    .sort(
      ([a, ofA], [b, ofB]) => Number(isBlamed(b)) - Number(isBlamed(a)) || ofB - ofA || a.at - b.at,
    )
    .map(([change]) => change);
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
  if (other.key !== by.key) return false;
  const isWorse = other.kind === 'controller-slow' && by.kind === 'controller-not-writing';
  return isWorse || (isEmpty(other) && other.leftAt === at);
}

function freeId({ open, resolved }: State, { kind, object }: Claim, since: number): string {
  const used = new Set([...open.values(), ...resolved].map(({ id }) => id));
  const id = [kind, slug(object), String(Math.floor(since))].join('.');
  let free = id;
  for (let number = 2; used.has(free); number++) free = `${id}-${String(number)}`;
  return free;
}

function merge(state: State, from: OpenIncident, into: OpenIncident): void {
  for (const [key, member] of from.members) {
    into.members.set(key, member);
    state.owners.set(key, into);
  }
  for (const [name, condition] of from.conditions) into.conditions.set(name, condition);
  for (const [change, findings] of from.changes) countChange(into, change, findings);
  into.since = Math.min(into.since, from.since);
  into.openedAt = Math.min(into.openedAt, from.openedAt);
  keepWorst(into, from);
  const free = Math.max(0, keptFindings - into.resolved.length);
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
    if (!isEmpty(incident) || !isUnknown) continue;
    const heir = state.open.get(`controller-not-writing ${controllerManager}`);
    const into = heir ?? state.open.get(`controller-slow ${controllerManager}`);
    if (into !== undefined) merge(state, incident, into);
  }
}

/** Another claim on a member than that of its incident; `null` if it stays. */
function laterClaim(
  { kind }: OpenIncident,
  finding: Finding,
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

/** Keeps the worst impact of each incident; thousands of findings may open within a second. */
function reviewImpacts(state: State, at: number): void {
  if (at - state.measuredAt < impactInterval) return;
  state.measuredAt = at;
  const { impacts } = state.options;
  for (const incident of state.open.values()) {
    if (isEmpty(incident)) continue;
    const findings = [...incident.members.values()].map(({ finding }) => finding);
    keepWorst(incident, effectOf(incident.kind, findings, impacts));
  }
}

function keepWorst(
  incident: OpenIncident,
  { impact, severity }: Pick<OpenIncident, 'impact' | 'severity'>,
): void {
  if ((impact?.worst ?? -1) > (incident.impact?.worst ?? -1)) incident.impact = impact;
  if (severity === null) return;
  if (incident.severity === null || isWorse(severity, incident.severity)) {
    incident.severity = severity;
  }
}

function closeEmpty(state: State): void {
  const { open, resolved, options } = state;
  for (const [place, incident] of open) {
    if (!isEmpty(incident)) continue;
    open.delete(place);
    const { impact } = incident;
    // One that opened and ended between two reviews has the severity of its findings.
    const found = effectOf(incident.kind, incident.resolved, noImpacts);
    const effect = { impact, severity: incident.severity ?? found.severity };
    resolved.push(snapshot(incident, incident.resolved, incident.leftAt, effect));
    if (resolved.length > options.keep) resolved.shift();
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

function list({ open, owners, options }: State, findings: readonly Finding[]): Incident[] {
  const { impacts } = options;
  const current = new Map<OpenIncident, Finding[]>();
  for (const finding of findings) {
    const owner = owners.get(openFindingKey(finding));
    if (owner !== undefined) getOrInsert(current, owner, () => []).push(finding);
  }
  return [...open.values()]
    .filter((incident) => !isEmpty(incident))
    .sort((a, b) => a.since - b.since)
    .map((incident) => {
      const own = current.get(incident) ?? [];
      return snapshot(incident, own, null, effectOf(incident.kind, own, impacts));
    });
}

function snapshot(
  incident: OpenIncident,
  findings: readonly Finding[],
  resolvedAt: number | null,
  effect: IncidentEffect,
): Incident {
  const { id, kind, object, likely, evidence, since, openedAt, members, conditions } = incident;
  const claims = [...members.values()].map(({ claim }) => claim);
  const names = [...claims, ...conditions.values()].map((it) => it.object);
  const objects = [...new Set([object, ...names])];
  const changes = rankChanges(incident.changes, objects);
  const times = { since, openedAt, resolvedAt };
  return { id, kind, object, objects, likely, evidence, changes, ...times, ...effect, findings };
}
