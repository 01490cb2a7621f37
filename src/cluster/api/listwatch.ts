// One list or one watch of a resource, from the request to its end: it decodes frames, compares
// them with the cache, and delivers changes. The reflector decides what follows.

import type { Key, Pod, Resource, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import { compareVersions, newest } from '../../model/resource-version.ts';
import type { WatchState } from '../decode/entry.ts';
import type { DecodeContext, Frame } from '../decode/frame.ts';
import { objectText } from '../decode/json-objects.ts';
import { type OnProblem, type Problem, problemAt } from '../decode/problem.ts';
import { createBatchQueue, type DeliverBatch } from './batch-queue.ts';
import type { ConnectionReports } from './connection-state.ts';
import { createHeartbeat } from './heartbeat.ts';
import type { ApiAnswer } from './transport/connection.ts';
import { describeFailure, UnexpectedAnswer } from './transport/failure.ts';
import {
  type Environment,
  exchange,
  type RequestLimits,
  silenceSeconds,
} from './transport/request.ts';
import type { CachedObjects, ListFilter, Paging } from './version-filter.ts';
import {
  completeListing,
  isEndless,
  keepUnreadable,
  newListing,
  newPaging,
  takeChange,
  takeItem,
} from './version-filter.ts';
import { acceptOf, codecOf, statusOf } from './watch-codec.ts';
import type { WatchResult, WatchVerb } from './watch-result.ts';
import { failed, newCounters, outcomeOf } from './watch-result.ts';

const paths: Readonly<Record<Resource, string>> = {
  nodes: '/api/v1/nodes',
  services: '/api/v1/services',
  pods: '/api/v1/pods',
  endpoints: '/api/v1/endpoints',
  endpointslices: '/apis/discovery.k8s.io/v1/endpointslices',
};

/** The path of a resource, of one namespace unless it is `null`. */
export const pathOf = (resource: Resource, namespace: string | null): string =>
  namespace === null
    ? paths[resource]
    : paths[resource].replace(/\/\w+$/, `/namespaces/${encodeURIComponent(namespace)}$&`);

export interface ReflectorOptions {
  readonly resource: Resource;
  /** `null`: the whole cluster. */
  readonly namespace: string | null;
  readonly environment: Environment;
  /** The cached objects; they contain the delivered changes once `deliver` has resolved. */
  readonly held: CachedObjects;
  readonly deliver: DeliverBatch;
  readonly onProblem: OnProblem;
  /** Resolves when a list may begin, with what ends its turn. */
  readonly enterGate: () => Promise<() => void>;
  /** Whether to try WatchList before pages. */
  readonly watchList: boolean;
  readonly raw: boolean;
  /** The connection was lost: the server may be another. */
  readonly onLost: () => void;
  readonly connection: ConnectionReports;
}

export type WatchStatus = ReturnType<typeof newStatus>;

export const newStatus = (since: number) => ({
  state: 'listing' as WatchState,
  /** Unix seconds. */
  since,
  counters: newCounters(),
});

export type Following = ReturnType<typeof newFollowing>;

export function newFollowing(options: ReflectorOptions, status: WatchStatus, signal: AbortSignal) {
  const { resource, environment, held, deliver, raw } = options;
  const heartbeat = createHeartbeat(() => environment.monotonic());
  const deliverAlive: DeliverBatch = (entries) => {
    heartbeat.beat();
    return deliver(entries);
  };
  const delivery = createBatchQueue(environment, held, deliverAlive, signal);
  const previousPod = (key: Key) => delivery.current.get(key) as Pod | undefined;
  const reading: DecodeContext = { resource, now: () => environment.now(), previousPod, raw };
  return {
    ...options,
    path: pathOf(resource, options.namespace),
    signal,
    /** Ends the request that runs. */
    cut: new AbortController(),
    status,
    counters: status.counters,
    delivery,
    reading,
    heartbeat,
    /** Whether it waits for its turn to list, or lists. */
    turn: 'none' as 'none' | 'waiting' | 'listing',
    /** All up to it has been delivered; null: no list was complete yet. */
    version: null as string | null,
    needsList: true,
    /** Whether an event was lost; the monotonic time after which that leads to a list. */
    gap: { isOpen: false, after: -Infinity, pause: 0 },
    /** Monotonic time until which pages are listed, since a WatchList did not end. */
    pagesUntil: -Infinity,
    paging: null as Paging | null,
    /** Answers in a row that were older than what is known, and monotonic time of the first. */
    doubts: 0,
    doubtedAt: 0,
    /** Whether the server must show its version before the next watch. */
    suspicious: false,
    /** Monotonic times: of the last version from the server, and of the last complete list. */
    provenAt: 0,
    listedAt: -Infinity,
    /** The answer that is read, and the monotonic time when its watch began; null: a list. */
    answer: { place: '', began: null as number | null, bad: 0 },
    /** Where frames could not be decoded, and how many are skipped there. */
    passed: { place: '', count: 0 },
    /** Failures in a row, and the monotonic time of the last. */
    failures: 0,
    failedAt: -Infinity,
    /** Missing permissions in a row, and the one that was reported. */
    denials: 0,
    denied: '',
  };
}

/** Older answers before one is believed that the history went back, and seconds since the first. */
const doubt = { answers: 2, seconds: 5 } as const;

/** Lists by pages, from where an earlier attempt was interrupted. */
export async function list(following: Following): Promise<WatchResult> {
  const before = following.paging;
  // A first page that is asked for again may be of another moment: what it listed may be gone.
  if (before?.next === '') following.paging = newPaging(listingOf(following), before.limit);
  while (true) {
    const paging = (following.paging ??= newPaging(listingOf(following), 500));
    const outcome = await readPage(following, paging);
    if (outcome?.kind === 'relist' && paging.limit !== null) {
      // The continue token is too old. As upstream's pager does: all in one page then.
      following.counters.relists[outcome.reason]++;
      following.paging = newPaging(listingOf(following), null);
      continue;
    }
    if (outcome !== null) return outcome;
    if (paging.next !== '') {
      if (!isEndless(paging)) continue;
      const message = `the list of ${following.resource} does not end after ${paging.pages} pages`;
      return giveUp(following, 'endless', { ...otherAnswer(), message });
    }
    const ended = await complete(following, paging.listing, paging.version ?? '');
    return ended ?? { kind: 'listed' };
  }
}

const listingOf = ({ delivery, version, doubts }: Following): ListFilter =>
  newListing(delivery.current, version, doubts > 0);

/** null: the page is complete. */
async function readPage(following: Following, paging: Paging): Promise<WatchResult | null> {
  const query = {
    ...(paging.limit === null ? {} : { limit: String(paging.limit) }),
    ...(paging.next === '' ? {} : { continue: paging.next }),
  };
  following.answer = { place: `page ${paging.next}`, began: null, bad: 0 };
  const ends: Extract<Frame, { kind: 'page' }>[] = [];
  const { counters } = following;
  const countNew = () => counters.unreadable + (paging.listing.seen?.size ?? counters.events);
  const before = countNew();
  const outcome = await ask(following, 'list', query, {}, (frame) => {
    if (frame.kind !== 'page') return take(following, frame, paging.listing);
    ends.push(frame);
    return null;
  });
  if (outcome !== null) return outcome;
  const page = ends.at(-1);
  if (page === undefined) return failed('reset');
  counters.pages++;
  paging.pages++;
  paging.version ??= page.version;
  paging.next = page.next;
  paging.barren = countNew() > before ? 0 : paging.barren + 1;
  return null;
}

const otherAnswer = () => describeFailure(new UnexpectedAnswer(200, ''));

/** The answer is not what was asked for, so the listed objects may be others, too. */
function giveUp(
  following: Following,
  reason: 'status' | 'endless',
  failure = otherAnswer(),
): WatchResult {
  following.paging = null;
  following.connection.failed(following.resource, failure);
  return failed(reason);
}

/** Asks the server for its version; null: it is not older than what is known. */
export async function prove(following: Following): Promise<WatchResult | null> {
  let version = '';
  const outcome = await ask(following, 'list', { limit: '1' }, {}, (frame) => {
    if (frame.kind === 'page') ({ version } = frame);
    return null;
  });
  if (outcome !== null) return outcome;
  if (compareVersions(version, following.version ?? '') === -1) {
    doubtOnce(following);
    return { kind: 'relist', reason: 'reset' };
  }
  // What cannot be read must not keep it from watching.
  const provenAt = following.environment.monotonic();
  Object.assign(following, { provenAt, doubts: 0, suspicious: false });
  return null;
}

function doubtOnce(following: Following): void {
  if (following.doubts === 0) following.doubtedAt = following.environment.monotonic();
  following.doubts++;
}

/** Delivers what a complete list changes; not null: it is older than what is known. */
async function complete(following: Following, listing: ListFilter, version: string) {
  const { delivery, environment, resource, counters, doubts, doubtedAt } = following;
  const older = compareVersions(version, listing.known ?? '') === -1;
  const isTrusted = doubts >= doubt.answers && environment.monotonic() - doubtedAt >= doubt.seconds;
  following.paging = null;
  if (older && !isTrusted) {
    doubtOnce(following);
    return failed('older');
  }
  await delivery.flush(); // the cache must be complete before objects are removed
  const at = environment.now();
  for (const event of completeListing(listing, { resource, at }, older)) {
    if (event !== null) deliver(following, [event]);
    if (delivery.isDue()) await delivery.breathe();
  }
  delivery.addUnlisted(listing.seen, at);
  const now = environment.monotonic();
  Object.assign(following, { version, needsList: false, listedAt: now, provenAt: now });
  Object.assign(following, { doubts: 0, suspicious: false });
  counters.lists++;
  following.connection.succeeded(resource);
  delivery.add({ kind: 'synced', at, resource });
  delivery.add({ kind: 'progress', at, resource, resourceVersion: version });
  await delivery.flush();
  return null;
}

const initialEvents = { sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' };

/** Watches from the latest version on. With `leave` it lists first (WatchList), then calls it. */
export async function watch(
  following: Following,
  leave: (() => void) | null,
): Promise<WatchResult> {
  const { environment, version, counters } = following;
  const { seconds, limits } = watchTimes(following, () => pending !== null);
  const query = {
    ...(leave === null ? { resourceVersion: version ?? '' } : initialEvents),
    watch: 'true',
    allowWatchBookmarks: 'true',
    timeoutSeconds: String(seconds),
  };
  let pending = leave === null ? null : listingOf(following);
  const began = environment.monotonic();
  following.answer = { place: 'watch', began, bad: 0 };
  let frames = 0;
  const { events } = counters;
  const end = async (listing: ListFilter, at: string): Promise<WatchResult | null> => {
    const older = await complete(following, listing, at);
    if (older === null) leave?.();
    if (older === null) enter(following, 'synced');
    return older;
  };
  const outcome = await ask(following, 'watch', query, limits, (frame) => {
    frames++;
    if (frame.kind !== 'bookmark' || !frame.initialEnd) {
      const isEndless =
        pending !== null && environment.monotonic() - began > silence.listing + frames / 200;
      return isEndless ? { kind: 'endless' } : take(following, frame, pending);
    }
    if (pending === null) return null; // sent twice
    const listing = pending;
    pending = null;
    return end(listing, newest(listing.newest, frame.version));
  });
  if (outcome !== null) return outcome;
  if (pending !== null) return { kind: 'endless' };
  // A server or proxy that ends watches at once must not be asked all the time.
  const left = Math.max(0, 1 - (environment.monotonic() - began));
  const isVain = left > 0 && leave === null && counters.events === events;
  return isVain ? failed('eof') : { kind: 'ended', seconds: left };
}

/** Seconds that a WatchList may be silent, and a watch: it has a bookmark per minute. */
const silence = { listing: 60, watching: 130 } as const;

/** Without pings, a watch ends before silence means a lost server. */
function watchTimes({ environment, counters }: Following, isListing: () => boolean) {
  const pings = environment.pings();
  const [least, most] = pings ? [300, 600] : [30, 40];
  const seconds = Math.floor(least + environment.random() * (most - least));
  // Some servers send no bookmarks.
  const watching = () => (counters.bookmarks > 0 ? silence.watching : Infinity);
  const quiet = () => (isListing() ? silence.listing : watching());
  // A watch may outlive the time that it asked for by 30 seconds.
  return { seconds, limits: { ...(pings ? { silence: quiet } : {}), total: seconds + 30 } };
}

function take(following: Following, frame: Frame, listing: ListFilter | null): WatchResult | null {
  switch (frame.kind) {
    case 'page':
      return null;
    case 'status':
      if (listing === null) return outcomeOf(frame.status, 'watch', false);
      return refused(following, { ...frame.status, expiredAt: null }, 'watch', true);
    case 'bad':
      return takeBad(following, frame, listing);
    case 'bookmark':
      return listing === null ? takeBookmark(following, frame.version) : null;
    case 'object':
      if (listing === null) return takeObject(following, frame);
      takeListed(following, listing, frame);
      return null;
  }
}

function takeListed(following: Following, listing: ListFilter, frame: ObjectFrame): void {
  const event = readEvent(following, frame);
  if (event === null) keepUnreadable(listing, frame.projection.problem?.lost);
  else {
    const events = takeItem(listing, event);
    if (events.length === 0) following.counters.repeated++;
    deliver(following, events);
  }
}

function takeBookmark(following: Following, version: string): WatchResult | null {
  const { counters, delivery, environment, resource } = following;
  counters.bookmarks++;
  if (compareVersions(version, following.version ?? '') === -1) {
    following.suspicious = true;
    return failed('older');
  }
  following.version = version;
  following.provenAt = environment.monotonic();
  delivery.add({ kind: 'progress', at: environment.now(), resource, resourceVersion: version });
  return null;
}

function takeObject(following: Following, frame: ObjectFrame): WatchResult | null {
  const { counters, delivery, environment } = following;
  const known = following.version ?? '';
  following.provenAt = environment.monotonic();
  const event = readEvent(following, frame);
  if (event !== null) {
    const taken = takeChange(delivery.current, known, event);
    if (typeof taken === 'string') counters[taken]++;
    else deliver(following, taken);
    if (taken === 'stale') return { kind: 'relist', reason: 'disorder' };
  }
  if (frame.version !== '') following.version = newest(known, frame.version);
  return null;
}

type ObjectFrame = Extract<Frame, { kind: 'object' }>;

/** The event of an object frame; null if the object cannot be decoded, which is reported. */
function readEvent(following: Following, frame: ObjectFrame): WatchEvent | null {
  const { resource, reading, counters } = following;
  const { projection, type, raw } = frame;
  if (projection.problem !== undefined) {
    const { lost, message } = projection.problem;
    counters.unreadable++;
    lose(following, type, lost, message, projection.problem);
    return null;
  }
  const event = { resource, type, object: projection.object, at: reading.now() };
  return raw === undefined ? event : { ...event, raw };
}

/** Asks the server again for a frame that cannot be decoded. The second time its object is lost. */
function takeBad(
  following: Following,
  frame: Extract<Frame, { kind: 'bad' }>,
  listing: ListFilter | null,
): WatchResult | null {
  const { path, environment, counters, onProblem, version, answer, passed } = following;
  const { message, value, lost, cut } = frame;
  counters.badFrames++;
  if (cut) return failed('reset');
  const place = `${answer.place} ${version ?? ''}`;
  // After 5 s a watch has sent what was asked for again.
  const isFresh = answer.began === null || environment.monotonic() - answer.began < 5;
  const again = isFresh && passed.place === place;
  const count = ++answer.bad;
  const object = lost.name === null ? null : objectText(lost);
  if (again && count <= passed.count) {
    lose(following, null, lost, message, { object, value });
    keepUnreadable(listing, lost);
    return null;
  }
  following.passed = { place, count };
  onProblem(problemAt(path, null, message, { object, value }));
  return failed('frame');
}

function lose(
  { path, reading, delivery, onProblem }: Following,
  type: WatchEvent['type'] | null,
  lost: UnreadableObject,
  message: string,
  details: Partial<Problem>,
): void {
  onProblem(problemAt(path, null, message, { ...details, lost }));
  delivery.add({ kind: 'unreadable', at: reading.now(), type, lost });
}

function deliver({ counters, delivery }: Following, events: readonly WatchEvent[]): void {
  for (const event of events) {
    counters.events++;
    delivery.add({ kind: 'event', event });
  }
}

/** Reports the state of the watch, if it is another. */
export function enter({ status, environment, delivery, resource }: Following, state: WatchState) {
  const at = environment.now();
  if (status.state === state && state !== 'listing') return;
  Object.assign(status, { state, since: at });
  delivery.add({ kind: 'watch', at, resource, state });
}

/** Takes frames of an answer until one has an outcome; null: the answer has ended. */
function ask(
  following: Following,
  verb: WatchVerb,
  query: Record<string, string>,
  limits: RequestLimits,
  takeFrame: (frame: Frame) => WatchResult | null | Promise<WatchResult | null>,
): Promise<WatchResult | null> {
  const { path, resource, environment, signal, counters, reading, delivery } = following;
  const request = { path, query, accept: acceptOf(verb, reading.raw) };
  const isInitial = query.sendInitialEvents === 'true';
  const readAnswer = async (answer: ApiAnswer): Promise<WatchResult | null> => {
    const { status, headers, body } = answer;
    if (status !== 200) return refused(following, await statusOf(answer), verb, isInitial);
    const codec = codecOf(headers['content-type']);
    if (codec === null) return giveUp(following, 'status');
    if (verb === 'watch') {
      counters.watches++;
      if (!isInitial) {
        following.connection.succeeded(resource);
        enter(following, 'synced');
      }
      await delivery.flush();
    }
    for await (const batch of codec[verb](body, reading)) {
      for (const frame of batch) {
        if (frame.kind === 'page' && frame.isOther) return giveUp(following, 'status');
        const taken = takeFrame(frame);
        const ended = taken instanceof Promise ? await taken : taken;
        if (ended !== null) return ended;
        if (delivery.isDue()) await delivery.breathe();
      }
      await delivery.endChunk(body.hasMore?.());
    }
    return null;
  };
  const { heartbeat } = following;
  const { silence = () => Infinity, total = silenceSeconds } = limits;
  heartbeat.begin(verb === 'list' ? 'a list' : 'a watch', () => Math.min(silence(), total));
  const either = AbortSignal.any([signal, following.cut.signal]);
  return exchange(environment, request, limits, either, readAnswer, (count) => {
    counters.bytes += count;
    heartbeat.beat();
  });
}

/** A refusal counts as a failure, unless the reflector sends another request at once. */
function refused(
  { connection, resource, paging }: Following,
  status: Awaited<ReturnType<typeof statusOf>>,
  verb: WatchVerb,
  watchList: boolean,
): WatchResult {
  const outcome = outcomeOf(status, verb, watchList);
  const isOlder = outcome.kind === 'failed' && outcome.reason === 'older';
  const isRelist = outcome.kind === 'relist' && !watchList && paging?.limit !== null;
  if (isOlder || isRelist || outcome.kind === 'no-watch-list') return outcome;
  const { code, message, expiredAt } = status;
  const failure = describeFailure(new UnexpectedAnswer(code, message, expiredAt));
  const isDenied = outcome.kind === 'denied';
  connection.failed(resource, isDenied ? { ...failure, reason: 'forbidden' } : failure);
  return outcome;
}
