// What is kept of a Service between events can be rebuilt from the snapshot at any time.

import { describe, expect, test } from 'vitest';

import type { Role, ServiceState } from '../../../src/audit/service/cache.ts';
import {
  addressesIn,
  addSlice,
  createServiceState,
  differingEndpoints,
  isEmpty,
  isWedged,
  isWrittenByController,
  nodeOf,
  portGroups,
  recountPod,
  removeSlice,
  replaceSlice,
  roleOf,
  setService,
  slicesAt,
} from '../../../src/audit/service/cache.ts';
import type { AnyObject, EndpointSlice, Pod, Service } from '../../../src/model/objects.ts';
import { label, manager, resources } from '../../../src/model/objects.ts';
import {
  contextOf,
  endpoint,
  endpoints,
  event,
  foreign,
  mirror,
  node,
  owner,
  pod,
  service,
  servicePort,
  slice,
  sliceLabels,
  storeOf,
} from '../../build.ts';

function recordOf(of: Service | null, objects: readonly AnyObject[] = []) {
  const store = storeOf(objects);
  const context = contextOf(store);
  const record = createServiceState('shop/web');
  setService(context, record, of, store.listers.podsIn('shop'));
  return { store, context, record };
}

test('a record knows its names, and is empty until something is there', () => {
  const record = createServiceState('shop/web');
  expect(record).toMatchObject({ key: 'shop/web', namespace: 'shop', name: 'web' });
  expect(isEmpty(record)).toBe(true);
  addSlice(record, slice());
  expect(isEmpty(record)).toBe(false);
  removeSlice(record, slice());
  expect(isEmpty(record)).toBe(false);
});

/** What the counts say: pods, then addresses by readiness, then endpoints by family. */
function counted(record: ServiceState): string {
  const groups = portGroups(record).map(({ ready, notReady }) => `${ready}+${notReady}`);
  const types = (['IPv4', 'IPv6'] as const).flatMap((type) => {
    const pods = record.kinds.map((kind) => (kind.types.includes(type) ? kind.pods : 0));
    const sum = pods.reduce((total, one) => total + one, 0);
    return sum === 0 ? [] : [`${type} ${String(sum)}`];
  });
  return [record.members.length, ...groups.sort(), ...types.sort(), record.nodeless].join(', ');
}

describe('counts', () => {
  const cases: [string, Parameters<typeof pod>[0], string][] = [
    ['a ready pod', {}, '1, 1+0, IPv4 1, 0'],
    ['not ready', { ready: false }, '1, 0+1, IPv4 1, 0'],
    ['terminating: in slices only', { deleting: true }, '1, IPv4 1, 0'],
    ['terminal: selected, but nowhere', { terminal: true }, '1, 0'],
    ['no node: in Endpoints, which it freezes', { node: '' }, '1, 1+0, 1'],
    ['no such Node: in Endpoints', { node: 'node-z' }, '1, 1+0, 0'],
    ['another family', { ips: ['fd00::1'] }, '1, 0'],
    ['not selected', { labels: {} }, '0, 0'],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(counted(recordOf(service(), [node(), pod(more)]).record)).toBe(want);
  });

  test('pods are counted in, anew and out', () => {
    const { store, context, record } = recordOf(service(), [node(), pod()]);
    const change = (type: 'modified' | 'deleted', object: AnyObject): void => {
      const change = store.apply(event(type, object));
      const [before, after] = [change?.before ?? null, change?.after ?? null];
      recountPod(context, record, before as Pod | null, after as Pod | null);
    };
    change('modified', pod({ ready: false }));
    expect(counted(record)).toBe('1, 0+1, IPv4 1, 0');
    change('modified', pod({ labels: {} }));
    expect(counted(record)).toBe('0, 0');
    change('modified', pod());
    change('deleted', pod());
    expect(counted(record)).toBe('0, 0');
    expect(record.kinds).toEqual([]);
  });

  test('a new version of the Service counts all anew', () => {
    const { store, context, record } = recordOf(service(), [node(), pod(), pod({ name: 'web-2' })]);
    const again = (of: Service | null): string => {
      setService(context, record, of, store.listers.podsIn('shop'));
      return counted(record);
    };
    expect(counted(record)).toBe('2, 2+0, IPv4 2, 0');
    expect(again(service({ selector: { app: 'api' } }))).toBe('0, 0');
    expect(again(service({ ipFamilies: ['IPv6'] }))).toBe('2, 0');
    expect(again(service({ ports: [servicePort({ targetPort: 'x' })] }))).toBe('2, IPv4 2, 0');
    expect(again(service({ type: 'ExternalName' }))).toBe('0, 0');
    expect(again(null)).toBe('0, 0');
  });
});

