// The state of an auditor at one moment, for whoever asks the server: readiness with its reasons,
// the numbers of /metrics, and one Service in full.
//
// The auditor is ready when every list is complete and judged, and no input that is needed has been
// out of sight for a minute. Until then, nobody should take silence for health.

import type { Finding } from './audit/findings.ts';
import type { Ledger } from './audit/ledger.ts';
import type { Summary } from './audit/summary.ts';
import { emptySummary, summarize } from './audit/summary.ts';
import type { Audited } from './audit/standing.ts';
import { reasonOf, verdictOf, written } from './audit/verdict.ts';
import { version } from './config.ts';
import type { Answers, PendingDifference, ServiceStatus } from './output/http.ts';
import type { WatchMetrics } from './output/family.ts';
import type { Status } from './output/page.ts';
import type { Auditor } from './serve.ts';

/** Seconds without sight of a needed resource after which the auditor is not ready. */
const unseenLimit = 60;

/** What is known of live input besides what the auditor knows; without it, nothing. */
export interface Lively {
  readonly stuck: () => string | null;
  readonly counters: () => WatchMetrics['counters'];
}

const still: Lively = { stuck: () => null, counters: () => new Map() };

/** What the server asks; `source` as Status has it. */
export function answersOf(auditor: Auditor, source: string, live: Lively = still): Answers {
  const now = (): number => auditor.now() ?? 0;
  return {
    status: () => statusOf(auditor, source, live),
    service: (namespace, name) => serviceStatus(auditor, `${namespace}/${name}`, now()),
    notReady: () => whyNotReady(auditor, now()),
    stuck: live.stuck,
  };
}

/** The state at this moment, whatever the input has told so far. */
function statusOf(auditor: Auditor, source: string, { counters }: Lively): Status {
  const ledger = auditor.ledger();
  auditor.measured.refresh();
  const { settle, cut, confirmer } = auditor;
  const now = auditor.now() ?? 0;
  const notReady = whyNotReady(auditor, now);
  return {
    metrics: {
      ...auditor.measured,
      summary: ledger === null ? emptySummary : summaryOf(auditor, ledger),
      dropped: auditor.dropped(),
      now,
      startedAt: auditor.startedAt() ?? now,
      releaseMinor: auditor.release().minor,
      version,
      ready: notReady === null,
      watches: { inputs: cut.inputs, confirmations: confirmer.counts, counters: counters() },
    },
    resolved: settle.resolved(),
    forgotten: settle.forgotten(),
    notReady,
    source,
    kubernetes: auditor.kubernetes(),
  };
}

function summaryOf(auditor: Auditor, ledger: Ledger): Summary {
  const nodes = auditor.nodes()?.summary(auditor.now() ?? 0) ?? null;
  return summarize(ledger, { stale: auditor.stale(), nodes });
}

/** Why too little is known, a reason a line; null: it is enough. */
function whyNotReady(auditor: Auditor, now: number): string | null {
  const { cut } = auditor;
  if (auditor.ledger() === null) {
    const awaited = auditor.awaited();
    const what = awaited.length === 0 ? 'judged yet' : `complete: ${awaited.join(', ')}`;
    return `The first lists are not ${what}`;
  }
  const reasons = [...cut.unseenFor(unseenLimit, now)].map((resource) => {
    const input = cut.inputs.get(resource);
    const seconds = Math.round(now - (input?.blindSince ?? now));
    return `${resource} not seen for ${seconds} s (${input?.state ?? 'off'})`;
  });
  return reasons.length === 0 ? null : reasons.join('\n');
}

function pendingOf({ items }: Audited): PendingDifference[] {
  return [...items.values()].flat().flatMap(({ difference, openedAt, output, cause, since }) => {
    if (openedAt !== null) return [];
    const { code, object, field, expected, actual } = difference;
    return [{ code, output, object, field, expected, actual, cause, since }];
  });
}

/** One Service in full; null where there is none of that name. */
function serviceStatus(auditor: Auditor, key: string, now: number): ServiceStatus | null {
  const audited = auditor.ledger()?.audited.get(key);
  if (audited === undefined || audited.record.service === null) return null;
  const { namespace, name } = audited.record;
  const stale = auditor.stale();
  const { settle, store, cut } = auditor;
  const isIts = (finding: Finding): boolean =>
    finding.namespace === namespace && finding.service === name;
  return {
    format: 1,
    now,
    namespace,
    service: name,
    outputs: written.flatMap((output) => {
      const verdict = verdictOf(store.snapshot, audited, output, stale);
      if (verdict === null) return [];
      const reason = verdict === 'unknown' ? reasonOf(audited, output, stale) : null;
      return [{ output, verdict, reason }];
    }),
    pending: pendingOf(audited),
    standing: settle.open().filter(isIts),
    resolved: settle.resolved().filter(isIts),
    inputs: Object.fromEntries(
      [...cut.inputs].map(([resource, { state, blindSince }]) => [
        resource,
        { state, unseenSeconds: Math.max(0, now - (blindSince ?? now)) },
      ]),
    ),
  };
}
