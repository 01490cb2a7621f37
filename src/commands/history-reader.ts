// A process that reads a moment of a history for a running server (history-process.ts). It answers
// one request over the channel of child processes, and ends with its parent.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { Socket } from 'node:net';

import { type Auditor, createAuditor } from '../auditor/auditor.ts';
import { createQueries, notLive, type SiteOptions } from '../auditor/queries.ts';
import { replay } from '../auditor/replay.ts';
import type { RecordingEntry } from '../cluster/files/recording.ts';
import { errorText, openFolder } from '../history/files.ts';
import { openingsIn } from '../history/notes.ts';
import { UnknownMoment } from '../history/reader.ts';
import { searchedIn, type StopState, stopStateOf } from '../history/restart.ts';
import { openIndex } from '../history/search-index.ts';
import { listSegments } from '../history/segments.ts';
import { createApp } from '../output/http/server.ts';
import { openAuditAt } from './replay.ts';
import { openMoment } from './shared/history.ts';
import { type AuditFlags, auditorOptions } from './shared/options.ts';

/** A server of the pages and the API as of a moment of a history, or of a recording. */
export interface MomentRequest {
  readonly kind: 'moment';
  /** The folder of a history; else `source` is a recording. */
  readonly history?: string;
  readonly source: string;
  readonly flags: AuditFlags;
  readonly site: Omit<SiteOptions, 'at'>;
}

/** `at` is Unix seconds. */
type MomentQuestion = MomentRequest & { readonly at: number };

export type HistoryRequest =
  /** What was open at the end of a history. */
  { readonly kind: 'stop'; readonly path: string } | MomentQuestion;

export type HistoryReply =
  | { readonly kind: 'stop'; readonly state: StopState }
  /** The server is ready. */
  | { readonly kind: 'moment'; readonly losses: readonly string[] }
  /** Why there is no answer, for people; `isWrong`: there is no such moment. */
  | { readonly kind: 'failure'; readonly text: string; readonly isWrong: boolean };

const ignore = (): void => undefined;

/** The checkpoint has the values of serve. */
const unset = { settle: 30, maxEndpointsPerSlice: 100, endpoints: true };

/** Answers the request of the parent. Resolves when the parent ends. */
export async function answerParent(): Promise<0> {
  if (process.send === undefined) return 0;
  const ended = once(process, 'disconnect');
  const [request] = (await once(process, 'message')) as [HistoryRequest];
  const reply = await answer(request).catch((error: unknown): HistoryReply => {
    return { kind: 'failure', text: errorText(error), isWrong: error instanceof UnknownMoment };
  });
  process.send(reply);
  await ended;
  return 0;
}

async function answer(request: HistoryRequest): Promise<HistoryReply> {
  if (request.kind === 'stop') return { kind: 'stop', state: await readStop(request.path) };
  const { queries, losses } = await openQueries(request);
  const server = createServer(createApp(queries, { content: 'pages' }).express);
  server.keepAliveTimeout = 0;
  server.emit('connection', new Socket({ fd: connection }));
  return { kind: 'moment', losses };
}

/** The file descriptor of the only connection. */
const connection = 4;

/** Seconds after the end of a history that still are its end: a quiet one grows each 10 s. */
const late = 15;

/** The queries of an auditor as of a moment. Rejects with UnknownMoment if there is none. */
export async function openQueries({ at, history, source, flags, site }: MomentQuestion) {
  const options = { ...flags, ...(history !== undefined && { history }), at };
  const { auditor, entries, losses, latest } = await openAuditAt(source, options, ignore);
  if (latest !== null && at > latest + late) {
    throw new UnknownMoment(`The history ends at ${new Date(latest * 1000).toISOString()}`);
  }
  await replay(auditor, entries, { speed: Infinity, until: at });
  const now = auditor.now();
  if (!auditor.store.listers.knows('services') || now === null) {
    throw new UnknownMoment('Nothing was known at that moment: the first lists were not complete');
  }
  if (latest === null && at > now + late) {
    throw new UnknownMoment(`The recording ends at ${new Date(now * 1000).toISOString()}`);
  }
  const perService = { mode: 'off', max: 0 } as const;
  const queries = createQueries(auditor, source, notLive, perService, { ...site, at });
  return { queries, losses: [...losses, ...missingFindings(auditor)] };
}

/** What the history does not have of the nodes at its moment, for people. */
function missingFindings(auditor: Auditor): string[] {
  const nodes = auditor.savedNodes();
  return [...(nodes?.names() ?? [])].flatMap((name) => {
    const missing = nodes?.saved(name)?.moreFindings ?? 0;
    return missing === 0
      ? []
      : [`${String(missing)} findings of Node ${name} are not in the history`];
  });
}

/** What a history proves of its end. Rejects if something is missing before it. */
export async function readStop(path: string): Promise<StopState> {
  const { until, settings, entries, losses } = await openMoment(path, null, ignore);
  const auditor = createAuditor({ ...auditorOptions(unset, ignore), ...settings });
  let before = 0;
  async function* watched(): AsyncGenerator<RecordingEntry> {
    for await (const entry of entries(auditor)) {
      // The end of the recording is an entry, too.
      if (entry.kind !== 'end') before = losses.length;
      yield entry;
    }
  }
  await replay(auditor, watched(), { speed: Infinity, until });
  // What a crash has cut off at the end would have changed the versions of objects.
  const [loss] = losses.slice(0, before);
  if (loss !== undefined) throw new Error(`The end of the history is damaged: ${loss}`);
  const files = openFolder(path);
  const newest = (await listSegments(files)).at(-1);
  let unknown = 0;
  const onUnknown = (count: number): unknown => (unknown = count);
  const openings = newest === undefined ? null : await openingsIn(files, newest, onUnknown);
  if (openings === null) throw new Error('The history does not say what was open at its end');
  const index = await openIndex(path);
  const searched = searchedIn(index);
  index.close();
  return stopStateOf(auditor, until, openings, searched, unknown);
}
