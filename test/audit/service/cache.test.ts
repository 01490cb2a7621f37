// The cached state of a Service.

import { describe, expect, test } from 'vitest';

import { buildIndex, entriesAt } from '../../../src/audit/service/address-index.ts';
import type { Role, ServiceState } from '../../../src/audit/service/cache.ts';
import {
  addMember,
  createServiceState,
  hasKind,
  isEmpty,
  isSamePod,
  isWedged,
  isWrittenByController,
  keysNamed,
  nodeOf,
  removeMember,
  roleOf,
  setService,
  setSlice,
  slicesOf,
} from '../../../src/audit/service/cache.ts';
import type { AnyObject, EndpointSlice, Pod, Service } from '../../../src/model/objects.ts';
import { label, manager, resources } from '../../../src/model/objects.ts';
import {
  contextOf,
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

test('a state has its names, and is empty until an object exists', () => {
  const record = createServiceState('shop/web');
  expect(record).toMatchObject({ key: 'shop/web', namespace: 'shop', name: 'web' });
  expect(isEmpty(record)).toBe(true);
  setSlice(record, slice().key, slice());
  expect(isEmpty(record)).toBe(false);
  setSlice(record, slice().key, null);
  expect(isEmpty(record)).toBe(true);
});

/** The counts as text: pods, then addresses by readiness, then pods without a node. */
function counted(record: ServiceState): string {
  const listed = record.kinds.filter(({ portMap }) => portMap !== null);
  const groups = listed.map(({ ready, pods }) => (ready ? `${pods}+0` : `0+${pods}`));
  return [record.members.size, ...groups.sort(), Number(hasKind(record, 'nodeless'))].join(', ');
}

describe('the expected totals of a Service count', () => {
  const cases: [string, Parameters<typeof pod>[0], string][] = [
    ['a ready pod', {}, '1, 1+0, 0'],
    ['a pod that is not ready', { ready: false }, '1, 0+1, 0'],
    ['a terminating pod in no Endpoints', { deleting: true }, '1, 0'],
    ['a terminal pod in no output', { terminal: true }, '1, 0'],
    ['a pod without a node in Endpoints, which the API server refuses', { node: '' }, '1, 1+0, 1'],
    ['a pod whose Node does not exist in Endpoints', { node: 'node-z' }, '1, 1+0, 0'],
    ['a pod of another IP family in no output', { ips: ['fd00::1'] }, '1, 0'],
    ['no pod that is not selected', { labels: {} }, '0, 0'],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(counted(recordOf(service(), [node(), pod(more)]).record)).toBe(want);
  });

  test('each version of a pod instead of the one before', () => {
    const { store, context, record } = recordOf(service(), [node(), pod()]);
    const change = (type: 'modified' | 'deleted', object: AnyObject): void => {
      const change = store.apply(event(type, object));
      const [before, after] = [change?.before ?? null, change?.after ?? null];
      if (before !== null) removeMember(record, before as Pod);
      if (after !== null) addMember(context, record, after as Pod);
    };
    change('modified', pod({ ready: false }));
    expect(counted(record)).toBe('1, 0+1, 0');
    change('modified', pod({ labels: {} }));
    expect(counted(record)).toBe('0, 0');
    change('modified', pod());
    change('deleted', pod());
    expect(counted(record)).toBe('0, 0');
    expect(record.kinds).toEqual([]);
  });

  test('all pods again for a new version of the Service', () => {
    const { store, context, record } = recordOf(service(), [node(), pod(), pod({ name: 'web-2' })]);
    const again = (of: Service | null): string => {
      setService(context, record, of, store.listers.podsIn('shop'));
      return counted(record);
    };
    expect(counted(record)).toBe('2, 2+0, 0');
    expect(again(service({ selector: { app: 'api' } }))).toBe('0, 0');
    expect(again(service({ ipFamilies: ['IPv6'] }))).toBe('2, 0');
    expect(again(service({ ports: [servicePort({ targetPort: 'x' })] }))).toBe('2, 0');
    expect(again(service({ type: 'ExternalName' }))).toBe('0, 0');
    expect(again(null)).toBe('0, 0');
  });
});

test('the selected pods at an address are in the order of their uids', () => {
  const pods = [pod({ name: 'b', uid: 'b' }), pod({ name: 'a', uid: 'a' }), pod({ labels: {} })];
  const { store, record } = recordOf(service(), pods);
  const namesAt = (ip: string): string[] => {
    const { members } = entriesAt(store.listers, record, buildIndex(record, new Set([ip])), ip);
    return members.map(({ name }) => name);
  };
  expect(namesAt('10.0.0.1')).toEqual(['a', 'b']);
  expect(namesAt('10.0.0.2')).toEqual([]);
});

