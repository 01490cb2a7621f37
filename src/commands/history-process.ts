// The processes that read the history for a running server (history-reader.ts). A moment of a large
// cluster needs much memory and seconds of work. A process of its own has a limit for its memory,
// gives all of it back, and shares no threads with the audit if a disk does not answer.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Agent, type IncomingMessage, request as requestHttp } from 'node:http';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';

import { nodeArguments } from '../agent/node-arguments.ts';
import { errorText } from '../history/files.ts';
import { setLatest } from '../model/collections.ts';
import type { StopState } from '../history/restart.ts';
import { type AnswerMoment, type MomentAnswer, NoMoment } from '../output/http/moments.ts';
import type { MomentRequest, HistoryReply, HistoryRequest } from './history-reader.ts';

/** The program itself, which has a command for this. */
const program = import.meta.filename.endsWith('.ts')
  ? join(import.meta.dirname, '../main.ts')
  : import.meta.filename;

const mebibyte = 1024 * 1024;

/** MiB of heap: at most, at least, and the part of the memory that is free. */
const heap = { most: 3072, least: 64, part: 0.4 };

/** MiB that a process needs beside its heap. */
const beside = 96;

/** MiB that running processes may use. */
let reserved = 0;

/** MiB of heap for the next process. Throws NoMoment if the audit needs the memory that is left. */
export function heapFor(free: number): number {
  const size = Math.round(Math.min(heap.most, (free - beside) * heap.part));
  if (size >= heap.least) return size;
  throw new NoMoment('busy', 'Too little memory is free to read the history');
}

/** MiB that are free. The page cache of a container does not count as used. */
function freeMemory(): number {
  const limit = process.constrainedMemory();
  const isLimited = limit > 0 && limit < totalmem();
  const free = isLimited ? limit - process.memoryUsage.rss() : process.availableMemory();
  return free / mebibyte - reserved;
}

function startProcess(signal: AbortSignal): ChildProcess {
  const size = heapFor(freeMemory());
  const child = fork(program, ['__history'], {
    execArgv: nodeArguments([`--max-old-space-size=${String(size)}`]),
    stdio: ['ignore', 'ignore', 'ignore', 'ipc', 'pipe'],
    signal,
    killSignal: 'SIGKILL',
  });
  reserved += size + beside;
  child.once('close', () => (reserved -= size + beside));
  return child;
}

/** The answer of a process. Rejects with an Error for people if it fails or ends. */
async function ask(child: ChildProcess, request: HistoryRequest): Promise<HistoryReply> {
  const ended = Promise.withResolvers<never>();
  child.once('error', ended.reject);
  child.once('exit', (code, how) => {
    const reason = how ?? `exit code ${String(code)}`;
    ended.reject(new Error(`The process that reads the history has ended (${reason})`));
  });
  child.send(request);
  const [reply] = (await Promise.race([once(child, 'message'), ended.promise])) as [HistoryReply];
  if (reply.kind !== 'failure') return reply;
  throw reply.isWrong ? new NoMoment('wrong', reply.text) : new Error(reply.text);
}

/** Reads what a history proves of its end, for an auditor that starts again. */
export async function readStopState(path: string, signal: AbortSignal): Promise<StopState> {
  const child = startProcess(signal);
  try {
    const reply = await ask(child, { kind: 'stop', path });
    if (reply.kind !== 'stop') throw new Error('Unexpected answer');
    return reply.state;
  } finally {
    child.kill('SIGKILL');
  }
}

/** Queries at one time, processes that are kept, and the milliseconds that an idle one is kept. */
const limits = { queries: 2, processes: 2, idleMs: 60_000 };

/** Answers that are kept: their number, and the bytes of each. */
const cached = { most: 64, bytes: 256 * 1024 };

/** Seconds until all that happened at a moment is written, in a quiet cluster, too. */
const written = 15;

/**
 * Milliseconds to open a moment and to answer, and those that a client waits: the web server ends a
 * request after a minute. The moment is opened on, and the client may ask again.
 */
const spans = { deadlineMs: 300_000, patienceMs: 45_000 };

/** A process that has opened a moment, or opens it. */
interface OpenMoment {
  /** What is missing before the moment. */
  readonly opened: Promise<readonly string[]>;
  /** Rejects when the process ends. */
  readonly ended: Promise<never>;
  readonly agent: Agent;
  readonly close: () => void;
  queries: number;
  timer: NodeJS.Timeout | null;
}

function openMoment(at: number, options: MomentRequest, signal: AbortSignal): OpenMoment {
  const stop = new AbortController();
  const child = startProcess(AbortSignal.any([signal, stop.signal]));
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  // One connection, to this process only.
  agent.createConnection = () => child.stdio[4] as Duplex;
  const opened = ask(child, { ...options, at }).then((reply) => {
    if (reply.kind !== 'moment') throw new Error('Unexpected answer');
    return reply.losses;
  });
  const { promise: ended, reject } = Promise.withResolvers<never>();
  child.once('exit', () => reject(new Error('The process that reads the history has ended')));
  for (const promise of [opened, ended]) promise.catch(() => undefined);
  return { opened, ended, agent, close: () => stop.abort(), queries: 0, timer: null };
}

