// Checks the rules of the repository: the layout of src and its imports, pure folders, short
// functions, a test for every file, no unused export, names, plain English, and documents that
// match the code. Every failure names the place.

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

import ts from 'typescript';
import { describe, expect, test } from 'vitest';

import { catalogue } from '../src/audit/finding/catalogue.ts';
import { causes } from '../src/audit/finding/causes.ts';
import { findingsDocument, releasesTable } from './documents.ts';
import { bannedPattern } from './words.ts';

const root = join(import.meta.dirname, '..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** Files below a folder, as paths from the root. */
function filesIn(folder: string, name: RegExp): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && name.test(entry.name))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}

const sources = filesIn('src', /\.ts$/);
const tests = filesIn('test', /\.ts$/);

const parsed = new Map<string, ts.SourceFile>();

function parse(path: string): ts.SourceFile {
  const known = parsed.get(path);
  if (known !== undefined) return known;
  const file = ts.createSourceFile(path, read(path), ts.ScriptTarget.Latest, true);
  parsed.set(path, file);
  return file;
}

const nodesOfFiles = new Map<string, readonly ts.Node[]>();

/** All nodes of a file but its tokens, which would cost four times as much. */
function nodesOf(path: string): readonly ts.Node[] {
  const known = nodesOfFiles.get(path);
  if (known !== undefined) return known;
  const nodes: ts.Node[] = [];
  const add = (node: ts.Node): void => {
    nodes.push(node);
    ts.forEachChild(node, add);
  };
  add(parse(path));
  nodesOfFiles.set(path, nodes);
  return nodes;
}

interface Import {
  /** A path from the root, or the name of a package. */
  readonly from: string;
  readonly isPackage: boolean;
  /** null: all of them. */
  readonly names: readonly string[] | null;
}

function namesOf(node: ts.ImportDeclaration | ts.ExportDeclaration): readonly string[] | null {
  const clause = ts.isImportDeclaration(node)
    ? node.importClause?.namedBindings
    : node.exportClause;
  if (clause === undefined || ts.isNamespaceImport(clause) || ts.isNamespaceExport(clause)) {
    return null;
  }
  return [...clause.elements].map(({ name, propertyName }) => (propertyName ?? name).text);
}

function importsOf(path: string): Import[] {
  const found: Import[] = [];
  const add = (text: string, names: Import['names']): void => {
    const isPackage = !text.startsWith('.');
    const from = isPackage ? text : relative('.', join(dirname(path), text));
    found.push({ from, isPackage, names });
  };
  const dynamic = /\b(?:import|new URL)\('([^']+\.ts)'(?:\)|, import\.meta\.url\))/g;
  for (const [, text = ''] of read(path).matchAll(dynamic)) add(text, null);
  for (const node of parse(path).statements) {
    if (!ts.isImportDeclaration(node) && !ts.isExportDeclaration(node)) continue;
    if (node.moduleSpecifier === undefined || !ts.isStringLiteral(node.moduleSpecifier)) continue;
    add(node.moduleSpecifier.text, namesOf(node));
  }
  return found;
}

// The layout of src: docs/architecture.md has the table of folders and of what each may import.

/** Folders without I/O, clocks and global state. */
const pure = ['model', 'shadow', 'rules', 'audit'];

/** The first folder below src. */
const roomOf = (path: string): string => path.split('/')[1] ?? '';

/** The folder of a file, as the table names it: relative to src, or `src` itself. */
const folderOf = (path: string): string => relative('src', dirname(path)) || 'src';

interface Row {
  readonly folder: string;
  readonly contents: string;
  /** Folders; a name that ends with `/*` includes every folder below it. */
  readonly allowed: readonly string[];
}

function tableOfFolders(): readonly Row[] {
  const rows = read('docs/architecture.md').matchAll(/^\| `([\w/-]+)` +\|([^|]*)\|([^|]*)\|$/gm);
  return [...rows].map(([, folder = '', contents = '', allowed = '']) => ({
    folder,
    contents: contents.trim(),
    allowed: [...allowed.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name),
  }));
}

const isIn = (folder: string, name: string): boolean =>
  name.endsWith('/*') ? `${folder}/`.startsWith(name.slice(0, -1)) : folder === name;

