import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';
import { parse } from 'yaml';

import { krewManifest } from '../krew/manifest.ts';
import about from '../package.json' with { type: 'json' };

test('the manifest names the release, its archive and the program in it', () => {
  const archive = Buffer.from('archive');
  const manifest: unknown = parse(krewManifest(about, 'https://example.org/a.tgz', archive));
  expect(manifest).toMatchObject({
    kind: 'Plugin',
    metadata: { name: 'audit-endpoints' },
    spec: {
      version: `v${about.version}`,
      platforms: [
        {
          uri: 'https://example.org/a.tgz',
          sha256: createHash('sha256').update(archive).digest('hex'),
          bin: 'endpoint-auditor.mjs',
        },
      ],
    },
  });
});

test('the package has the names by which kubectl looks for a plugin and its completion', () => {
  expect(about.bin['kubectl-audit_endpoints']).toBe(about.bin['endpoint-auditor']);
  expect(about.bin['kubectl_complete-audit_endpoints']).toBe(about.bin['endpoint-auditor']);
});

test.each([[], ['https://example.org/a.tgz'], ['https://example.org/a.tgz', '/nowhere/a.tgz']])(
  'with %j it says what it needs',
  (...args) => {
    const script = fileURLToPath(new URL('../krew/manifest.ts', import.meta.url));
    const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args]);
    expect([status, String(stdout)]).toEqual([2, '']);
    expect(String(stderr)).toMatch(/^Usage: npm run -s krew -- URI ARCHIVE\n/);
  },
);
