// Records what the API server stored, from etcd itself: every change of the five resources in the
// order of their resourceVersions, without a gap when the API server goes, and in the form of a
// recording, so that `replay` and `verify` read it. The API server must store JSON.
//
// A change arrives late on a busy machine. So empty writes to etcd, before and after which the
// clock is read, bound the time of every version from both sides (history.ts).

import { createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGzip } from 'node:zlib';

import type { Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';

/** The API server's flag that this log needs. */
export const storeFlags = ['--storage-media-type=application/json'];

const folders: readonly (readonly [string, Resource])[] = [
  ['/registry/minions/', 'nodes'],
  ['/registry/services/specs/', 'services'],
  ['/registry/pods/', 'pods'],
  ['/registry/services/endpoints/', 'endpoints'],
  ['/registry/endpointslices/', 'endpointslices'],
];

/** Numbers are decimal texts, keys and values base64. */
interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
  readonly version?: string;
}

interface StoreEvent {
  readonly type?: 'DELETE';
  readonly kv: KeyValue;
  readonly prev_kv?: KeyValue;
}

interface WatchAnswer {
  readonly result?: {
    readonly events?: readonly StoreEvent[];
    readonly canceled?: boolean;
    readonly cancel_reason?: string;
  };
}

/** Between `from` and `to`, in Unix seconds, the store was at this revision. */
export interface Probe {
  readonly from: number;
  readonly to: number;
  readonly revision: number;
}

const encoded = (text: string): string => Buffer.from(text).toString('base64');
const decoded = (text: string): string => Buffer.from(text, 'base64').toString();
const all = { key: encoded('/registry/'), range_end: encoded('/registry0') };
const unixNow = (): number => Date.now() / 1000;

function resourceOf({ key }: KeyValue): Resource | undefined {
  const path = decoded(key);
  return folders.find(([folder]) => path.startsWith(folder))?.[1];
}

interface Stored {
  metadata: { resourceVersion?: string; managedFields?: unknown };
}

/** The object as the API server answers it: its version is the revision of the store. */
function objectOf(value: string, revision: string): Stored {
  const object = JSON.parse(decoded(value)) as Stored;
  delete object.metadata.managedFields;
  object.metadata.resourceVersion = revision;
  return object;
}

async function post(url: string, body: object): Promise<Response> {
  const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response;
}

/** Drops the history of the store up to now. */
export async function compact(etcd: string): Promise<void> {
  const { revision } = await probe(etcd);
  await post(`${etcd}/v3/kv/compaction`, { revision: String(revision), physical: true });
}

async function probe(etcd: string): Promise<Probe> {
  const from = unixNow();
  const response = await post(`${etcd}/v3/kv/put`, { key: encoded('/chaos/probe'), value: '' });
  const { header } = (await response.json()) as { header: { revision: string } };
  return { from, to: unixNow(), revision: Number(header.revision) };
}

interface StoreLog {
  /** Ends the log when all that is stored now is in it; returns the probes. */
  readonly stop: () => Promise<readonly Probe[]>;
}

/** Milliseconds between two probes. */
const betweenProbes = 200;

/** Seconds after which an etcd that does not answer is gone for good. */
const patience = 60;

/** Answers of a watch, one a line, until the connection ends. */
async function* answersOf(response: Response): AsyncGenerator<WatchAnswer> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    const lines = (rest + decoder.decode(bytes as Uint8Array, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line !== '') yield JSON.parse(line) as WatchAnswer;
  }
}

function lineOf({ type, kv, prev_kv: before }: StoreEvent): string {
  const resource = resourceOf(kv);
  const value = type === 'DELETE' ? before?.value : kv.value;
  if (resource === undefined || value === undefined) return '';
  const kind = type === 'DELETE' ? 'DELETED' : kv.version === '1' ? 'ADDED' : 'MODIFIED';
  const object = objectOf(value, kv.mod_revision);
  return `${JSON.stringify({ kind: 'object', at: unixNow(), resource, type: kind, object })}\n`;
}

