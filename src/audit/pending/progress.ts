// The cut: up to which version each input is known, and which inputs cannot be seen just now.
//
// Each resource comes on a stream of its own, and one may lag behind another: a pod is seen to be
// ready at version 200 while its Endpoints, written at 201, are still on their way. So a difference
// is not believed for having stood for its window. It becomes a finding when every stream that its
// output rests on has come to a version that is not older than the end of its window, or when
// reading the objects again proves it (confirm.ts). Versions of all resources are one sequence,
// since the API server numbers them by the revision of etcd; a resource that is kept in an etcd of
// its own would only make more reads.
//
// What comes on a stream a second after another stream has shown newer versions is late: in which
// order things happened was not seen, so what differed may have been well in between. So is what
// comes just after a newer version, where nothing else was shown for a second before that.
//
// An output is blind while a stream it rests on is not connected. A watch is closed and opened
// again every few minutes, so a verdict is unknown only when that lasts. What was pending before
// has seen nothing of that time, and gets it in addition.
//
// A dump and a recording have no streams: nothing of this concerns them.

import type { Resource } from '../../model/objects.ts';
import { resources } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import type { Output } from '../finding/catalogue.ts';

/**
 * Of one watch. listing: the first list is not complete. synced: the list is complete and the watch
 * established. stale: the watch is lost. relisting: so is history, and a new list is under way.
 * off: there is no watch, as it is switched off or not permitted.
 */
export type InputState = 'listing' | 'synced' | 'relisting' | 'stale' | 'off';

/** What an output is judged by. */
export const restsOn: Readonly<Record<Output, readonly Resource[]>> = {
  endpoints: ['services', 'pods', 'endpoints'],
  endpointslices: ['services', 'pods', 'nodes', 'endpointslices'],
  mirrored: ['services', 'endpoints', 'endpointslices'],
  input: resources,
  node: ['services', 'endpointslices', 'nodes'],
};

const outputs = Object.keys(restsOn) as Output[];

/** A watch that was closed and opens again within this many seconds makes nothing unknown. */
export const staleGrace = 5;

export interface Input {
  readonly state: InputState;
  /** Since when it has not been `synced`; null while it is. */
  readonly blindSince: number | null;
  /** All up to this version has been delivered; '' before anything was. */
  readonly version: string;
}

/** A time in which an output was blind, now over. */
export interface BlindSpell {
  readonly output: Output;
  readonly from: number;
  readonly to: number;
  /** Changes were missed, and not just late. */
  readonly missed: boolean;
}

export interface WatchProgress {
  /** An object of this version came on the stream of its resource; returns whether it was late. */
  observe(resource: Resource, version: string, at: number): boolean;
  /** All up to this version has come. After a list it may be older than what was there before. */
  bookmark(resource: Resource, version: string, at: number): void;
  /** What was read shows that the cluster has come to this version. */
  readonly shown: (version: string, at: number) => void;
  /** Takes in the state of a watch; returns what of blindness ends with it. */
  setState(resource: Resource, state: InputState, at: number): BlindSpell[];
  /** How many objects have come; while it stays the same, so does all that is held. */
  count(): number;
  /** Whether all that an output rests on is known up to a version, and was heard of since then. */
  hasReached(output: Output, point: string, since: number): boolean;
  isBlind(output: Output): boolean;
  /** Resources that have not been seen for at least so many seconds. */
  unseenFor(seconds: number, now: number): ReadonlySet<Resource>;
  readonly inputs: ReadonlyMap<Resource, Input>;
}

/** Seconds by which a stream may be behind another before what comes on it is late. */
const lateness = 1;

/** When which version was the newest that was known. */
interface Past {
  /** Takes note that there is such a version. */
  readonly shown: (version: string, at: number) => void;
  /**
   * Whether a version that comes now was followed by others long before; or whether any came before
   * it, and it may have been there for long by then, since nothing else was shown for a while.
   */
  isLate(version: string, at: number): boolean;
  /** Forgets all but this version. */
  restart(version: string): void;
}

interface Mark {
  version: string;
  readonly at: number;
}

const never: Mark = { version: '', at: -Infinity };

