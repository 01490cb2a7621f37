// The store takes events in: what is news, what is found by which index, and what Nodes add up to.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createStore } from '../../../src/cluster/store/store.ts';
import type { WatchEvent } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import { selects } from '../../../src/model/selector.ts';
import { endpoints, event, node, pod, service, slice, storeOf } from '../../build.ts';

const at = (resourceVersion: string) => pod({ resourceVersion });

type Said = [WatchEvent['type'], string];

const newsCases: [string, Said[], string[]][] = [
  [
    'in order',
    [
      ['added', '1'],
      ['modified', '2'],
      ['deleted', '3'],
    ],
    ['news', 'news', 'news'],
  ],
  [
    'repeated',
    [
      ['added', '1'],
      ['added', '1'],
    ],
    ['news', 'repeated'],
  ],
  [
    'older',
    [
      ['added', '2'],
      ['modified', '1'],
    ],
    ['news', 'stale'],
  ],
  [
    'compared as numbers',
    [
      ['added', '9'],
      ['modified', '10'],
    ],
    ['news', 'news'],
  ],
  [
    'compared as numbers, older',
    [
      ['added', '10'],
      ['modified', '9'],
    ],
    ['news', 'stale'],
  ],
  // 2^53 + 1 and 2^53: as numbers of JavaScript they are equal.
  [
    'large',
    [
      ['added', '9007199254740993'],
      ['modified', '9007199254740992'],
    ],
    ['news', 'stale'],
  ],
  [
    'no versions, as in files',
    [
      ['added', ''],
      ['modified', ''],
    ],
    ['news', 'news'],
  ],
  [
    'no numbers',
    [
      ['added', 'b'],
      ['modified', 'a'],
    ],
    ['news', 'news'],
  ],
  [
    'no numbers, repeated',
    [
      ['added', 'a'],
      ['modified', 'a'],
    ],
    ['news', 'repeated'],
  ],
  [
    'deleted twice',
    [
      ['added', '1'],
      ['deleted', '2'],
      ['deleted', '2'],
    ],
    ['news', 'news', 'repeated'],
  ],
  ['deleted, never there', [['deleted', '1']], ['repeated']],
  [
    'an old deletion',
    [
      ['added', '2'],
      ['deleted', '1'],
    ],
    ['news', 'stale'],
  ],
  [
    'a deletion of the stored version',
    [
      ['added', '2'],
      ['deleted', '2'],
    ],
    ['news', 'news'],
  ],
  [
    'late after a deletion',
    [
      ['added', '1'],
      ['deleted', '3'],
      ['modified', '2'],
    ],
    ['news', 'news', 'stale'],
  ],
  [
    'recreated after a deletion',
    [
      ['added', '1'],
      ['deleted', '3'],
      ['added', '4'],
    ],
    ['news', 'news', 'news'],
  ],
];

describe('news', () => {
  test.each(newsCases)('%s', (_, events, want) => {
    const store = createStore(new Set(resources));
    const got = events.map(([type, version]) => {
      const before = { ...store.dropped };
      const change = store.apply(event(type, at(version)));
      if (change !== null) return 'news';
      return store.dropped.stale > before.stale ? 'stale' : 'repeated';
    });
    expect(got).toEqual(want);
  });

  test('a change has the versions before and after', () => {
    const store = createStore(new Set(resources));
    const [one, two] = [at('1'), at('2')];
    const changed = (type: WatchEvent['type'], object: typeof one) =>
      store.apply(event(type, object, 5));
    const base = { resource: 'pods', at: 5 };
    expect(changed('added', one)).toEqual({ ...base, before: null, after: one });
    expect(changed('modified', two)).toEqual({ ...base, before: one, after: two });
    expect(changed('deleted', two)).toEqual({ ...base, before: two, after: null });
  });

  test('objects of one key and two resources are two', () => {
    const { listers } = storeOf([
      service({ resourceVersion: '5' }),
      endpoints({ resourceVersion: '3' }),
    ]);
    expect(listers.services.size + listers.endpoints.size).toBe(2);
  });

  test('the last 1,024 deletions are remembered, the oldest forgotten', () => {
    const store = createStore(new Set(resources));
    const apply = (type: WatchEvent['type'], index: number, resourceVersion: string) =>
      store.apply(event(type, pod({ name: `p-${index}`, resourceVersion })));
    const remove = (index: number, version: string) => {
      apply('added', index, version);
      apply('deleted', index, version);
    };
    for (let index = 0; index < 1024; index++) remove(index, '5');
    expect(apply('modified', 0, '4')).toBeNull();
    remove(0, '6'); // so the oldest deletion is that of 1
    remove(1024, '5');
    for (const index of [0, 2, 1023, 1024]) expect(apply('modified', index, '4')).toBeNull();
    expect(apply('modified', 1, '4')).not.toBeNull();
    remove(1025, '5');
    expect(apply('modified', 2, '4')).not.toBeNull();
    expect(apply('modified', 0, '4')).toBeNull();
  });

  test('after a gap any version is taken, and the change says so', () => {
    const store = createStore(new Set(resources));
    store.apply(event('added', at('5')));
    const after = (type: 'modified' | 'deleted', version: string) =>
      store.apply({ ...event(type, at(version)), gap: true });
    expect(after('modified', '3')).toMatchObject({ gap: true, after: { resourceVersion: '3' } });
    expect(after('modified', '3')).not.toBeNull();
    expect(after('deleted', '3')).toMatchObject({ gap: true, after: null });
    expect(after('deleted', '3')).toBeNull();
  });

  test('deletions of a resource are forgotten when it has been listed', () => {
    const store = createStore(new Set(resources));
    const late = () => store.apply(event('modified', at('3')));
    for (const type of ['added', 'deleted'] as const) store.apply(event(type, at('5')));
    store.listed('services');
    expect(late()).toBeNull();
    store.listed('pods');
    expect(late()).not.toBeNull();
  });
});

