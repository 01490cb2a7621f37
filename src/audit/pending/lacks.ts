// What the streams owe: versions of objects that a read has shown and a watch has not delivered.

import { getOrInsert } from '../../model/collections.ts';
import type { Key, Resource } from '../../model/objects.ts';
import { compareVersions } from '../../model/resource-version.ts';

/** Objects that the cache lacks, per resource. */
const mostLacks = 10_000;

/** Seconds after which a stream has lost what it did not deliver. */
export const undelivered = 120;

interface Shown {
  readonly version: string;
  readonly at: number;
  /** Whether the read did not have the object: its deletion has a version of at most `version`. */
  readonly isDeletion: boolean;
}

/** What the cache lacks of an object: what a read has shown first, and last. */
interface Lack {
  readonly first: Shown;
  readonly last: Shown;
}

/** Objects that the cache lacks in a version that a read has shown, and since when. */
export function createLacks() {
  const lacks = new Map<Resource, Map<Key, Lack>>();
  const clearedAt = new Map<Resource, number>();
  /** Without a copy: there may be thousands, and each tick asks. */
  const hasLack = (resource: Resource, test: (lack: Lack) => boolean): boolean => {
    for (const lack of lacks.get(resource)?.values() ?? []) if (test(lack)) return true;
    return false;
  };
  const answers = new Map<Resource, { readonly question: string; readonly is: boolean }>();
  return {
    /**
     * Whether a stream at a version owes what a read has shown; after two minutes it has lost it.
     * It has also lost what it claims to have delivered and the cache lacks, maybe with others.
     */
    isBehind(resource: Resource, version: string, now: number): boolean {
      const question = `${version} ${Math.floor(now)}`;
      const known = answers.get(resource);
      if (known?.question === question) return known.is;
      const isOwed = ({ last }: Lack): boolean =>
        now - last.at < undelivered &&
        (!last.isDeletion || compareVersions(version, last.version) === -1);
      const is = hasLack(resource, isOwed);
      answers.set(resource, { question, is });
      return is;
    },
    /** Whether a stream at a version owes something that a read had shown by a moment. */
    hasOwed: (resource: Resource, version: string, by: number): boolean =>
      hasLack(
        resource,
        ({ first }) => first.at <= by && compareVersions(first.version, version) === 1,
      ),
    /** Notes that the cache lacks a version; returns since when it has lacked one. */
    note: (resource: Resource, key: Key, shown: Shown): number => {
      const known = getOrInsert(lacks, resource, () => new Map<Key, Lack>());
      if (known.size > mostLacks) known.clear();
      const { first, last } = known.get(key) ?? { first: shown, last: null };
      const isNewer = last === null || compareVersions(shown.version, last.version) === 1;
      // The deletion may be that of an object which the stream still owes.
      if (last === null || (isNewer && !shown.isDeletion)) {
        known.set(key, { first, last: shown });
        answers.delete(resource);
      }
      return first.at;
    },
    /** Ends the lack of an object; returns whether a later version than the lacked one arrived. */
    end(resource: Resource, key: Key, version: string, at: number): boolean {
      const known = lacks.get(resource);
      const lack = known?.get(key);
      if (known === undefined || lack === undefined) return false;
      answers.delete(resource);
      const order = compareVersions(version, lack.first.version);
      // The stream delivers, but has not come that far.
      const isEarlier = order === -1 && !lack.first.isDeletion;
      const isOver = !isEarlier && compareVersions(version, lack.last.version) !== -1;
      const first = { ...(isEarlier ? lack.first : lack.last), at };
      if (isOver || lack.last.isDeletion) known.delete(key);
      else known.set(key, { first, last: lack.last });
      return order === 1;
    },
    clearedAt: (resource: Resource): number => clearedAt.get(resource) ?? -Infinity,
    clear(resource: Resource, at: number): void {
      clearedAt.set(resource, at);
      lacks.delete(resource);
      answers.delete(resource);
    },
  };
}
