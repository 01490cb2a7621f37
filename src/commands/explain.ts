// The `explain` command: explains why a Pod is or is not in a Service, or what a node does with a
// Service. Its input is a live cluster, a dump, a moment of a recording, or a running server.
//
// Exit codes: 0 the state is as expected, 1 an open finding above information concerns it, 2 the
// target does not exist or is unknown, 64 bad usage.

import type { ExplainTarget } from '../audit/explain/explanation.ts';
import { createTargetHistory, type TargetHistory } from '../audit/explain/history.ts';
import type { ParsedTarget } from '../audit/explain/target.ts';
import { isResolved, parseTarget, resolveTarget } from '../audit/explain/target.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { explainTarget, verdictInput } from '../auditor/explanations.ts';
import { type Moment, momentSince, replay } from '../auditor/replay.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import { readDump } from '../cluster/files/dump.ts';
import type { RecordingEntry } from '../cluster/files/recording.ts';
import type { WatchEvent } from '../model/objects.ts';
import { type ExplainDocument, renderExplanation } from '../output/text/explain.ts';
import { auditorOfDump } from './audit.ts';
import { openAuditAt } from './replay.ts';
import { auditOnce, type Cluster, openCluster } from './shared/cluster.ts';
import { colour, problemLog, screenWidth } from './shared/console.ts';
import type { HistoryFlags } from './shared/history.ts';
import { readInputKind } from './shared/input.ts';
import type { AuditFlags, ClusterFlags, InputFlags, RulesFlags } from './shared/options.ts';
import { inputsOf } from './shared/options.ts';
import { UsageError } from './shared/process.ts';
import { textOf } from './shared/remote.ts';

export interface ExplainOptions
  extends AuditFlags, InputFlags, ClusterFlags, RulesFlags, Pick<HistoryFlags, 'history'> {
  readonly server?: string;
  readonly at?: Moment;
  readonly namespace?: string;
  readonly output: 'text' | 'json';
}

/** The files of a dump, or the only file of a recording; `null` for a live cluster or a server. */
async function sourceOf(options: ExplainOptions) {
  const { server, at, rules } = options;
  const files = inputsOf(options);
  if (options.history !== undefined) return { recording: options.history };
  const [file] = files;
  if (file !== undefined && server !== undefined) {
    throw new UsageError('Expected only one of --input and --server');
  }
  const kinds = await Promise.all(files.map((path) => readInputKind(path)));
  const isRecording = kinds.includes('recording');
  if (isRecording && files.length > 1) throw new UsageError('Expected only one recording');
  if (at !== undefined && !isRecording) {
    throw new UsageError('--at needs a recording as the --input: a dump shows one moment');
  }
  if (rules !== undefined && (file === undefined || isRecording)) {
    throw new UsageError('--rules needs a dump of the cluster at the same moment: --input FILE');
  }
  if (file === undefined) return null;
  return isRecording ? { recording: file } : { dump: files };
}

async function readRecorded(
  request: ParsedTarget,
  path: string,
  options: ExplainOptions,
  onProblem: OnProblem,
) {
  const { auditor, entries, until } = await openAuditAt(path, options, onProblem);
  const { pod, service, node } = request;
  const names = [pod, service].map((key) => key?.split('/')[1]);
  // Rules of nodes cost more time than everything else, and only Services need them.
  const needsRules = pod === null && (service !== null || node !== null);
  const state: { target?: ExplainTarget; history?: TargetHistory } = {};
  const observe = (event: WatchEvent | null): void => {
    const services = auditor.serviceAuditor();
    if (services === null) return;
    if (state.target === undefined && (event === null || names.includes(event.object.name))) {
      const found = resolveTarget(request, auditor.store.listers);
      if (isResolved(found)) state.target = found;
    }
    if (state.target === undefined) return;
    const change = state.history === undefined ? null : event;
    const { target } = state;
    // For a node, the history is of the Service.
    const subject = historyOf(target);
    if (subject === null) return;
    state.history ??= createTargetHistory(subject);
    state.history.observe(verdictInput(auditor), services, change, auditor.now() ?? 0);
  };
  let begun: number | null = null;
  /** Findings open between entries, at moments that the history of a Service has. */
  const passTimers = (entry: RecordingEntry): void => {
    const at = entry.kind === 'event' ? entry.event.at : entry.at;
    begun ??= at;
    if (state.target === undefined || historyOf(state.target)?.kind !== 'service') return;
    const end = until === null ? at : Math.min(at, momentSince(until, begun));
    for (let next = auditor.nextAt(); next !== null && next < end; next = auditor.nextAt()) {
      auditor.advance(next);
      observe(null);
    }
  };
  async function* watched(): AsyncGenerator<RecordingEntry> {
    for await (const entry of entries) {
      const isOfNodes = entry.kind === 'node-rules' || entry.kind === 'node-config';
      if (isOfNodes && !needsRules) continue;
      const hasBegun = auditor.serviceAuditor() !== null;
      passTimers(entry);
      yield entry;
      if (!hasBegun) observe(null);
      else if (entry.kind === 'event') observe(entry.event);
    }
  }
  await replay(auditor, watched(), { speed: Infinity, until });
  observe(null);
  return { auditor, ...state };
}

