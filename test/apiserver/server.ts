// A fake API server: lists in pages, watches with bookmarks and timeouts, WatchList, over the five
// resources, as kube-apiserver v1.36.3 answers them (staging/src/k8s.io/apiserver
// pkg/endpoints/handlers/get.go, pkg/storage/cacher/cacher.go). It has no sockets and no time of
// its own: `ask` is called in process, or by `listen` for requests over TLS.
//
// Faults come on demand. `faults.before` may answer any request in the server's place; every watch
// that runs is in `watches`, where it can be cut, frozen, or have its next frame spoilt.

import { readFileSync } from 'node:fs';
import type {
  IncomingHttpHeaders,
  IncomingMessage,
  Server as HttpServer,
  ServerResponse,
} from 'node:http';
import { createServer as createHttp } from 'node:http';
import type { Http2SecureServer, Http2ServerResponse } from 'node:http2';
import { constants, createSecureServer } from 'node:http2';
import { createServer as createHttps } from 'node:https';
import type { AddressInfo, Server, Socket } from 'node:net';
import { connect, createServer as createTcp } from 'node:net';
import { join } from 'node:path';

import type { ApiAnswer, ApiRequest, Ask } from '../../src/cluster/api/transport/connection.ts';
import type { Resource } from '../../src/model/objects.ts';

/**
 * How the next frame of a watch is spoilt; `lost`: the next event is not sent; `early`: a bookmark
 * of its version is sent at once, and the event up to ten seconds later.
 */
export type Spoil = 'garbled' | 'cut' | 'twice' | 'swapped' | 'lost' | 'early';

export interface Watch {
  readonly resource: Resource;
  /** null: of all. */
  readonly namespace: string | null;
  readonly stream: Stream;
  /** Spoils the next frames, one each. */
  readonly spoils: Spoil[];
  readonly frozen: boolean;
  /** A frame that the next one is to overtake. */
  readonly held: string | null;
  /** Frames that are sent later than a bookmark of their version, or lost with the watch. */
  readonly delayed: readonly string[];
  /** All frames that have been delayed. Some may still be on their way. */
  readonly overtaken: readonly string[];
  /** Seconds by which the server is behind that sends it. */
  readonly behind: number;
  /** No byte comes any more, and no error, as over a connection whose peer has gone. */
  freeze(): void;
  /** Sends an error event and ends. */
  refuse(status: object): void;
  /** Sends what it holds back, and spoils nothing any more. */
  heal(): void;
}

export interface Asked {
  readonly resource: Resource | null;
  readonly verb: 'list' | 'watch' | 'get' | 'create' | 'patch';
  readonly request: ApiRequest;
  /** Unix seconds. */
  readonly at: number;
  /** Seconds by which the server is behind that answers. */
  behind: number;
}

/** An answer in the server's place; `hang`: none ever; `reset`: the connection is lost. */
export type Instead = ApiAnswer | 'hang' | 'reset' | null;

interface Faults {
  before: (asked: Asked) => Instead;
  /** `verb resource` that the client may not; `verb resource in NAMESPACE` there, `*`: in all. */
  readonly forbidden: Set<string>;
  /** How many versions behind the server answers lists, and until when; a real one does not. */
  lag: { readonly versions: number; readonly until: number };
  /** The most items of a page, whatever the limit. */
  pageSize: number;
  /** Cuts a body into chunks. */
  chunks: (bytes: Uint8Array) => Iterable<Uint8Array>;
  /** What WatchList sends at the end of its initial events instead of one bookmark. */
  initialEnd: 'once' | 'missing' | 'low' | 'twice';
  /** Resources whose watches are accepted and send nothing. */
  readonly starved: Set<Resource>;
  /** Whether another server answers a request, and seconds by which it is behind. */
  replica: () => number;
}

/** An event that a watch did not send. */
export type LostEvent = Pick<Event, 'resource' | 'key' | 'version' | 'type'>;

export interface FakeServer {
  readonly objects: Objects;
  readonly faults: Faults;
  readonly watches: Set<Watch>;
  /** Every request, oldest first. */
  readonly asked: Asked[];
  /** The tokens that it accepts in reviews. */
  readonly tokens: Map<string, Account>;
  /** The Events that were written, by `namespace/name`. */
  readonly events: Map<string, Raw>;
  /** The release that /version reports. */
  version: string;
  /** Whether it knows sendInitialEvents. */
  watchList: boolean;
  /** Seconds between bookmarks. */
  bookmarkEvery: number;
  readonly ask: (request: ApiRequest) => Promise<ApiAnswer>;
  /** Events that watches did not send, oldest first. */
  readonly lost: LostEvent[];
  /** Calls back when a watch drops an event. */
  onLost: (event: LostEvent) => void;
  /** All connections are lost. */
  reset(): void;
}