/** The header and the objects that are there at the beginning; returns their revision too. */
async function firstLines(etcd: string, kubernetes: string): Promise<[string, number]> {
  const response = await post(`${etcd}/v3/kv/range`, all);
  const list = (await response.json()) as { header: { revision: string }; kvs?: KeyValue[] };
  const at = unixNow();
  const header = { kind: 'header', format: 1, at, kubernetes, resources };
  const lines: object[] = [header];
  for (const kv of list.kvs ?? []) {
    const resource = resourceOf(kv);
    if (resource === undefined) continue;
    const object = objectOf(kv.value ?? '', kv.mod_revision);
    lines.push({ kind: 'object', at, resource, type: 'SYNC', object });
  }
  for (const resource of resources) lines.push({ kind: 'synced', at, resource });
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
  return [text, Number(list.header.revision)];
}

/** A log that is being written. */
interface Writing {
  readonly etcd: string;
  readonly write: (text: string) => void;
  readonly probes: Probe[];
  /** Of the latest line. */
  revision: number;
  /** With which the log ends; Infinity until that is known. */
  last: number;
  error: Error | null;
  readonly end: AbortController;
}

/** Writes what one watch delivers. */
async function follow(log: Writing): Promise<void> {
  const { etcd, end } = log;
  const request = { ...all, start_revision: String(log.revision + 1), prev_kv: true };
  const body = JSON.stringify({ create_request: request });
  const options = { method: 'POST', body, signal: end.signal };
  const response = await fetch(`${etcd}/v3/watch`, options).catch(() => null);
  if (response === null) return;
  for await (const { result } of answersOf(response)) {
    if (result?.canceled === true) throw new Error(`etcd: ${result.cancel_reason ?? 'canceled'}`);
    for (const event of result?.events ?? []) {
      log.write(lineOf(event));
      log.revision = Number(event.kv.mod_revision);
    }
    if (log.revision >= log.last) return;
  }
}

/** etcd is restarted at times; what it stores does not get lost by that. */
async function followAll(log: Writing): Promise<void> {
  while (!log.end.signal.aborted && log.revision < log.last) {
    await follow(log).catch((thrown: unknown) => {
      if (String(thrown).includes('compact')) throw thrown;
    });
    await sleep(100);
  }
}

async function probeAll({ etcd, probes, end }: Writing, isLast: () => boolean): Promise<void> {
  let answered = performance.now();
  while (!end.signal.aborted && !isLast()) {
    const found = await probe(etcd).catch(() => null);
    if (found !== null) {
      probes.push(found);
      answered = performance.now();
    } else if (performance.now() - answered > patience * 1000) throw new Error('etcd is gone');
    await sleep(betweenProbes);
  }
}

/** Begins a log of the store of `etcd`, a URL, in a file that does not exist yet. */
export async function startStoreLog(
  etcd: string,
  path: string,
  kubernetes: string,
): Promise<StoreLog> {
  const gzip = createGzip({ level: 1 });
  const file = gzip.pipe(createWriteStream(path, { flags: 'wx' }));
  const [lines, revision] = await firstLines(etcd, kubernetes);
  gzip.write(lines);
  const write = (text: string): void => void gzip.write(text);
  const end = new AbortController();
  const log: Writing = { etcd, write, probes: [], revision, last: Infinity, error: null, end };
  const fail = (thrown: unknown): void => {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    if (!end.signal.aborted) log.error = error;
    end.abort();
  };
  const isLast = (): boolean => log.last < Infinity;
  const working = [followAll(log).catch(fail), probeAll(log, isLast).catch(fail)];
  return {
    async stop() {
      const timer = setTimeout(() => fail(new Error('The log did not end')), patience * 1000);
      const marker = { key: encoded('/registry/chaos/end'), value: '' };
      try {
        const response = await post(`${etcd}/v3/kv/put`, marker);
        const { header } = (await response.json()) as { header: { revision: string } };
        log.last = Number(header.revision);
      } catch (error) {
        fail(error);
      }
      await Promise.all(working);
      clearTimeout(timer);
      end.abort();
      gzip.end(`${JSON.stringify({ kind: 'end', at: unixNow() })}\n`);
      await finished(file);
      if (log.error !== null) throw log.error;
      return log.probes;
    },
  };
}
