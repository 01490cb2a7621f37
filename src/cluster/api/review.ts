// Asks the API server whose a token is (TokenReview), and whether its owner has a permission
// (SubjectAccessReview), as k8s.io/apiserver@v0.36.3 does in its packages for webhooks.
// The API server answers both without storing anything. They are no get, list or watch; without the
// flags that need them, none is sent.

import { createHash } from 'node:crypto';

import { setLatest } from '../../model/collections.ts';
import { type Fields, isFields } from '../decode/json-fields.ts';
import { describeFailure, UnexpectedAnswer } from './transport/failure.ts';
import { bodyText, type Environment, exchange } from './transport/request.ts';

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

type Reviewed<T> = ({ readonly kind: 'allowed'; readonly why: '' } & T) | Refused;

/** Answers of each kind that are remembered, and seconds of access after a review began. */
const usual = { most: 1000, allowed: 60 };
/**
 * The seconds of `outage` replace those of `allowed` while the API server does not answer. Two
 * reviews within `total` are shorter than the usual timeout of a scrape. Of the reviews at one
 * time, `ofClient` are for one client.
 */
const limits = { refused: 10, outage: 600, total: 4, running: 16, ofClient: 4 };

const unavailable = (why: string): Refused => ({ kind: 'unavailable', why });

/**
 * Functions that never reject, and that remember answers for some seconds. `onProblem` gets each
 * new reason for which the API server does not review.
 */
export function createReviewer(
  environment: Environment,
  onProblem: (text: string) => void,
  memory = usual,
) {
  let problem = '';
  const reporting = async <T>(review: () => Promise<Reviewed<T>>): Promise<Reviewed<T>> => {
    try {
      const answer = await review();
      problem = '';
      return answer;
    } catch (error) {
      const { message } = describeFailure(error);
      if (message !== problem) onProblem(`The API server cannot review tokens: ${message}`);
      problem = message;
      return unavailable('the API server cannot review the token');
    }
  };
  const owner = rememberReviews(environment, memory, (token, audience) =>
    reporting(() => reviewToken(environment, token, audience)),
  );
  const access = rememberReviews(environment, memory, (token, path) =>
    reporting(async () => {
      const reviewed = await reviewToken(environment, token, null);
      return reviewed.kind === 'allowed'
        ? reviewAccess(environment, reviewed.owner, path)
        : reviewed;
    }),
  );
  return {
    /** The owner of a token that was issued for an audience. */
    owner: (token: string, audience: string) => owner(token, audience, null),
    /** Whether the owner of a token may get a path that is no resource; `client` is an address. */
    access: (token: string, path: string, client: string) => access(token, path, client),
  };
}

/**
 * Reviews a token once for questions at one time, and again after some seconds. A client with
 * random tokens takes neither all reviews nor the answers about accepted tokens. A token that was
 * accepted before is always reviewed again.
 */
function rememberReviews<T>(
  environment: Environment,
  { most, allowed }: typeof usual,
  ask: (token: string, about: string) => Promise<Reviewed<T>>,
) {
  type Known = Map<string, { readonly began: number; readonly answer: Reviewed<T> }>;
  const accepted: Known = new Map();
  const refused: Known = new Map();
  /** Of tokens that were not accepted before. */
  const strange = new Map<string, string | null>();
  const running = new Map<string, Promise<Reviewed<T>>>();
  const isFull = (client: string | null): boolean => {
    if (strange.size >= limits.running) return true;
    const own = [...strange.values()].filter((its) => client !== null && its === client);
    return own.length >= limits.ofClient;
  };
  const begin = (key: string, began: number, token: string, about: string) => {
    const asking = ask(token, about).then((answer) => {
      running.delete(key);
      strange.delete(key);
      const isAccepted = answer.kind === 'allowed';
      if (answer.kind === 'unavailable') return answer;
      setLatest(isAccepted ? accepted : refused, key, { began, answer }, most);
      (isAccepted ? refused : accepted).delete(key);
      return answer;
    });
    running.set(key, asking);
    return asking;
  };
  return async (token: string, about: string, client: string | null): Promise<Reviewed<T>> => {
    const key = createHash('sha256').update(`${about}\n${token}`).digest('base64');
    const before = accepted.get(key) ?? refused.get(key);
    const isAllowed = before?.answer.kind === 'allowed';
    const began = environment.monotonic();
    const age = before === undefined ? Infinity : began - before.began;
    if (before !== undefined && age < (isAllowed ? allowed : limits.refused)) return before.answer;
    if (!isAllowed && !running.has(key)) {
      if (isFull(client)) return unavailable('too many reviews at one time');
      strange.set(key, client);
    }
    const answer = await (running.get(key) ?? begin(key, began, token, about));
    // Else no scrape would succeed while the API server is down.
    const isKept = answer.kind === 'unavailable' && isAllowed && age < limits.outage;
    return isKept ? before.answer : answer;
  };
}

/** `audience`: `null` for the API server itself. */
async function reviewToken(
  environment: Environment,
  token: string,
  audience: string | null,
): Promise<Reviewed<{ readonly owner: TokenOwner }>> {
  const audiences = audience === null ? {} : { audiences: [audience] };
  const group = 'authentication.k8s.io/v1';
  const status = await create(environment, group, 'TokenReview', { token, ...audiences });
  const { authenticated, user, audiences: given } = status;
  if (authenticated !== true || !isFields(user)) {
    return { kind: 'unauthenticated', why: 'the API server rejects the token' };
  }
  // A server that knows no audiences answers without them, and has not checked them.
  if (audience !== null && !textsOf(given).includes(audience)) {
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
  environment: Environment,
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
  environment: Environment,
  apiVersion: string,
  kind: string,
  spec: object,
): Promise<Fields> {
  const path = `/apis/${apiVersion}/${kind.toLowerCase()}s`;
  const body = JSON.stringify({ apiVersion, kind, spec });
  const request = { path, query: {}, accept: 'application/json', body };
  const { signal } = new AbortController();
  return exchange(environment, request, { total: limits.total }, signal, async (answer) => {
    const content = await bodyText(answer.body);
    if (content === null) throw new Error(`${kind}: the answer is too long`);
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
