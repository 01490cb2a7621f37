// Reads a file of suppressions (--suppressions): a list in YAML. docs/ci.md describes it.

import { readFileSync } from 'node:fs';

import { isMap, isSeq, LineCounter, type Node, parseDocument } from 'yaml';

import { isFault, readSuppression, type Suppression } from '../../audit/finding/suppressions.ts';
import { type OnProblem, problemAt, valueText } from '../../cluster/decode/problem.ts';
import { UsageError } from './process.ts';

/** A larger file, or one with more entries, is refused. */
const mostBytes = 1_000_000;
const mostEntries = 1000;

/** An entry that is not valid is a problem. Throws a UsageError if the file is no list. */
export function readSuppressions(path: string, onProblem: OnProblem): readonly Suppression[] {
  const text = readFileSync(path, 'utf8');
  if (text.length > mostBytes) throw new UsageError(`${path}: Is larger than ${mostBytes} bytes`);
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const [error] = document.errors;
  if (error !== undefined) {
    const [first = ''] = error.message.split('\n');
    throw new UsageError(`${path}:${String(lines.linePos(error.pos[0]).line)}: ${first}`);
  }
  const list: unknown = document.contents;
  if (list === null) return [];
  if (!isSeq<Node>(list)) throw new UsageError(`${path}: Expected a list of suppressions`);
  if (list.items.length > mostEntries) {
    throw new UsageError(`${path}: Has more than ${mostEntries} suppressions`);
  }
  return list.items.flatMap((item) => {
    const lineOf = (node: Node | null | undefined): number =>
      lines.linePos((node ?? item).range?.[0] ?? 0).line;
    if (!isMap<Node, Node>(item)) {
      const value = valueText(item.toJS(document));
      onProblem(problemAt(path, lineOf(item), 'Expected a suppression with fields', { value }));
      return [];
    }
    const line = lineOf(item);
    const fields = item.toJS(document, { maxAliasCount: 0 }) as Record<string, unknown>;
    const it = readSuppression(fields, `${path}:${line}`);
    if (!isFault(it)) return [it];
    const { field, message, value } = it;
    const at = field === null ? line : lineOf(item.get(field, true));
    onProblem(problemAt(path, at, message, { field, value: valueText(value) }));
    return [];
  });
}
