// The gate of an audit in CI: which findings of a report make it fail. The others are accepted: an
// option ignores them, or an earlier report, the baseline, has them already.

import {
  type Code,
  type Finding,
  severities,
  type Severity,
} from '../../audit/finding/catalogue.ts';
import { type SuppressionTarget, unservedWord } from '../../audit/finding/suppressions.ts';
import { recordOf } from '../../model/collections.ts';
import { formatCount, formatCounts } from './format.ts';
import type { UnservedRow } from './unserved.ts';

export interface FailOn {
  /** The least severity that fails. */
  readonly severity: Severity;
  /** Whether a Service without usable endpoints fails. */
  readonly unserved: boolean;
}

export const failLevels: readonly string[] = [...severities, unservedWord];

/** Accepts the findings of a code, or Services without usable endpoints: all, or of one Service. */
export interface IgnoreRule {
  readonly code: Code | typeof unservedWord;
  /** `namespace/name`; `null` for all. */
  readonly service: string | null;
}

export type Named = Pick<
  Finding,
  'code' | 'severity' | 'namespace' | 'service' | 'output' | 'node'
>;

/** Reports of before 0.3.0 have no `suppressed`. */
type Gated = Named & Partial<Pick<Finding, 'suppressed'>>;

type Unserved = Pick<UnservedRow, 'namespace' | 'name'> & Partial<Pick<UnservedRow, 'suppressed'>>;

export interface Baseline {
  /** By the identity of a finding, its severity. */
  readonly findings: ReadonlyMap<string, Severity>;
  /** Services without usable endpoints, as `namespace/name`. */
  readonly unserved: ReadonlySet<string>;
}

export interface GateOptions {
  readonly failOn: FailOn;
  readonly ignored: readonly IgnoreRule[];
  readonly baseline: Baseline | null;
  /** Whether a suppression names it, also an expired one: then no baseline accepts it. */
  readonly isNamed?: (finding: SuppressionTarget) => boolean;
}

/** Why a finding does not fail the gate. */
export type Acceptance = 'suppressed' | 'ignored' | 'baseline' | 'minor';

export const acceptanceWords: Readonly<Record<Acceptance, string>> = {
  suppressed: 'suppressed',
  ignored: 'ignored',
  baseline: 'in the baseline',
  minor: 'accepted',
};

export type Gate = Readonly<ReturnType<typeof gateOf>>;

const acceptances = Object.keys(acceptanceWords) as readonly Acceptance[];

/** Whether the gate fails. */
export const isFailed = ({ failed, unserved }: Gate): boolean => failed > 0 || (unserved ?? 0) > 0;

/** The identity of a finding in reports of different times. */
export const findingKey = ({ code, namespace, service, output, node }: Named): string =>
  [code, output, namespace, service, node ?? ''].join(' ');

/** A suppressed finding is not in the baseline, so that it fails when its suppression ends. */
export const baselineOf = (
  findings: readonly Gated[],
  unserved: readonly Unserved[] = [],
): Baseline => ({
  findings: new Map(
    findings
      .filter(({ suppressed }) => !suppressed)
      .map((finding) => [findingKey(finding), finding.severity]),
  ),
  unserved: new Set(unserved.filter(({ suppressed }) => !suppressed).map(serviceName)),
});

const serviceName = ({ namespace, name }: Unserved): string => `${namespace}/${name}`;

/** The target of suppressions of a Service without usable endpoints. */
export const targetOf = ({ namespace, name }: Unserved) =>
  ({ code: unservedWord, namespace, service: name, node: null }) as const;

const matches = (rule: IgnoreRule, code: IgnoreRule['code'], service: string): boolean =>
  rule.code === code && (rule.service ?? service) === service;

const rank = (severity: Severity): number => severities.indexOf(severity);

/** `null` if the finding fails the gate. */
export function acceptanceOf(finding: Gated, options: GateOptions): Acceptance | null {
  if (finding.suppressed) return 'suppressed';
  const { failOn, ignored, baseline } = options;
  const { code, severity, namespace, service } = finding;
  if (ignored.some((rule) => matches(rule, code, `${namespace}/${service}`))) return 'ignored';
  const isNamed = options.isNamed?.(finding) === true;
  const before = isNamed ? undefined : baseline?.findings.get(findingKey(finding));
  // A finding that is worse than before is a new one.
  if (before !== undefined && rank(severity) >= rank(before)) return 'baseline';
  return rank(severity) > rank(failOn.severity) ? 'minor' : null;
}

/** Whether a rule accepts nothing of a report. */
export const isUnused = (rule: IgnoreRule, report: GatedReport): boolean =>
  ![...report.findings, ...report.servicesWithoutEndpoints.map(targetOf)].some(
    ({ code, namespace, service }) => matches(rule, code, `${namespace}/${service}`),
  );

type GatedReport<T extends Unserved = Unserved> = Readonly<{
  findings: readonly Gated[];
  servicesWithoutEndpoints: readonly T[];
}>;

/** `null` if a Service without usable endpoints fails the gate. */
export function unservedAcceptanceOf(service: Unserved, options: GateOptions): Acceptance | null {
  if (service.suppressed) return 'suppressed';
  const { failOn, ignored, baseline, isNamed } = options;
  const name = serviceName(service);
  if (ignored.some((rule) => matches(rule, unservedWord, name))) return 'ignored';
  const isBaseline = isNamed?.(targetOf(service)) !== true && baseline?.unserved.has(name);
  if (isBaseline === true) return 'baseline';
  return failOn.unserved ? null : 'minor';
}

/** The Services without usable endpoints that fail the gate; none if they cannot. */
export const unservedFailures = <T extends Unserved>(
  { servicesWithoutEndpoints }: GatedReport<T>,
  options: GateOptions,
): T[] =>
  servicesWithoutEndpoints.filter((service) => unservedAcceptanceOf(service, options) === null);

/** Counts the findings of a report, and the Services without usable endpoints. */
export function gateOf(report: GatedReport, options: GateOptions) {
  const all = report.findings.map((finding) => acceptanceOf(finding, options));
  const count = (wanted: Acceptance | null): number => all.filter((it) => it === wanted).length;
  const { severity, unserved } = options.failOn;
  return {
    failOn: severity,
    /** Findings that fail the gate, and those that do not, by the reason. */
    failed: count(null),
    accepted: recordOf(acceptances, count),
    /** Services without usable endpoints that fail the gate; `null` if none can. */
    unserved: unserved ? unservedFailures(report, options).length : null,
  };
}

/**
 * `Gate failed: 2 findings fail (--fail-on warning); accepted: 1 ignored, 3 in the baseline`.
 * `isUnknown`: something could not be audited, so that the gate has no verdict.
 */
export function formatGate(gate: Gate, isUnknown = false): string {
  const { failOn, failed, accepted, unserved } = gate;
  const { suppressed, ignored, baseline, minor } = accepted;
  const counts = { suppressed, ignored, 'in the baseline': baseline, [`below ${failOn}`]: minor };
  const parts = formatCounts(counts);
  const fails = `${failed} ${failed === 1 ? 'finding fails' : 'findings fail'}`;
  const rest = parts === '' ? '' : `; accepted: ${parts}`;
  const level = unserved === null ? failOn : `${failOn},${unservedWord}`;
  const services =
    unserved === null ? '' : `, ${formatCount(unserved, 'Service')} without usable endpoints`;
  const verdict = isUnknown ? 'No verdict' : isFailed(gate) ? 'Gate failed' : 'Gate passed';
  return `${verdict}: ${fails}${services} (--fail-on ${level})${rest}`;
}
