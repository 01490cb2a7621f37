// Builds dist/: the bundles of the program (release/bundles.ts), the recording that it replays by
// default, the documentation in docs/, and sbom.cdx.json, which lists the packages of which something
// is in the bundles.
// --sizes prints the bytes of each package in them.

import { chmod, copyFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';

import { bytesByFile, copyDocuments, recording, root, writeBundles } from './release/bundles.ts';
import { folderOf, sbomOf } from './release/sbom.ts';

const dist = join(root, 'dist');
await rm(dist, { recursive: true, force: true });
const bytesOf = bytesByFile(await writeBundles(dist, 'mjs'));
await chmod(join(dist, 'endpoint-auditor.mjs'), 0o755);
await copyFile(recording, join(dist, basename(recording)));
await copyDocuments(join(dist, 'docs'));
const files = [...bytesOf.keys()];
await writeFile(join(dist, 'sbom.cdx.json'), await sbomOf({ files, hasNode: false }));

if (process.argv.includes('--sizes')) {
  const sizes = new Map<string, number>();
  for (const [path, bytes] of bytesOf) {
    const folder = folderOf(path) ?? 'src';
    sizes.set(folder, (sizes.get(folder) ?? 0) + bytes);
  }
  const rows = [...sizes].sort(([, a], [, b]) => b - a);
  for (const [folder, bytes] of rows) console.log(`${String(bytes).padStart(9)} ${folder}`);
}
