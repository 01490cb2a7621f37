// The manifest by which Krew installs the kubectl plugin: on Linux the executable, on macOS the
// package, which needs Node. Krew links the file that `bin` names as kubectl-audit_endpoints, by which
// the program knows that kubectl calls it.

import { createHash } from 'node:crypto';

import { stringify } from 'yaml';

export interface KrewRelease {
  readonly version: string;
  readonly description: string;
  /** Of package.json, which has none until the project has an address. */
  readonly homepage?: string;
  /** The address of the folder with the archives. */
  readonly address: string;
}

/** An archive of a release: its file name and its content. */
export interface KrewArchive {
  readonly name: string;
  readonly content: Buffer;
}

function platform(os: string, arch: string | null, address: string, archive: KrewArchive) {
  const isExecutable = os === 'linux';
  const folder = isExecutable ? '' : 'package/dist/';
  return {
    selector: { matchLabels: arch === null ? { os } : { os, arch } },
    uri: `${address}/${archive.name}`,
    sha256: createHash('sha256').update(archive.content).digest('hex'),
    files: [
      { from: isExecutable ? 'endpoint-auditor' : `${folder}*`, to: '.' },
      { from: isExecutable ? 'LICENSE' : 'package/LICENSE', to: '.' },
    ],
    bin: isExecutable ? 'endpoint-auditor' : 'endpoint-auditor.mjs',
  };
}

/** The manifest as YAML. */
export function krewManifest(
  { version, description, homepage, address }: KrewRelease,
  archives: Readonly<Record<'x64' | 'arm64' | 'npm', KrewArchive>>,
): string {
  return stringify({
    apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
    kind: 'Plugin',
    metadata: { name: 'audit-endpoints' },
    spec: {
      version: `v${version}`,
      ...(homepage === undefined ? {} : { homepage }),
      shortDescription: 'Find wrong or late Endpoints and EndpointSlices',
      description: `${description}.\n`,
      caveats: 'On macOS it needs Node.js 22.19 or later as `node` on the PATH.\n',
      platforms: [
        platform('linux', 'amd64', address, archives.x64),
        platform('linux', 'arm64', address, archives.arm64),
        platform('darwin', null, address, archives.npm),
      ],
    },
  });
}
