// `audit`: judges a cluster once, from a dump or live.
//
// Live, it lists, judges, and goes on watching only where and while something differs: until that
// is as it should be, or has stood for the settle window and was confirmed by reading it again. A
// cluster in which all conform is reported at once.

import { readDump } from '../cluster/dump.ts';
import type { Auditor } from '../serve.ts';
import { reportOf } from '../reporting.ts';
import { createAuditor } from '../serve.ts';
import type { Cluster } from './cluster.ts';
import { openCluster } from './cluster.ts';
import { isSettled, judgedOnce } from './once.ts';
import type { Connected, Judged, Reported } from './options.ts';
import type { Ruled } from './rules.ts';
import { givenRules } from './rules.ts';
import { exitCodeOf, fail, print, problemLog, progress } from './say.ts';

export type AuditedOnce = Judged & Reported & Connected & Ruled;

export async function auditDump(paths: readonly string[], options: AuditedOnce): Promise<number> {
  const { problems, onProblem } = problemLog();
  const auditor = createAuditor({
    // A dump is one moment: there is nothing to wait for.
    settle: 0,
    release: options.kubernetesVersion ?? null,
    maxEndpointsPerSlice: options.maxEndpointsPerSlice,
    onProblem,
  });
  for (const given of await givenRules(options)) auditor.take(given);
  const reading = progress(paths.join(', '));
  for await (const entry of readDump(paths, onProblem)) {
    reading.count(null);
    auditor.take(entry);
  }
  reading.done();
  if (!auditor.store.snapshot.knows('services')) {
    fail(`No Services in ${paths.join(', ')}: nothing to audit (a recording is for replay)`);
    return 2;
  }
  return reported(auditor, paths, options, problems);
}

function reported(
  auditor: Auditor,
  sources: readonly string[],
  options: AuditedOnce,
  problems: readonly string[],
): number {
  const namespace = options.namespace ?? null;
  const report = reportOf(auditor, { kind: 'audit', sources, namespace, problems });
  print(report, options.output);
  return exitCodeOf(report);
}

/** Audits a live cluster once; `cluster` is that of the options unless it is given. */
export async function auditLive(
  options: AuditedOnce,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  if (options.rules !== undefined) {
    fail('--rules needs a dump of the cluster at the same moment: a path');
    return 2;
  }
  const { problems, onProblem } = problemLog();
  const auditor = await judgedOnce(options, cluster, onProblem, isSettled);
  if (auditor === null) return 2;
  return reported(auditor, [cluster.server], options, problems);
}
