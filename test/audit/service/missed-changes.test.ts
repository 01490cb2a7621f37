// Missed changes restart the clocks of a Service when these are read. That must give the same
// findings, clocks and lag as a restart at each change.

import fc from 'fast-check';
import { expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { contextOf, storeOf } from '../../build.ts';
import type { Step } from '../../random-cluster.ts';
import { eventsOf, steps } from '../../random-cluster.ts';

interface MissedStep {
  readonly step: Step;
  /** Whether earlier versions of its objects were missed. */
  readonly gap: boolean;
  readonly seconds: number;
  /** Whether a sweep has the time of its list, so that it is earlier than the latest change. */
  readonly early: boolean;
}

const window = 20;

/** What an auditor reports of some steps; `eager` reads all clocks after each change. */
function reportOf(all: readonly MissedStep[], eager: boolean): string[] {
  const lines: string[] = [];
  const note =
    (word: string) =>
    ({ namespace, service, code, cause, severity, since, openedAt, resolvedAt }: Finding): void => {
      const times = [since, openedAt, resolvedAt].join(' ');
      lines.push([word, namespace, service, code, cause, severity, times].join(' '));
    };
  const settle = createPendingFindings({
    ...{ window, keep: 100, onOpen: note('open'), onResolve: note('resolved') },
  });
  const store = storeOf([]);
  const context = contextOf(store);
  const auditor = createServiceAuditor({
    ...{ context, settle },
    onConvergence: (sample) => lines.push(JSON.stringify(sample)),
  });
  runToEnd(auditor.begin(0));
  let now = 0;
  for (const { step, gap, seconds, early } of all) {
    now += seconds;
    const at = early ? Math.max(0, now - 3) : now;
    settle.advance(now);
    for (const one of eventsOf(store, context, step, at)) {
      const change = store.apply({ ...one, at, gap });
      if (change !== null) auditor.apply(change);
      if (eager) auditor.refresh();
    }
    lines.push(`next ${eager || settle.nextAt() !== null ? (settle.nextAt() ?? '') : ''}`);
  }
  auditor.refresh();
  for (const [key, { items }] of auditor.audited) {
    for (const { difference, cause, since, unseen, byInput, openedAt } of [
      ...items.values(),
    ].flat()) {
      lines.push([key, difference.code, cause, since, unseen, byInput, openedAt].join(' '));
    }
  }
  settle.advance(now + 2 * window);
  return lines;
}

test('clocks that are read late are those that are read after each change', () => {
  const missed = fc.record({
    step: steps,
    gap: fc.boolean(),
    seconds: fc.oneof(fc.constant(0), fc.nat(25)),
    early: fc.boolean(),
  });
  let restarts = 0;
  const property = fc.property(fc.array(missed, { minLength: 2, maxLength: 30 }), (all) => {
    const lines = reportOf(all, false);
    expect(lines).toEqual(reportOf(all, true));
    const unmissed = all.map((it) => ({ ...it, gap: false }));
    if (lines.join('\n') !== reportOf(unmissed, true).join('\n')) restarts++;
  });
  fc.assert(property, { numRuns: Number(process.env.RUNS ?? 500) });
  expect(restarts).toBeGreaterThan(50);
});
