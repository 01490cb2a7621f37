// What is kept of a Service between events can be rebuilt from the snapshot at any time.

import { describe, expect, test } from 'vitest';

import {
  address,
  contextOf,
  endpoint,
  endpoints,
  event,
  foreign,
  mirror,
  node,
  owner,
  pod,
  port,
  service,
  servicePort,
  slice,
  sliceLabels,
  storeOf,
  subset,
  target,
} from '../build.ts';
import type { Role, ServiceRecord } from '../../src/audit/service.ts';
import {
  addressesIn,
  addSlice,
  countPod,
  createRecord,
  isEmpty,
  isWedged,
  listedAt,
  isWrittenByController,
  nodeOf,
  removeSlice,
  roleOf,
  setEndpoints,
  setService,
  slicesAt,
} from '../../src/audit/service.ts';
import type { AnyObject, EndpointSlice, Service } from '../../src/model/objects.ts';
import { label, manager, resources } from '../../src/model/objects.ts';

function recordOf(of: Service | null, objects: readonly AnyObject[] = []) {
  const store = storeOf(objects);
  const context = contextOf(store);
  const record = createRecord('shop/web');
  setService(context, record, of, store.snapshot.podsIn('shop'));
  return { store, context, record };
}

test('a record knows its names, and is empty until something is there', () => {
  const record = createRecord('shop/web');
  expect(record).toMatchObject({ key: 'shop/web', namespace: 'shop', name: 'web' });
  expect(isEmpty(record)).toBe(true);
  addSlice(record, slice());
  expect(isEmpty(record)).toBe(false);
  removeSlice(record, slice());
  expect(isEmpty(record)).toBe(false);
});

