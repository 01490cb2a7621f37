// Faults of the input on whole clusters, which no controller can repair.

import { describe, expect, test } from 'vitest';

import { checkInput, leftBehindAddresses } from '../../../src/audit/service/input-checks.ts';
import type { AnyObject, Pod, Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import {
  address,
  auditService,
  endpoint,
  endpoints,
  foreign,
  mirror,
  node,
  owner,
  pod,
  port,
  service,
  slice,
  subset,
  target,
  textsOf,
  times,
} from '../../build.ts';

const differencesOf = (
  objects: readonly AnyObject[],
  known: readonly Resource[] = resources,
): string[] => textsOf(auditService(objects, {}, known), 'input');

const settled: AnyObject[] = [service(), pod(), node(), endpoints(), slice()];

test('a cluster without faults has no finding', () => {
  expect(differencesOf(settled)).toEqual([]);
});

describe('left behind', () => {
  const selectorless = service({ selector: null });
  const external = service({ type: 'ExternalName' });
  const info = 'left-behind info';
  const dead = 'left-behind-dead warning';
  const byHand = subset([address({ ip: '203.0.113.5', node: null, target: null })]);
  const mixed = endpoints({ subsets: [subset(), byHand] });
  const cases: [string, AnyObject[], string[]][] = [
    ['Endpoints of a living pod', [selectorless, pod(), endpoints()], [info]],
    ['slices of a living pod', [selectorless, pod(), slice()], [info]],
    ['addresses of no pod', [selectorless, endpoints(), slice()], [dead, info]],
    ['of a terminating pod', [selectorless, pod({ deleting: true }), slice()], [dead, info]],
    ['of a terminal pod', [selectorless, pod({ terminal: true }), slice()], [dead, info]],
    // Traffic goes to another pod.
    ['of a pod of another uid', [selectorless, pod({ uid: 'new' }), slice()], [dead, info]],
    [
      'of a pod that moved to another address',
      [selectorless, pod({ ips: ['10.0.0.2'] }), slice()],
      [dead, info],
    ],
    ['ExternalName: nodes program nothing', [external, endpoints(), slice()], [info]],
    ['written by hand', [selectorless, endpoints({ labels: {} }), mirror()], []],
    ['replaced by hand, with the label', [selectorless, endpoints({ subsets: [byHand] })], []],
    ['addresses of no pod beside those of others', [selectorless, mixed], [dead, info]],
    ['no addresses', [selectorless, slice({ endpoints: [] })], [info]],
    ['nothing', [selectorless, pod()], []],
  ];
  test.each(cases)('%s', (_, objects, want) => {
    expect(differencesOf(objects).sort()).toEqual([...want].sort());
  });

  test('names the pod that has a dead address now', () => {
    const { context, record } = auditService([selectorless, pod({ uid: 'new' }), slice()]);
    const found = checkInput(context, record).find(({ code }) => code === 'left-behind-dead');
    expect(found?.actual).toBe('EndpointSlice shop/web-abcde: 10.0.0.1 (now Pod shop/web-1)');
  });

  test('without known pods no address is called dead', () => {
    expect(differencesOf([selectorless, slice()], ['services', 'endpointslices'])).toEqual([info]);
  });

  test('the addresses, each with the pods that had it', () => {
    const { context, record } = auditService([
      selectorless,
      endpoints({ subsets: [subset([address({ target: target('old') })]), byHand] }),
      slice({ endpoints: [endpoint({ addresses: ['10.0.0.01'] })] }),
    ]);
    expect(leftBehindAddresses(context, record)).toEqual(
      new Map([['10.0.0.1', new Set(['uid-old', 'uid-web-1'])]]),
    );
    const before = auditService(settled);
    expect(leftBehindAddresses(before.context, before.record).size).toBe(0);
  });
});

describe('shared addresses', () => {
  const other = (more: Parameters<typeof pod>[0] = {}): Pod =>
    pod({ name: 'web-2', ipsSince: 5, labels: { app: 'other' }, ...more });
  const shared = 'address-shared warning';
  const cases: [string, Parameters<typeof pod>[0], Pod, string[]][] = [
    ['the selected one came later', { ipsSince: 9 }, other(), [shared]],
    ['the selected one was there first', {}, other(), [shared]],
    ['one without labels came later', {}, other({ labels: {}, namespace: 'bank' }), [shared]],
    ['both are selected: reported once', {}, other({ labels: { app: 'web' } }), [shared]],
    ['in another namespace', { ipsSince: 9 }, other({ namespace: 'bank' }), [shared]],
    ['in other words', { ipsSince: 9 }, other({ ips: ['10.0.0.01'] }), [shared]],
    ['one is terminal', { ipsSince: 9 }, other({ terminal: true }), []],
    ['one is terminating', { ipsSince: 9 }, other({ deleting: true }), []],
    [
      'host network of one Node',
      { ipsSince: 9, hostNetwork: true },
      other({ hostNetwork: true }),
      [],
    ],
    [
      'host network of two Nodes',
      { ipsSince: 9, hostNetwork: true },
      other({ hostNetwork: true, node: 'node-b' }),
      [shared],
    ],
    ['host network and not', { ipsSince: 9, hostNetwork: true }, other(), [shared]],
    ['at one time: the greater uid', { uid: 'z', ipsSince: 5 }, other({ uid: 'a' }), [shared]],
    ['at one time: the lesser uid', { uid: 'a', ipsSince: 5 }, other({ uid: 'z' }), [shared]],
  ];
  test.each(cases)('%s', (_, one, two, want) => {
    expect(differencesOf([service(), node(), pod(one), two])).toEqual(want);
  });

  const others = service({ name: 'other', uid: 'other', selector: { app: 'other' } });
  test('a Service that selects the later pod is reported alone', () => {
    const objects = [service(), others, node(), pod(), other()];
    expect(differencesOf(objects)).toEqual([]);
    expect(textsOf(auditService(objects, {}, undefined, 'other'), 'input')).toEqual([shared]);
  });

  test('a Service without endpoints of its own does not count', () => {
    const external = { ...others, type: 'ExternalName' } as const;
    expect(differencesOf([service(), external, node(), pod(), other()])).toEqual([shared]);
  });
});

describe('a pod without node', () => {
  const trouble = 'pod-without-node warning';
  const cases: [string, Parameters<typeof pod>[0], string[]][] = [
    ['with an address', { node: '' }, [trouble]],
    ['not ready', { node: '', ready: false }, [trouble]],
    ['without address', { node: '', ips: [] }, []],
    ['terminal', { node: '', terminal: true }, []],
    ['terminating', { node: '', deleting: true }, []],
    ['on a Node that does not exist', { node: 'node-z' }, []],
    ['not selected', { node: '', labels: {} }, []],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(differencesOf([service(), node(), pod(more)])).toEqual(want);
  });
});

