// The progress of the watches: up to which version each resource is known, and which watches are
// not connected.
//
// Each resource has a stream of its own, and one may lag behind another. Versions of all resources
// are one sequence, since the API server takes them from the revision of etcd.
//
// An object is late if another stream has shown a newer version, and the last older version was
// shown a second before or more. The order of events is unknown then: a difference may have ended.
// A resource with a stream per namespace is known up to the oldest of their versions. Only its
// bookmarks have that version: an event of one stream does not show what the others have.
// If a read has shown a version of an object, and the stream delivers only a later one, then an
// event was lost: a gap. What the cache showed in between was not true.
// An output is blind while a stream that it depends on is not connected. Dumps have no streams.

import { getOrInsert } from '../../model/collections.ts';
import { type AnyObject, type Key, type Resource, resources } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import type { Output } from '../finding/catalogue.ts';

/**
 * The state of one watch: the first list is not complete, the watch is established, it is lost, its
 * history is lost as well, or there is none (switched off, or not permitted).
 */
export type InputState = 'listing' | 'synced' | 'stale' | 'relisting' | 'off';

export const restsOn: Readonly<Record<Output, readonly Resource[]>> = {
  endpoints: ['services', 'pods', 'endpoints'],
  endpointslices: ['services', 'pods', 'nodes', 'endpointslices'],
  mirrored: ['services', 'endpoints', 'endpointslices'],
  input: resources,
  node: ['services', 'endpointslices', 'nodes'],
};

const outputs = Object.keys(restsOn) as Output[];

/** Seconds within which a closed watch may reconnect without making a verdict unknown. */
export const staleGrace = 5;

export interface Input {
  readonly state: InputState;
  /** Since when it has not been `synced`; `null` while it is. */
  readonly blindSince: number | null;
  /** Everything up to this version has been delivered; empty before the first delivery. */
  readonly version: string;
}

/** Seconds by which a stream may lag behind another before its objects are late. */
const lateness = 1;

const never = { version: '', at: -Infinity };

function createVersionHistory() {
  let top = '';
  /** The newest version `lateness` ago, and the later ones, oldest first, a few per second. */
  let marks = [never];
  return {
    newest: (): string => top,
    /** Notes that the cluster has reached a version. */
    shown: (version: string, at: number): void => {
      const newer = newest(top, version);
      if (newer === top) return;
      top = newer;
      const last = marks.at(-1);
      // Versions in quick succession share a mark.
      if (last !== undefined && at - last.at < lateness / 4) last.version = top;
      else marks.push({ version: top, at });
    },
    isLate(version: string, at: number): boolean {
      while ((marks[1]?.at ?? Infinity) <= at - lateness) marks.shift();
      const before = marks[0] ?? never;
      if (isAtLeast(before.version, version)) return true;
      if (version === top) return false;
      const next = marks.findIndex((mark) => compareVersions(mark.version, version) === 1);
      const from = marks[next - 1] ?? never;
      return from !== never && at - from.at >= lateness;
    },
    /** The versions of a cluster that was restored from a backup start again. */
    lower(version: string): void {
      if (compareVersions(version, top) !== -1) return;
      top = version;
      marks = [never];
    },
  };
}

function createBlindOutputs(isSeen: (output: Output) => boolean) {
  /** `missed`: changes were missed, and not just delayed. */
  const blind = new Map<Output, { readonly from: number; missed: boolean }>();
  return {
    isBlind: (output: Output): boolean => blind.has(output),
    /** Starts or ends the blindness of the outputs that depend on a stream; returns what ended. */
    update(resource: Resource, state: InputState, at: number) {
      const over: { output: Output; from: number; to: number; missed: boolean }[] = [];
      for (const output of outputs.filter((name) => restsOn[name].includes(resource))) {
        const spell = blind.get(output);
        if (isSeen(output)) {
          if (spell !== undefined) over.push({ output, ...spell, to: at });
          blind.delete(output);
        } else if (spell === undefined) {
          blind.set(output, { from: at, missed: state === 'relisting' });
        } else if (state === 'relisting') spell.missed = true;
      }
      return over;
    },
  };
}

