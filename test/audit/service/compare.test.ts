// One address at a time: which differences are named, at what severity, and in which words.

import { describe, expect, test } from 'vitest';

import type { Difference } from '../../../src/audit/finding/difference.ts';
import { detailsOf, difference } from '../../../src/audit/finding/difference.ts';
import type { AddressEntries } from '../../../src/audit/service/address-index.ts';
import type { ServiceState } from '../../../src/audit/service/cache.ts';
import { createServiceState } from '../../../src/audit/service/cache.ts';
import { isReady } from '../../../src/audit/service/compare.ts';
import { compareEndpointsAddress } from '../../../src/audit/service/endpoints.ts';
import { compareSlicesAddress } from '../../../src/audit/service/endpointslices.ts';
import type { EndpointAddress, Pod } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import type { HintMode } from '../../../src/shadow/hints.ts';
import {
  address,
  contextOf,
  endpoint,
  endpoints,
  node,
  pod,
  port,
  service,
  slice,
  storeOf,
  target,
} from '../../build.ts';

const brief = ({ code, severity, field, expected, actual }: Difference): string =>
  [code, severity, field, expected, actual].map((part) => part ?? '-').join(' | ');

const codes = (found: readonly Difference[]): string[] => found.map(({ code }) => code);

const listed = (more: Partial<EndpointAddress> = {}, ports = [port()]): EndpointAddress => {
  return { ...address(more), ports };
};

const entriesOf = (
  record: ServiceState,
  members: readonly Pod[],
  entries: Partial<AddressEntries>,
): AddressEntries => ({
  ip: '10.0.0.1',
  record,
  pods: members,
  members: [...members],
  listed: [],
  sliced: [],
  ...entries,
});

function compared(members: readonly Pod[], actual: readonly EndpointAddress[], truncated = false) {
  const record = createServiceState('shop/web');
  const others = Array.from({ length: truncated ? 1001 : 0 }, (_, index) => `shop/web-${index}`);
  const kind = { portMap: null, ports: [], ready: true, nodeless: false, stranded: false, pods: 0 };
  for (const other of others) record.members.set(other, kind);
  if (truncated) record.truncation = { subsets: [], cutsReady: true, kept: 1000 };
  Object.assign(record, { service: service(), endpoints: endpoints() });
  const entries = entriesOf(record, members, { listed: [...actual] });
  return compareEndpointsAddress(contextOf(storeOf([])), entries);
}

const atAddress = (
  on: Parameters<typeof pod>[0] | null,
  actual: readonly EndpointAddress[],
  truncated = false,
): Difference[] => compared(on === null ? [] : [pod(on)], actual, truncated);

const addressCases: [string, Parameters<typeof pod>[0] | null, EndpointAddress[], string[]][] = [
  ['as expected', {}, [listed()], []],
  ['nothing on either side', null, [], []],
  ['missing', {}, [], ['endpoints-address-missing']],
  ['of no pod', null, [listed()], ['endpoints-address-unexpected']],
  ['not ready', {}, [listed({ ready: false })], ['endpoints-readiness-different']],
  ['ready', { ready: false }, [listed()], ['endpoints-readiness-different']],
  ['another port', {}, [listed({}, [port({ port: 1 })])], ['endpoints-ports-different']],
  ['a port more', {}, [listed({}, [port(), port({ port: 1 })])], ['endpoints-ports-different']],
  ['a port twice', {}, [listed({}, [port(), port()])], []],
  ['no ports', {}, [listed({}, [])], ['endpoints-ports-different']],
  ['another node', {}, [listed({ node: 'node-b' })], ['endpoints-address-different']],
  ['no node', {}, [listed({ node: null })], ['endpoints-address-different']],
  ['another hostname', {}, [listed({ hostname: 'a' })], ['endpoints-address-different']],
  ['no target', {}, [listed({ target: null })], ['endpoints-address-different']],
  ['another pod', {}, [listed({ target: target('x') })], ['endpoints-address-different']],
  [
    'an earlier pod of the name',
    {},
    [listed({ target: target('web-1', { uid: 'old' }) })],
    ['endpoints-address-different'],
  ],
  [
    'the right one and another',
    {},
    [listed({ target: target('x') }), listed()],
    ['endpoints-address-unexpected'],
  ],
  [
    'everything wrong',
    {},
    [listed({ ready: false, node: null }, [])],
    ['endpoints-readiness-different', 'endpoints-ports-different', 'endpoints-address-different'],
  ],
];

