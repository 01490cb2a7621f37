// One list or one watch of a resource, from the request to its end: it decodes frames, compares
// them with the cache, and delivers changes. The reflector decides what follows.

import type { AnyObject, Resource, WatchEvent } from '../../model/objects.ts';
import { compareVersions, newest } from '../../model/resource-version.ts';
import type { ApiStatus, DecodeContext, Frame } from '../decode/frame.ts';
import { objectText } from '../decode/json-objects.ts';
import type { OnProblem } from '../decode/problem.ts';
import { problemAt } from '../decode/problem.ts';
import type { BatchQueue } from './batch-queue.ts';
import type { ApiAnswer } from './transport/http2.ts';
import type { Environment, RequestLimits } from './transport/request.ts';
import { exchange } from './transport/request.ts';
import type { ListFilter } from './version-filter.ts';
import { completeListing, newListing, takeChange, takeItem } from './version-filter.ts';
import { acceptOf, codecOf } from './watch-codec.ts';
import type { WatchCounters, WatchResult, WatchVerb } from './watch-result.ts';
import { outcomeOf } from './watch-result.ts';

/** The path of each resource. */
export const paths: Readonly<Record<Resource, string>> = {
  nodes: '/api/v1/nodes',
  services: '/api/v1/services',
  pods: '/api/v1/pods',
  endpoints: '/api/v1/endpoints',
  endpointslices: '/apis/discovery.k8s.io/v1/endpointslices',
};

/** What lists and watches of a resource know of each other. */
export interface Following {
  readonly resource: Resource;
  readonly environment: Environment;
  readonly signal: AbortSignal;
  readonly counters: WatchCounters;
  readonly delivery: BatchQueue;
  readonly reading: DecodeContext;
  readonly onProblem: OnProblem;
  /** The raw objects of decoded ones that are on their way; empty where they are not asked for. */
  readonly raws: WeakMap<AnyObject, unknown>;
  /** The watch is open, and the list is complete. */
  readonly established: () => void;
  /** Whether the server may know WatchList. */
  watchList: boolean;
  /** All up to it has been delivered; null: no list was complete yet. */
  version: string | null;
  needsList: boolean;
  /** A list in pages that is not complete. */
  paging: Paging | null;
  /** Answers in a row that were older than what is known, and monotonic time of the first. */
  doubts: number;
  doubtedAt: number;
  /** Whether the server must show its version before the next watch. */
  suspicious: boolean;
  /** Monotonic times: of the last version from the server, and of the last complete list. */
  provenAt: number;
  listedAt: number;
  /** Where frames could not be decoded, and how many are passed over there. */
  bad: { readonly place: string; readonly count: number };
}

interface Paging {
  readonly listing: ListFilter;
  /** Of the first page. */
  version: string | null;
  next: string;
  readonly limit: number | null;
}

/** Half the size that upstream once chose, so that no page lasts long. */
const pageSize = 500;

/** Older answers before one is believed that the history went back, and seconds since the first. */
const doubt = { answers: 2, seconds: 5 } as const;

/** Seconds by which a watch may outlive its time. */
const grace = 30;

// --- lists ---

/** Lists page by page, going on where an earlier attempt was interrupted. */
export async function list(following: Following): Promise<WatchResult> {
  const before = following.paging;
  // A first page that is asked for again may be of another moment: what it listed may be gone.
  if (before?.next === '') following.paging = newPaging(following, before.limit);
  while (true) {
    const paging = (following.paging ??= newPaging(following, pageSize));
    const outcome = await readPage(following, paging);
    if (outcome?.kind === 'relist' && paging.limit !== null) {
      // The continue token is too old. As upstream's pager does: all in one page then.
      following.counters.relists[outcome.reason]++;
      following.paging = newPaging(following, null);
      continue;
    }
    if (outcome !== null) return outcome;
    if (paging.next === '') return complete(following, paging.listing, paging.version ?? '');
  }
}

function newPaging(following: Following, limit: number | null): Paging {
  return { listing: listingOf(following), version: null, next: '', limit };
}