/** The imports of files, without packages. */
const edgesOf = (paths: readonly string[]) =>
  paths.flatMap((path) =>
    importsOf(path)
      .filter(({ isPackage }) => !isPackage)
      .map(({ from }) => ({ path, from })),
  );

const edges = edgesOf(sources);

/** The cycles of a graph: its strongly connected components of two or more nodes. */
function cyclesOf(pairs: readonly (readonly [string, string])[]): string[][] {
  const next = Map.groupBy(pairs, ([from]) => from);
  const reach = new Map<string, ReadonlySet<string>>();
  for (const start of next.keys()) {
    const seen = new Set<string>();
    const queue = [start];
    for (let node = queue.pop(); node !== undefined; node = queue.pop()) {
      for (const [, to] of next.get(node) ?? []) {
        if (seen.has(to)) continue;
        seen.add(to);
        queue.push(to);
      }
    }
    reach.set(start, seen);
  }
  const cyclic = [...reach].filter(([node, seen]) => seen.has(node)).map(([node]) => node);
  const groups = Map.groupBy(cyclic, (node) =>
    cyclic.filter((other) => reach.get(node)?.has(other) && reach.get(other)?.has(node)).join(' '),
  );
  return [...groups.values()];
}

describe('layout of src', () => {
  const table = tableOfFolders();
  const folders = [...new Set(sources.map(folderOf))];

  test('every folder has one row with its contents, and every row has a folder', () => {
    expect(table.map(({ folder }) => folder).sort()).toEqual(folders.sort());
    expect(table.filter(({ contents }) => contents === '')).toEqual([]);
  });

  test('only the two entry points are outside the folders, which are at most ten', () => {
    expect(sources.filter((path) => folderOf(path) === 'src')).toEqual([
      'src/agent-main.ts',
      'src/main.ts',
    ]);
    const rooms = new Set(sources.filter((path) => folderOf(path) !== 'src').map(roomOf));
    expect(rooms.size).toBeLessThanOrEqual(10);
  });

  test('a folder has at most 15 files, and src at most three levels of folders', () => {
    const files = Map.groupBy(sources, folderOf);
    expect([...files].filter(([, paths]) => paths.length > 15).map(([folder]) => folder)).toEqual(
      [],
    );
    expect(folders.filter((folder) => folder.split('/').length > 3)).toEqual([]);
  });

  test('a folder imports only itself and the folders in its row, types included', () => {
    const allowed = new Map(table.map((row) => [row.folder, row.allowed]));
    const wrong = edges.filter(({ path, from }) => {
      const folder = folderOf(path);
      const to = folderOf(from);
      return folder !== to && !allowed.get(folder)?.some((name) => isIn(to, name));
    });
    expect(wrong.map(({ path, from }) => `${path} imports ${from}`)).toEqual([]);
  });

  test('neither files nor folders import each other in cycles, types included', () => {
    const ofFolders = edges
      .map(({ path, from }) => [folderOf(path), folderOf(from)] as const)
      .filter(([folder, to]) => folder !== to);
    expect(cyclesOf(edges.map(({ path, from }) => [path, from] as const))).toEqual([]);
    expect(cyclesOf(ofFolders)).toEqual([]);
  });

  test('every file that a document names exists', () => {
    const paths = [...filesIn('docs', /\.md$/), 'CONTRIBUTING.md', 'README.md'].flatMap((path) =>
      [...read(path).matchAll(/`((?:src|test)\/[\w./-]+\.\w+)`/g)].map(([, name = '']) => ({
        path,
        name,
      })),
    );
    const lost = paths.filter(({ name }) => !existsSync(join(root, name)));
    expect(lost.map(({ path, name }) => `${path}: ${name}`)).toEqual([]);
  });

  test('the search for cycles finds them', () => {
    const pairs = [
      ['a', 'b'],
      ['b', 'c'],
      ['c', 'a'],
      ['c', 'd'],
      ['d', 'e'],
    ] as const;
    expect(cyclesOf(pairs)).toEqual([['a', 'b', 'c']]);
  });

  test('no file of src imports from a test', () => {
    const wrong = sources.filter((path) =>
      importsOf(path).some(({ from, isPackage }) => !isPackage && !from.startsWith('src/')),
    );
    expect(wrong).toEqual([]);
  });

  test('imports by name nothing that Node 20 lacks, which must print that it is too old', () => {
    const late = /^import (?!type\b)(?:.* from 'node:sqlite'|\{[^}]*zstd[^}]*\} from 'node:zlib')/m;
    expect(sources.filter((path) => late.test(read(path)))).toEqual([]);
  });

  test('pure folders import no package and nothing of Node', () => {
    const wrong = sources
      .filter((path) => pure.includes(roomOf(path)))
      .flatMap((path) =>
        importsOf(path)
          .filter(({ isPackage }) => isPackage)
          .map(({ from }) => `${path} imports ${from}`),
      );
    expect(wrong).toEqual([]);
  });

  test('pure folders have no clock, no random numbers and no console', () => {
    const wrong = sources
      .filter((path) => pure.includes(roomOf(path)))
      .flatMap((path) => nodesOf(path).filter(isImpure).map(placeOf));
    expect(wrong).toEqual([]);
  });
});

