// The progress of the watches: up to which version each resource is known, and which watches are
// not connected.
//
// Each resource has a stream of its own, and one may lag behind another: a pod becomes ready at
// version 200 while its Endpoints, written at 201, have not arrived. So the end of its window alone
// does not open a difference. Every stream that its output depends on must have reached a version
// that is not older than that end, or a new read must prove it (confirm.ts). Versions of all
// resources are one sequence, since the API server takes them from the revision of etcd.
//
// An object that arrives a second after another stream has shown newer versions is late: the order
// of events is not known, so a difference may have ended in between. The same is true just after a
// newer version, if no version was shown for a second before. The store drops repeated and older
// versions of an object; this file only compares streams.
//
// An output is blind while a stream that it depends on is not connected. Watches end and reconnect
// every few minutes, so a verdict becomes unknown only if that lasts. The windows of pending
// differences become longer by that time. Dumps and recordings have no streams.

import type { Resource } from '../../model/objects.ts';
import { resources } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import type { Output } from '../finding/catalogue.ts';

/**
 * The state of one watch.
 *
 * - listing: the first list is not complete
 * - synced: the list is complete and the watch is established
 * - stale: the watch is lost
 * - relisting: its history is lost as well, and a new list is in progress
 * - off: there is no watch, because it is switched off or not permitted
 */
export type InputState = 'listing' | 'synced' | 'relisting' | 'stale' | 'off';

/** The resources that each output depends on. */
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

/** A time, now over, in which an output was blind. */
export interface BlindSpell {
  readonly output: Output;
  readonly from: number;
  readonly to: number;
  /** Whether changes were missed, and not just delayed. */
  readonly missed: boolean;
}

export interface WatchProgress {
  /** Notes an object on the stream of its resource; returns whether it was late. */
  observe(resource: Resource, version: string, at: number): boolean;
  /** Notes that everything up to a version has arrived. A list may be older than what was known. */
  bookmark(resource: Resource, version: string, at: number): void;
  /** Notes that a read has shown that the cluster has reached a version. */
  shown(version: string, at: number): void;
  /** Sets the state of a watch; returns the spells of blindness that end with it. */
  setState(resource: Resource, state: InputState, at: number): BlindSpell[];
  /** The number of observed objects: the cache is unchanged while it is. */
  count(): number;
  /** Whether all that an output depends on has reached a version, and was observed since then. */
  hasReached(output: Output, version: string, since: number): boolean;
  isBlind(output: Output): boolean;
  /** Resources whose watch has not been connected for at least this number of seconds. */
  unseenFor(seconds: number, now: number): ReadonlySet<Resource>;
  readonly inputs: ReadonlyMap<Resource, Input>;
}

/** Seconds by which a stream may lag behind another before its objects are late. */
const lateness = 1;

/** The newest version that was known at which time. */
interface VersionHistory {
  /** Notes that a version exists. */
  shown(version: string, at: number): void;
  isLate(version: string, at: number): boolean;
  /** Forgets all versions except this one. */
  restart(version: string): void;
}

interface Mark {
  version: string;
  readonly at: number;
}

const never: Mark = { version: '', at: -Infinity };

function createVersionHistory(): VersionHistory {
  let top = '';
  /** The newest version `lateness` ago, and the later ones, oldest first, a few per second. */
  let before = never;
  let marks: Mark[] = [];
  return {
    shown(version, at) {
      const newer = newest(top, version);
      if (newer === top) return;
      top = newer;
      const last = marks.at(-1);
      // Versions in quick succession share a mark.
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

/** Whether a resource was never known. One that was known before is blind instead. */
const isAbsent = ({ state, version }: Pick<Input, 'state' | 'version'>): boolean =>
  state === 'off' && version === '';

type BlindOutputs = Map<Output, { readonly from: number; missed: boolean }>;

/** Starts or ends the blindness of the outputs that depend on a stream; returns what has ended. */
function updateBlind(
  blind: BlindOutputs,
  isSeen: (output: Output) => boolean,
  { resource, state, at }: { resource: Resource; state: InputState; at: number },
): BlindSpell[] {
  const over: BlindSpell[] = [];
  for (const output of outputs.filter((output) => restsOn[output].includes(resource))) {
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
  const observedAt = new Map<Resource, number>();
  const blind: BlindOutputs = new Map();
  const past = createVersionHistory();
  let count = 0;

  const highest = (): string =>
    [...inputs.values()].reduce((most, { version }) => newest(most, version), '');
  const rests = (output: Output): Resource[] =>
    restsOn[output].filter((resource) => {
      const input = inputs.get(resource);
      return input !== undefined && !isAbsent(input);
    });
  const set = (resource: Resource, extra: Partial<Input>): void => {
    const known = inputs.get(resource) ?? { state: 'listing', blindSince: null, version: '' };
    inputs.set(resource, { ...known, ...extra });
  };
  const isSeen = (output: Output): boolean =>
    rests(output).every((resource) => inputs.get(resource)?.state === 'synced');

  return {
    observe(resource, version, at) {
      count++;
      observedAt.set(resource, at);
      const input = inputs.get(resource);
      const newer = newest(input?.version ?? '', version);
      if (input !== undefined) input.version = newer;
      else if (newer !== '') set(resource, { version: newer });
      past.shown(newer, at);
      return past.isLate(version, at);
    },
    bookmark(resource, version, at) {
      count++;
      observedAt.set(resource, at);
      const input = inputs.get(resource);
      // The versions of a cluster that was restored from a backup start again, with a list.
      const isList = input?.state !== 'synced';
      set(resource, { version: isList ? version : newest(input.version, version) });
      if (isList) past.restart(highest());
      past.shown(version, at);
    },
    shown: (version, at) => {
      past.shown(version, at);
    },
    setState(resource, state, at) {
      const before = inputs.get(resource);
      const isConnected = state === 'synced' || isAbsent({ state, version: before?.version ?? '' });
      set(resource, { state, blindSince: isConnected ? null : (before?.blindSince ?? at) });
      return updateBlind(blind, isSeen, { resource, state, at });
    },
    count: () => count,
    hasReached: (output, version, since) =>
      rests(output).every(
        (resource) =>
          (observedAt.get(resource) ?? -Infinity) >= since &&
          isAtLeast(inputs.get(resource)?.version ?? '', version),
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
