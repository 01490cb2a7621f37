// The verdicts on an output of a Service or a node, and the reasons for an unknown verdict.

import { type Code, severities, type Severity } from './catalogue.ts';

export type Verdict = 'conform' | 'pending' | 'different' | 'unknown';

const worstFirst: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** The worst verdict; null without any. */
export const worstVerdict = (found: readonly Verdict[]): Verdict | null =>
  worstFirst.find((verdict) => found.includes(verdict)) ?? null;

/** The worst severity; null without any. */
export const worstSeverity = (found: readonly (Severity | null)[]): Severity | null =>
  severities.find((severity) => found.includes(severity)) ?? null;

/** Why a node, or a Service port on it, is unknown. */
const nodeUnknownText = {
  'node-not-known': 'the input has no such Node',
  'proxy-mode-not-modelled': 'the auditor does not model this mode of kube-proxy',
  'proxy-config-refused': 'kube-proxy of that release rejects its configuration',
  'rules-not-known': 'no rules have been read from this node',
  'rules-not-whole': 'the dumps do not contain all rules of the node',
  'rules-not-understood': 'the auditor cannot evaluate some rules of the node',
  'agent-absent': 'no agent runs on the node',
  'agent-refused': 'the agent of the node sent an invalid answer',
  'agent-stale': 'the agent of the node does not answer',
} as const;
/** Why an output is unknown. */
export const unknownText = {
  'pods-not-known': 'the input has no Pods',
  'nodes-not-known': 'the input has no Nodes',
  'endpoints-not-known': 'the input has no Endpoints',
  'endpointslices-not-known': 'the input has no EndpointSlices',
  'object-unreadable': 'an object that affects it could not be read',
  'namespace-forbidden': 'some objects of the namespace may not be read',
  'input-stale': 'a watch is interrupted, so the input may be old',
  ...nodeUnknownText,
} as const;
export type UnknownReason = keyof typeof unknownText;
export type NodeUnknownReason = keyof typeof nodeUnknownText;
export const nodeUnknownReasons = Object.keys(nodeUnknownText) as NodeUnknownReason[];
export const unknownReasons = Object.keys(unknownText) as UnknownReason[];
/** Differences that the API allows and that affect no client: the verdict stays conform. */
export const legal: ReadonlySet<Code> = new Set([
  'slice-duplicate',
  'slice-surplus-empty',
  'mirror-slice-duplicate',
]);
/** The verdicts as people and metrics have them; JSON has the verdicts themselves. */
export const verdictWords: Readonly<Record<Verdict, string>> = {
  conform: 'ok',
  pending: 'pending',
  different: 'mismatch',
  unknown: 'unknown',
};
/** The verdicts, `conform` first. */
export const verdicts: readonly Verdict[] = ['conform', 'pending', 'different', 'unknown'];