type Versioned = Pick<AnyObject, 'key' | 'resourceVersion'>;

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
function createLacks() {
  const lacks = new Map<Resource, Map<Key, Lack>>();
  let noted = 0;
  return {
    of: (resource: Resource): Iterable<Lack> => lacks.get(resource)?.values() ?? [],
    /** How many were noted so far: the lacks are unchanged while it and the cache are. */
    noted: (): number => noted,
    /** Notes that the cache lacks a version; returns since when it has lacked one. */
    note: (resource: Resource, key: Key, shown: Shown): number => {
      const known = getOrInsert(lacks, resource, () => new Map<Key, Lack>());
      if (known.size > mostLacks) known.clear();
      const { first, last } = known.get(key) ?? { first: shown, last: null };
      const isNewer = last === null || compareVersions(shown.version, last.version) === 1;
      // The deletion may be that of an object which the stream still owes.
      if (last === null || (isNewer && !shown.isDeletion)) {
        known.set(key, { first, last: shown });
        noted++;
      }
      return first.at;
    },
    /** Ends the lack of an object; returns whether a later version than the lacked one arrived. */
    end(resource: Resource, key: Key, version: string, at: number): boolean {
      const known = lacks.get(resource);
      const lack = known?.get(key);
      if (known === undefined || lack === undefined) return false;
      const order = compareVersions(version, lack.first.version);
      // The stream delivers, but has not come that far.
      const isEarlier = order === -1 && !lack.first.isDeletion;
      const isOver = !isEarlier && compareVersions(version, lack.last.version) !== -1;
      const first = { ...(isEarlier ? lack.first : lack.last), at };
      if (isOver || lack.last.isDeletion) known.delete(key);
      else known.set(key, { first, last: lack.last });
      return order === 1;
    },
    clear: (resource: Resource): void => void lacks.delete(resource),
  };
}

/** Objects that the cache lacks, per resource. */
const mostLacks = 10_000;

/** Seconds after which a stream has lost what it did not deliver. */
export const undelivered = 120;

function unseenIn(
  inputs: ReadonlyMap<Resource, Input>,
  seconds: number,
  now: number,
): ReadonlySet<Resource> {
  const unseen = [...inputs].filter(([, it]) => now - (it.blindSince ?? Infinity) >= seconds);
  return new Set(unseen.map(([resource]) => resource));
}

/**
 * Whether a stream that an output depends on still owes what a read of any Service has shown. What
 * it owes may also end a difference that the next read shows again. What it has owed for long, it
 * has lost (confirm.ts).
 */
function createBehind(
  inputs: ReadonlyMap<Resource, Input>,
  lacks: ReturnType<typeof createLacks>,
  count: () => number,
) {
  const behind = new Map<Resource, { readonly moment: string; readonly is: boolean }>();
  const owes = (resource: Resource, now: number): boolean => {
    const moment = `${count()} ${lacks.noted()} ${Math.floor(now)}`;
    const known = behind.get(resource);
    if (known?.moment === moment) return known.is;
    const { version = '' } = inputs.get(resource) ?? {};
    const isOwed = ({ last }: Lack): boolean =>
      now - last.at < undelivered && compareVersions(version, last.version) === -1;
    const is = [...lacks.of(resource)].some(isOwed);
    behind.set(resource, { moment, is });
    return is;
  };
  return (output: Output, now: number): boolean =>
    restsOn[output].some((resource) => owes(resource, now));
}

const hasReachedIn =
  (observedAt: ReadonlyMap<Resource, number>, version: string, since: number) =>
  (input: Input, resource: Resource): boolean =>
    (observedAt.get(resource) ?? -Infinity) >= since && isAtLeast(input.version, version);

const laggingIn = (
  inputs: ReadonlyMap<Resource, Input>,
  lacks: ReturnType<typeof createLacks>,
  since: number,
): Resource[] =>
  [...inputs].flatMap(([resource, { state, version }]) => {
    const isLacked = [...lacks.of(resource)].some(
      ({ first }) => first.at <= since && compareVersions(first.version, version) === 1,
    );
    return state === 'synced' && isLacked ? [resource] : [];
  });

