// The type of the status that pages and the API show.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { LagSeries } from '../../audit/measure/sample-history.ts';
import type { MetricsState } from '../metrics/state.ts';

/** The metrics, and what else the pages and the API show. */
export interface PageStatus {
  readonly metrics: MetricsState;
  /** Cached resolved findings, oldest first; `forgotten` counts the evicted ones. */
  readonly resolved: readonly Finding[];
  readonly forgotten: number;
  /** Why the auditor is not ready, for people, one reason per line; null if it is ready. */
  readonly notReady: string | null;
  /** The number of nodes of the cluster, with known rules or not; null if it is unknown. */
  readonly clusterNodes: number | null;
  /** The path or address of the input. */
  readonly source: string;
  /** The version of the control plane in the input. */
  readonly kubernetes: string | null;
  /** A text that changes if a page may look different, apart from ages. */
  readonly revision: string;
  readonly lag: LagSeries;
}
