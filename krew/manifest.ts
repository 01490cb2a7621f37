// The manifest by which Krew installs the kubectl plugin, for one release: `npm run -s krew -- URI
// ARCHIVE` prints it. ARCHIVE is what `npm pack` made, URI where it can be had. Krew links the file
// that `bin` names as kubectl-audit_endpoints, by which the program knows that kubectl calls it.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { stringify } from 'yaml';

interface Package {
  readonly version: string;
  readonly description: string;
}

/** The manifest as YAML; `archive` is what the URI leads to. */
export function krewManifest(
  { version, description }: Package,
  uri: string,
  archive: Buffer,
): string {
  const sha256 = createHash('sha256').update(archive).digest('hex');
  return stringify({
    apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
    kind: 'Plugin',
    metadata: { name: 'audit-endpoints' },
    spec: {
      version: `v${version}`,
      shortDescription: 'Find wrong or late Endpoints and EndpointSlices',
      description: `${description}.\n`,
      caveats: 'Needs Node.js 22.19 or later as `node` on the PATH.\n',
      platforms: [
        {
          selector: {
            matchExpressions: [{ key: 'os', operator: 'In', values: ['darwin', 'linux'] }],
          },
          uri,
          sha256,
          files: [
            { from: 'package/dist/*', to: '.' },
            { from: 'package/LICENSE', to: '.' },
          ],
          bin: 'endpoint-auditor.mjs',
        },
      ],
    },
  });
}

if (import.meta.main) {
  const [uri, archive] = process.argv.slice(2);
  if (uri === undefined || archive === undefined || !existsSync(archive)) {
    process.stderr.write(`Usage: npm run -s krew -- URI ARCHIVE
  ARCHIVE  the file that npm pack made${archive === undefined ? '' : ` (there is no ${archive})`}
  URI      where it can be downloaded\n`);
    process.exitCode = 2;
  } else {
    const about = readFileSync(join(import.meta.dirname, '../package.json'), 'utf8');
    process.stdout.write(krewManifest(JSON.parse(about) as Package, uri, readFileSync(archive)));
  }
}