const truncatedCases: [string, EndpointAddress[], string[]][] = [
  ['an address that fell to truncation', [], []],
  ['some of its ports', [listed({}, [])], []],
  [
    'a port that it does not have',
    [listed({}, [port({ port: 1 })])],
    ['endpoints-ports-different'],
  ],
  ['not ready', [listed({ ready: false })], ['endpoints-readiness-different']],
];

describe('compareEndpointsAddress', () => {
  test.each(addressCases)('%s', (_, on, actual, want) => {
    expect(codes(atAddress(on, actual))).toEqual(want);
  });

  test.each(truncatedCases)('truncated: %s', (_, actual, want) => {
    expect(codes(atAddress({}, actual, true))).toEqual(want);
  });

  test('has the address, the pod and the fields of each difference', () => {
    const details = atAddress({}, [listed({ ready: false, node: null }, [])]).flatMap(detailsOf);
    const place = { address: '10.0.0.1', pod: 'shop/web-1', object: 'Endpoints shop/web' };
    const field = (code: string, name: string, want: string | null, got: string | null) => {
      const texts = { field: name, expected: want, actual: got };
      return { code: `endpoints-${code}-different`, ...place, ...texts };
    };
    expect(details).toEqual([
      field('readiness', 'ready', 'true', 'false'),
      field('ports', 'subsets.ports', 'http 8080/TCP', 'no ports'),
      field('address', 'nodeName', 'node-a', null),
    ]);
    expect(atAddress({}, []).flatMap(detailsOf)).toMatchObject([
      { ...place, field: 'subsets', expected: 'ready, http 8080/TCP', actual: null },
    ]);
    expect(atAddress(null, [listed({ target: null })]).flatMap(detailsOf)).toMatchObject([
      { ...place, pod: null, expected: null, actual: 'ready, http 8080/TCP' },
    ]);
  });

  test('describes each side of a difference by address, Pod, readiness and ports', () => {
    expect(atAddress({}, []).map(brief)).toEqual([
      'endpoints-address-missing | - | subsets | 10.0.0.1 of pod web-1, ready, http 8080/TCP | -',
    ]);
    expect(atAddress(null, [listed({ target: null })]).map(brief)).toEqual([
      'endpoints-address-unexpected | - | subsets | - | ' +
        '10.0.0.1 of no target, ready, http 8080/TCP',
    ]);
    expect(atAddress({ ready: false }, [listed()]).map(brief)).toEqual([
      'endpoints-readiness-different | - | subsets.addresses | ' +
        '10.0.0.1 of pod web-1 not ready | 10.0.0.1 of pod web-1 ready',
    ]);
    expect(atAddress({}, [listed({ node: null })]).map(brief)).toEqual([
      'endpoints-address-different | - | nodeName | ' +
        '10.0.0.1 of pod web-1: nodeName node-a | 10.0.0.1 of pod web-1: nodeName absent',
    ]);
  });

  test('only a pod that is not ready is missed quietly', () => {
    const quiet = (ready: boolean) => atAddress({ ready }, []).map((one) => one.quiet);
    expect(quiet(true)).toEqual([false]);
    expect(quiet(false)).toEqual([true]);
  });

  test.each([
    [{ terminal: true, ready: false }, 'pod-phase-unnoticed'],
    // What became not ready, or terminates, woke the controller.
    [{ terminal: true, ready: true }, null],
    [{ terminal: true, ready: false, deleting: true }, null],
  ])('the likely cause of an unexpected address of a pod with %o is %s', (change, likelyCause) => {
    const [got] = atAddress(change, [listed({ ready: false })]);
    expect(got).toMatchObject({ likelyCause, cause: null, severity: 'info' });
  });
});

