// Endpoints: their addresses and ports, their labels, and their truncation.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Labels } from '../../src/model/objects.ts';
import { label, portKey } from '../../src/model/objects.ts';
import type { PortGroup, SubsetCounts } from '../../src/shadow/endpoints.ts';
import {
  endpointsCapacity,
  expectedAddress,
  expectedLabels,
  isHeadless,
  isSelected,
  isTruncationOf,
  subsetCounts,
  truncation,
} from '../../src/shadow/endpoints.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { containerPort, pod, port, service, servicePort } from '../build.ts';

type Services = Parameters<typeof service>[0];
type Pods = Parameters<typeof pod>[0];

describe('isSelected and isHeadless', () => {
  const cases: [string, Services, boolean, boolean][] = [
    ['a Service with selector', {}, true, false],
    ['headless', { clusterIP: 'None' }, true, true],
    ['no cluster IP yet', { clusterIP: '' }, true, true],
    ['without selector', { selector: null }, false, false],
    ['ExternalName with selector', { type: 'ExternalName', clusterIP: '' }, false, true],
    ['LoadBalancer', { type: 'LoadBalancer' }, true, false],
  ];
  test.each(cases)('%s', (_, more, selected, headless) => {
    expect(isSelected(service(more))).toBe(selected);
    expect(isHeadless(service(more))).toBe(headless);
  });
});

describe('expectedAddress: readiness', () => {
  const published = { publishNotReadyAddresses: true };
  const cases: [string, Services, Pods, boolean | null][] = [
    ['a ready pod', {}, {}, true],
    ['a pod that is not ready', {}, { ready: false }, false],
    ['not ready, but published', published, { ready: false }, true],
    ['a terminating pod', {}, { deleting: true }, null],
    ['a terminating pod, published', published, { deleting: true }, true],
    ['a terminal pod', {}, { terminal: true }, null],
    ['a terminal pod, published', published, { terminal: true }, null],
    ['no address yet', {}, { ips: [] }, null],
    ['no node', {}, { node: '' }, true],
  ];
  test.each(cases)('%s', (_, of, on, want) => {
    expect(expectedAddress(service(of), pod(on), newestRelease)?.ready ?? null).toBe(want);
  });
});

describe('expectedAddress: which address', () => {
  const both = ['10.0.0.1', 'fd00::1'];
  const noFamilies = { ipFamilies: [] };
  const headless = { ipFamilies: [], clusterIP: 'None' };
  const cases: [string, Services, string[], string | null][] = [
    ['IPv4', {}, both, '10.0.0.1'],
    ['IPv6', { ipFamilies: ['IPv6'] }, both, 'fd00::1'],
    ['the primary of two families', { ipFamilies: ['IPv6', 'IPv4'] }, both, 'fd00::1'],
    ['no address of the primary', { ipFamilies: ['IPv6', 'IPv4'] }, ['10.0.0.1'], null],
    ['the first of the family', {}, ['fd00::1', '10.0.0.2', '10.0.0.1'], '10.0.0.2'],
    ['in canonical form', {}, ['010.0.0.01'], '10.0.0.1'],
    ['mapped is IPv4', {}, ['::ffff:10.0.0.1'], '10.0.0.1'],
    ['mapped is not IPv6', { ipFamilies: ['IPv6'] }, ['::ffff:10.0.0.1'], null],
    ['no families: as the cluster IP', noFamilies, both, '10.0.0.1'],
    ['an IPv6 cluster IP', { ...noFamilies, clusterIP: 'fd96::1' }, both, 'fd00::1'],
    ['headless: as the first of the pod', headless, ['fd00::1', '10.0.0.1'], 'fd00::1'],
    ['headless: IPv4 first', headless, both, '10.0.0.1'],
    ['no address at all', {}, ['web'], null],
  ];
  test.each(cases)('%s', (_, of, ips, want) => {
    expect(expectedAddress(service(of), pod({ ips }), newestRelease)?.ip ?? null).toBe(want);
  });
});

