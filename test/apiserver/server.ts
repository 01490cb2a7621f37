// A fake API server: lists in pages, watches with bookmarks and timeouts, WatchList, over the five
// resources, as kube-apiserver v1.36.3 answers them (staging/src/k8s.io/apiserver
// pkg/endpoints/handlers/get.go, pkg/storage/cacher/cacher.go). It has no sockets and no time of
// its own: `ask` is called in process, or by listen.ts for requests over TLS.
//
// Faults come on demand. `faults.before` may answer any request in the server's place; every watch
// that runs is in `watches`, where it can be cut, frozen, or have its next frame spoilt.

import type { ApiAnswer, ApiRequest } from '../../src/cluster/api/transport/api-request.ts';
import type { Resource } from '../../src/model/objects.ts';
import type { Clock } from './clock.ts';
import type { Event, Objects, Stored } from './objects.ts';
import { apiVersionOf, createObjects, kindOf } from './objects.ts';
import type { Stream } from './stream.ts';
import { createStream } from './stream.ts';

/** How the next frame of a watch is spoilt. */
export type Spoil = 'garbled' | 'cut' | 'twice' | 'swapped';

export interface Watch {
  readonly resource: Resource;
  readonly stream: Stream;
  /** Spoils the next frames, one each. */
  readonly spoils: Spoil[];
  readonly frozen: boolean;
  /** A frame that the next one is to overtake. */
  readonly held: string | null;
  /** No byte comes any more, and no error, as over a connection whose peer has gone. */
  freeze(): void;
  /** Sends an error event and ends. */
  refuse(status: object): void;
  /** Sends what it holds back, and spoils nothing any more. */
  heal(): void;
}

export interface Asked {
  readonly resource: Resource | null;
  readonly verb: 'list' | 'watch' | 'get';
  readonly request: ApiRequest;
  /** Unix seconds. */
  readonly at: number;
}

/** An answer in the server's place; `hang`: none ever; `reset`: the connection is lost. */
export type Instead = ApiAnswer | 'hang' | 'reset' | null;

export interface Faults {
  before: (asked: Asked) => Instead;
  /** `verb resource` that the client has no permission for. */
  readonly forbidden: Set<string>;
  /** How many versions behind the server answers lists, and until when; a real one does not. */
  lag: { readonly versions: number; readonly until: number };
  /** The most items of a page, whatever the limit. */
  pageSize: number;
  /** Cuts a body into chunks. */
  chunks: (bytes: Uint8Array) => Iterable<Uint8Array>;
}

export interface FakeServer {
  readonly objects: Objects;
  readonly faults: Faults;
  readonly watches: Set<Watch>;
  /** Every request, oldest first. */
  readonly asked: Asked[];
  /** The release that /version reports. */
  version: string;
  /** Whether it knows sendInitialEvents. */
  watchList: boolean;
  /** Seconds between bookmarks. */
  bookmarkEvery: number;
  readonly ask: (request: ApiRequest) => Promise<ApiAnswer>;
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

const place =
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
    body: (async function* () {
      await Promise.resolve();
      yield Buffer.from(content);
    })(),
  };
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
    },
    watches: new Set(),
    asked: [],
    version: 'v1.36.3',
    watchList: true,
    bookmarkEvery: 60,
    ask: (request) => answer(server, clock, request),
    reset() {
      for (const { stream } of [...server.watches]) stream.fail(new Error('connection reset'));
    },
  };
  server.objects.onChange((event) => {
    for (const watching of server.watches) sendEvent(watching as Watching, event);
  });
  return server;
}