const impure = ['performance', 'console', 'process', 'globalThis', 'setTimeout', 'setInterval'];

function isImpure(node: ts.Node): boolean {
  if (ts.isPropertyAccessExpression(node)) {
    return ['Date.now', 'Math.random'].includes(node.getText());
  }
  if (ts.isNewExpression(node)) {
    return node.expression.getText() === 'Date' && (node.arguments?.length ?? 0) === 0;
  }
  if (!ts.isIdentifier(node) || !impure.includes(node.text)) return false;
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent)) return parent.expression === node;
  return !ts.isPropertyAssignment(parent) && !ts.isPropertySignature(parent);
}

function placeOf(node: ts.Node): string {
  const file = node.getSourceFile();
  const { line } = file.getLineAndCharacterOfPosition(node.getStart());
  return `${file.fileName}:${line + 1} ${node.getText().slice(0, 40).split('\n')[0] ?? ''}`;
}

// Sizes.

function linesOf(node: ts.Node): number {
  const file = node.getSourceFile();
  const lineAt = (position: number): number => file.getLineAndCharacterOfPosition(position).line;
  return lineAt(node.getEnd()) - lineAt(node.getStart()) + 1;
}

/** What describe calls holds tests as a chapter holds pages: it is no function to read at once. */
function isChapter(node: ts.Node): boolean {
  const { parent } = node;
  return ts.isCallExpression(parent) && /^describe\b/.test(parent.expression.getText());
}

/** One table of one kind of entry, which a reader looks up and does not read through. */
const tables = ['src/audit/finding/catalogue.ts'];

describe('sizes', () => {
  test('functions have at most 70 lines', () => {
    const long = [...sources, ...tests].flatMap((path) =>
      nodesOf(path)
        .filter((node) => ts.isFunctionLike(node) && !isChapter(node) && linesOf(node) > 70)
        .map((node) => `${placeOf(node)}: ${linesOf(node)} lines`),
    );
    expect(long).toEqual([]);
  });

  test('lines have at most 100 columns', () => {
    const long = [...sources, ...tests].flatMap((path) =>
      read(path)
        .split('\n')
        .flatMap((line, index) => (line.length > 100 ? [`${path}:${index + 1}`] : [])),
    );
    expect(long).toEqual([]);
  });

  test('files of src have at most 500 lines', () => {
    const long = sources
      .map((path) => ({ path, lines: read(path).split('\n').length - 1 }))
      .filter(({ path, lines }) => lines > 500 && !tables.includes(path))
      .map(({ path, lines }) => `${path}: ${lines} lines`);
    expect(long).toEqual([]);
  });
});

// What belongs to every file.

test('nothing is exported by default', () => {
  const wrong = [...sources, ...tests].filter((path) => /^export default\b/m.test(read(path)));
  expect(wrong).toEqual([]);
});

test('no object of src is written only to be spread into another', () => {
  const isSpread = (node: ts.Node): boolean =>
    ts.isSpreadAssignment(node) && ts.isObjectLiteralExpression(node.expression);
  const wrong = sources.flatMap((path) => nodesOf(path).filter(isSpread).map(placeOf));
  expect(wrong).toEqual([]);
});

test('what a browser has is known to no file but its own project', () => {
  const asked = [...sources, ...tests].filter((path) => /^\/\/\/ *<reference/m.test(read(path)));
  expect(asked).toEqual([]);
});

