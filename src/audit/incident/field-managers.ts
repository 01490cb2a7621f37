// Which field manager made a change, by the metadata.managedFields that were read after it.
//
// A manager owns the fields that it set last, and its entry has the time of its last change
// (sigs.k8s.io/structured-merge-diff, k8s.io/apimachinery@v0.36.3 pkg/util/managedfields). So the
// owner of a field made a change of it, unless all that it wrote is older. A change that any write
// makes has no owner: its manager is known only while nothing was written after it.

import type { FieldManagers, FieldSet, ManagedFields } from '../../model/managed-fields.ts';
import type { ObjectChange } from '../service/object-changes.ts';

export interface IncidentChange extends ObjectChange {
  /** The field manager that made it; `null` if that is not known. */
  readonly manager: string | null;
}

/** Seconds by which the clock of the API server may differ, whose times are whole seconds. */
const tolerance = 5;

/** Fields that no entry lists: any write changes them. */
const ofAnyWrite: ReadonlySet<string> = new Set(['metadata.resourceVersion', 'metadata.uid']);

/** Where fieldsV1 has a field of `ObjectChange`. */
function pathOf(field: string): string[] {
  // The ports of a Service; those of containers belong to a list of its own.
  const [name = '', ...rest] = (field === 'ports' ? 'spec.ports' : field).split(' ');
  const path = name.split('.').map((part) => `f:${part}`);
  const [key] = rest;
  if (key === undefined) return path;
  if (name === 'metadata.labels') return [...path, `f:${key}`];
  return name === 'status.conditions' ? [...path, `k:${JSON.stringify({ type: key })}`] : path;
}

const owns = ({ fields }: ManagedFields, path: readonly string[]): boolean =>
  path.reduce<FieldSet | undefined>((set, key) => set?.[key], fields) !== undefined;

/** The field manager that made a change; `null` if the entries do not show it. */
export function managerOf(
  { field, at, to }: Pick<ObjectChange, 'field' | 'at' | 'to'>,
  managers: FieldManagers | undefined,
): string | null {
  if (managers === undefined || 'unknown' in managers || to === null) return null;
  const isOf = (entry: ManagedFields) => (entry.at ?? -Infinity) >= Math.floor(at) - tolerance;
  const since = managers.filter(isOf);
  if (ofAnyWrite.has(field)) {
    // An entry has only its last time: a later writer may have made the change before that.
    const isLater = since.some((entry) => (entry.at ?? -Infinity) > at + tolerance);
    return isLater ? null : namesOf(since);
  }
  const path = pathOf(field);
  const writers = since.filter((entry) => owns(entry, path));
  const newest = Math.max(...writers.map((entry) => entry.at ?? -Infinity));
  // Two managers may have written in one second.
  return namesOf(writers.filter((entry) => entry.at === newest));
}

/** `null` without an entry. */
const namesOf = (entries: readonly ManagedFields[]): string | null =>
  [...new Set(entries.map(({ manager }) => manager))].sort().join(' or ') || null;
