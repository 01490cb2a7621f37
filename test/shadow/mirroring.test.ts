// Mirroring: which Endpoints are copied, and into what.

import { describe, expect, test } from 'vitest';

import type { EndpointSubset, Labels } from '../../src/model/objects.ts';
import { annotation, label, portMapKey } from '../../src/model/objects.ts';
import type { MirroredGroup } from '../../src/shadow/mirroring.ts';
import {
  endpointIdentity,
  expectedMirror,
  expectedMirrorAnnotations,
  expectedMirrorLabels,
  isMirror,
  isMirrored,
} from '../../src/shadow/mirroring.ts';
import {
  address,
  endpoints,
  foreign,
  mirror,
  port,
  service,
  slice,
  subset,
  target,
  times,
} from '../build.ts';

const selectorless = service({ selector: null });

describe('isMirrored', () => {
  const plain = endpoints({ labels: {} });
  const skipped = endpoints({ labels: { [label.skipMirror]: 'true' } });
  const leader = endpoints({ annotations: { [annotation.leader]: '{}' } });
  const cases: [string, Parameters<typeof isMirrored>, boolean][] = [
    ['a selectorless Service', [selectorless, plain], true],
    ['what a selector left behind', [selectorless, endpoints()], true],
    ['ExternalName without selector', [{ ...selectorless, type: 'ExternalName' }, plain], true],
    ['no Endpoints', [selectorless, null], false],
    ['no Service', [null, plain], false],
    ['a Service with selector', [service(), plain], false],
    ['ExternalName with selector', [service({ type: 'ExternalName' }), plain], false],
    ['skip-mirror', [selectorless, skipped], false],
    ['leader election', [selectorless, leader], false],
    ['no addresses', [selectorless, endpoints({ subsets: [] })], true],
  ];
  test.each(cases)('%s', (_, [of, from], want) => {
    expect(isMirrored(of, from)).toBe(want);
  });
});

test('a slice is a mirror by its managed-by label alone', () => {
  expect([mirror({ owners: [] }), slice(), foreign()].map(isMirror)).toEqual([true, false, false]);
});

describe('endpointIdentity', () => {
  test('address, hostname, namespace and name of the target count, its uid does not', () => {
    const base = endpointIdentity('10.0.0.1', 'a', target());
    expect(endpointIdentity('10.0.0.1', 'a', target('web-1', { uid: 'x' }))).toBe(base);
    const others = [
      endpointIdentity('10.0.0.2', 'a', target()),
      endpointIdentity('10.0.0.1', null, target()),
      endpointIdentity('10.0.0.1', 'a', null),
      endpointIdentity('10.0.0.1', 'a', target('web-2')),
      endpointIdentity('10.0.0.1', 'a', target('web-1', { namespace: 'bank' })),
    ];
    expect(others).not.toContain(base);
    expect(new Set(others).size).toBe(others.length);
  });
});

/** A group in a few words: type, ports, and addresses with + ready, - not ready, ? either. */
function brief({ addressType, ports, endpoints: all }: MirroredGroup): string {
  const sign = (ready: boolean | null): string => (ready === null ? '?' : ready ? '+' : '-');
  const addresses = [...all.values()].map((one) => `${sign(one.ready)}${one.address}`);
  const numbers = ports.map((one) => `${one.port}${one.appProtocol ?? ''}`);
  return `${addressType} [${numbers.sort().join()}] ${addresses.sort().join()}`;
}

const groupsOf = (...subsets: EndpointSubset[]): string[] =>
  expectedMirror(endpoints({ subsets })).map(brief).sort();

const up = (ip: string) => address({ ip, target: null });
const down = (ip: string) => address({ ip, target: null, ready: false });
const [p1, p2] = [port({ port: 1 }), port({ port: 2 })];