describe('entries are paired by the pod they refer to', () => {
  const [one, two] = [pod(), pod({ name: 'web-2', ready: false })];
  const ofTwo = listed({ target: target('web-2'), ready: false });
  const cases: [string, EndpointAddress[], string[]][] = [
    ['in order', [listed(), ofTwo], []],
    ['in another order', [ofTwo, listed()], []],
    ['one missing', [ofTwo], ['endpoints-address-missing web-1']],
    [
      'by uid before name',
      [listed({ target: target('web-1', { uid: 'old' }) }), ofTwo, listed()],
      ['endpoints-address-unexpected old'],
    ],
    [
      'what refers to no pod is paired as it comes',
      [listed({ target: null }), ofTwo],
      ['endpoints-address-different web-1'],
    ],
  ];
  test.each(cases)('%s', (_, actual, want) => {
    const found = compared([one, two], actual);
    expect(found.map(({ code, subject }) => `${code} ${subject}`)).toEqual(want);
  });
});

type Entry = Parameters<typeof endpoint>[0];

interface Sliced {
  readonly of?: Entry;
  readonly in?: Parameters<typeof slice>[0];
}

function inSlices(
  on: Parameters<typeof pod>[0] | null,
  actual: readonly Sliced[],
  mode: HintMode = 'none',
  zone: string | null = 'zone-a',
): Difference[] {
  const distribution = { none: null, auto: null, zone: 'PreferClose', node: 'PreferSameNode' };
  const topologyAuto = mode === 'auto';
  const trafficDistribution = distribution[mode];
  const sliced = actual.map((one, index) => {
    const listing = endpoint(one.of);
    const listingSlice = slice({ name: `web-${index}`, ...one.in, endpoints: [listing] });
    return { slice: listingSlice, endpoint: listing };
  });
  const record = createServiceState('shop/web');
  record.service = service({ topologyAuto, trafficDistribution });
  record.slices = sliced.map((entry) => entry.slice);
  const known = zone === null ? resources.filter((name) => name !== 'nodes') : resources;
  const store = storeOf(zone === null ? [] : [node({ zone })], known);
  const entries = entriesOf(record, on === null ? [] : [pod(on)], { sliced });
  return compareSlicesAddress(contextOf(store), entries);
}

describe('compareSlicesAddress', () => {
  const cases: [string, Parameters<typeof pod>[0] | null, Sliced[], string[]][] = [
    ['as expected', {}, [{}], []],
    ['missing', {}, [], ['slice-endpoint-missing -']],
    ['of no pod', null, [{}], ['slice-endpoint-unexpected -']],
    [
      'of no pod, not ready',
      null,
      [{ of: { ready: false } }],
      ['slice-endpoint-unexpected warning'],
    ],
    // Clients read an absent condition as ready.
    ['of no pod, unsaid', null, [{ of: { ready: null } }], ['slice-endpoint-unexpected -']],
    ['not ready, though it is', {}, [{ of: { ready: false } }], ['slice-conditions-different -']],
    ['ready, though it is not', { ready: false }, [{}], ['slice-conditions-different critical']],
    ['serving wrong', {}, [{ of: { serving: false } }], ['slice-conditions-different -']],
    ['terminating wrong', {}, [{ of: { terminating: true } }], ['slice-conditions-different -']],
    ['conditions absent', {}, [{ of: { serving: null } }], ['slice-conditions-different -']],
    ['other ports', {}, [{ in: { ports: [port({ port: 1 })] } }], ['slice-ports-different -']],
    ['another node', {}, [{ of: { node: 'node-b' } }], ['slice-endpoint-different -']],
    ['no node', {}, [{ of: { node: null } }], ['slice-endpoint-different -']],
    ['another zone', {}, [{ of: { zone: 'zone-b' } }], ['slice-endpoint-different -']],
    ['an empty hostname', {}, [{ of: { hostname: '' } }], ['slice-endpoint-different -']],
    ['no target', {}, [{ of: { target: null } }], ['slice-endpoint-different -']],
    ['hints for nothing', {}, [{ of: { forZones: ['zone-a'] } }], ['slice-hints-different -']],
    ['an empty list of hints', {}, [{ of: { forZones: [] } }], []],
    ['twice the same', {}, [{}, {}], ['slice-duplicate -']],
    [
      'twice, with other conditions',
      {},
      [{}, { of: { ready: false, serving: false } }],
      ['slice-duplicate-conflicting -'],
    ],
    [
      'twice, under other ports',
      {},
      [{}, { in: { ports: [port({ port: 1 })] } }],
      ['slice-endpoint-unexpected -'],
    ],
    [
      'twice, the first wrong',
      {},
      [{ of: { ready: false } }, {}],
      ['slice-duplicate-conflicting -'],
    ],
  ];
  test.each(cases)('%s', (_, on, actual, want) => {
    const got = inSlices(on, actual).map(({ code, severity }) => `${code} ${severity ?? '-'}`);
    expect(got).toEqual(want);
  });

  test('a zone is not compared if Nodes are unknown', () => {
    expect(inSlices({}, [{ of: { zone: 'anywhere' } }], 'none', null)).toEqual([]);
  });

  test('a wrong zone alone is quiet where nothing reads it', () => {
    const quiet = (of: Entry, mode: HintMode) =>
      inSlices({}, [{ of }], mode).find(({ code }) => code === 'slice-endpoint-different');
    expect(quiet({ zone: 'zone-b' }, 'none')).toMatchObject({
      quiet: true,
      likelyCause: 'node-change-unnoticed',
    });
    expect(quiet({ zone: 'zone-b' }, 'auto')?.quiet).toBe(false);
    expect(quiet({ zone: 'zone-b', node: null }, 'none')).toMatchObject({
      quiet: false,
      likelyCause: null,
    });
  });
});

