// Parses YAML of input that may be hostile.

import { type DocumentOptions, parse, type ParseOptions, type SchemaOptions } from 'yaml';

type Options = DocumentOptions & ParseOptions & SchemaOptions;

/** Options without which warnings would go to stderr as they are, with lines of the text. */
export const quiet = { logLevel: 'error' } as const;

/**
 * The value of a text with one document.
 * @throws YAMLParseError if it is no YAML, ReferenceError for aliases of what it does not have,
 * RangeError if it has too many levels.
 */
export const parseYaml = (text: string, options: Options = {}): unknown =>
  parse(text, { ...options, ...quiet });
