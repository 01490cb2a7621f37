// The command `explain`: why a pod is, or is not, in a Service, and what a node does with one: on a
// live cluster, which is listed as audit does, on a dump, at a moment of a recording, or as a
// server that runs knows it. It reads its input through the loop that audit and replay use
// (serve.ts), follows the subject while it reads, and prints one explanation.
//
// Exit codes as audit has them: 0 what is asked about is as it must be (also a pod that must not be
// in the Service), 1 a finding above information stands about it, 2 it does not exist or cannot be
// judged, or bad usage.

import { explain } from '../audit/explain/explain.ts';
import type { Explanation, ExplainTarget } from '../audit/explain/explanation.ts';
import type { TargetHistory, HistoryEntry } from '../audit/explain/history.ts';
import { createTargetHistory } from '../audit/explain/history.ts';
import type { ParsedTarget } from '../audit/explain/target.ts';
import { unresolvedTarget, parseTarget, resolveTarget } from '../audit/explain/target.ts';
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

/** What the command line says besides the subject. */
export interface ExplainOptions extends AuditFlags, ClusterFlags, RulesFlags {
  readonly input?: readonly string[];
  readonly recording?: string;
  readonly server?: string;
  readonly at?: number;
  readonly namespace?: string;
  readonly output: 'text' | 'json';
}

/** Replays a recording to the moment that is asked for, and follows the subject on the way. */
async function follow(
  auditor: Auditor,
  asked: ParsedTarget,
  entries: AsyncIterable<RecordingEntry>,
  options: ExplainOptions,
): Promise<{ subject: ExplainTarget | null; moments: readonly HistoryEntry[] }> {
  let subject: ExplainTarget | null = null;
  let journal: TargetHistory | null = null;
  const observe = (event: WatchEvent | null): void => {
    const serviceAuditor = auditor.serviceAuditor();
    if (serviceAuditor === null) return;
    const { listers } = auditor.store;
    const name = event?.object.name;
    if (
      subject === null &&
      (event === null || name === asked.pod?.name || name === asked.service?.name)
    )
      subject = resolveTarget(asked, listers);
    if (subject === null) return;
    const first = journal === null;
    journal ??= createTargetHistory(storyOf(subject));
    const context = verdictInput(auditor);
    journal.observe(context, serviceAuditor, first ? null : event, auditor.now() ?? 0);
  };
  async function* watched(): AsyncGenerator<RecordingEntry> {
    let begun = false;
    for await (const entry of entries) {
      // Walking the rules of nodes costs more than all the rest, and only a node is judged by them.
      if (asked.node === null && isOfNodes(entry)) continue;
      yield entry;
      if (!begun && auditor.serviceAuditor() !== null) observe(null);
      else if (entry.kind === 'event') observe(entry.event);
      begun ||= auditor.serviceAuditor() !== null;
    }
  }
  await replay(auditor, watched(), { speed: Infinity, until: options.at ?? null });
  observe(null);
  return { subject, moments: (journal as TargetHistory | null)?.entries ?? [] };
}

const isOfNodes = ({ kind }: RecordingEntry): boolean =>
  kind === 'node-rules' || kind === 'node-config';

/** Of what a node does, the story is that of the Service. */
const storyOf = (subject: ExplainTarget): Parameters<typeof createTargetHistory>[0] =>
  subject.kind === 'node' ? { kind: 'service', service: subject.service } : subject;

function exitCodeOf({ found, verdict, severity }: Explanation): 0 | 1 | 2 {
  if (!found || verdict === 'unknown') return 2;
  return severity === null || severity === 'info' ? 0 : 1;
}

/** What there is to be explained from, of those that the command line may name. */
const sources = ['input', 'recording', 'server'] as const;

