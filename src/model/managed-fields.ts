// The field managers of an object: who owns which of its fields, by metadata.managedFields.

import { isFields } from './collections.ts';

/** One entry of metadata.managedFields. */
export interface ManagedFields {
  readonly manager: string;
  /** When the manager last changed a field, Unix seconds; `null` if the entry does not say it. */
  readonly at: number | null;
  /** Sets of fields as in fieldsV1: `{'f:metadata': {'f:labels': {'f:app': {}}}}`. */
  readonly fields: FieldSet;
}

export interface FieldSet {
  readonly [key: string]: FieldSet | undefined;
}

/** The most levels of a set. Those of Kubernetes have about ten. */
const mostLevels = 32;

/** Whether a value is a set in which each name has another one, with few levels. */
export const isFieldSet = (value: unknown, levels = mostLevels): value is FieldSet =>
  levels > 0 &&
  isFields(value) &&
  Object.values(value).every((fields) => isFieldSet(fields, levels - 1));

/** The field managers of an object, or why they are not known, for people. */
export type FieldManagers = readonly ManagedFields[] | { readonly unknown: string };
