// EndpointSlices: their endpoints with conditions, zone and ports, and the fields of every slice.

import { describe, expect, test } from 'vitest';

import type { Labels, OwnerReference } from '../../src/model/objects.ts';
import { label } from '../../src/model/objects.ts';
import {
  addressTypesOf,
  expectedEndpoints,
  expectedSliceLabels,
  isControllers,
  isOwnedBy,
} from '../../src/shadow/endpointslice.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import {
  containerPort,
  foreign,
  mirror,
  node,
  owner,
  pod,
  service,
  servicePort,
  slice,
} from '../build.ts';

type Services = Parameters<typeof service>[0];
type Pods = Parameters<typeof pod>[0];

describe('addressTypesOf', () => {
  const cases: [string, Services, string[]][] = [
    ['one family', { ipFamilies: ['IPv6'] }, ['IPv6']],
    ['two families', { ipFamilies: ['IPv6', 'IPv4'] }, ['IPv6', 'IPv4']],
    ['no family: as the cluster IP', { ipFamilies: [] }, ['IPv4']],
    ['no family, IPv6', { ipFamilies: [], clusterIP: 'fd96::1' }, ['IPv6']],
    ['no family, headless', { ipFamilies: [], clusterIP: 'None' }, ['IPv4', 'IPv6']],
    ['no family, no cluster IP', { ipFamilies: [], clusterIP: '' }, ['IPv4', 'IPv6']],
    ['a word that is no family', { ipFamilies: ['IPv5'] }, ['IPv4']],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(addressTypesOf(service(more))).toEqual(want);
  });
});

describe('expectedEndpoints: conditions', () => {
  const published = { publishNotReadyAddresses: true };
  const cases: [string, Services, Pods, [boolean, boolean, boolean] | null][] = [
    ['a ready pod', {}, {}, [true, true, false]],
    ['a pod that is not ready', {}, { ready: false }, [false, false, false]],
    ['terminating and ready', {}, { deleting: true }, [false, true, true]],
    ['terminating, not ready', {}, { deleting: true, ready: false }, [false, false, true]],
    ['published, not ready', published, { ready: false }, [true, false, false]],
    ['published and terminating', published, { deleting: true }, [true, true, true]],
    [
      'published, terminating, not ready',
      published,
      { deleting: true, ready: false },
      [true, false, true],
    ],
    ['terminal', {}, { terminal: true }, null],
    ['terminal and published', published, { terminal: true }, null],
    ['without address', {}, { ips: [] }, null],
  ];
  test.each(cases)('%s', (_, of, on, want) => {
    const [got] = expectedEndpoints(service(of), pod(on), node(), newestRelease);
    const conditions = got && [got.ready, got.serving, got.terminating];
    expect(conditions ?? null).toEqual(want);
  });
});

describe('expectedEndpoints: addresses', () => {
  const cases: [string, Services, string[], [string, string[]][]][] = [
    ['one family', {}, ['10.0.0.1', 'fd00::1'], [['IPv4', ['10.0.0.1']]]],
    [
      'two families',
      { ipFamilies: ['IPv4', 'IPv6'] },
      ['10.0.0.1', 'fd00::1'],
      [
        ['IPv4', ['10.0.0.1']],
        ['IPv6', ['fd00::1']],
      ],
    ],
    ['a pod of one family', { ipFamilies: ['IPv4', 'IPv6'] }, ['fd00::1'], [['IPv6', ['fd00::1']]]],
    ['a pod of the other family', { ipFamilies: ['IPv6'] }, ['10.0.0.1'], []],
    ['all of the family', {}, ['10.0.0.1', '10.0.0.2'], [['IPv4', ['10.0.0.1', '10.0.0.2']]]],
    ['in canonical form', {}, ['010.0.0.01'], [['IPv4', ['10.0.0.1']]]],
    ['mapped is IPv4', {}, ['::ffff:10.0.0.1'], [['IPv4', ['10.0.0.1']]]],
    ['mapped is not IPv6', { ipFamilies: ['IPv6'] }, ['::ffff:10.0.0.1'], []],
    ['not an address', {}, ['web'], []],
  ];
  test.each(cases)('%s', (_, of, ips, want) => {
    const got = expectedEndpoints(service(of), pod({ ips }), node(), newestRelease);
    expect(got.map(({ addressType, addresses }) => [addressType, addresses])).toEqual(want);
  });
});