const resourceOf = new Map<string, Resource>([
  ['nodes', 'nodes'],
  ['services', 'services'],
  ['pods', 'pods'],
  ['endpoints', 'endpoints'],
  ['endpointslices', 'endpointslices'],
]);

const paths =
  /^\/(?:api\/v1|apis\/discovery\.k8s\.io\/v1)(?:\/namespaces\/([^/]+))?\/([a-z]+)(?:\/([^/]+))?$/;

async function* bodyOf(server: FakeServer, content: string): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield* server.faults.chunks(Buffer.from(content));
}

/** An answer that is a Status, as the API server writes it. */
export function statusAnswer(
  code: number,
  reason: string,
  message = reason,
  headers: Record<string, string> = {},
): ApiAnswer {
  const content = JSON.stringify(statusOf(code, reason, message));
  return {
    status: code,
    headers: { 'content-type': 'application/json', ...headers },
    body: bodyOfText(content),
  };
}

/** Answers lists by pages that all have the same object, each of a new version, and a next page. */
export function endlessPages({ faults }: FakeServer, versionOf: (page: number) => string): void {
  const metadata = { name: 'again', namespace: 'shop', uid: 'u' };
  let pages = 0;
  const nextPage = (resource: Resource): string =>
    JSON.stringify({
      kind: `${kindOf[resource]}List`,
      metadata: { resourceVersion: '102', continue: 'more' },
      items: [{ metadata: { ...metadata, resourceVersion: versionOf(pages++) } }],
    });
  faults.before = ({ verb, resource }) =>
    verb === 'list' && resource !== null
      ? { ...statusAnswer(200, ''), body: bodyOfText(nextPage(resource)) }
      : null;
}

/** The chunks of a body. */
export async function* bodyOfText(content: string | Buffer): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield typeof content === 'string' ? Buffer.from(content) : content;
}

/** A Status object. */
export function statusOf(code: number, reason: string, message = reason): object {
  return { kind: 'Status', apiVersion: 'v1', status: 'Failure', message, reason, code };
}

export function createServer(clock: Clock): FakeServer {
  const server: FakeServer = {
    objects: createObjects(),
    faults: {
      before: () => null,
      forbidden: new Set(),
      lag: { versions: 0, until: 0 },
      pageSize: Infinity,
      chunks: (bytes) => [bytes],
      initialEnd: 'once',
      starved: new Set(),
      replica: () => 0,
    },
    watches: new Set(),
    asked: [],
    tokens: new Map(),
    events: new Map(),
    version: 'v1.36.3',
    watchList: true,
    bookmarkEvery: 60,
    lost: [],
    onLost: () => undefined,
    ask: (request) => answer(server, clock, request),
    reset() {
      for (const { stream } of [...server.watches]) stream.fail(new Error('connection reset'));
    },
  };
  server.objects.onChange((event) => {
    writtenAt.set(event, clock.now());
    for (const watching of server.watches) sendEvent(watching as Watching, event);
  });
  return server;
}

/** When each change was written, Unix seconds. */
const writtenAt = new WeakMap<Event, number>();

/** The version that a server has reached which is some seconds behind. */
function versionOf({ objects }: FakeServer, now: number, behind: number): number {
  const version = objects.version();
  if (behind === 0) return version;
  const news = objects.history().find((event) => (writtenAt.get(event) ?? 0) > now - behind);
  return news === undefined ? version : Math.min(version, news.version - 1);
}

async function answer(server: FakeServer, clock: Clock, request: ApiRequest): Promise<ApiAnswer> {
  await Promise.resolve();
  request.signal.throwIfAborted();
  const [, namespace, named = '', name] = paths.exec(request.path) ?? [];
  const resource = resourceOf.get(named) ?? null;
  const watching = request.query.watch === 'true';
  const reads = watching ? 'watch' : name === undefined ? 'list' : 'get';
  const writes = request.patch === true ? 'patch' : 'create';
  const verb = request.body === undefined ? reads : writes;
  const asked: Asked = { resource, verb, request, at: clock.now(), behind: 0 };
  server.asked.push(asked);
  const instead = server.faults.before(asked);
  if (instead === 'reset') throw new Error('connection reset');
  if (instead === 'hang') return hang(request.signal);
  if (instead !== null) return instead;
  if (request.path === '/version') {
    return jsonAnswer(server, { major: '1', gitVersion: server.version });
  }
  const review = reviewed(server.tokens, request);
  if (review !== null) return { ...jsonAnswer(server, review), status: 201 };
  if (request.body !== undefined) return writeEvent(server, request, request.body);
  if (resource === null) return statusAnswer(404, 'NotFound', 'not found');
  const place = `${verb} ${resource} in ${namespace ?? '*'}`;
  if ([`${verb} ${resource}`, place].some((what) => server.faults.forbidden.has(what))) {
    const user = 'User "auditor"';
    const message = `${resource} is forbidden: ${user} cannot ${verb} resource "${resource}"`;
    return statusAnswer(403, 'Forbidden', message);
  }
  const behind = (asked.behind = server.faults.replica());
  const within = namespace ?? null;
  if (watching) return watch(server, clock, [resource, within], request, behind);
  if (name !== undefined) {
    return get(server, resource, namespace === undefined ? name : `${namespace}/${name}`, request);
  }
  return list(server, resource, within, request.query, clock.now(), behind);
}