describe('slices by address', () => {
  const at = (name: string, ...addresses: string[]): EndpointSlice =>
    slice({ name, endpoints: addresses.map((one) => endpoint({ addresses: [one] })) });
  const others = ['u', 'v', 'w', 'x'].map((name) => at(name, '10.0.0.9'));
  const listing = (record: ServiceState, address: string): string[] =>
    slicesAt(record, address)
      .filter((one) => addressesIn(one).has(address))
      .map(({ name }) => name);

  test.each([
    ['a few', []],
    ['many', others],
  ])('are found as long as they are there, among %s', (_, others) => {
    const record = createServiceState('shop/web');
    const [a, b, c] = [at('a', '10.0.0.1', '10.0.0.2'), at('b', '10.0.0.01'), at('c', '10.0.0.1')];
    for (const one of [...others, c, a, b]) addSlice(record, one);
    const names = (): string[] => listing(record, '10.0.0.1');
    expect(record.slices.map(({ name }) => name)).toEqual(
      ['a', 'b', 'c', 'u', 'v', 'w', 'x'].slice(0, 3 + others.length),
    );
    expect(names()).toEqual(['a', 'b', 'c']);
    removeSlice(record, b);
    expect(names()).toEqual(['a', 'c']);
    removeSlice(record, a);
    expect(names()).toEqual(['c']);
    expect(listing(record, '10.0.0.2')).toEqual([]);
    removeSlice(record, c);
    for (const one of others) removeSlice(record, one);
    expect(record.slices).toEqual([]);
    expect(record.slicesAt?.size ?? 0).toBe(0);
  });

  test('a new version is found where it differs', () => {
    const record = createServiceState('shop/web');
    const [before, after] = [at('a', '10.0.0.1', '10.0.0.2'), at('a', '10.0.0.2', '10.0.0.3')];
    for (const one of [...others, before]) addSlice(record, one);
    const found = (): string[][] =>
      ['10.0.0.1', '10.0.0.2', '10.0.0.3'].map((address) => listing(record, address));
    expect(found()).toEqual([['a'], ['a'], []]);
    replaceSlice(record, after, differingEndpoints(before, after));
    expect(found()).toEqual([[], ['a'], ['a']]);
    expect(slicesAt(record, '10.0.0.3')).toEqual([after]);
  });

  test('a slice that was not there takes nothing away', () => {
    const record = createServiceState('shop/web');
    addSlice(record, at('a', '10.0.0.1'));
    removeSlice(record, at('b', '10.0.0.1'));
    expect(listing(record, '10.0.0.1')).toEqual(['a']);
  });

  test('an address is in a slice once', () => {
    expect([...addressesIn(at('a', '10.0.0.1', '10.0.0.01', 'fd00::1'))]).toEqual([
      '10.0.0.1',
      'fd00::1',
    ]);
  });
});

describe('roleOf', () => {
  const api = service({ name: 'api', selector: { app: 'api' } });
  const ofApi = [owner({ name: 'api', uid: 'uid-api' })];
  const named = (name: string) => ({ ...sliceLabels, [label.serviceName]: name });
  const cases: [string, EndpointSlice, Role | null][] = [
    ['the controller’s', slice(), 'controller'],
    ['without owner', slice({ owners: [] }), 'controller'],
    [
      'of a Service that is gone',
      slice({ owners: [owner({ name: 'x', uid: 'x' })] }),
      'controller',
    ],
    [
      'of a Service of this name that is gone',
      slice({ owners: [owner({ uid: 'old' })] }),
      'controller',
    ],
    ['of another Service', slice({ owners: ofApi }), null],
    ['pending deletion', slice({ deleting: true }), null],
    ['the mirror’s', mirror(), 'mirror'],
    ['somebody else’s', foreign(), 'foreign'],
    ['nobody’s', slice({ labels: { [label.serviceName]: 'web' } }), 'foreign'],
    ['ours under another name', slice({ labels: named('api') }), 'strayed'],
    [
      'ours under no name',
      slice({ labels: { [label.sliceManagedBy]: manager.slices } }),
      'strayed',
    ],
    [
      'a mirror of ours under another name',
      mirror({ labels: { ...mirror().labels, [label.serviceName]: 'api' } }),
      'strayed mirror',
    ],
    ['neither by name nor by owner', slice({ labels: named('api'), owners: ofApi }), null],
  ];
  test.each(cases)('%s', (_, one, want) => {
    const of = service();
    const { store, record } = recordOf(of, [of, api]);
    record.endpoints = endpoints();
    expect(roleOf(store.listers, record, one)).toBe(want);
  });
});

describe('isWedged', () => {
  const strayed = slice({ labels: { ...sliceLabels, [label.serviceName]: 'api' } });

  test('by a slice that it owns and that names another Service', () => {
    const of = service();
    const { store, record } = recordOf(of, [of]);
    addSlice(record, slice());
    expect(isWedged(store.listers, record)).toBe(false);
    addSlice(record, strayed);
    expect(isWedged(store.listers, record)).toBe(true);
  });

  test('by what history remembers', () => {
    const of = service();
    const { store, record } = recordOf(of, [of]);
    record.relabelled = new Set(['uid']);
    expect(isWedged(store.listers, record)).toBe(true);
    record.service = null;
    expect(isWedged(store.listers, record)).toBe(false);
  });
});

describe('nodeOf', () => {
  test('is there, is not, or is not known', () => {
    const store = storeOf([node()]);
    expect(nodeOf(store.listers, pod())?.name).toBe('node-a');
    expect(nodeOf(store.listers, pod({ node: 'node-z' }))).toBeNull();
    expect(nodeOf(store.listers, pod({ node: '' }))).toBeNull();
    const unknown = storeOf(
      [],
      resources.filter((one) => one !== 'nodes'),
    );
    expect(nodeOf(unknown.listers, pod())).toBeUndefined();
  });
});

test('Endpoints say themselves whether the controller wrote them', () => {
  expect(isWrittenByController(endpoints())).toBe(true);
  expect(isWrittenByController(endpoints({ labels: {} }))).toBe(false);
  const other = { [label.endpointsManagedBy]: 'me' };
  expect(isWrittenByController(endpoints({ labels: other }))).toBe(false);
});