describe('expectedAddress: ports', () => {
  const named = servicePort({ targetPort: 'http' });
  const http = { ports: [containerPort('http', 8080)] };
  const sidecar = { ports: [containerPort('http', 9090, true)] };
  const cases: [string, Services, Pods, string, number[] | null][] = [
    ['a number', {}, {}, '1.36', [8080]],
    ['a name', { ports: [named] }, http, '1.36', [8080]],
    ['a name that the pod lacks', { ports: [named] }, {}, '1.36', null],
    ['one of two', { ports: [servicePort({ name: 'b' }), named] }, {}, '1.36', [8080]],
    ['headless without ports', { ports: [], clusterIP: 'None' }, {}, '1.36', []],
    ['a cluster IP without ports', { ports: [] }, {}, '1.36', null],
    ['no cluster IP yet, without ports', { ports: [], clusterIP: '' }, {}, '1.36', null],
    ['headless, no such name', { ports: [named], clusterIP: 'None' }, {}, '1.36', null],
    ['a sidecar before 1.32', { ports: [named] }, sidecar, '1.31', null],
    ['a sidecar since 1.32', { ports: [named] }, sidecar, '1.32', [9090]],
  ];
  test.each(cases)('%s', (_, of, on, version, want) => {
    const release = releaseOf(version) ?? newestRelease;
    const got = expectedAddress(service(of), pod(on), release);
    expect(got?.ports.map(({ port }) => port) ?? null).toEqual(want);
  });

  test('names the node, and the hostname only within the subdomain', () => {
    const named = pod({ hostname: 'a', subdomain: 'web', node: 'node-b' });
    const got = expectedAddress(service(), named, newestRelease);
    expect(got).toMatchObject({ hostname: 'a', node: 'node-b', pod: named });
    expect(expectedAddress(service(), pod(), newestRelease)?.hostname).toBe('');
  });
});

describe('expectedLabels', () => {
  const managed = { [label.endpointsManagedBy]: 'endpoint-controller' };
  const headless = { [label.headless]: '' };
  const cases: [string, Services, string, Labels][] = [
    ['none', {}, '1.36', managed],
    ['before 1.33', {}, '1.32', {}],
    ['of the Service', { labels: { a: '1' } }, '1.36', { ...managed, a: '1' }],
    ['headless', { clusterIP: 'None' }, '1.36', { ...managed, ...headless }],
    ['no headless label by hand', { labels: headless }, '1.36', managed],
    [
      'reserved ones too',
      { labels: { [label.serviceName]: 'x' } },
      '1.30',
      { [label.serviceName]: 'x' },
    ],
    ['managed-by is forced', { labels: { [label.endpointsManagedBy]: 'x' } }, '1.36', managed],
    [
      'managed-by passes before 1.33',
      { labels: { [label.endpointsManagedBy]: 'x' } },
      '1.30',
      { [label.endpointsManagedBy]: 'x' },
    ],
  ];
  test.each(cases)('%s', (_, more, version, want) => {
    const of = service(more);
    const labels = { ...of.labels };
    expect(expectedLabels(of, releaseOf(version) ?? newestRelease)).toEqual(want);
    expect(of.labels).toEqual(labels);
  });
});

describe('subsetCounts', () => {
  const [a, b, c] = [port({ port: 1 }), port({ port: 2 }), port({ port: 3 })];
  const group = (ports: PortGroup['ports'], ready: number, notReady = 0): PortGroup[] =>
    [
      { ports, ready: true, pods: ready },
      { ports, ready: false, pods: notReady },
    ].filter(({ pods }) => pods > 0);
  const cases: [string, PortGroup[][], [string[], number, number][]][] = [
    ['nothing', [], []],
    ['one group', [group([a], 2, 1)], [[[portKey(a)], 2, 1]]],
    ['two ports of one group', [group([a, b], 2)], [[[portKey(a), portKey(b)], 2, 0]]],
    ['no ports', [group([], 3)], [[[], 3, 0]]],
    [
      'a port that two groups offer',
      [group([a, b], 2), group([a, c], 3, 1)],
      [
        [[portKey(a)], 5, 1],
        [[portKey(b)], 2, 0],
        [[portKey(c)], 3, 1],
      ],
    ],
    [
      'ports that the same groups offer share a subset',
      [group([a, b, c], 2), group([a, b], 3)],
      [
        [[portKey(a), portKey(b)], 5, 0],
        [[portKey(c)], 2, 0],
      ],
    ],
  ];
  test.each(cases)('%s', (_, groups, want) => {
    const got = subsetCounts(groups.flat()).map((one) => [one.portKeys, one.ready, one.notReady]);
    expect(got).toEqual(want);
  });
});

const counts = (ready: number, notReady: number): SubsetCounts => ({
  portKeys: [],
  ready,
  notReady,
});