function hang(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
  });
}

const jsonAnswer = (server: FakeServer, value: object): ApiAnswer => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: bodyOf(server, JSON.stringify(value)),
});

function get(
  server: FakeServer,
  resource: Resource,
  key: string,
  { accept }: ApiRequest,
): ApiAnswer {
  const raw = server.objects.get(resource, key);
  if (raw === undefined) return statusAnswer(404, 'NotFound', `"${key}" not found`);
  const isPartial = accept.includes('as=PartialObjectMetadata');
  const partial = { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1' };
  return jsonAnswer(server, isPartial ? { ...partial, metadata: raw.metadata } : raw);
}

/** Creates an Event, or merges a patch into it; the rules are those of the API server. */
function writeEvent(
  server: FakeServer,
  { path, patch = false }: ApiRequest,
  body: string,
): ApiAnswer {
  const [, namespace, name] =
    /^\/apis\/events\.k8s\.io\/v1\/namespaces\/([^/]+)\/events(?:\/([^/]+))?$/.exec(path) ?? [];
  if (namespace === undefined) return statusAnswer(405, 'MethodNotAllowed');
  const verb = patch ? 'patch' : 'create';
  if (server.faults.forbidden.has(`${verb} events`)) return statusAnswer(403, 'Forbidden');
  const given = JSON.parse(body) as Raw;
  const key = `${namespace}/${name ?? given.metadata.name}`;
  const before = server.events.get(key);
  if (verb === 'create') {
    if (before !== undefined) return statusAnswer(409, 'AlreadyExists');
    server.events.set(key, given);
    return { ...jsonAnswer(server, given), status: 201 };
  }
  if (before === undefined) return statusAnswer(404, 'NotFound');
  server.events.set(key, { ...before, ...given });
  return jsonAnswer(server, given);
}

// --- reviews of tokens and of permissions ---

/** Whose a token is, and what its owner may get. */
interface Account {
  readonly username: string;
  /** Empty: only the API server. */
  readonly audience?: string;
  readonly extra?: Readonly<Record<string, readonly string[]>>;
  readonly paths?: readonly string[];
}

interface Review {
  readonly kind: string;
  readonly spec: {
    readonly token?: string;
    readonly audiences?: readonly string[];
    readonly user?: string;
    readonly nonResourceAttributes?: { readonly path: string; readonly verb: string };
  };
}

/** The answer to a review; `null`: the request is none. */
function reviewed(
  tokens: ReadonlyMap<string, Account>,
  { path, body }: Pick<ApiRequest, 'path' | 'body'>,
): object | null {
  if (body === undefined) return null;
  const review = JSON.parse(body) as Review;
  const { spec } = review;
  if (path === '/apis/authentication.k8s.io/v1/tokenreviews') {
    const account = tokens.get(spec.token ?? '');
    const wanted = spec.audiences ?? [''];
    const audience = account?.audience ?? '';
    if (account === undefined || !wanted.includes(audience)) {
      return { ...review, status: { authenticated: false, error: 'invalid bearer token' } };
    }
    const { username, extra = {} } = account;
    const user = { username, uid: `uid of ${username}`, groups: ['system:authenticated'], extra };
    return { ...review, status: { authenticated: true, user, audiences: wanted } };
  }
  if (path === '/apis/authorization.k8s.io/v1/subjectaccessreviews') {
    const account = [...tokens.values()].find(({ username }) => username === spec.user);
    const { path: asked = '', verb } = spec.nonResourceAttributes ?? {};
    const allowed = verb === 'get' && account?.paths?.includes(asked) === true;
    return { ...review, status: { allowed } };
  }
  return null;
}

// --- lists ---

function matches(query: ApiRequest['query'], { raw }: Stored): boolean {
  const pairs = (query.labelSelector ?? '').split(',').filter((pair) => pair !== '');
  const labels = raw.metadata.labels ?? {};
  const field = /^metadata\.name=(.*)$/.exec(query.fieldSelector ?? '')?.[1];
  return (
    (field === undefined || raw.metadata.name === field) &&
    pairs.every((pair) => {
      const [key = '', value = ''] = pair.split('=');
      return labels[key] === value;
    })
  );
}

/** A page of a list; the continue token has the next key and the version of the list. */
function list(
  server: FakeServer,
  resource: Resource,
  namespace: string | null,
  query: ApiRequest['query'],
  now: number,
  behind: number,
): ApiAnswer {
  const { objects, faults } = server;
  const lag = now < faults.lag.until ? faults.lag.versions : 0;
  let at = versionOf(server, now, behind) - lag;
  let from = '';
  if (query.continue !== undefined) {
    const token = JSON.parse(query.continue) as { at: number; from: string };
    ({ at, from } = token);
    if (objects.after(at) === null) {
      return statusAnswer(410, 'Expired', 'The provided continue parameter is too old');
    }
  }
  const all = objects
    .list(resource, at)
    .filter((one) => isWatched({ namespace }, one))
    .filter((one) => one.key >= from && matches(query, one));
  const limit =
    query.limit === undefined ? all.length : Math.min(Number(query.limit), faults.pageSize);
  const next = all[limit];
  const metadata: Record<string, string> = { resourceVersion: String(at) };
  if (next !== undefined) metadata.continue = JSON.stringify({ at, from: next.key });
  return jsonAnswer(server, {
    kind: `${kindOf[resource]}List`,
    apiVersion: apiVersionOf(resource),
    metadata,
    items: all
      .slice(0, limit)
      .map(({ raw }) => ({ ...raw, kind: undefined, apiVersion: undefined })),
  });
}

// --- watches ---

interface Watching extends Watch {
  readonly server: FakeServer;
  /** Frames up to this version are not sent: the client has them. */
  from: number;
  frozen: boolean;
  held: string | null;
  delayed: string[];
  overtaken: string[];
  /** The version of the newest bookmark: the client does not ask for what is older. */
  announced: number;
  readonly clock: Clock;
}

function watch(
  server: FakeServer,
  clock: Clock,
  [resource, namespace]: readonly [Resource, string | null],
  request: ApiRequest,
  behind: number,
): ApiAnswer {
  const { query } = request;
  const initial = query.sendInitialEvents === 'true';
  if (initial && !server.watchList) {
    const message = 'sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch';
    return statusAnswer(422, 'Invalid', message);
  }
  const current = versionOf(server, clock.now(), behind);
  const from = initial ? current : Number(query.resourceVersion);
  const missed = server.objects.after(from);
  const stream = createStream(request.signal);
  const watching = newWatching({ server, resource, namespace, stream, from, behind, clock });
  if (missed === null) {
    watching.refuse(statusOf(410, 'Expired', `too old resource version: ${from}`));
  } else {
    server.watches.add(watching);
    if (server.faults.starved.has(resource)) watching.freeze();
    if (initial) sendInitial(watching);
    for (const event of missed) sendEvent(watching, event);
    keepTime(watching, clock, Number(query.timeoutSeconds ?? '3600'));
  }
  const headers = { 'content-type': 'application/json' };
  return { status: 200, headers, body: stream };
}

function newWatching(
  made: Pick<
    Watching,
    'server' | 'resource' | 'namespace' | 'stream' | 'from' | 'behind' | 'clock'
  >,
): Watching {
  const { stream } = made;
  const watching: Watching = {
    ...made,
    spoils: [],
    frozen: false,
    held: null,
    delayed: [],
    overtaken: [],
    announced: 0,
    freeze: () => (watching.frozen = true),
    heal() {
      watching.spoils.length = 0;
      release(watching);
      sendDelayed(watching);
      if (watching.behind > 0) stream.end();
    },
    refuse(status) {
      send(watching, JSON.stringify({ type: 'ERROR', object: status }));
      if (!watching.frozen) stream.end();
    },
  };
  stream.onClose(() => {
    for (const frame of watching.delayed.splice(0)) loseAnnounced(watching, frame);
  });
  return watching;
}

const isWatched = ({ namespace }: Pick<Watch, 'namespace'>, { raw }: Stored): boolean =>
  namespace === null || raw.metadata.namespace === namespace;

function sendEvent(watching: Watching, event: Event): void {
  const { clock, behind, resource, stream } = watching;
  if (event.resource !== resource || !isWatched(watching, event)) return;
  const sendNow = () => {
    if (event.version <= watching.from) return;
    watching.from = event.version;
    send(watching, JSON.stringify({ type: event.type, object: event.raw }));
  };
  const wait = behind === 0 ? 0 : (writtenAt.get(event) ?? 0) + behind - clock.now();
  if (wait <= 0) sendNow();
  else stream.onClose(clock.after(wait, sendNow));
}

function sendInitial(watching: Watching): void {
  const { server, resource, from } = watching;
  const isSent = (one: Stored): boolean => isWatched(watching, one);
  for (const { raw } of server.objects.list(resource, from).filter(isSent)) {
    send(watching, JSON.stringify({ type: 'ADDED', object: raw }));
  }
  const { initialEnd } = server.faults;
  if (initialEnd === 'missing') return;
  const end = bookmarkOf(watching, from - (initialEnd === 'low' ? 3 : 0), {
    'k8s.io/initial-events-end': 'true',
  });
  send(watching, end);
  if (initialEnd === 'twice') send(watching, end);
}

function bookmarkOf({ resource }: Watching, version: number, annotations?: object): string {
  const metadata = { resourceVersion: String(version), annotations };
  const object = { kind: kindOf[resource], apiVersion: apiVersionOf(resource), metadata };
  return JSON.stringify({ type: 'BOOKMARK', object });
}

function sendBookmark(watching: Watching): void {
  const { server, from, clock, behind } = watching;
  const version = versionOf(server, clock.now(), behind);
  if (version < from) return;
  watching.from = version;
  release(watching);
  announce(watching, version);
}

function announce(watching: Watching, version: number): void {
  watching.announced = version;
  send(watching, bookmarkOf(watching, version));
}

function send(watching: Watching, frame: string): void {
  if (watching.frozen) return;
  const isEvent = /^\{"type":"(?:ADDED|MODIFIED|DELETED)"/.test(frame);
  if (watching.delayed.length > 0 && isEvent) {
    delay(watching, frame);
    return;
  }
  const [next] = watching.spoils;
  const isKept = !isEvent && (next === 'lost' || next === 'early');
  const spoil = isKept ? undefined : watching.spoils.shift();
  if (spoil === 'lost') {
    lose(watching, frame);
    return;
  }
  if (spoil === 'early') {
    announce(watching, watching.from);
    delay(watching, frame);
    const { clock, from, stream } = watching;
    stream.onClose(clock.after(1 + (from % 10), () => sendDelayed(watching)));
    return;
  }
  const swaps = watching.held === null && !frame.startsWith('{"type":"BOOKMARK"');
  if (spoil === 'swapped' && swaps) {
    watching.held = frame;
    return;
  }
  const text = spoil === 'garbled' ? frame.replace('"metadata":{', '"metadata":x') : frame;
  write(watching, spoil === 'cut' ? text.slice(0, text.length / 2) : `${text}\n`);
  if (isEvent && (spoil === 'cut' || spoil === 'garbled')) loseAnnounced(watching, frame);
  if (spoil === 'cut') watching.stream.end();
  if (spoil === 'twice') write(watching, `${text}\n`);
  release(watching);
}

export function eventOf(frame: string): Pick<LostEvent, 'key' | 'version' | 'type'> {
  const { type, object } = JSON.parse(frame) as { type: LostEvent['type']; object: Raw };
  const { metadata } = object;
  return { type, key: keyOf(metadata), version: Number(metadata.resourceVersion) };
}

/** Notes an event that was not sent. */
function lose({ server, resource }: Watching, frame: string): void {
  const event = { resource, ...eventOf(frame) };
  server.lost.push(event);
  server.onLost(event);
}

/** Notes an event that arrives never, if the client asks only for what is newer. */
function loseAnnounced(watching: Watching, frame: string): void {
  if (eventOf(frame).version <= watching.announced) lose(watching, frame);
}

function delay({ delayed, overtaken }: Watching, frame: string): void {
  delayed.push(frame);
  overtaken.push(frame);
}

function sendDelayed(watching: Watching): void {
  if (watching.frozen) return;
  for (const frame of watching.delayed.splice(0)) {
    if (watching.stream.closed) loseAnnounced(watching, frame);
    else send(watching, frame);
  }
}

/** Sends the frame that another was to overtake. */
function release(watching: Watching): void {
  const { held } = watching;
  watching.held = null;
  if (held !== null) write(watching, `${held}\n`);
}

function write({ server, stream }: Watching, text: string): void {
  for (const chunk of server.faults.chunks(Buffer.from(text))) stream.write(chunk);
}

function keepTime(watching: Watching, clock: Clock, timeout: number): void {
  const { server, stream } = watching;
  let cancelBookmark: () => void = () => undefined;
  const bookmark = () => {
    sendBookmark(watching);
    if (!stream.closed) cancelBookmark = clock.after(server.bookmarkEvery, bookmark);
  };
  cancelBookmark = clock.after(server.bookmarkEvery, bookmark);
  const cancelEnd = clock.after(timeout, () => {
    if (!watching.frozen) stream.end();
  });
  stream.onClose(() => {
    server.watches.delete(watching);
    cancelBookmark();
    cancelEnd();
  });
}

// Time for tests: a clock that waits until every possible step has happened, and then
// jumps to the next timer. What runs on it is deterministic, and hours cost milliseconds.

export interface Clock {
  /** Unix seconds. */
  now(): number;
  /** Calls back once after a number of seconds; returns a function that cancels it. */
  after(seconds: number, call: () => void): () => void;
}

export interface VirtualClock extends Clock {
  /** Resolves after a number of seconds, or as soon as the signal is aborted. */
  sleep(seconds: number, signal?: AbortSignal): Promise<void>;
  /** Lets time pass, to this moment. */
  runUntil(at: number): Promise<void>;
  /** How many timers are set. */
  pending(): number;
}

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly call: () => void;
}

/** Everything that waits for a promise that is settled has run. */
const idle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export function virtualClock(start = 1_700_000_000): VirtualClock {
  let now = start;
  let order = 0;
  const timers: Timer[] = []; // the next one last
  const after = (seconds: number, call: () => void) => {
    const timer = { at: now + Math.max(seconds, 0), order: order++, call };
    let place = timers.length;
    while (place > 0 && (timers[place - 1]?.at ?? 0) <= timer.at) place--;
    timers.splice(place, 0, timer);
    return () => {
      const index = timers.indexOf(timer);
      if (index >= 0) timers.splice(index, 1);
    };
  };
  return {
    now: () => now,
    after,
    sleep: (seconds, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted === true) {
          resolve();
          return;
        }
        const done = () => {
          cancel();
          signal?.removeEventListener('abort', done);
          resolve();
        };
        const cancel = after(seconds, done);
        signal?.addEventListener('abort', done);
      }),
    async runUntil(at) {
      await idle();
      for (let next = timers.at(-1); next !== undefined && next.at <= at; next = timers.at(-1)) {
        timers.pop();
        now = next.at;
        next.call();
        await idle();
      }
      now = Math.max(now, at);
    },
    pending: () => timers.length,
  };
}