function createPast(): Past {
  let top = '';
  /** As of `lateness` ago or earlier, and those since, oldest first, a few for each second. */
  let before = never;
  let marks: Mark[] = [];
  return {
    shown(version, at) {
      const newer = newest(top, version);
      if (newer === top) return;
      top = newer;
      const last = marks.at(-1);
      // What comes soon after another counts as if it had come with it.
      if (last !== undefined && at - last.at < lateness / 4) last.version = top;
      else marks.push({ version: top, at });
    },
    isLate(version, at) {
      for (let [mark] = marks; mark !== undefined && mark.at <= at - lateness; [mark] = marks) {
        before = mark;
        marks.shift();
      }
      if (isAtLeast(before.version, version)) return true;
      const next = marks.findIndex((mark) => compareVersions(mark.version, version) === 1);
      const from = marks[next - 1] ?? before;
      return next >= 0 && from !== never && (marks[next]?.at ?? at) - from.at >= lateness;
    },
    restart(version) {
      top = version;
      before = never;
      marks = [];
    },
  };
}

/** A resource that was never known is done without; one that was known cannot be seen any more. */
const isWithout = ({ state, version }: Pick<Input, 'state' | 'version'>): boolean =>
  state === 'off' && version === '';

interface Blindness {
  readonly from: number;
  missed: boolean;
}

type BlindOutputs = Map<Output, Blindness>;

/** Begins or ends what of blindness a stream's new state brings; returns what has ended. */
function turnBlind(
  blind: BlindOutputs,
  isSeen: (output: Output) => boolean,
  { resource, state, at }: { resource: Resource; state: InputState; at: number },
): BlindSpell[] {
  const over: BlindSpell[] = [];
  for (const output of outputs) {
    if (!restsOn[output].includes(resource)) continue;
    const spell = blind.get(output);
    if (isSeen(output)) {
      if (spell !== undefined) over.push({ output, ...spell, to: at });
      blind.delete(output);
    } else if (spell === undefined) {
      blind.set(output, { from: at, missed: state === 'relisting' });
    } else if (state === 'relisting') spell.missed = true;
  }
  return over;
}

export function createWatchProgress(): WatchProgress {
  const inputs = new Map<Resource, Input & { version: string }>();
  const heard = new Map<Resource, number>();
  const blind: BlindOutputs = new Map();
  const past = createPast();
  let count = 0;

  const highest = (): string =>
    [...inputs.values()].reduce((most, { version }) => newest(most, version), '');
  const rests = (output: Output): Resource[] =>
    restsOn[output].filter((resource) => {
      const input = inputs.get(resource);
      return input !== undefined && !isWithout(input);
    });
  const set = (resource: Resource, more: Partial<Input>): void => {
    const known = inputs.get(resource) ?? { state: 'listing', blindSince: null, version: '' };
    inputs.set(resource, { ...known, ...more });
  };
  const isSeen = (output: Output): boolean =>
    rests(output).every((one) => inputs.get(one)?.state === 'synced');

  return {
    observe(resource, version, at) {
      count++;
      heard.set(resource, at);
      const input = inputs.get(resource);
      const newer = newest(input?.version ?? '', version);
      if (input !== undefined) input.version = newer;
      else if (newer !== '') set(resource, { version: newer });
      past.shown(newer, at);
      return past.isLate(version, at);
    },
    bookmark(resource, version, at) {
      count++;
      heard.set(resource, at);
      const input = inputs.get(resource);
      // The history of a cluster that was restored from a backup begins anew, at a list.
      const isList = input?.state !== 'synced';
      set(resource, { version: isList ? version : newest(input.version, version) });
      if (isList) past.restart(highest());
      past.shown(version, at);
    },
    shown: past.shown,
    setState(resource, state, at) {
      const before = inputs.get(resource);
      const seen = state === 'synced' || isWithout({ state, version: before?.version ?? '' });
      set(resource, { state, blindSince: seen ? null : (before?.blindSince ?? at) });
      return turnBlind(blind, isSeen, { resource, state, at });
    },
    count: () => count,
    hasReached: (output, point, since) =>
      rests(output).every(
        (resource) =>
          (heard.get(resource) ?? -Infinity) >= since &&
          isAtLeast(inputs.get(resource)?.version ?? '', point),
      ),
    isBlind: (output) => blind.has(output),
    unseenFor(seconds, now) {
      const unseen = new Set<Resource>();
      for (const [resource, { blindSince }] of inputs) {
        if (blindSince !== null && now - blindSince >= seconds) unseen.add(resource);
      }
      return unseen;
    },
    inputs,
  };
}
