// Reports for a pull request: workflow commands of GitHub, which annotate it
// (actions/toolkit@v2 packages/core/src/command.ts), and a table in Markdown for a comment or a
// job summary.

import { catalogue, type Severity } from '../../audit/finding/catalogue.ts';
import { remedyOf } from '../../audit/finding/remedies.ts';
import { inOrder } from '../../audit/summary.ts';
import { escapeInvisible, escapeMarkup, formatDetail, type ReportedFinding } from './format.ts';
import {
  acceptanceOf,
  acceptanceWords,
  formatGate,
  type GateOptions,
  gateOf,
  unservedFailures,
} from './gate.ts';
import { type AuditReport, noServicesText } from './report.ts';

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
export function unknownText(report: AuditReport): string | null {
  const { unknown, services, foreign } = report;
  const reasons = Object.entries(unknown).map(([reason, count]) => `${count} ${reason}`);
  if (reasons.length > 0) return `Outputs without a verdict: ${reasons.join(', ')}`;
  return services === 0 && foreign === 0 ? noServicesText(report) : null;
}

/** Workflow commands: an annotation for each finding that is not accepted, and one for the gate. */
export function renderGithub(report: AuditReport, options: GateOptions): string {
  const command = (name: string, title: string, text: string): string => {
    const [property, data] = [escapeProperty(escapeInvisible(title)), escapeInvisible(text)];
    return `::${name} title=${property}::${escapeData(data)}`;
  };
  const place = report.cluster === null ? '' : `${report.cluster}: `;
  const lines = inOrder(report.findings).flatMap((finding) => {
    const { code, severity } = finding;
    const acceptance = acceptanceOf(finding, options);
    if (acceptance !== null && acceptance !== 'minor') return [];
    const [remedy = ''] = remedyOf(finding).text.split(/(?<=\.) /);
    const text = `${code}: ${formatDetail(finding, 500)}. Fix: ${remedy}`;
    // A finding that fails the gate is an error of the workflow, whatever its severity.
    const name = acceptance === null ? 'error' : commands[severity];
    return [command(name, `${place}${ownerOf(finding)}: ${catalogue[code].title}`, text)];
  });
  const title = (name: string): string => `${place}${name}: Service without usable endpoints`;
  const unserved = unservedFailures(report, options).map(({ namespace, name, reason, detail }) =>
    command('error', title(`${namespace}/${name}`), `${reason}: ${detail}`),
  );
  lines.push(...unserved);
  // Such as a suppression that has expired.
  const problems = report.problems.map((problem) =>
    command('warning', `${place}endpoint-auditor`, problem),
  );
  lines.push(...problems);
  const unknown = unknownText(report);
  if (unknown !== null) lines.push(command('error', `${place}endpoint-auditor`, unknown));
  const gate = formatGate(gateOf(report, options), unknown !== null);
  lines.push(command('notice', `${place}endpoint-auditor`, gate));
  return `${lines.join('\n')}\n`;
}

/** Without markup, mentions and cells of its own. */
const escapeCell = (text: string): string =>
  escapeMarkup(text)
    .replace(/[\\`*_[\]|~]/g, String.raw`\$&`)
    .replaceAll('@', '&#64;');

/** A table of all findings with their status, below a headline. */
export function renderMarkdown(report: AuditReport, options: GateOptions): string {
  const unknown = unknownText(report);
  const headline = [formatGate(gateOf(report, options), unknown !== null), unknown ?? []].flat();
  const failure = '**fails**';
  const row = (status: string, cells: readonly string[]): string =>
    `| ${[status, ...cells.map(escapeCell)].join(' | ')} |`;
  const rows = inOrder(report.findings).map((finding) => {
    const acceptance = acceptanceOf(finding, options);
    const status = acceptance === null ? failure : acceptanceWords[acceptance];
    const cells = [finding.severity, ownerOf(finding), finding.code, formatDetail(finding, 300)];
    return row(status, cells);
  });
  const unserved = unservedFailures(report, options).map(({ namespace, name, reason, detail }) =>
    row(failure, ['-', `${namespace}/${name}`, `without endpoints: ${reason}`, detail]),
  );
  const head = [
    '| Status | Severity | Service | Finding | What |',
    '| --- | --- | --- | --- | --- |',
  ];
  const all = [...rows, ...unserved];
  const table = all.length === 0 ? [] : ['', ...head, ...all];
  const title = ['### endpoint-auditor', report.cluster ?? []].flat().map(escapeCell).join(': ');
  return `${[title, '', ...headline.map(escapeCell), ...table].join('\n')}\n`;
}
