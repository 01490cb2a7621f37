// What the audit of a Service knows from history: when its differences began, why, and when they
// became findings. A checkpoint of a recording has it, so that an audit from the checkpoint on
// gives the same findings as one from the beginning.

import {
  hasForms,
  isFields,
  isFlag,
  isListOf,
  isNumber,
  isOneOf,
  isText,
  orNull,
} from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import { openFindingKey } from '../finding/catalogue.ts';
import { isCause, isCode, isSeverity } from '../finding/saved-finding.ts';
import type {
  Candidate,
  EarlierOpening,
  OwnedDifference,
  PendingDifference,
} from '../pending/pending.ts';
import type { ServiceState } from './cache.ts';
import {
  type FindingSink,
  isSame,
  type ServiceAudit,
  type ServiceDifference,
  setItems,
} from './reconcile.ts';

/** What is saved of a difference: its clock and its cause, but not what the objects show. */
type SavedDifference = ServiceDifference & {
  /** When its finding opened, which may have had other differences before; `null`: pending. */
  readonly findingOpenedAt: number | null;
};

/** What is saved of a Service. Times are Unix seconds, `null` for never. */
export interface SavedService {
  readonly wokenAt: number | null;
  readonly slicesChangedAt: number | null;
  readonly relabelled: readonly string[];
  readonly relabelledMirrors: readonly string[];
  /** By the key of the unit. */
  readonly items: Readonly<Record<string, readonly SavedDifference[]>>;
}

const timeOf = (at: number): number | null => (at === -Infinity ? null : at);

/** The clocks are up to date, so that the changes that were missed do not matter. */
const withoutMissed = <T extends ServiceDifference>(item: T): T =>
  Object.assign(item, { missed: undefined, missedCount: undefined });

/** `openedAt` has the times of open findings by their keys. The clocks must be up to date. */
export function saveService(
  { record, items }: ServiceAudit,
  openedAt: ReadonlyMap<string, number>,
): SavedService {
  const { namespace, name: service } = record;
  const save = (item: ServiceDifference): SavedDifference => {
    const { code } = item.difference;
    const key = openFindingKey({ namespace, service, node: null, code, cause: item.cause });
    const findingOpenedAt = item.openedAt === null ? null : (openedAt.get(key) ?? item.openedAt);
    const lesser = item.lesser.map((it) => withoutMissed({ ...it, lesser: [] }));
    return withoutMissed({ ...item, lesser, findingOpenedAt });
  };
  return {
    wokenAt: timeOf(record.wokenAt),
    slicesChangedAt: timeOf(record.slicesChangedAt),
    relabelled: [...record.relabelled],
    relabelledMirrors: [...record.relabelledMirrors],
    items: Object.fromEntries([...items].map(([key, unit]) => [key, unit.map(save)])),
  };
}

/** Adds what saveService wrote of a Service; false if it has another form. */
export function addSavedService(
  known: Map<Key, SavedService>,
  service: Key,
  value: unknown,
): boolean {
  const saved = readSavedService(value);
  if (saved !== null) known.set(service, saved);
  return saved !== null;
}

/** Reads what saveService wrote; `null` if it has another form. */
export const readSavedService = (value: unknown): SavedService | null =>
  isSavedService(value) ? value : null;

/** The fields that a clock is continued from. */
const clock = {
  difference: hasForms({ code: isCode }),
  severity: isSeverity,
  cause: isCause,
  operation: isOneOf(['add', 'remove', 'update']),
  since: isNumber,
  unseen: isNumber,
  causeAt: isNumber,
  lateSince: isNumber,
  shown: isFlag,
  proven: isFlag,
  byInput: isFlag,
  openedAt: orNull(isNumber),
  doubtedAt: (value: unknown) => value === undefined || isNumber(value),
  changes: isListOf(isFields),
};

const isSavedDifference = hasForms({
  ...clock,
  findingOpenedAt: orNull(isNumber),
  lesser: isListOf(hasForms(clock)),
});

