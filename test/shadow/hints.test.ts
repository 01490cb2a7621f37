// Hints: which a Service asks for, what they must be, and why there may be none.

import { describe, expect, test } from 'vitest';

import type { ZoneCapacity } from '../../src/model/objects.ts';
import type { HintMode } from '../../src/shadow/hints.ts';
import { expectedHints, hintMode, whyNoHints } from '../../src/shadow/hints.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { endpoint, service } from '../build.ts';

const at = (version: string) => releaseOf(version) ?? newestRelease;

describe('hintMode', () => {
  const cases: [string | null, boolean, string, HintMode][] = [
    [null, false, '1.36', 'none'],
    [null, true, '1.36', 'auto'],
    ['PreferClose', false, '1.36', 'zone'],
    ['PreferSameZone', false, '1.36', 'zone'],
    ['PreferSameNode', false, '1.36', 'node'],
    // The annotation has precedence.
    ['PreferSameNode', true, '1.36', 'auto'],
    ['PreferClose', false, '1.31', 'zone'],
    ['PreferClose', false, '1.30', 'none'],
    ['PreferSameZone', false, '1.33', 'none'],
    ['PreferSameNode', false, '1.33', 'none'],
    ['PreferFar', false, '1.36', 'none'],
  ];
  test.each(cases)(
    '%s, topology-mode Auto %s, %s: %s',
    (trafficDistribution, auto, release, want) => {
      expect(hintMode(service({ trafficDistribution, topologyAuto: auto }), at(release))).toBe(
        want,
      );
    },
  );
});

describe('expectedHints', () => {
  type Mode = 'none' | 'zone' | 'node';
  const zone = ['zone-a'];
  const onNode = ['node-a'];
  const cases: [string, Mode, Parameters<typeof endpoint>[0], string, unknown, unknown][] = [
    ['none', 'none', {}, '1.36', null, null],
    ['zone', 'zone', {}, '1.36', zone, null],
    ['node', 'node', {}, '1.36', zone, onNode],
    ['not ready', 'zone', { ready: false }, '1.36', null, null],
    // An absent condition is not true.
    ['readiness absent', 'node', { ready: null }, '1.36', null, null],
    ['terminating, but published', 'zone', { terminating: true }, '1.36', zone, null],
    ['no zone', 'zone', { zone: null }, '1.36', null, null],
    ['no zone, but a node', 'node', { zone: null }, '1.36', null, onNode],
    ['no node', 'node', { node: null }, '1.36', zone, null],
    ['no zone in 1.31', 'zone', { zone: null }, '1.31', [''], null],
    ['no zone in 1.33', 'zone', { zone: null }, '1.33', null, null],
  ];
  test.each(cases)('%s', (_, mode, more, release, forZones, forNodes) => {
    expect(expectedHints(mode, endpoint(more), at(release))).toEqual({ forZones, forNodes });
  });
});

describe('whyNoHints', () => {
  const capacity = (...cpus: number[]): ZoneCapacity => ({
    insufficient: false,
    cpuMillisByZone: new Map(cpus.map((cpu, index) => [`zone-${index}`, cpu])),
  });
  const cases: [string, ZoneCapacity, number, RegExp | null][] = [
    ['equal zones', capacity(4, 4, 4), 3, null],
    ['many endpoints', capacity(4, 4, 4), 100, null],
    ['too few endpoints', capacity(4, 4, 4), 2, /^insufficient number of endpoints \(2 .* 3 /],
    ['no endpoint', capacity(4, 4), 0, /^insufficient number/],
    ['one zone', capacity(4), 9, /^Nodes only ready in one zone$/],
    ['no Node counts', capacity(), 9, /^Nodes only ready in one zone$/],
    ['a Node lacks something', { ...capacity(4, 4), insufficient: true }, 9, /^insufficient Node/],
    // 2 * 3/4 and 2 * 1/4, each with a fifth taken off and rounded up: 2 + 1.
    ['too unequal', capacity(12, 4), 2, /^minimum allocation exceeds the overload threshold/],
    ['unequal, but enough endpoints', capacity(12, 4), 4, null],
  ];
  test.each(cases)('%s', (_, of, ready, want) => {
    const got = whyNoHints(of, ready);
    if (want === null) expect(got).toBeNull();
    else expect(got).toMatch(want);
  });
});
