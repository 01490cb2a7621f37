// Which versions can be built, and the modules that they are built from.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { newestRelease } from '../../src/shadow/release.ts';
import { adviceFor, buildModule, newestVersion, versions } from './binaries.ts';

test('the go.mod of a build is that of upstream with published modules', () => {
  const upstream = `module k8s.io/kubernetes

go 1.26.0

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/endpointslice => ./staging/src/k8s.io/endpointslice
)
`;
  expect(buildModule(upstream, 'v1.37.2')).toBe(`module controlplane

require k8s.io/kubernetes v1.37.2

go 1.26.0

require k8s.io/api v0.0.0

replace (
	k8s.io/api => k8s.io/api v0.37.2
	k8s.io/endpointslice => k8s.io/endpointslice v0.37.2
)
`);
});

const proxy = 'https://proxy.example';

test.each([
  [
    'a build without a module',
    `t.go:2:8: k8s.io/cri-client@v0.31.14: reading ${proxy}/cri-client: 403 Forbidden
\tserver response: This module version is not available.`,
    /: k8s\.io\/cri-client@v0\.31\.14\. Set GOPROXY/,
  ],
  [
    'a list without two checksums, one of them twice',
    `go: k8s.io/kms@v0.1.2: verifying module: k8s.io/kms@v0.1.2: reading ${proxy}/kms: 404 Not Found
go: k8s.io/api@v0.1.2: verifying go.mod: k8s.io/api@v0.1.2/go.mod: reading ${proxy}: 404 Not Found`,
    /: k8s\.io\/kms@v0\.1\.2, k8s\.io\/api@v0\.1\.2\. Set GOPROXY/,
  ],
  ['a compiler error', './t.go:4:2: undefined: v1 @v1.2.3', /^$/],
])('the error of %s says what to do', (_, printed, advice) => {
  expect(adviceFor(printed)).toMatch(advice);
});

test.each(versions)('the sums of %s name modules of that release only', (version) => {
  const path = join(import.meta.dirname, 'sums', `${version}.sum`);
  const lines = readFileSync(path, 'utf8').trim().split('\n');
  const named = lines.map((line) => (line.split(' ')[1] ?? '').replace('/go.mod', ''));
  const published = version.replace('v1.', 'v0.');
  expect([...new Set(named)].sort()).toEqual([published, version]);
});

test('versions are sorted, and the last is of the newest release', () => {
  const minors = versions.map((version) => Number(version.split('.')[1]));
  expect(minors).toEqual(minors.toSorted((a, b) => a - b));
  expect(newestVersion).toBe(versions.at(-1));
  expect(minors.at(-1)).toBe(newestRelease.minor);
});
