// The digests that a node reports follow from its objects, on every recorded node.

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import {
  digestOf,
  keyOf,
  packetsOf,
  wordsOf,
  wordsOfExpected,
} from '../../../src/rules/report/digest.ts';
import type { RuleFrontend } from '../../../src/rules/report/frontends.ts';
import type { Destination, PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { compareDigests } from '../../nodes/walk.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';

const nodes = `${import.meta.dirname}/../../nodes`;

const sender = { node: '172.18.0.2', pod: '10.244.1.5', outside: '198.51.100.7' };
const asking = {
  ip: sender,
  ip6: { node: 'fd00::2', pod: null, outside: '2001:db8::7' },
  addresses: ['172.18.0.2', 'fd00::2', '127.0.0.1'],
  pods: [],
  strays: false,
};

const claim = (more: Partial<RuleFrontend>): RuleFrontend => ({
  family: 'ip',
  address: '10.96.0.1',
  protocol: 'tcp',
  port: 443,
  translators: 1,
  ...more,
});

describe('recorded nodes', () => {
  const folders = foldersBelow(`${nodes}/recordings`).map(readFolder);

  test('say by themselves what follows from their objects', () => {
    let frontends = 0;
    for (const folder of folders) {
      const counts = compareDigests(folder);
      if (counts === null || folder.isForeign) continue;
      expect(counts.different, folder.path).toEqual([]);
      frontends += counts.equal;
    }
    expect(frontends).toBeGreaterThan(1000);
  });

  test('with rules of others mostly so: what those change needs words', () => {
    for (const folder of folders.filter(({ isForeign }) => isForeign)) {
      const counts = compareDigests(folder);
      const different = counts?.different.length ?? 0;
      expect(different, folder.path).toBeGreaterThan(0);
      expect(counts?.equal ?? 0, folder.path).toBeGreaterThan(9 * different);
    }
  });

  test('differ if kube-proxy has stopped', () => {
    const stale = foldersBelow(`${nodes}/faults`)
      .filter((path) => path.includes('node-stale'))
      .map((path) => compareDigests(readFolder(path)));
    expect(stale.length).toBeGreaterThan(0);
    for (const counts of stale) expect(counts?.different.length).toBeGreaterThan(0);
  });
});

describe('who is asked for', () => {
  test.each([
    [claim({}), 'tcp 10.96.0.1:443', ['172.18.0.2', '10.244.1.5', '198.51.100.7']],
    [claim({ family: 'ip6', address: 'fd00::1' }), 'tcp [fd00::1]:443', ['fd00::2', '2001:db8::7']],
    [
      claim({ address: null, port: 30080 }),
      'tcp *:30080',
      ['172.18.0.2', '10.244.1.5', '198.51.100.7', '127.0.0.1'],
    ],
    [claim({ family: 'ip6', address: null }), 'tcp [*]:443', ['fd00::2', '2001:db8::7']],
  ])('%j', (one, key, sources) => {
    expect(keyOf(one)).toBe(key);
    expect(packetsOf(one, asking).map(({ src }) => src)).toEqual(sources);
  });
});

const trace = (): readonly [] => [];

function outcome(destinations: Readonly<Record<string, Partial<Destination>>>): PacketOutcome {
  const none = { probability: 0, masqueraded: false, trace } as const;
  const whole = Object.entries(destinations).map(
    ([to, more]) => [to, { ...none, affinity: false, affinitySeconds: null, ...more }] as const,
  );
  return {
    destinations: new Map(whole),
    reject: none,
    drop: none,
    pass: none,
    unknown: [],
  };
}

/** The shares of this many endpoints as a kernel has them: each jump's probability with 31 bits. */
function shares(count: number): number[] {
  let left = 1;
  return Array.from({ length: count }, (_, at) => {
    const drawn = at === count - 1 ? 1 : Math.round(2 ** 31 / (count - at)) / 2 ** 31;
    const share = left * drawn;
    left *= 1 - drawn;
    return share;
  });
}

describe('words', () => {
  property.prop([fc.integer({ min: 1, max: 2000 })])(
    'shares as iptables rounds them are those that were meant',
    (count) => {
      const names = Array.from({ length: count }, (_, at) => `10.0.${at >> 8}.${at & 255}:80`);
      const parts = shares(count).map((probability, at) => [names[at] ?? '', { probability }]);
      const want = {
        kind: 'endpoints',
        endpoints: new Map(names.map((to) => [to, false])),
      } as const;
      expect(wordsOf(outcome(Object.fromEntries(parts) as never))).toBe(
        wordsOfExpected({ ...want, affinitySeconds: null }),
      );
    },
  );

  const even = { a: { probability: 0.5 }, b: { probability: 0.5 } };
  test.each<[string, PacketOutcome]>([
    ['another share', outcome({ a: { probability: 0.4 }, b: { probability: 0.6 } })],
    ['another endpoint', outcome({ a: { probability: 0.5 }, c: { probability: 0.5 } })],
    ['masquerading', outcome({ ...even, a: { probability: 0.5, masqueraded: true } })],
    ['some source', outcome({ ...even, a: { probability: 0.5, masqueraded: 'unknown' } })],
    ['affinity', outcome({ ...even, a: { probability: 0.5, affinity: true, affinitySeconds: 9 } })],
    ['who is remembered', outcome({ ...even, c: { probability: 0, affinity: true } })],
    ['something unknown', { ...outcome(even), unknown: [{ reason: 'x', rule: '' }] }],
    ['a reject', { ...outcome(even), reject: { probability: 0.1, masqueraded: false, trace } }],
  ])('differ for %s', (_, other) => {
    expect(digestOf([wordsOf(other)])).not.toBe(digestOf([wordsOf(outcome(even))]));
  });

  test('do not depend on the order of rules', () => {
    expect(wordsOf(outcome({ b: even.b, a: even.a }))).toBe(wordsOf(outcome(even)));
  });
});

property.prop([fc.uniqueArray(fc.string(), { minLength: 2, maxLength: 200 })])(
  'digests are 64 bits, and different for different words',
  (words) => {
    const digests = words.map((word) => digestOf([word]));
    for (const digest of digests) expect(digest).toMatch(/^[0-9a-f]{16}$/);
    expect(new Set(digests).size).toBe(words.length);
  },
);