describe('truncation', () => {
  const cases: [string, [number, number][], [number, number][] | null][] = [
    ['what fits', [[1000, 0]], null],
    ['what fits with those not ready', [[400, 600]], null],
    ['one too many', [[1001, 0]], [[1000, 0]]],
    ['not ready ones go first', [[900, 200]], [[900, 100]]],
    ['ready ones fill it', [[1000, 5]], [[1000, 0]]],
    ['only ready ones are left', [[1200, 300]], [[1000, 0]]],
    [
      'in proportion, rounded up',
      [
        [760, 300],
        [700, 280],
        [60, 20],
      ],
      [
        [500, 0],
        [461, 0],
        [40, 0],
      ],
    ],
    [
      'those not ready in proportion',
      [
        [600, 100],
        [300, 200],
      ],
      [
        [600, 34],
        [300, 67],
      ],
    ],
  ];
  test.each(cases)('%s', (_, sizes, want) => {
    const got = truncation(sizes.map(([ready, notReady]) => counts(ready, notReady)));
    expect(got?.subsets.map(({ ready, notReady }) => [ready, notReady]) ?? null).toEqual(want);
  });
});

type Sizes = [number, number][];
const three: Sizes = [
  [760, 300],
  [700, 280],
  [60, 20],
];
const two: Sizes = [
  [600, 100],
  [300, 200],
];

const truncationCases: [string, Sizes, Sizes, boolean][] = [
  [
    'the last has what is left',
    three,
    [
      [500, 0],
      [461, 0],
      [39, 0],
    ],
    true,
  ],
  [
    'in another order',
    three,
    [
      [499, 0],
      [461, 0],
      [40, 0],
    ],
    true,
  ],
  [
    'two have a part',
    three,
    [
      [499, 0],
      [460, 0],
      [41, 0],
    ],
    false,
  ],
  [
    'more than its share',
    three,
    [
      [501, 0],
      [461, 0],
      [38, 0],
    ],
    false,
  ],
  [
    'not all of the capacity',
    three,
    [
      [500, 0],
      [461, 0],
      [38, 0],
    ],
    false,
  ],
  [
    'one that is not ready',
    three,
    [
      [500, 0],
      [461, 0],
      [38, 1],
    ],
    false,
  ],
  [
    'a subset that is missing',
    three,
    [
      [500, 0],
      [461, 0],
    ],
    false,
  ],
  [
    'those not ready',
    two,
    [
      [600, 34],
      [300, 66],
    ],
    true,
  ],
  [
    'those not ready, in another order',
    two,
    [
      [600, 33],
      [300, 67],
    ],
    true,
  ],
  [
    'ready ones may not be cut',
    two,
    [
      [599, 34],
      [300, 67],
    ],
    false,
  ],
  [
    'ready ones may not be more',
    two,
    [
      [601, 33],
      [300, 66],
    ],
    false,
  ],
];

describe('isTruncationOf', () => {
  const sized = (sizes: Sizes) => sizes.map(([ready, notReady]) => ({ ready, notReady }));
  test.each(truncationCases)('%s', (_, sizes, actual, want) => {
    const allowed = truncation(sized(sizes).map((one) => ({ ...one, portKeys: [] })));
    if (allowed === null) throw new Error('Nothing to truncate');
    expect(isTruncationOf(allowed, sized(actual))).toBe(want);
  });

  test('whatever the order of the subsets, what upstream leaves is allowed', () => {
    const size = fc.tuple(fc.nat(700), fc.nat(700));
    const property = fc.property(fc.array(size, { maxLength: 6 }), fc.nat(), (sizes, seed) => {
      const allowed = truncation(sized(sizes).map((one) => ({ ...one, portKeys: [] })));
      fc.pre(allowed !== null);
      const order = sizes.map((_, index) => (index + seed) % sizes.length);
      if (seed % 2 === 1) order.reverse();
      expect(isTruncationOf(allowed, truncatedInOrder(sizes, order))).toBe(true);
    });
    fc.assert(property);
  });
});

/** truncateEndpoints of the endpoints controller, for subsets in this order. */
function truncatedInOrder(sizes: readonly [number, number][], order: readonly number[]) {
  const sum = (index: 0 | 1): number => sizes.reduce((total, size) => total + size[index], 0);
  const cutsReady = sum(0) > endpointsCapacity;
  const most = cutsReady ? endpointsCapacity : endpointsCapacity - sum(0);
  const total = cutsReady ? sum(0) : sum(1);
  let left = most;
  const result = sizes.map(([ready, notReady]) => ({ ready, notReady }));
  for (const index of order) {
    const one = result[index];
    if (one === undefined) continue;
    const size = cutsReady ? one.ready : one.notReady;
    const kept = Math.min(Math.ceil((size / total) * most), left, size);
    left -= kept;
    if (cutsReady) Object.assign(one, { ready: kept, notReady: 0 });
    else one.notReady = kept;
  }
  return result;
}
