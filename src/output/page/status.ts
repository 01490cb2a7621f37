// The type of the status that pages and the API show.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { LagSeries } from '../../audit/measure/sample-history.ts';
import type { MetricsState } from '../metrics/state.ts';

/** What the pages and the API show besides the metrics. */
export interface PageStatus {
  readonly metrics: MetricsState;
  /** Resolved findings that are kept, oldest first; `forgotten` counts those that are not. */
  readonly resolved: readonly Finding[];
  readonly forgotten: number;
  /** Why too little is known, for people, a reason a line; null: all that was promised is. */
  readonly notReady: string | null;
  /** Nodes of the cluster, whether or not their rules are known; null: it is not known. */
  readonly clusterNodes: number | null;
  /** Where the input comes from, for people: a path, an address. */
  readonly source: string;
  /** The version of the control plane as the input names it. */
  readonly kubernetes: string | null;
  /** Another text whenever a page may look otherwise, its ages left out. */
  readonly revision: string;
  readonly lag: LagSeries;
}
