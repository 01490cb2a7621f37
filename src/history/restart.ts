// What a history proves to an auditor that starts again: the clocks and the findings of differences
// that existed when the recording ended, if nothing of their Service has changed since.
//
// A difference continues if the state at the end of the recording had it, if the fresh state has it
// too, and if the Service, its Endpoints, slices and pods have the same uid and resourceVersion as
// then. So it existed all the time. Otherwise its clock starts again. Nothing is used of a
// recording in which something is missing after its checkpoint. A finding opens again only when it
// is confirmed, as any other does.

import { createHash } from 'node:crypto';

import { type Finding, openFindingKey } from '../audit/finding/catalogue.ts';
import { readSavedService, type SavedService, saveService } from '../audit/service/checkpoint.ts';
import { podsOf } from '../audit/service/cache.ts';
import type { OpenBefore } from '../audit/incident/saved-incidents.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { getOrInsert } from '../model/collections.ts';
import type { AnyObject, Key, Listers } from '../model/objects.ts';
import { type Opening, shownOfIncident } from './notes.ts';
import type { IndexedFinding, SearchIndex } from './search-index.ts';

/** What was known of the Services with differences when the recording ended. */
export interface StopState {
  /** When it ended, Unix seconds. */
  readonly at: number;
  readonly services: readonly {
    readonly key: Key;
    readonly saved: SavedService;
    /** A hash of the versions of its objects. */
    readonly versions: string;
  }[];
  /** What was resolved until then, oldest first, and what was open. */
  readonly resolved: Auditor['earlier'];
  readonly open: Auditor['earlier'];
  /** The incidents that were open, with the keys of their findings. */
  readonly incidents: OpenBefore;
  /** Findings and incidents that another version noted, with codes that this one does not know. */
  readonly unknown: number;
}

/** What the search index has of the time before a restart. */
type Searched = Pick<StopState, 'resolved' | 'open'>;

/** What is shown of the time before a restart. */
const shown = { findings: 1000, incidents: 200 };

/** What is used of what was open. In an outage, each Service may have some findings. */
const known = { findings: 10_000, incidents: 2000 };

/** The latest findings and incidents that a history shows as resolved, and those that are open. */
export function searchedIn(index: Pick<SearchIndex, 'findings' | 'incidents'>): Searched {
  const findings = index
    .findings(-Infinity, Infinity)
    // Of those without a note in the history, only the beginning is known.
    .filter((it): it is Finding & IndexedFinding => 'differences' in it);
  const incidents = index.incidents(-Infinity, Infinity);
  const isOpen = ({ resolvedAt }: Pick<Finding, 'resolvedAt'>): boolean => resolvedAt === null;
  const resolved = {
    findings: findings.filter((it) => !isOpen(it)),
    incidents: incidents.filter((it) => !isOpen(it)),
  };
  const open = { findings: findings.filter(isOpen), incidents: incidents.filter(isOpen) };
  return { resolved: latest(resolved), open: earliest(open) };
}

/** Those that were resolved last. */
function latest({ findings, incidents }: Auditor['earlier']): Auditor['earlier'] {
  const at = ({ resolvedAt }: Pick<Finding, 'resolvedAt'>): number => resolvedAt ?? 0;
  return {
    findings: findings.toSorted((a, b) => at(a) - at(b)).slice(-shown.findings),
    incidents: incidents.toSorted((a, b) => at(a) - at(b)).slice(-shown.incidents),
  };
}

/** Those that opened first. */
function earliest({ findings, incidents }: Auditor['earlier']): Auditor['earlier'] {
  const at = ({ openedAt }: { readonly openedAt: number | null }): number => openedAt ?? 0;
  return {
    findings: findings.toSorted((a, b) => at(a) - at(b)).slice(0, known.findings),
    incidents: incidents.toSorted((a, b) => at(a) - at(b)).slice(0, known.incidents),
  };
}

type Audit = Parameters<typeof saveService>[0];

/** `null` if an object has no version, so that a change could not be seen. */
function versionsOf(listers: Listers, { record }: Audit): string | null {
  const { service, endpoints, slices } = record;
  const single = [service, endpoints].flatMap((it) => it ?? []);
  const objects: AnyObject[] = [...single, ...slices, ...podsOf(listers, record)];
  if (objects.some(({ uid, resourceVersion }) => uid === '' || resourceVersion === '')) return null;
  const lines = objects.map(({ uid, resourceVersion }) => `${uid} ${resourceVersion}`).sort();
  return createHash('sha256').update(lines.join('\n')).digest('base64');
}

/**
 * The state of an auditor that has replayed the recording. `openings` has its findings, without
 * `unknown` ones.
 */
export function stopStateOf(
  auditor: Auditor,
  at: number,
  openings: ReadonlyMap<string, Opening>,
  searched: Searched,
  unknown = 0,
): StopState {
  const audits = [...(auditor.serviceAuditor()?.audited.values() ?? [])];
  const services = audits.flatMap((audit) => {
    const versions = audit.items.size === 0 ? null : versionsOf(auditor.store.listers, audit);
    if (versions === null) return [];
    const saved = asNoted(audit, saveService(audit, new Map()), openings);
    return [{ key: audit.record.key, saved, versions }];
  });
  return { at, services, incidents: openBefore(auditor, at, searched), unknown, ...searched };
}