/** The most bytes of an answer. */
const mostBytes = 16 * mebibyte;

async function bodyOf(response: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    bytes += piece.length;
    // The rest is read, too, since other questions use the same connection.
    if (bytes <= mostBytes) pieces.push(piece);
    else pieces.length = 0;
  }
  if (bytes > mostBytes) {
    throw new NoMoment('long', 'The answer is too long: select a part of it');
  }
  return Buffer.concat(pieces);
}

async function query(
  { opened, agent, ended }: OpenMoment,
  path: string,
  accept: string,
): Promise<MomentAnswer> {
  const losses = await opened;
  const request = requestHttp({ agent, path, headers: { accept, host: 'localhost' } });
  request.end();
  const answer = once(request, 'response') as Promise<[IncomingMessage]>;
  const [response] = await Promise.race([answer, ended]);
  const body = await Promise.race([bodyOf(response), ended]);
  const { statusCode: status = 500, headers } = response;
  const { location, 'content-type': type = 'text/plain' } = headers;
  const disposition = headers['content-disposition'];
  return {
    status,
    type,
    body,
    losses,
    ...(location !== undefined && { location }),
    ...(disposition !== undefined && { disposition }),
  };
}

/** Settles as the work does, or rejects after a time. Leaves no timer. */
async function within<T>(work: Promise<T>, ms: number, late: () => Error): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(late()), ms);
  return Promise.race([work, promise]).finally(() => clearTimeout(timer));
}

const tooLate = (): Error => new Error('The history was not read in time');

const notYet = (): NoMoment =>
  new NoMoment('busy', 'The moment is being opened, which takes long: ask again');

const asNoMoment = (error: unknown): NoMoment =>
  error instanceof NoMoment ? error : new NoMoment('failed', errorText(error));

const isTooLong = (error: unknown): boolean => asNoMoment(error).reason === 'long';

export type HistoryMoments = ReturnType<typeof createMoments>;

/** Answers queries as of moments, each in a process of its own, which is kept for a while. */
export function createMoments(options: MomentRequest) {
  const stop = new AbortController();
  const open = new Map<number, OpenMoment>();
  const answers = new Map<string, MomentAnswer>();
  /** Those that are being answered. */
  const questions = new Map<string, Promise<MomentAnswer>>();
  const remove = (at: number): void => {
    const moment = open.get(at);
    if (moment?.timer) clearTimeout(moment.timer);
    open.delete(at);
    moment?.close();
  };
  const momentAt = (at: number): OpenMoment => {
    const known = open.get(at);
    if (known !== undefined) return known;
    for (const [other, { queries }] of open) {
      if (open.size < limits.processes) break;
      if (queries === 0) remove(other);
    }
    const moment = openMoment(at, options, stop.signal);
    open.set(at, moment);
    return moment;
  };
  const compute: AnswerMoment = async (at, path, accept) => {
    const moment = momentAt(at);
    if (moment.timer !== null) clearTimeout(moment.timer);
    moment.queries++;
    try {
      return await within(query(moment, path, accept), spans.deadlineMs, tooLate);
    } catch (error) {
      if (open.get(at) === moment && !isTooLong(error)) remove(at);
      throw asNoMoment(error);
    } finally {
      moment.queries--;
      moment.timer = setTimeout(() => {
        if (open.get(at) === moment && moment.queries === 0) remove(at);
      }, limits.idleMs).unref();
    }
  };
  const begin: AnswerMoment = async (at, path, accept) => {
    if (questions.size >= limits.queries) {
      throw new NoMoment('busy', 'Too many questions about the history at one time');
    }
    const key = keyOf(at, path, accept);
    // If the moment has just been, a question after this answer may have more to read.
    const asked = Date.now();
    const isComplete = at < asked / 1000 - written;
    const question = compute(at, path, accept).finally(() => questions.delete(key));
    questions.set(key, question);
    const answer = await question;
    const isAwaited = Date.now() - asked < spans.patienceMs;
    if (!isComplete && isAwaited && open.get(at)?.queries === 0) remove(at);
    if (isComplete && answer.status === 200 && answer.body.length <= cached.bytes) {
      setLatest(answers, key, answer, cached.most);
    }
    return answer;
  };
  const answer: AnswerMoment = async (at, path, accept) => {
    const key = keyOf(at, path, accept);
    const known = answers.get(key);
    if (known !== undefined) return known;
    const question = questions.get(key) ?? begin(at, path, accept);
    // It may fail when no client waits for it any more.
    question.catch(() => undefined);
    return within(question, spans.patienceMs, notYet);
  };
  return { answer, close: () => stop.abort() };
}

const keyOf = (at: number, path: string, accept: string): string =>
  `${String(at)} ${path} ${accept}`;