describe('what is known', () => {
  test('grows as resources are delivered', () => {
    const delivered = new Set<(typeof resources)[number]>();
    const { listers } = createStore(delivered);
    expect(resources.filter((one) => listers.knows(one))).toEqual([]);
    delivered.add('pods');
    expect(resources.filter((one) => listers.knows(one))).toEqual(['pods']);
  });
});

describe('pods', () => {
  const names = (pods: Iterable<{ name: string }>): string[] =>
    [...pods].map(({ name }) => name).sort();

  test('are found by address in canonical form, in all namespaces', () => {
    const { listers } = storeOf([
      pod({ ips: ['10.0.0.1', '10.0.0.01', 'FD00::1'] }),
      pod({ name: 'b', namespace: 'bank', ips: ['::ffff:10.0.0.1'] }),
    ]);
    expect(names(listers.podsAt('10.0.0.1'))).toEqual(['b', 'web-1']);
    expect(names(listers.podsAt('fd00::1'))).toEqual(['web-1']);
    expect(names(listers.podsAt('10.0.0.01'))).toEqual([]);
  });

  test('are found in their latest version, also if they keep their places', () => {
    const store = storeOf([pod({ ready: true })]);
    const latest = pod({ ready: false, resourceVersion: '9' });
    store.apply(event('modified', latest));
    const { listers } = store;
    for (const found of [listers.podsAt('10.0.0.1'), listers.podsOn('node-a')]) {
      expect([...found]).toEqual([latest]);
    }
  });

  test('leave the indexes as they change and go', () => {
    const store = storeOf([pod(), pod({ name: 'b' }), pod({ name: 'c' })]);
    const { listers } = store;
    store.apply(event('modified', pod({ name: 'b', ips: ['10.0.0.2'], node: 'node-b' })));
    store.apply(event('deleted', pod({ name: 'c' })));
    expect(names(listers.podsAt('10.0.0.1'))).toEqual(['web-1']);
    expect(names(listers.podsAt('10.0.0.2'))).toEqual(['b']);
    expect(names(listers.podsOn('node-a'))).toEqual(['web-1']);
    expect(names(listers.podsOn('node-b'))).toEqual(['b']);
    expect(names(listers.podsIn('shop'))).toEqual(['b', 'web-1']);
    store.apply(event('deleted', pod()));
    store.apply(event('deleted', pod({ name: 'b' })));
    for (const found of [listers.podsAt('10.0.0.1'), listers.podsOn(''), listers.podsIn('shop')]) {
      expect(names(found)).toEqual([]);
    }
  });
});

