// README.md of the chart: the table of values is read from values.yaml, as helm-docs does it, a row
// for each value with the comment `# --` above it.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { format } from 'prettier';

import { chart, readYaml } from './files.ts';

interface Row {
  readonly name: string;
  /** As JSON. */
  readonly fallback: string;
  readonly text: string;
}

const valuesFile = join(chart, 'values.yaml');

function valueAt(name: string): unknown {
  let value = readYaml(valuesFile);
  for (const key of name.split('.')) value = (value as Readonly<Record<string, unknown>>)[key];
  return value;
}

/** A row for each value, in the order of values.yaml. */
export function valueRows(): Row[] {
  const rows: Row[] = [];
  let path: string[] = [];
  let text: string | null = null;
  for (const line of readFileSync(valuesFile, 'utf8').split('\n')) {
    const comment = /^ *# (?<begins>-- )?(?<said>.*)/.exec(line)?.groups;
    const key = /^(?<indent> *)(?<key>\w+):/.exec(line)?.groups;
    if (comment?.begins !== undefined) text = comment.said ?? '';
    else if (comment !== undefined && text !== null) text += ` ${comment.said ?? ''}`;
    if (key === undefined) continue;
    path = [...path.slice(0, (key.indent?.length ?? 0) / 2), key.key ?? ''];
    const name = path.join('.');
    if (text !== null) rows.push({ name, fallback: JSON.stringify(valueAt(name)), text });
    text = null;
  }
  return rows;
}

const cell = (text: string): string => text.replaceAll('|', '\\|');

const marks = ['<!-- values -->', '<!-- end of values -->'] as const;

/** The README with the table as it must be; all else as it is. */
export function readmeWith(text: string): Promise<string> {
  const rows = valueRows().map(
    ({ name, fallback, text: what }) => `| \`${name}\` | \`${cell(fallback)}\` | ${cell(what)} |`,
  );
  const table = ['| value | default | what |', '| --- | --- | --- |', ...rows].join('\n');
  const [before = '', rest = ''] = text.split(marks[0]);
  const after = rest.split(marks[1])[1] ?? '';
  const whole = `${before}${marks[0]}\n\n${table}\n\n${marks[1]}${after}`;
  return format(whole, { parser: 'markdown', printWidth: 100 });
}
