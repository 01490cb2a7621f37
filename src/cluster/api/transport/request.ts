// One request and its answer, with two limits: the silence between two chunks, and the whole time.
// Time in which the reader processes a chunk does not count as silence.
// Answers that are read as one text have a limit of their own.

import type { ApiAnswer, ApiRequest, Ask, Body } from './connection.ts';
import { GivenUp } from './failure.ts';

export interface Environment {
  /** Unix seconds. */
  now(): number;
  /** Seconds from any origin, which never run backwards. */
  monotonic(): number;
  /** At least 0, less than 1. */
  random(): number;
  /** Resolves after a number of seconds, or when aborted; 0: after all waiting work. */
  sleep(seconds: number, signal: AbortSignal): Promise<void>;
  readonly ask: Ask;
  /** Seconds by which `now` is ahead of the API server's clock; `null` if that is unknown. */
  skew?(): number | null;
  /** Whether the connection itself finds out that the server has gone, within 45 s. */
  pings(): boolean;
  /** The exec plugin whose credentials are awaited; `null` if none is running. */
  runningPlugin?(): string | null;
}

export interface RequestLimits {
  /** Seconds without a byte, once the answer has begun, after which it is `silent`. */
  readonly silence?: () => number;
  /** Seconds from the request to the end of the answer, by default 10 minutes. */
  readonly total?: number;
}

/** Until an answer must begin, and between two bytes where silence is limited. */
export const silenceSeconds = 45;

/** An API server ends an answer other than a watch after a minute (--request-timeout). */
const longestAnswer = 600;

/** The reason of an abort; it costs less than the DOMException of none. */
const ended = new Error('The request was ended');

/** Sends a request, and ends it when `read` has resolved. Rejects with GivenUp at a limit. */
export async function exchange<T>(
  environment: Environment,
  request: Omit<ApiRequest, 'signal'>,
  { silence, total = longestAnswer }: RequestLimits,
  signal: AbortSignal,
  read: (answer: ApiAnswer) => T | Promise<T>,
  onBytes: (count: number) => void = () => undefined,
): Promise<T> {
  const controller = new AbortController();
  const began = environment.monotonic();
  let [heard, answered, busy] = [began, false, false];
  const guard = async (): Promise<void> => {
    while (!controller.signal.aborted) {
      const allowed = answered && silence !== undefined ? silence() : silenceSeconds;
      const now = environment.monotonic();
      if (busy) heard = now;
      // Late by up to a second where the reader is busy just then.
      const quiet = heard + allowed - now;
      const left = busy ? 1 : Math.min(quiet, began + total - now);
      const quietly = answered && silence !== undefined ? 'silent' : 'idle';
      if (left <= 0) {
        controller.abort(
          quiet <= 0 ? new GivenUp(quietly, allowed) : new GivenUp('timeout', total),
        );
      } else await environment.sleep(Math.min(left, silenceSeconds), controller.signal);
    }
  };
  const listen = async function* (body: Body): AsyncGenerator<Uint8Array> {
    for await (const chunk of body) {
      onBytes(chunk.length);
      busy = true;
      yield chunk;
      heard = environment.monotonic();
      busy = false;
    }
  };
  const end = () => controller.abort(ended);
  signal.addEventListener('abort', end);
  if (signal.aborted) end();
  void guard();
  try {
    controller.signal.throwIfAborted();
    // What comes before the request, a connection or a token, may know of no signal.
    const asked = environment.ask({ ...request, signal: controller.signal });
    const aborted = Promise.withResolvers<never>();
    controller.signal.addEventListener('abort', () => aborted.reject(ended));
    const { body, ...answer } = await Promise.race([asked, aborted.promise]);
    answered = true;
    heard = environment.monotonic();
    const heardBody = { hasMore: body.hasMore, [Symbol.asyncIterator]: () => listen(body) };
    return await read({ ...answer, body: heardBody });
  } catch (error) {
    const reason: unknown = controller.signal.reason;
    throw reason instanceof GivenUp ? reason : error;
  } finally {
    signal.removeEventListener('abort', end);
    end();
  }
}

/** Bytes of an answer about one object. */
const mostText = 1024 * 1024;

/** The text of a body; `null` if it is longer than 1 MiB. */
export async function bodyText(body: AsyncIterable<Uint8Array>): Promise<string | null> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > mostText) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
