import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';
import { parse } from 'yaml';

import about from '../package.json' with { type: 'json' };
import { krewManifest } from '../release/krew.ts';

const archiveOf = (name: string) => ({ name, content: Buffer.from(name) });
const sumOf = (name: string) => createHash('sha256').update(name).digest('hex');

test('the manifest names the archive of each platform, its checksum and the program in it', () => {
  const archives = {
    x64: archiveOf('x64.tar.gz'),
    arm64: archiveOf('arm64.tar.gz'),
    npm: archiveOf('npm.tgz'),
  };
  const address = 'https://example.org/v1';
  const manifest: unknown = parse(krewManifest({ ...about, address }, archives));
  const platform = (matchLabels: object, name: string, bin: string) => ({
    selector: { matchLabels },
    uri: `${address}/${name}`,
    sha256: sumOf(name),
    bin,
  });
  expect(manifest).toMatchObject({
    kind: 'Plugin',
    metadata: { name: 'audit-endpoints' },
    spec: {
      version: `v${about.version}`,
      platforms: [
        platform({ os: 'linux', arch: 'amd64' }, 'x64.tar.gz', 'endpoint-auditor'),
        platform({ os: 'linux', arch: 'arm64' }, 'arm64.tar.gz', 'endpoint-auditor'),
        platform({ os: 'darwin' }, 'npm.tgz', 'endpoint-auditor.mjs'),
      ],
    },
  });
});

test('the manifest has the homepage of package.json, if there is one', () => {
  const archives = { x64: archiveOf('x64'), arm64: archiveOf('arm64'), npm: archiveOf('npm') };
  const release = { version: '1.0.0', description: 'Any', address: 'https://example.org' };
  const specOf = (more: { homepage?: string }): unknown =>
    (parse(krewManifest({ ...release, ...more }, archives)) as { spec: object }).spec;
  const homepage = 'https://example.org/home';
  expect(specOf({ homepage })).toMatchObject({ homepage });
  expect(specOf({})).not.toHaveProperty('homepage');
});

test('the package has the names by which kubectl looks for a plugin and its completion', () => {
  expect(about.bin['kubectl-audit_endpoints']).toBe(about.bin['endpoint-auditor']);
  expect(about.bin['kubectl_complete-audit_endpoints']).toBe(about.bin['endpoint-auditor']);
});

test('the chart names the images of this version', () => {
  const text = readFileSync(
    new URL('../helm/endpoint-auditor/Chart.yaml', import.meta.url),
    'utf8',
  );
  const images = [...text.matchAll(/ image: [\w-]+:v(?<version>\S+)/g)];
  expect(images.map(({ groups }) => groups?.version)).toEqual([about.version, about.version]);
});
