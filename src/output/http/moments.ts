// `?at=TIME` of pages and of the API: the answer as of a moment of the history. Others compute it,
// outside this process.

import type { NextFunction, Request, Response } from 'express';

import { keepQuery, timeBarPlace } from '../page/time-bar.ts';
import { parseDateTime } from '../text/date-time.ts';

/** The answer to a request as of a moment. */
export interface MomentAnswer {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
  /** Of a redirect, without `at`. */
  readonly location?: string;
  /** Content-Disposition of a download. */
  readonly disposition?: string;
  /** What is missing or damaged in the history before that moment, for people. */
  readonly losses: readonly string[];
}

/** Why there is no answer: a wrong moment, a long answer, too many questions, or a failure. */
export class NoMoment extends Error {
  readonly reason: keyof typeof statuses;

  constructor(reason: NoMoment['reason'], message: string) {
    super(message);
    this.reason = reason;
  }
}

/** Answers a path with its query as of a moment in Unix seconds; rejects with NoMoment. */
export type AnswerMoment = (at: number, path: string, accept: string) => Promise<MomentAnswer>;

const statuses = { wrong: 400, long: 413, busy: 503, failed: 503 } as const;

/** Seconds after which a client may ask again; `null`: it gets the same answer. */
const retryAfter = { wrong: null, long: null, busy: 2, failed: 30 } as const;

/** The most bytes of answers that clients have not read yet. One may have more. */
const mostUnread = 32 * 1024 * 1024;

/** Parses Unix seconds or RFC 3339; null for anything else. */
export function parseMoment(text: unknown): number | null {
  if (typeof text !== 'string') return null;
  if (/^\d{1,11}(?:\.\d+)?$/.test(text)) return Number(text);
  const moment = parseDateTime(text);
  return Number.isNaN(moment) ? null : moment;
}

function sendNoMoment(response: Response, { reason, message }: NoMoment): void {
  const seconds = retryAfter[reason];
  if (seconds !== null) response.set('Retry-After', String(seconds));
  response.status(statuses[reason]).json({ format: 1, error: message });
}

/** A header has only ASCII, and the path of a folder may have more. */
const warningOf = (losses: readonly string[]): string =>
  `199 - ${JSON.stringify(losses.join('; ').slice(0, 1000)).replace(/[^ -~]/g, '?')}`;

/** The path and the query without `at`; null if the line of the request has no path. */
function pathOf({ originalUrl }: Request): string | null {
  if (!originalUrl.startsWith('/')) return null;
  // Joined, not resolved: `//host/path` is a path, too.
  const text = `http://localhost${originalUrl}`;
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  url.searchParams.delete('at');
  return url.pathname + url.search;
}

/** A redirect of the process to the same moment. */
function locationAt(location: string, at: string): string {
  const url = new URL(location, 'http://localhost');
  url.searchParams.set('at', at);
  return url.pathname + url.search + url.hash;
}

/**
 * Answers requests with `at`; `answer` is null without a history. Pages get the time bar of the
 * present, since the past does not know what came after it.
 */
export function answerMoments(answer: AnswerMoment | null, timeBar: (at: number) => string) {
  let unread = 0;
  return async (request: Request, response: Response, next: NextFunction): Promise<void> => {
    const { at: text } = request.query;
    if (text === undefined || request.path === '/metrics') {
      next();
      return;
    }
    const at = parseMoment(text);
    const path = pathOf(request);
    if (answer === null || at === null || path === null) {
      const expected = path === null ? 'Expected a path' : 'Expected Unix seconds or RFC 3339: at';
      const error = answer === null ? 'There is no history: see serve --history' : expected;
      sendNoMoment(response, new NoMoment('wrong', error));
      return;
    }
    try {
      const accept = request.headers.accept ?? '*/*';
      const answered = await answer(at, path, accept);
      // A client that has left reads nothing, and no `close` follows.
      if (response.closed) return;
      const { status, type, body, losses, location, disposition } = answered;
      const { length } = body;
      if (unread > 0 && unread + length > mostUnread) {
        throw new NoMoment('busy', 'Other clients have not read their answers yet');
      }
      unread += length;
      response.once('close', () => (unread -= length));
      if (losses.length > 0) response.set('Warning', warningOf(losses));
      if (location !== undefined) response.set('Location', locationAt(location, String(at)));
      if (disposition !== undefined) response.set('Content-Disposition', disposition);
      const shown = type.startsWith('text/html')
        ? keepQuery(
            body.toString().replace(timeBarPlace, () => timeBar(at)),
            new URL(`http://localhost${path}`).searchParams,
          )
        : body;
      response.status(status).set('Content-Type', type).send(shown);
    } catch (error) {
      if (!(error instanceof NoMoment)) throw error;
      sendNoMoment(response, error);
    }
  };
}
