// The history of a live auditor: its entries become lines, and its state becomes checkpoints.

import { hash } from 'node:crypto';

import type { Finding } from '../audit/finding/catalogue.ts';
import type { Auditor, AuditorEntry } from '../auditor/auditor.ts';
import { type AnyOutput, type Delta, deltaOf } from '../cluster/files/delta.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import type { Key, OutputResource, UnreadableObject, WatchEvent } from '../model/objects.ts';
import { isOutput, outputResources, resources } from '../model/objects.ts';
import { isInNamespaces, isInScope } from '../model/scope.ts';
import { checkpointOf, nodeLine } from './checkpoint.ts';
import type { HistoryFiles } from './files.ts';
import { createNotes, findingNote } from './notes.ts';
import { createHistoryRecorder } from './recorder.ts';
import type { HistoryLimits } from './segments.ts';

export interface AuditorHistoryOptions {
  readonly files: HistoryFiles;
  readonly limits: HistoryLimits;
  /** Unix seconds; never decreases. */
  readonly now: () => number;
  readonly pause: () => Promise<void>;
  readonly onTrouble: (reason: string | null) => void;
}

export type AuditorHistory = ReturnType<typeof createAuditorHistory>;

/** Records what the auditor takes in, from the start of its audit on. */
export function createAuditorHistory(auditor: Auditor, options: AuditorHistoryOptions) {
  const lines = createRecorder(null, resources);
  const notes = createNotes(auditor);
  const now = (): number => lines.timeOf(options.now());
  const recorder = createHistoryRecorder({
    ...options,
    checkpoint() {
      // The checkpoint would have a part of what an entry changes, and the entry would follow it.
      if (auditor.isTaking()) return null;
      bases.reset();
      return checkpointOf(auditor, now());
    },
    openNote: () => notes.open(now(), options.limits.size),
    clock() {
      const at = now();
      return { line: `${JSON.stringify({ kind: 'clock', at })}\n`, at };
    },
  });
  const bases = createBases(auditor);
  const lineOf = (entry: RecordedEntry): string => {
    if (entry.kind === 'unreadable') bases.forget(entry.lost);
    if (entry.kind !== 'event') return lines.line(entry);
    const { resource } = entry.event;
    const delta = isOutput(resource) ? bases.follow(resource, entry.event) : null;
    if (delta === null) return lines.line(entry);
    const { object: raw, ...fields } = delta;
    return lines.line({ kind: 'event', event: { ...entry.event, raw } }, fields);
  };
  const nodes = createNodeLines(auditor);
  /** Records what the rules of a node show now, if that has changed. */
  const noteNode = (node: string, at: number): void => {
    const line = nodes.changed(node, lines.timeOf(at));
    if (line !== null) recorder.note(() => line, lines.timeOf(at));
  };
  /** Before the audit begins, nothing is known. */
  const review = (): void => {
    if (auditor.serviceAuditor() === null) return;
    const at = options.now();
    for (const note of notes.review(at)) recorder.remark(note, at);
  };
  return {
    ...recorder,
    async work(): Promise<void> {
      review();
      await recorder.work();
    },
    async close(): Promise<void> {
      review();
      await recorder.close();
    },
    /** Notes a finding that has opened or is resolved. */
    noteFinding(finding: Finding): void {
      const { openedAt, resolvedAt } = finding;
      const at = resolvedAt ?? openedAt;
      recorder.remark(findingNote(resolvedAt === null ? 'opened' : 'resolved', finding, at), at);
      if (finding.node !== null && resolvedAt === null) noteNode(finding.node, at);
    },
    /** Takes an entry that the auditor has taken in. */
    take(entry: AuditorEntry): void {
      if ('node' in entry) noteNode(entry.node, 'at' in entry ? entry.at : options.now());
      if (!isRecorded(auditor, entry)) return;
      const at = lines.timeOf(entry.kind === 'event' ? entry.event.at : entry.at);
      recorder.note(() => lineOf(entry), at);
    },
  };
}

/**
 * The versions of Endpoints and slices that the history has. They are objects of the store, in
 * which versions share equal endpoints.
 */
function createBases({ store }: Auditor) {
  const bases = {
    endpoints: new Map<Key, AnyOutput>(),
    endpointslices: new Map<Key, AnyOutput>(),
  };
  return {
    /** A checkpoint has what is stored. */
    reset(): void {
      for (const resource of outputResources) {
        bases[resource] = new Map<Key, AnyOutput>(store.objects[resource]);
      }
    },
    /** A deletion that cannot be read removes the object of the store, also at the reader. */
    forget({ resource, namespace, name }: UnreadableObject): void {
      if (isOutput(resource)) bases[resource].delete(`${namespace ?? ''}/${name ?? ''}`);
    },
    /**
     * The delta that an event has made; `null`: it is written whole. The store drops a late
     * version. The delta then has the stored one, which a reader drops as repeated.
     */
    follow(resource: OutputResource, { type, object: { key } }: WatchEvent): Delta | null {
      const known = bases[resource];
      const base = known.get(key);
      const stored = store.objects[resource].get(key);
      if (stored === undefined) known.delete(key);
      else known.set(key, stored);
      // The version of a deletion says whether it is late.
      const isWhole = base === undefined || stored === undefined || type === 'deleted';
      return isWhole ? null : deltaOf(resource, stored, base);
    },
  };
}

/** The lines of nodes, each if it is another one than that before. */
function createNodeLines(auditor: Auditor) {
  const digests = new Map<string, string>();
  return {
    changed(node: string, at: number): string | null {
      const nodes = auditor.savedNodes();
      if (nodes === null) return null;
      const state = nodes.saved(node);
      const digest = hash('sha256', JSON.stringify(state), 'base64');
      if (digests.get(node) === digest) return null;
      if (state === null) digests.delete(node);
      else digests.set(node, digest);
      return nodeLine(node, state, at);
    },
  };
}

type RecordedEntry = Parameters<ReturnType<typeof createRecorder>['line']>[0];

/** Whether an entry belongs to the history. Versions without a change show only the time. */
function isRecorded(auditor: Auditor, entry: AuditorEntry): entry is RecordedEntry {
  const { scope } = auditor.options;
  switch (entry.kind) {
    case 'event': {
      const { resource, object, type } = entry.event;
      // An object that leaves the scope was recorded before.
      return isInScope(scope, resource, object) || type !== 'added';
    }
    case 'unreadable': {
      const { resource, namespace } = entry.lost;
      return resource === 'nodes' || namespace === null || isInNamespaces(scope, namespace);
    }
    case 'header':
    case 'synced':
    case 'watch':
    case 'access':
      return true;
    default:
      return false;
  }
}
