// Compares the list of packages in dist/ with its content: the bundler says of each piece of the
// bundles from which file it is, and each package says itself which version it is.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { root } from './files.ts';

interface Package {
  readonly name: string;
  readonly version: string;
}

const nameOf = ({ name, version }: Package): string => `${name} ${version}`;

const parse = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));

/** Folders of packages that a bundle has pieces of; uPlot is in it as text, by its banner. */
function foldersIn(text: string): Set<string> {
  const pieces = text.matchAll(/^ *\/\/ (?:\S*?\/)??(node_modules\/\S+)$/gm);
  const folders = [...pieces].map(([, path = '']) =>
    path.replace(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+).*$/, '$1'),
  );
  if (text.includes('uPlot=function')) folders.push('node_modules/uplot');
  return new Set(folders);
}

/** In what dist/sbom.cdx.json is wrong; null: in nothing. */
export function sbomProblem(): string | null {
  const dist = join(root, 'dist');
  const bundles = readdirSync(dist).filter((name) => /\.[cm]js$/.test(name));
  const texts = bundles.map((name) => readFileSync(join(dist, name), 'utf8')).join('\n');
  const there = [...foldersIn(texts)].map((folder) =>
    nameOf(parse(join(root, folder, 'package.json')) as Package),
  );
  const { components } = parse(join(dist, 'sbom.cdx.json')) as {
    components: Package[];
  };
  const listed = components.map(nameOf);
  const problems = [
    ...there.filter((one) => !listed.includes(one)).map((one) => `${one} is not listed`),
    ...listed.filter((one) => !there.includes(one)).map((one) => `${one} is not there`),
    ...(there.length < 50 ? [`only ${there.length} packages are there`] : []),
  ];
  return problems.length === 0 ? null : problems.join('\n');
}