describe('Services by what they select', () => {
  const labels = fc.dictionary(fc.constantFrom('app', 'tier', 'v'), fc.constantFrom('a', 'b', ''));
  const one = fc.record({
    name: fc.constantFrom('s1', 's2', 's3'),
    namespace: fc.constantFrom('shop', 'bank'),
    selector: fc.option(labels, { nil: null }),
    gone: fc.boolean(),
  });

  test('are all that match after any changes', () => {
    const property = fc.property(fc.array(one, { maxLength: 12 }), labels, (changes, wanted) => {
      const store = createStore(new Set(resources));
      for (const { gone, ...more } of changes) {
        store.apply(event(gone ? 'deleted' : 'modified', service(more)));
      }
      const { listers } = store;
      const want = [...listers.services.values()].filter(
        ({ namespace, selector }) => namespace === 'shop' && selects(selector, wanted),
      );
      const got = listers.servicesSelecting('shop', wanted);
      expect(got.map(({ key }) => key).sort()).toEqual(want.map(({ key }) => key).sort());
    });
    fc.assert(property);
  });

  test('as they are now, in the namespace of the pod', () => {
    const labels = { app: 'web' };
    const store = storeOf([service({ name: 'one' }), service({ namespace: 'other' })]);
    const keys = (namespace: string) =>
      store.listers.servicesSelecting(namespace, labels).map(({ key }) => key);
    for (let round = 0; round < 2; round++) {
      expect(keys('shop')).toEqual(['shop/one']);
      expect(keys('other')).toEqual(['other/web']);
      expect(keys('none')).toEqual([]);
    }
    store.apply(event('added', service({ name: 'two' })));
    expect(keys('shop').sort()).toEqual(['shop/one', 'shop/two']);
    store.apply(event('deleted', service({ name: 'one' })));
    expect(keys('shop')).toEqual(['shop/two']);
  });

  test('are remembered by the labels of a pod, unless these are long', () => {
    const { listers } = storeOf([service({})]);
    const find = (labels: Record<string, string>) => listers.servicesSelecting('shop', labels);
    const [short, long] = ['x'.repeat(63), 'x'.repeat(5000)].map((x) => ({ app: 'web', x }));
    if (short === undefined || long === undefined) throw new Error('none');
    expect(find(short)).toBe(find(short));
    expect(find(long)).not.toBe(find(long));
    expect(find(long)).toEqual(find(short));
  });

  test('ExternalName ones too', () => {
    const { listers } = storeOf([service({ type: 'ExternalName' })]);
    expect(listers.servicesSelecting('shop', { app: 'web' })).toHaveLength(1);
  });
});

describe('what Nodes add up to', () => {
  const capacityOf = (...nodes: Parameters<typeof node>[0][]) => {
    const { listers } = storeOf(nodes.map((more, index) => node({ name: `n${index}`, ...more })));
    const { insufficient, cpuMillisByZone } = listers.zoneCapacity;
    return insufficient ? 'insufficient' : Object.fromEntries(cpuMillisByZone);
  };
  const cases: [string, Parameters<typeof node>[0][], unknown][] = [
    ['none', [], {}],
    ['by zone', [{}, { cpuMillis: 1 }, { zone: 'zone-b' }], { 'zone-a': 4001, 'zone-b': 4000 }],
    ['not the control plane', [{}, { controlPlane: true, zone: 'zone-b' }], { 'zone-a': 4000 }],
    ['not those that are not ready', [{}, { ready: false, zone: 'zone-b' }], { 'zone-a': 4000 }],
    ['a Node without zone', [{}, { zone: '' }], 'insufficient'],
    ['a Node without CPU', [{}, { cpuMillis: 0 }], 'insufficient'],
    ['one that does not count, without zone', [{}, { zone: '', ready: false }], { 'zone-a': 4000 }],
  ];
  test.each(cases)('%s', (_, nodes, want) => {
    expect(capacityOf(...nodes)).toEqual(want);
  });

  test('is counted again when a Node changes', () => {
    const store = storeOf([node()]);
    const cpu = () => store.listers.zoneCapacity.cpuMillisByZone.get('zone-a');
    expect(cpu()).toBe(4000);
    store.apply(event('modified', node({ cpuMillis: 8000 })));
    expect(cpu()).toBe(8000);
    store.apply(event('deleted', node({ cpuMillis: 8000 })));
    expect(cpu()).toBeUndefined();
  });

  test('a zone that was seen stays seen', () => {
    const store = storeOf([node(), node({ name: 'node-b', zone: 'zone-b' })]);
    store.apply(event('modified', node({ zone: 'zone-c' })));
    store.apply(event('deleted', node({ name: 'node-b' })));
    expect([...store.listers.zonesSeen].sort()).toEqual(['zone-a', 'zone-b', 'zone-c']);
  });
});

test('zones that a Node leaves all the time are forgotten, those of Nodes are not', () => {
  const store = storeOf([node({ name: 'calm', zone: 'calm' })]);
  const change = (version: number) => {
    const zone = `zone-${version}`;
    store.apply(event('modified', node({ zone, resourceVersion: String(version) })));
  };
  for (let version = 1; version <= 10_100; version++) change(version);
  const { zonesSeen } = store.listers;
  expect(zonesSeen.size).toBeLessThan(10_010);
  expect(['calm', 'zone-10100', 'zone-10099'].every((zone) => zonesSeen.has(zone))).toBe(true);
});

test('slices and Endpoints are found by key', () => {
  const { listers } = storeOf([slice(), endpoints()]);
  expect([...listers.slices.keys(), ...listers.endpoints.keys()]).toEqual([
    'shop/web-abcde',
    'shop/web',
  ]);
});
