// Compares the findings of a replay with what the recording says was the case (oracle.ts). Here all
// times are those of the recording, so the result is the same on every machine.

import type { Source } from '../../../src/cluster/files/recording.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { createAuditor } from '../../../src/auditor/auditor.ts';
import { replay } from '../../../src/auditor/replay.ts';
import { auditorDefaults } from '../../build.ts';
import type { Found } from '../auditor.ts';
import { arrivalsOf, readHistory } from './history.ts';
import type { Disagreement, Outage } from './oracle.ts';
import { disagreements } from './oracle.ts';

interface Replayed {
  /** As they were when they opened. */
  readonly findings: readonly Found[];
  readonly wrong: readonly Disagreement[];
}

/** All findings of a replay, as they were when they opened, but with their ends. */
async function findingsOf(source: Source, settle: number): Promise<Found[]> {
  const opened: { finding: Finding; resolvedAt: number | null }[] = [];
  const auditor = createAuditor({
    ...auditorDefaults,
    settle,
    onOpen: (finding) => void opened.push({ finding, resolvedAt: null }),
    onResolve(finding) {
      const { namespace, service, output, openedAt } = finding;
      const isSame = (one: { finding: Finding; resolvedAt: number | null }): boolean =>
        one.resolvedAt === null &&
        one.finding.namespace === namespace &&
        one.finding.service === service &&
        one.finding.output === output &&
        one.finding.openedAt === openedAt;
      const all = opened.filter(isSame);
      const own = all.find((one) => one.finding.code === finding.code) ?? all[0];
      if (own === undefined) return;
      own.resolvedAt = finding.resolvedAt;
      // What it listed later is listed too.
      own.finding = { ...finding, code: own.finding.code, since: own.finding.since };
    },
  });
  const previousPod = (key: string) => auditor.store.listers.pods.get(key);
  const entries = readRecording(source, () => undefined, { previousPod });
  await replay(auditor, entries, { speed: Infinity, until: null });
  return opened.map(({ finding, resolvedAt }) => ({ ...finding, resolvedAt }));
}

/** `open` gives the recording, each time from its beginning. */
export async function checkReplay(
  open: () => Source,
  settle: number,
  outages: readonly Outage[] = [],
): Promise<Replayed> {
  const findings = await findingsOf(open(), settle);
  const history = await readHistory(open(), false);
  const times = arrivalsOf(history);
  return {
    findings,
    wrong: disagreements({ history, times, findings, faults: [], outages, settle }),
  };
}
