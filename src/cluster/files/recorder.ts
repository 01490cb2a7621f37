// Writes a live cluster's entries as the lines that recording.ts reads, without managedFields.
//
// A recording must contain what a live audit knew: also which watches were interrupted, which
// changes were missed, and which objects could not be read.

import type { UnreadableObject, Resource } from '../../model/objects.ts';
import type { LiveEntry } from '../decode/entry.ts';
import type { Fields } from '../decode/json-fields.ts';
import { isFields } from '../decode/json-fields.ts';
import type { Redactor } from './redact.ts';

export interface Recorder {
  /** The line of an entry, with its newline. */
  line(entry: LiveEntry): string;
  /** The last line of a recording that is complete. */
  end(at: number): string;
}

/** The recorder of one file, which begins with a header and the first lists. */
export function createRecorder(redactor: Redactor | null): Recorder {
  const synced = new Set<Resource>();
  const text = (fields: Fields): string => `${JSON.stringify(fields)}\n`;
  const shown = (resource: Resource, raw: unknown): unknown =>
    redactor === null ? withoutManagedFields(raw) : redactor.object(resource, raw);

  function eventLine({ event }: LiveEntry & { readonly kind: 'event' }): string {
    const { resource, object, at, gap, raw } = event;
    const type = synced.has(resource) ? event.type.toUpperCase() : 'SYNC';
    const { name, namespace, uid, resourceVersion, labels } = object;
    // A deletion that was not seen has no object; its name is enough.
    const minimal = { metadata: { name, namespace, uid, resourceVersion, labels } };
    return text({
      kind: 'object',
      at: rounded(at),
      resource,
      type,
      ...(gap === true ? { gap } : {}),
      object: shown(resource, raw ?? minimal),
    });
  }

  function lostLine(at: number, type: string | null, lost: UnreadableObject): string {
    const { resource, namespace, name, labels } = lost;
    const hide = (name: string | null): string | null =>
      redactor === null || name === null ? name : redactor.name(name);
    return text({
      kind: 'unreadable',
      at: rounded(at),
      resource,
      type: type?.toUpperCase() ?? null,
      namespace: hide(namespace),
      name: hide(name),
      labels: labels === null || redactor === null ? labels : redactor.labels(labels),
    });
  }

  return {
    line(entry) {
      switch (entry.kind) {
        case 'header': {
          const { kind, at, kubernetes, resources } = entry;
          return text({ kind, format: 1, at: rounded(at), kubernetes, resources });
        }
        case 'event':
          return eventLine(entry);
        case 'unreadable':
          return lostLine(entry.at, entry.type, entry.lost);
        case 'synced':
          synced.add(entry.resource);
          return text({ kind: 'synced', at: rounded(entry.at), resource: entry.resource });
        case 'progress': {
          const { at, resource, resourceVersion } = entry;
          const object = { metadata: { resourceVersion } };
          return text({ kind: 'object', at: rounded(at), resource, type: 'BOOKMARK', object });
        }
        case 'watch': {
          const { kind, at, resource, state } = entry;
          return text({ kind, at: rounded(at), resource, state });
        }
      }
    },
    end: (at) => text({ kind: 'end', at: rounded(at) }),
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
