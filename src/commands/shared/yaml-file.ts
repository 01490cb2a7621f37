// YAML files that the user names: what is wrong with their text, as one line.

import { YAMLParseError } from 'yaml';

/**
 * `accepted.yaml:3:1: Missing closing "quote`: the first line of an error, with line and column.
 * The excerpt that yaml adds is left out.
 */
export function yamlErrorText(path: string, error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const [first = ''] = message.split(/ at line \d|\n/);
  const position = error instanceof YAMLParseError ? error.linePos?.[0] : undefined;
  const place = position === undefined ? path : `${path}:${position.line}:${position.col}`;
  return `${place}: ${first}`;
}
