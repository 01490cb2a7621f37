// Decodes the protobuf message of an object into the model object, by way of the plain objects that
// the JSON of the same object would have: json-objects.ts decides what is absent and what is wrong.
// No value refers to the bytes that it was read from.

import type { Resource } from '../../../model/objects.ts';
import { isOutput } from '../../../model/objects.ts';
import { WrongType } from '../json-fields.ts';
import type { Projection } from '../json-objects.ts';
import { kinds, project, unreadable } from '../json-objects.ts';
import { readMessage } from './read-message.ts';
import type { PreviousPod } from '../read-pod.ts';
import type { Raw } from './schema.ts';
import { messageNamed } from './schema.ts';

/**
 * Decodes the message of an object of this resource, which arrived `at`, in Unix seconds. Never
 * throws for content: an unreadable object is a problem. The `bytes` of Endpoints and
 * EndpointSlices are the length of the message.
 */
export function readObject<R extends Resource>(
  resource: R,
  message: Buffer,
  at: number,
  previousPod?: PreviousPod,
): Projection<R> {
  const raw: Raw = {};
  try {
    readMessage(messageNamed(kinds[resource]), { bytes: message, at: 0 }, message.length, raw);
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    return { problem: unreadable(resource, raw, error) };
  }
  const bytes = isOutput(resource) ? message.length : null;
  return project(resource, raw, at, { previousPod, bytes });
}
