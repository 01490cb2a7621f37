// The output of the endpoints controller, compared on whole clusters: object, labels, capacity, and
// each address with what explains it.

import { describe, expect, test } from 'vitest';

import { compareLabels, differingKeys } from '../../../src/audit/service/compare.ts';
import { truncationOf } from '../../../src/audit/service/endpoints.ts';
import type {
  AnyObject,
  EndpointAddress,
  EndpointSubset,
  Labels,
} from '../../../src/model/objects.ts';
import { annotation, label, manager } from '../../../src/model/objects.ts';
import { releaseOf } from '../../../src/shadow/release.ts';
import {
  address,
  auditService,
  endpoints,
  node,
  owner,
  pod,
  port,
  service,
  servicePort,
  slice,
  subset,
  target,
  textsOf,
  times,
} from '../../build.ts';

const release = releaseOf('1.32');
const before33 = release === null ? {} : { release };

type Case = [string, AnyObject[], string[]];

/** What must hold of the slices is none of this file's business. */
const differencesOf = (objects: readonly AnyObject[], more = {}): string[] =>
  textsOf(auditService(objects, more), 'endpoints');

describe('the object', () => {
  const cases: Case[] = [
    ['as expected', [service(), pod(), node(), endpoints()], []],
    ['without pods', [service(), endpoints({ subsets: [] })], []],
    ['missing', [service(), pod(), node()], ['endpoints-missing warning']],
    ['missing without pods', [service()], ['endpoints-missing warning']],
    [
      'missing while the Service is being deleted',
      [service({ deleting: true }), pod(), node()],
      [],
    ],
    ['of no Service', [endpoints()], ['endpoints-orphaned info']],
    ['written by hand for no Service', [endpoints({ labels: {} })], []],
    ['of a selectorless Service', [service({ selector: null }), endpoints({ labels: {} })], []],
    ['of an ExternalName Service', [service({ type: 'ExternalName' }), endpoints()], []],
    ['missing for an ExternalName Service', [service({ type: 'ExternalName' })], []],
  ];
  test.each(cases)('%s', (_, objects, want) => {
    // A selectorless or ExternalName Service has a slice here so that something is known of it.
    expect(differencesOf([...objects, slice({ name: 'x', owners: [owner()] })])).toEqual(want);
  });
});

describe('labels', () => {
  const own = { [label.endpointsManagedBy]: manager.endpoints };
  const wrong = 'endpoints-labels-different warning';
  const cases: [string, Labels, string, Labels, string[]][] = [
    ['right', { a: '1' }, '10.96.0.1', { ...own, a: '1' }, []],
    ['one missing', { a: '1' }, '10.96.0.1', own, [wrong]],
    ['one too many', {}, '10.96.0.1', { ...own, a: '1' }, [`${wrong} hand-edited`]],
    ['another value', { a: '1' }, '10.96.0.1', { ...own, a: '2' }, [wrong]],
    ['no managed-by', {}, '10.96.0.1', {}, [`${wrong} hand-edited`]],
    ['headless', {}, 'None', { ...own, [label.headless]: '' }, []],
    ['headless label missing', {}, 'None', own, [`${wrong} headless-label-kept`]],
    [
      'headless label too many',
      {},
      '1.1.1.1',
      { ...own, [label.headless]: '' },
      [`${wrong} headless-label-kept`],
    ],
    ['headless label and another', {}, 'None', { ...own, a: '1' }, [`${wrong} hand-edited`]],
  ];
  test.each(cases)('%s', (_, labels, clusterIP, got, want) => {
    const of = service({ labels, clusterIP });
    expect(differencesOf([of, pod(), node(), endpoints({ labels: got })])).toEqual(want);
  });

  test('before 1.33 there is no managed-by', () => {
    const objects = [service(), pod(), node()];
    expect(differencesOf([...objects, endpoints({ labels: {} })], before33)).toEqual([]);
    expect(differencesOf([...objects, endpoints()], before33)).toEqual([wrong]);
  });

  test('absence differs from emptiness', () => {
    const keys = differingKeys({ b: '1', a: '', c: '3' }, { b: '2', c: '3', d: '' });
    expect(keys.sort()).toEqual(['a', 'b', 'd']);
    const code = 'endpoints-labels-different';
    expect(compareLabels(code, 'o', { a: '' }, {})).toMatchObject([
      { field: 'metadata.labels a', expected: 'a=', actual: 'a absent' },
    ]);
    expect(compareLabels(code, 'o', { a: '1' }, { a: '1' })).toEqual([]);
  });
});

const ofNoPod = address({ ip: '10.0.0.9', target: target('gone') });
const terminal = pod({ name: 'web-9', ips: ['10.0.0.9'], terminal: true, ready: false });
const ofTerminal = (ready: boolean): EndpointAddress =>
  address({ ip: '10.0.0.9', ready, target: target('web-9') });

