// The `explain` command: explains why a Pod is or is not in a Service, or what a node does with a
// Service. Its input is a live cluster, a dump, a moment of a recording, or a running server.
//
// Exit codes: 0 the state is as expected (also for a Pod that must not be in the Service), 1 an
// open finding above information concerns it, 2 the target does not exist or is unknown, or bad
// usage.

import { explain } from '../audit/explain/explain.ts';
import type { Explanation, ExplainTarget } from '../audit/explain/explanation.ts';
import type { TargetHistory, HistoryEntry } from '../audit/explain/history.ts';
import { createTargetHistory } from '../audit/explain/history.ts';
import type { ParsedTarget } from '../audit/explain/target.ts';
import { isResolved, parseTarget, resolveTarget } from '../audit/explain/target.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { createAuditor } from '../auditor/auditor.ts';
import { nodeLookup, verdictInput } from '../auditor/explanations.ts';
import { replay } from '../auditor/replay.ts';
import { readDump } from '../cluster/files/dump.ts';
import type { RecordingEntry } from '../cluster/files/recording.ts';
import type { WatchEvent } from '../model/objects.ts';
import type { ExplainDocument } from '../output/text/explain.ts';
import { renderExplanation } from '../output/text/explain.ts';
import { recordingOf } from './replay.ts';
import { askServer } from './shared/ask-server.ts';
import type { Cluster } from './shared/cluster.ts';
import { auditOnce, openCluster } from './shared/cluster.ts';
import { colour, fail, problemLog, terminalWidth } from './shared/console.ts';
import type { ClusterFlags, AuditFlags } from './shared/options.ts';
import { auditorOptions } from './shared/options.ts';
import type { RulesFlags } from './shared/rules-files.ts';
import { givenRules } from './shared/rules-files.ts';

export interface ExplainOptions extends AuditFlags, ClusterFlags, RulesFlags {
  readonly input?: readonly string[];
  readonly recording?: string;
  readonly server?: string;
  readonly at?: number;
  readonly namespace?: string;
  readonly output: 'text' | 'json';
}

/** Replays a recording up to `--at`, and records the history of the target on the way. */
async function replayHistory(
  auditor: Auditor,
  request: ParsedTarget,
  entries: AsyncIterable<RecordingEntry>,
  options: ExplainOptions,
): Promise<{ target: ExplainTarget | null; moments: readonly HistoryEntry[] }> {
  let target: ExplainTarget | null = null;
  let history: TargetHistory | null = null;
  const observe = (event: WatchEvent | null): void => {
    const serviceAuditor = auditor.serviceAuditor();
    if (serviceAuditor === null) return;
    const name = event?.object.name ?? null;
    const isNamed = name === null || [request.pod?.name, request.service?.name].includes(name);
    if (target === null && isNamed) {
      const found = resolveTarget(request, auditor.store.listers);
      if (isResolved(found)) target = found;
    }
    if (target === null) return;
    const first = history === null;
    history ??= createTargetHistory(historyTarget(target));
    const context = verdictInput(auditor);
    history.observe(context, serviceAuditor, first ? null : event, auditor.now() ?? 0);
  };
  async function* watched(): AsyncGenerator<RecordingEntry> {
    let begun = false;
    for await (const entry of entries) {
      // Rules of nodes cost more time than everything else, and only a node needs them.
      if (request.node === null && isOfNodes(entry)) continue;
      yield entry;
      if (!begun && auditor.serviceAuditor() !== null) observe(null);
      else if (entry.kind === 'event') observe(entry.event);
      begun ||= auditor.serviceAuditor() !== null;
    }
  }
  await replay(auditor, watched(), { speed: Infinity, until: options.at ?? null });
  observe(null);
  return { target, moments: (history as TargetHistory | null)?.entries ?? [] };
}

const isOfNodes = ({ kind }: RecordingEntry): boolean =>
  kind === 'node-rules' || kind === 'node-config';

/** The target of the history: for a node, the Service. */
const historyTarget = (target: ExplainTarget): Parameters<typeof createTargetHistory>[0] =>
  target.kind === 'node' ? { kind: 'service', service: target.service } : target;

