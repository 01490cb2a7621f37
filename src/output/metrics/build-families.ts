// The metric families of what the process is: its version, the release that it assumes, and its
// shard. The values do not change while the process runs.

import { familiesOf } from './exposition.ts';
import type { MetricsState } from './state.ts';

const { samples } = familiesOf<MetricsState>();

export const buildInfo = samples(
  'gauge',
  'Always 1. The label is the version of endpoint-auditor.',
  ({ version }) => [{ labels: { version }, value: 1 }],
  { version: [] },
);

export const releaseInfo = samples(
  'gauge',
  'Always 1. The labels are the Kubernetes release that is assumed, and whether verdicts on ' +
    'this cluster are verified.',
  ({ release, unverified }) => [
    { labels: { release, verified: String(unverified.length === 0) }, value: 1 },
  ],
  { release: [], verified: ['true', 'false'] },
);

// The index is a label, so that a shard that is scraped twice does not hide that one is away.
export const shards = samples(
  'gauge',
  'Shards that audit the cluster together, by --shard; 1 without it. The label is the index of ' +
    'the shard of this process, from 0.',
  ({ shard: { index, count } }) => [{ labels: { shard: String(index) }, value: count }],
  { shard: [] },
);
