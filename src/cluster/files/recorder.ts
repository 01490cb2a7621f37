// Writes a live cluster's entries as the lines that recording.ts reads, without managedFields.
//
// A recording must contain what a live audit knew: also which watches were interrupted, which
// changes were missed, and which objects could not be read.

import type { Resource } from '../../model/objects.ts';
import type { LiveEntry } from '../decode/entry.ts';
import type { Fields } from '../decode/json-fields.ts';
import { isFields } from '../decode/json-fields.ts';
import type { Redactor } from './redact.ts';

export type Recorder = ReturnType<typeof createRecorder>;

/** The recorder of one file, which begins with a header and the first lists. */
export function createRecorder(redactor: Redactor | null) {
  const synced = new Set<Resource>();
  const hide = (name: string | null) => (name === null ? null : (redactor?.name(name) ?? name));
  const fieldsOf = (entry: LiveEntry): Fields => {
    if (entry.kind === 'event') {
      const { resource, object, raw, gap } = entry.event;
      const type = synced.has(resource) ? entry.event.type.toUpperCase() : 'SYNC';
      const { name, namespace, uid, resourceVersion, labels } = object;
      // A deletion that was not seen has no object; its name is enough.
      const whole = raw ?? { metadata: { name, namespace, uid, resourceVersion, labels } };
      const shown =
        redactor === null ? withoutManagedFields(whole) : redactor.object(resource, whole);
      const at = rounded(entry.event.at);
      return { kind: 'object', at, resource, type, gap: gap === true || undefined, object: shown };
    }
    const at = rounded(entry.at);
    switch (entry.kind) {
      case 'header': {
        const { kind, kubernetes, resources } = entry;
        return { kind, format: 1, at, kubernetes, resources };
      }
      case 'unreadable': {
        const { resource, labels, ...lost } = entry.lost;
        const type = entry.type?.toUpperCase() ?? null;
        const [namespace, name] = [hide(lost.namespace), hide(lost.name)];
        const shown = labels === null ? null : (redactor?.labels(labels) ?? labels);
        return { kind: entry.kind, at, resource, type, namespace, name, labels: shown };
      }
      case 'progress': {
        const { resource, resourceVersion } = entry;
        const object = { metadata: { resourceVersion } };
        return { kind: 'object', at, resource, type: 'BOOKMARK', object };
      }
      case 'synced':
        synced.add(entry.resource);
        return { ...entry, at };
      case 'watch':
        return { ...entry, at };
    }
  };
  return {
    /** The line of an entry, with its newline. */
    line: (entry: LiveEntry) => `${JSON.stringify(fieldsOf(entry))}\n`,
    /** The last line of a recording that is complete. */
    end: (at: number) => `${JSON.stringify({ kind: 'end', at: rounded(at) })}\n`,
  };
}

/** Whole milliseconds, in seconds. */
const rounded = (at: number): number => Math.round(at * 1000) / 1000;

function withoutManagedFields(raw: unknown): unknown {
  if (!isFields(raw) || !isFields(raw.metadata) || !('managedFields' in raw.metadata)) return raw;
  const metadata = { ...raw.metadata };
  delete metadata.managedFields;
  return { ...raw, metadata };
}
