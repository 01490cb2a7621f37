// Makes single-file executables (Single Executable Applications of Node): Node with the bundles, the
// recording and the documentation as assets.

import { execFileSync } from 'node:child_process';
import { chmod, copyFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, join, relative } from 'node:path';

import { build } from 'esbuild';

import { copyDocuments, recording, root, writeBundles } from './bundles.ts';
import { type Architecture, nodeFor } from './node.ts';

const { inject } = createRequire(import.meta.url)('postject') as {
  readonly inject: (
    path: string,
    resource: string,
    content: Buffer,
    options: { sentinelFuse: string },
  ) => Promise<void>;
};

/** As Node documents it. */
const resource = 'NODE_SEA_BLOB';
const sentinelFuse = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';

/** The flags of V8 in the first line of src/main.ts. */
export async function nodeFlags(): Promise<string[]> {
  const [line = ''] = (await readFile(join(root, 'src/main.ts'), 'utf8')).split('\n');
  return line.split(' ').filter((word) => word.startsWith('--'));
}

/** Writes the content that all executables get to `folder`, and returns it. */
export async function executableContent(folder: string): Promise<Buffer> {
  await writeBundles(folder, 'cjs');
  await build({
    entryPoints: [join(root, 'release/executable-main.ts')],
    outfile: join(folder, 'main.cjs'),
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node24',
    logLevel: 'warning',
  });
  const name = basename(recording);
  await copyFile(recording, join(folder, name));
  await copyDocuments(join(folder, 'docs'));
  const entries = await readdir(join(folder, 'docs'), { recursive: true, withFileTypes: true });
  const documents = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .sort();
  const bundles = ['endpoint-auditor.cjs', 'traces.cjs', 'agent.cjs', 'reading.cjs'];
  const assets = [...bundles, name, ...documents];
  // Names without folders: Node writes that of the main program into the content.
  const configuration = {
    main: 'main.cjs',
    output: 'content.blob',
    disableExperimentalSEAWarning: true,
    execArgv: await nodeFlags(),
    execArgvExtension: 'cli',
    assets: Object.fromEntries(assets.map((asset) => [asset, asset])) as object,
  };
  await writeFile(join(folder, 'sea.json'), JSON.stringify(configuration));
  execFileSync(process.execPath, ['--experimental-sea-config', 'sea.json'], {
    cwd: folder,
    stdio: 'pipe',
  });
  return readFile(join(folder, 'content.blob'));
}

/** Writes the executable for Linux to `path`. */
export async function writeExecutable(
  architecture: Architecture,
  content: Buffer,
  path: string,
): Promise<void> {
  await copyFile(nodeFor(architecture), path);
  await inject(path, resource, content, { sentinelFuse });
  await chmod(path, 0o755);
}
