// Every runtime dependency has a row in the table of decision 0030, with the release that the
// lockfile installs.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '..');
const textOf = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Lockfile {
  readonly packages: Readonly<Record<string, { readonly version?: string }>>;
}

test('the decision on runtime dependencies has each with its release', () => {
  const { dependencies } = JSON.parse(textOf('package.json')) as { dependencies: object };
  const { packages } = JSON.parse(textOf('package-lock.json')) as Lockfile;
  const decision = textOf('docs/decisions/0030-every-runtime-dependency-has-a-reason.md');
  const rows = [...decision.matchAll(/^\| (.*?) *\|.*\| ([\w.]+), \d{4}-\d\d *\|$/gm)];
  const releases = new Map(
    rows.flatMap(([, names = '', release = '']) =>
      [...names.matchAll(/[\w@/-]+/g)].map(([name]) => [name, release] as const),
    ),
  );
  const listed = (name: string) =>
    releases.get(name) ?? releases.get(name.replace('@opentelemetry/', ''));
  const wanted = Object.keys(dependencies).map((name) => [
    name,
    packages[`node_modules/${name}`]?.version,
  ]);
  expect(Object.keys(dependencies).map((name) => [name, listed(name)])).toEqual(wanted);
});