/** Whether a resource was never known; one that was known is blind instead. */
const isAbsent = ({ state, version }: Pick<Input, 'state' | 'version'>): boolean =>
  state === 'off' && version === '';

export type WatchProgress = ReturnType<typeof createWatchProgress>;

/** `merged` are the resources with a stream per namespace. */
export function createWatchProgress(merged: readonly Resource[] = []) {
  const inputs = new Map<Resource, Input & { version: string }>();
  const observedAt = new Map<Resource, number>();
  const [past, lacks] = [createVersionHistory(), createLacks()];
  let count = 0;
  const set = (resource: Resource, extra: Partial<Input>): void => {
    const known = inputs.get(resource) ?? { state: 'listing', blindSince: null, version: '' };
    inputs.set(resource, { ...known, ...extra });
  };
  /** Whether all present resources that an output depends on fulfil a condition. */
  const every = (output: Output, test: (input: Input, resource: Resource) => boolean): boolean =>
    restsOn[output].every((resource) => {
      const input = inputs.get(resource);
      return input === undefined || isAbsent(input) || test(input, resource);
    });
  const isBehind = createBehind(inputs, lacks, () => count);
  const blind = createBlindOutputs((output) => every(output, ({ state }) => state === 'synced'));
  return {
    inputs: inputs as ReadonlyMap<Resource, Input>,
    /** Notes an object on its stream. `gap`: an event before it was lost; `late`: as above. */
    observe(resource: Resource, { key, resourceVersion: version }: Versioned, at: number) {
      count++;
      observedAt.set(resource, at);
      const input = inputs.get(resource);
      const newer = newest(input?.version ?? '', version);
      const isAlone = !merged.includes(resource);
      if (isAlone && input !== undefined) input.version = newer;
      else if (isAlone && newer !== '') set(resource, { version: newer });
      past.shown(newer, at);
      if (lacks.end(resource, key, version, at)) return 'gap';
      return past.isLate(version, at) ? 'late' : null;
    },
    lack: lacks.note,
    /** Notes that all versions up to this one have arrived. A list may be older than the cache. */
    bookmark(resource: Resource, version: string, at: number): void {
      count++;
      observedAt.set(resource, at);
      const input = inputs.get(resource);
      const isList = input?.state !== 'synced';
      set(resource, { version: isList ? version : newest(input.version, version) });
      if (isList) lacks.clear(resource);
      const seen = [...inputs.values()].filter(({ state }) => state !== 'off');
      if (isList) past.lower(seen.map((it) => it.version).reduce(newest, version));
      past.shown(version, at);
    },
    shown: past.shown,
    /** The newest version that the cluster is known to have reached; empty if there is none. */
    newest: past.newest,
    /** Sets the state of a watch; returns the spells of blindness that end with it. */
    setState(resource: Resource, state: InputState, at: number) {
      const before = inputs.get(resource);
      const isConnected = state === 'synced' || isAbsent({ state, version: before?.version ?? '' });
      set(resource, { state, blindSince: isConnected ? null : (before?.blindSince ?? at) });
      // Recordings show no versions, but the resource is known now.
      if (state === 'synced' && (before?.version ?? '') === '') set(resource, { version: '0' });
      return blind.update(resource, state, at);
    },
    /** The number of observed objects: the cache is unchanged while it is. */
    count: (): number => count,
    /** Whether all that an output depends on has reached a version, and was observed since then. */
    hasReached: (output: Output, version: string, since: number): boolean =>
      every(output, hasReachedIn(observedAt, version, since)),
    isBlind: blind.isBlind,
    isBehind,
    /** Resources whose watch was not connected, or was and lacks a version, for some seconds. */
    unseenFor: (seconds: number, now: number) => unseenIn(inputs, seconds, now),
    lagging: (seconds: number, now: number) => laggingIn(inputs, lacks, now - seconds),
  };
}
