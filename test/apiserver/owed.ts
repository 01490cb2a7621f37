// What the streams still owe the auditor: every change of the fake API server that has not been
// taken in yet, from the entries that are. It says up to which moment a Service is known, whatever
// the auditor itself makes of the versions that it has seen.

import type { Resource } from '../../src/model/objects.ts';
import type { Entry } from '../../src/serve.ts';
import type { Clock } from './clock.ts';
import type { Change, Truth } from './truth.ts';

export interface Owed {
  /** All that happened to a Service before this moment is known, as far as it is of `needed`. */
  knownUntil(name: string, needed: readonly Resource[]): number;
  /** An entry has been taken in. */
  took(entry: Entry): void;
  /** The history of the server went back, and with it these objects. */
  restored(changes: readonly Change[]): void;
  /** Whether a list of the resource was ever complete. */
  wasListed(resource: Resource): boolean;
}

interface Missing extends Change {
  readonly at: number;
}

/** Follows a server that has no objects yet. */
export function owedBy(truth: Truth, clock: Clock): Owed {
  const listed = new Set<Resource>();
  let changes: Missing[] = [];
  truth.onChange(({ resource, key, version }, _before, concerned) => {
    changes.push({ resource, key, version, names: concerned, at: clock.now() });
  });
  const settle = (resource: Resource, key: string | null, version: number): void => {
    changes = changes.filter(
      (one) =>
        one.resource !== resource || one.version > version || (key !== null && one.key !== key),
    );
  };
  return {
    knownUntil(name, needed) {
      const own = changes.filter(
        (one) => needed.includes(one.resource) && one.names.includes(name),
      );
      return own.reduce((least, { at }) => Math.min(least, at), clock.now());
    },
    took(entry) {
      if (entry.kind === 'synced') listed.add(entry.resource);
      else if (entry.kind === 'progress') {
        settle(entry.resource, null, Number(entry.resourceVersion));
      } else if (entry.kind === 'event') {
        const { resource, object } = entry.event;
        settle(resource, object.key, Number(object.resourceVersion));
      }
    },
    restored(others) {
      changes = others.map((one) => ({ ...one, at: clock.now() }));
    },
    wasListed: (resource) => listed.has(resource),
  };
}
