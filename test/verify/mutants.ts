// Faults of the auditor that a comparison must report.

import type { OwnedDifference, PendingDifference } from '../../src/audit/pending/pending.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import type { RecordingEntry } from '../../src/cluster/files/recording.ts';

export interface Mutant {
  readonly settle?: number;
  readonly prepare?: (auditor: Auditor) => void;
  readonly skips?: (entry: RecordingEntry) => boolean;
}

/** Changes every difference before its window starts. */
const changed =
  (change: (item: PendingDifference) => void) =>
  ({ findings }: Auditor): void => {
    const watch = findings.watch.bind(findings);
    findings.watch = (item, ...words) => {
      change(item);
      watch(item, ...words);
    };
  };

const isChange = (entry: RecordingEntry): boolean =>
  entry.kind === 'event' && entry.event.type !== 'added';

/** Leaves out the first entry that is so. */
const withoutFirst = (matches: (entry: RecordingEntry) => boolean) => (): Mutant => {
  let skipped = false;
  return { skips: (entry) => !skipped && (skipped = matches(entry)) };
};

/** Called for each run, since some remember what they did. */
export const mutants: Readonly<Record<string, () => Mutant>> = {
  'another settle window': () => ({ settle: 2 }),
  'a skipped event': withoutFirst(isChange),
  'a wrong cause': () => ({
    prepare: changed((item) => {
      Object.assign(item, { cause: item.cause === null ? 'hand-edited' : null });
    }),
  }),
  'a stale clock': () => ({
    prepare: changed((item) => {
      Object.assign(item, { since: item.since - 5 });
    }),
  }),
};

/** Those of nodes. */
export const nodeMutants: Readonly<Record<string, () => Mutant>> = {
  'skipped rules': withoutFirst((entry) => entry.kind === 'node-rules' && entry.text !== null),
  'a wrong start': () => ({
    prepare({ findings }) {
      const openNow = findings.openNow.bind(findings);
      findings.openNow = (items: readonly OwnedDifference[], at) => {
        for (const { item } of items) item.since -= 5;
        openNow(items, at);
      };
    },
  }),
  'a longer window': () => ({ settle: 3 }),
};