const edgesOfTests = edgesOf(tests);
const importedByTests = new Set(edgesOfTests.map(({ from }) => from));

test('files of test do not import each other in cycles, types included', () => {
  expect(cyclesOf(edgesOfTests.map(({ path, from }) => [path, from] as const))).toEqual([]);
});

test('programs of package.json do nothing when another file imports them', () => {
  const matches = read('package.json').matchAll(/node (test\/\S+\.ts)/g);
  const programs = [...matches].map(([, path = '']) => path);
  const unguarded = programs.filter((path) => !read(path).includes('import.meta.main'));
  expect(programs.length).toBeGreaterThan(5);
  expect(unguarded.filter((path) => importedByTests.has(path))).toEqual([]);
});

test('test/ has at most 60 helpers, imported files that are no tests or programs', () => {
  const scripts = read('package.json');
  const isProgram = (path: string): boolean =>
    /process\.argv|import\.meta\.main/.test(read(path)) || scripts.includes(path);
  const helpers = tests.filter(
    (path) => importedByTests.has(path) && !path.endsWith('.test.ts') && !isProgram(path),
  );
  expect(helpers.length).toBeGreaterThan(20);
  expect(helpers.length).toBeLessThanOrEqual(60);
});

describe('files of src', () => {
  test('begin with a head comment that says what they are', () => {
    const bare = sources.filter((path) => !/^(?:#!.*\n)?\/\/ \S/.test(read(path)));
    expect(bare).toEqual([]);
  });

  test('above 80 lines have a test of the same name, or one of their folder imports them', () => {
    const tested = new Set(tests.flatMap((path) => testedBy(path)));
    const missing = sources.filter(
      (path) =>
        hasCode(path) &&
        read(path).split('\n').length > 80 &&
        !tested.has(path) &&
        !tests.includes(path.replace(/^src/, 'test').replace(/\.ts$/, '.test.ts')),
    );
    expect(missing).toEqual([]);
  });

  test('export nothing without a user', () => {
    expect(deadExports()).toEqual([]);
  });
});

/** Programs outside src that count as users; tests do not. */
const programs = [
  ...filesIn('test/vectors', /^(?!.*\.test).*\.ts$/),
  ...filesIn('test/bench', /\.ts$/),
  ...filesIn('test/controlplane', /\.ts$/),
  ...filesIn('test/nodes', /^(?!.*\.test).*\.ts$/),
  ...filesIn('dashboards', /\.ts$/),
  ...filesIn('test/page', /\.ts$/),
  'esbuild.config.ts',
];

interface Exported {
  readonly name: string;
  readonly node: ts.Statement;
}

function exportsOf(path: string): Exported[] {
  const found: Exported[] = [];
  for (const node of parse(path).statements) {
    const modifiers = ts.canHaveModifiers(node) ? (ts.getModifiers(node) ?? []) : [];
    if (!modifiers.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) continue;
    if (ts.isVariableStatement(node)) {
      for (const { name } of node.declarationList.declarations) {
        found.push({ name: name.getText(), node });
      }
    } else if ('name' in node) {
      found.push({ name: (node.name as ts.Identifier).text, node });
    }
  }
  return found;
}

/** The names that a declaration shows to its users: all of a type, a function without its body. */
function shownBy(node: ts.Statement): Set<string> {
  const names = new Set<string>();
  const visit = (one: ts.Node): void => {
    if (ts.isBlock(one)) return;
    if (ts.isIdentifier(one)) names.add(one.text);
    ts.forEachChild(one, visit);
  };
  ts.forEachChild(node, visit);
  return names;
}

/** Whether a file contains more than types. */
const hasCode = (path: string): boolean =>
  parse(path).statements.some(
    (node) =>
      !ts.isImportDeclaration(node) &&
      !ts.isInterfaceDeclaration(node) &&
      !ts.isTypeAliasDeclaration(node),
  );

/** The files of src that a test imports or names, if the test is in the same folder below test. */
const testedBy = (path: string): string[] =>
  importsOf(path).flatMap(({ from }) =>
    path.endsWith('.test.ts') && dirname(from).replace(/^src/, 'test') === dirname(path)
      ? [from]
      : [],
  );

/** The exports of a file that tests of its folder import; the file must use them too. */
function testedParts(path: string): ReadonlySet<string> {
  const folder = dirname(path).replace(/^src/, 'test');
  const words = nodesOf(path)
    .filter(ts.isIdentifier)
    .map(({ text }) => text);
  const names = tests
    .filter((test) => test.endsWith('.test.ts') && dirname(test) === folder)
    .flatMap((test) => importsOf(test))
    .flatMap(({ from, names }) => (from === path ? (names ?? []) : []));
  return new Set(names.filter((name) => words.indexOf(name) !== words.lastIndexOf(name)));
}

/** Exports that no other file imports, and that no export in use shows in its type. */
function deadExports(): string[] {
  const used = new Map<string, Set<string> | null>();
  for (const path of [...sources, ...programs]) {
    for (const { from, isPackage, names } of importsOf(path)) {
      if (isPackage) continue;
      const known = used.get(from);
      if (names === null || known === null) used.set(from, null);
      else used.set(from, new Set([...(known ?? []), ...names]));
    }
  }
  return sources.flatMap((path) => {
    const names = used.get(path);
    if (names === null) return [];
    const exported = exportsOf(path);
    const live = new Set([...(names ?? []), ...testedParts(path)]);
    for (let size = -1; size !== live.size;) {
      size = live.size;
      for (const { name, node } of exported) {
        if (live.has(name)) for (const shown of shownBy(node)) live.add(shown);
      }
    }
    return exported.filter(({ name }) => !live.has(name)).map(({ name }) => `${path}: ${name}`);
  });
}

/** Names of parameters that say nothing about the value. */
const vagueNames = new Set(['of', 'one', 'own', 'there', 'so', 'more']);

describe('names', () => {
  test('an exported type has a name that no other file of src exports', () => {
    const types = sources.flatMap((path) =>
      exportsOf(path)
        .filter(({ node }) => ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node))
        .map(({ name }) => ({ name, path })),
    );
    const shared = [...Map.groupBy(types, ({ name }) => name)].filter(([, all]) => all.length > 1);
    expect(
      shared.map(([name, all]) => `${name}: ${all.map(({ path }) => path).join(', ')}`),
    ).toEqual([]);
  });

  test('a parameter of src has a name that says what it is', () => {
    const vague = sources.flatMap((path) =>
      nodesOf(path).filter((node) => ts.isParameter(node) && vagueNames.has(node.name.getText())),
    );
    expect(vague.map(placeOf)).toEqual([]);
  });
});

// Words.

const documents = [
  'README.md',
  'CHANGELOG.md',
  'package.json',
  '.npmrc',
  'package-lock.json',
].filter((path) => existsSync(join(root, path)));
const written = [
  ...sources,
  ...tests,
  ...documents,
  ...['docs', 'dashboards', 'alerts', 'helm', 'test'].flatMap((folder) =>
    filesIn(folder, /\.(md|ya?ml|txt|sh|tpl)$/),
  ),
];

function linesWith(words: RegExp, paths: readonly string[]): string[] {
  return paths.flatMap((path) =>
    read(path)
      .split('\n')
      .flatMap((line, index) => (words.test(line) ? [`${path}:${index + 1}`] : [])),
  );
}

/** The comments of a file, and the names of its tests. */
function proseOf(path: string): { readonly line: number; readonly text: string }[] {
  const file = parse(path);
  const text = file.text;
  const found: { line: number; text: string }[] = [];
  const lineAt = (position: number): number =>
    file.getLineAndCharacterOfPosition(position).line + 1;
  const seen = new Set<number>();
  const addComments = (ranges: readonly ts.CommentRange[] | undefined): void => {
    for (const { pos, end } of ranges ?? []) {
      if (seen.has(pos)) continue;
      seen.add(pos);
      found.push({ line: lineAt(pos), text: text.slice(pos, end) });
    }
  };
  for (const node of nodesOf(path)) {
    addComments(ts.getLeadingCommentRanges(text, node.pos));
    addComments(ts.getTrailingCommentRanges(text, node.end));
    addComments(ts.getLeadingCommentRanges(text, node.end));
    // A block without statements may contain a comment.
    if (ts.isBlock(node)) addComments(ts.getLeadingCommentRanges(text, node.getStart() + 1));
    if (!path.endsWith('.test.ts') || !ts.isCallExpression(node)) continue;
    const [name] = node.arguments;
    if (!/^(?:test|it|describe)\b/.test(node.expression.getText()) || name === undefined) continue;
    if (ts.isStringLiteralLike(name)) found.push({ line: lineAt(name.pos), text: name.text });
  }
  return found;
}

describe('words', () => {
  test('comments, test names and decision records are plain English', () => {
    const code = [...sources, ...tests].flatMap((path) =>
      proseOf(path).flatMap(({ line, text }) =>
        [...text.matchAll(bannedPattern)].map(([word]) => `${path}:${line} ${word}`),
      ),
    );
    const records = filesIn('docs/decisions', /\.md$/).flatMap((path) =>
      [...read(path).matchAll(bannedPattern)].map(([word]) => `${path} ${word}`),
    );
    expect([...code, ...records]).toEqual([]);
  });

  test('contain no mark of unfinished work', () => {
    // Put together, so that this line is none of them.
    const leftovers = new RegExp(`\\b(?:${['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X'].join('|')})\\b`);
    expect(linesWith(leftovers, written)).toEqual([]);
  });

  test('no test is left out, and none runs alone', () => {
    const partial = /\b(?:describe|it|test)(?:\.\w+)*\.(?:only|skip|todo)\b/;
    expect(linesWith(partial, tests)).toEqual([]);
  });

  test('no registry is named', () => {
    const host = /\bregistry\.(?!k8s\.io)[\w-]+\.\w+|^\s*registry\s*=|"resolved": *"http/;
    expect(linesWith(host, written)).toEqual([]);
  });

  test('the changelog has a place for what is new', () => {
    const lines = read('CHANGELOG.md').split('\n');
    expect(lines[0]).toBe('# Changelog');
    expect(lines).toContain('## Unreleased');
    const tags = /^- \[(?:CHANGE|DEPRECATED|FEATURE|ENHANCEMENT|BUGFIX|SECURITY)\] \S/;
    const items = lines.filter((line) => line.startsWith('-'));
    expect(items.filter((line) => !tags.test(line))).toEqual([]);
  });
});

test('no file names an address that the project does not have', () => {
  const folders = ['src', 'alerts', 'dashboards', 'docs', 'helm', 'release', '.github'];
  const names = folders.flatMap((folder) => filesIn(folder, /./));
  const roots = ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'action.yml', 'package.json'];
  const invented =
    /(?:github|gitlab|ghcr|quay|docker)\.[a-z]+\/endpoint-auditor|endpoint-auditor\.[a-z]+\/[a-z]/;
  const found = [...names, ...roots].filter((name) => {
    const text = read(name);
    return invented.test(text) || text.includes('uses: endpoint-auditor/');
  });
  expect(found).toEqual([]);
});

