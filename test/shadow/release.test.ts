// Which release is meant, and what differs between the known ones.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { Release } from '../../src/shadow/release.ts';
import {
  isVerified,
  nameOf,
  newestRelease,
  oldestRelease,
  releaseOf,
  releases,
  unverifiedReasons,
  verified,
} from '../../src/shadow/release.ts';

describe('releaseOf', () => {
  const known: [string, number][] = [
    ['v1.36.3', 36],
    ['1.36', 36],
    ['v1.33', 33],
    ['v1.31.2-eks-4f2c', 31],
    ['v1.32.0+k3s1', 32],
    ['v1.35-rc.1', 35],
    [' v1.30.14\n', 30],
    ['v1.28.15', 28],
  ];
  test.each(known)('%j is 1.%i', (version, minor) => {
    expect(releaseOf(version)?.minor).toBe(minor);
  });

  const others = [
    '',
    'v1',
    '36',
    'v1.27.16',
    'v1.360',
    `v1.${newestRelease.minor + 1}.0`,
    'v2.36',
    'latest',
    'v1.36x',
    '1.',
  ];
  test.each(others)('%j is not known', (version) => {
    expect(releaseOf(version)).toBeNull();
  });
});

describe('releases', () => {
  test('are in order without a gap, the oldest first and the newest last', () => {
    const minors = releases.map(({ minor }) => minor);
    expect(minors).toEqual(minors.map((_, index) => oldestRelease.minor + index));
    expect([oldestRelease, newestRelease]).toEqual([releases[0], releases.at(-1)]);
  });

  test('every verified version is of a known release', () => {
    for (const version of Object.values(verified).flat()) expect(releaseOf(version)).not.toBeNull();
  });

  test.each(verified.kubeProxy)('there are recordings of kube-proxy %s', (version) => {
    expect(readdirSync(join(import.meta.dirname, '../nodes/recordings'))).toContain(version);
  });

  test.each([28, 29])('1.%i is known and not verified', (minor) => {
    expect(releases.map((release) => release.minor)).toContain(minor);
    expect([isVerified('controllers', minor), isVerified('kubeProxy', minor)]).toEqual([
      false,
      false,
    ]);
  });

  /** The first and the last release in which something is so; '' if none; no gap. */
  const range = (isSo: (release: Release) => boolean): string => {
    const found = releases.filter(isSo);
    const [first, last] = [found[0], found.at(-1)];
    if (first === undefined || last === undefined) return '';
    expect(found).toHaveLength(last.minor - first.minor + 1);
    const from = first === oldestRelease ? '' : nameOf(first);
    return `${from}-${last === newestRelease ? '' : nameOf(last)}`;
  };

  const cases: [string, (release: Release) => boolean, string][] = [
    ['Endpoints carry managed-by', (one) => one.endpointsManagedBy === true, '1.33-'],
    ['sidecar ports in Endpoints', (one) => one.sidecarPortsInEndpoints, '1.32-'],
    ['sidecar ports in slices', (one) => one.sidecarPortsInSlices, '1.33-'],
    ['PreferClose', (one) => one.trafficDistributions.includes('PreferClose'), '1.31-'],
    ['PreferSameZone', (one) => one.trafficDistributions.includes('PreferSameZone'), '1.34-'],
    ['PreferSameNode', (one) => one.trafficDistributions.includes('PreferSameNode'), '1.34-'],
    ['hints for no zone', (one) => one.hintsEmptyZone, '1.31-1.32'],
    ['slices without ports are recreated', (one) => one.rebuildsPortless, '-1.35'],
    ['mirrored edits are repaired', (one) => one.mirrorRepairsEdits, '1.31-'],
    ['Endpoints are compared after repacking', (one) => one.repacksEndpoints, '1.35-'],
  ];
  test.each(cases)('%s', (_, isSo, want) => {
    expect(range(isSo)).toBe(want);
  });
});

describe('unverifiedReasons', () => {
  const cases: [string, string, string | null, number[], number[], string[]][] = [
    ['a verified release with nodes of it', '1.36', 'v1.36.3', [35, 36], [36, 33], []],
    ['a verified release without evidence', '1.36', null, [], [], []],
    ['another version', '1.36', 'v1.33.13', [33], [], ['the cluster is v1.33.13, not 1.36']],
    ['an unreadable version', '1.36', 'latest', [], [], ['the cluster is latest, not 1.36']],
    ['a newer kubelet', '1.36', null, [36, 99], [], ['a kubelet is 1.99, newer than 1.36']],
    [
      'a release that is not verified',
      '1.29',
      'v1.29.15',
      [29],
      [28],
      ['controllers of 1.29 were not compared', 'kube-proxy 1.28 was not compared'],
    ],
  ];
  test.each(cases)('%s', (_, audited, kubernetes, kubelets, proxies, want) => {
    const release = releaseOf(audited) ?? newestRelease;
    expect(unverifiedReasons(release, kubernetes, kubelets, proxies)).toEqual(want);
  });

  test('a release without verified controllers has a reason, the others none', () => {
    for (const release of releases) {
      const reasons = unverifiedReasons(release, `v${nameOf(release)}.1`, [], []);
      expect(reasons.length === 0).toBe(isVerified('controllers', release.minor));
    }
  });
});
