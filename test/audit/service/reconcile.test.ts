// How differences come, stay and go: which cause history shows, what a wake ends, where a clock
// goes on, and how long an output took. On whole clusters, change by change.

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { ConvergenceSample, ServiceDifference } from '../../../src/audit/service/reconcile.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import type { Release } from '../../../src/shadow/release.ts';
import { releaseOf } from '../../../src/shadow/release.ts';
import {
  address,
  contextOf,
  endpoint,
  endpoints,
  event,
  itemText,
  mirror,
  node,
  owner,
  pod,
  service,
  slice,
  storeOf,
  subset,
  target,
  times,
} from '../../build.ts';

const settled: AnyObject[] = [
  service(),
  pod(),
  node(),
  endpoints(),
  slice(),
  node({ name: 'node-b' }),
];

/** A cluster that is followed, with a settle window of 30 s. */
function following(objects: readonly AnyObject[] = settled, release: Release | null = null) {
  const store = storeOf(objects);
  const samples: ConvergenceSample[] = [];
  const resolved: Finding[] = [];
  const settle = createPendingFindings({
    window: 30,
    keep: 9,
    onResolve: (one) => resolved.push(one),
  });
  const context = contextOf(store, release === null ? {} : { release });
  const onConvergence = (one: ConvergenceSample): void => void samples.push(one);
  const serviceAuditor = createServiceAuditor({ context, settle, onConvergence });
  runToEnd(serviceAuditor.begin(0));
  const apply = (
    type: 'added' | 'deleted',
    at: number,
    changed: readonly AnyObject[],
    gap = false,
  ): void => {
    for (const object of changed) {
      const change = store.apply({ ...event(type, object, at), gap });
      if (change !== null) serviceAuditor.apply(change);
    }
  };
  const items = (): ServiceDifference[] =>
    [...(serviceAuditor.audited.get('shop/web')?.items.values() ?? [])].flat();
  return {
    settle,
    samples,
    resolved,
    put: (at: number, ...changed: AnyObject[]) => apply('added', at, changed),
    listed: (at: number, ...changed: AnyObject[]) => apply('added', at, changed, true),
    gone: (at: number, ...changed: AnyObject[]) => apply('deleted', at, changed),
    texts: () => items().map(itemText).sort(),
    clocks: () => items().map(({ since }) => since),
    find: (code: string) => items().find(({ difference }) => difference.code === code),
  };
}

const notReady = pod({ ready: false });
const sliceNotReady = slice({
  generation: 2,
  endpoints: [endpoint({ ready: false, serving: false })],
});
const endpointsNotReady = endpoints({ subsets: [subset([address({ ready: false })])] });

const conditions = 'slice-conditions-different';

const causeCases: [string, AnyObject[], string[]][] = [
  [
    'a change that wakes',
    [notReady],
    ['endpoints-readiness-different warning', `${conditions} critical`],
  ],
  [
    'a phase that wakes no controller',
    [pod({ terminal: true })],
    [
      'endpoints-address-unexpected warning pod-phase-unnoticed',
      'slice-endpoint-unexpected critical pod-phase-unnoticed',
    ],
  ],
  [
    'a node that wakes no controller',
    [pod({ node: 'node-b' })],
    [
      'endpoints-address-different warning pod-change-unnoticed',
      'slice-endpoint-different warning pod-change-unnoticed',
    ],
  ],
  [
    'a zone that wakes no controller, and that no controller reads',
    [node({ zone: 'zone-b' })],
    ['slice-endpoint-different info node-change-unnoticed'],
  ],
  [
    'Endpoints edited by hand',
    [endpointsNotReady],
    ['endpoints-readiness-different warning hand-edited'],
  ],
  ['a slice edited by hand, which is noticed', [sliceNotReady], [`${conditions} warning`]],
  [
    'a slice whose owners are edited by hand',
    [slice({ owners: [] })],
    ['slice-owner-different warning hand-edited'],
  ],
];

