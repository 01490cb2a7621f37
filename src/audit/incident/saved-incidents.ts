// What a checkpoint of a recording has of incidents, and whether what was read back has its form.
// Of resolved findings it has numbers: a checkpoint has each of them once.

import {
  type Form,
  type FormOf,
  hasForms,
  isFlag,
  isListOf,
  isNumber,
  isOneOf,
  isText,
  orNull,
  recordOf,
} from '../../model/collections.ts';
import { type FieldManagers, isFieldSet } from '../../model/managed-fields.ts';
import { type Finding, openFindingKey } from '../finding/catalogue.ts';
import {
  findingHead,
  headOf,
  isCause,
  isCode,
  isOutput,
  isSeverity,
} from '../finding/saved-finding.ts';
import { changeKey } from '../service/object-changes.ts';
import { serviceOutputs } from '../service/verdict.ts';
import { reaches } from './impact.ts';
import { type IncidentKind, incidentKinds } from './kinds.ts';
import {
  type CountedChange,
  type Incident,
  kept,
  type Member,
  newIncident,
  type OpenIncident,
} from './open-incident.ts';

/** The number of a resolved finding. */
export type NumberOf = (finding: Finding) => number;

export type SavedMember = FormOf<typeof isSavedMember>;

/** What a checkpoint has of incidents. Members may be thousands, so they are saved when read. */
export interface PastIncidents {
  readonly open: readonly SavedIncident[];
  readonly members: Iterable<SavedMember>;
  /** The oldest first. */
  readonly resolved: readonly SavedResolved[];
  readonly grouping: SavedGrouping;
}

/** The incidents that were open before a restart, as plain data. */
export interface OpenBefore {
  readonly open: readonly SavedIncident[];
  readonly members: readonly SavedMember[];
  /** Those of their resolved findings that are known, by number. */
  readonly resolved: readonly (readonly [number, Finding])[];
  /** The name that now answers for a name. */
  readonly merged: SavedGrouping['merged'];
}

export type SavedGrouping = FormOf<typeof isSavedGrouping>;

/** What the evidence of incidents depends on. */
export type SavedEvidence = FormOf<typeof isSavedEvidence>;

export type SavedIncident = ReturnType<typeof saveIncident>;

/** Without its members. */
export function saveIncident(incident: OpenIncident, numberOf: NumberOf) {
  const { changes, conditions, resolved, reviewed, managers, ...rest } = incident;
  return {
    ...rest,
    members: undefined,
    changes: [...changes.values()],
    conditions: [...conditions.values()],
    resolved: resolved.map(numberOf),
    reviewed: reviewed && [...reviewed],
    managers: [...managers],
  };
}

/** The members with the names of their incidents. */
export function* saveMembers(
  members: readonly (readonly [incident: string, member: Member])[],
): Generator<SavedMember> {
  for (const [incident, { claim, finding }] of members) {
    const addresses = finding.differences.flatMap(({ address }) => address ?? []);
    yield { incident, claim, finding: headOf(finding), addresses };
  }
}

export type SavedResolved = Omit<Incident, 'findings' | 'services'> & {
  readonly services?: undefined;
  readonly findings: readonly number[];
};

export function saveResolved(incident: Incident, numberOf: NumberOf): SavedResolved {
  return { ...incident, services: undefined, findings: incident.findings.map(numberOf) };
}

// --- reading ---

const isKind = isOneOf(incidentKinds);
const claimForms = { kind: isKind, key: isText, object: isText };
const likely = isListOf(isKind);
const lines = isListOf(hasForms({ text: isText, at: orNull(isNumber) }));
const changeForms = {
  at: isNumber,
  kind: isText,
  namespace: isText,
  name: isText,
  field: isText,
  from: orNull(isText),
  to: orNull(isText),
};
const isChange = hasForms(changeForms);
const isImpact = orNull(hasForms({ misrouted: isNumber, unused: isNumber, worst: isNumber }));
const isReach = hasForms(recordOf(reaches, () => isNumber));
const times = { since: isNumber, openedAt: isNumber };

const isCondition = hasForms({ ...claimForms, name: isText, text: isText, since: isNumber });

const isManagers: Form<FieldManagers> = (value) =>
  hasForms({ unknown: isText })(value) ||
  isListOf(hasForms({ manager: isText, at: orNull(isNumber), fields: isFieldSet }))(value);

const isPairOf =
  <T>(form: Form<T>): Form<readonly [string, T]> =>
  (value): value is readonly [string, T] =>
    Array.isArray(value) && value.length === 2 && isText(value[0]) && form(value[1]);

export const isSavedIncident = hasForms({
  ...claimForms,
  ...times,
  likely,
  id: isText,
  evidence: lines,
  changes: isListOf(hasForms({ change: isChange, findings: isNumber })),
  conditions: isListOf(isCondition),
  resolved: isListOf(isNumber),
  impact: isImpact,
  severity: orNull(isSeverity),
  reach: orNull(isReach),
  mostMembers: isNumber,
  reviewed: orNull(isListOf(isText)),
  managers: isListOf(isPairOf(isManagers)),
  leftAt: orNull(isNumber),
});