describe('compareSlicesAddress: hints', () => {
  const right = { forZones: ['zone-a'] };
  const cases: [string, HintMode, Entry, string[]][] = [
    ['zone', 'zone', right, []],
    ['zone, absent', 'zone', {}, ['slice-hints-different -']],
    ['zone, another', 'zone', { forZones: ['zone-b'] }, ['slice-hints-different -']],
    ['zone, two', 'zone', { forZones: ['zone-a', 'zone-b'] }, ['slice-hints-different -']],
    ['zone, and a node', 'zone', { ...right, forNodes: ['node-a'] }, ['slice-hints-different -']],
    ['node', 'node', { ...right, forNodes: ['node-a'] }, []],
    ['node, absent', 'node', right, ['slice-hints-different -']],
    // Hints repeat the endpoint's own zone, so a wrong zone is one difference.
    [
      'a wrong zone, the hint right',
      'zone',
      { ...right, zone: 'zone-b' },
      ['slice-endpoint-different -'],
    ],
    [
      'a wrong zone, and the hint with it',
      'zone',
      { zone: 'zone-b', forZones: ['zone-b'] },
      ['slice-endpoint-different -'],
    ],
    ['auto is not compared here', 'auto', { forZones: ['anywhere'] }, []],
  ];
  test.each(cases)('%s', (_, mode, of, want) => {
    const got = inSlices({}, [{ of }], mode).map(
      ({ code, severity }) => `${code} ${severity ?? '-'}`,
    );
    expect(got).toEqual(want);
  });

  test('hints of an endpoint that is not ready are information', () => {
    const of = { ready: false, serving: false, forZones: ['zone-a'] };
    const got = inSlices({ ready: false }, [{ of }], 'zone');
    expect(got.map(({ code, severity }) => `${code} ${String(severity)}`)).toEqual([
      'slice-hints-different info',
    ]);
  });
});

test('ready is what is not said to be otherwise', () => {
  expect([true, null, false].map((ready) => isReady(endpoint({ ready })))).toEqual([
    true,
    true,
    false,
  ]);
});

test('a difference has nothing that it was not given', () => {
  expect(difference('endpoints-missing', 'o', 'f', null, null)).toMatchObject({
    code: 'endpoints-missing',
    object: 'o',
    field: 'f',
    subject: '',
    expected: null,
    actual: null,
    severity: null,
    quiet: false,
    cause: null,
    likelyCause: null,
  });
});