function usageError(options: ExplainOptions): string | null {
  const given = sources.filter((one) => options[one] !== undefined);
  if (given.length > 1) {
    return `Expected only one of ${sources.map((one) => `--${one}`).join(', ')}`;
  }
  if (options.at !== undefined && options.recording === undefined) {
    return '--at is for --recording: everything else is one moment';
  }
  if (options.rules !== undefined && options.input === undefined) {
    return '--rules needs a dump of the cluster at the same moment: --input PATH';
  }
  return null;
}

interface Known {
  readonly auditor: Auditor;
  readonly subject: ExplainTarget | null;
  readonly moments: readonly HistoryEntry[] | null;
}

async function ofDump(
  asked: ParsedTarget,
  paths: readonly string[],
  options: ExplainOptions,
): Promise<Known> {
  const { onProblem } = problemLog();
  // A dump is one moment: there is nothing to wait for.
  const auditor = createAuditor({ ...auditorOptions(options, onProblem), settle: 0 });
  for (const given of await givenRules(options)) auditor.take(given);
  for await (const entry of readDump(paths, onProblem)) auditor.take(entry);
  return { auditor, subject: resolveTarget(asked, auditor.store.listers), moments: null };
}

async function ofRecording(
  asked: ParsedTarget,
  path: string,
  options: ExplainOptions,
): Promise<Known> {
  const { onProblem } = problemLog();
  const auditor = createAuditor(auditorOptions(options, onProblem));
  const entries = await recordingOf(path, auditor, onProblem);
  return { auditor, ...(await follow(auditor, asked, entries, options)) };
}

/** Follows the cluster while what is asked about is pending. */
async function ofCluster(
  asked: ParsedTarget,
  options: ExplainOptions,
  cluster: Cluster,
): Promise<Known | null> {
  const isDone = (auditor: Auditor): boolean => {
    const subject = resolveTarget(asked, auditor.store.listers);
    return subject === null || explained(auditor, subject)?.verdict !== 'pending';
  };
  const { onProblem } = problemLog();
  const auditor = await auditOnce(options, cluster, onProblem, isDone);
  if (auditor === null) return null;
  return { auditor, subject: resolveTarget(asked, auditor.store.listers), moments: null };
}

function explained(auditor: Auditor, subject: ExplainTarget): Explanation | null {
  const serviceAuditor = auditor.serviceAuditor();
  return serviceAuditor === null
    ? null
    : explain(verdictInput(auditor), serviceAuditor, subject, nodeLookup(auditor));
}

/** Explains what the words name; `open` opens the cluster of the options. The exit code. */
export async function explainSubject(
  words: readonly string[],
  options: ExplainOptions,
  open: () => Cluster = () => openCluster(options),
): Promise<number> {
  const asked = parseTarget(words, options.namespace ?? null);
  const wrong = usageError(options);
  if (wrong !== null) {
    fail(wrong);
    return 2;
  }
  const { input, recording, server, namespace } = options;
  if (server !== undefined) {
    const document = await askServer(server, words, namespace ?? null);
    return typeof document === 'string' ? failed(document) : told(document, options);
  }
  const known =
    recording !== undefined
      ? await ofRecording(asked, recording, options)
      : input !== undefined
        ? await ofDump(asked, input, options)
        : await ofCluster(asked, options, open());
  if (known === null) return 2;
  const { auditor, subject, moments } = known;
  const explanation = explained(auditor, subject ?? unresolvedTarget(asked, auditor.store.listers));
  if (explanation === null || !auditor.store.listers.knows('services')) {
    const early =
      recording === undefined ? '' : ', or --at comes before its first lists are complete';
    return failed(`The input has no Services${early}: nothing to explain`);
  }
  const at = auditor.now();
  return told({ format: 1, kind: 'explain', at, ...explanation, history: moments }, options);
}

function failed(text: string): 2 {
  fail(text);
  return 2;
}

function told(document: ExplainDocument, { output }: ExplainOptions): number {
  process.stdout.write(renderExplanation(document, output, { colour, width: terminalWidth() }));
  return exitCodeOf(document);
}