function exitCodeOf({ found, verdict, severity }: Explanation): 0 | 1 | 2 {
  if (!found || verdict === 'unknown') return 2;
  return severity === null || severity === 'info' ? 0 : 1;
}

/** Flags that replace the live cluster as the input. */
const sources = ['input', 'recording', 'server'] as const;

function usageError(options: ExplainOptions): string | null {
  const given = sources.filter((source) => options[source] !== undefined);
  if (given.length > 1) {
    return `Expected only one of ${sources.map((source) => `--${source}`).join(', ')}`;
  }
  if (options.at !== undefined && options.recording === undefined) {
    return '--at is for --recording: everything else is one moment';
  }
  if (options.rules !== undefined && options.input === undefined) {
    return '--rules needs a dump of the cluster at the same moment: --input PATH';
  }
  return null;
}

interface ExplainInput {
  readonly auditor: Auditor;
  /** null unless the history of a recording found it. */
  readonly target: ExplainTarget | null;
  readonly moments: readonly HistoryEntry[] | null;
}

async function ofDump(paths: readonly string[], options: ExplainOptions): Promise<ExplainInput> {
  const { onProblem } = problemLog();
  // A dump is one moment: there is nothing to wait for.
  const auditor = createAuditor({ ...auditorOptions(options, onProblem), settle: 0 });
  for (const given of await givenRules(options)) auditor.take(given);
  for await (const entry of readDump(paths, onProblem)) auditor.take(entry);
  return { auditor, target: null, moments: null };
}

async function ofRecording(
  request: ParsedTarget,
  path: string,
  options: ExplainOptions,
): Promise<ExplainInput> {
  const { onProblem } = problemLog();
  const auditor = createAuditor(auditorOptions(options, onProblem));
  const entries = await recordingOf(path, auditor, onProblem);
  return { auditor, ...(await replayHistory(auditor, request, entries, options)) };
}

/** Watches the cluster while the verdict about the target is pending. */
async function ofCluster(
  request: ParsedTarget,
  options: ExplainOptions,
  cluster: Cluster,
): Promise<ExplainInput | null> {
  const isDone = (auditor: Auditor): boolean => {
    const target = resolveTarget(request, auditor.store.listers);
    return explained(auditor, target)?.verdict !== 'pending';
  };
  const { onProblem } = problemLog();
  const auditor = await auditOnce(options, cluster, onProblem, isDone);
  if (auditor === null) return null;
  return { auditor, target: null, moments: null };
}

function explained(auditor: Auditor, target: ExplainTarget): Explanation | null {
  const serviceAuditor = auditor.serviceAuditor();
  return serviceAuditor === null
    ? null
    : explain(verdictInput(auditor), serviceAuditor, target, nodeLookup(auditor));
}

/** Prints the explanation and returns the exit code. `open` connects to the cluster. */
export async function explainSubject(
  words: readonly string[],
  options: ExplainOptions,
  open: () => Cluster = () => openCluster(options),
): Promise<number> {
  const request = parseTarget(words, options.namespace ?? null);
  const wrong = usageError(options);
  if (wrong !== null) {
    fail(wrong);
    return 2;
  }
  const { input, recording, server, namespace } = options;
  if (server !== undefined) {
    const document = await askServer(server, words, namespace ?? null);
    return typeof document === 'string' ? failed(document) : printed(document, options);
  }
  const known =
    recording !== undefined
      ? await ofRecording(request, recording, options)
      : input !== undefined
        ? await ofDump(input, options)
        : await ofCluster(request, options, open());
  if (known === null) return 2;
  const { auditor, target, moments } = known;
  const { listers } = auditor.store;
  const explanation = explained(auditor, target ?? resolveTarget(request, listers));
  if (explanation === null || !listers.knows('services')) {
    const early =
      recording === undefined ? '' : ', or --at comes before its first lists are complete';
    return failed(`The input has no Services${early}: nothing to explain`);
  }
  const at = auditor.now();
  return printed({ format: 1, kind: 'explain', at, ...explanation, history: moments }, options);
}

function failed(text: string): 2 {
  fail(text);
  return 2;
}

function printed(document: ExplainDocument, { output }: ExplainOptions): number {
  process.stdout.write(renderExplanation(document, output, { colour, width: terminalWidth() }));
  return exitCodeOf(document);
}