/** The machine's own time. */
export const realClock: Clock = {
  now: () => Date.now() / 1000,
  after(seconds, call) {
    const timer = setTimeout(call, seconds * 1000);
    return () => clearTimeout(timer);
  },
};

// The versioned store of the fake API server: objects as the API writes them, the history of their
// changes as far as it is not compacted, and the one sequence of versions of them all.

interface RawMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  labels?: Record<string, string>;
  [field: string]: unknown;
}

export interface Raw {
  metadata: RawMeta;
  [field: string]: unknown;
}

interface Stored {
  readonly resource: Resource;
  readonly key: string;
  readonly version: number;
  readonly raw: Raw;
}

/** One change; `raw` has the version of the change, also where it is a deletion. */
export interface Event extends Stored {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
}

export interface Saved {
  readonly version: number;
  readonly objects: ReadonlyMap<string, Stored>;
}

interface Objects {
  /** The latest version of all. */
  version(): number;
  /** Creates or replaces, with a new version, and a new uid where it is created. */
  readonly put: (resource: Resource, raw: Raw) => Raw;
  /** False when there is no such object. */
  remove(resource: Resource, key: string): boolean;
  get(resource: Resource, key: string): Raw | undefined;
  /** Sorted by key, as etcd has them; as they were at a version that is not compacted. */
  readonly list: (resource: Resource, at?: number) => readonly Stored[];
  /** Changes after a version; null when they are compacted. */
  readonly after: (version: number) => readonly Event[] | null;
  /** Forgets the history up to now. */
  compact(): void;
  /** Every change, oldest first; also those that are compacted. */
  history(): readonly Event[];
  /** Forgets all events; watches that begin at an old version have expired. */
  forget(): void;
  save(): Saved;
  /** The history goes back to what was saved, as when etcd is restored from a backup. */
  restore(saved: Saved): void;
  /** Calls back after every change. */
  onChange(call: (event: Event) => void): void;
}