const listingOf = ({ delivery, version, doubts }: Following): ListFilter =>
  newListing(delivery.current, version, doubts > 0);

/** Reads one page; null: it is complete. */
function readPage(following: Following, paging: Paging): Promise<WatchResult | null> {
  const query = {
    ...(paging.limit === null ? {} : { limit: String(paging.limit) }),
    ...(paging.next === '' ? {} : { continue: paging.next }),
  };
  return ask(following, 'list', query, listLimits, async (frames, hasMore) => {
    const passing = newPassing(`page ${paging.next}`);
    let page: Page | null = null;
    for await (const batch of frames) {
      for (const frame of batch) {
        if (frame.kind === 'page') page = frame;
        else {
          const outcome = take(following, frame, passing, paging.listing);
          if (outcome !== null) return outcome;
        }
        if (following.delivery.isDue()) await following.delivery.breathe();
      }
      if (!hasMore()) await following.delivery.flush();
    }
    if (page === null) return { kind: 'failed', reason: 'reset', message: 'A list ended early' };
    following.counters.pages++;
    paging.version ??= page.version;
    paging.next = page.next;
    return null;
  });
}

/** Asks the server for its version; null: it is not known to be older than what is known. */
export function prove(following: Following): Promise<WatchResult | null> {
  return ask(following, 'list', { limit: '1' }, listLimits, async (frames) => {
    let version = '';
    for await (const batch of frames) {
      for (const frame of batch) if (frame.kind === 'page') ({ version } = frame);
    }
    if (compareVersions(version, following.version ?? '') === -1) {
      doubtOnce(following);
      return { kind: 'relist', reason: 'reset' };
    }
    // What cannot be read must not keep it from watching.
    const provenAt = following.environment.monotonic();
    Object.assign(following, { provenAt, doubts: 0, suspicious: false });
    return null;
  });
}

function doubtOnce(following: Following): void {
  if (following.doubts === 0) following.doubtedAt = following.environment.monotonic();
  following.doubts++;
}

/** Delivers what a complete list changes, unless it is older than what is known. */
async function complete(
  following: Following,
  listing: ListFilter,
  version: string,
): Promise<WatchResult> {
  const { delivery, environment, resource, counters } = following;
  const older = compareVersions(version, listing.known ?? '') === -1;
  const { doubts, doubtedAt } = following;
  const isBelieved =
    doubts >= doubt.answers && environment.monotonic() - doubtedAt >= doubt.seconds;
  following.paging = null;
  if (older && !isBelieved) {
    doubtOnce(following);
    const message = `A list of version ${version}, older than ${listing.known ?? ''}`;
    return { kind: 'failed', reason: 'older', message };
  }
  await delivery.flush(); // what is held must be complete before it is swept
  const at = environment.now();
  for (const event of completeListing(listing, delivery.current, { resource, at }, older)) {
    if (event !== null) deliver(following, [event]);
    if (delivery.isDue()) await delivery.breathe();
  }
  const now = environment.monotonic();
  Object.assign(following, { version, needsList: false, listedAt: now, provenAt: now });
  Object.assign(following, { doubts: 0, suspicious: false });
  counters.lists++;
  delivery.add({ kind: 'synced', at, resource });
  delivery.add({ kind: 'progress', at, resource, resourceVersion: version });
  await delivery.flush();
  return { kind: 'listed' };
}

// --- watches ---

