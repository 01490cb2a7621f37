// The history of a live auditor: its entries become lines, and its state becomes checkpoints.

import { hash } from 'node:crypto';

import type { Finding } from '../audit/finding/catalogue.ts';
import type { Auditor, AuditorEntry } from '../auditor/auditor.ts';
import { deltaOf, type DeltaResource, hasDeltas } from '../cluster/files/delta.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import type { ObjectOf, WatchEvent } from '../model/objects.ts';
import { resources } from '../model/objects.ts';
import { isInNamespaces, isInScope } from '../model/scope.ts';
import { checkpointOf, nodeLine } from './checkpoint.ts';
import { createNotes, findingNote } from './notes.ts';
import { createHistoryRecorder, type HistoryOptions } from './recorder.ts';

export type AuditorHistory = ReturnType<typeof createAuditorHistory>;

/** Records what the auditor takes in, from the start of its audit on. */
export function createAuditorHistory(
  auditor: Auditor,
  options: Omit<HistoryOptions, 'clock' | 'checkpoint' | 'openNote'>,
) {
  const lines = createRecorder(null, resources);
  const notes = createNotes(auditor);
  const now = (): number => lines.timeOf(options.now());
  const recorder = createHistoryRecorder({
    ...options,
    checkpoint() {
      // The checkpoint would have a part of what an entry changes, and the entry would follow it.
      if (auditor.isTaking()) return null;
      return checkpointOf(auditor, now());
    },
    openNote: () => notes.open(now(), options.limits.size),
    clock() {
      const at = now();
      return { line: `${JSON.stringify({ kind: 'clock', at })}\n`, at };
    },
  });
  const lineOf = (entry: RecordedEntry): string => {
    const delta = entry.kind === 'event' ? deltaIn(auditor, entry.event) : null;
    if (entry.kind !== 'event' || delta === null) return lines.line(entry);
    return lines.delta(entry.event, delta);
  };
  const changedNode = createNodeLines(auditor);
  /** Records what the rules of a node show now, if that has changed. */
  const noteNode = (node: string, at: number): void => {
    const line = changedNode(node, lines.timeOf(at));
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
 * What an event has changed, which the auditor has just taken in; `null`: it is written whole. So
 * is a deletion, since its version says whether it is late. A reader has the same version before.
 */
function deltaIn({ store }: Auditor, { resource, type, object: { key } }: WatchEvent) {
  const change = store.latestChange();
  // The store does not see objects outside of the scope.
  if (change === null || change.resource !== resource || change.after?.key !== key) return null;
  if (type === 'deleted' || change.before === null || !hasDeltas(resource)) return null;
  const { before, after } = change as Record<'before' | 'after', ObjectOf[DeltaResource]>;
  return deltaOf(resource, after, before);
}

/** The lines of nodes, each if it is another one than that before. */
function createNodeLines(auditor: Auditor): (node: string, at: number) => string | null {
  const digests = new Map<string, string>();
  return (node, at) => {
    const nodes = auditor.savedNodes();
    if (nodes === null) return null;
    const state = nodes.saved(node);
    const digest = hash('sha256', JSON.stringify(state), 'base64');
    if (digests.get(node) === digest) return null;
    if (state === null) digests.delete(node);
    else digests.set(node, digest);
    return nodeLine(node, state, at);
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