const apiVersions: Partial<Record<Resource, string>> = { endpointslices: 'discovery.k8s.io/v1' };

const kindOf: Readonly<Record<Resource, string>> = {
  nodes: 'Node',
  services: 'Service',
  pods: 'Pod',
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlice',
};

const apiVersionOf = (resource: Resource): string => apiVersions[resource] ?? 'v1';

export const keyOf = ({ namespace, name }: RawMeta): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

interface ObjectsState {
  objects: Map<string, Stored>;
  history: Event[];
  compacted: number;
  version: number;
  uids: number;
  readonly listeners: ((event: Event) => void)[];
}

function record(state: ObjectsState, event: Event): void {
  state.history.push(event);
  for (const call of state.listeners) call(event);
}

function put(state: ObjectsState, resource: Resource, draft: Raw): Raw {
  const key = keyOf(draft.metadata);
  const place = `${resource} ${key}`;
  const before = state.objects.get(place);
  const uid = before?.raw.metadata.uid ?? `uid-${++state.uids}`;
  const version = ++state.version;
  const raw: Raw = {
    kind: kindOf[resource],
    apiVersion: apiVersionOf(resource),
    ...draft,
    metadata: { ...draft.metadata, uid, resourceVersion: String(version) },
  };
  const type = before === undefined ? 'ADDED' : 'MODIFIED';
  state.objects.set(place, { resource, key, version, raw });
  record(state, { resource, key, version, raw, type });
  return raw;
}

