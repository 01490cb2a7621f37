// The gate of an audit in CI: which findings of a report make it fail. The others are accepted: an
// option ignores them, or an earlier report, the baseline, has them already.

import {
  type Code,
  type Finding,
  severities,
  type Severity,
} from '../../audit/finding/catalogue.ts';

export type FailOn = Severity;

export const failLevels: readonly FailOn[] = severities;

/** Accepts the findings of a code: of all Services, or of one. */
export interface IgnoreRule {
  readonly code: Code;
  /** `namespace/name`; `null` for all. */
  readonly service: string | null;
}

type Named = Pick<Finding, 'code' | 'severity' | 'namespace' | 'service' | 'output' | 'node'>;

/** By the identity of a finding, its severity. */
export type Baseline = ReadonlyMap<string, Severity>;

export interface GateOptions {
  readonly failOn: FailOn;
  readonly ignored: readonly IgnoreRule[];
  readonly baseline: Baseline | null;
}

/** Why a finding does not fail the gate. */
export type Acceptance = 'ignored' | 'baseline' | 'minor';

export interface Gate {
  readonly failOn: FailOn;
  /** Findings that fail the gate, and those that do not, by the reason. */
  readonly failed: number;
  readonly accepted: Readonly<Record<Acceptance, number>>;
}

/** The identity of a finding in reports of different times. */
export const findingKey = ({ code, namespace, service, output, node }: Named): string =>
  [code, output, namespace, service, node ?? ''].join(' ');

export const baselineOf = (findings: readonly Named[]): Baseline =>
  new Map(findings.map((finding) => [findingKey(finding), finding.severity]));

const rank = (severity: Severity): number => severities.indexOf(severity);

/** `null` if the finding fails the gate. */
export function acceptanceOf(finding: Named, options: GateOptions): Acceptance | null {
  const { failOn, ignored, baseline } = options;
  const { code, severity, namespace, service } = finding;
  const isIgnored = (rule: IgnoreRule): boolean =>
    rule.code === code && (rule.service ?? `${namespace}/${service}`) === `${namespace}/${service}`;
  if (ignored.some(isIgnored)) return 'ignored';
  const before = baseline?.get(findingKey(finding));
  // A finding that is worse than before is a new one.
  if (before !== undefined && rank(severity) >= rank(before)) return 'baseline';
  return rank(severity) > rank(failOn) ? 'minor' : null;
}

/** Counts the findings of a report. */
export function gateOf(findings: readonly Named[], options: GateOptions): Gate {
  const all = findings.map((finding) => acceptanceOf(finding, options));
  const count = (wanted: Acceptance | null): number => all.filter((it) => it === wanted).length;
  return {
    failOn: options.failOn,
    failed: count(null),
    accepted: { ignored: count('ignored'), baseline: count('baseline'), minor: count('minor') },
  };
}

/** `2 findings fail (--fail-on warning); accepted: 1 ignored, 3 in the baseline`. */
export function formatGate({ failOn, failed, accepted }: Gate): string {
  const { ignored, baseline, minor } = accepted;
  const parts = [
    ignored > 0 ? `${ignored} ignored` : '',
    baseline > 0 ? `${baseline} in the baseline` : '',
    minor > 0 ? `${minor} below ${failOn}` : '',
  ].filter((part) => part !== '');
  const fails = `${failed} ${failed === 1 ? 'finding fails' : 'findings fail'}`;
  const rest = parts.length === 0 ? '' : `; accepted: ${parts.join(', ')}`;
  return `${fails} (--fail-on ${failOn})${rest}`;
}
