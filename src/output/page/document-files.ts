// The files of the documentation: README.md, docs/*.md and docs/images. They are in the sources, in
// docs/ beside the bundle, or in the executable (release/executable.ts).

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
// Not by names: Node 22 does not have all of them.
import sea from 'node:sea';
import { fileURLToPath } from 'node:url';

const inExecutable = 'docs/';

const isInstalled = (name: string): boolean =>
  /^[\w-]+\.md$|^images\/[\w-]+\.(?:png|webp)$/.test(name);

type Files = ReadonlyMap<string, () => Buffer>;

function embeddedFiles(): Files {
  const keys = sea.getAssetKeys().filter((key) => key.startsWith(inExecutable));
  return new Map(
    keys.map((key) => [key.slice(inExecutable.length), () => Buffer.from(sea.getRawAsset(key))]),
  );
}

function filesIn(folder: string): Files {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(isInstalled);
  const files = new Map(names.map((name) => [name, () => readFileSync(join(folder, name))]));
  // In the sources, README.md is above docs/.
  const readme = 'README.md';
  if (!files.has(readme)) files.set(readme, () => readFileSync(join(folder, '..', readme)));
  return files;
}

function findFiles(): Files {
  if (sea.isSea()) return embeddedFiles();
  const paths = ['./docs/', '../../../docs/'];
  const folders = paths.map((path) => fileURLToPath(new URL(path, import.meta.url)));
  const folder = folders.find((path) => existsSync(join(path, 'runbook.md')));
  return folder === undefined ? new Map() : filesIn(folder);
}

const files = findFiles();

/** Names as below docs/: `runbook.md`, `images/journey.png`. */
export const documentNames: readonly string[] = [...files.keys()].sort();

/** The content of a file; `null` if there is none of that name. */
export const readDocumentFile = (name: string): Buffer | null => files.get(name)?.() ?? null;
