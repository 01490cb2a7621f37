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
  readonly findings: readonly Found[];
  readonly wrong: readonly Disagreement[];
}

/** A finding keeps these while it is open. */
const identityOf = ({ namespace, service, output, code, cause, openedAt }: Finding): string =>
  [namespace, service, output, code, cause, openedAt].join(' ');

/** All findings of a replay: as they were last, with the time that they said first. */
async function findingsOf(source: Source, settle: number): Promise<Found[]> {
  const found = new Map<string, Finding>();
  const update = (finding: Finding): void => {
    const id = identityOf(finding);
    found.set(id, { ...finding, since: found.get(id)?.since ?? finding.since });
  };
  const options = { ...auditorDefaults, settle, onOpen: update, onResolve: update };
  const auditor = createAuditor(options);
  const previousPod = (key: string) => auditor.store.listers.pods.get(key);
  const entries = readRecording(source, () => undefined, { previousPod });
  await replay(auditor, entries, { speed: Infinity, until: null });
  for (const finding of auditor.findings.open()) update(finding);
  return [...found.values()];
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
