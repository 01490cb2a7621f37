// YAML files that the user names: their documents, and what is wrong with their text, as one line.

import { readFileSync } from 'node:fs';

import type { Document } from 'yaml';
import { LineCounter, parseDocument, YAMLParseError } from 'yaml';

import { quiet } from '../../cluster/decode/yaml-text.ts';
import { UsageError } from './process.ts';

/** The parser needs minutes and GiB for larger files. */
const mostBytes = 1_000_000;

/** The result of `work`. Throws what the parser throws for a wrong text as a UsageError. */
export function withTextErrors<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    // The parser throws a RangeError for too many levels, and a ReferenceError for aliases.
    const isOfText = [YAMLParseError, RangeError, ReferenceError].some((it) => error instanceof it);
    throw isOfText ? new UsageError(yamlErrorText(path, error)) : error;
  }
}

/**
 * Reads a file with one document and passes it to `read`. Throws a UsageError if it is no YAML or
 * too large.
 */
export function readYamlFile<T>(
  path: string,
  schema: 'core' | 'failsafe',
  read: (document: Document.Parsed, lineAt: (offset: number) => number) => T,
): T {
  const bytes = readFileSync(path);
  if (bytes.length > mostBytes) throw new UsageError(`${path}: Is larger than ${mostBytes} bytes`);
  const lines = new LineCounter();
  const document = withTextErrors(path, () => {
    const parsed = parseDocument(bytes.toString(), { schema, lineCounter: lines, ...quiet });
    const [error] = parsed.errors;
    if (error !== undefined) throw error;
    return parsed;
  });
  return read(document, (offset) => lines.linePos(offset).line);
}

/**
 * `accepted.yaml:3:1: Missing closing "quote`: the first line of an error, with line and column.
 * The excerpt that yaml adds is left out.
 */
export function yamlErrorText(path: string, error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const [first = ''] = message.split(/ at line \d|\n/);
  const position = error instanceof YAMLParseError ? error.linePos?.[0] : undefined;
  const place = position === undefined ? path : `${path}:${position.line}:${position.col}`;
  const text = first.startsWith('Maximum call stack') ? 'Has too many levels' : first;
  return `${place}: ${text}`;
}
