// The report as SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format), which code scanning
// services read. A result is a finding; one that the gate accepts is suppressed.

import { catalogue, type Code, type Severity } from '../../audit/finding/catalogue.ts';
import { suppressedText, unservedWord } from '../../audit/finding/suppressions.ts';
import { inOrder } from '../../audit/summary.ts';
import { version } from '../../model/program-version.ts';
import { ownerOf, unknownText } from './annotations.ts';
import { escapeInvisible, formatDetail, formatJson, type ReportedFinding } from './format.ts';
import { acceptanceOf, findingKey, type GateOptions, unservedFailures } from './gate.ts';
import type { UnservedRow } from './unserved.ts';
import type { AuditReport } from './report.ts';

const levels: Readonly<Record<Severity, 'error' | 'warning' | 'note'>> = {
  critical: 'error',
  warning: 'warning',
  info: 'note',
};

function ruleOf(code: Code) {
  const { title, meaning, remedy, severity } = catalogue[code];
  return {
    id: code,
    shortDescription: { text: title },
    fullDescription: { text: meaning },
    help: { text: remedy },
    defaultConfiguration: { level: levels[severity] },
  };
}

const locationOf = (name: string, source: string) => ({
  physicalLocation: { artifactLocation: { uri: encodeURI(source.toWellFormed()) } },
  logicalLocations: [{ fullyQualifiedName: name, kind: 'resource' }],
});

function resultOf(finding: ReportedFinding, source: string, options: GateOptions) {
  const { code, severity, output } = finding;
  const acceptance = acceptanceOf(finding, options);
  const ignored = acceptance === 'ignored' ? '--ignore' : null;
  const justification = finding.suppressed ? suppressedText(finding.suppressed) : ignored;
  return {
    ruleId: code,
    level: levels[severity],
    message: { text: `${ownerOf(finding)} ${output}: ${formatDetail(finding, 1000)}` },
    locations: [locationOf(ownerOf(finding), source)],
    partialFingerprints: { 'finding/v1': findingKey(finding) },
    ...(options.baseline === null
      ? {}
      : { baselineState: acceptance === 'baseline' ? 'unchanged' : 'new' }),
    ...(justification === null
      ? {}
      : { suppressions: [{ kind: 'external', justification: escapeInvisible(justification) }] }),
  };
}

const unservedRule = {
  id: unservedWord,
  shortDescription: { text: 'A Service cannot receive traffic' },
  fullDescription: { text: 'The Service has no usable endpoint.' },
  defaultConfiguration: { level: 'error' },
};

function unservedResult({ namespace, name, reason, detail }: UnservedRow, source: string) {
  const service = `${namespace}/${name}`;
  return {
    ruleId: unservedWord,
    level: 'error',
    message: { text: `${service} ${reason}: ${escapeInvisible(detail)}` },
    locations: [locationOf(service, source)],
    partialFingerprints: { 'finding/v1': `${unservedWord} ${service}` },
  };
}

/** Resolved findings of a replay are results too. */
export function renderSarif(report: AuditReport, options: GateOptions): string {
  const findings = inOrder(report.findings);
  const codes = [...new Set(findings.map(({ code }) => code))].sort();
  const [source = ''] = report.input.sources;
  const unserved = unservedFailures(report, options);
  const unknown = unknownText(report);
  const notifications = unknown === null ? [] : [{ level: 'error', message: { text: unknown } }];
  return formatJson({
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: {
          driver: {
            name: 'endpoint-auditor',
            semanticVersion: version,
            rules: [...codes.map(ruleOf), ...(unserved.length > 0 ? [unservedRule] : [])],
          },
        },
        invocations: [
          {
            executionSuccessful: unknown === null,
            toolExecutionNotifications: notifications,
          },
        ],
        // By it, code scanning distinguishes the runs for several clusters.
        ...(report.cluster === null
          ? {}
          : { automationDetails: { id: `endpoint-auditor/${report.cluster}/` } }),
        results: [
          ...findings.map((finding) => resultOf(finding, source, options)),
          ...unserved.map((service) => unservedResult(service, source)),
        ],
      },
    ],
  });
}