describe('the cause that history shows', () => {
  test.each(causeCases)('%s', (_, changed, want) => {
    const cluster = following();
    expect(cluster.texts()).toEqual([]);
    cluster.put(10, ...changed);
    expect(cluster.texts()).toEqual(want);
  });

  test('differences at the start have likely causes only', () => {
    const { texts, find } = following([
      service(),
      pod({ terminal: true }),
      node(),
      endpoints(),
      slice(),
    ]);
    expect(texts()).toEqual([
      'endpoints-address-unexpected warning pod-phase-unnoticed',
      'slice-endpoint-unexpected critical pod-phase-unnoticed',
    ]);
    expect(find('slice-endpoint-unexpected')?.proven).toBe(false);
  });

  test('a quiet difference is information only if its cause is proven', () => {
    const moved = node({ zone: 'zone-b' });
    const { texts } = following([service(), pod(), moved, endpoints(), slice()]);
    expect(texts()).toEqual(['slice-endpoint-different warning node-change-unnoticed']);
  });

  test('an edited mirrored slice is not repaired before 1.31', () => {
    const selectorless = service({ selector: null });
    const from = endpoints({ labels: {}, subsets: [subset([address({ target: null })])] });
    const mirrored = (ready: boolean, generation: number) =>
      slice({
        generation,
        labels: {
          'kubernetes.io/service-name': 'web',
          'endpointslice.kubernetes.io/managed-by': 'endpointslicemirroring-controller.k8s.io',
        },
        owners: [owner({ kind: 'Endpoints' })],
        endpoints: [
          endpoint({ ready, serving: null, terminating: null, zone: null, target: null }),
        ],
      });
    const edited = (version: string): string[] => {
      const cluster = following([selectorless, from, mirrored(true, 1)], releaseOf(version));
      cluster.put(10, mirrored(false, 2));
      return cluster.texts();
    };
    expect(edited('1.30')).toEqual(['mirror-conditions-different warning hand-edited']);
    expect(edited('1.36')).toEqual(['mirror-conditions-different warning']);
  });
});

describe('a wake clears a cause', () => {
  test('and restarts the clock', () => {
    const cluster = following();
    cluster.put(10, pod({ terminal: true }));
    cluster.put(25, service({ labels: { a: '1' } }));
    const stray = cluster.find('slice-endpoint-unexpected');
    expect(stray).toMatchObject({ cause: null, since: 25 });
    cluster.settle.advance(54);
    expect(cluster.settle.open()).toEqual([]);
    cluster.settle.advance(55);
    expect(
      cluster.settle.open().map(({ code, cause, since }) => `${code} ${cause} ${since}`),
    ).toEqual([
      'endpoints-address-unexpected null 25',
      'slice-endpoint-unexpected null 25',
      'slice-labels-different null 25',
      'endpoints-labels-different null 25',
    ]);
  });

  test('but not that of another Service', () => {
    const cluster = following();
    cluster.put(10, pod({ terminal: true }));
    cluster.put(25, service({ name: 'api', selector: { app: 'api' } }));
    expect(cluster.find('slice-endpoint-unexpected')).toMatchObject({
      cause: 'pod-phase-unnoticed',
      since: 10,
    });
  });

  test('and resolves its finding, while the difference is pending again', () => {
    const cluster = following();
    cluster.put(10, pod({ terminal: true }));
    cluster.settle.advance(45);
    expect(cluster.settle.open()).toHaveLength(2);
    cluster.put(50, pod({ name: 'web-2', ips: ['10.0.0.2'] }));
    expect(cluster.resolved.map(({ cause }) => cause)).toEqual([
      'pod-phase-unnoticed',
      'pod-phase-unnoticed',
    ]);
    expect(cluster.settle.open()).toEqual([]);
  });
});