/**
 * The incidents that were open at the end. A replay does not confirm findings, so their times and
 * resolved findings are those of the notes; `at` is later than all openings.
 */
function openBefore({ incidents }: Auditor, at: number, { resolved, open }: Searched): OpenBefore {
  const numbers = new Map<Finding, number>();
  const past = incidents.past((finding) => getOrInsert(numbers, finding, () => numbers.size));
  const used = new Set(past.open.flatMap((it) => it.resolved));
  const nameOf = (finding: Finding): string =>
    `${openFindingKey(finding)} ${String(Math.round(1000 * finding.since))}`;
  const noted = new Map(resolved.findings.map((it) => [nameOf(it), it]));
  const openings = new Map(open.incidents.map((it) => [it.id, it.openedAt]));
  return {
    open: past.open.map((it) => ({ ...it, openedAt: openings.get(it.id) ?? at })),
    // The findings open again, with their addresses.
    members: [...past.members].map((it) => ({ ...it, addresses: [] })),
    resolved: [...numbers].flatMap(([finding, number]) => {
      const known = used.has(number) ? noted.get(nameOf(finding)) : undefined;
      return known === undefined ? [] : [[number, known] as const];
    }),
    merged: past.grouping.merged,
  };
}

/**
 * What was open as the notes say. A replay needs no confirmation, so it may open a finding too
 * early. One with another settle window may open it too late.
 */
function asNoted(
  { record: { namespace, name: service } }: Audit,
  saved: SavedService,
  openings: ReadonlyMap<string, Opening>,
): SavedService {
  const items = Object.entries(saved.items).map(([unit, all]) => {
    const known = all.map((it) => {
      const { code } = it.difference;
      const key = openFindingKey({ namespace, service, node: null, code, cause: it.cause });
      const opening = openings.get(key);
      const isFirst = opening !== undefined && it.since <= opening.since;
      const isOpen = opening !== undefined && (it.openedAt !== null || isFirst);
      if (!isOpen) return { ...it, openedAt: null, findingOpenedAt: null };
      const { openedAt } = opening;
      return { ...it, openedAt: Math.max(it.openedAt ?? 0, openedAt), findingOpenedAt: openedAt };
    });
    return [unit, known] as const;
  });
  return { ...saved, items: Object.fromEntries(items) };
}

/** Continues what the stop state proves; the number of Services whose differences continue. */
export function continueFrom(auditor: Auditor, stop: StopState): number {
  const audited = auditor.serviceAuditor()?.audited;
  const proven = stop.services.flatMap(({ key, saved, versions }) => {
    const audit = audited?.get(key);
    if (audit === undefined || audit.items.size === 0) return [];
    const found = versionsOf(auditor.store.listers, audit);
    const known = found === versions ? readSavedService(saved) : null;
    return known === null ? [] : [[audit, known] as const];
  });
  const ended = endedIn(stop.open, isOverIn(auditor), auditor.now() ?? stop.at);
  const { findings, incidents } = stop.resolved;
  Object.assign(
    auditor.earlier,
    latest({
      findings: [...findings, ...ended.findings],
      incidents: [...incidents, ...ended.incidents],
    }),
  );
  auditor.incidents.continueAfterRestart(stop.incidents);
  auditor.continueServices(new Map(proven.map(([{ record }, saved]) => [record.key, saved])));
  return proven.length;
}

type FindingName = Pick<Finding, 'namespace' | 'service' | 'node' | 'code'>;

/** Whether the fresh state proves that a finding has ended. Rules of nodes come later. */
function isOverIn(auditor: Auditor): (finding: FindingName) => boolean {
  const services = auditor.serviceAuditor();
  const unreadable = [...(services?.unreadable.values() ?? [])];
  const isUnread = (namespace: string): boolean =>
    unreadable.some((it) => it.namespace === null || it.namespace === namespace);
  return ({ namespace, service, node, code }) => {
    if (services === null || node !== null || isUnread(namespace)) return false;
    const { items = null, unknown } = services.audited.get(`${namespace}/${service}`) ?? {};
    if (unknown !== undefined && unknown.size > 0) return false;
    return ![...(items?.values() ?? [])].flat().some(({ difference }) => difference.code === code);
  };
}

/** What was open and has ended since. The time at which that is seen is its end. */
function endedIn(
  open: Auditor['earlier'],
  isOver: (finding: FindingName) => boolean,
  resolvedAt: number,
): Auditor['earlier'] {
  const findings = open.findings.filter(isOver);
  // Of a longer list, the note has only the first.
  const incidents = open.incidents.filter(
    (it) => it.findings.length < shownOfIncident && it.findings.every(isOver),
  );
  return {
    findings: findings.map((it) => ({ ...it, resolvedAt })),
    incidents: incidents.map((it) => ({ ...it, resolvedAt })),
  };
}