/** What the history of a target is about; null for a whole node, which has none. */
function historyOf(target: ExplainTarget) {
  if (target.kind !== 'node') return target;
  const { service } = target;
  return service === null ? null : { kind: 'service' as const, service };
}

/** Parses what the user names. Throws a UsageError. */
export function parseSubject(words: readonly string[], namespace: string | null): ParsedTarget {
  try {
    return parseTarget(words, namespace);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** The Service that a word names. Throws a UsageError if it names none. */
export function parseServiceSubject(word: string, namespace: string | null): ParsedTarget {
  const target = parseSubject([word], namespace);
  const { pod, node, service } = target;
  if (service !== null && pod === null && node === null) return target;
  throw new UsageError(`Expected service/NAME: ${word}`);
}

/** Prints the explanation and returns the exit code. `open` connects to the cluster. */
export async function explainSubject(
  words: readonly string[],
  options: ExplainOptions,
  open: () => Cluster = () => openCluster(options),
): Promise<number> {
  const { server, namespace = null } = options;
  const request = parseSubject(words, namespace);
  const source = await sourceOf(options);
  if (server !== undefined) {
    const document = await askServer(server, words, namespace);
    try {
      return printed(document, options);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw new Error(`${server}: its answer is not an explanation`, { cause: error });
    }
  }
  const { onProblem } = problemLog();
  const recording = source?.recording ?? null;
  const recorded =
    recording === null ? null : await readRecorded(request, recording, options, onProblem);
  let auditor: Auditor;
  if (recorded !== null) auditor = recorded.auditor;
  else if (source?.dump !== undefined) {
    auditor = (await auditorOfDump(readDump(source.dump, onProblem), options, onProblem)).auditor;
  } else {
    // The cluster is watched while the verdict about the target is pending.
    auditor = await auditOnce(options, open(), onProblem, (running) => {
      return explainTarget(running, request)?.verdict !== 'pending';
    });
  }
  const document = explainTarget(auditor, recorded?.target ?? request);
  if (document === null || !auditor.store.listers.knows('services')) {
    const early = recording === null ? '' : ', or --at comes before its first lists are complete';
    throw new Error(`The input has no Services${early}: nothing to explain`);
  }
  const history = recorded && (recorded.history?.entries ?? []);
  return printed({ ...document, history }, options);
}

function printed(document: ExplainDocument, { output }: ExplainOptions): 0 | 1 | 2 {
  // Sentences wrap in a pipe, too.
  const width = screenWidth() ?? 120;
  process.stdout.write(renderExplanation(document, output, { colour, width }));
  const { found, verdict, severity } = document;
  if (!found || verdict === 'unknown') return 2;
  return severity === null || severity === 'info' ? 0 : 1;
}

/** The explanation of a running server, which answers at once. Throws an Error for people. */
export async function askServer(
  server: string,
  words: readonly string[],
  namespace: string | null,
): Promise<ExplainDocument> {
  const base = server.includes('://') ? server : `http://${server}`;
  if (!URL.canParse(base)) throw new Error(`--server: expected a URL: ${server}`);
  const url = new URL('api/v1/explain', base.endsWith('/') ? base : `${base}/`);
  for (const word of words) url.searchParams.append('subject', word);
  if (namespace !== null) url.searchParams.set('namespace', namespace);
  type Answer = Partial<Record<'format' | 'kind' | 'error', string | number>> | null;
  const failed = (error: unknown): never => {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`${server} gives no explanation: ${why}`, { cause: error });
  };
  const response = await fetch(url, { signal: AbortSignal.timeout(10_000) }).catch(failed);
  const answer = (await textOf(response).then(JSON.parse).catch(failed)) as Answer;
  if (answer?.format === 1 && answer.kind === 'explain') {
    // A server of an earlier version has no incidents.
    const { incidents = [], ...rest } = answer as Partial<ExplainDocument>;
    return { ...rest, incidents } as ExplainDocument;
  }
  if (answer?.error !== undefined) throw new Error(`${server}: ${answer.error}`);
  throw new Error(
    `${server} answers ${response.status}, but not with an explanation: is it serve?`,
  );
}
