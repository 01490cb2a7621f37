// Mutation testing: breaks the code of folders in small ways, one at a time, and runs the tests of
// the same folders. A test must fail for each.
//
//   npm run -s mutants -- src/audit/pending src/agent/client [--only confirm.ts:1]
//
// Operators: a condition is negated; a comparison takes or loses its boundary, or is turned round;
// `&&` and `||` are exchanged, and so are `+` and `-`, `*` and `/`, `true` and `false`; a number
// grows by one; a default is dropped; a statement is dropped. Prints each mutant that no test
// notices, and last a JSON summary. Ends with 1 if one lives, and with 2 if nothing was changed or
// the tests fail without a change.

import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';

import ts from 'typescript';
import { createVitest } from 'vitest/node';

interface Mutant {
  readonly file: string;
  readonly line: number;
  readonly operator: string;
  readonly from: string;
  readonly to: string;
  readonly start: number;
  readonly end: number;
}

const { SyntaxKind: Kind } = ts;

const exchanged: Partial<Record<ts.SyntaxKind, string>> = {
  [Kind.LessThanToken]: '<=',
  [Kind.LessThanEqualsToken]: '<',
  [Kind.GreaterThanToken]: '>=',
  [Kind.GreaterThanEqualsToken]: '>',
  [Kind.EqualsEqualsEqualsToken]: '!==',
  [Kind.ExclamationEqualsEqualsToken]: '===',
  [Kind.AmpersandAmpersandToken]: '||',
  [Kind.BarBarToken]: '&&',
  [Kind.PlusToken]: '-',
  [Kind.MinusToken]: '+',
  [Kind.AsteriskToken]: '/',
  [Kind.SlashToken]: '*',
};

const isText = (node: ts.Node): boolean =>
  ts.isStringLiteral(node) || ts.isTemplateExpression(node);

/** A loop without its body, or that no longer waits, may never end. */
function isNeeded(statement: ts.ExpressionStatement): boolean {
  const { parent, expression } = statement;
  if (ts.isWhileStatement(parent)) return true;
  return ts.isAwaitExpression(expression) && ts.isWhileStatement(parent.parent);
}

/** What may take the place of a node: pairs of an operator and a text. */
function replacements(node: ts.Node, source: ts.SourceFile): [string, string][] {
  const text = node.getText(source);
  const { parent } = node;
  const isCondition =
    (ts.isIfStatement(parent) && parent.expression === node) ||
    (ts.isConditionalExpression(parent) && parent.condition === node);
  const negated: [string, string][] = isCondition ? [['condition', `!(${text})`]] : [];
  if (ts.isNumericLiteral(node)) return [['number', `(${text} + 1)`]];
  if (node.kind === Kind.TrueKeyword) return [['boolean', 'false']];
  if (node.kind === Kind.FalseKeyword) return [['boolean', 'true']];
  if (ts.isExpressionStatement(node)) return isNeeded(node) ? [] : [['statement', ';']];
  if (ts.isBinaryExpression(node)) {
    const { left, right, operatorToken } = node;
    if (operatorToken.kind === Kind.QuestionQuestionToken) {
      return [['default', `(${left.getText(source)})`]];
    }
    const other = exchanged[operatorToken.kind];
    if (other === undefined || isText(left) || isText(right)) return negated;
    const turned: [string, string][] = [
      ['operator', `(${left.getText(source)} ${other} ${right.getText(source)})`],
    ];
    // The negation of an equality is the other equality.
    return other.length === 3 ? turned : [...negated, ...turned];
  }
  return negated;
}

/** All mutants of a file, in the order of its text. */
export function mutantsOf(file: string, text: string): Mutant[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const mutants: Mutant[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isImportDeclaration(node)) {
      return;
    }
    const [start, end] = [node.getStart(source), node.getEnd()];
    const line = source.getLineAndCharacterOfPosition(start).line + 1;
    for (const [operator, to] of replacements(node, source)) {
      mutants.push({ file, line, operator, from: text.slice(start, end), to, start, end });
    }
    ts.forEachChild(node, visit);
  };
  ts.forEachChild(source, visit);
  return mutants;
}

const root = join(import.meta.dirname, '..');

/** Tests that never end show a mutant too, after this number of seconds. */
const patience = 20;

/** Runs the tests of the folder of a file whose code is changed. */
async function createRunner(file: string) {
  const path = join(root, file);
  const folder = join(file, '..').replace(/^src/, 'test');
  let mutated: string | null = null;
  const plugin = {
    name: 'mutant',
    enforce: 'pre',
    transform: (_: string, id: string) => (id === path ? mutated : null),
  } as const;
  const limits = { testTimeout: patience * 1000, teardownTimeout: 2000, maxWorkers: 1, bail: 1 };
  // A cache of compiled files does not know of mutants.
  const caches = { fsModuleCache: false };
  const vitest = await createVitest(
    {
      root,
      config: false,
      watch: false,
      include: [`${folder}/*.test.ts`],
      pool: 'threads',
      reporters: [{}],
      isolate: false,
      ...limits,
      ...caches,
    },
    { plugins: [plugin] },
  );
  const all = await vitest.globTestSpecifications();
  // Most mutants are noticed by the tests of their own file.
  const names = ['.test.ts', '.recorded.test.ts'].map((end) => `/${basename(file, '.ts')}${end}`);
  const [own, others] = [true, false].map((is) =>
    all.filter(({ moduleId }) => names.some((name) => moduleId.endsWith(name)) === is),
  );
  return {
    tests: all.length,
    /** Whether all tests pass. */
    async passes(code: string): Promise<boolean> {
      mutated = code;
      vitest.invalidateFile(path);
      for (const tests of [own ?? [], others ?? []]) {
        const { testModules, unhandledErrors } = await vitest.runTestSpecifications(tests);
        if (unhandledErrors.length > 0 || testModules.some((it) => !it.ok())) return false;
      }
      return true;
    },
    close: () => vitest.close(),
  };
}

const counts = { mutants: 0, caught: 0, lived: 0, tests: 0 };

/** Counts the mutants of one file, and prints those that live. */
async function tryMutants(file: string, only: string): Promise<void> {
  const text = readFileSync(join(root, file), 'utf8');
  const mutants = mutantsOf(file, text).filter(({ line }) => `${file}:${line}`.includes(only));
  if (mutants.length === 0) return;
  // One for each file, because a worker may keep the mutants of another.
  const runner = await createRunner(file);
  counts.tests = runner.tests;
  if (!(await runner.passes(text))) throw new Error(`The tests of ${file} fail`);
  for (const { line, operator, from, to, start, end } of mutants) {
    counts.mutants++;
    if (!(await runner.passes(`${text.slice(0, start)}${to}${text.slice(end)}`))) {
      counts.caught++;
      continue;
    }
    counts.lived++;
    const [before, after] = [from, to].map((code) => code.replace(/\s+/g, ' '));
    console.log(`${file}:${line} ${operator}: ${before} -> ${after}`);
  }
  await runner.close();
}

async function main(folders: readonly string[], only: string): Promise<number> {
  for (const folder of folders) {
    for (const name of readdirSync(join(root, folder)).sort()) {
      await tryMutants(join(folder, name), only);
    }
  }
  console.log(JSON.stringify(counts));
  if (counts.mutants === 0) return 2;
  return counts.lived === 0 ? 0 : 1;
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { only: { type: 'string', default: '' } },
  });
  try {
    process.exitCode = await main(positionals, values.only);
  } catch (error) {
    console.error(error);
    process.exitCode = 2;
  }
}
