// The bodies of the API server's answers in protobuf, as frames (frames.ts): what
// protobuf-stream.ts reads, in the words of the reflector.
//
// Where lengths or envelopes are wrong, nothing that follows can be found: for the reader such a
// body is cut off there. Raw objects are not to be had; a recording asks for JSON.

import type { Resource } from '../../model/objects.ts';
import type { Projection, Unreadable } from '../decode/json-objects.ts';
import { guessLost } from '../decode/problem.ts';
import type { Status, WatchMessage } from '../decode/protobuf/stream.ts';
import { createListReader, createWatchReader, readStatus } from '../decode/protobuf/stream.ts';
import type { ApiStatus, Codec, Frame } from './frame.ts';

export const protobufCodec: Codec = {
  mediaType: 'application/vnd.kubernetes.protobuf',
  async *watch(body, reading) {
    const reader = createWatchReader(reading.resource, reading);
    for await (const chunk of body) {
      yield watchFrames(reader.read(chunk, reading.now()));
      if (reader.problem() !== null) break;
    }
    const problem = reader.end();
    if (problem !== null) yield [badFrame(problem, true)];
  },
  async *list(body, reading) {
    const reader = createListReader(reading.resource, reading);
    for await (const chunk of body) {
      yield listFrames(reader.read(chunk, reading.now()));
      if (reader.problem() !== null) break;
    }
    yield [pageFrame(reader.end(), reader.resourceVersion(), reader.continueToken(), reading)];
  },
  status(body, code) {
    const status = readStatus(body);
    return status === null ? null : apiStatus(status, code);
  },
};

function* watchFrames(messages: Iterable<WatchMessage<Resource>>): Generator<Frame> {
  for (const message of messages) yield watchFrame(message);
}

function watchFrame(message: WatchMessage<Resource>): Frame {
  switch (message.type) {
    case 'bookmark': {
      const { resourceVersion, initialEventsEnd } = message;
      return { kind: 'bookmark', version: resourceVersion, initialEnd: initialEventsEnd };
    }
    case 'error':
      return { kind: 'status', status: apiStatus(message.status, 0) };
    case 'unreadable':
      return badFrame(message.problem, false);
    default: {
      const { type, projection, version } = message;
      return { kind: 'object', type, projection, version };
    }
  }
}

function* listFrames(items: Iterable<Projection<Resource>>): Generator<Frame> {
  for (const projection of items) {
    const version = projection.object?.resourceVersion ?? '';
    yield { kind: 'object', type: 'added', projection, version };
  }
}

function pageFrame(
  problem: Unreadable | null,
  version: string,
  next: string,
  { resource }: { readonly resource: Resource },
): Frame {
  if (problem !== null) return badFrame(problem, true);
  if (version !== '') return { kind: 'page', version, next };
  const lost = guessLost(resource, '');
  return { kind: 'bad', message: 'Expected a list', value: null, lost, cut: false };
}

function badFrame({ message, value, lost }: Unreadable, cut: boolean): Frame {
  return { kind: 'bad', message, value, lost, cut };
}

function apiStatus(status: Status, code: number): ApiStatus {
  const { retryAfterSeconds, ...rest } = status;
  const retryAfter = retryAfterSeconds > 0 ? retryAfterSeconds : null;
  return { ...rest, code: rest.code === 0 ? code : rest.code, retryAfter };
}
