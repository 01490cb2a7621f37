// The output of the endpointslicemirroring controller, compared on whole clusters.

import { describe, expect, test } from 'vitest';

import type { AnyObject, Endpoints, EndpointSlice, Labels } from '../../../src/model/objects.ts';
import { annotation, label, manager } from '../../../src/model/objects.ts';
import {
  address,
  auditService,
  endpoint,
  endpoints,
  foreign,
  mirror,
  owner,
  port,
  service,
  slice,
  subset,
  target,
  textsOf,
} from '../../build.ts';

const selectorless = service({ selector: null });
const byHand = (more: Parameters<typeof endpoints>[0] = {}): Endpoints =>
  endpoints({ labels: {}, ...more });
const mirrored = (more: Parameters<typeof endpoint>[0] = {}) =>
  endpoint({ serving: null, terminating: null, zone: null, ...more });

function differencesOf(
  from: Endpoints | null,
  slices: readonly EndpointSlice[],
  of: AnyObject | null = selectorless,
) {
  const objects = [of, from, ...slices].filter((one) => one !== null);
  return textsOf(auditService(objects), 'mirrored').sort();
}

describe('a slice of several subsets', () => {
  const addresses = Array.from({ length: 1200 }, (_, at) => `10.1.${at >> 8}.${at & 255}`);
  const ports = [port({ appProtocol: 'http' })];
  const listed = (from: number) =>
    subset(
      addresses.slice(from, from + 600).map((ip) => address({ ip, target: null })),
      ports,
    );
  const copied = (count: number) =>
    mirror({
      ports,
      endpoints: addresses.slice(-count).map((ip) => mirrored({ addresses: [ip], target: null })),
    });
  const both = byHand({ subsets: [listed(0), listed(600)] });

  test.each([
    [1000, 0],
    [998, 2],
  ])('that has any %i of 1,200 addresses misses %i', (count, missing) => {
    expect(differencesOf(both, [copied(count)])).toHaveLength(missing);
  });
});

describe('what is mirrored', () => {
  const unexpected = 'mirror-slice-unexpected critical';
  const missing = 'mirror-endpoint-missing warning';
  const cases: [string, Endpoints | null, EndpointSlice[], AnyObject | null, string[]][] = [
    ['as expected', byHand(), [mirror()], selectorless, []],
    ['not at all', byHand(), [], selectorless, [missing]],
    ['only by another client', byHand(), [foreign()], selectorless, [missing]],
    ['no addresses, no slice', byHand({ subsets: [] }), [], selectorless, []],
    [
      'an empty slice of no addresses',
      byHand({ subsets: [] }),
      [mirror({ endpoints: [] })],
      selectorless,
      ['mirror-slice-duplicate info'],
    ],
    ['Endpoints are gone', null, [mirror()], selectorless, [unexpected]],
    ['the Service is gone', byHand(), [mirror()], null, [unexpected]],
    ['the Service has a selector', byHand(), [mirror()], service(), [unexpected]],
    [
      'skip-mirror',
      byHand({ labels: { [label.skipMirror]: 'true' } }),
      [mirror()],
      selectorless,
      [unexpected],
    ],
    [
      'leader election',
      byHand({ annotations: { [annotation.leader]: '{}' } }),
      [mirror()],
      selectorless,
      [unexpected],
    ],
    [
      'skip-mirror, not mirrored',
      byHand({ labels: { [label.skipMirror]: 'true' } }),
      [],
      selectorless,
      [],
    ],
  ];
  test.each(cases)('%s', (_, from, slices, of, want) => {
    expect(differencesOf(from, slices, of)).toEqual(want);
  });

  test('what a selector left behind is mirrored, beside the slices it left', () => {
    const labels = {
      [label.endpointsManagedBy]: manager.endpoints,
      [label.serviceName]: 'web',
      [label.sliceManagedBy]: manager.mirroring,
    };
    expect(differencesOf(endpoints(), [slice(), mirror({ labels })])).toEqual([]);
  });
});

