// The output of the endpointslice controller, compared on whole clusters: each address over all
// slices, each slice, and what must be true of them together.

import { describe, expect, test } from 'vitest';

import type { AnyObject, Endpoint, EndpointSlice, Node } from '../../../src/model/objects.ts';
import { label, manager } from '../../../src/model/objects.ts';
import {
  address,
  auditService,
  endpoint,
  endpoints,
  foreign,
  node,
  owner,
  pod,
  service,
  slice,
  sliceLabels,
  subset,
  target,
  textsOf,
  times,
} from '../../build.ts';

type Slices = Parameters<typeof slice>[0];

/** Service, pod and Node as built, with these slices. */
function differencesOf(
  slices: readonly EndpointSlice[],
  more: readonly AnyObject[] = [],
  of = service(),
) {
  const objects = [of, pod(), node(), endpoints(), ...slices, ...more];
  return textsOf(auditService(objects, { maxEndpointsPerSlice: 3 }), 'endpointslices').sort();
}

const empty = (more: Slices = {}) =>
  slice({ name: 'web-empty', endpoints: [], ports: [], ...more });

describe('addresses', () => {
  const missing = 'slice-endpoint-missing warning';
  const stale = endpoint({ addresses: ['10.0.0.9'], target: null });
  const cases: [string, EndpointSlice[], string[]][] = [
    ['as expected', [slice()], []],
    ['in no slice', [empty()], [missing]],
    ['no slice at all', [], [missing]],
    ['only in a slice of another client', [foreign()], [missing]],
    [
      'in a slice of another Service',
      [slice({ labels: { ...sliceLabels, [label.serviceName]: 'api' }, owners: [] })],
      [missing],
    ],
    ['in two slices', [slice(), slice({ name: 'web-2' })], ['slice-duplicate info']],
    [
      'in two slices that disagree',
      [slice(), slice({ name: 'web-2', endpoints: [endpoint({ ready: false })] })],
      ['slice-duplicate-conflicting warning'],
    ],
    [
      'of no pod, in two slices',
      [
        slice({ endpoints: [endpoint(), stale] }),
        slice({ name: 'web-2', endpoints: [stale] }),
        slice({ name: 'web-3', endpoints: [stale] }),
      ],
      ['slice-duplicate info', 'slice-duplicate info', 'slice-endpoint-unexpected critical'],
    ],
  ];
  test.each(cases)('%s', (_, slices, want) => {
    expect(differencesOf(slices)).toEqual(want);
  });
});

describe('addresses of no pod', () => {
  const listing = (one: Partial<Endpoint>) => [
    slice({ endpoints: [endpoint(), endpoint({ addresses: ['10.0.0.9'], ...one })] }),
  ];
  const unexpected = 'slice-endpoint-unexpected';
  const other = pod({ name: 'web-9', ips: ['10.0.0.9'] });
  const ofOther = { target: target('web-9') };
  const cases: [string, Partial<Endpoint>, AnyObject[], string[]][] = [
    ['no pod', { target: null }, [], [`${unexpected} critical`]],
    ['no pod, not ready', { target: null, ready: false }, [], [`${unexpected} warning`]],
    [
      'a terminal pod: no controller was woken',
      ofOther,
      [{ ...other, terminal: true }],
      [`${unexpected} critical pod-phase-unnoticed`],
    ],
    [
      'a terminal pod, not ready',
      { ...ofOther, ready: false, serving: false },
      [{ ...other, terminal: true, ready: false }],
      [`${unexpected} info pod-phase-unnoticed`],
    ],
    [
      'a terminal pod that became not ready, which wakes the controller',
      ofOther,
      [{ ...other, terminal: true, ready: false }],
      [`${unexpected} critical`],
    ],
    [
      'a pod whose Node is gone',
      { ...ofOther, node: 'node-z' },
      [{ ...other, node: 'node-z' }],
      [`${unexpected} warning node-change-unnoticed`],
    ],
    [
      'a pod that moved to a missing Node',
      ofOther,
      [{ ...other, node: 'node-z' }],
      [`${unexpected} warning`],
    ],
    ['a pod that is not selected', ofOther, [{ ...other, labels: {} }], [`${unexpected} critical`]],
    [
      'a pod of another uid',
      ofOther,
      [{ ...other, uid: 'new', terminal: true }],
      [`${unexpected} critical`],
    ],
  ];
  test.each(cases)('%s', (_, one, more, want) => {
    expect(differencesOf(listing(one), more)).toEqual(want);
  });
});

