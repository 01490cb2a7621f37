// One incident while it is open, and as every output sees it at a moment.

import { recordOf } from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import type { FieldManagers } from '../../model/managed-fields.ts';
import {
  type DifferenceDetail,
  type Finding,
  isWorse,
  type Severity,
} from '../finding/catalogue.ts';
import type { FindingHead } from '../finding/saved-finding.ts';
import { changeKey, type ObjectChange, objectName } from '../service/object-changes.ts';
import type { Claim } from './classify.ts';
import type { EvidenceLine } from './evidence-lines.ts';
import { type IncidentChange, managerOf } from './field-managers.ts';
import {
  effectOf,
  type ImpactSource,
  type IncidentEffect,
  type IncidentImpact,
  namesIn,
  noImpact,
  noImpacts,
  type Reach,
  reaches,
  reachOf,
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
  readonly changes: readonly IncidentChange[];
  /** When the first of its differences began. */
  readonly since: number;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
  /** What it does to traffic now, or did at most; `null` if that is not known. */
  readonly impact: IncidentImpact | null;
  /** At present, or the worst that it had. */
  readonly severity: Severity;
  /** The worst since it opened. */
  readonly worstSeverity: Severity;
  /** At present, or the largest that it had. */
  readonly reach: Reach;
  /** The Services that it affects; none of a resolved one. */
  readonly services: ReadonlySet<Key>;
  /** The open findings; of a resolved incident the first 100 that it had. */
  readonly findings: readonly Finding[];
}

/** Resolved findings and changes that an incident keeps, and objects that are read for it. */
export const kept = { findings: 100, changes: 20, objects: 5 };

/** What an incident needs of a finding, without what its differences show. */
export interface MemberFinding extends FindingHead {
  readonly differences: readonly Pick<DifferenceDetail, 'address'>[];
}

export interface Member {
  /** As it was when it opened. */
  readonly finding: MemberFinding;
  readonly claim: Claim;
}

export interface CountedChange {
  readonly change: ObjectChange;
  readonly findings: number;
}

export type OpenIncident = ReturnType<typeof newIncident>;

export interface Beginning {
  readonly since: number;
  readonly openedAt: number;
  readonly evidence: readonly EvidenceLine[];
}

export const newIncident = (
  id: string,
  claim: Claim,
  { since, openedAt, evidence }: Beginning,
) => ({
  id,
  evidence,
  /** The changes with the number of findings that each made differ, by their keys. */
  changes: new Map<string, CountedChange>(),
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
  reach: null as Reach | null,
  /** The most members when the reach was computed. */
  mostMembers: 0,
  /** The Services on whose impact the last review depends; `null` if it must be reviewed again. */
  reviewed: null as ReadonlySet<Key> | null,
  /** The field managers of objects that were read, by `Kind namespace/name`. */
  managers: new Map<string, FieldManagers>(),
  /** When the last finding or condition left. */
  leftAt: null as number | null,
});

export const isEmpty = ({ members, conditions }: OpenIncident): boolean =>
  members.size + conditions.size === 0;

export const slug = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');

/** The first changes are kept: later ones are more likely to be other trouble. */
export function countChange(
  { changes }: OpenIncident,
  change: ObjectChange,
  findings: number,
): void {
  const key = changeKey(change);
  const known = changes.get(key);
  if (known === undefined && changes.size >= kept.changes) return;
  changes.set(key, { change, findings: (known?.findings ?? 0) + findings });
}

export type NamedObject = Pick<ObjectChange, 'kind' | 'namespace' | 'name'>;

/** Changes of objects to blame first, then those of most findings, then the oldest. */
function rankChanges(incident: OpenIncident, objects: readonly string[]): ObjectChange[] {
  const isBlamed = (change: ObjectChange): boolean => objects.includes(objectName(change));
  return [...incident.changes.values()]
    .sort(
      ({ change: a, findings: ofA }, { change: b, findings: ofB }) =>
        Number(isBlamed(b)) - Number(isBlamed(a)) || ofB - ofA || a.at - b.at,
    )
    .map(({ change }) => change);
}

function objectsOf({ object, members, conditions }: OpenIncident): string[] {
  const claims = [...members.values()].map(({ claim }) => claim);
  return [...new Set([object, ...[...claims, ...conditions.values()].map((it) => it.object)])];
}

/** Kinds of objects that controllers write. */
const written = /^(EndpointSlice|Endpoints) ([^/ ]+)\/([^/ ]+)$/;

/** Objects whose field managers may show who made the changes, as far as they were not read. */
export function unreadObjects(incident: OpenIncident): NamedObject[] {
  const { managers, object, kind } = incident;
  const [, writtenKind, namespace = '', name = ''] = written.exec(object) ?? [];
  const isEdited = kind === 'edited-by-someone' && writtenKind !== undefined;
  const edited = isEdited ? [{ kind: writtenKind, namespace, name }] : [];
  const changed = rankChanges(incident, objectsOf(incident));
  const all = new Map([...edited, ...changed].map((it) => [objectName(it), it]));
  return [...all]
    .slice(0, kept.objects)
    .filter(([key]) => !managers.has(key) && managers.size < kept.objects)
    .map(([, it]) => ({ kind: it.kind, namespace: it.namespace, name: it.name }));
}

