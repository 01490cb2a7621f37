// The types of the status of all Services and of one Service, which pages and the API show.

import type { Code, Finding, Output } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import type { PortMapFill } from '../../audit/measure/fill.ts';
import type { LagSeries } from '../../audit/measure/sample-history.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import type { Resource } from '../../model/objects.ts';
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

/** The status of one Service. Times in Unix seconds, ages in seconds. */
export interface ServiceStatus {
  readonly format: 1;
  readonly now: number;
  readonly namespace: string;
  readonly service: string;
  /** The outputs that a controller must write, with their verdicts. */
  readonly outputs: readonly {
    readonly output: string;
    readonly verdict: Verdict;
    readonly reason: string | null;
  }[];
  /** Nodes by their worst verdict on a port of the Service; null if no rules are known. */
  readonly nodes: Readonly<Record<Verdict, number>> | null;
  /** The fill of the controller's slices, by address type and ports. */
  readonly fill: readonly PortMapFill[];
  /** Some of the nodes that do not conform, those that differ first. */
  readonly notConform: readonly {
    readonly node: string;
    readonly verdict: Verdict;
    readonly reason: string | null;
  }[];
  readonly pending: readonly UnsettledDifference[];
  readonly standing: readonly Finding[];
  readonly resolved: readonly Finding[];
  /** The state of each watch of live input, and the time since it was synced. */
  readonly inputs: Readonly<
    Partial<Record<Resource, { readonly state: InputState; readonly unseenSeconds: number }>>
  >;
}

/** A difference within the settle window, or without confirmation. */
export interface UnsettledDifference {
  readonly code: Code;
  readonly output: Output;
  readonly object: string;
  readonly field: string;
  readonly expected: string | null;
  readonly actual: string | null;
  readonly cause: string | null;
  readonly since: number;
}
