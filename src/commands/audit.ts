// The `audit` command: audits a cluster once, from a dump or live.
//
// Live, it watches only while a difference is pending, until the difference is gone, or was
// confirmed by a fresh read after the settle window.

import { createReadStream } from 'node:fs';

import { type Auditor, createAuditor } from '../auditor/auditor.ts';
import type { GivenRules } from '../auditor/node-rules.ts';
import { selectedServices } from '../auditor/queries.ts';
import { plainBytes } from '../cluster/decode/line-reader.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import { isSystemError, problemAt, systemReason } from '../cluster/decode/problem.ts';
import { parseYaml } from '../cluster/decode/yaml-text.ts';
import { type DumpEntry, readDump } from '../cluster/files/dump.ts';
import { listedNamespaces } from '../model/scope.ts';
import { type Moment, replay } from '../auditor/replay.ts';
import { openAuditAt, printAudit } from './replay.ts';
import {
  auditOnce,
  type Cluster,
  createNamespaceCheck,
  isSettled,
  openCluster,
  pendingIn,
} from './shared/cluster.ts';
import {
  createWaitNotice,
  fail,
  problemLog,
  warnIfUnverified,
  withProgress,
} from './shared/console.ts';
import { readGate } from './shared/gate.ts';
import type { HistoryFlags } from './shared/history.ts';
import { readInputKind } from './shared/input.ts';
import type {
  AgentsFlags,
  AuditFlags,
  ClusterFlags,
  InputFlags,
  ReportFlags,
  RulesFlags,
} from './shared/options.ts';
import { auditorOptions, scopeOf } from './shared/options.ts';
import { UsageError } from './shared/process.ts';
import { yamlErrorText } from './shared/yaml-file.ts';

export type AuditOptions = AuditFlags &
  Pick<HistoryFlags, 'history'> & { readonly at?: Moment } & ReportFlags &
  InputFlags &
  ClusterFlags &
  RulesFlags &
  AgentsFlags;

/** An auditor of a dump, and the rules of nodes that the flags name. */
export async function auditorOfDump(
  entries: AsyncIterable<DumpEntry>,
  options: AuditFlags & RulesFlags,
  onProblem: OnProblem,
) {
  // A dump shows one moment, so no difference is pending.
  const auditor = createAuditor({ ...auditorOptions(options, onProblem), settle: 0 });
  const rules = await givenRules(options);
  for (const given of rules) auditor.take(given);
  for await (const entry of entries) auditor.take(entry);
  return { auditor, rules };
}

export async function auditDump(paths: readonly string[], options: AuditOptions): Promise<number> {
  for (const path of paths) {
    if ((await readInputKind(path)) !== 'recording') continue;
    if (options.at !== undefined && paths.length === 1) return auditMoment(path, options);
    throw new UsageError(`${path} is a recording: use "replay ${path}"`);
  }
  if (options.at !== undefined) {
    throw new UsageError('--at needs a history or a recording: a dump shows one moment');
  }
  const gate = readGate(options);
  const log = problemLog();
  const { onProblem } = log;
  const entries = withProgress(paths.join(', '), readDump(paths, onProblem), () => null);
  const { auditor, rules } = await auditorOfDump(entries, options, onProblem);
  if (!auditor.store.listers.knows('services')) {
    throw new Error(`No Services in ${paths.join(', ')}: nothing to audit`);
  }
  for (const { node, source } of rules) {
    if (auditor.store.listers.nodes.has(node)) continue;
    const object = `Node ${node}`;
    onProblem(problemAt(source, null, `There is no such Node in ${paths.join(', ')}`, { object }));
  }
  warnIfUnverified(auditor);
  return printAudit(auditor, 'audit', paths, options, gate, log);
}

/** Audits a moment of a history, or of a recording. */
export async function auditMoment(source: string, options: AuditOptions): Promise<number> {
  const gate = readGate(options);
  const log = problemLog();
  const { onProblem } = log;
  const { auditor, entries, until } = await openAuditAt(source, options, onProblem);
  await replay(auditor, entries, { speed: Infinity, until });
  warnIfUnverified(auditor);
  return printAudit(auditor, 'moment', [source], options, gate, log);
}

