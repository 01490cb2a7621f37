// The progress of the watches: up to which version each resource is known, and which watches are
// not connected.
//
// Each resource has a stream of its own, and one may lag behind another. Versions of all resources
// are one sequence, since the API server takes them from the revision of etcd.
//
// An object is late if another stream has shown a newer version, and the last older version was
// shown a second before or more, or if a bookmark of its own stream had claimed that it was here.
// The order of events is unknown then: a difference may have ended.
// A resource with a stream per namespace is known up to the oldest of their versions. Only its
// bookmarks have that version: an event of one stream does not show what the others have.
// If a read has shown a version of an object, and the stream delivers only a later one, then an
// event was lost: a gap. What the cache showed in between was not true.
// An output is blind while a stream that it depends on is not connected. Dumps have no streams.

import { type AnyObject, type Change, type Resource, resources } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import type { Output } from '../finding/catalogue.ts';
import { createLacks } from './lacks.ts';

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

/** A version that something has shown: a stream, or `null` for a read or several. */
interface Mark {
  version: string;
  readonly at: number;
  source: Resource | null;
}

const never: Mark = { version: '', at: -Infinity, source: null };

function createVersionHistory() {
  let top = '';
  /** The newest version `lateness` ago, and the later ones, oldest first, a few per second. */
  let marks = [never];
  return {
    newest: (): string => top,
    /** Notes that the cluster has reached a version. */
    shown: (version: string, at: number, source: Resource | null = null): void => {
      const newer = newest(top, version);
      if (newer === top) return;
      top = newer;
      const last = marks.at(-1);
      // Versions in quick succession share a mark.
      if (last === undefined || at - last.at >= lateness / 4) {
        marks.push({ version: top, at, source });
      } else {
        last.version = top;
        if (last.source !== source) last.source = null;
      }
    },
    isLate(version: string, at: number, source: Resource): boolean {
      while ((marks[1]?.at ?? Infinity) <= at - lateness) marks.shift();
      const before = marks[0] ?? never;
      if (isAtLeast(before.version, version)) return true;
      if (version === top) return false;
      const next = marks.findIndex((mark) => isAtLeast(mark.version, version));
      // What its own stream has just shown is no sign of when this version was written.
      const isKnown = (mark: Mark) => mark.source !== source || mark.at <= at - lateness;
      const from = marks.slice(0, Math.max(next, 0)).findLast(isKnown) ?? never;
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

function createBlindOutputs(isSynced: (output: Output) => boolean) {
  let isClockWrong = false;
  const isSeen = (output: Output): boolean => !isClockWrong && isSynced(output);
  /** `missed`: changes were missed, and not just delayed. */
  const blind = new Map<Output, { readonly from: number; missed: boolean }>();
  return {
    isBlind: (output: Output): boolean => blind.has(output),
    /** Starts or ends the blindness of the outputs that depend on a stream; returns what ended. */
    update(resource: Resource, state: InputState, at: number) {
      const depending = outputs.filter((name) => restsOn[name].includes(resource));
      return updateOf(depending, state === 'relisting', at);
    },
    isClockWrong: () => isClockWrong,
    /** While the clock is wrong, every output is blind; returns the spells that end with it. */
    setClock(isWrong: boolean, at: number) {
      isClockWrong = isWrong;
      return updateOf(outputs, isWrong, at);
    },
  };
  function updateOf(changed: readonly Output[], isMissed: boolean, at: number) {
    const over: OverSpell[] = [];
    for (const output of changed) {
      const spell = blind.get(output);
      if (isSeen(output)) {
        if (spell !== undefined) addSpell(over, output, { ...spell, to: at });
        blind.delete(output);
      } else if (spell === undefined) blind.set(output, { from: at, missed: isMissed });
      else if (isMissed) spell.missed = true;
    }
    return over;
  }
}

/** A time in which outputs were blind; `missed`: changes were missed, and not just delayed. */
interface OverSpell {
  readonly outputs: Set<Output>;
  readonly from: number;
  readonly to: number;
  readonly missed: boolean;
}

/** Outputs with one spell are together, since thousands of windows may follow from it. */
function addSpell(all: OverSpell[], output: Output, spell: Omit<OverSpell, 'outputs'>): void {
  const same = all.find(({ from, missed }) => from === spell.from && missed === spell.missed);
  if (same === undefined) all.push({ outputs: new Set([output]), ...spell });
  else same.outputs.add(output);
}

type Versioned = Pick<AnyObject, 'key' | 'resourceVersion'>;

function interruptedIn(
  inputs: ReadonlyMap<Resource, Input>,
  seconds: number,
  now: number,
): ReadonlySet<Resource> {
  const unseen = [...inputs].filter(([, it]) => now - (it.blindSince ?? Infinity) >= seconds);
  return new Set(unseen.map(([resource]) => resource));
}

const newestOf = (inputs: Iterable<Input>, version: string): string =>
  [...inputs].flatMap((it) => (it.state === 'off' ? [] : it.version)).reduce(newest, version);

/** Whether a resource was never known; one that was known is blind instead. */
const isAbsent = ({ state, version }: Pick<Input, 'state' | 'version'>): boolean =>
  state === 'off' && version === '';

interface ClaimedInput extends Input {
  version: string;
  /** The version up to which a bookmark claims that all has arrived. */
  readonly claimed: string;
  /** When it went on at the version at which it was lost. */
  readonly backAt: number;
}

function createInputs(merged: readonly Resource[]) {
  const inputs = new Map<Resource, ClaimedInput>();
  const unset = { blindSince: null, version: '', claimed: '', backAt: -Infinity };
  const before: ClaimedInput = { state: 'listing', ...unset };
  const set = (resource: Resource, extra: Partial<ClaimedInput>): void => {
    inputs.set(resource, { ...(inputs.get(resource) ?? before), ...extra });
  };
  return {
    inputs,
    set,
    enter: (resource: Resource, state: InputState, at: number): void => {
      const { state: last, version, blindSince, backAt } = inputs.get(resource) ?? before;
      const isConnected = state === 'synced' || isAbsent({ state, version });
      const isBack = state === 'synced' && last === 'stale';
      const since = isConnected ? null : (blindSince ?? at);
      set(resource, { state, blindSince: since, backAt: isBack ? at : backAt });
      // Recordings show no versions, but the resource is known now.
      if (state === 'synced' && version === '') set(resource, { version: '0' });
    },
    /** A change that arrives just after its watch was back has that time. */
    delayed: <C extends Pick<Change, 'resource' | 'at'>>(change: C): C => {
      const { backAt = -Infinity } = inputs.get(change.resource) ?? {};
      return change.at - backAt <= staleGrace ? { ...change, backAt } : change;
    },
    /** An object has arrived; returns the newest version that its stream has shown. */
    reach: (resource: Resource, version: string): string => {
      const input = inputs.get(resource);
      const newer = newest(input?.version ?? '', version);
      const isAlone = !merged.includes(resource);
      if (isAlone && input !== undefined) input.version = newer;
      else if (isAlone && newer !== '') set(resource, { version: newer });
      return newer;
    },
    /** Whether a bookmark came before the event that it covers. A list has objects of any age. */
    isClaimed: (resource: Resource, version: string): boolean => {
      const input = inputs.get(resource);
      return input?.state === 'synced' && isAtLeast(input.claimed, version);
    },
    /** Whether all present resources that an output depends on fulfil a condition. */
    every: (output: Output, test: (input: Input, resource: Resource) => boolean): boolean =>
      restsOn[output].every((resource) => {
        const input = inputs.get(resource);
        return input === undefined || isAbsent(input) || test(input, resource);
      }),
  };
}

export type WatchProgress = ReturnType<typeof createWatchProgress>;

/** `merged` are the resources with a stream per namespace. */
export function createWatchProgress(merged: readonly Resource[] = []) {
  const { inputs, set, enter, delayed, reach, isClaimed, every } = createInputs(merged);
  const observedAt = new Map<Resource, number>();
  const [past, lacks] = [createVersionHistory(), createLacks()];
  let count = 0;
  const blind = createBlindOutputs((output) => every(output, ({ state }) => state === 'synced'));
  return {
    inputs: inputs as ReadonlyMap<Resource, Input>,
    /** Notes an object on its stream. `gap`: an event before it was lost; `late`: as above. */
    observe(resource: Resource, { key, resourceVersion: version }: Versioned, at: number) {
      observedAt.set(resource, at);
      count++;
      past.shown(reach(resource, version), at, resource);
      if (lacks.end(resource, key, version, at)) return 'gap';
      return isClaimed(resource, version) || past.isLate(version, at, resource) ? 'late' : null;
    },
    lack: lacks.note,
    /** When the latest list of a resource was complete. */
    listedAt: lacks.clearedAt,
    /** Notes that all versions up to this one have arrived. A list may be older than the cache. */
    bookmark(resource: Resource, version: string, at: number): void {
      count++;
      observedAt.set(resource, at);
      const input = inputs.get(resource);
      const isList = input?.state !== 'synced';
      const claimed = isList ? version : newest(input.version, version);
      set(resource, { version: claimed, claimed });
      if (isList) lacks.clear(resource, at);
      if (isList) past.lower(newestOf(inputs.values(), version));
      past.shown(version, at, resource);
    },
    shown: (version: string, at: number) => past.shown(version, at),
    /** The newest version that the cluster is known to have reached; empty if there is none. */
    newest: past.newest,
    /** Sets the state of a watch; returns the spells of blindness that end with it. */
    setState(resource: Resource, state: InputState, at: number) {
      enter(resource, state, at);
      return blind.update(resource, state, at);
    },
    delayed,
    /** The number of observed objects: the cache is unchanged while it is. */
    count: (): number => count,
    /** Whether all that an output depends on has reached a version, and was observed since then. */
    hasReached: (output: Output, version: string, since: number): boolean =>
      every(
        output,
        (input, resource) =>
          (observedAt.get(resource) ?? -Infinity) >= since && isAtLeast(input.version, version),
      ),
    isBlind: blind.isBlind,
    /**
     * Whether a stream that an output depends on still owes what a read of any Service has shown.
     * What it owes may also end a difference that the next read shows again.
     */
    isBehind: (output: Output, now: number): boolean =>
      !every(output, ({ version }, resource) => !lacks.isBehind(resource, version, now)),
    /** Resources without a connected watch for some seconds; unseen: all at a wrong clock. */
    interruptedFor: (seconds: number, now: number) => interruptedIn(inputs, seconds, now),
    unseenFor: (seconds: number, now: number): ReadonlySet<Resource> =>
      blind.isClockWrong() ? new Set(inputs.keys()) : interruptedIn(inputs, seconds, now),
    setClock: (isWrong: boolean, at: number) => blind.setClock(isWrong, at),
    /** Connected resources that have lacked for at least this long what a read has shown. */
    lagging: (seconds: number, now: number): readonly Resource[] =>
      [...inputs].flatMap(([resource, { state, version }]) =>
        state === 'synced' && lacks.hasOwed(resource, version, now - seconds) ? [resource] : [],
      ),
  };
}
