// Reads a file of suppressions (--suppressions): a list in YAML. docs/ci.md describes it.

import { readFileSync } from 'node:fs';

import { isMap, isSeq, LineCounter, type Node, parseDocument } from 'yaml';

import { isFault, readSuppression, type Suppression } from '../../audit/finding/suppressions.ts';
import { type Problem, problemAt, problemText, valueText } from '../../cluster/decode/problem.ts';
import { UsageError } from './process.ts';
import { yamlErrorText } from './yaml-file.ts';

/** A larger file, or one with more entries, is refused. */
const mostBytes = 1_000_000;
const mostEntries = 1000;

/** Throws a UsageError that names each wrong entry, or why the file is no list. */
export function readSuppressions(path: string): readonly Suppression[] {
  const text = readFileSync(path, 'utf8');
  if (text.length > mostBytes) throw new UsageError(`${path}: Is larger than ${mostBytes} bytes`);
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const [error] = document.errors;
  if (error !== undefined) throw new UsageError(yamlErrorText(path, error));
  const list: unknown = document.contents;
  if (list === null) return [];
  if (!isSeq<Node>(list)) throw new UsageError(`${path}: Expected a list of suppressions`);
  if (list.items.length > mostEntries) {
    throw new UsageError(`${path}: Has more than ${mostEntries} suppressions`);
  }
  const problems: Problem[] = [];
  const found = list.items.flatMap((item) => {
    const { line } = lines.linePos(item.range?.[0] ?? 0);
    if (!isMap<Node, Node>(item)) {
      const value = valueText(item.toJS(document));
      problems.push(problemAt(path, line, 'Expected a suppression with fields', { value }));
      return [];
    }
    const fields = item.toJS(document, { maxAliasCount: 0 }) as Record<string, unknown>;
    const it = readSuppression(fields, `${path}:${line}`);
    if (!isFault(it)) return [it];
    const { field, message, value } = it;
    problems.push(problemAt(path, line, message, { field, value: valueText(value) }));
    return [];
  });
  if (problems.length > 0) throw new UsageError(problems.map(problemText).join('\n'));
  return found;
}