describe('other managers', () => {
  const several = 'managers-several info';
  const conflict = 'duplicate-conflicting warning';
  const dead = 'foreign-endpoint-dead info';
  const off = { ready: false, serving: false };
  const cases: [string, AnyObject[], string[]][] = [
    ['agrees', [...settled, foreign()], [several]],
    ['says otherwise', [...settled, foreign({ endpoints: [endpoint(off)] })], [conflict, several]],
    // Absent serving is as ready is, absent ready is ready.
    [
      'says nothing',
      [...settled, foreign({ endpoints: [endpoint({ ready: null, serving: null })] })],
      [several],
    ],
    [
      'says otherwise of another port',
      [...settled, foreign({ ports: [port({ port: 1 })], endpoints: [endpoint(off)] })],
      [several],
    ],
    [
      'says otherwise of the port under another name',
      [...settled, foreign({ ports: [port({ name: 'x' })], endpoints: [endpoint(off)] })],
      [conflict, several],
    ],
    [
      'a pod that does not exist',
      [
        ...settled,
        foreign({ endpoints: [endpoint({ addresses: ['10.0.0.9'], target: target('x') })] }),
      ],
      [dead, several],
    ],
    [
      'an earlier pod',
      [...settled, foreign({ endpoints: [endpoint({ target: target('web-1', { uid: 'old' }) })] })],
      [dead, several],
    ],
    [
      'no uid',
      [...settled, foreign({ endpoints: [endpoint({ target: target('web-1', { uid: '' }) })] })],
      [several],
    ],
    [
      'no target',
      [...settled, foreign({ endpoints: [endpoint({ addresses: ['10.0.0.9'], target: null })] })],
      [several],
    ],
    [
      'a pod of another namespace',
      [
        ...settled,
        foreign({
          endpoints: [
            endpoint({ addresses: ['10.0.0.9'], target: target('x', { namespace: 'proxies' }) }),
          ],
        }),
      ],
      [several],
    ],
    ['for a selectorless Service', [service({ selector: null }), pod(), foreign()], []],
    [
      'for a selectorless Service, a pod that does not exist',
      [service({ selector: null }), foreign()],
      [dead],
    ],
    [
      'two others that disagree',
      [
        service({ selector: null }),
        pod(),
        foreign(),
        foreign({ name: 'b', endpoints: [endpoint(off)] }),
      ],
      [conflict],
    ],
  ];
  test.each(cases)('%s', (_, objects, want) => {
    expect(differencesOf(objects).sort()).toEqual([...want].sort());
  });
});

