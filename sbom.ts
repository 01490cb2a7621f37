// What is in dist/, as CycloneDX: every package of which the bundler took something, and no other.
// The lockfile says of each which version it is, under which licence, and what its archive hashes
// to. Left out: Node and what the images have from their bases, which have lists of their own.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Locked {
  /** Where it is not that of the folder. */
  readonly name?: string;
  readonly version: string;
  readonly license?: string;
  readonly integrity?: string;
}

const parse = (name: string): unknown =>
  JSON.parse(readFileSync(join(import.meta.dirname, name), 'utf8'));

/** The folder of the package that a file belongs to, as the lockfile names it; null: it is ours. */
function folderOf(path: string): string | null {
  const [, folder] = /(node_modules\/(?:.*node_modules\/)?(?:@[^/]+\/)?[^/]+)/.exec(path) ?? [];
  return folder ?? null;
}

const purlOf = (name: string, version: string): string =>
  `pkg:npm/${name.replace('@', '%40')}@${version}`;

function componentOf(name: string, { version, license, integrity }: Locked) {
  const purl = purlOf(name, version);
  const [algorithm, hash = ''] = integrity?.split('-') ?? [];
  const content = Buffer.from(hash, 'base64').toString('hex');
  const isExpression = /[ (]/.test(license ?? '');
  return {
    type: 'library',
    'bom-ref': purl,
    name,
    version,
    purl,
    ...(algorithm === 'sha512' ? { hashes: [{ alg: 'SHA-512', content }] } : {}),
    ...(license === undefined
      ? {}
      : { licenses: [isExpression ? { expression: license } : { license: { id: license } }] }),
  };
}

/** The list, as text; `files`: those that the bundler took something of. The same of the same. */
export function sbomOf(files: readonly string[]): string {
  const { packages } = parse('package-lock.json') as { packages: Record<string, Locked> };
  const about = parse('package.json') as Locked & { readonly name: string };
  const folders = new Set(files.map(folderOf).filter((folder) => folder !== null));
  const components = [...folders].map((folder) => {
    const locked = packages[folder];
    if (locked === undefined) throw new Error(`${folder} is not in package-lock.json`);
    return componentOf(locked.name ?? folder.replace(/^.*node_modules\//, ''), locked);
  });
  const unique = new Map(components.map((component) => [component.purl, component]));
  const sbom = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: { component: { ...componentOf(about.name, about), type: 'application' } },
    components: [...unique.values()].sort((a, b) => (a.purl < b.purl ? -1 : 1)),
  };
  return `${JSON.stringify(sbom, null, 2)}\n`;
}
