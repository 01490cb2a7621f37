// Which release is meant, and what differs between the known ones.

import { describe, expect, test } from 'vitest';

import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf, releases } from '../../src/shadow/release.ts';

describe('releaseOf', () => {
  const known: [string, number][] = [
    ['v1.36.3', 36],
    ['1.36', 36],
    ['v1.33', 33],
    ['v1.31.2-eks-4f2c', 31],
    ['v1.32.0+k3s1', 32],
    ['v1.35-rc.1', 35],
    [' v1.30.14\n', 30],
  ];
  test.each(known)('%j is 1.%i', (version, minor) => {
    expect(releaseOf(version)?.minor).toBe(minor);
  });

  const others = [
    '',
    'v1',
    '36',
    'v1.29.1',
    'v1.360',
    'v1.37.0',
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
  test('are in order without a gap, the newest last', () => {
    const minors = releases.map(({ minor }) => minor);
    expect(minors).toEqual([30, 31, 32, 33, 34, 35, 36]);
    expect(newestRelease).toBe(releases.at(-1));
  });

  test('rows are verified if they were compared with a real control plane', () => {
    const verified = releases.filter((one) => one.verified).map(({ minor }) => minor);
    expect(verified).toEqual([30, 33, 36]);
  });

  /** The releases in which something holds, as a string of yes and no from 1.30 on. */
  const row = (holds: (release: Release) => boolean): string =>
    releases.map((release) => (holds(release) ? 'y' : '-')).join('');

  const cases: [string, (release: Release) => boolean, string][] = [
    ['Endpoints carry managed-by', (one) => one.endpointsManagedBy, '---yyyy'],
    ['sidecar ports in Endpoints', (one) => one.sidecarPortsInEndpoints, '--yyyyy'],
    ['sidecar ports in slices', (one) => one.sidecarPortsInSlices, '---yyyy'],
    ['PreferClose', (one) => one.trafficDistributions.includes('PreferClose'), '-yyyyyy'],
    ['PreferSameZone', (one) => one.trafficDistributions.includes('PreferSameZone'), '----yyy'],
    ['PreferSameNode', (one) => one.trafficDistributions.includes('PreferSameNode'), '----yyy'],
    ['hints for no zone', (one) => one.hintsEmptyZone, '-yy----'],
    ['slices without ports are recreated', (one) => one.rebuildsPortless, 'yyyyyy-'],
    ['mirrored edits are repaired', (one) => one.mirrorRepairsEdits, '-yyyyyy'],
  ];
  test.each(cases)('%s', (_, holds, want) => {
    expect(row(holds)).toBe(want);
  });
});