/** What the counts say: pods, then addresses by readiness, then endpoints by family. */
function counted(record: ServiceRecord): string {
  const groups = [...record.groups.values()].map(({ ready, notReady }) => `${ready}+${notReady}`);
  const types = [...record.expectedCounts]
    .filter(([, count]) => count > 0)
    .map((one) => one.join(' '));
  return [record.members.size, ...groups.sort(), ...types.sort(), record.nodeless].join(', ');
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
      store.apply(event(type, object));
      countPod(context, record, 'shop/web-1');
    };
    change('modified', pod({ ready: false }));
    expect(counted(record)).toBe('1, 0+1, IPv4 1, 0');
    change('modified', pod({ labels: {} }));
    expect(counted(record)).toBe('0, 0');
    change('modified', pod());
    change('deleted', pod());
    expect(counted(record)).toBe('0, 0');
    expect(record.groups.size).toBe(0);
  });

  test('a new version of the Service counts all anew', () => {
    const { store, context, record } = recordOf(service(), [node(), pod(), pod({ name: 'web-2' })]);
    const again = (of: Service | null): string => {
      setService(context, record, of, store.snapshot.podsIn('shop'));
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

describe('setEndpoints', () => {
  const one = subset([address(), address({ ip: '10.0.0.2', target: target('web-2') })]);
  const before = endpoints({ subsets: [one] });
  const cases: [string, ReturnType<typeof endpoints> | null, string[]][] = [
    ['the same', endpoints({ subsets: [one] }), []],
    [
      'in another packing',
      endpoints({ subsets: [subset([address()]), subset(one.addresses.slice(1))] }),
      [],
    ],
    ['gone', null, ['10.0.0.1', '10.0.0.2']],
    ['one less', endpoints(), ['10.0.0.2']],
    [
      'readiness',
      endpoints({ subsets: [subset([address({ ready: false }), ...one.addresses.slice(1)])] }),
      ['10.0.0.1'],
    ],
    [
      'ports',
      endpoints({ subsets: [subset(one.addresses, [port({ port: 1 })])] }),
      ['10.0.0.1', '10.0.0.2'],
    ],
    [
      'another pod',
      endpoints({
        subsets: [subset([address({ target: target('x') }), ...one.addresses.slice(1)])],
      }),
      ['10.0.0.1'],
    ],
    [
      'another node',
      endpoints({ subsets: [subset([address({ node: 'x' }), ...one.addresses.slice(1)])] }),
      ['10.0.0.1'],
    ],
  ];
  test.each(cases)('%s', (_, after, want) => {
    const record = createRecord('shop/web');
    expect([...setEndpoints(record, before)]).toEqual(['10.0.0.1', '10.0.0.2']);
    expect([...setEndpoints(record, after)].sort()).toEqual(want);
    expect(record.endpoints).toBe(after);
  });

  test.each([
    ['with all its ports', false, [port({ port: 1 })], [['web-1', false, [8080, 1]]]],
    ['not ready at one port', true, [port()], [['web-1', false, [8080]]]],
    [
      'but apart where two ports say ready and not ready',
      true,
      [port({ port: 1 })],
      [
        ['web-1', true, [8080]],
        ['web-1', false, [1]],
      ],
    ],
  ])('one entry per pod at an address, in canonical form, %s', (_, ready, ports, want) => {
    const record = createRecord('shop/web');
    const other = address({ ip: '10.0.0.01', ready: false, target: target('web-2') });
    const subsets = [
      subset([address({ ready }), other], [port()]),
      subset([address({ ip: '010.0.0.1', ready: false })], ports),
    ];
    setEndpoints(record, endpoints({ subsets }));
    expect([...record.listed.keys()]).toEqual(['10.0.0.1']);
    const got = listedAt(record, '10.0.0.1').map((listed) => [
      listed.target?.name,
      listed.ready,
      listed.ports.map((one) => one.port),
    ]);
    expect(got.filter(([name]) => name === 'web-1')).toEqual(want);
    expect(got.filter(([name]) => name === 'web-2')).toEqual([['web-2', false, [8080]]]);
  });
});

describe('slices by address', () => {
  const at = (name: string, ...addresses: string[]): EndpointSlice =>
    slice({ name, endpoints: addresses.map((one) => endpoint({ addresses: [one] })) });

  test('are found as long as they are there', () => {
    const record = createRecord('shop/web');
    const [a, b, c] = [at('a', '10.0.0.1', '10.0.0.2'), at('b', '10.0.0.01'), at('c', '10.0.0.1')];
    for (const one of [a, b, c]) addSlice(record, one);
    const names = (): string[] => slicesAt(record, '10.0.0.1').map(({ name }) => name);
    expect(names()).toEqual(['a', 'b', 'c']);
    removeSlice(record, b);
    expect(names()).toEqual(['a', 'c']);
    removeSlice(record, a);
    expect(names()).toEqual(['c']);
    expect(slicesAt(record, '10.0.0.2')).toEqual([]);
    removeSlice(record, c);
    expect(record.slicesAt.size).toBe(0);
  });

  test('a slice that was not there takes nothing away', () => {
    const record = createRecord('shop/web');
    addSlice(record, at('a', '10.0.0.1'));
    removeSlice(record, at('b', '10.0.0.1'));
    expect(slicesAt(record, '10.0.0.1')).toHaveLength(1);
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
    setEndpoints(record, endpoints());
    expect(roleOf(store.snapshot, record, one)).toBe(want);
  });
});

describe('isWedged', () => {
  const strayed = slice({ labels: { ...sliceLabels, [label.serviceName]: 'api' } });

  test('by a slice that it owns and that names another Service', () => {
    const of = service();
    const { store, record } = recordOf(of, [of]);
    addSlice(record, slice());
    expect(isWedged(store.snapshot, record)).toBe(false);
    addSlice(record, strayed);
    expect(isWedged(store.snapshot, record)).toBe(true);
  });

  test('by what history remembers', () => {
    const of = service();
    const { store, record } = recordOf(of, [of]);
    record.relabelled = new Set(['uid']);
    expect(isWedged(store.snapshot, record)).toBe(true);
    record.service = null;
    expect(isWedged(store.snapshot, record)).toBe(false);
  });
});

describe('nodeOf', () => {
  test('is there, is not, or is not known', () => {
    const store = storeOf([node()]);
    expect(nodeOf(store.snapshot, pod())?.name).toBe('node-a');
    expect(nodeOf(store.snapshot, pod({ node: 'node-z' }))).toBeNull();
    expect(nodeOf(store.snapshot, pod({ node: '' }))).toBeNull();
    const unknown = storeOf(
      [],
      resources.filter((one) => one !== 'nodes'),
    );
    expect(nodeOf(unknown.snapshot, pod())).toBeUndefined();
  });
});

test('Endpoints say themselves whether the controller wrote them', () => {
  expect(isWrittenByController(endpoints())).toBe(true);
  expect(isWrittenByController(endpoints({ labels: {} }))).toBe(false);
  const other = { [label.endpointsManagedBy]: 'me' };
  expect(isWrittenByController(endpoints({ labels: other }))).toBe(false);
});