describe('sizes', () => {
  const near = 'object-near-size-limit warning';
  const limit = 1.5 * 1024 * 1024;
  const cases: [string, number | null, string[]][] = [
    ['not known', null, []],
    ['small', 1000, []],
    ['eight tenths', 0.8 * limit, []],
    ['more', 0.8 * limit + 1, [near]],
    ['at the limit', limit, [near]],
  ];
  test.each(cases)('%s', (_, bytes, want) => {
    const others: AnyObject[] = [service(), pod(), node()];
    expect(differencesOf([...others, endpoints(), slice({ bytes })])).toEqual(want);
    expect(differencesOf([...others, endpoints({ bytes }), slice()])).toEqual(want);
  });
});

describe('more addresses than Endpoints hold', () => {
  const crowd = (count: number) =>
    times(count, (index) =>
      pod({ name: `p-${index}`, ips: [`10.1.${index >> 8}.${index & 255}`] }),
    );

  test.each([
    [1000, []],
    [1001, ['endpoints-truncated info']],
  ])('%i', (count, want) => {
    expect(differencesOf([service(), node(), ...crowd(count)])).toEqual(want);
  });
});

describe('topology-mode Auto without hints', () => {
  const auto = service({ topologyAuto: true });
  const hinted = slice({ endpoints: [endpoint({ forZones: ['zone-a'] })] });
  const absent = 'hints-absent info';
  const cases: [string, AnyObject[], readonly Resource[], string[]][] = [
    ['a hint', [auto, pod(), node(), hinted], resources, []],
    ['no hint', [auto, pod(), node(), slice()], resources, [absent]],
    [
      'no pod is ready',
      [auto, pod({ ready: false }), node(), slice({ endpoints: [endpoint({ ready: false })] })],
      resources,
      [],
    ],
    ['not asked for', [service(), pod(), node(), slice()], resources, []],
    [
      'Nodes are not known',
      [auto, pod(), slice()],
      ['services', 'pods', 'endpointslices'],
      [absent],
    ],
    [
      'of another client',
      [auto, pod(), node(), foreign({ owners: [owner()] })],
      resources,
      ['managers-several info'],
    ],
  ];
  test.each(cases)('%s', (_, objects, known, want) => {
    expect(differencesOf(objects, known)).toEqual(want);
  });

  test('names the reason that the input shows', () => {
    const reason = (objects: AnyObject[]) =>
      auditService(objects).items.find(({ difference }) => difference.code === 'hints-absent')
        ?.difference.actual;
    expect(reason([auto, pod(), node(), slice()])).toContain('Nodes only ready in one zone');
    const zones = [node(), node({ name: 'node-b', zone: 'zone-b' })];
    const two = pod({ name: 'web-2', ips: ['10.0.0.2'] });
    const both = slice({
      endpoints: [endpoint(), endpoint({ addresses: ['10.0.0.2'], target: target('web-2') })],
    });
    expect(reason([auto, pod(), two, ...zones, both])).toContain('the input shows no reason');
  });
});