describe('one slice', () => {
  const labels = 'slice-labels-different warning';
  const cases: [string, Slices, string[]][] = [
    ['as expected', {}, []],
    ['a label too many', { labels: { ...sliceLabels, a: '1' } }, [labels]],
    [
      'the headless label too many',
      { labels: { ...sliceLabels, [label.headless]: '' } },
      [`${labels} headless-label-kept`],
    ],
    ['no owner', { owners: [] }, ['slice-owner-different warning hand-edited']],
    [
      'an owner that is gone',
      { owners: [owner({ uid: 'old' })] },
      ['slice-owner-different warning'],
    ],
    ['foreign annotations', { annotations: { a: '1' } }, []],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(differencesOf([slice(more)])).toEqual(want);
  });

  test('with more endpoints than the limit is oversized', () => {
    const pods = times(4, (index) =>
      pod({ name: `web-${index + 1}`, ips: [`10.0.0.${index + 1}`] }),
    );
    const full = slice({
      endpoints: pods.map(({ name, ips }) => endpoint({ addresses: ips, target: target(name) })),
    });
    expect(differencesOf([full], pods.slice(1))).toEqual(['slice-oversized warning']);
  });

  test('an address type that the Service does not have', () => {
    const six = slice({ name: 'web-six', addressType: 'IPv6', endpoints: [] });
    expect(differencesOf([slice(), six])).toEqual(['slice-family-unexpected warning']);
  });

  test('an empty slice is one too many only beside another of its family', () => {
    expect(differencesOf([slice(), empty()])).toEqual(['slice-surplus-empty info']);
    expect(differencesOf([slice(), empty({ addressType: 'IPv6' })])).toEqual([
      'slice-family-unexpected warning',
    ]);
    expect(differencesOf([slice(), foreign({ endpoints: [] })])).toEqual([]);
  });
});

describe('without Service or selector', () => {
  const cases: [string, AnyObject[], string[]][] = [
    ['a slice of no Service', [slice()], ['slice-orphaned warning']],
    ['of another client for no Service', [foreign()], []],
    ['of a selectorless Service', [service({ selector: null }), slice()], []],
    ['of an ExternalName Service', [service({ type: 'ExternalName' }), slice()], []],
  ];
  test.each(cases)('%s', (_, objects, want) => {
    expect(textsOf(auditService(objects), 'endpointslices')).toEqual(want);
  });
});

describe('a slice that is taken from the controller', () => {
  const missing = 'slice-endpoint-missing warning slice-relabelled';
  const taken = 'slice-labels-different warning slice-relabelled';

  test('by its service-name', () => {
    const strayed = slice({ labels: { ...sliceLabels, [label.serviceName]: 'api' } });
    expect(differencesOf([strayed])).toEqual([missing, taken].sort());
    const nameless = slice({ labels: { [label.sliceManagedBy]: manager.slices } });
    expect(differencesOf([nameless])).toEqual([missing, taken].sort());
  });

  test('by its managed-by label: another client owns it, and only history has the reason', () => {
    const other = slice({ labels: { ...sliceLabels, [label.sliceManagedBy]: 'x' } });
    expect(differencesOf([other])).toEqual(['slice-endpoint-missing warning']);
  });

  test('it is not compared at the Service that it names', () => {
    const strayed = slice({
      name: 'api-1',
      owners: [owner({ name: 'api', uid: 'uid-api' })],
      endpoints: [endpoint({ addresses: ['10.9.9.9'] })],
    });
    const api = service({ name: 'api', selector: { app: 'api' } });
    expect(differencesOf([slice(), strayed], [api])).toEqual([]);
  });
});

describe('a placeholder', () => {
  const nobody = service({ selector: { app: 'nobody' } });
  const both = { ...nobody, ipFamilies: ['IPv4', 'IPv6'] };
  const wanted = 'slice-placeholder-missing warning';
  const cases: [string, typeof nobody, EndpointSlice[], string[]][] = [
    ['exists', nobody, [empty()], []],
    ['is missing', nobody, [], [wanted]],
    ['exists for one family of two', both, [empty()], [wanted]],
    ['exists for both', both, [empty(), empty({ name: 'six', addressType: 'IPv6' })], []],
    ['is not another client’s', nobody, [foreign({ endpoints: [] })], [wanted]],
    ['has ports of before', nobody, [slice({ endpoints: [] })], []],
  ];
  test.each(cases)('%s', (_, of, slices, want) => {
    expect(differencesOf(slices, [], of)).toEqual(want);
  });

  test('is not missing where an endpoint is', () => {
    expect(differencesOf([])).toEqual(['slice-endpoint-missing warning']);
  });
});

