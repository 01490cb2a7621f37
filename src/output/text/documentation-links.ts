// Addresses of the documentation, for links in pages and dashboards: findings by code and cause,
// and the section of the runbook, which is that of the alert that a finding fires. A test compares
// them with the rules of the alerts.

import type { Code } from '../../audit/finding/catalogue.ts';
import type { Cause } from '../../audit/finding/causes.ts';

/** The folder of the documents. */
export const documents = 'https://github.com/endpoint-auditor/endpoint-auditor/blob/main/docs';

/** The codes by the alert about them, or about the measurement behind them. */
const codesByAlert = {
  EndpointsMissing: [
    'endpoints-missing',
    'endpoints-address-missing',
    'slice-endpoint-missing',
    'slice-placeholder-missing',
  ],
  EndpointsUnexpected: [
    'endpoints-address-unexpected',
    'slice-endpoint-unexpected',
    'slice-family-unexpected',
    'slice-orphaned',
    'left-behind-dead',
    'address-shared',
  ],
  EndpointsStale: [
    'endpoints-address-different',
    'endpoints-readiness-different',
    'endpoints-ports-different',
    'endpoints-labels-different',
    'endpoints-over-capacity-different',
    'slice-conditions-different',
    'slice-endpoint-different',
    'slice-ports-different',
    'slice-hints-different',
    'slice-labels-different',
    'slice-owner-different',
    'slice-oversized',
    'pod-without-node',
  ],
  MirroredEndpointsStale: [
    'mirror-endpoint-missing',
    'mirror-endpoint-unexpected',
    'mirror-endpoint-different',
    'mirror-conditions-different',
    'mirror-ports-different',
    'mirror-labels-different',
    'mirror-annotations-different',
    'mirror-owner-different',
    'mirror-slice-unexpected',
    'mirror-slice-duplicate',
  ],
  TwoManagers: ['managers-several', 'foreign-endpoint-dead'],
  ConflictingDuplicates: ['slice-duplicate-conflicting', 'duplicate-conflicting'],
  EndpointsTruncated: ['endpoints-truncated'],
  ObjectNearSizeLimit: ['object-near-size-limit'],
  HintsMissing: ['hints-absent'],
  NodeStale: ['node-rules-stale'],
  NodeRulesBroken: [
    'node-frontend-missing',
    'node-frontend-blocked',
    'node-frontend-unexpected',
    'node-endpoint-missing',
    'node-endpoint-unexpected',
    'node-policy-different',
    'node-share-different',
    'node-masquerade-missing',
    'node-masquerade-unexpected',
    'node-affinity-different',
    'node-reject-missing',
    'node-foreign-rule',
    'node-endpoint-blocked',
    'node-rules-flushed',
    'node-rules-unreachable',
    'node-rules-different',
    'node-backends-both',
    'node-unlike-others',
  ],
} as const satisfies Readonly<Record<string, readonly Code[]>>;

const alerts: ReadonlyMap<Code, string> = new Map(
  Object.entries(codesByAlert).flatMap(([alert, codes]) =>
    codes.map((code): [Code, string] => [code, `EndpointAuditor${alert}`]),
  ),
);

/** The alert that a finding of this code fires; null if there is none. */
export const findAlert = (code: Code): string | null => alerts.get(code) ?? null;

/** The section of a code or a cause in the list of findings. */
export const findingUrl = (name: Code | `cause-${Cause}`): string =>
  `${documents}/findings.md#${name}`;

/** The section of an alert in the runbook. */
export const runbookUrl = (alert: string): string =>
  `${documents}/runbook.md#${alert.toLowerCase()}`;
