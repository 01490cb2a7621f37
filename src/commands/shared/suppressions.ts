// Reads a file of suppressions (--suppressions): a list in YAML. docs/ci.md describes it.

import { type Document, isMap, isSeq, type Node } from 'yaml';

import { isFault, readSuppression, type Suppression } from '../../audit/finding/suppressions.ts';
import { type Problem, problemAt, problemText, valueText } from '../../cluster/decode/problem.ts';
import { UsageError } from './process.ts';
import { readYamlFile, withTextErrors } from './yaml-file.ts';

/** A file with more entries is refused. */
const mostEntries = 1000;

/** Throws a UsageError that names each wrong entry, or why the file is no list. */
export const readSuppressions = (path: string): readonly Suppression[] =>
  readYamlFile(path, 'core', (document, lineAt) => suppressionsIn(path, document, lineAt));

function suppressionsIn(
  path: string,
  document: Document,
  lineAt: (offset: number) => number,
): readonly Suppression[] {
  const list: unknown = document.contents;
  if (list === null) return [];
  if (!isSeq<Node>(list)) throw new UsageError(`${path}: Expected a list of suppressions`);
  if (list.items.length > mostEntries) {
    throw new UsageError(`${path}: Has more than ${mostEntries} suppressions`);
  }
  const problems: Problem[] = [];
  const found = list.items.flatMap((item) => {
    const line = lineAt(item.range?.[0] ?? 0);
    if (!isMap<Node, Node>(item)) {
      const value = valueText(withTextErrors(path, (): unknown => item.toJS(document)));
      problems.push(problemAt(path, line, 'Expected a suppression with fields', { value }));
      return [];
    }
    const toFields = (): unknown => item.toJS(document, { maxAliasCount: 0 });
    const fields = withTextErrors(path, toFields) as Record<string, unknown>;
    const it = readSuppression(fields, `${path}:${line}`);
    if (!isFault(it)) return [it];
    const { field, message, value } = it;
    problems.push(problemAt(path, line, message, { field, value: valueText(value) }));
    return [];
  });
  if (problems.length > 0) throw new UsageError(problems.map(problemText).join('\n'));
  return found;
}