const auto = service({ topologyAuto: true });
const zones: Node[] = ['a', 'b'].map((name) =>
  node({ name: `node-${name}`, zone: `zone-${name}` }),
);
const two = (hints: (string | null)[], ready = true): EndpointSlice =>
  slice({
    endpoints: hints.map((zone, index) =>
      endpoint({
        addresses: [`10.0.0.${index + 1}`],
        target: target(`web-${index + 1}`),
        node: zones[index]?.name ?? '',
        zone: zones[index]?.zone ?? '',
        ready,
        serving: ready,
        forZones: zone === null ? null : [zone],
      }),
    ),
  });
const toNodes = (...of: Parameters<typeof two>): EndpointSlice => {
  const made = two(...of);
  const hinted = made.endpoints.map((one) => ({ ...one, forNodes: [one.node ?? ''] }));
  return { ...made, endpoints: hinted };
};
const pods = (ready = true) => [
  pod({ ready }),
  pod({ name: 'web-2', ips: ['10.0.0.2'], node: 'node-b', ready }),
];
const wrong = 'slice-hints-different warning';

const hintCases: [string, AnyObject[], string[]][] = [
  ['a hint each', [...pods(), ...zones, two(['zone-a', 'zone-b'])], []],
  ['of another zone', [...pods(), ...zones, two(['zone-b', 'zone-a'])], []],
  ['none at all', [...pods(), ...zones, two([null, null])], []],
  ['one of two', [...pods(), ...zones, two(['zone-a', null])], [wrong]],
  ['a zone that never was', [...pods(), ...zones, two(['zone-a', 'zone-x'])], [wrong]],
  [
    'where there must be none',
    [
      ...pods(),
      ...zones.slice(0, 1),
      node({ name: 'node-b', zone: 'zone-b', ready: false }),
      two(['zone-a', 'zone-b']),
    ],
    [wrong],
  ],
  ['for Nodes alone', [...pods(), ...zones, toNodes([null, null])], [wrong]],
  [
    'for Nodes beside zones, which no client sees',
    [...pods(), ...zones, toNodes(['zone-a', 'zone-b'])],
    [],
  ],
  ['for a Node alone at one', [...pods(), ...zones, toNodes(['zone-a', null])], [wrong]],
  ['for Nodes where none are ready', [...pods(false), ...zones, toNodes([null, null], false)], []],
  ['not ready ones do not count', [...pods(false), ...zones, two(['zone-a', null], false)], []],
];

describe('topology-mode Auto', () => {
  test.each(hintCases)('%s', (_, objects, want) => {
    expect(textsOf(auditService([auto, endpoints(), ...objects]), 'endpointslices')).toEqual(want);
  });

  test('a zone that a Node had before is no wrong one', () => {
    const of = auditService([
      auto,
      ...pods(),
      ...zones,
      node({ name: 'node-c', zone: 'zone-x' }),
      node({ name: 'node-c', ready: false }),
      two(['zone-a', 'zone-x']),
    ]);
    expect(textsOf(of, 'endpointslices')).toEqual([]);
  });

  test('each address type by itself', () => {
    const six = slice({
      name: 'web-six',
      addressType: 'IPv6',
      endpoints: [endpoint({ addresses: ['fd00::1'], forZones: null })],
    });
    const dual = { ...auto, ipFamilies: ['IPv4', 'IPv6'] };
    const first = pod({ ips: ['10.0.0.1', 'fd00::1'] });
    const objects: AnyObject[] = [dual, first, ...pods().slice(1)];
    const of = auditService([...objects, ...zones, two(['zone-a', 'zone-b']), six]);
    expect(textsOf(of, 'endpointslices')).toEqual([]);
  });
});

describe('of a dump without uids nothing is found by them', () => {
  const nameless = service({ uid: '' });
  const written = slice({ endpoints: [endpoint({ target: target('web-1', { uid: 'uid-1' }) })] });
  const pods = [pod({ uid: '' })];
  const cases: [string, readonly AnyObject[], string[]][] = [
    ['a Service that is owner', [nameless, pod(), slice()], []],
    ['a Service whose slice names no owner', [nameless, pod(), slice({ owners: [] })], []],
    [
      'another Service without uid',
      [nameless, service({ name: 'api', uid: '' }), pod(), slice()],
      [],
    ],
    ['pods that are referred to', [service(), ...pods, written], []],
    [
      'pods of another name',
      [service(), ...pods, slice({ endpoints: [endpoint({ target: target('web-2') })] })],
      ['slice-endpoint-different warning'],
    ],
  ];
  test.each(cases)('%s', (_, objects, want) => {
    expect(textsOf(auditService([...objects, node()]), 'endpointslices').sort()).toEqual(want);
  });

  test('nor of Endpoints', () => {
    const listed = [address({ target: target('web-1', { uid: 'uid-1' }) })];
    const written = endpoints({ subsets: [subset(listed)] });
    expect(textsOf(auditService([service(), ...pods, node(), written]), 'endpoints')).toEqual([]);
  });
});
