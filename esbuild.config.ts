// Builds dist/: the program in one file, which Node runs without node_modules and of which a command
// evaluates only the modules that it needs, and the recording that it replays by default.

import { chmod, copyFile, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';

import { build } from 'esbuild';

const root = import.meta.dirname;
const entry = join(root, 'src/main.ts');
const program = join(root, 'dist/endpoint-auditor.mjs');
const recording = 'shop.ndjson.gz';

/** What the bundle starts with, after a shebang line: bundled CommonJS packages call `require`. */
const requireShim = [
  "import { createRequire as __createRequire } from 'node:module';",
  'const require = __createRequire(import.meta.url);',
].join('\n');

await rm(join(root, 'dist'), { recursive: true, force: true });

// esbuild keeps the entry's own shebang above the banner; a second one would be a syntax error.
const hasShebang = (await readFile(entry, 'utf8')).startsWith('#!');
await build({
  absWorkingDir: root,
  entryPoints: [entry],
  outfile: program,
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  banner: { js: hasShebang ? requireShim : `#!/usr/bin/env node\n${requireShim}` },
  logLevel: 'info',
});
await chmod(program, 0o755);

await copyFile(join(root, 'test/recordings', recording), join(root, 'dist', recording));
