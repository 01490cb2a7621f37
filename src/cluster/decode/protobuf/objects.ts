// From protobuf to the model: pods, Endpoints and EndpointSlices by hand, straight from the bytes;
// Services and Nodes, of which there are few, by way of the tables of messages.ts and project.ts.
//
// The objects are those that project.ts makes from the JSON of the same object, so what is read,
// what is absent and what is an error is decided there. Field numbers: messages.ts. Only what the
// model has is decoded; the rest of a pod (volumes, environments, managedFields, statuses) is
// passed over by its lengths, and that is nearly all of it. What a template gives to all its pods
// (labels, ports of containers) and what repeats otherwise (names of Nodes and namespaces) is
// looked up by its bytes and made once.
//
// The readers by hand do not say what is wrong. When one of them meets bytes that it cannot read,
// the object is read again by the tables, which find the place and name the object, or can read it
// after all (fields in an order that Go never writes). Either way, that is the answer.
//
// No value refers to the bytes that it was read from.

import type { ObjectOf, Resource } from '../../../model/objects.ts';
import { WrongType } from '../json-fields.ts';
import type { Known, Projection } from '../json-objects.ts';
import { project, unreadable } from '../json-objects.ts';
import { readEndpoints, readEndpointSlice } from './endpoints.ts';
import { jsonLength } from './json-length.ts';
import { readPod } from './pod.ts';
import { readRaw } from './proto-to-json.ts';
import { messages } from './schema.ts';
import type { Cursor } from './wire.ts';

/** What the caller knows of an object, besides its bytes. */
export interface Framed {
  readonly previousPod?: Known['previousPod'];
  /** Bytes that JSON has for kind and apiVersion, which the message does not: see typeLength. */
  readonly typeBytes: number;
}

/**
 * Reads the message of an object of this resource from `bytes`, from `from` to `to`; `at` is its
 * arrival, Unix seconds. Never throws for content; the problem is that of project.ts. The `bytes`
 * of Endpoints and EndpointSlices are the length of their JSON, computed from the message.
 */
export function readObject<R extends Resource>(
  resource: R,
  bytes: Buffer,
  from: number,
  to: number,
  at: number,
  framed: Framed,
): Projection<R> {
  const read = readers[resource];
  if (read !== undefined) {
    try {
      return { object: read({ bytes, at: from }, to, at, framed) };
    } catch (error) {
      if (!(error instanceof WrongType)) throw error;
    }
  }
  return readByTable(resource, { bytes, at: from }, to, at, framed);
}

function readByTable<R extends Resource>(
  resource: R,
  cursor: Cursor,
  end: number,
  at: number,
  { previousPod, typeBytes }: Framed,
): Projection<R> {
  const raw: Record<string, unknown> = {};
  const from = cursor.at;
  try {
    readRaw(messages[resource], cursor, end, raw);
    cursor.at = from;
    const bytes = isMeasured(resource) ? measure(resource, cursor, end, typeBytes) : null;
    return project(resource, raw, at, { previousPod, bytes });
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    return { problem: unreadable(resource, raw, error) };
  }
}

type Measured = 'endpoints' | 'endpointslices';

const isMeasured = (resource: Resource): resource is Measured =>
  resource === 'endpoints' || resource === 'endpointslices';

const measure = (resource: Measured, cursor: Cursor, end: number, typeBytes: number): number =>
  jsonLength(messages[resource], cursor, end) + typeBytes;

type Read<R extends Resource> = (
  cursor: Cursor,
  end: number,
  at: number,
  framed: Framed,
) => ObjectOf[R];

const readers: { readonly [R in Resource]?: Read<R> } = {
  pods: (cursor, end, at, { previousPod }) => readPod(cursor, end, at, previousPod),
  endpoints: (cursor, end, at, { typeBytes }) => {
    const from = cursor.at;
    const length = measure('endpoints', cursor, end, typeBytes);
    cursor.at = from;
    return readEndpoints(cursor, end, at, length);
  },
  endpointslices: (cursor, end, at, { typeBytes }) => {
    const from = cursor.at;
    const length = measure('endpointslices', cursor, end, typeBytes);
    cursor.at = from;
    return readEndpointSlice(cursor, end, at, length);
  },
};