describe('addresses', () => {
  const unexpected = 'endpoints-address-unexpected';
  const cases: [string, AnyObject[], EndpointAddress[], string[]][] = [
    ['of no pod', [], [address(), ofNoPod], [`${unexpected} warning`]],
    ['missing', [], [], ['endpoints-address-missing warning']],
    [
      'of a terminal pod that is not ready: no controller was woken',
      [terminal],
      [address(), ofTerminal(false)],
      [`${unexpected} info pod-phase-unnoticed`],
    ],
    [
      'of a terminal pod that is ready',
      [{ ...terminal, ready: true }],
      [address(), ofTerminal(true)],
      [`${unexpected} warning pod-phase-unnoticed`],
    ],
    [
      'of a terminal pod that is not ready, shown ready',
      [terminal],
      [address(), ofTerminal(true)],
      [`${unexpected} warning`],
    ],
    [
      'of a terminal pod that is not selected',
      [{ ...terminal, labels: {} }],
      [address(), ofTerminal(false)],
      [`${unexpected} warning`],
    ],
    [
      'of a terminal pod of an earlier uid',
      [{ ...terminal, uid: 'new' }],
      [address(), ofTerminal(false)],
      [`${unexpected} warning`],
    ],
    [
      'of a terminating pod',
      [{ ...terminal, terminal: false, deleting: true }],
      [address(), ofTerminal(false)],
      [`${unexpected} warning`],
    ],
    [
      'written by hand',
      [],
      [address(), address({ ip: '10.0.0.9', target: null })],
      [`${unexpected} warning hand-edited`],
    ],
    ['in other words', [], [address({ ip: '10.0.0.01' })], []],
  ];
  test.each(cases)('%s', (_, more, addresses, want) => {
    const written = endpoints({ subsets: addresses.length === 0 ? [] : [subset(addresses)] });
    expect(differencesOf([service(), pod(), node(), ...more, written])).toEqual(want);
  });

  test('two pods at one address are both listed', () => {
    const two = [address(), address({ target: target('web-2') })];
    const objects = [service(), pod(), pod({ name: 'web-2' }), node()];
    expect(differencesOf([...objects, endpoints({ subsets: [subset(two)] })])).toEqual([]);
    expect(differencesOf([...objects, endpoints()])).toEqual(['endpoints-address-missing warning']);
  });

  test('the ports of one pod may be spread over subsets', () => {
    const ports = [servicePort(), servicePort({ name: 'b', targetPort: 1 })];
    const spread = [
      subset([address()], [port()]),
      subset([address()], [port({ name: 'b', port: 1 })]),
    ];
    const objects = [service({ ports }), pod(), node(), endpoints({ subsets: spread })];
    expect(differencesOf(objects)).toEqual([]);
  });

  test('a pod of another namespace at the address says nothing', () => {
    const stranger = pod({ namespace: 'bank', name: 'x', uid: 'x' });
    expect(differencesOf([service(), pod(), stranger, node(), endpoints()])).toEqual([]);
  });
});

describe('a pod without node freezes the object', () => {
  const unbound = pod({ name: 'web-2', ips: ['10.0.0.2'], node: '' });
  const written = endpoints({ subsets: [subset([ofNoPod])] });

  test('it explains all differences, and the finding about the pod reports it', () => {
    const of = auditService([service(), pod(), unbound, node(), written]);
    expect(textsOf(of, 'endpoints').sort()).toEqual([
      'endpoints-address-missing info pod-without-node',
      'endpoints-address-missing info pod-without-node',
      'endpoints-address-unexpected info pod-without-node',
    ]);
    expect(textsOf(of, 'input')).toContain('pod-without-node warning');
  });

  test('a missing object too', () => {
    expect(differencesOf([service(), unbound, node()])).toEqual([
      'endpoints-missing info pod-without-node',
    ]);
  });

  test('a pod that is not listed anyway freezes nothing', () => {
    for (const more of [{ ips: [] }, { terminal: true }, { deleting: true }, { labels: {} }]) {
      expect(
        differencesOf([service(), pod(), { ...unbound, ...more }, node(), endpoints()]),
      ).toEqual([]);
    }
  });
});

const ip = (index: number): string => `10.1.${index >> 8}.${index & 255}`;

function crowd(count: number, ready = count): AnyObject[] {
  const pods = times(count, (index) =>
    pod({ name: `web-${index}`, ips: [ip(index)], ready: index < ready }),
  );
  return [service(), node(), ...pods];
}

function listing(indexes: readonly number[], ready: number, marked = true): AnyObject {
  const all = indexes.map((index) =>
    address({ ip: ip(index), ready: index < ready, target: target(`web-${index}`) }),
  );
  const annotations: Labels = marked ? { [annotation.overCapacity]: 'truncated' } : {};
  return endpoints({ subsets: [subset(all)], annotations });
}

