// `audit`: judges a cluster once, from a dump or live.
//
// Live, it lists, judges, and goes on watching only where and while something differs: until that
// is as it should be, or has stood for the settle window and was confirmed by reading it again. A
// cluster in which all conform is reported at once.

import type { Scraper } from '../agent/client/scraper.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { createAuditor } from '../auditor/auditor.ts';
import { createReport } from '../auditor/queries.ts';
import { problemAt } from '../cluster/decode/problem.ts';
import { readDump } from '../cluster/files/dump.ts';
import { fleetOf } from './shared/agents.ts';
import type { Cluster } from './shared/cluster.ts';
import { openCluster } from './shared/cluster.ts';
import { exitCodeOf, fail, printReport, problemLog, progress } from './shared/console.ts';
import type { AgentsFlags, AuditFlags, ClusterFlags, ReportFlags } from './shared/options.ts';
import { auditorOptions } from './shared/options.ts';
import type { RulesFlags } from './shared/rules-files.ts';
import { givenRules } from './shared/rules-files.ts';
import { auditOnce, isSettled } from './shared/run-once.ts';

export type AuditOptions = AuditFlags & ReportFlags & ClusterFlags & RulesFlags & AgentsFlags;

export async function auditDump(paths: readonly string[], options: AuditOptions): Promise<number> {
  const { problems, onProblem } = problemLog();
  // A dump is one moment: there is nothing to wait for.
  const auditor = createAuditor({ ...auditorOptions(options, onProblem), settle: 0 });
  const rules = await givenRules(options);
  for (const given of rules) auditor.take(given);
  const reading = progress(paths.join(', '));
  for await (const entry of readDump(paths, onProblem)) {
    reading.count(null);
    auditor.take(entry);
  }
  reading.done();
  if (!auditor.store.listers.knows('services')) {
    fail(`No Services in ${paths.join(', ')}: nothing to audit (a recording is for replay)`);
    return 2;
  }
  for (const { node, source } of rules) {
    if (auditor.store.listers.nodes.has(node)) continue;
    const object = `Node ${node}`;
    onProblem(problemAt(source, null, `There is no such Node in ${paths.join(', ')}`, { object }));
  }
  return reported(auditor, paths, options, problems);
}

function reported(
  auditor: Auditor,
  sources: readonly string[],
  options: AuditOptions,
  problems: readonly string[],
): number {
  const namespace = options.namespace ?? null;
  const report = createReport(auditor, { kind: 'audit', sources, namespace, problems });
  printReport(report, options.output);
  return exitCodeOf(report);
}

/** Seconds beyond that for agents, whose rounds may be far apart. */
const rounds = 240;
/** Seconds after which an agent that has said nothing is not waited for. */
const silence = 15;

/** Whether every agent was heard, or will not be, and nothing on a node is pending. */
function areSettled(auditor: Auditor, fleet: Scraper, now: number): boolean {
  for (const { state, seenAt, since } of fleet.status().values()) {
    if (state === 'stale' && seenAt === null && now - since < silence) return false;
  }
  return (auditor.nodes()?.pendingSince ?? null) === null;
}

/** Audits a live cluster once; `cluster` is that of the options unless it is given. */
export async function auditLive(
  options: AuditOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  if (options.rules !== undefined) {
    fail('--rules needs a dump of the cluster at the same moment: a path');
    return 2;
  }
  const { problems, onProblem } = problemLog();
  const auditor = await auditOnce(options, cluster, onProblem, isSettled, (judging, attached) => {
    const fleet = fleetOf(options, cluster, judging, attached, onProblem);
    if (fleet === null) return null;
    const isDone = (now: number): boolean => areSettled(judging, fleet, now);
    return { run: (signal) => fleet.run(signal), isDone, seconds: rounds };
  });
  if (auditor === null) return 2;
  return reported(auditor, [cluster.server], options, problems);
}
