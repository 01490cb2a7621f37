// The `audit` command: audits a cluster once, from a dump or live.
//
// Live, it watches only while a difference is pending, until the difference is gone, or was
// confirmed by a fresh read after the settle window.

import { createAuditor } from '../auditor/auditor.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import { problemAt } from '../cluster/decode/problem.ts';
import type { DumpEntry } from '../cluster/files/dump.ts';
import { readDump } from '../cluster/files/dump.ts';
import { printAudit } from './replay.ts';
import type { Cluster } from './shared/cluster.ts';
import { auditOnce, isSettled, openCluster } from './shared/cluster.ts';
import { problemLog, warnIfUnverified, withProgress } from './shared/console.ts';
import type { AgentsFlags, AuditFlags, ClusterFlags, ReportFlags } from './shared/options.ts';
import { auditorOptions } from './shared/options.ts';
import type { RulesFlags } from './shared/rules-files.ts';
import { givenRules } from './shared/rules-files.ts';

export type AuditOptions = AuditFlags & ReportFlags & ClusterFlags & RulesFlags & AgentsFlags;

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
  const { problems, onProblem } = problemLog();
  const entries = withProgress(paths.join(', '), readDump(paths, onProblem), () => null);
  const { auditor, rules } = await auditorOfDump(entries, options, onProblem);
  if (!auditor.store.listers.knows('services')) {
    throw new Error(
      `No Services in ${paths.join(', ')}: nothing to audit (a recording is for replay)`,
    );
  }
  for (const { node, source } of rules) {
    if (auditor.store.listers.nodes.has(node)) continue;
    const object = `Node ${node}`;
    onProblem(problemAt(source, null, `There is no such Node in ${paths.join(', ')}`, { object }));
  }
  warnIfUnverified(auditor);
  return printAudit(auditor, 'audit', paths, options, problems);
}

/** Audits a live cluster once. */
export async function auditLive(
  options: AuditOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  if (options.rules !== undefined) {
    throw new Error('--rules needs a dump of the cluster at the same moment: a path');
  }
  const { problems, onProblem } = problemLog();
  const auditor = await auditOnce(options, cluster, onProblem, isSettled);
  return printAudit(auditor, 'audit', [cluster.server], options, problems);
}
