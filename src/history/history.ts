// The history of a live auditor: its entries become lines, and its state becomes checkpoints.

import type { Auditor, AuditorEntry } from '../auditor/auditor.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import { resources } from '../model/objects.ts';
import { isInNamespaces, isInScope } from '../model/scope.ts';
import { checkpointOf } from './checkpoint.ts';
import type { HistoryFiles } from './files.ts';
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
  const recorder = createHistoryRecorder({
    ...options,
    checkpoint: () => checkpointOf(auditor, lines.timeOf(options.now())),
    clock() {
      const at = lines.timeOf(options.now());
      return { line: `${JSON.stringify({ kind: 'clock', at })}\n`, at };
    },
  });
  return {
    ...recorder,
    /** Takes an entry that the auditor has taken in. */
    take(entry: AuditorEntry): void {
      if (!isRecorded(auditor, entry)) return;
      const at = lines.timeOf(entry.kind === 'event' ? entry.event.at : entry.at);
      recorder.note(lines.line(entry), at);
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