/** Audits a live cluster once. */
export async function auditLive(
  options: AuditOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  if (options.rules !== undefined) {
    throw new UsageError('--rules needs a dump of the cluster at the same moment: a path');
  }
  const gate = readGate(options);
  const log = problemLog();
  const { onProblem } = log;
  const notice = createWaitNotice();
  const { namespace = null } = options;
  const flags = narrowFlags(options);
  const named = listedNamespaces(scopeOf(flags)) ?? (namespace === null ? [] : [namespace]);
  const check = createNamespaceCheck(cluster, named);
  const isDone = (running: Auditor): boolean => {
    if (check.texts(running) === null) return false;
    const within = selectedServices(running, options);
    const pending = pendingIn(running, within);
    const until = Math.max(...pending.map(({ at }) => at));
    const now = cluster.clock.now();
    if (pending.length > 0) notice.show(pending.length, until - now);
    return isSettled(running, within);
  };
  const auditor = await auditOnce(flags, cluster, onProblem, isDone).finally(() => {
    notice.clear();
  });
  for (const text of check.texts(auditor) ?? []) fail(text);
  return printAudit(auditor, 'audit', [cluster.server], options, gate, log);
}

/**
 * The flags with --namespaces as narrow as the report: the user may have no other permissions.
 * Agents report on the Services of the whole cluster. Throws a UsageError if nothing is left.
 */
function narrowFlags(options: AuditOptions): AuditOptions {
  const { namespace, namespaces, agents } = options;
  if (namespace === undefined || agents !== undefined) return options;
  if (namespaces?.includes(namespace) === false) {
    throw new UsageError(`-n ${namespace} is not one of the --namespaces`);
  }
  return { ...options, namespaces: [namespace] };
}

// --- files with the rules of nodes (--rules) and their configurations (--proxy-config) ---

/** A text of more bytes is refused: the rules of the largest nodes have a fifth. */
const mostBytes = 256 * 1024 * 1024;

/** A text, plain or gzip. `most`: bytes. */
export async function readText(path: string, most = mostBytes): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  const damage: string[] = [];
  const onDamage = (message: string, detail: string | null): void => {
    damage.push(detail === null ? message : `${message}: ${detail}`);
  };
  for await (const piece of plainBytes(createReadStream(path), onDamage)) {
    bytes += piece.length;
    if (bytes > most) throw new Error(`Is longer than ${String(most)} bytes`);
    pieces.push(piece);
  }
  for (const message of damage) throw new Error(message);
  return Buffer.concat(pieces).toString();
}

function reasonOf(error: unknown): string {
  if (isSystemError(error)) return `Cannot read: ${systemReason(error)}`;
  const message = error instanceof Error ? error.message : String(error);
  return message.split('\n', 1)[0] ?? '';
}

const empty = 'The file is empty';

/** The text, or why there is none. An empty file does not mean that a node has no rules. */
async function readRules(path: string): Promise<Pick<GivenRules, 'text' | 'unread'>> {
  try {
    const text = await readText(path);
    return { text, unread: text.trim() === '' ? empty : null };
  } catch (error) {
    return { text: '', unread: reasonOf(error) };
  }
}

/**
 * Rejects if a configuration cannot be read or is not YAML. An empty file of rules is omitted if
 * its node has another, since the programs of an unused backend print nothing.
 */
export async function givenRules(flags: RulesFlags): Promise<GivenRules[]> {
  const { rules = [], proxyConfig = [] } = flags;
  const configs = new Map<string | null, unknown>();
  for (const { node, path } of proxyConfig) {
    try {
      // kube-proxy's configuration has a few kilobytes.
      configs.set(node, parseYaml(await readText(path, 256 * 1024)));
    } catch (error) {
      const text = isSystemError(error)
        ? `${path}: ${reasonOf(error)}`
        : yamlErrorText(path, error);
      throw new Error(text, { cause: error });
    }
  }
  const given: GivenRules[] = [];
  for (const { node, path } of rules) {
    const config = configs.get(node) ?? configs.get(null) ?? null;
    const kind = 'given-rules' as const;
    given.push({ kind, node: node ?? '', source: path, ...(await readRules(path)), config });
  }
  const readable = new Set(given.flatMap(({ node, unread }) => (unread === null ? [node] : [])));
  return given.filter(({ node, unread }) => unread !== empty || !readable.has(node));
}
