// Stages of a cluster: something is done to it, and the alerts on that must arrive, and no others;
// it is repaired, and all of them must be resolved.

import type { Tally } from '../controlplane/checks.ts';
import { report, say } from '../controlplane/checks.ts';
import type { Arrivals, Notice } from './arrivals.ts';
import { until } from './arrivals.ts';

/** Some labels of an alert, its name first. */
export interface Expected {
  readonly alertname: string;
  readonly [label: string]: string;
}

export interface Stage {
  readonly title: string;
  readonly expected: readonly Expected[];
  /** Other alerts that may arrive, because their condition may last long enough. */
  readonly allowed?: readonly Expected[];
  readonly begin: () => Promise<unknown>;
  readonly repair?: () => Promise<unknown>;
}

/** What stages of one cluster have in common. */
export interface Theatre {
  readonly arrivals: Arrivals;
  readonly tally: Tally;
  readonly cluster: string;
}

/** Seconds that nothing takes on a machine that is not stuck. */
const patience = 150;

const isOne = ({ labels }: Pick<Notice, 'labels'>, expected: Expected): boolean =>
  Object.entries(expected).every(([label, value]) => labels[label] === value);

const textOf = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .filter(([label]) => !['cluster', 'instance', 'job'].includes(label))
    .map(([label, value]) => (label === 'alertname' ? value : `${label}=${value}`))
    .sort()
    .join(' ');

/** Plays a stage to its end. */
export async function play({ arrivals, tally, cluster }: Theatre, stage: Stage): Promise<void> {
  const { expected, allowed = [], begin, repair } = stage;
  const title = `${cluster}, ${stage.title}`;
  const [from, begun] = [arrivals.notices.length, performance.now()];
  const seconds = (): string => `${Math.round((performance.now() - begun) / 1000)} s`;
  const notices = (status: Notice['status']): readonly Notice[] =>
    arrivals.notices
      .slice(from)
      .filter((one) => one.status === status && one.labels.cluster === cluster);
  const missing = (): readonly Expected[] =>
    expected.filter((one) => !notices('firing').some((notice) => isOne(notice, one)));
  await begin();
  await until(() => missing().length === 0, patience);
  say(`     ${title}: after ${seconds()}`);
  report(tally, `${title}: ${expected.length} alerts arrive`, missing().map(textOf));
  await repair?.();
  // Information that is allowed may go on to be true.
  const standing = (): readonly Notice['labels'][] =>
    arrivals
      .standing(cluster)
      .filter(
        (labels) => labels.severity !== 'info' || expected.some((one) => isOne({ labels }, one)),
      );
  await until(() => standing().length === 0, patience);
  say(`     ${title}: over after ${seconds()}`);
  report(tally, `${title}: all are resolved`, standing().map(textOf));
  const others = notices('firing').filter(
    (notice) => ![...expected, ...allowed].some((one) => isOne(notice, one)),
  );
  const wrong = new Set(others.map(({ labels }) => textOf(labels)));
  report(tally, `${title}: no other alert arrives`, [...wrong]);
}
