// Bundles the program: one file that Node runs without node_modules, of which a command evaluates
// only the modules that it needs; what sends traces; the agent, and the program that reads the rules
// for it. What sends traces is a file of its own: its text alone would cost every command memory and
// time at the start. So are the agent and its reader, which are small on purpose.

import { copyFile, cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';

import type { BuildOptions, Metafile, Plugin } from 'esbuild';
import { build } from 'esbuild';

import { clientScript, style } from '../src/output/page/asset-texts.ts';
import { checkUnused, withoutUnused } from './unused.ts';

export const root = join(import.meta.dirname, '..');

/** The recording that the program replays by default. */
export const recording = join(root, 'test/recordings/shop.ndjson.gz');

/** The program imports what sends traces from the file beside it. */
const tracesBeside = (name: string): Plugin => ({
  name: 'traces-beside',
  setup(builds) {
    builds.onResolve({ filter: /\/otel\.ts$/ }, ({ kind }) =>
      kind === 'dynamic-import' ? { path: `./${name}`, external: true } : null,
    );
  },
});

/** Puts the texts themselves in the place of what reads them from files that are not there. */
const inlined: Plugin = {
  name: 'inlined',
  setup(bundle) {
    const texts = Object.entries({ clientScript, style });
    const lines = texts.map(([name, text]) => `export const ${name} = ${JSON.stringify(text)};`);
    bundle.onLoad({ filter: /\/output\/page\/asset-texts\.ts$/ }, () => ({
      contents: lines.join('\n'),
      loader: 'js',
    }));
  },
};

const common = {
  absWorkingDir: root,
  bundle: true,
  platform: 'node',
  target: 'node22',
  logLevel: 'warning',
  metafile: true,
} satisfies BuildOptions;

/** What an ES module starts with: bundled CommonJS packages call `require`. */
const requireShim = [
  "import { createRequire as __createRequire } from 'node:module';",
  'const require = __createRequire(import.meta.url);',
].join('\n');

const asCommonJs = {
  format: 'cjs',
  define: {
    'import.meta.filename': '__filename',
    'import.meta.dirname': '__dirname',
    'import.meta.url': '__url',
  },
  banner: { js: "const __url = require('node:url').pathToFileURL(__filename).href;" },
  // The program in an executable has no module loader (executable-main.ts).
  supported: { 'dynamic-import': false },
} satisfies BuildOptions;

/**
 * Writes the bundles to a folder; returns what esbuild says of them. The program and what sends
 * traces are ES modules (.mjs), or CommonJS (.cjs) for an executable; the others are CommonJS
 * (src/agent-main.ts says why).
 */
export async function writeBundles(folder: string, format: 'mjs' | 'cjs'): Promise<Metafile[]> {
  const entry = join(root, 'src/main.ts');
  // esbuild keeps the entry's own shebang above the banner; a second one would be a syntax error.
  const hasShebang = (await readFile(entry, 'utf8')).startsWith('#!');
  const shebang = hasShebang ? '' : '#!/usr/bin/env node\n';
  const esm = { format: 'esm', banner: { js: requireShim } } as const;
  const kind: Pick<BuildOptions, 'format' | 'define' | 'banner' | 'supported'> =
    format === 'mjs' ? esm : asCommonJs;
  const unused = new Set<string>();
  const leaveOut = withoutUnused(unused);
  const traces = `traces.${format}`;
  const whole = await build({
    ...common,
    ...kind,
    entryPoints: [entry],
    outfile: join(folder, `endpoint-auditor.${format}`),
    plugins: [tracesBeside(traces), inlined, leaveOut],
    ...(format === 'mjs' ? { banner: { js: `${shebang}${requireShim}` } } : {}),
  });
  // A renamed file must not bring the SDK back in unnoticed.
  const inside = Object.keys(whole.metafile.inputs).find((path) =>
    path.includes('opentelemetry/sdk-'),
  );
  if (inside !== undefined) throw new Error(`The program: Expected ${inside} to be in ${traces}`);
  const beside = await build({
    ...common,
    ...kind,
    entryPoints: [join(root, 'src/output/traces/otel.ts')],
    outfile: join(folder, traces),
    plugins: [leaveOut],
  });
  checkUnused(unused);
  const small: Metafile[] = [];
  for (const [name, source] of [
    ['agent', 'src/agent-main.ts'],
    ['reading', 'src/agent/rules-reader.ts'],
  ] as const) {
    const outfile = join(folder, `${name}.cjs`);
    const built = await build({
      ...common,
      ...asCommonJs,
      entryPoints: [join(root, source)],
      outfile,
      plugins: [leaveOut],
    });
    small.push(built.metafile);
  }
  return [whole.metafile, beside.metafile, ...small];
}

/** Copies what the server shows at /docs to `folder`: README.md, and docs/ without the decisions. */
export async function copyDocuments(folder: string): Promise<void> {
  const from = join(root, 'docs');
  const filter = (path: string): boolean => !path.endsWith('/decisions');
  await cp(from, folder, { recursive: true, filter });
  await copyFile(join(root, 'README.md'), join(folder, 'README.md'));
}

/** Bytes in the bundles by the path of the file that they are from. */
export function bytesByFile(metafiles: readonly Metafile[]): Map<string, number> {
  const bytesOf = new Map<string, number>();
  const outputs = metafiles.flatMap(({ outputs }) => Object.values(outputs));
  for (const [path, { bytesInOutput }] of outputs.flatMap(({ inputs }) => Object.entries(inputs))) {
    if (bytesInOutput > 0) bytesOf.set(path, (bytesOf.get(path) ?? 0) + bytesInOutput);
  }
  return bytesOf;
}
