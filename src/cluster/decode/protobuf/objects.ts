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
import { isOutput } from '../../../model/objects.ts';
import { WrongType } from '../json-fields.ts';
import type { Known, Projection } from '../json-objects.ts';
import { project, unreadable } from '../json-objects.ts';
import { readEndpoints, readEndpointSlice } from './endpoints.ts';
import { readPod } from './pod.ts';
import { readRaw } from './proto-to-json.ts';
import { messages } from './schema.ts';
import type { Cursor } from './wire.ts';

/**
 * Reads the message of an object of this resource from `bytes`, from `from` to `to`; `at` is its
 * arrival, Unix seconds. Never throws for content; the problem is that of project.ts. The `bytes`
 * of Endpoints and EndpointSlices are the length of the message.
 */
export function readObject<R extends Resource>(
  resource: R,
  bytes: Buffer,
  from: number,
  to: number,
  at: number,
  previousPod?: Known['previousPod'],
): Projection<R> {
  const read = readers[resource];
  if (read !== undefined) {
    try {
      return { object: read({ bytes, at: from }, to, at, previousPod) };
    } catch (error) {
      if (!(error instanceof WrongType)) throw error;
    }
  }
  return readByTable(resource, { bytes, at: from }, to, at, previousPod);
}

function readByTable<R extends Resource>(
  resource: R,
  cursor: Cursor,
  end: number,
  at: number,
  previousPod: Known['previousPod'],
): Projection<R> {
  const raw: Record<string, unknown> = {};
  const from = cursor.at;
  try {
    readRaw(messages[resource], cursor, end, raw);
    return project(resource, raw, at, {
      previousPod,
      bytes: isOutput(resource) ? end - from : null,
    });
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    return { problem: unreadable(resource, raw, error) };
  }
}

type Read<R extends Resource> = (
  cursor: Cursor,
  end: number,
  at: number,
  previousPod: Known['previousPod'],
) => ObjectOf[R];

const readers: { readonly [R in Resource]?: Read<R> } = {
  pods: readPod,
  endpoints: (cursor, end, at) => readEndpoints(cursor, end, at, end - cursor.at),
  endpointslices: (cursor, end, at) => readEndpointSlice(cursor, end, at, end - cursor.at),
};
