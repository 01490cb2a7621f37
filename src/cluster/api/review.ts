// Asks the API server whose a token is (TokenReview), and whether its owner has a permission
// (SubjectAccessReview), as k8s.io/apiserver@v0.36.3 does in its packages for webhooks.
// The API server answers both without storing anything. They are no get, list or watch; without the
// flag that needs them, none is sent.

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

/** `unauthenticated`: the token is not valid. `unavailable`: the API server cannot review. */
interface Refused {
  readonly kind: 'unauthenticated' | 'forbidden' | 'unavailable';
  /** For people. */
  readonly why: string;
}

type Reviewed = { readonly kind: 'allowed'; readonly why: '' } | Refused;

/** Answers that are remembered, and seconds of access after a review began. */
const usual = { most: 1000, allowed: 60 };
/**
 * The seconds of `outage` replace those of `allowed` while the API server does not answer. Two
 * reviews within `total` are shorter than the usual timeout of a scrape.
 */
const limits = { refused: 10, outage: 600, total: 4, running: 16 };

type Ask = Pick<Environment, 'ask' | 'now' | 'monotonic' | 'sleep' | 'random' | 'pings'>;

const unavailable = (why: string): Refused => ({ kind: 'unavailable', why });

/**
 * A function that says whether the owner of a token may get a path that is no resource. It never
 * rejects, and remembers answers for some seconds. `onProblem` gets each new reason for which the
 * API server does not review.
 */
export function createReviewer(
  environment: Ask,
  onProblem: (text: string) => void,
  { most, allowed } = usual,
) {
  const known = new Map<string, { readonly began: number; readonly answer: Reviewed }>();
  const running = new Map<string, Promise<Reviewed>>();
  let problem = '';
  const ask = async (token: string, path: string): Promise<Reviewed> => {
    try {
      const owner = await reviewToken(environment, token);
      const answer = 'kind' in owner ? owner : await reviewAccess(environment, owner, path);
      problem = '';
      return answer;
    } catch (error) {
      const { message } = describeFailure(error);
      if (message !== problem) onProblem(`The API server cannot review tokens: ${message}`);
      problem = message;
      return unavailable('the API server cannot review the token');
    }
  };
  return async (token: string, path: string): Promise<Reviewed> => {
    const key = createHash('sha256').update(`${path}\n${token}`).digest('base64');
    const before = known.get(key);
    const isAllowed = before?.answer.kind === 'allowed';
    const began = environment.monotonic();
    const age = before === undefined ? Infinity : began - before.began;
    if (before !== undefined && age < (isAllowed ? allowed : limits.refused)) return before.answer;
    let asking = running.get(key);
    if (asking === undefined) {
      if (running.size >= limits.running) return unavailable('too many reviews at one time');
      asking = ask(token, path).then((answer) => {
        running.delete(key);
        if (answer.kind !== 'unavailable') setLatest(known, key, { began, answer }, most);
        return answer;
      });
      running.set(key, asking);
    }
    const answer = await asking;
    // Else no scrape would succeed while the API server is down.
    const isKept = answer.kind === 'unavailable' && isAllowed && age < limits.outage;
    return isKept ? before.answer : answer;
  };
}

async function reviewToken(environment: Ask, token: string): Promise<TokenOwner | Refused> {
  const group = 'authentication.k8s.io/v1';
  const { authenticated, user } = await create(environment, group, 'TokenReview', { token });
  if (authenticated !== true || !isFields(user)) {
    return { kind: 'unauthenticated', why: 'the API server rejects the token' };
  }
  const extra = Object.entries(isFields(user.extra) ? user.extra : {});
  return {
    username: textOf(user.username),
    uid: textOf(user.uid),
    groups: textsOf(user.groups),
    extra: Object.fromEntries(extra.map(([key, values]) => [key, textsOf(values)])),
  };
}

async function reviewAccess(
  environment: Ask,
  { username: user, ...owner }: TokenOwner,
  path: string,
): Promise<Reviewed> {
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