describe('expectedMirror: subsets', () => {
  const cases: [string, EndpointSubset[], string[]][] = [
    ['nothing', [], []],
    ['a subset without addresses', [subset([])], []],
    ['one', [subset([up('1.1.1.1'), down('1.1.1.2')], [p1])], ['IPv4 [1] +1.1.1.1,-1.1.1.2']],
    ['no ports', [subset([up('1.1.1.1')], [])], ['IPv4 [] +1.1.1.1']],
    [
      'two families',
      [subset([up('1.1.1.1'), up('fd00::1')], [p1])],
      ['IPv4 [1] +1.1.1.1', 'IPv6 [1] +fd00::1'],
    ],
    ['canonical', [subset([up('01.1.1.1')], [p1])], ['IPv4 [1] +1.1.1.1']],
    ['mapped is IPv4', [subset([up('::ffff:1.1.1.1')], [p1])], ['IPv4 [1] +1.1.1.1']],
    ['no address', [subset([up('web'), up('1.1.1.1')], [p1])], ['IPv4 [1] +1.1.1.1']],
    ['nothing but no address', [subset([up('web')], [p1])], []],
    [
      'the same ports: one slice',
      [subset([up('1.1.1.1')], [p1]), subset([up('1.1.1.2')], [p1])],
      ['IPv4 [1] +1.1.1.1,+1.1.1.2'],
    ],
    [
      'the same addresses: one slice of both ports',
      [subset([up('1.1.1.1')], [p1]), subset([up('1.1.1.1')], [p2])],
      ['IPv4 [1,2] +1.1.1.1'],
    ],
    [
      'the same addresses in another state: two slices',
      [subset([up('1.1.1.1')], [p1]), subset([down('1.1.1.1')], [p2])],
      ['IPv4 [1] +1.1.1.1', 'IPv4 [2] -1.1.1.1'],
    ],
    [
      'not ready trumps ready',
      [subset([up('1.1.1.1')], [p1]), subset([down('1.1.1.1')], [p1])],
      ['IPv4 [1] -1.1.1.1'],
    ],
    [
      'overlapping ports are taken apart',
      [subset([up('1.1.1.1')], [p1, p2]), subset([up('1.1.1.2')], [p1])],
      ['IPv4 [1] +1.1.1.1,+1.1.1.2', 'IPv4 [2] +1.1.1.1'],
    ],
    [
      'without ports and with ports: the ports are shared where the addresses are',
      [subset([up('1.1.1.1')], []), subset([up('1.1.1.1')], [p1])],
      ['IPv4 [1] +1.1.1.1'],
    ],
  ];
  test.each(cases)('%s', (_, subsets, want) => {
    expect(groupsOf(...subsets)).toEqual(want);
  });

  test('the order of subsets does not matter', () => {
    for (const [, subsets, want] of cases) expect(groupsOf(...subsets.toReversed())).toEqual(want);
  });
});

describe('expectedMirror: ports with an appProtocol are compared by pointer', () => {
  const h2c = port({ port: 1, appProtocol: 'h2c' });
  const cases: [string, EndpointSubset[], string[]][] = [
    [
      'two subsets of the same port: one slice all the same',
      [subset([up('1.1.1.1')], [h2c]), subset([up('1.1.1.2')], [h2c])],
      ['IPv4 [1h2c] +1.1.1.1,+1.1.1.2'],
    ],
    [
      'that disagree about an address: either is right',
      [subset([up('1.1.1.1')], [h2c]), subset([down('1.1.1.1')], [h2c])],
      ['IPv4 [1h2c] ?1.1.1.1'],
    ],
    // The API refuses a slice with one port twice, so such Endpoints are not mirrored.
    [
      'that say the same: one subset with the port twice',
      [subset([down('1.1.1.1')], [h2c]), subset([down('1.1.1.1')], [h2c])],
      ['IPv4 [1h2c,1h2c] -1.1.1.1'],
    ],
  ];
  test.each(cases)('%s', (_, subsets, want) => {
    expect(groupsOf(...subsets)).toEqual(want);
  });
});

