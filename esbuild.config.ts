// Builds dist/: the program in one file, which Node runs without node_modules and of which a
// command evaluates only the modules that it needs, the recording that it replays by default, and
// sbom.cdx.json, which lists the packages of which something is in it.
// What sends traces is a file beside it: within the program, its text alone would cost everybody
// 5 MiB and a tenth of the start. So are the agent of a node, which is small on purpose, and the
// program that reads the rules for it.

import { chmod, copyFile, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import type { BuildOptions, Metafile, Plugin } from 'esbuild';
import { build } from 'esbuild';

import { sbomOf } from './sbom.ts';
import { clientScript, style, uplotScript } from './src/output/page/asset-texts.ts';

const root = import.meta.dirname;
const entry = join(root, 'src/main.ts');
const program = join(root, 'dist/endpoint-auditor.mjs');
const recording = 'shop.ndjson.gz';
const traces = 'traces.mjs';

/** The program imports what sends traces from the file beside it. */
const tracesBeside: Plugin = {
  name: 'traces-beside',
  setup(builds) {
    builds.onResolve({ filter: /\/otel\.ts$/ }, ({ kind }) =>
      kind === 'dynamic-import' ? { path: `./${traces}`, external: true } : null,
    );
  },
};

/** What the bundle starts with, after a shebang line: bundled CommonJS packages call `require`. */
const requireShim = [
  "import { createRequire as __createRequire } from 'node:module';",
  'const require = __createRequire(import.meta.url);',
].join('\n');

/** What is inlined, which the bundler does not know of. */
const inlinedPackage = 'node_modules/uplot';

/** Puts the texts themselves in the place of what reads them from files that are not there. */
const inlined: Plugin = {
  name: 'inlined',
  setup(bundle) {
    const texts = Object.entries({ clientScript, style, uplotScript });
    const lines = texts.map(([name, text]) => `export const ${name} = ${JSON.stringify(text)};`);
    bundle.onLoad({ filter: /\/output\/page\/asset-texts\.ts$/ }, () => ({
      contents: lines.join('\n'),
      loader: 'js',
    }));
  },
};

await rm(join(root, 'dist'), { recursive: true, force: true });

// esbuild keeps the entry's own shebang above the banner; a second one would be a syntax error.
const hasShebang = (await readFile(entry, 'utf8')).startsWith('#!');
const common = {
  absWorkingDir: root,
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node22',
  logLevel: 'info',
  metafile: true,
} satisfies BuildOptions;
const whole = await build({
  ...common,
  entryPoints: [entry],
  outfile: program,
  plugins: [tracesBeside, inlined],
  banner: { js: hasShebang ? requireShim : `#!/usr/bin/env node\n${requireShim}` },
});
// A renamed file must not bring the SDK back in unnoticed.
const inside = Object.keys(whole.metafile.inputs).find((path) =>
  path.includes('opentelemetry/sdk-'),
);
if (inside !== undefined) throw new Error(`${program}: Expected ${inside} to be in ${traces}`);
const beside = await build({
  ...common,
  entryPoints: [join(root, 'src/output/traces/otel.ts')],
  outfile: join(root, 'dist', traces),
  banner: { js: requireShim },
});
// As CommonJS: src/agent-main.ts says why.
const small: Metafile[] = [];
const place = { 'import.meta.filename': '__filename', 'import.meta.dirname': '__dirname' };
for (const [name, source] of [
  ['agent', 'src/agent-main.ts'],
  ['reading', 'src/agent/rules-reader.ts'],
] as const) {
  const built = await build({
    ...common,
    format: 'cjs',
    define: place,
    entryPoints: [join(root, source)],
    outfile: join(root, 'dist', `${name}.cjs`),
  });
  small.push(built.metafile);
}
await chmod(program, 0o755);

await copyFile(join(root, 'test/recordings', recording), join(root, 'dist', recording));

/** Files of which something is in what was built. */
const taken = ({ outputs }: Metafile): string[] =>
  Object.values(outputs).flatMap(({ inputs }) =>
    Object.entries(inputs)
      .filter(([, { bytesInOutput }]) => bytesInOutput > 0)
      .map(([path]) => path),
  );
const files = [inlinedPackage, ...[whole.metafile, beside.metafile, ...small].flatMap(taken)];
await writeFile(join(root, 'dist/sbom.cdx.json'), sbomOf(files));
