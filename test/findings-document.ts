// docs/findings.md as the catalogue renders to it. `UPDATE=1 vitest run test/tidy.test.ts` writes
// it anew; without that the test holds the file against this.

import { format } from 'prettier';

import type { CauseEntry } from '../src/audit/causes.ts';
import { causes } from '../src/audit/causes.ts';
import type { CatalogueEntry, Output } from '../src/audit/findings.ts';
import { catalogue, severities } from '../src/audit/findings.ts';

const introduction = `# Findings

A finding says that one output of a Service differs from what the controllers mean to write, and
has differed for longer than the settle window; or that the input itself is in trouble. It names
the object and field, what was expected and what is there, since when, and, where one is known,
the cause.

This page is written from the catalogue in \`src/audit/findings.ts\`, and a test keeps the two
equal.

## How to read a finding

- **pending → open → resolved.** A difference is pending until it has stood for the settle window.
  Then a finding is opened; it is resolved when the last difference that belongs to it is gone.
- **One output and one cause, one finding.** All differences of a Service at one output that have
  the same cause are one finding, under the code of the worst of them, which lists the others.
  Findings about the input are one per code.
- **missing, unexpected, different.** Missing: it must be there and is not. Unexpected: it is
  there and must not be. Different: it is there, and says something else than it must.
- **A cause is no excuse.** It explains why the difference stands although every controller works,
  and what cures it. A finding with a cause is reported like any other; where nothing but a
  sleeping controller is to blame and no traffic suffers, it is information.
- **Unknown is not a finding.** What cannot be judged, since an object was not delivered or could
  not be read, is counted as unknown, and neither as different nor as conform.

## Severities
`;

const severityText = {
  critical: 'Traffic goes astray, or goes nowhere.',
  warning:
    'Traffic suffers, or will when something else happens; or metadata that matters is wrong.',
  info: 'Nothing suffers. Worth knowing, never worth a page.',
} as const;

const outputs: readonly (readonly [Output, string])[] = [
  ['endpoints', 'the Endpoints object, written by the endpoints controller'],
  ['endpointslices', 'EndpointSlices, written by the endpointslice controller'],
  ['mirrored', 'EndpointSlices, copied from Endpoints by the endpointslicemirroring controller'],
  ['node', 'the forwarding rules of a Node'],
  ['input', 'what users and other managers wrote, which no controller can put right'],
];

const entries: readonly (readonly [string, CatalogueEntry])[] = Object.entries(catalogue);
const causeEntries: readonly (readonly [string, CauseEntry])[] = Object.entries(causes);

const link = (name: string): string => `[\`${name}\`](#${name})`;

function codeTable(output: Output): string {
  const rows = entries
    .filter(([, entry]) => entry.output === output)
    .map(([code, { severity, title }]) => `| ${link(code)} | ${severity} | ${title} |`);
  return ['| code | severity | what it says |', '| --- | --- | --- |', ...rows].join('\n');
}

function codeSection([code, entry]: readonly [string, CatalogueEntry]): string {
  return [
    `### ${code}`,
    `**${entry.title}.** ${entry.meaning}`,
    [
      `- Output: ${entry.output}; usually ${entry.severity}; difference: ${entry.difference}`,
      `- Remedy: ${entry.remedy}`,
      `- Upstream: \`${entry.upstream}\``,
    ].join('\n'),
  ].join('\n\n');
}

function causeSection([name, entry]: readonly [string, CauseEntry]): string {
  return [
    `### Cause: ${name}`,
    `**${entry.title}.**`,
    [
      `- Condition: ${entry.condition}`,
      `- Cure: ${entry.cure}`,
      `- Upstream: \`${entry.upstream}\``,
    ].join('\n'),
  ].join('\n\n');
}

/** Outputs that have codes, with what they are. */
const usedOutputs = outputs.filter(([output]) => entries.some(([, one]) => one.output === output));

/** The whole document, formatted. */
export async function findingsDocument(): Promise<string> {
  const parts = [
    introduction,
    severities.map((severity) => `- **${severity}**: ${severityText[severity]}`).join('\n'),
    'Where traffic suffers more or less than usual, a finding is more or less severe.',
    '## Codes',
    ...usedOutputs.flatMap(([output, text]) => [
      `Output \`${output}\`: ${text}.`,
      codeTable(output),
    ]),
    '## What each code means',
    ...entries.map(codeSection),
    '## Causes',
    'Blind spots of the controllers: what leaves a difference standing although all of them work.',
    causeEntries.map(([name, { title }]) => `- [\`${name}\`](#cause-${name}): ${title}`).join('\n'),
    ...causeEntries.map(causeSection),
  ];
  return await format(parts.join('\n\n'), { parser: 'markdown' });
}
