// The gate of audit and replay: reads the baseline, prints the report in formats for CI, and
// chooses the exit code.

import { readFileSync, statSync } from 'node:fs';

import { InvalidArgumentError } from 'commander';

import { catalogue, type Code, type Severity } from '../../audit/finding/catalogue.ts';
import { unknownCodeText, unservedWord } from '../../audit/finding/suppressions.ts';
import { parseJson } from '../../cluster/decode/json-text.ts';
import { renderGithub, renderMarkdown, unknownText } from '../../output/text/annotations.ts';
import type { Baseline, FailOn, GateOptions, IgnoreRule } from '../../output/text/gate.ts';
import { baselineOf, failLevels, formatGate, gateOf } from '../../output/text/gate.ts';
import { renderJunit } from '../../output/text/junit.ts';
import type { ReportedFinding } from '../../output/text/format.ts';
import type { AuditReport, ReportFormat } from '../../output/text/report.ts';
import { renderSarif } from '../../output/text/sarif.ts';
import { exitCodeOf, printReport } from './console.ts';
import { UsageError } from './process.ts';

/** Formats for CI, beside those of every report. */
export const gateFormats = ['junit', 'sarif', 'github', 'markdown'] as const;

export type GateFormat = (typeof gateFormats)[number];

export interface GateFlags {
  readonly output: ReportFormat | GateFormat;
  readonly failOn: FailOn;
  readonly ignore?: readonly IgnoreRule[];
  readonly baseline?: string;
}

const renderers = {
  junit: renderJunit,
  sarif: renderSarif,
  github: renderGithub,
  markdown: renderMarkdown,
};

/** Bytes of a report of about 30,000 findings. */
const mostBytes = 16 * 1024 * 1024;

/** The JSON report of an earlier audit. Throws a UsageError if the file is none. */
function readBaseline(path: string): Baseline {
  const { size } = statSync(path);
  if (size > mostBytes) throw new UsageError(`${path}: Is larger than ${mostBytes} bytes`);
  const text = readFileSync(path, 'utf8');
  try {
    const report = parseJson(text) as Omit<AuditReport, 'format'> & { format: number };
    const { format, findings, servicesWithoutEndpoints } = report;
    if (format === 1 && findings.every(isNamed)) {
      return baselineOf(findings, servicesWithoutEndpoints);
    }
  } catch {
    // The text is not JSON, or has no list of findings.
  }
  throw new UsageError(`${path}: Expected a report of audit -o json or replay -o json`);
}

const isNamed = ({ code, severity, namespace, service, output }: ReportedFinding): boolean =>
  [code, severity, namespace, service, output].every((name: unknown) => typeof name === 'string');

/**
 * Parses `CODE` or `CODE:NAMESPACE/NAME`; `undefined` for anything else. Throws an
 * InvalidArgumentError for an unknown code.
 */
export function parseIgnoreRule(text: string): IgnoreRule | undefined {
  const [, code = '', service = null] = /^([a-z0-9-]+)(?::([^/:]+\/[^/:]+))?$/.exec(text) ?? [];
  if (code === unservedWord) return { code, service };
  if (code === '') return undefined;
  if (!Object.hasOwn(catalogue, code)) throw new InvalidArgumentError(unknownCodeText(code));
  return { code: code as Code, service };
}

/** Parses a severity, `unserved`, or both with a comma; `undefined` for anything else. */
export function parseFailOn(text: string): FailOn | undefined {
  const levels = text.split(',').map((level) => level.trim());
  const found = levels.filter((level) => level !== unservedWord);
  if (found.length > 1 || !levels.every((level) => failLevels.includes(level))) return undefined;
  const [severity = 'warning'] = found;
  return { severity: severity as Severity, unserved: levels.includes(unservedWord) };
}

/** Whether the text of a report needs no sentence about the gate. */
const isUsual = ({ failOn, ignored, baseline }: GateOptions): boolean =>
  failOn.severity === 'warning' && !failOn.unserved && ignored.length === 0 && baseline === null;

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
  const gate = gateOf(report, options);
  if (output in renderers) {
    process.stdout.write(renderers[output as GateFormat](report, options));
  } else {
    printReport({ ...report, gate }, output as ReportFormat, options);
    const isText = output === 'table' || output === 'wide';
    if (isText && !isUsual(options))
      process.stdout.write(`${formatGate(gate, unknownText(report) !== null)}\n`);
  }
  return exitCodeOf(report, gate);
}
