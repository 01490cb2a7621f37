// The first program of a single-file executable: it runs one of the bundles, which are its assets.
// Nothing is written to disk. An asset has a path below that of the executable, as if that were a
// folder; a process that starts another program of the executable passes this path as the first
// argument, as it would pass a file to Node.

import { createRequire } from 'node:module';
import { basename, dirname } from 'node:path';
import { getAsset } from 'node:sea';
import { compileFunction } from 'node:vm';

const requireBuiltin = createRequire(process.execPath);
const loaded = new Map<string, { exports: object }>();

/** The exports of an asset, which is evaluated once. */
function load(name: string): object {
  const known = loaded.get(name);
  if (known !== undefined) return known.exports;
  const module = { exports: {} };
  loaded.set(name, module);
  const filename = `${process.execPath}/${name}`;
  const parameters = ['exports', 'require', 'module', '__filename', '__dirname'];
  const run = compileFunction(getAsset(name, 'utf8'), parameters, { filename }) as (
    ...values: unknown[]
  ) => void;
  run(module.exports, requireAsset, module, filename, process.execPath);
  return module.exports;
}

const requireAsset = (id: string): unknown =>
  id.startsWith('./') ? load(id.slice(2)) : requireBuiltin(id);

const [, , first = ''] = process.argv;
if (dirname(first) === process.execPath) {
  process.argv.splice(1, 1);
  load(basename(first));
} else {
  // The name of the link by which kubectl started the executable.
  process.argv[1] = process.argv0;
  load('endpoint-auditor.cjs');
}
