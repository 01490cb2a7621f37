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
import { auditorOf, openCluster } from './cluster.ts';
import type { Connected, Judged, Reported } from './options.ts';
import type { Ruled } from './rules.ts';
import { givenRules } from './rules.ts';
import { exitCodeOf, fail, print, problemLog, progress, sayIfUnknown } from './say.ts';
import { stopSignal } from './stop.ts';

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

/** Seconds without any answer after which the first lists are given up. */
const patience = 60;
/** Seconds that confirming may last beyond the settle window. */
const confirming = 15;

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
  const stop = stopSignal();
  const { auditor, attached } = auditorOf(cluster, options, { onProblem });
  const { clock } = cluster;
  const bytes = (): number =>
    [...attached.watches.values()].reduce((sum, { counters }) => sum + counters.bytes, 0);
  let heard = { bytes: 0, at: clock.now() };
  let judgedAt: number | null = null;
  const look = (): void => {
    const now = clock.now();
    if (bytes() > heard.bytes) heard = { bytes: bytes(), at: now };
    if (auditor.ledger() === null) {
      if (now - heard.at > patience) stop.abort();
      else clock.after(0.05, look);
      return;
    }
    judgedAt ??= now;
    const isOver = now > judgedAt + options.settle + confirming;
    if (isOver || isSettled(auditor)) stop.abort();
    else clock.after(0.05, look);
  };
  clock.after(0.05, look);
  try {
    await attached.run(stop.signal);
  } finally {
    cluster.close();
  }
  if (!auditor.store.snapshot.knows('services')) {
    fail(`No Services could be read from ${cluster.server}: nothing to audit`);
    return 2;
  }
  if (auditor.ledger() === null) {
    fail(`${cluster.server}: not all lists are complete: ${auditor.awaited().join(', ')}`);
    return 2;
  }
  sayIfUnknown(auditor);
  return reported(auditor, [cluster.server], options, problems);
}

/** Whether every watch stands, and nothing waits to become a finding or to be well again. */
function isSettled(auditor: Auditor): boolean {
  const { cut, settle } = auditor;
  const states = [...cut.inputs.values()].map(({ state }) => state);
  if (!states.every((state) => state === 'synced' || state === 'off')) return false;
  return auditor.nextAt() === null && [...settle.waiting()].every(({ item }) => item.gone);
}
