// Filling: which states of the slices one sync can leave behind another state.

import { describe, expect, test } from 'vitest';

import type { EndpointSlice, PortMapKey } from '../../src/model/objects.ts';
import { portMapKey } from '../../src/model/objects.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { endpoint, owner, port, service, slice, target, times } from '../build.ts';
import { identities, isReachable } from './conform.ts';

const [a, b] = [port({ port: 1 }), port({ port: 2 })];
const max = 5;

interface Sliced {
  readonly uid: string;
  /** Numbers of the pods it lists. */
  readonly pods: readonly number[];
  readonly port?: typeof a | null;
  readonly labels?: Readonly<Record<string, string>>;
  readonly old?: boolean;
}

function built({ uid, pods, port: one = a, labels, old = false }: Sliced): EndpointSlice {
  return slice({
    uid,
    name: uid,
    ports: one === null ? [] : [one],
    owners: [owner(old ? { uid: 'old' } : {})],
    endpoints: pods.map((number) =>
      endpoint({ addresses: [`10.0.0.${number}`], target: target(`web-${number}`) }),
    ),
    ...(labels === undefined ? {} : { labels }),
  });
}

const all = (count: number, from = 1): number[] => times(count, (index) => from + index);

function reachable(
  before: readonly Sliced[],
  after: readonly Sliced[],
  updated: readonly string[] = [],
  release = newestRelease,
): boolean {
  const [was, is] = [before.map(built), after.map(built)];
  const wanted = new Map<PortMapKey, Set<string>>();
  for (const one of is) {
    if (one.endpoints.length === 0) continue;
    const set = wanted.get(one.portMap) ?? new Set<string>();
    for (const identity of identities(one)) set.add(identity);
    wanted.set(one.portMap, set);
  }
  return isReachable(service(), was, is, wanted, ({ uid }) => updated.includes(uid), {
    max,
    release,
  });
}

const of = (uid: string, pods: readonly number[], more: Partial<Sliced> = {}): Sliced => ({
  uid,
  pods,
  ...more,
});

type Case = [string, Sliced[], Sliced[], boolean];

describe('a slice for what is new', () => {
  const placeholder = of('p', [], { port: null });
  const cases: Case[] = [
    ['the first', [], [of('x', [1])], true],
    ['nothing: a placeholder', [], [placeholder], true],
    ['nothing at all', [], [], false],
    ['as many as needed', [], [of('x', all(5)), of('y', all(5, 6)), of('z', [11])], true],
    ['not evenly', [], [of('x', all(4)), of('y', all(4, 5))], false],
    ['one of each port map', [], [of('x', [1]), of('y', [2], { port: b })], true],
    ['in place of the placeholder', [placeholder], [of('p', [1])], true],
    ['beside the placeholder', [placeholder], [placeholder, of('x', [1])], false],
    ['under another name than the placeholder’s', [placeholder], [of('x', [1])], false],
    ['the placeholder stays', [placeholder], [placeholder], true],
  ];
  test.each(cases)('%s', (_, before, after, want) => {
    expect(reachable(before, after)).toBe(want);
  });
});

describe('what is kept', () => {
  const cases: Case[] = [
    ['nothing changes', [of('x', [1, 2])], [of('x', [1, 2])], true],
    ['one goes', [of('x', [1, 2])], [of('x', [2])], true],
    [
      'the last goes: a placeholder of its name',
      [of('x', [1])],
      [of('x', [], { port: null })],
      true,
    ],
    ['slices are not merged', [of('x', [1]), of('y', [2])], [of('x', [1]), of('y', [2])], true],
    ['merged without need', [of('x', [1]), of('y', [2])], [of('x', [1, 2])], false],
    ['moved', [of('x', [1, 2]), of('y', [3])], [of('x', [1]), of('y', [2, 3])], false],
    ['an emptied slice is deleted', [of('x', [1]), of('y', [2])], [of('y', [2])], true],
    ['an emptied slice stays', [of('x', [1]), of('y', [2])], [of('x', []), of('y', [2])], false],
    [
      'an empty slice that was there',
      [of('x', []), of('y', [2])],
      [of('x', []), of('y', [2])],
      true,
    ],
    ['its ports changed', [of('x', [1])], [of('x', [1], { port: b })], true],
    ['its ports changed, under a new name', [of('x', [1])], [of('y', [1], { port: b })], false],
    ['a slice of the Service before', [of('x', [1], { old: true })], [of('y', [1])], true],
  ];
  test.each(cases)('%s', (_, before, after, want) => {
    expect(reachable(before, after)).toBe(want);
  });
});

const two = [of('x', all(3)), of('y', all(2, 11))];