describe('README.md', () => {
  test('has the table of releases that release.ts renders to', async () => {
    const table = /^\| Kubernetes +\|[\s\S]*?\n(?=\n)/m;
    const want = await releasesTable();
    const path = join(root, 'README.md');
    if (process.env.UPDATE === '1') writeFileSync(path, read('README.md').replace(table, want));
    expect(table.exec(readFileSync(path, 'utf8'))?.[0]).toBe(want);
  });
});

describe('docs/findings.md', () => {
  test('is what the catalogue renders to', async () => {
    const path = join(root, 'docs/findings.md');
    const want = await findingsDocument();
    if (process.env.UPDATE === '1') writeFileSync(path, want);
    expect(readFileSync(path, 'utf8')).toBe(want);
  });

  test('has a section for every code and every cause', () => {
    const lines = new Set(read('docs/findings.md').split('\n'));
    const codes = Object.keys(catalogue).map((code) => `### ${code}`);
    const all = [...codes, ...Object.keys(causes).map((cause) => `### Cause: ${cause}`)];
    expect(all.filter((heading) => !lines.has(heading))).toEqual([]);
  });

  test('has an example of every code and every cause', () => {
    const [, ...sections] = read('docs/findings.md').split('\n### ');
    const without = sections.filter((section) => !section.includes('\n- Example: '));
    expect(without.map((section) => section.split('\n')[0])).toEqual([]);
  });
});