describe('expectedMirror: the limit', () => {
  const many = (count: number, ready: (index: number) => boolean) =>
    times(count, (index) =>
      address({ ip: `10.1.${index >> 8}.${index & 255}`, target: null, ready: ready(index) }),
    );
  const sizes = (...subsets: EndpointSubset[]) =>
    expectedMirror(endpoints({ subsets })).map((group) => {
      const all = [...group.endpoints.values()];
      return [all.length, all.filter(({ ready }) => ready).length];
    });

  test('1,000 addresses of a subset are mirrored, ready ones first', () => {
    expect(sizes(subset(many(1000, () => true)))).toEqual([[1000, 1000]]);
    expect(sizes(subset(many(1010, () => true)))).toEqual([[1000, 1000]]);
    expect(sizes(subset(many(1010, (index) => index >= 600)))).toEqual([[1000, 410]]);
    expect(sizes(subset(many(1500, (index) => index % 3 !== 0)))).toEqual([[1000, 1000]]);
  });

  test('the order of addresses as texts decides which ones', () => {
    const all = many(1010, () => true);
    const [group] = expectedMirror(endpoints({ subsets: [subset(all.toReversed())] }));
    const got = [...(group?.endpoints.values() ?? [])].map((one) => one.address).sort();
    const want = all
      .map(({ ip }) => ip)
      .sort()
      .slice(0, 1000);
    expect(got).toEqual(want);
  });

  test('what is no address does not count', () => {
    const words = times(20, (index) => address({ ip: `0${index}`, target: null }));
    expect(sizes(subset([...words, ...many(1010, () => true)]))).toEqual([[1000, 1000]]);
  });

  test('each subset has its own', () => {
    const half = many(1400, () => true);
    const subsets = [subset(half, [p1]), subset(half.slice(0, 700), [p2])];
    expect(sizes(...subsets).sort()).toEqual([
      [1000, 1000],
      [700, 700],
    ]);
  });
});

test('an address keeps what the first subset says of it', () => {
  const [one, other] = [
    address({ node: 'node-a', hostname: '' }),
    address({ node: 'node-b', hostname: 'b' }),
  ];
  const subsets = [subset([one], [p1]), subset([other], [p2])];
  const [group] = expectedMirror(endpoints({ subsets }));
  expect(group?.portMap).toBe(portMapKey([p1, p2]));
  expect([...(group?.endpoints.values() ?? [])][0]?.source.node).toBe(one.node);
});

test('addresses of two pods are two endpoints', () => {
  const two = [address(), address({ target: target('web-2') })];
  const [group] = expectedMirror(endpoints({ subsets: [subset(two)] }));
  expect(group?.endpoints.size).toBe(2);
});

describe('what every mirrored slice carries', () => {
  const own = {
    [label.serviceName]: 'web',
    [label.sliceManagedBy]: 'endpointslicemirroring-controller.k8s.io',
  };
  const labels: [string, Labels, Labels][] = [
    ['no labels', {}, own],
    ['labels of the Endpoints', { a: '1' }, { ...own, a: '1' }],
    ['two are overwritten', { [label.serviceName]: 'x', [label.sliceManagedBy]: 'y' }, own],
    ['the headless label is copied', { [label.headless]: '' }, { ...own, [label.headless]: '' }],
    [
      'managed-by of Endpoints',
      { [label.endpointsManagedBy]: 'x' },
      { ...own, [label.endpointsManagedBy]: 'x' },
    ],
  ];
  test.each(labels)('%s', (_, of, want) => {
    expect(expectedMirrorLabels(endpoints({ labels: of }))).toEqual(want);
  });

  const annotations: [string, Labels, Labels][] = [
    ['no annotations', {}, {}],
    ['annotations of the Endpoints', { a: '1' }, { a: '1' }],
    ['over-capacity', { [annotation.overCapacity]: 'x' }, { [annotation.overCapacity]: 'x' }],
    ['not the trigger time', { [annotation.triggerTime]: 'x', a: '1' }, { a: '1' }],
    ['not what was last applied', { [annotation.lastApplied]: 'x' }, {}],
  ];
  test.each(annotations)('%s', (_, of, want) => {
    expect(expectedMirrorAnnotations(endpoints({ annotations: of }))).toEqual(want);
  });
});
