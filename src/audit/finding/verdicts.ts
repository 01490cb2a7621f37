// The verdicts on an output of a Service or a node, and the reasons for an unknown verdict.

import type { Code } from './catalogue.ts';

export type Verdict = 'conform' | 'pending' | 'different' | 'unknown';
/** Why an output cannot be judged. */
export type UnknownReason =
  | 'pods-not-known'
  | 'nodes-not-known'
  | 'endpoints-not-known'
  | 'endpointslices-not-known'
  | 'object-unreadable'
  | 'input-stale'
  | NodeUnknownReason;
/** Why a node, or a Service port on it, cannot be judged. */
export type NodeUnknownReason =
  | 'node-not-known'
  | 'proxy-mode-not-modelled'
  | 'rules-not-known'
  | 'rules-not-whole'
  | 'rules-not-understood'
  | 'agent-absent'
  | 'agent-refused'
  | 'agent-stale';
/** Differences that the API allows and nobody suffers from: what shows them is conform. */
export const legal: ReadonlySet<Code> = new Set([
  'slice-duplicate',
  'slice-surplus-empty',
  'mirror-slice-duplicate',
]);
/** The verdicts, the good one first. */
export const verdicts: readonly Verdict[] = ['conform', 'pending', 'different', 'unknown'];