describe('expectedEndpoints: the Node', () => {
  const published = { publishNotReadyAddresses: true };
  const cases: [string, Services, ReturnType<typeof node> | null | undefined, unknown][] = [
    ['in a zone', {}, node(), 'zone-a'],
    ['without zone', {}, node({ zone: '' }), null],
    ['missing', {}, null, 'left out'],
    ['missing, but published', published, null, null],
    ['Nodes are not known', {}, undefined, undefined],
  ];
  test.each(cases)('%s', (_, of, on, want) => {
    const [got] = expectedEndpoints(service(of), pod(), on, newestRelease);
    expect(got === undefined ? 'left out' : got.zone).toBe(want);
  });

  test('a pod without nodeName names none', () => {
    const [got] = expectedEndpoints(
      service({ publishNotReadyAddresses: true }),
      pod({ node: '' }),
      null,
      newestRelease,
    );
    expect(got?.node).toBeNull();
  });
});

describe('expectedEndpoints: ports and hostname', () => {
  const named = { ports: [servicePort({ targetPort: 'http' })] };
  const sidecar = { ports: [containerPort('http', 9090, true)] };
  const cases: [string, Services, Pods, string, number[]][] = [
    ['a name that the pod lacks: listed without ports', named, {}, '1.36', []],
    ['a sidecar before 1.33', named, sidecar, '1.32', []],
    ['a sidecar since 1.33', named, sidecar, '1.33', [9090]],
    ['no ports', { ports: [] }, {}, '1.36', []],
  ];
  test.each(cases)('%s', (_, of, on, version, want) => {
    const release = releaseOf(version) ?? newestRelease;
    const [got] = expectedEndpoints(service(of), pod(on), node(), release);
    expect(got?.ports.map(({ port }) => port)).toEqual(want);
  });

  test('the hostname is null unless the subdomain is the Service', () => {
    const hostname = (subdomain: string) =>
      expectedEndpoints(service(), pod({ hostname: 'a', subdomain }), node(), newestRelease)[0]
        ?.hostname;
    expect(hostname('web')).toBe('a');
    expect(hostname('api')).toBeNull();
  });
});

describe('expectedSliceLabels', () => {
  const own = {
    [label.serviceName]: 'web',
    [label.sliceManagedBy]: 'endpointslice-controller.k8s.io',
  };
  const headless = { [label.headless]: '' };
  const cases: [string, Services, Labels][] = [
    ['none', {}, own],
    ['of the Service', { labels: { a: '1' } }, { ...own, a: '1' }],
    ['headless', { clusterIP: 'None' }, { ...own, ...headless }],
    ['no headless label by hand', { labels: headless }, own],
    ['no service-name by hand', { labels: { [label.serviceName]: 'x' } }, own],
    ['no managed-by by hand', { labels: { [label.sliceManagedBy]: 'x' } }, own],
    [
      'labels that mean something on Endpoints',
      { labels: { [label.skipMirror]: 'true', [label.endpointsManagedBy]: 'x' } },
      { ...own, [label.skipMirror]: 'true', [label.endpointsManagedBy]: 'x' },
    ],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(expectedSliceLabels(service(more))).toEqual(want);
  });
});

describe('isOwnedBy', () => {
  const cases: [string, OwnerReference[], boolean][] = [
    ['by the Service', [owner()], true],
    ['not as its controller', [owner({ controller: false })], true],
    ['among others', [owner({ kind: 'Pod', uid: 'x' }), owner()], true],
    ['by a Service of another uid', [owner({ uid: 'old' })], false],
    ['by Endpoints of the same uid', [owner({ kind: 'Endpoints' })], false],
    ['of another API', [owner({ apiVersion: 'serving.knative.dev/v1' })], false],
    ['without an owner', [], false],
  ];
  test.each(cases)('%s', (_, owners, want) => {
    expect(isOwnedBy(slice({ owners }), service())).toBe(want);
  });
});

test('a slice is the controller’s by its managed-by label alone', () => {
  expect([slice({ owners: [] }), mirror(), foreign()].map(isControllers)).toEqual([
    true,
    false,
    false,
  ]);
});