describe('capacity', () => {
  const wrong = 'endpoints-over-capacity-different warning';
  const from = (first: number, count: number): number[] => times(count, (index) => first + index);
  const cases: [string, AnyObject[], AnyObject, string[]][] = [
    ['all of them', crowd(1000), listing(from(0, 1000), 1000, false), []],
    ['truncated', crowd(1001), listing(from(0, 1000), 1001), []],
    ['other ones survive', crowd(1001), listing(from(1, 1000), 1001), []],
    ['not marked', crowd(1001), listing(from(0, 1000), 1001, false), [wrong]],
    ['marked without cause', crowd(10), listing(from(0, 10), 10), [`${wrong} hand-edited`]],
    ['not truncated', crowd(1001), listing(from(0, 1001), 1001), [wrong]],
    ['too few', crowd(1001), listing(from(0, 999), 1001), [wrong]],
    ['not ready ones are cut', crowd(1001, 900), listing(from(0, 1000), 900), []],
    ['a ready one was cut instead', crowd(1001, 900), listing(from(1, 1000), 900), [wrong]],
  ];
  test.each(cases)('%s', (_, objects, written, want) => {
    expect(differencesOf([...objects, written])).toEqual(want);
  });

  test('a mark of another value is a difference', () => {
    const marked = endpoints({ annotations: { [annotation.overCapacity]: 'warning' } });
    expect(differencesOf([service(), pod(), node(), marked])).toEqual([`${wrong} hand-edited`]);
  });

  test('addresses are counted over all subsets', () => {
    const two = [servicePort({ targetPort: 'http' }), servicePort({ name: 'b', targetPort: 1 })];
    const pods = times(600, (index) => {
      const ports = [
        { name: 'http', protocol: 'TCP', port: index % 2 === 0 ? 1 : 2, sidecar: false },
      ];
      return pod({ name: `web-${index}`, ips: [ip(index)], ports });
    });
    const { record } = auditService([service({ ports: two }), node(), ...pods]);
    const sizes = truncationOf(record)?.subsets.map(({ ready }) => ready);
    // 600 for the port that all share, 300 for each of the others: shares of 1,200 in 1,000.
    expect(sizes?.sort()).toEqual([250, 250, 500]);
    expect(truncationOf(auditService(crowd(1000)).record)).toBeNull();
  });
});

describe('an address that is listed twice', () => {
  const [first, second] = [port(), port({ name: 'dns', port: 53 })];
  const of = service({
    ports: [servicePort(), servicePort({ name: 'dns', port: 53, targetPort: 53 })],
  });
  const cases: [string, EndpointSubset[], string[]][] = [
    ['in one subset', [subset([address(), address()], [first, second])], []],
    [
      'with a port of both',
      [subset([address()], [first, second]), subset([address()], [first])],
      [],
    ],
    ['under other ports', [subset([address()], [first]), subset([address()], [second])], []],
    [
      'later with another Node, which repacking drops',
      [subset([address()], [first]), subset([address({ node: 'node-b' })], [second])],
      [],
    ],
    [
      'at first with another Node, which repacking keeps',
      [subset([address({ node: 'node-b' })], [first]), subset([address()], [second])],
      ['endpoints-address-different warning'],
    ],
    [
      'later with another name of the same uid',
      [
        subset([address()], [first]),
        subset([address({ target: { ...target('web-1'), name: 'x' } })], [second]),
      ],
      [],
    ],
    [
      'once without target',
      [subset([address()], [first, second]), subset([address({ target: null })], [first])],
      ['endpoints-address-unexpected warning hand-edited'],
    ],
    [
      'once not ready, which counts',
      [subset([address(), address({ ready: false })], [first, second])],
      ['endpoints-readiness-different warning'],
    ],
    [
      'not ready under one port',
      [subset([address()], [first, second]), subset([address({ ready: false })], [second])],
      ['endpoints-address-unexpected warning', 'endpoints-ports-different warning'],
    ],
  ];
  test.each(cases)('%s', (_, subsets, want) => {
    expect(differencesOf([of, pod(), node(), endpoints({ subsets })]).sort()).toEqual(want);
  });

  test('ports with an appProtocol are distinguished by their subsets', () => {
    const h2c = service({ ports: [servicePort({ appProtocol: 'h2c' })] });
    const own = [port({ appProtocol: 'h2c' })];
    const differencesWith = (...subsets: EndpointSubset[]): string[] =>
      differencesOf([h2c, pod(), node(), endpoints({ subsets })]);
    expect(differencesWith(subset([address(), address()], own))).toEqual([]);
    const wrong = ['endpoints-ports-different warning'];
    expect(differencesWith(subset([address()], own), subset([address()], own))).toEqual(wrong);
    expect(differencesWith(subset([address()], [...own, ...own]))).toEqual(wrong);
  });
});