test('slices are in the order of their names, each in its latest version', () => {
  const { store, record } = recordOf(service());
  const names = (): string[] => record.slices.map(({ name }) => name);
  for (const name of ['c', 'a', 'b', 'a']) setSlice(record, `shop/${name}`, slice({ name }));
  expect(names()).toEqual(['a', 'b', 'c']);
  expect(slicesOf(store.listers, record, 'controller')).toEqual(record.slices);
  expect(slicesOf(store.listers, record, 'foreign')).toEqual([]);
  setSlice(record, 'shop/b', null);
  setSlice(record, 'shop/x', null);
  expect(names()).toEqual(['a', 'c']);
});

describe('the role of a slice', () => {
  const api = service({ name: 'api', selector: { app: 'api' } });
  const ofApi = [owner({ name: 'api', uid: 'uid-api' })];
  const named = (name: string) => ({ ...sliceLabels, [label.serviceName]: name });
  const cases: [string, EndpointSlice, Role | null][] = [
    ['of the controller', slice(), 'controller'],
    ['of the controller without an owner', slice({ owners: [] }), 'controller'],
    [
      'whose owner is a deleted Service',
      slice({ owners: [owner({ name: 'x', uid: 'x' })] }),
      'controller',
    ],
    [
      'whose owner is a deleted Service of this name',
      slice({ owners: [owner({ uid: 'old' })] }),
      'controller',
    ],
    ['whose owner is another Service', slice({ owners: ofApi }), null],
    ['that is pending deletion', slice({ deleting: true }), null],
    ['of the mirroring controller', mirror(), 'mirror'],
    ['of another manager', foreign(), 'foreign'],
    ['without a manager', slice({ labels: { [label.serviceName]: 'web' } }), 'foreign'],
    [
      'owned by this Service but labelled for another',
      slice({ labels: named('api') }),
      'unmanaged',
    ],
    [
      'owned by this Service without a service-name label',
      slice({ labels: { [label.sliceManagedBy]: manager.slices } }),
      'unmanaged',
    ],
    [
      'mirrored from its Endpoints but labelled for another',
      mirror({ labels: { ...mirror().labels, [label.serviceName]: 'api' } }),
      'unmanaged mirror',
    ],
    ['of another Service by label and owner', slice({ labels: named('api'), owners: ofApi }), null],
  ];
  test.each(cases)('%s', (_, one, want) => {
    const of = service();
    const { store, record } = recordOf(of, [of, api]);
    record.endpoints = endpoints();
    expect(roleOf(store.listers, record, one)).toBe(want);
  });
});

describe('the controller is wedged', () => {
  const unmanaged = slice({ labels: { ...sliceLabels, [label.serviceName]: 'api' } });

  test('by an owned slice that is labelled for another Service', () => {
    const of = service();
    const { store, record } = recordOf(of, [of]);
    setSlice(record, slice().key, slice());
    expect(isWedged(store.listers, record)).toBe(false);
    setSlice(record, 'shop/x', unmanaged);
    expect(isWedged(store.listers, record)).toBe(true);
  });

  test('by a slice that lost its labels earlier', () => {
    const of = service();
    const { store, record } = recordOf(of, [of]);
    record.relabelled = new Set(['uid']);
    expect(isWedged(store.listers, record)).toBe(true);
    record.service = null;
    expect(isWedged(store.listers, record)).toBe(false);
  });
});

describe('the Node of a pod', () => {
  test('exists, does not exist, or is not part of the input', () => {
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

test('the label managed-by shows whether the controller wrote Endpoints', () => {
  expect(isWrittenByController(endpoints())).toBe(true);
  expect(isWrittenByController(endpoints({ labels: {} }))).toBe(false);
  const other = { [label.endpointsManagedBy]: 'me' };
  expect(isWrittenByController(endpoints({ labels: other }))).toBe(false);
});

describe('a slice names Services', () => {
  const cases: [string, EndpointSlice | null, string[]][] = [
    ['none if it does not exist', null, []],
    ['by its label', slice(), ['shop/web']],
    [
      'by its label and its owner',
      slice({ owners: [owner({ name: 'api', uid: 'x' })] }),
      ['shop/web', 'shop/api'],
    ],
    [
      'not by an owner of another kind',
      foreign({ labels: {}, owners: [owner({ kind: 'Pod', name: 'api' })] }),
      [],
    ],
    ['not by an empty label', slice({ labels: { [label.serviceName]: '' }, owners: [] }), []],
  ];
  test.each(cases)('%s', (_, one, want) => {
    expect([...keysNamed(one)]).toEqual(want);
  });
});

test('versions of a pod that differ in no field that controllers read are the same', () => {
  expect(isSamePod(pod(), pod({ turnedAt: 5 }))).toBe(true);
  for (const more of [{ ready: false }, { ips: [] }, { labels: {} }, { node: 'x' }, { uid: 'x' }]) {
    expect(isSamePod(pod(), pod(more))).toBe(false);
  }
});
