// Writes a live cluster's entries as the lines that recording.ts reads, without managedFields. An
// object that did not come as a whole is written with what the audit reads (object-writer.ts).

import type { Resource, WatchEvent } from '../../model/objects.ts';
import type { LiveEntry } from '../decode/entry.ts';
import { type Fields, isFields } from '../decode/json-fields.ts';
import { hasManagedFields, jsonBytes } from '../decode/json-objects.ts';
import type { Line } from '../decode/line-reader.ts';
import { writeObject } from './object-writer.ts';
import type { Redactor } from './redactor.ts';

/** The recorder of one file. It begins with a header and the first lists, except of `complete`. */
export function createRecorder(redactor: Redactor | null, complete: readonly Resource[] = []) {
  const synced = new Set<Resource>(complete);
  let latest = 0;
  /** Whole milliseconds, in seconds. Streams are read in turn, but the time never decreases. */
  const timeOf = (at: number): number => (latest = Math.max(latest, Math.round(at * 1000) / 1000));
  const hide = (name: string | null) => (name === null ? null : (redactor?.name(name) ?? name));
  const fieldsOf = (entry: LiveEntry): Fields => {
    if (entry.kind === 'event') {
      const { resource, object, raw, gap } = entry.event;
      // A namespace is watched already while another is listed.
      const isFirst = !synced.has(resource) && entry.event.type !== 'deleted';
      const type = isFirst ? 'SYNC' : entry.event.type.toUpperCase();
      const { name, namespace, uid, resourceVersion, labels } = object;
      // A deletion that was not seen has no object: its name is enough, and what a reader requires.
      const addressType = 'addressType' in object ? object.addressType : undefined;
      const metadata = { name, namespace, uid, resourceVersion, labels };
      const isGone = raw === undefined && type === 'DELETED';
      const whole = raw ?? (isGone ? { metadata, addressType } : writeObject(resource, object));
      // A reader would compute the size from the line, which has another one.
      const isOther = raw === undefined || redactor !== null;
      const bytes = isOther && 'bytes' in object ? object.bytes : undefined;
      const shown =
        redactor === null ? withoutManagedFields(whole) : redactor.object(resource, whole);
      const at = timeOf(entry.event.at);
      const missed = gap === true || undefined;
      return { kind: 'object', at, resource, type, gap: missed, bytes, object: shown };
    }
    const at = timeOf(entry.at);
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
      case 'access':
        return { ...entry, at, namespace: hide(entry.namespace) };
    }
  };
  return {
    /** The time of the next line at the earliest. */
    timeOf,
    /** `extra` are fields that only a checkpoint has. */
    line: (entry: LiveEntry, extra: Fields = {}) =>
      `${JSON.stringify({ ...fieldsOf(entry), ...extra })}\n`,
    /** An event, by what has changed (delta.ts). */
    delta({ resource, type, at, gap }: WatchEvent, fields: Fields): string {
      const word = type.toUpperCase();
      const head = { kind: 'delta', at: timeOf(at), resource, type: word, gap };
      return `${JSON.stringify({ ...head, ...fields })}\n`;
    },
    end: (at: number) => `${JSON.stringify({ kind: 'end', at: timeOf(at) })}\n`,
  };
}

function withoutManagedFields(raw: unknown): unknown {
  if (!isFields(raw) || !isFields(raw.metadata) || !('managedFields' in raw.metadata)) return raw;
  const metadata = { ...raw.metadata };
  delete metadata.managedFields;
  return { ...raw, metadata };
}

const envelope = /^\{"kind":"object","at":[\d.]+,"resource":"[a-z]+","type":"[A-Z]+","object":/;

/** Bytes of the object within the line as the recorder writes it, else as JSON. */
export function objectBytes(line: Line, object: unknown): number | null {
  const before = envelope.exec(line.text);
  const isWhole = line.text.endsWith('}}') && !hasManagedFields(object);
  if (before === null || !isWhole) return jsonBytes(object);
  return line.bytes - before[0].length - 1;
}
