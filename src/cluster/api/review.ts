// Asks the API server whose a token is (TokenReview), and whether its owner has a permission
// (SubjectAccessReview), as k8s.io/apiserver@v0.36.3 does in its packages for webhooks.
// The API server answers both without storing anything. They are the only requests of the program
// that are no get, list or watch; without the flags that need them, none is sent.

import { createHash } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { Readable } from 'node:stream';

import { setLatest } from '../../model/collections.ts';
import { type Fields, isFields } from '../decode/json-fields.ts';
import { describeFailure, UnexpectedAnswer } from './transport/failure.ts';
import { type Environment, exchange } from './transport/request.ts';

/** The owner of a token, as the API server names it. */
interface TokenOwner {
  readonly username: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/** `unauthenticated`: the token is not valid. `unavailable`: the API server does not answer. */
interface Refused {
  readonly kind: 'unauthenticated' | 'forbidden' | 'unavailable';
  /** For people. */
  readonly why: string;
}

type Reviewed<T> = ({ readonly kind: 'allowed'; readonly why: '' } & T) | Refused;

/** Answers that are remembered, and seconds: for how long, and until an answer is complete. */
const usual = { most: 1000, allowed: 60 };
const limits = { refused: 10, total: 10 };

type Ask = Pick<Environment, 'ask' | 'now' | 'monotonic' | 'sleep' | 'random' | 'pings'>;

/** Functions that never reject, and that remember answers for some seconds. */
export function createReviewer(environment: Ask, memory = usual) {
  const owner = remembered(environment, memory, (token, audience) =>
    reviewToken(environment, token, audience),
  );
  return {
    /** The owner of a token that was issued for an audience; empty: for the API server. */
    owner,
    /** Whether the owner of a token may get a path that is no resource. */
    access: remembered(environment, memory, async (token, path) => {
      const owned = await owner(token, '');
      return owned.kind === 'allowed' ? reviewAccess(environment, owned.owner, path) : owned;
    }),
  };
}

/** Asks once for the same token at one time, and again after some seconds. */
function remembered<T>(
  environment: Ask,
  { most, allowed }: typeof usual,
  ask: (token: string, about: string) => Promise<Reviewed<T>>,
) {
  const known = new Map<string, { readonly until: number; readonly answer: Reviewed<T> }>();
  const running = new Map<string, Promise<Reviewed<T>>>();
  return async (token: string, about: string): Promise<Reviewed<T>> => {
    const key = createHash('sha256').update(`${about}\n${token}`).digest('base64');
    const before = known.get(key);
    if (before !== undefined && environment.monotonic() < before.until) return before.answer;
    const current = running.get(key);
    if (current !== undefined) return current;
    const asking = ask(token, about)
      .catch((error: unknown): Refused => {
        const { message } = describeFailure(error);
        return { kind: 'unavailable', why: `the API server cannot review the token: ${message}` };
      })
      .finally(() => running.delete(key));
    running.set(key, asking);
    const answer = await asking;
    const seconds = answer.kind === 'allowed' ? allowed : limits.refused;
    // The next request finds out whether the API server answers again.
    if (answer.kind !== 'unavailable') {
      setLatest(known, key, { until: environment.monotonic() + seconds, answer }, most);
    }
    return answer;
  };
}

async function reviewToken(
  environment: Ask,
  token: string,
  audience: string,
): Promise<Reviewed<{ readonly owner: TokenOwner }>> {
  const audiences = audience === '' ? {} : { audiences: [audience] };
  const group = 'authentication.k8s.io/v1';
  const status = await create(environment, group, 'TokenReview', { token, ...audiences });
  const { authenticated, user, audiences: given } = status;
  if (authenticated !== true || !isFields(user)) {
    return { kind: 'unauthenticated', why: 'the API server rejects the token' };
  }
  // A server that knows no audiences answers without them, and has not checked them.
  if (audience !== '' && !textsOf(given).includes(audience)) {
    return { kind: 'unauthenticated', why: 'the API server has not checked the audience' };
  }
  const extra = Object.entries(isFields(user.extra) ? user.extra : {});
  const owner = {
    username: textOf(user.username),
    uid: textOf(user.uid),
    groups: textsOf(user.groups),
    extra: Object.fromEntries(extra.map(([key, values]) => [key, textsOf(values)])),
  };
  return { kind: 'allowed', why: '', owner };
}

async function reviewAccess(
  environment: Ask,
  { username: user, ...owner }: TokenOwner,
  path: string,
): Promise<Reviewed<object>> {
  const spec = { user, ...owner, nonResourceAttributes: { path, verb: 'get' } };
  const group = 'authorization.k8s.io/v1';
  const { allowed } = await create(environment, group, 'SubjectAccessReview', spec);
  if (allowed === true) return { kind: 'allowed', why: '' };
  return { kind: 'forbidden', why: `${user} may not get ${path}` };
}

/** The status of a review. Rejects if the API server does not answer it. */
async function create(
  environment: Ask,
  apiVersion: string,
  kind: string,
  spec: object,
): Promise<Fields> {
  const path = `/apis/${apiVersion}/${kind.toLowerCase()}s`;
  const body = JSON.stringify({ apiVersion, kind, spec });
  const request = { path, query: {}, accept: 'application/json', body };
  const { signal } = new AbortController();
  return exchange(environment, request, { total: limits.total }, signal, async (answer) => {
    const content = await text(Readable.from(answer.body));
    if (answer.status !== 200 && answer.status !== 201) {
      throw new UnexpectedAnswer(answer.status, `${kind}: ${content.slice(0, 200)}`);
    }
    const review: unknown = JSON.parse(content);
    const status = isFields(review) ? review.status : null;
    if (!isFields(status)) throw new Error(`${kind}: the answer has no status`);
    return status;
  });
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

const textsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