function remove(state: ObjectsState, resource: Resource, key: string): boolean {
  const place = `${resource} ${key}`;
  const before = state.objects.get(place);
  if (before === undefined) return false;
  state.objects.delete(place);
  const version = ++state.version;
  const metadata = { ...before.raw.metadata, resourceVersion: String(version) };
  const raw = { ...before.raw, metadata };
  record(state, { resource, key, version, raw, type: 'DELETED' });
  return true;
}

function listAt(state: ObjectsState, resource: Resource, at: number): readonly Stored[] {
  const objects = new Map(state.objects);
  for (const event of state.history.filter(({ version }) => version > at).reverse()) {
    const place = `${event.resource} ${event.key}`;
    const before = state.history.findLast(
      (other) => other.version < event.version && `${other.resource} ${other.key}` === place,
    );
    if (before === undefined || before.type === 'DELETED') objects.delete(place);
    else objects.set(place, before);
  }
  return [...objects.values()]
    .filter((one) => one.resource === resource)
    .sort((a, b) => (a.key < b.key ? -1 : 1));
}

function createObjects(): Objects {
  const state: ObjectsState = {
    objects: new Map(),
    history: [],
    compacted: 0,
    version: 100,
    uids: 0,
    listeners: [],
  };
  return {
    version: () => state.version,
    put: (resource, raw) => put(state, resource, raw),
    remove: (resource, key) => remove(state, resource, key),
    get: (resource, key) => state.objects.get(`${resource} ${key}`)?.raw,
    list: (resource, at = state.version) => listAt(state, resource, at),
    after: (version) =>
      version < state.compacted ? null : state.history.filter((one) => one.version > version),
    compact() {
      // Older versions stay for listAt: a lagging server answers from its memory.
      state.compacted = state.version;
    },
    history: () => state.history,
    forget() {
      state.compacted = state.version;
      state.history = [];
    },
    save: () => ({ version: state.version, objects: new Map(state.objects) }),
    restore(saved) {
      state.objects = new Map(saved.objects);
      state.version = saved.version;
      state.history = state.history.filter(({ version }) => version <= saved.version);
      state.compacted = saved.version;
    },
    onChange: (call) => void state.listeners.push(call),
  };
}

