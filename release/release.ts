// Builds everything that a release publishes: `npm run -s release`. Two builds of one commit have the
// same bytes. The files are in artifacts/:
//
//   endpoint-auditor-npm-VERSION.tgz          the package for npm: bundles, no dependencies
//   endpoint-auditor-VERSION-linux-ARCH.tar.gz  the executable
//   endpoint-auditor-VERSION.tgz              the Helm chart
//   audit-endpoints.yaml                      the manifest for Krew
//   endpoint-auditor-VERSION.cdx.json         the SBOM
//   SHA256SUMS                                the checksums of the files above
//
// The manifest contains the address of the folder with the archives. RELEASE_ADDRESS is that
// address; the word itself is in the manifest if the variable is not set.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFileSync, cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { writeArchive } from './archive.ts';
import { bytesByFile, root, writeBundles } from './bundles.ts';
import { executableContent, writeExecutable } from './executable.ts';
import { krewManifest } from './krew.ts';
import { type Architecture, architectures } from './node.ts';
import { sbomOf } from './sbom.ts';

interface PackageFile {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly homepage?: string;
  readonly [field: string]: unknown;
}

const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const artifacts = join(root, 'artifacts');
const stage = join(artifacts, 'stage');

const about = JSON.parse(read('package.json')) as PackageFile;
const { version } = about;

/** The package has what dist/ has, and nothing to install or to run besides. */
function writePackage(): string {
  const folder = join(stage, 'package');
  mkdirSync(folder, { recursive: true });
  cpSync(join(root, 'dist'), join(folder, 'dist'), { recursive: true });
  for (const name of ['README.md', 'CHANGELOG.md', 'LICENSE']) {
    cpSync(join(root, name), join(folder, name));
  }
  const left = ['scripts', 'dependencies', 'devDependencies', 'allowScripts', 'overrides'];
  const kept = Object.entries(about).filter(([field]) => !left.includes(field));
  writeFileSync(
    join(folder, 'package.json'),
    `${JSON.stringify(Object.fromEntries(kept), null, 2)}\n`,
  );
  const options = ['--silent', '--offline', '--pack-destination', stage];
  const packed = execFileSync('npm', ['pack', folder, ...options], { encoding: 'utf8' });
  const name = `endpoint-auditor-npm-${version}.tgz`;
  renameSync(join(stage, packed.trim()), join(artifacts, name));
  return name;
}

async function writeExecutables(): Promise<Record<Architecture, string>> {
  const names: Partial<Record<Architecture, string>> = {};
  const content = await executableContent(join(stage, 'content'));
  for (const architecture of architectures) {
    const folder = join(stage, architecture);
    mkdirSync(folder, { recursive: true });
    await writeExecutable(architecture, content, join(folder, 'endpoint-auditor'));
    cpSync(join(root, 'LICENSE'), join(folder, 'LICENSE'));
    const name = `endpoint-auditor-${version}-linux-${architecture}.tar.gz`;
    writeArchive(join(artifacts, name), folder, ['LICENSE', 'endpoint-auditor']);
    names[architecture] = name;
  }
  return names as Record<Architecture, string>;
}

/** Of the files that Git has, so that a file of an editor is not in the chart; with the homepage. */
function writeChart(): void {
  const folder = 'helm/endpoint-auditor';
  const names = execFileSync('git', ['ls-files', folder], { cwd: root, encoding: 'utf8' });
  for (const name of names.trim().split('\n')) {
    if (name.startsWith(`${folder}/ci/`)) continue;
    cpSync(join(root, name), join(stage, 'chart', name.slice('helm/'.length)));
  }
  const home = about.homepage === undefined ? '' : `home: ${about.homepage}\n`;
  appendFileSync(join(stage, 'chart/endpoint-auditor/Chart.yaml'), home);
  const archive = join(artifacts, `endpoint-auditor-${version}.tgz`);
  writeArchive(archive, join(stage, 'chart'), ['endpoint-auditor']);
}

rmSync(artifacts, { recursive: true, force: true });
mkdirSync(stage, { recursive: true });
execFileSync(process.execPath, ['esbuild.config.ts'], { cwd: root, stdio: 'inherit' });
const npm = writePackage();
const executables = await writeExecutables();
writeChart();
const files = [...bytesByFile(await writeBundles(join(stage, 'bundles'), 'cjs')).keys()];
writeFileSync(
  join(artifacts, `endpoint-auditor-${version}.cdx.json`),
  await sbomOf({ files, hasNode: true }),
);
const archive = (name: string) => ({ name, content: readFileSync(join(artifacts, name)) });
writeFileSync(
  join(artifacts, 'audit-endpoints.yaml'),
  krewManifest(
    {
      ...about,
      address: process.env.RELEASE_ADDRESS ?? 'RELEASE_ADDRESS',
    },
    { x64: archive(executables.x64), arm64: archive(executables.arm64), npm: archive(npm) },
  ),
);
rmSync(stage, { recursive: true });
const sums = readdirSync(artifacts)
  .sort()
  .map((name) => `${createHash('sha256').update(archive(name).content).digest('hex')}  ${name}\n`);
writeFileSync(join(artifacts, 'SHA256SUMS'), sums.join(''));
process.stdout.write(sums.join(''));
