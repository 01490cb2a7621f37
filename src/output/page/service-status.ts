// The type of the status of one Service that its page and the API show.

import type { Code, Finding, Output } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import type { PortMapFill } from '../../audit/measure/fill.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import type { Resource } from '../../model/objects.ts';

/** All that is known of one Service. Times in Unix seconds, ages in seconds. */
export interface ServiceStatus {
  readonly format: 1;
  readonly now: number;
  readonly namespace: string;
  readonly service: string;
  /** An output that nobody has to write has no verdict. */
  readonly outputs: readonly {
    readonly output: string;
    readonly verdict: Verdict;
    readonly reason: string | null;
  }[];
  /** Nodes by the worst verdict on a port of the Service there; null: no node is judged. */
  readonly nodes: Readonly<Record<Verdict, number>> | null;
  /** How full the controller's slices are, by address type and ports. */
  readonly fill: readonly PortMapFill[];
  /** Some of the nodes on which it is not conform, those that differ first. */
  readonly notConform: readonly {
    readonly node: string;
    readonly verdict: Verdict;
    readonly reason: string | null;
  }[];
  readonly pending: readonly UnsettledDifference[];
  readonly standing: readonly Finding[];
  readonly resolved: readonly Finding[];
  /** Of live input: the state of each watch, and for how long it has not been synced. */
  readonly inputs: Readonly<
    Partial<Record<Resource, { readonly state: InputState; readonly unseenSeconds: number }>>
  >;
}

/** A difference that has not stood for the settle window, or is not confirmed yet. */
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
