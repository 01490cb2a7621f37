// What an auditor knows, put into one document: the report that audit, replay and serve end with,
// and what was measured of lag.
// Nothing is judged or measured here; a dump, which is one moment, tells no times of its findings.

import { skewSeconds } from '../audit/measure/clock-skew.ts';
import { concerns, summarize } from '../audit/summary.ts';
import type { LagReport } from '../output/text/lag.ts';
import { listDistributions } from '../output/text/lag.ts';
import type { AuditReport } from '../output/text/report.ts';
import { summarizeMeasures } from '../output/text/report.ts';
import type { Auditor } from './auditor.ts';

export interface ReportOptions {
  readonly kind: AuditReport['kind'];
  readonly sources: readonly string[];
  /** Only this namespace; null: all. */
  readonly namespace: string | null;
  readonly problems: readonly string[];
}

const shownProblems = 20;

/** All that the auditor knows, as one document. */
export function reportOf(auditor: Auditor, options: ReportOptions): AuditReport {
  const { kind, sources, namespace, problems } = options;
  const serviceAuditor = auditor.serviceAuditor();
  if (serviceAuditor === null) throw new Error('The input ended before it began');
  auditor.measured.refresh();
  const within = (one: { readonly namespace: string }): boolean =>
    namespace === null || one.namespace === namespace;
  const [stale, nodes] = [auditor.stale(), auditor.nodes()];
  const summary = summarize(serviceAuditor, { within, stale, nodes });
  const release = auditor.release();
  // A dump is one moment: nobody knows since when what differs does.
  const timeless = kind === 'audit' && !auditor.live;
  return {
    format: 1,
    kind,
    input: {
      sources,
      kubernetes: auditor.kubernetes(),
      release: `1.${String(release.minor)}`,
      releaseBy: auditor.releaseBy(),
      verified: release.verified,
      from: timeless ? null : auditor.startedAt(),
      until: auditor.now(),
      complete: auditor.complete(),
    },
    namespace,
    findings: timeless
      ? summary.findings.map((finding) => ({ ...finding, since: null, openedAt: null }))
      : [...summary.findings, ...auditor.findings.resolved().filter(concerns(within))],
    services: summary.services,
    verdicts: summary.verdicts,
    nodes: summary.nodes,
    unknown: summary.unknown,
    foreign: summary.foreign,
    dropped: auditor.dropped(),
    problems: problems.slice(0, shownProblems),
    measures: summarizeMeasures(auditor.measured),
  };
}

/** All that was measured of lag. */
export function lagReportOf(auditor: Auditor): LagReport {
  const { convergence, trigger, travel, journeys, skew, worst } = auditor.measured;
  const now = auditor.now();
  let oldestBegun: number | null = null;
  for (const { begun } of journeys.open()) oldestBegun = Math.min(oldestBegun ?? begun, begun);
  return {
    format: 1,
    from: auditor.startedAt(),
    now,
    distributions: listDistributions(convergence, trigger, travel),
    triggerTimes: trigger.counts,
    journeys: {
      open: journeys.openCount(),
      oldestBegun,
      begun: travel.begun,
      ended: journeys.ended,
    },
    clockAheadSeconds: skewSeconds(skew, now ?? 0),
    worst: {
      journeys: worst.journeys.list(now ?? 0).map(({ journey, seconds }) => {
        const { namespace, service, pod, uid, podNode, addresses, operation, begun } = journey;
        const { quality, stages, nodes, end } = journey;
        const who = { namespace, service, pod, uid, podNode, addresses, operation };
        return { ...who, begun, quality, stages, nodes, end, seconds };
      }),
      convergence: worst.convergence.list(now ?? 0),
    },
  };
}