/** Keeps the field managers of an object, if the incident asks for them. */
export function noteManagers(
  incident: OpenIncident,
  object: NamedObject,
  read: FieldManagers,
): void {
  const name = objectName(object);
  if (unreadObjects(incident).some((it) => objectName(it) === name))
    incident.managers.set(name, read);
}

/** Who edited the object of the incident, as far as that is known. */
function editorLine(
  { managers, openedAt }: OpenIncident,
  changes: readonly IncidentChange[],
  isLive: boolean,
): EvidenceLine {
  const known = changes.find(
    ({ kind, manager }) => manager !== null && kind.startsWith('Endpoint'),
  );
  if (known !== undefined) {
    const text = `the field manager ${known.manager ?? ''} changed ${objectName(known)}`;
    return { text, at: known.at };
  }
  const reasons = [...managers.values()].flatMap((it) => ('unknown' in it ? [it.unknown] : []));
  const none = managers.size > 0 ? 'managedFields does not show it' : 'it is being read';
  const reason = isLive ? (reasons[0] ?? none) : 'the input has no metadata.managedFields';
  return { text: `the field manager is unknown: ${reason}`, at: isLive ? openedAt : null };
}

/** The largest of each number. */
function largestReach(a: Reach | null, b: Reach | null): Reach | null {
  if (a === null || b === null) return a ?? b;
  return recordOf(reaches, (it) => Math.max(a[it], b[it]));
}

/** Keeps the worst of what an incident does, and how much it affects at most. */
export function keepWorst(
  incident: OpenIncident,
  { impact, severity, reach }: Pick<OpenIncident, 'impact' | 'severity' | 'reach'>,
): void {
  if ((impact?.worst ?? -1) > (incident.impact?.worst ?? -1)) incident.impact = impact;
  incident.reach = largestReach(incident.reach, reach);
  if (severity === null) return;
  if (incident.severity === null || isWorse(severity, incident.severity)) {
    incident.severity = severity;
  }
}

/** What an open incident does with its findings as they are now. */
export function measure(
  incident: OpenIncident,
  findings: readonly MemberFinding[],
  impacts: ImpactSource,
): IncidentEffect & { readonly reach: Reach } {
  const objects = objectsOf(incident);
  const own = effectOf(incident.kind, findings, impacts);
  const named = findings.length === 0 ? new Set(namesIn(objects, 'Service')) : own.services;
  return { ...own, services: named, reach: reachOf(findings, objects, named) };
}

/** Keeps the worst by the findings as they opened. The reach is computed only if they are more. */
export function remeasure(incident: OpenIncident, impacts: ImpactSource): void {
  const { kind, members, mostMembers } = incident;
  const findings = [...members.values()].map(({ finding }) => finding);
  const isMore = findings.length === 0 || findings.length > mostMembers;
  const effect = isMore
    ? measure(incident, findings, impacts)
    : { ...effectOf(kind, findings, impacts), reach: null };
  if (isMore) incident.mostMembers = findings.length;
  keepWorst(incident, effect);
  // Of rules of nodes, and without findings, more can change than the impact on Services.
  const isOfServices = findings.length > 0 && findings.every(({ node }) => node === null);
  incident.reviewed = isOfServices ? effect.services : null;
}

/** Whether the worst may have changed since the last review. */
export function isOutdated({ reviewed }: OpenIncident, changed: ReadonlySet<Key>): boolean {
  return reviewed === null || [...changed].some((key) => reviewed.has(key));
}

const noNodeImpact = { services: new Map(), misrouted: 0, unused: 0, worst: 0 };

/** Leaves the severity of findings whose effect the shares do not contain. */
const harmless: ImpactSource = {
  ofService: () => noImpact,
  ofNode: () => noNodeImpact,
  nodes: () => 0,
};

/** What a resolved incident did at most: nothing is known of the shares at its end. */
export function worstOf(incident: OpenIncident): IncidentEffect & { readonly reach: Reach } {
  const { kind, resolved, severity: measured } = incident;
  // One that opened and ended between two reviews has the severity of its findings.
  const last = effectOf(kind, resolved, measured === null ? noImpacts : harmless);
  const found = reachOf(resolved, objectsOf(incident), last.services);
  keepWorst(incident, { impact: null, severity: last.severity, reach: found });
  const { impact, severity, reach } = incident;
  return { impact, severity: severity ?? last.severity, reach: reach ?? found, services: noKeys };
}

const noKeys: ReadonlySet<Key> = new Set();

/** The incident at a moment, with some findings and their effect. */
export function snapshot(
  incident: OpenIncident,
  findings: readonly Finding[],
  resolvedAt: number | null,
  effect: ReturnType<typeof measure>,
  isLive: boolean,
): Incident {
  const { id, kind, object, likely, evidence: lines, since, openedAt, managers } = incident;
  const objects = objectsOf(incident);
  const changes = rankChanges(incident, objects).map((change): IncidentChange => {
    return { ...change, manager: managerOf(change, managers.get(objectName(change))) };
  });
  const isEdited = kind === 'edited-by-someone';
  const evidence = isEdited ? [...lines, editorLine(incident, changes, isLive)] : lines;
  const { severity: worst } = incident;
  const worstSeverity = worst === null || isWorse(effect.severity, worst) ? effect.severity : worst;
  const known = { id, kind, object, objects, likely, evidence, changes, since, openedAt };
  return { ...known, resolvedAt, ...effect, worstSeverity, findings };
}