// The body of an answer that is written while it is read.

export interface Stream extends AsyncIterable<Uint8Array> {
  write(chunk: Uint8Array): void;
  end(): void;
  fail(error: Error): void;
  /** The reader has gone, or the stream has ended. */
  readonly closed: boolean;
  /** Calls back once the stream is closed by either side. */
  onClose(call: () => void): void;
}

interface StreamState {
  readonly chunks: Uint8Array[];
  readonly calls: (() => void)[];
  ended: boolean;
  closed: boolean;
  error: Error | null;
  wake: (() => void) | null;
}

function close(state: StreamState): void {
  if (state.closed) return;
  state.closed = true;
  for (const call of state.calls) call();
}

function finish(state: StreamState, error: Error | null): void {
  if (state.ended) return;
  state.ended = true;
  state.error = error;
  close(state);
  state.wake?.();
}

async function* read(state: StreamState): AsyncGenerator<Uint8Array> {
  try {
    while (true) {
      const chunk = state.chunks.shift();
      if (chunk !== undefined) {
        yield chunk;
        continue;
      }
      if (state.error !== null) throw state.error;
      if (state.ended) return;
      await new Promise<void>((resolve) => (state.wake = resolve));
      state.wake = null;
    }
  } finally {
    finish(state, null);
  }
}

/** A stream; when the signal is aborted its reader gets an error. */
export function createStream(signal: AbortSignal): Stream {
  const state: StreamState = {
    chunks: [],
    calls: [],
    ended: false,
    closed: false,
    error: null,
    wake: null,
  };
  const abort = () => finish(state, new Error('aborted'));
  signal.addEventListener('abort', abort);
  state.calls.push(() => signal.removeEventListener('abort', abort));
  return {
    [Symbol.asyncIterator]: () => read(state),
    write(chunk) {
      if (state.ended) return;
      state.chunks.push(chunk);
      state.wake?.();
    },
    end: () => finish(state, null),
    fail: (error) => finish(state, error),
    get closed() {
      return state.closed;
    },
    onClose: (call) => void state.calls.push(call),
  };
}

