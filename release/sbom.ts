// What is in a build, as CycloneDX: every package of which the bundler took something, with its
// dependencies among them. The lockfile has the version, licence and checksum of each. A release
// adds Node, and the images add their bases where the environment names them by digest
// (BUILD_IMAGE, BASE_IMAGE). The same content gives the same text, so there is no timestamp.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { Contrib, Enums, Models, Serialize, Spec, Validation } from '@cyclonedx/cyclonedx-library';

interface Locked {
  /** Where it is not that of the folder. */
  readonly name?: string;
  readonly version: string;
  readonly license?: string;
  readonly integrity?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const parseExpression = createRequire(import.meta.url)('spdx-expression-parse') as (
  text: string,
) => object;
const root = join(import.meta.dirname, '..');
const parse = (name: string): unknown => JSON.parse(readFileSync(join(root, name), 'utf8'));

/** The folder of the package of a file, as the lockfile names it; `null` if the file is ours. */
export function folderOf(path: string): string | null {
  const [, folder] = /(node_modules\/(?:.*node_modules\/)?(?:@[^/]+\/)?[^/]+)/.exec(path) ?? [];
  return folder ?? null;
}

const licences = new Contrib.License.Factories.LicenseFactory(parseExpression);

function componentOf(
  type: Enums.ComponentType,
  name: string,
  { version, license, integrity }: Locked,
): Models.Component {
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`;
  const component = new Models.Component(type, name, { version, purl, bomRef: purl });
  const [algorithm, hash = ''] = integrity?.split('-') ?? [];
  if (algorithm === 'sha512') {
    component.hashes.set(
      Enums.HashAlgorithm['SHA-512'],
      Buffer.from(hash, 'base64').toString('hex'),
    );
  }
  if (license !== undefined) component.licenses.add(licences.makeFromString(license));
  return component;
}

/** The folder of a dependency, as Node finds it from the folder of a package. */
function dependencyOf(
  folder: string,
  name: string,
  packages: Readonly<Record<string, Locked>>,
): string | null {
  const found = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`;
  if (packages[found] !== undefined) return found;
  if (folder === '') return null;
  const outer = folder.slice(0, Math.max(0, folder.lastIndexOf('/node_modules/')));
  return dependencyOf(outer, name, packages);
}

/** A base image by its reference with a digest: `debian:trixie-slim@sha256:...`. */
function imageOf(reference: string): Models.Component {
  const [, name, version, digest] =
    /^(.*?)(?::([^:@/]+))?@sha256:([0-9a-f]{64})$/.exec(reference) ?? [];
  if (name === undefined || digest === undefined) {
    throw new Error(`${reference}: Expected NAME:TAG@sha256:DIGEST`);
  }
  const bomRef = `image:${reference}`;
  const component = new Models.Component(Enums.ComponentType.Container, name, { bomRef });
  if (version !== undefined) component.version = version;
  component.hashes.set(Enums.HashAlgorithm['SHA-256'], digest);
  return component;
}

export interface SbomContent {
  /** Files that the bundler took something of. */
  readonly files: readonly string[];
  /** Node itself is in an executable. */
  readonly hasNode: boolean;
}

/** The list as text. Rejects with an Error if it does not match the schema of CycloneDX. */
export async function sbomOf({ files, hasNode }: SbomContent): Promise<string> {
  const { packages } = parse('package-lock.json') as { packages: Record<string, Locked> };
  const about = parse('package.json') as Locked & { readonly name: string };
  const program = componentOf(Enums.ComponentType.Application, about.name, about);
  const folders = new Set(files.map(folderOf).filter((folder) => folder !== null));
  const components = new Map<string, Models.Component>();
  for (const folder of folders) {
    const locked = packages[folder];
    if (locked === undefined) throw new Error(`${folder} is not in package-lock.json`);
    const name = locked.name ?? folder.replace(/^.*node_modules\//, '');
    components.set(folder, componentOf(Enums.ComponentType.Library, name, locked));
  }
  const link = (from: Models.Component, folder: string, { dependencies = {} }: Locked): void => {
    for (const name of Object.keys(dependencies)) {
      const found = components.get(dependencyOf(folder, name, packages) ?? '');
      if (found !== undefined) from.dependencies.add(found.bomRef);
    }
  };
  link(program, '', packages[''] ?? about);
  for (const [folder, component] of components) link(component, folder, packages[folder] ?? about);
  const bom = new Models.Bom({ metadata: new Models.Metadata({ component: program }) });
  // Two folders may have the same version.
  const unique = new Map([...components.values()].map((one) => [String(one.purl), one]));
  for (const component of unique.values()) bom.components.add(component);
  const node = packages['node_modules/node'];
  if (hasNode && node !== undefined) {
    const component = componentOf(Enums.ComponentType.Platform, 'node', node);
    bom.components.add(component);
    program.dependencies.add(component.bomRef);
  }
  for (const reference of [process.env.BUILD_IMAGE, process.env.BASE_IMAGE]) {
    if (reference?.includes('@') === true) bom.components.add(imageOf(reference));
  }
  return serialize(bom);
}

async function serialize(bom: Models.Bom): Promise<string> {
  const serializer = new Serialize.JsonSerializer(
    new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6),
  );
  const write = (): string => serializer.serialize(bom, { sortLists: true, space: 2 });
  const hash = createHash('sha256').update(write()).digest('hex');
  const [, a = '', b = '', c = '', d = ''] = /^(.{8})(.{4}).(.{3}).(.{15})/.exec(hash) ?? [];
  bom.serialNumber = `urn:uuid:${a}-${b}-4${c}-8${d.slice(0, 3)}-${d.slice(3)}`;
  const text = `${write()}\n`;
  const problems: unknown = await new Validation.JsonStrictValidator(
    Spec.Spec1dot6.version,
  ).validate(text);
  if (problems !== null) throw new Error(`SBOM: ${JSON.stringify(problems)}`);
  return text;
}