const isSavedService = hasForms({
  wokenAt: orNull(isNumber),
  slicesChangedAt: orNull(isNumber),
  relabelled: isListOf(isText),
  relabelledMirrors: isListOf(isText),
  items: (value): value is SavedService['items'] =>
    isFields(value) && Object.values(value).every(isListOf(isSavedDifference)),
});

/** Continues the state of a Service that decides what hinders its controllers. */
export function restoreRecord(record: ServiceState, saved: SavedService): void {
  record.wokenAt = saved.wokenAt ?? -Infinity;
  record.slicesChangedAt = saved.slicesChangedAt ?? -Infinity;
  record.relabelled = new Set(saved.relabelled);
  record.relabelledMirrors = new Set(saved.relabelledMirrors);
}

export type Reopening = ReturnType<typeof createReopening>;

/** The differences that were open before a restart. Each opens when it is admitted. */
export function createReopening() {
  const opened = new WeakMap<PendingDifference, EarlierOpening & { readonly since: number }>();
  return {
    /** Notes when the finding of a difference, and the difference, had opened. */
    add: (item: PendingDifference, opening: EarlierOpening): unknown =>
      opened.set(item, { ...opening, since: item.since }),
    /** Returns the times of an admitted difference, and forgets them; `null` if it is new. */
    take({ item }: Candidate): EarlierOpening | null {
      const opening = opened.get(item);
      opened.delete(item);
      // If its clock was restarted, it may have ended in between.
      return opening?.since === item.since ? opening : null;
    },
  };
}

/**
 * Continues the clocks and the findings of differences that still exist. Others are new: the
 * objects of the checkpoint show them, but its audit had not found them.
 */
export function restoreDifferences(
  { settle }: FindingSink,
  restored: readonly (readonly [ServiceAudit, SavedService])[],
  at: number,
  reopening: Reopening | null = null,
): void {
  const open: (OwnedDifference & Pick<SavedDifference, 'openedAt' | 'findingOpenedAt'>)[] = [];
  for (const [audit, saved] of restored) {
    const { namespace, name: service } = audit.record;
    for (const [key, unit] of audit.items) {
      const left = [...(saved.items[key] ?? [])];
      const next = unit.map((item) => {
        // A finding that is open has a clock of its own.
        const index =
          item.openedAt === null
            ? left.findIndex((it) => isSame(it.difference, item.difference))
            : -1;
        const [known] = index < 0 ? [] : left.splice(index, 1);
        if (known === undefined) return item;
        settle.drop(item, at);
        const continued = continueItem(item, known);
        const { openedAt, findingOpenedAt } = known;
        if (openedAt === null) settle.watch(continued, namespace, service, at);
        else open.push({ item: continued, namespace, service, openedAt, findingOpenedAt });
        return continued;
      });
      setItems(audit, key, next);
    }
  }
  // In the order in which they opened, as a finding lists them.
  open.sort((a, b) => (a.openedAt ?? 0) - (b.openedAt ?? 0) || a.item.since - b.item.since);
  if (reopening !== null) {
    for (const { item, findingOpenedAt, openedAt } of open) {
      reopening.add(item, { finding: findingOpenedAt ?? at, difference: openedAt ?? at });
    }
    settle.openNow(open, at);
    return;
  }
  for (const [moment, items] of Map.groupBy(open, (it) => it.findingOpenedAt ?? at)) {
    settle.reopen(
      items.map((it) => ({ ...it, at: moment, since: it.item.since })),
      moment,
    );
    for (const { item, openedAt } of items) item.openedAt = openedAt;
  }
}

/** The difference as the objects show it, with the clock and the cause that were saved. */
function continueItem(item: ServiceDifference, known: SavedDifference): ServiceDifference {
  const { difference, output, missed = { count: 0, latest: new Map() } } = item;
  const state = { openedAt: null, gone: false, missed, missedCount: missed.count };
  return { ...known, difference, output, ...state };
}
