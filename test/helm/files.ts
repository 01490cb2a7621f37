// Where the chart is, and its parts as other tests need them.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { parse, parseAllDocuments } from 'yaml';

export const root = join(import.meta.dirname, '../..');
export const chart = join(root, 'helm/endpoint-auditor');
export const golden = join(import.meta.dirname, 'golden');

/** Names of the examples, such as `kubeadm`; each is `ci/NAME-values.yaml`. */
export const examples = readdirSync(join(chart, 'ci'))
  .filter((name) => name.endsWith('-values.yaml'))
  .map((name) => name.replace('-values.yaml', ''));

export const valuesOf = (example: string): string => join(chart, `ci/${example}-values.yaml`);

export const goldenOf = (example: string): string => join(golden, `${example}.yaml`);

/** An object of Kubernetes; the fields that are looked at are as the chart writes them. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** The objects of a file with several documents; those without content are left out. */
export function manifestsOf(text: string): Manifest[] {
  return parseAllDocuments(text)
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null);
}

export const readYaml = (path: string): unknown => parse(readFileSync(path, 'utf8'));

/**
 * Values that the schema takes, those that it does not, and those that it takes and a template
 * refuses: the file, and what Helm must say.
 */
export function fixturesOf(
  kind: 'valid' | 'invalid' | 'refused',
): { path: string; expected: string[] }[] {
  const folder = join(import.meta.dirname, 'schema', kind);
  const names = readdirSync(folder).filter((name) => name.endsWith('.yaml'));
  return names.map((name) => {
    const path = join(folder, name);
    if (kind === 'valid') return { path, expected: [] };
    const text = readFileSync(path.replace('.yaml', '.expect.txt'), 'utf8');
    return { path, expected: text.trim().split('\n') };
  });
}
