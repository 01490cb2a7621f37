// Reports for a pull request: workflow commands of GitHub, which annotate it
// (actions/toolkit@v2 packages/core/src/command.ts), and a table in Markdown for a comment or a
// job summary.

import type { Severity } from '../../audit/finding/catalogue.ts';
import { inOrder } from '../../audit/summary.ts';
import { escapeInvisible, escapeMarkup, formatDetail, type ReportedFinding } from './format.ts';
import { type Acceptance, acceptanceOf, formatGate, type GateOptions, gateOf } from './gate.ts';
import type { AuditReport } from './report.ts';

const commands: Readonly<Record<Severity, string>> = {
  critical: 'error',
  warning: 'warning',
  info: 'notice',
};

const escapeData = (text: string): string =>
  text.replace(/[%\r\n]/g, (character) => `%${hexOf(character)}`);

const escapeProperty = (text: string): string =>
  text.replace(/[%\r\n:,]/g, (character) => `%${hexOf(character)}`);

const hexOf = (character: string): string =>
  character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0');

/** `node-a shop/web`. */
export const ownerOf = ({ node, namespace, service }: ReportedFinding): string =>
  [node ?? [], service === '' ? [] : `${namespace}/${service}`].flat().join(' ');

/** The first reason why no verdict is possible, for people; `null` if every output has one. */
export function unknownText({ unknown, services, foreign }: AuditReport): string | null {
  const reasons = Object.entries(unknown).map(([reason, count]) => `${count} ${reason}`);
  if (reasons.length > 0) return `Outputs without a verdict: ${reasons.join(', ')}`;
  return services === 0 && foreign === 0 ? 'There are no Services to audit' : null;
}

/** Workflow commands: an annotation for each finding that is not accepted, and one for the gate. */
export function renderGithub(report: AuditReport, options: GateOptions): string {
  const command = (name: string, title: string, text: string): string => {
    const [property, data] = [escapeProperty(escapeInvisible(title)), escapeInvisible(text)];
    return `::${name} title=${property}::${escapeData(data)}`;
  };
  const lines = inOrder(report.findings).flatMap((finding) => {
    const { code, severity } = finding;
    const acceptance = acceptanceOf(finding, options);
    if (acceptance === 'ignored' || acceptance === 'baseline') return [];
    const text = `${code}: ${formatDetail(finding, 500)}`;
    // A finding that fails the gate is an error of the workflow, whatever its severity.
    const name = acceptance === null ? 'error' : commands[severity];
    return [command(name, `${severity} ${ownerOf(finding)}`, text)];
  });
  const unknown = unknownText(report);
  if (unknown !== null) lines.push(command('error', 'endpoint-auditor', unknown));
  const gate = gateOf(report.findings, options);
  lines.push(command('notice', 'endpoint-auditor', formatGate(gate)));
  return `${lines.join('\n')}\n`;
}

/** Without markup, mentions and cells of its own. */
const escapeCell = (text: string): string =>
  escapeMarkup(text)
    .replace(/[\\`*_[\]|~]/g, String.raw`\$&`)
    .replaceAll('@', '&#64;');

const statuses: Readonly<Record<Acceptance, string>> = {
  ignored: 'ignored',
  baseline: 'in the baseline',
  minor: 'accepted',
};

/** A table of all findings with their status, below a headline. */
export function renderMarkdown(report: AuditReport, options: GateOptions): string {
  const unknown = unknownText(report);
  const headline = [formatGate(gateOf(report.findings, options)), unknown ?? []].flat();
  const rows = inOrder(report.findings).map((finding) => {
    const acceptance = acceptanceOf(finding, options);
    const status = acceptance === null ? '**fails**' : statuses[acceptance];
    const cells = [finding.severity, ownerOf(finding), finding.code, formatDetail(finding, 300)];
    return `| ${[status, ...cells.map(escapeCell)].join(' | ')} |`;
  });
  const head = [
    '| Status | Severity | Service | Finding | What |',
    '| --- | --- | --- | --- | --- |',
  ];
  const table = rows.length === 0 ? [] : ['', ...head, ...rows];
  return `${['### endpoint-auditor', '', ...headline.map(escapeCell), ...table].join('\n')}\n`;
}
