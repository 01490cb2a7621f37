// The types of an explanation: its subject, its conditions and its differences.

import type { Key } from '../../model/objects.ts';
import type { Severity } from '../finding/catalogue.ts';
import type { Verdict } from '../finding/verdicts.ts';
import type { Reason } from './reason.ts';

export interface Explanation {
  readonly subject: ExplainTarget;
  /** Whether what is asked about exists, or is at least spoken of somewhere. */
  readonly found: boolean;
  /** The worst over the outputs concerned; null where there is nothing to judge. */
  readonly verdict: Verdict | null;
  /** The worst of the findings concerned; null: there is none. */
  readonly severity: Severity | null;
  /** One sentence. */
  readonly answer: string;
  readonly change: string | null;
  readonly reasons: readonly Reason[];
}

/** What is asked about. Keys are `namespace/name`. */
export type ExplainTarget =
  | { readonly kind: 'service'; readonly service: Key }
  | { readonly kind: 'pod'; readonly pod: Key }
  | { readonly kind: 'pair'; readonly pod: Key; readonly service: Key }
  | { readonly kind: 'address'; readonly address: string }
  | {
      readonly kind: 'node';
      readonly node: string;
      readonly service: Key;
      /** The name of the port; null: all of them. */
      readonly port: string | null;
    };