// The fake API server behind real sockets: TLS with HTTP/2 and HTTP/1.1, or plain HTTP, on
// loopback; and a relay before it that can stop to relay, as a network does that has lost one of
// its ends.

export interface Listener {
  readonly port: number;
  /** The headers of every request, and the protocol that it came by. */
  readonly requests: { readonly headers: IncomingHttpHeaders; readonly protocol: string }[];
  /** The common names of the certificates that clients have shown. */
  readonly clients: (string | undefined)[];
  /** Ends all connections at once. */
  readonly drop: () => void;
  readonly close: () => Promise<void>;
}

type KeyName = 'server' | 'other';

/** The path of a certificate, or of its key. */
export const keyPath = (name: KeyName, what: 'crt' | 'key'): string =>
  join(import.meta.dirname, `${name}.${what}`);

export interface ListenOptions {
  readonly protocols?: 'h2' | 'http/1.1' | 'plain';
  readonly key?: KeyName;
  /** A free port without it. */
  readonly port?: number;
  /** Answers 401 to every other token. */
  readonly token?: () => string;
}

function serverFor({ protocols, key = 'server' }: ListenOptions): Http2SecureServer | HttpServer {
  if (protocols === 'plain') return createHttp();
  const options = {
    key: readFileSync(keyPath(key, 'key')),
    cert: readFileSync(keyPath(key, 'crt')),
    requestCert: true,
    rejectUnauthorized: false,
  };
  return protocols === 'http/1.1'
    ? createHttps(options)
    : createSecureServer({ ...options, allowHTTP1: true });
}

/** Listens on a free port of loopback and answers as `ask` does. */
export async function listen(ask: Ask, options: ListenOptions = {}): Promise<Listener> {
  const server: Server = serverFor(options);
  const sockets = new Set<Socket>();
  const requests: Listener['requests'] = [];
  const clients: Listener['clients'] = [];
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
  });
  server.on('secureConnection', (socket: { getPeerCertificate: () => Certificate }) => {
    clients.push(socket.getPeerCertificate().subject?.CN);
  });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    requests.push({ headers: request.headers, protocol: request.httpVersion });
    const { authorization } = request.headers;
    if (options.token !== undefined && authorization !== `Bearer ${options.token()}`) {
      response.writeHead(401, { 'content-type': 'application/json' });
      response.end('{"kind":"Status","code":401}');
      return;
    }
    void answerRequest(ask, request, response);
  });
  const drop = () => {
    for (const socket of sockets) socket.destroy();
  };
  const port = await portOf(server, options.port);
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      drop();
    });
  return { port, requests, clients, drop, close };
}

interface Certificate {
  readonly subject?: { readonly CN?: string };
}

function portOf(server: Server, port = 0): Promise<number> {
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

/** HTTP/2's request and response are used as those of HTTP/1.1, which they imitate. */
async function answerRequest(
  ask: Ask,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const url = new URL(request.url ?? '/', 'https://localhost');
  const controller = new AbortController();
  response.on('close', () => controller.abort());
  const query = Object.fromEntries(url.searchParams);
  const accept = request.headers.accept ?? '';
  try {
    const got = await ask({ path: url.pathname, query, accept, signal: controller.signal });
    for (const [name, value] of Object.entries(got.headers))
      if (value !== undefined) response.setHeader(name, value);
    response.statusCode = got.status;
    response.flushHeaders();
    for await (const chunk of got.body) {
      if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve));
    }
    response.end();
  } catch {
    // A lost connection: the client must not take the received part for a complete answer.
    const { stream } = response as { stream?: Http2ServerResponse['stream'] };
    if (stream !== undefined) stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    else response.socket?.destroy();
  }
}

interface Relay {
  readonly port: number;
  /** Nothing passes any more, and neither side notices. */
  readonly freeze: () => void;
  readonly connections: () => number;
  readonly close: () => Promise<void>;
}

/** Relays connections to a port of loopback. */
export async function relay(to: number): Promise<Relay> {
  const sockets = new Set<Socket>();
  let frozen = false;
  let connections = 0;
  const server = createTcp((near) => {
    connections++;
    const far = connect(to, '127.0.0.1');
    for (const [from, into] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('data', (chunk) => {
        if (!frozen) into.write(chunk);
      });
      from.on('close', () => {
        sockets.delete(from);
        if (!frozen) into.destroy();
      });
      from.on('error', () => undefined);
    }
  });
  const port = await portOf(server);
  return {
    port,
    freeze: () => (frozen = true),
    connections: () => connections,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}
