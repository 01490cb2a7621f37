// What the streams still owe the auditor: every change of the fake API server that has not been
// taken in yet, from the entries that are. It says up to which moment a Service is known, whatever
// the auditor itself makes of the versions that it has seen.

import type { InputState } from '../../src/audit/pending/progress.ts';
import type { AuditorEntry } from '../../src/auditor/auditor.ts';
import type { Resource } from '../../src/model/objects.ts';
import type { Clock } from './clock.ts';
import type { Change, Truth } from './truth.ts';

export interface Owed {
  /** What has not been taken in of a Service, as far as it is of `needed`. */
  of(name: string, needed: readonly Resource[]): readonly Missing[];
  /** An entry has been taken in. */
  took(entry: AuditorEntry): void;
  /** The history of the server went back, and with it these objects. */
  restored(changes: readonly Change[]): void;
  /** Whether a list of the resource was ever complete. */
  wasListed(resource: Resource): boolean;
  /**
   * For how long, since a moment, one of these was not watched: where that took `least` seconds or
   * ended in a list.
   */
  unseenFor(needed: readonly Resource[], since: number, least: number): number;
}

/** A time in which a resource had no watch. */
interface Spell {
  readonly resource: Resource;
  readonly from: number;
  /** Infinity while it lasts. */
  to: number;
  listed: boolean;
}

/** A change that the auditor does not know yet, and when it happened. */
export interface Missing extends Change {
  readonly at: number;
}

/** Follows a server that has no objects yet. */
export function owedBy(truth: Truth, clock: Clock): Owed {
  const listed = new Set<Resource>();
  const spells: Spell[] = [];
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
  const turn = (resource: Resource, state: InputState): void => {
    const last = spells.findLast((one) => one.resource === resource && one.to === Infinity);
    if (state === 'synced') {
      if (last !== undefined) last.to = clock.now();
    } else if (last !== undefined) last.listed ||= state === 'relisting';
    else if (listed.has(resource)) {
      const missed = state === 'relisting';
      spells.push({ resource, from: clock.now(), to: Infinity, listed: missed });
    }
  };
  return {
    of: (name, needed) =>
      changes.filter((one) => needed.includes(one.resource) && one.names.includes(name)),
    took(entry) {
      if (entry.kind === 'watch') turn(entry.resource, entry.state);
      else if (entry.kind === 'synced') listed.add(entry.resource);
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
    unseenFor(needed, since, least) {
      let [until, sum] = [since, 0];
      for (const { resource, from, to, listed: missed } of spells) {
        if (!needed.includes(resource)) continue;
        const end = Math.min(to, clock.now());
        if (!missed && end - from < least) continue;
        sum += Math.max(0, end - Math.max(from, until));
        until = Math.max(until, end);
      }
      return sum;
    },
  };
}
