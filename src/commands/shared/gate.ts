// The gate of audit and replay: reads the baseline, prints the report in formats for CI, and
// chooses the exit code.

import { readFileSync } from 'node:fs';

import { catalogue, type Code, type Finding } from '../../audit/finding/catalogue.ts';
import { renderGithub, renderMarkdown } from '../../output/text/annotations.ts';
import type { Baseline, FailOn, GateOptions, IgnoreRule } from '../../output/text/gate.ts';
import { baselineOf, formatGate, gateOf } from '../../output/text/gate.ts';
import type { AuditReport, ReportFormat } from '../../output/text/report.ts';
import { renderSarif } from '../../output/text/sarif.ts';
import { exitCodeOf, printReport } from './console.ts';
import { UsageError } from './process.ts';

/** Formats for CI, beside those of every report. */
export const gateFormats = ['sarif', 'github', 'markdown'] as const;

export type GateFormat = (typeof gateFormats)[number];

export interface GateFlags {
  readonly output: ReportFormat | GateFormat;
  readonly failOn: FailOn;
  readonly ignore?: readonly IgnoreRule[];
  readonly baseline?: string;
}

const renderers = { sarif: renderSarif, github: renderGithub, markdown: renderMarkdown };

/** The JSON report of an earlier audit. Throws a UsageError if the file is none. */
function readBaseline(path: string): Baseline {
  const text = readFileSync(path, 'utf8');
  try {
    const { format, findings } = JSON.parse(text) as { format: unknown; findings: Finding[] };
    if (format === 1 && findings.every(isNamed)) return baselineOf(findings);
  } catch {
    // The text is not JSON, or has no list of findings.
  }
  throw new UsageError(`${path}: Expected a report of audit -o json or replay -o json`);
}

const isNamed = ({ code, severity, namespace, service, output }: Finding): boolean =>
  [code, severity, namespace, service, output].every((name: unknown) => typeof name === 'string');

/** Parses `CODE` or `CODE:NAMESPACE/SERVICE`; `undefined` for anything else. */
export function parseIgnoreRule(text: string): IgnoreRule | undefined {
  const [, code = '', service = null] = /^([a-z0-9-]+)(?::([^/:]+\/[^/:]+))?$/.exec(text) ?? [];
  return Object.hasOwn(catalogue, code) ? { code: code as Code, service } : undefined;
}

/** Reads the files that the flags name. Throws a UsageError if one of them is wrong. */
export const readGate = ({ failOn, ignore = [], baseline }: GateFlags): GateOptions => ({
  failOn,
  ignored: ignore,
  baseline: baseline === undefined ? null : readBaseline(baseline),
});

/** Prints the report with its gate, and returns the exit code. */
export function printGated(
  report: AuditReport,
  output: GateFlags['output'],
  options: GateOptions,
): 0 | 1 | 2 {
  const gate = gateOf(report.findings, options);
  if (output in renderers) {
    process.stdout.write(renderers[output as GateFormat](report, options));
  } else {
    printReport({ ...report, gate }, output as ReportFormat);
    const isText = output === 'table' || output === 'wide';
    const isUsual = options.failOn === 'warning' && options.ignored.length === 0;
    if (isText && !(isUsual && options.baseline === null)) {
      process.stdout.write(`Gate: ${formatGate(gate)}\n`);
    }
  }
  return exitCodeOf(report, gate);
}