const placeCases: Case[] = [
  [
    'into the unchanged slice that comes closest to full',
    two,
    [of('x', [...all(3), 21]), of('y', all(2, 11))],
    true,
  ],
  ['not into the emptier one', two, [of('x', all(3)), of('y', [...all(2, 11), 21])], false],
  [
    'all of them into one slice',
    two,
    [of('x', all(3)), of('y', [...all(2, 11), 21, 22, 23])],
    true,
  ],
  [
    'not some here and some there',
    two,
    [of('x', [...all(3), 21, 22]), of('y', [...all(2, 11), 23])],
    false,
  ],
  [
    'a new slice where none has room for all',
    two,
    [of('x', all(3)), of('y', all(2, 11)), of('z', all(4, 21))],
    true,
  ],
  [
    'a changed slice is filled first, although another fits better',
    two,
    [of('x', all(3)), of('y', [11, 21])],
    true,
  ],
  [
    'what does not fit into it goes to an unchanged one',
    two,
    [of('x', [...all(3), 25]), of('y', [11, 21, 22, 23, 24])],
    true,
  ],
  [
    'a changed slice is filled to the brim before another is begun',
    two,
    [of('x', [...all(3), 24, 25]), of('y', [11, 21, 22, 23])],
    false,
  ],
];

describe('where the new ones go', () => {
  test.each(placeCases)('%s', (_, before, after, want) => {
    expect(reachable(before, after)).toBe(want);
  });

  test('of two changed slices the fuller is filled first', () => {
    const before = [of('x', all(4)), of('y', all(3, 11))];
    const fuller = [of('x', [1, 2, 3, 21, 22]), of('y', [11, 12])];
    const emptier = [of('x', [1, 2, 3]), of('y', [11, 12, 21, 22])];
    expect(reachable(before, fuller)).toBe(true);
    expect(reachable(before, emptier)).toBe(false);
  });

  test('a slice rewritten in place is a changed one', () => {
    const after = [of('x', all(3)), of('y', [...all(2, 11), 21])];
    expect(reachable(two, after, ['y'])).toBe(true);
    expect(reachable(two, after, ['x'])).toBe(false);
  });

  test('a slice whose labels were wrong is a changed one', () => {
    const wrong = [of('x', all(3)), of('y', all(2, 11), { labels: {} })];
    expect(reachable(wrong, [of('x', all(3)), of('y', [...all(2, 11), 21])])).toBe(true);
  });

  test('equal slices may take what is new either way', () => {
    const equal = [of('x', [1, 2]), of('y', [3, 4])];
    expect(reachable(equal, [of('x', [1, 2, 5]), of('y', [3, 4])])).toBe(true);
    expect(reachable(equal, [of('x', [1, 2]), of('y', [3, 4, 5])])).toBe(true);
  });
});

describe('names are recycled', () => {
  const cases: Case[] = [
    ['a deleted slice lends its name', [of('x', [1])], [of('x', [2])], true],
    ['a new name although one is free', [of('x', [1])], [of('y', [2])], false],
    ['one name, two new slices', [of('x', [1])], [of('x', all(5, 2)), of('y', [7])], true],
    ['two names, one new slice', [of('x', [1]), of('y', [2])], [of('y', [3])], true],
    [
      'across port maps',
      [of('x', [1]), of('y', [2], { port: b })],
      [of('x', [3], { port: b }), of('y', [4])],
      true,
    ],
  ];
  test.each(cases)('%s', (_, before, after, want) => {
    expect(reachable(before, after)).toBe(want);
  });
});

test('before 1.36 every sync rebuilds slices without ports, under their old names', () => {
  const portless = (uid: string, pods: number[]) => of(uid, pods, { port: null });
  const cases: [Sliced[], Sliced[], boolean, boolean][] = [
    [[portless('x', [1])], [portless('x', [1, 2])], true, true],
    [
      [portless('x', [1]), portless('y', [2])],
      [portless('x', [1]), portless('y', [2])],
      true,
      false,
    ],
    [[portless('x', [1]), portless('y', [2])], [portless('x', [1, 2])], false, true],
  ];
  for (const [before, after, since36, before36] of cases) {
    expect(reachable(before, after)).toBe(since36);
    expect(reachable(before, after, [], releaseOf('1.35') ?? newestRelease)).toBe(before36);
  }
});

test('the identity of an endpoint does not depend on the order of its addresses', () => {
  const one = (addresses: string[]) => slice({ endpoints: [endpoint({ addresses })] });
  expect(identities(one(['1.1.1.1', '2.2.2.2']))).toEqual(identities(one(['2.2.2.2', '1.1.1.1'])));
  expect(identities(one(['1.1.1.1']))).not.toEqual(identities(one(['2.2.2.2'])));
});

test('ports of a case are distinct', () => {
  expect(portMapKey([a])).not.toBe(portMapKey([b]));
});