async function answer(server: FakeServer, clock: Clock, request: ApiRequest): Promise<ApiAnswer> {
  await Promise.resolve();
  const [, namespace, named = '', name] = place.exec(request.path) ?? [];
  const resource = resourceOf.get(named) ?? null;
  const watching = request.query.watch === 'true';
  const verb = watching ? 'watch' : name === undefined ? 'list' : 'get';
  const asked: Asked = { resource, verb, request, at: clock.now() };
  server.asked.push(asked);
  const instead = server.faults.before(asked);
  if (instead === 'reset') throw new Error('connection reset');
  if (instead === 'hang') return hang(request.signal);
  if (instead !== null) return instead;
  if (request.path === '/version') {
    return jsonAnswer(server, { major: '1', gitVersion: server.version });
  }
  if (resource === null) return statusAnswer(404, 'NotFound', 'not found');
  if (server.faults.forbidden.has(`${verb} ${resource}`)) {
    const user = 'User "auditor"';
    const message = `${resource} is forbidden: ${user} cannot ${verb} resource "${resource}"`;
    return statusAnswer(403, 'Forbidden', message);
  }
  if (watching) return watch(server, clock, resource, request);
  if (name !== undefined) return get(server, resource, `${namespace ?? ''}/${name}`);
  return list(server, resource, namespace ?? null, request.query, clock.now());
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

function get(server: FakeServer, resource: Resource, key: string): ApiAnswer {
  const raw = server.objects.get(resource, key);
  if (raw === undefined) return statusAnswer(404, 'NotFound', `"${key}" not found`);
  return jsonAnswer(server, raw);
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
): ApiAnswer {
  const { objects, faults } = server;
  let at = objects.version() - (now < faults.lag.until ? faults.lag.versions : 0);
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
    .filter((one) => namespace === null || one.raw.metadata.namespace === namespace)
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
}

function watch(
  server: FakeServer,
  clock: Clock,
  resource: Resource,
  request: ApiRequest,
): ApiAnswer {
  const { query } = request;
  const initial = query.sendInitialEvents === 'true';
  if (initial && !server.watchList) {
    const message = 'sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch';
    return statusAnswer(422, 'Invalid', message);
  }
  const from = initial ? server.objects.version() : Number(query.resourceVersion);
  const missed = server.objects.after(from);
  const stream = createStream(request.signal);
  const watching = newWatching(server, resource, stream, from);
  if (missed === null) {
    watching.refuse(statusOf(410, 'Expired', `too old resource version: ${from}`));
  } else {
    server.watches.add(watching);
    if (initial) sendInitial(watching);
    else for (const event of missed) sendEvent(watching, event);
    keepTime(watching, clock, Number(query.timeoutSeconds ?? '3600'));
  }
  const headers = { 'content-type': 'application/json' };
  return { status: 200, headers, body: stream };
}

function newWatching(
  server: FakeServer,
  resource: Resource,
  stream: Stream,
  from: number,
): Watching {
  const watching: Watching = {
    server,
    resource,
    stream,
    spoils: [],
    from,
    frozen: false,
    held: null,
    freeze: () => (watching.frozen = true),
    heal() {
      watching.spoils.length = 0;
      release(watching);
    },
    refuse(status) {
      send(watching, JSON.stringify({ type: 'ERROR', object: status }));
      if (!watching.frozen) stream.end();
    },
  };
  return watching;
}

function sendEvent(watching: Watching, event: Event): void {
  if (event.resource !== watching.resource || event.version <= watching.from) return;
  watching.from = event.version;
  send(watching, JSON.stringify({ type: event.type, object: event.raw }));
}

function sendInitial(watching: Watching): void {
  const { server, resource } = watching;
  for (const { raw } of server.objects.list(resource)) {
    send(watching, JSON.stringify({ type: 'ADDED', object: raw }));
  }
  sendBookmark(watching, { 'k8s.io/initial-events-end': 'true' });
}

function sendBookmark(watching: Watching, annotations?: Record<string, string>): void {
  const { server, resource, from } = watching;
  const version = server.objects.version();
  if (version < from) return;
  watching.from = version;
  const metadata = { resourceVersion: String(version), annotations };
  const object = { kind: kindOf[resource], apiVersion: apiVersionOf(resource), metadata };
  release(watching);
  send(watching, JSON.stringify({ type: 'BOOKMARK', object }));
}

function send(watching: Watching, frame: string): void {
  if (watching.frozen) return;
  const spoil = watching.spoils.shift();
  const swaps = watching.held === null && !frame.startsWith('{"type":"BOOKMARK"');
  if (spoil === 'swapped' && swaps) {
    watching.held = frame;
    return;
  }
  const text = spoil === 'garbled' ? frame.replace('"metadata":{', '"metadata":x') : frame;
  write(watching, spoil === 'cut' ? text.slice(0, text.length / 2) : `${text}\n`);
  if (spoil === 'cut') watching.stream.end();
  if (spoil === 'twice') write(watching, `${text}\n`);
  release(watching);
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