const initialEvents = { sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' };

/**
 * Watches from the version on up to which all is delivered. With `listed` it lists instead, by a
 * watch that sends what there is first, and goes on with it; `listed` is called when that is done.
 */
export async function watch(
  following: Following,
  listed: (() => void) | null,
): Promise<WatchResult> {
  const { environment, delivery } = following;
  const began = environment.monotonic();
  const { seconds, limits } = watchTimes(environment);
  const query = {
    ...(listed === null ? { resourceVersion: following.version ?? '' } : initialEvents),
    watch: 'true',
    allowWatchBookmarks: 'true',
    timeoutSeconds: String(seconds),
  };
  let pending = listed === null ? null : listingOf(following);
  const received = { any: false };
  const outcome = await ask(following, 'watch', query, limits, async (frames, hasMore) => {
    following.counters.watches++;
    if (pending === null) following.established();
    await delivery.flush();
    const passing = newPassing('watch');
    for await (const batch of frames) {
      passing.fresh = environment.monotonic() - began < freshSeconds;
      for (const frame of batch) {
        received.any = true;
        if (frame.kind === 'bookmark' && frame.initialEnd && pending !== null) {
          const ended = await complete(following, pending, frame.version);
          if (ended.kind !== 'listed') return ended;
          pending = null;
          listed?.();
          following.established();
        } else {
          const ended = take(following, frame, passing, pending);
          if (ended !== null) return ended;
        }
        if (delivery.isDue()) await delivery.breathe();
      }
      // What has come together is handed over together.
      if (!hasMore()) await delivery.flush();
    }
    return null;
  });
  const short = !received.any && environment.monotonic() - began < 1;
  return outcome ?? { kind: 'ended', short };
}

/**
 * How long a watch may last. Where no ping watches over the connection, a server that has gone is
 * noticed only by what it does not send: its watches end before that.
 */
function watchTimes(environment: Environment): { seconds: number; limits: RequestLimits } {
  const pings = environment.pings();
  const [least, most] = pings ? [300, 600] : [30, 40];
  const seconds = Math.floor(least + environment.random() * (most - least));
  return { seconds, limits: { mayBeSilent: pings, total: seconds + grace } };
}

/** Takes one frame of a watch, or of a listing; an outcome ends the answer. */
function take(
  following: Following,
  frame: Frame,
  passing: Passing,
  listing: ListFilter | null,
): WatchResult | null {
  switch (frame.kind) {
    case 'page':
      return null;
    case 'status':
      return outcomeOf(frame.status, 'watch', listing !== null);
    case 'bad':
      return takeBad(following, frame, passing);
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
  if (event === null) {
    const { namespace = null, name = null } = frame.projection.problem?.lost ?? {};
    if (name !== null) listing.seen?.add(namespace === '' ? name : `${namespace ?? ''}/${name}`);
    return;
  }
  const events = takeItem(listing, following.delivery.current, event);
  if (events.length === 0) following.counters.repeated++;
  deliver(following, events);
}

function takeBookmark(following: Following, version: string): WatchResult | null {
  const { counters, delivery, environment, resource } = following;
  counters.bookmarks++;
  if (compareVersions(version, following.version ?? '') === -1) {
    following.suspicious = true;
    return { kind: 'failed', reason: 'older', message: `A bookmark of version ${version}` };
  }
  following.version = version;
  following.provenAt = environment.monotonic();
  const at = environment.now();
  delivery.add({ kind: 'progress', at, resource, resourceVersion: version });
  return null;
}

function takeObject(following: Following, frame: ObjectFrame): WatchResult | null {
  const { counters, delivery, environment } = following;
  const known = following.version ?? '';
  following.provenAt = environment.monotonic();
  const event = readEvent(following, frame);
  if (event !== null) {
    const taken = takeChange(delivery.current, known, event);
    if (taken === 'disorder') return { kind: 'relist', reason: 'disorder' };
    if (typeof taken === 'string') counters[taken]++;
    else deliver(following, taken);
  }
  if (frame.version !== '') following.version = newest(known, frame.version);
  return null;
}

// --- frames ---

type Page = Extract<Frame, { kind: 'page' }>;
type ObjectFrame = Extract<Frame, { kind: 'object' }>;

/** The event of an object frame; null if the object cannot be decoded, which is reported. */
function readEvent(following: Following, frame: ObjectFrame): WatchEvent | null {
  const { resource, delivery, reading, counters, onProblem } = following;
  const { projection, type, raw } = frame;
  const at = reading.now();
  if (projection.problem !== undefined) {
    const { lost, message, ...more } = projection.problem;
    counters.unreadable++;
    onProblem(problemAt(paths[resource], null, message, { ...more, lost }));
    delivery.add({ kind: 'unreadable', at, type, lost });
    return null;
  }
  if (raw !== undefined) following.raws.set(projection.object, raw);
  return { resource, type, object: projection.object, at };
}

/** The frames of one answer that could not be decoded. */
interface Passing {
  readonly place: string;
  count: number;
  /** What comes now was asked for again, and has not just happened. */
  fresh: boolean;
}

const newPassing = (place: string): Passing => ({ place, count: 0, fresh: true });

/** Seconds after which a watch has sent what it was to send first. */
const freshSeconds = 5;

/**
 * A frame that cannot be decoded. The first time the server is asked again for what comes from
 * there on; if that cannot be decoded either, it is passed over, and what it was about is lost.
 */
function takeBad(
  following: Following,
  frame: Extract<Frame, { kind: 'bad' }>,
  passing: Passing,
): WatchResult | null {
  const { resource, counters, delivery, reading, onProblem, version } = following;
  const { message, value, lost, cut } = frame;
  counters.badFrames++;
  if (cut) return { kind: 'failed', reason: 'reset', message };
  const object = lost.name === null ? null : objectText(lost);
  const place = `${passing.place} ${version ?? ''}`;
  const again = passing.fresh && following.bad.place === place;
  passing.count++;
  if (!again || passing.count > following.bad.count) {
    following.bad = { place, count: passing.count };
    onProblem(problemAt(paths[resource], null, message, { object, value }));
    return { kind: 'failed', reason: 'frame', message };
  }
  onProblem(problemAt(paths[resource], null, message, { object, value, lost }));
  delivery.add({ kind: 'unreadable', at: reading.now(), type: null, lost });
  return null;
}

function deliver({ counters, delivery, raws }: Following, events: readonly WatchEvent[]): void {
  for (const event of events) {
    counters.events++;
    const raw = event.type === 'deleted' && event.gap === true ? undefined : raws.get(event.object);
    delivery.add(raw === undefined ? { kind: 'event', event } : { kind: 'event', event, raw });
  }
}

// --- requests ---

const listLimits: RequestLimits = { mayBeSilent: false, total: Infinity };

/** Reads frames; `hasMore` says whether more bytes have come already. */
type ReadFrames = (
  frames: AsyncIterable<Iterable<Frame>>,
  hasMore: () => boolean,
) => Promise<WatchResult | null>;

/** Sends a request and reads its frames; a refusal is an outcome. */
function ask(
  { resource, environment, signal, counters, reading }: Following,
  verb: WatchVerb,
  query: Record<string, string>,
  limits: RequestLimits,
  read: ReadFrames,
): Promise<WatchResult | null> {
  const request = { path: paths[resource], query, accept: acceptOf(verb, reading.raw) };
  const readAnswer = async (answer: ApiAnswer): Promise<WatchResult | null> => {
    if (answer.status !== 200) {
      return outcomeOf(await statusOf(answer), verb, query.sendInitialEvents === 'true');
    }
    const type = answer.headers['content-type'];
    const codec = codecOf(type);
    if (codec === null) {
      const message = `An answer of type ${type ?? 'unknown'}`;
      return { kind: 'failed', reason: 'status', message };
    }
    const { body } = answer;
    return read(codec[verb](body, reading), body.hasMore ?? (() => false));
  };
  return exchange(environment, request, limits, signal, readAnswer, (count) => {
    counters.bytes += count;
  });
}

const statusLimit = 64 * 1024;

/** What an answer says that is not 200; Retry-After counts too. */
async function statusOf({ status, headers, body }: ApiAnswer): Promise<ApiStatus> {
  let content = Buffer.alloc(0);
  for await (const chunk of body) {
    content = Buffer.concat([content, chunk]);
    if (content.length > statusLimit) break;
  }
  // Proxies answer in other languages.
  const { retryAfter, ...rest } = codecOf(headers['content-type'])?.status(content, status) ?? {
    reason: '',
    message: content.toString('utf8', 0, 200),
    retryAfter: null,
    causes: [],
  };
  const after = Number(headers['retry-after'] ?? Number.NaN);
  return { ...rest, code: status, retryAfter: after > 0 ? after : retryAfter };
}
