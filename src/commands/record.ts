// The `record` command: writes the entries of a live cluster to a file until it is stopped.
//
// A file that is too large or too old is renamed to the time of its end, and the next file begins
// with its own lists, so each can be replayed alone. Existing files are renamed too. Compressed
// output is flushed every second, so a killed recorder loses little.

import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { rename, stat } from 'node:fs/promises';
import { finished, pipeline } from 'node:stream/promises';
import { constants, createGzip } from 'node:zlib';

import { createReflectors } from '../cluster/api/reflector.ts';
import type { LiveEntry } from '../cluster/decode/entry.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import type { Redactor } from '../cluster/files/redactor.ts';
import { createStore } from '../cluster/store/store.ts';
import { resources } from '../model/objects.ts';
import { isInNamespaces, isInScope, listedNamespaces } from '../model/scope.ts';
import { type Cluster, followAnswers, openCluster } from './shared/cluster.ts';
import { fail, printConnection, problemLog, useLog } from './shared/console.ts';
import { createLog, type LogFormat } from './shared/log.ts';
import { type ClusterFlags, type RedactionFlags, redactorOf, scopeOf } from './shared/options.ts';
import { stopSignal } from './shared/process.ts';

export interface RecordOptions extends ClusterFlags, RedactionFlags {
  /** Bytes of a file after which the next begins. */
  readonly maxSize?: number;
  /** Seconds after which the next begins. */
  readonly maxAge?: number;
  readonly logFormat?: LogFormat;
}

/** Records until it is stopped. */
export async function record(
  path: string,
  options: RecordOptions,
  cluster: Cluster = openCluster(options),
  stop: AbortController = stopSignal(),
): Promise<number> {
  const log = createLog(options.logFormat ?? 'text');
  const redactor = redactorOf(options);
  const hide = redactor === null ? (text: string) => text : hideNames(options, cluster, redactor);
  useLog((level, text) => log(level, hide(text)));
  if (redactor === null) {
    fail(`${path} will have whole objects, with environment variables of Pods; see --redact`);
  }
  process.stdout.write(`Recording ${hide(cluster.server)} to ${path}\n`);
  try {
    for (let parts = 0; !stop.signal.aborted; parts++) {
      await setAside(path);
      await recordPart(path, options, cluster, parts === 0, redactor, stop.signal);
    }
  } finally {
    cluster.close();
  }
  return 0;
}

/** Replaces the names that the flags and the address of the cluster contain. */
function hideNames({ namespaces = [] }: RecordOptions, { server }: Cluster, redactor: Redactor) {
  const url = URL.canParse(server) ? new URL(server) : null;
  // A proxy before many clusters has the name of the cluster in the path.
  const path = url?.pathname.replace(/\/+$/, '') ?? '';
  const host = url?.hostname ?? server;
  // EKS writes hosts in capital letters, which URLs and errors have as small ones.
  const at = server.toLowerCase().indexOf(host);
  const written = at < 0 ? host : server.slice(at, at + host.length);
  const clear = [written, host, ...namespaces].filter((name) => name !== '');
  const names = clear.map((name) => name.replace(/[^\w-]/g, '\\$&'));
  const form = new RegExp(`(?<![\\w-])(?:${names.join('|')})(?![\\w-])`, 'g');
  return (text: string): string => {
    const withoutPath = path === '' ? text : text.replaceAll(path, `/${redactor.name(path)}`);
    return withoutPath.replace(form, (name) => redactor.name(name));
  };
}

/** `web.ndjson.gz` becomes `web.20261121T105646.123Z.ndjson.gz`. */
async function setAside(path: string): Promise<void> {
  const existing = await stat(path).catch(() => null);
  if (existing === null) return;
  const stamp = existing.mtime.toISOString().replace(/[-:]/g, '');
  const [, stem = path, extension = ''] = /^(.*?)((?:\.ndjson)?(?:\.gz)?)$/s.exec(path) ?? [];
  await rename(path, `${stem}.${stamp}${extension}`);
}

/** Seconds. A longer timer would fire at once. */
const longestTimer = 2_000_000;

async function recordPart(
  path: string,
  options: RecordOptions,
  cluster: Cluster,
  isFirst: boolean,
  redactor: Redactor | null,
  signal: AbortSignal,
): Promise<void> {
  const { maxSize = Infinity, maxAge, endpoints } = options;
  const { clock, environment } = cluster;
  const [scope, recorder] = [scopeOf(options), createRecorder(redactor)];
  const store = createStore(new Set(resources));
  const over = new AbortController();
  const end = (): void => {
    over.abort();
  };
  const output = openOutput(path, end);
  const cancel = maxAge === undefined ? null : clock.after(Math.min(maxAge, longestTimer), end);
  // The store follows the entries outside the scope, too, to detect deletions.
  const lineOf = (entry: LiveEntry): string => {
    if (entry.kind === 'event') {
      const { resource, object } = entry.event;
      store.apply(entry.event);
      if (!isInScope(scope, resource, object)) return '';
    } else if (entry.kind === 'unreadable') {
      const { resource, namespace } = entry.lost;
      const isOfAll = resource === 'nodes' || namespace === null;
      if (!isOfAll && !isInNamespaces(scope, namespace)) return '';
    } else if (entry.kind === 'synced') store.listed(entry.resource);
    return recorder.line(entry);
  };
  const answers = followAnswers(cluster, () => reflectors, options);
  const isEmpty = (): boolean =>
    isFirst && [...reflectors.status.values()].every(({ counters }) => counters.lists === 0);
  const failures: string[] = [];
  const poll = (): void => {
    if (over.signal.aborted || signal.aborted || !isEmpty()) return;
    if (!answers.isOver(clock.now())) {
      clock.after(0.1, poll);
      return;
    }
    failures.push(answers.reason());
    end();
  };
  const reflectors = createReflectors({
    environment,
    held: (resource) => store.objects[resource],
    async deliver(entries) {
      await output.write(entries.map(lineOf).join(''));
      if (output.bytes() >= maxSize) end();
    },
    onProblem: problemsOf(redactor),
    onConnection(change) {
      if (isEmpty()) answers.onConnection(change);
      else printConnection(cluster.server, change);
    },
    endpoints,
    namespaces: listedNamespaces(scope),
    watchList: true,
    raw: true,
  });
  poll();
  try {
    await reflectors.run(AbortSignal.any([signal, over.signal]));
  } finally {
    cancel?.();
    await output.close(recorder.end(clock.now()));
  }
  for (const failure of failures) throw new Error(failure);
}

/** Prints problems, without names if the recording has none. */
function problemsOf(redactor: Redactor | null): OnProblem {
  const { onProblem } = problemLog();
  return (problem) => onProblem(redactor?.problem(problem) ?? problem);
}

/** Errors of the file reject the next write, and `close`. */
function openOutput(path: string, onError: () => void) {
  const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
  const gzip = path.endsWith('.gz') ? createGzip() : null;
  const stream = gzip ?? file;
  const ended = gzip === null ? finished(file) : pipeline(gzip, file);
  ended.catch(onError);
  const flushing = setInterval(() => gzip?.flush(constants.Z_SYNC_FLUSH), 1000);
  return {
    /** Resolves when the next text may be written. */
    async write(text: string): Promise<void> {
      if (stream.errored !== null) await ended;
      if (text === '' || stream.write(text)) return;
      await Promise.race([once(stream, 'drain'), ended]);
    },
    bytes: () => file.bytesWritten,
    async close(last: string): Promise<void> {
      clearInterval(flushing);
      if (stream.errored === null) stream.end(last);
      await ended;
    },
  };
}