export const isSavedMember = hasForms({
  /** The name of the incident. */
  incident: isText,
  claim: hasForms({ ...claimForms, likely }),
  finding: hasForms(findingHead),
  addresses: isListOf(isText),
});

const reportForms = {
  id: isText,
  kind: isKind,
  object: isText,
  objects: isListOf(isText),
  likely,
  evidence: lines,
  changes: isListOf(hasForms({ ...changeForms, manager: orNull(isText) })),
  resolvedAt: isNumber,
  impact: isImpact,
  severity: isSeverity,
  reach: isReach,
};

export const isSavedResolved = hasForms({
  ...reportForms,
  ...times,
  worstSeverity: isSeverity,
  findings: isListOf(isNumber),
});

const nameForms = { namespace: isText, service: isText, node: orNull(isText) };

const reportedForms = {
  ...reportForms,
  since: orNull(isNumber),
  openedAt: orNull(isNumber),
  title: isText,
  remedy: hasForms({ text: isText, commands: isListOf(isText), managed: orNull(isText) }),
  findings: isListOf(hasForms({ code: isCode, cause: isCause, output: isOutput, ...nameForms })),
};

/** Whether a value is an incident as outputs show it, and whether it is a resolved one. */
export const isReported = hasForms({ ...reportedForms, resolvedAt: orNull(isNumber) });
export const isReportedResolved = hasForms(reportedForms);

export const isSavedGrouping = hasForms({
  /** The name that now answers for a name. */
  merged: isListOf(isPairOf(isText)),
  forgotten: isNumber,
  /** When impacts were computed last; `null`: never. */
  measuredAt: orNull(isNumber),
  /** Services whose impact may have changed since then. */
  changed: isListOf(isText),
});

const isController = hasForms({
  writes: isListOf(hasForms({ at: isNumber, seconds: isNumber })),
  lateAt: orNull(isNumber),
});

export const isSavedEvidence = hasForms({
  controllers: hasForms(recordOf(serviceOutputs, () => isController)),
  /** Services that were evaluated since it was seen whether they can receive traffic. */
  evaluated: isListOf(isText),
  /** Those that cannot. */
  unserved: isListOf(hasForms({ key: isText, reason: isText, since: isNumber })),
  /** The loss of the API server, and when a watch was interrupted last. */
  loss: hasForms({ condition: orNull(isCondition), at: orNull(isNumber) }),
  /** The first review and the last one; `null`: none. */
  firstAt: orNull(isNumber),
  reviewedAt: orNull(isNumber),
  /** Whether nothing has changed since then. */
  isReviewed: isFlag,
});

export type FindingOf = (number: number) => Finding | undefined;

const findingsOf = (numbers: readonly number[], findingOf: FindingOf): Finding[] =>
  numbers.slice(0, kept.findings).flatMap((number) => findingOf(number) ?? []);

/** The incident without its members. */
export function continueIncident(saved: SavedIncident, findingOf: FindingOf): OpenIncident {
  const { changes, conditions, resolved, reviewed, managers, ...rest } = saved;
  const counted = changes.map((it): [string, CountedChange] => [changeKey(it.change), it]);
  return {
    ...newIncident(rest.id, rest, rest),
    ...rest,
    members: new Map(),
    changes: new Map(counted.slice(0, kept.changes)),
    conditions: new Map(conditions.map((it) => [it.name, it])),
    resolved: findingsOf(resolved, findingOf),
    reviewed: reviewed && new Set(reviewed),
    managers: new Map(managers.slice(0, kept.objects)),
  };
}

/** A member, and the key of its finding. */
export function continueMember({ claim, finding, addresses }: SavedMember): [string, Member] {
  const differences = addresses.map((address) => ({ address }));
  return [openFindingKey(finding), { claim, finding: { ...finding, differences } }];
}

export const continueResolved = (saved: SavedResolved, findingOf: FindingOf): Incident => ({
  ...saved,
  findings: findingsOf(saved.findings, findingOf),
  services: new Set(),
});

/** A finding that was open before a restart, with its incident. */
export interface EarlierMember extends Pick<Member, 'claim'> {
  readonly saved: SavedIncident;
  readonly findingOf: FindingOf;
}

/** What was open before a restart, by the key of the finding. */
export function* earlierMembers(before: OpenBefore): Generator<[string, EarlierMember]> {
  const byId = new Map(before.open.map((saved) => [saved.id, saved]));
  const resolved = new Map(before.resolved);
  const findingOf = (number: number): Finding | undefined => resolved.get(number);
  for (const { incident, claim, finding } of before.members) {
    const saved = byId.get(incident);
    if (saved !== undefined) yield [openFindingKey(finding), { saved, claim, findingOf }];
  }
}

/** The place of an incident among those that are open. */
export const placeOf = ({ kind, key }: { readonly kind: IncidentKind; readonly key: string }) =>
  `${kind} ${key}`;
