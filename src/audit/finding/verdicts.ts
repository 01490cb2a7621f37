// The verdicts on an output of a Service or a node, and the reasons for an unknown verdict.

import type { Code } from './catalogue.ts';

export type Verdict = 'conform' | 'pending' | 'different' | 'unknown';
/** Why a node, or a Service port on it, is unknown. */
const nodeUnknownReasons = [
  'node-not-known',
  'proxy-mode-not-modelled',
  'rules-not-known',
  'rules-not-whole',
  'rules-not-understood',
  'agent-absent',
  'agent-refused',
  'agent-stale',
] as const;
/** Why an output is unknown. */
export const unknownReasons = [
  'pods-not-known',
  'nodes-not-known',
  'endpoints-not-known',
  'endpointslices-not-known',
  'object-unreadable',
  'input-stale',
  ...nodeUnknownReasons,
] as const;
export type UnknownReason = (typeof unknownReasons)[number];
export type NodeUnknownReason = (typeof nodeUnknownReasons)[number];
/** Differences that the API allows and that affect no client: the verdict stays conform. */
export const legal: ReadonlySet<Code> = new Set([
  'slice-duplicate',
  'slice-surplus-empty',
  'mirror-slice-duplicate',
]);
/** The verdicts, `conform` first. */
export const verdicts: readonly Verdict[] = ['conform', 'pending', 'different', 'unknown'];