describe('the clock of a unit', () => {
  test('continues while an address is wrong in one way or another', () => {
    const cluster = following();
    cluster.put(10, pod({ ready: false }));
    cluster.put(20, slice({ generation: 2, endpoints: [] }));
    expect(cluster.find('slice-endpoint-missing')?.since).toBe(10);
  });

  test.each([
    ['continues that of an open finding', 'put', 10],
    ['starts with the changes that were missed, which may hide an end', 'listed', 100],
  ] as const)('%s', (_, how, since) => {
    const cluster = following();
    cluster.put(10, notReady);
    cluster.settle.advance(40);
    expect(cluster.settle.open().map(({ code }) => code)).toContain(conditions);
    cluster[how](100, service({ labels: { a: '1' } }));
    cluster.put(101, slice({ generation: 3, endpoints: [] }));
    expect(cluster.find('slice-endpoint-missing')).toMatchObject({ since });
  });

  test('keeps its unseen time when an address becomes wrong in another way', () => {
    const { put, gone, settle } = following();
    put(10, notReady);
    runToEnd(settle.delay({ outputs: new Set(['endpointslices']), from: 15, to: 25, least: 5 }));
    gone(28, notReady);
    settle.advance(49.9);
    expect(settle.open().map(({ output }) => output)).toEqual(['endpoints']);
    settle.advance(50);
    expect(settle.open().map(({ code }) => code)).toContain('slice-endpoint-unexpected');
  });

  test('starts again where the difference before had a cause', () => {
    const cluster = following();
    cluster.put(10, node({ zone: 'zone-b' }));
    expect(cluster.find('slice-endpoint-different')).toMatchObject({ since: 10, severity: 'info' });
    cluster.put(100, slice({ generation: 2, endpoints: [] }));
    expect(cluster.find('slice-endpoint-missing')).toMatchObject({ cause: null, since: 100 });
    cluster.put(106, slice({ generation: 3, endpoints: [endpoint({ zone: 'zone-b' })] }));
    expect(cluster.texts()).toEqual([]);
    expect(cluster.samples).toEqual([]);
  });

  const hinted = slice({ generation: 2, endpoints: [endpoint({ forZones: ['zone-z'] })] });
  const empty = slice({ generation: 3, endpoints: [] });

  test('starts again where only what the slice says of the endpoint was wrong before', () => {
    const cluster = following();
    cluster.put(10, hinted);
    expect(cluster.texts()).toEqual(['slice-hints-different warning']);
    cluster.put(100, empty);
    expect(cluster.find('slice-endpoint-missing')).toMatchObject({ cause: null, since: 100 });
    cluster.put(105, { ...hinted, generation: 4 });
    expect(cluster.find('slice-hints-different')).toMatchObject({ since: 10 });
  });

  test('continues where an endpoint that was missing is listed with wrong hints', () => {
    const cluster = following();
    cluster.put(10, empty);
    cluster.put(15, { ...hinted, generation: 4 });
    expect(cluster.find('slice-hints-different')).toMatchObject({ cause: null, since: 10 });
    cluster.put(17, slice({ generation: 5 }));
    cluster.put(18, { ...hinted, generation: 6 });
    expect(cluster.find('slice-hints-different')).toMatchObject({ since: 18 });
  });

  test('starts again for a worse severity, and later goes on for the lesser one', () => {
    const cluster = following([service(), notReady, node(), endpointsNotReady, sliceNotReady]);
    cluster.put(10, empty);
    cluster.put(20, slice({ generation: 4 }));
    expect(cluster.find(conditions)).toMatchObject({ severity: 'critical', since: 20 });
    cluster.put(25, { ...empty, generation: 5 });
    expect(cluster.find('slice-endpoint-missing')).toMatchObject({ since: 10 });
  });

  test('does not count what was not seen while a worse difference was there', () => {
    const { put, settle } = following([
      service(),
      notReady,
      node(),
      endpointsNotReady,
      sliceNotReady,
    ]);
    put(10, empty);
    put(15, slice({ generation: 4 }));
    runToEnd(settle.delay({ outputs: new Set(['endpointslices']), from: 15, to: 25, least: 5 }));
    put(30, { ...empty, generation: 5 });
    settle.advance(49.9);
    expect(settle.open()).toEqual([]);
    settle.advance(50);
    expect(settle.open()).toMatchObject([{ code: 'slice-endpoint-missing', since: 10 }]);
  });

  test('starts again when a difference without harm begins to do harm', () => {
    const unready = (ready: boolean) =>
      slice({ generation: 2, endpoints: [endpoint({ ready, serving: ready, forZones: ['z'] })] });
    const near = service({ trafficDistribution: 'PreferClose' });
    const cluster = following([near, notReady, node(), endpointsNotReady, unready(false)]);
    expect(cluster.texts()).toEqual(['slice-hints-different info']);
    cluster.put(100, unready(true), pod());
    expect(cluster.find('slice-hints-different')).toMatchObject({ since: 100 });
  });

  test('restarts once the address was as expected', () => {
    const cluster = following();
    cluster.put(10, notReady);
    cluster.put(20, sliceNotReady, endpointsNotReady);
    expect(cluster.texts()).toEqual([]);
    cluster.put(30, pod());
    expect(cluster.clocks()).toEqual([30, 30]);
  });

  test('continues if a slice is written and still wrong', () => {
    const wrong = { owners: [owner({ uid: 'old' })] };
    const cluster = following([service(), pod(), node(), endpoints(), slice(wrong)]);
    expect(cluster.find('slice-owner-different')?.since).toBe(0);
    cluster.put(10, notReady);
    cluster.put(20, slice({ ...wrong, generation: 2, endpoints: sliceNotReady.endpoints }));
    expect(cluster.find('slice-owner-different')?.since).toBe(0);
    cluster.settle.advance(30);
    const [finding] = cluster.settle.open().filter(({ output }) => output === 'endpointslices');
    expect(finding).toMatchObject({ code: 'slice-owner-different', openedAt: 30 });
  });

  test('never opens a finding for an address that is as expected now and then', () => {
    const cluster = following();
    for (let at = 10; at < 200; at += 40) {
      cluster.put(at, notReady);
      cluster.put(at + 19, sliceNotReady, endpointsNotReady);
      cluster.put(at + 20, pod());
      cluster.put(at + 39, slice({ generation: at }), endpoints());
    }
    cluster.settle.advance(300);
    expect(cluster.settle.open()).toEqual([]);
    expect(cluster.resolved).toEqual([]);
  });
});

