// Links to the documentation: to findings by code and cause, and to the section of the runbook
// about the alert that a finding fires. A test compares them with the rules of the alerts.

import type { Code } from '../../audit/finding/catalogue.ts';
import { catalogue } from '../../audit/finding/catalogue.ts';
import type { Cause } from '../../audit/finding/causes.ts';

export const documents = 'https://github.com/endpoint-auditor/endpoint-auditor/blob/main/docs';

const alertsByKind = {
  missing: 'EndpointsMissing',
  unexpected: 'EndpointsUnexpected',
  different: 'EndpointsStale',
} as const;
const alertsByOutput = { mirrored: 'MirroredEndpointsStale', node: 'NodeRulesBroken' } as const;

/** The alerts of the other codes, or of the measurement behind them; null if there is none. */
const otherAlerts: Partial<Readonly<Record<Code, string | null>>> = {
  'endpoints-orphaned': null,
  'slice-duplicate': null,
  'slice-surplus-empty': null,
  'left-behind': null,
  'left-behind-dead': 'EndpointsUnexpected',
  'address-shared': 'EndpointsUnexpected',
  'pod-without-node': 'EndpointsStale',
  'managers-several': 'TwoManagers',
  'foreign-endpoint-dead': 'TwoManagers',
  'slice-duplicate-conflicting': 'ConflictingDuplicates',
  'duplicate-conflicting': 'ConflictingDuplicates',
  'endpoints-truncated': 'EndpointsTruncated',
  'object-near-size-limit': 'ObjectNearSizeLimit',
  'hints-absent': 'HintsMissing',
  'node-rules-stale': 'NodeStale',
};

/** The alert that a finding of this code fires; null if there is none. */
export function findAlert(code: Code): string | null {
  const { output, difference } = catalogue[code];
  const usual =
    output === 'mirrored' || output === 'node' ? alertsByOutput[output] : alertsByKind[difference];
  const alert = code in otherAlerts ? (otherAlerts[code] ?? null) : usual;
  return alert === null ? null : `EndpointAuditor${alert}`;
}

/** The section of a code or a cause in the list of findings. */
export const findingUrl = (name: Code | `cause-${Cause}`): string =>
  `${documents}/findings.md#${name}`;

/** The section of an alert in the runbook. */
export const runbookUrl = (alert: string): string =>
  `${documents}/runbook.md#${alert.toLowerCase()}`;