describe('one endpoint', () => {
  const conditions = 'mirror-conditions-different';
  const cases: [string, Parameters<typeof mirrored>[0], string[]][] = [
    ['not ready', { ready: false }, [`${conditions} warning`]],
    ['readiness absent', { ready: null }, [`${conditions} warning`]],
    ['serving filled in', { serving: true }, [`${conditions} info`]],
    ['terminating filled in', { terminating: false }, [`${conditions} info`]],
    ['another node', { node: 'node-b' }, ['mirror-endpoint-different warning']],
    ['a zone', { zone: 'zone-a' }, ['mirror-endpoint-different warning']],
    ['a hostname', { hostname: 'a' }, ['mirror-endpoint-different warning']],
    [
      'an earlier pod',
      { target: target('web-1', { uid: 'old' }) },
      ['mirror-endpoint-different warning'],
    ],
    [
      'an earlier Node of the name',
      { target: target('web-1', { kind: 'Node' }) },
      ['mirror-endpoint-different warning'],
    ],
    [
      'a pod of that name elsewhere',
      { target: target('web-1', { namespace: 'bank' }) },
      ['mirror-endpoint-different warning'],
    ],
    [
      'a target without kind',
      { target: { ...target('web-1'), kind: '' } },
      ['mirror-endpoint-different warning'],
    ],
    [
      'a further address',
      { addresses: ['10.0.0.1', '10.0.0.9'] },
      ['mirror-endpoint-different warning'],
    ],
    [
      'its address twice',
      { addresses: ['10.0.0.1', '10.0.0.1'] },
      ['mirror-endpoint-different warning'],
    ],
    [
      'a further address before its own',
      { addresses: ['10.0.0.0', '10.0.0.1'] },
      ['mirror-endpoint-missing warning', 'mirror-endpoint-unexpected critical'],
    ],
    [
      'another address',
      { addresses: ['10.0.0.9'] },
      ['mirror-endpoint-missing warning', 'mirror-endpoint-unexpected critical'],
    ],
    ['in other words', { addresses: ['10.0.0.01'] }, []],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(differencesOf(byHand(), [mirror({ endpoints: [mirrored(more)] })])).toEqual(want);
  });

  test('shown ready though it is not: traffic goes astray', () => {
    const from = byHand({ subsets: [subset([address({ ready: false })])] });
    expect(differencesOf(from, [mirror()])).toEqual([`${conditions} critical`]);
    expect(differencesOf(from, [mirror({ endpoints: [mirrored({ ready: false })] })])).toEqual([]);
  });

  test('where subsets disagree either readiness is right', () => {
    const h2c = [port({ appProtocol: 'h2c' })];
    const from = byHand({
      subsets: [subset([address()], h2c), subset([address({ ready: false })], h2c)],
    });
    for (const ready of [true, false]) {
      expect(
        differencesOf(from, [mirror({ ports: h2c, endpoints: [mirrored({ ready })] })]),
      ).toEqual([]);
    }
  });

  test('one too many, not ready, harms less', () => {
    const extra = mirrored({ addresses: ['10.0.0.9'], ready: false, target: null });
    const of = mirror({ endpoints: [mirrored(), extra] });
    expect(differencesOf(byHand(), [of])).toEqual(['mirror-endpoint-unexpected warning']);
  });
});

const labels = (more: Labels): Labels => ({
  [label.serviceName]: 'web',
  [label.sliceManagedBy]: manager.mirroring,
  ...more,
});

const sliceCases: [string, Endpoints, EndpointSlice[], string[]][] = [
  [
    'other ports',
    byHand(),
    [mirror({ ports: [port({ port: 1 })] })],
    ['mirror-ports-different critical'],
  ],
  [
    'a label missing',
    byHand({ labels: { a: '1' } }),
    [mirror()],
    ['mirror-labels-different warning'],
  ],
  [
    'a label too many',
    byHand(),
    [mirror({ labels: labels({ a: '1' }) })],
    ['mirror-labels-different warning'],
  ],
  // The mirroring controller compares this label as it does all others.
  [
    'the headless label too many',
    byHand(),
    [mirror({ labels: labels({ [label.headless]: '' }) })],
    ['mirror-labels-different warning'],
  ],
  [
    'an annotation missing',
    byHand({ annotations: { a: '1' } }),
    [mirror()],
    ['mirror-annotations-different info'],
  ],
  [
    'an annotation too many',
    byHand(),
    [mirror({ annotations: { a: '1' } })],
    ['mirror-annotations-different info'],
  ],
  ['the trigger time', byHand({ annotations: { [annotation.triggerTime]: 'x' } }), [mirror()], []],
  ['no owner', byHand(), [mirror({ owners: [] })], ['mirror-owner-different info hand-edited']],
  [
    'an owner of another kind',
    byHand(),
    [mirror({ owners: [owner({ uid: 'other' })] })],
    ['mirror-owner-different info hand-edited'],
  ],
  [
    'its owner and one of before',
    byHand(),
    [mirror({ owners: [...mirror().owners, owner({ kind: 'Endpoints', uid: 'old' })] })],
    ['mirror-owner-different warning'],
  ],
  [
    'Endpoints of before',
    byHand(),
    [mirror({ owners: [owner({ kind: 'Endpoints', uid: 'old' })] })],
    ['mirror-owner-different warning'],
  ],
  [
    'an owner that cannot be distinguished from another',
    byHand({ uid: '' }),
    [mirror({ owners: [owner({ kind: 'Endpoints', uid: 'old' })] })],
    [],
  ],
  [
    'one too many',
    byHand(),
    [mirror(), mirror({ name: 'web-second' })],
    ['mirror-slice-duplicate info', 'mirror-slice-duplicate info'],
  ],
  [
    'an address that is not in the Endpoints, in two slices',
    byHand(),
    ['web-first', 'web-second'].map((name) =>
      mirror({
        name,
        endpoints: [
          ...(name === 'web-first' ? [mirrored()] : []),
          mirrored({ addresses: ['10.0.0.9'], target: null }),
        ],
      }),
    ),
    [
      'mirror-endpoint-unexpected critical',
      'mirror-slice-duplicate info',
      'mirror-slice-duplicate info',
    ],
  ],
];

describe('slices', () => {
  test.each(sliceCases)('%s', (_, from, slices, want) => {
    expect(differencesOf(from, slices)).toEqual(want);
  });

  test('a slice of another service-name is still the mirror of its owner', () => {
    const strayed = mirror({ labels: labels({ [label.serviceName]: 'api' }) });
    expect(differencesOf(byHand(), [strayed])).toEqual([
      'mirror-endpoint-missing warning',
      'mirror-labels-different warning',
    ]);
  });

  test('slices of two families to recycle may fail for good', () => {
    const from = byHand({
      subsets: [
        subset(
          [address({ target: null }), address({ ip: 'fd00::1', target: null })],
          [port({ port: 1 })],
        ),
      ],
    });
    const got = differencesOf(from, [mirror()]);
    expect(got.length).toBeGreaterThan(0);
    for (const one of got) expect(one).toMatch(/ mirror-recycling-fails$/);
  });
});