describe('causes that the input shows', () => {
  const unbound = pod({ name: 'web-2', ips: ['10.0.0.2'], node: '' });

  test('begin and end with that input, for every address', () => {
    const cluster = following();
    cluster.put(10, notReady);
    expect(cluster.find('endpoints-readiness-different')?.cause).toBeNull();
    cluster.put(20, unbound);
    expect(cluster.find('endpoints-readiness-different')).toMatchObject({
      cause: 'pod-without-node',
      severity: 'info',
    });
    cluster.gone(30, unbound);
    expect(cluster.find('endpoints-readiness-different')).toMatchObject({
      cause: null,
      severity: 'warning',
    });
  });

  test('give the controller the full window when they end', () => {
    const cluster = following();
    cluster.put(10, unbound);
    cluster.put(12, notReady);
    cluster.gone(100, unbound);
    cluster.settle.advance(129);
    expect(cluster.settle.open().filter(({ output }) => output === 'endpoints')).toEqual([]);
    cluster.settle.advance(130);
    expect(cluster.settle.open().filter(({ output }) => output === 'endpoints')).toHaveLength(1);
  });
});

describe('an object that is created and deleted', () => {
  test('recreated Endpoints are compared at every address', () => {
    const cluster = following();
    cluster.gone(10, endpoints());
    expect(cluster.texts()).toEqual(['endpoints-missing warning']);
    cluster.put(11, endpoints({ subsets: [] }));
    expect(cluster.texts()).toEqual(['endpoints-address-missing warning']);
    cluster.gone(12, endpoints({ subsets: [] }));
    expect(cluster.texts()).toEqual(['endpoints-missing warning']);
  });

  test('an empty slice is surplus as long as another slice exists', () => {
    const cluster = following();
    const empty = slice({ name: 'web-empty', endpoints: [], ports: [] });
    cluster.put(10, empty);
    expect(cluster.texts()).toEqual(['slice-surplus-empty info']);
    cluster.gone(20, slice());
    expect(cluster.texts()).toEqual(['slice-endpoint-missing warning']);
  });

  test('a Service that arrives after its slices owns them', () => {
    const [of, ...others] = settled;
    const cluster = following(others);
    expect(cluster.texts()).toEqual(['endpoints-orphaned info', 'slice-orphaned warning']);
    if (of !== undefined) cluster.put(10, of);
    expect(cluster.texts()).toEqual([]);
  });
});

test('addresses that were truncated are missing once they fit', () => {
  const ip = (index: number): string => `10.1.${index >> 8}.${index & 255}`;
  const pods = times(1001, (index) => pod({ name: `web-${index}`, ips: [ip(index)] }));
  const listed = pods
    .slice(0, 1000)
    .map(({ name, ips }) => address({ ip: ips[0] ?? '', target: target(name) }));
  const truncated = endpoints({
    subsets: [subset(listed)],
    annotations: { 'endpoints.kubernetes.io/over-capacity': 'truncated' },
  });
  const cluster = following([service(), node(), ...pods, truncated]);
  const ofEndpoints = (): string[] =>
    cluster.texts().filter((text) => text.startsWith('endpoints-address'));
  expect(ofEndpoints()).toEqual([]);
  cluster.gone(10, ...pods.slice(0, 1));
  expect(ofEndpoints()).toEqual([
    'endpoints-address-missing warning',
    'endpoints-address-unexpected warning',
  ]);
  cluster.put(20, ...pods.slice(0, 1));
  expect(ofEndpoints()).toEqual([]);
});

