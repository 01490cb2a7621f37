// The verdicts on an output of a Service or a node, and the reasons for an unknown verdict.

import type { Code } from './catalogue.ts';

export type Verdict = 'conform' | 'pending' | 'different' | 'unknown';
/** Why a node, or a Service port on it, is unknown. */
const nodeUnknownText = {
  'node-not-known': 'the input has no such Node',
  'proxy-mode-not-modelled': 'the mode of kube-proxy there is not modelled',
  'proxy-config-refused': 'kube-proxy of that release refuses its configuration',
  'rules-not-known': 'the rules of the node are not known',
  'rules-not-whole': 'the dumps do not tell all rules of the node',
  'rules-not-understood': 'rules of the node are not understood',
  'agent-absent': 'no agent runs on the node',
  'agent-refused': 'the agent of the node did not answer as it must',
  'agent-stale': 'the agent of the node is not heard of',
} as const;
/** Why an output is unknown. */
export const unknownText = {
  'pods-not-known': 'the input has no Pods',
  'nodes-not-known': 'the input has no Nodes',
  'endpoints-not-known': 'the input has no Endpoints',
  'endpointslices-not-known': 'the input has no EndpointSlices',
  'object-unreadable': 'an object that has a say in it could not be read',
  'input-stale': 'an input cannot be seen just now',
  ...nodeUnknownText,
} as const;
export type UnknownReason = keyof typeof unknownText;
export type NodeUnknownReason = keyof typeof nodeUnknownText;
export const unknownReasons = Object.keys(unknownText) as UnknownReason[];
/** Differences that the API allows and that affect no client: the verdict stays conform. */
export const legal: ReadonlySet<Code> = new Set([
  'slice-duplicate',
  'slice-surplus-empty',
  'mirror-slice-duplicate',
]);
/** The verdicts, `conform` first. */
export const verdicts: readonly Verdict[] = ['conform', 'pending', 'different', 'unknown'];
