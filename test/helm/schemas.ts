// JSON schemas with which kubeconform validates manifests without a network: of Kubernetes from the
// OpenAPI document in the module of Kubernetes itself, of the Prometheus Operator and cert-manager
// from the CRDs in their modules. A field that a schema does not know is an error.

import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { goProgram } from '../processes.ts';
import type { Manifest } from './files.ts';
import { manifestsOf } from './files.ts';

const modules = {
  kubernetes: 'k8s.io/kubernetes@v1.36.3',
  'prometheus-operator': 'github.com/prometheus-operator/prometheus-operator@v0.85.0',
  'cert-manager': 'github.com/cert-manager/cert-manager@v1.21.2',
} as const;

/** Where Go keeps the sources of the module; it fetches them where they are not there yet. */
function sourcesOf(name: keyof typeof modules): string {
  const json = execFileSync(goProgram(), ['mod', 'download', '-json', modules[name]], {
    encoding: 'utf8',
  });
  return (JSON.parse(json) as { Dir: string }).Dir;
}

const crdFolders = [
  ['prometheus-operator', 'example/prometheus-operator-crd'],
  ['cert-manager', 'deploy/crds'],
] as const;

/** The CRDs of the kinds that the chart makes. */
export function crds(): Manifest[] {
  const wanted = /(podmonitors|servicemonitors|prometheusrules|certificates|\.io_issuers)\.yaml$/;
  return crdFolders.flatMap(([name, folder]) => {
    const path = join(sourcesOf(name), folder);
    const files = readdirSync(path).filter((file) => wanted.test(file));
    return files.flatMap((file) => manifestsOf(readFileSync(join(path, file), 'utf8')));
  });
}

type Schema = Record<string, unknown>;

const isSchema = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Where a value is a number or a string, OpenAPI only says string. */
const either = { anyOf: [{ type: 'string' }, { type: 'number' }] };
const flexible = new Set([
  'io.k8s.apimachinery.pkg.util.intstr.IntOrString',
  'io.k8s.apimachinery.pkg.api.resource.Quantity',
]);

/** The same, with every object closed that names its fields; maps stay open. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (!isSchema(value)) return value;
  const parts = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, closed(part)]));
  const isOpen =
    'additionalProperties' in value || value['x-kubernetes-preserve-unknown-fields'] === true;
  return isSchema(value.properties) && !isOpen ? { ...parts, additionalProperties: false } : parts;
}

/** The definitions that a schema refers to, those that they refer to, and so on. */
function definitionsOf(all: Schema, name: string, found: Schema = {}): Schema {
  if (name in found) return found;
  found[name] = flexible.has(name) ? either : closed(all[name]);
  const text = JSON.stringify(found[name]);
  for (const [, other = ''] of text.matchAll(/"#\/definitions\/([^"]+)"/g)) {
    definitionsOf(all, other, found);
  }
  return found;
}

interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

/** Writes the schemas of these kinds into a folder; returns the arguments for kubeconform. */
export function writeSchemas(folder: string, manifests: readonly Manifest[]): string {
  mkdirSync(folder, { recursive: true });
  const write = ({ group, version, kind }: Kind, schema: unknown): void => {
    // Of the core group kubeconform takes the version for the group.
    const name = `${group === '' ? version : group}_${version}_${kind.toLowerCase()}.json`;
    writeFileSync(join(folder, name), JSON.stringify(schema));
  };
  const swagger = join(sourcesOf('kubernetes'), 'api/openapi-spec/swagger.json');
  const { definitions } = JSON.parse(readFileSync(swagger, 'utf8')) as { definitions: Schema };
  const kinds = new Set(manifests.map(({ kind }) => kind));
  for (const [name, definition] of Object.entries(definitions)) {
    const known = (definition as Schema)['x-kubernetes-group-version-kind'] as Kind[] | undefined;
    for (const one of known ?? []) {
      if (!kinds.has(one.kind)) continue;
      const parts = definitionsOf(definitions, name);
      write(one, { $ref: `#/definitions/${name}`, definitions: parts });
    }
  }
  for (const { spec } of crds()) {
    const { group, names, versions } = spec as {
      group: string;
      names: { kind: string };
      versions: { name: string; schema: { openAPIV3Schema: unknown } }[];
    };
    for (const { name, schema } of versions) {
      write({ group, version: name, kind: names.kind }, closed(schema.openAPIV3Schema));
    }
  }
  return join(folder, '{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json');
}