describe('convergence', () => {
  const brief = ({ output, operation, seconds }: ConvergenceSample): string =>
    `${output} ${operation} ${seconds}`;
  const fresh = pod({ name: 'web-2', ips: ['10.0.0.2'] });
  const both = [endpoint(), endpoint({ addresses: ['10.0.0.2'], target: target('web-2') })];

  test('is the time from the input to the output, by operation', () => {
    const cluster = following();
    cluster.put(10, fresh);
    cluster.put(11, slice({ generation: 2, endpoints: both }));
    cluster.put(20, notReady);
    cluster.put(
      21.5,
      slice({ generation: 3, endpoints: [...sliceNotReady.endpoints, ...both.slice(1)] }),
    );
    cluster.gone(30, fresh);
    cluster.put(33, sliceNotReady);
    expect(cluster.samples.map(brief)).toEqual([
      'endpointslices add 1',
      'endpointslices update 1.5',
      'endpointslices remove 3',
    ]);
  });

  test('is not measured if the output changed first', () => {
    const cluster = following();
    cluster.put(10, sliceNotReady);
    cluster.put(15, slice({ generation: 3 }));
    expect(cluster.samples).toEqual([]);
  });

  test('is not measured for differences at the start', () => {
    const cluster = following([service(), notReady, node(), endpointsNotReady, slice()]);
    cluster.put(10, sliceNotReady);
    expect(cluster.texts()).toEqual([]);
    expect(cluster.samples).toEqual([]);
  });

  const listed = (...ready: boolean[]) =>
    ready.map((isReady, index) =>
      endpoint({
        ...(index === 0 ? {} : { addresses: ['10.0.0.2'], target: target('web-2') }),
        ready: isReady,
        serving: isReady,
      }),
    );

  test('continues with its first operation while a controller writes in several steps', () => {
    const cluster = following();
    cluster.put(10, fresh);
    cluster.put(12, slice({ generation: 2, endpoints: listed(true, false) }));
    expect(cluster.samples).toEqual([]);
    cluster.put(14, slice({ generation: 3, endpoints: listed(true, true) }));
    expect(cluster.samples.map(brief)).toEqual(['endpointslices add 4']);
  });

  test('of slices is measured if Endpoints were late, but not if pods were', () => {
    const cluster = following();
    cluster.put(20, notReady);
    cluster.listed(21, endpointsNotReady);
    expect(cluster.clocks()).toEqual([20]);
    cluster.put(22, sliceNotReady);
    expect(cluster.samples.map(brief)).toContain('endpointslices update 2');
    const other = following();
    other.put(20, notReady);
    other.listed(21, { ...notReady, resourceVersion: '99' });
    other.put(22, sliceNotReady);
    expect(other.samples).toEqual([]);
  });

  test('is measured separately for overlapping changes', () => {
    const cluster = following();
    cluster.put(10, fresh);
    cluster.put(12, notReady);
    cluster.put(13, slice({ generation: 2, endpoints: listed(true, true) }));
    cluster.put(15, slice({ generation: 3, endpoints: listed(false, true) }));
    expect(cluster.samples.map(brief)).toEqual(['endpointslices add 3', 'endpointslices update 3']);
  });

  test('of mirrored slices continues per address, although they are one unit', () => {
    const from = (...ips: string[]) => {
      const addresses = ips.map((ip) => address({ ip, target: null, node: null }));
      return endpoints({ labels: {}, subsets: [subset(addresses)] });
    };
    const to = (generation: number, ready: boolean, ...ips: string[]) => {
      const one = (ip: string) =>
        endpoint({
          ...{ addresses: [ip], target: null, node: null, zone: null },
          ...{ ready, serving: null, terminating: null },
        });
      return mirror({ generation, endpoints: ips.map(one) });
    };
    const cluster = following([
      service({ selector: null }),
      from('10.9.0.1'),
      to(1, true, '10.9.0.1'),
      node(),
    ]);
    expect(cluster.texts()).toEqual([]);
    cluster.put(10, from('10.9.0.1', '10.9.0.2'));
    cluster.put(12, from('10.9.0.1', '10.9.0.2', '10.9.0.3'));
    cluster.put(13, to(2, true, '10.9.0.1', '10.9.0.2'));
    expect(cluster.samples.map(brief)).toEqual(['mirrored add 3']);
    cluster.put(17, to(3, true, '10.9.0.1', '10.9.0.2', '10.9.0.3'));
    expect(cluster.samples.map(brief)).toEqual(['mirrored add 3', 'mirrored add 5']);
  });

  test('is not measured if a gap may hide the end of a difference', () => {
    const cluster = following();
    cluster.put(10, notReady);
    cluster.listed(20, pod({ ready: false, labels: { app: 'web', tier: 'a' } }));
    cluster.put(25, sliceNotReady, endpointsNotReady);
    expect(cluster.texts()).toEqual([]);
    expect(cluster.samples).toEqual([]);
  });

  test('is not measured if the input changed back', () => {
    const cluster = following();
    cluster.put(10, notReady);
    cluster.put(15, pod());
    expect(cluster.samples).toEqual([]);
  });
});
