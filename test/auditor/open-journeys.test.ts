// Which changes of Pods begin a journey, and what ends its stages, through the whole auditor.

import {
  address,
  auditorDefaults,
  endpoint,
  endpoints,
  event,
  node,
  pod,
  service,
  slice,
  subset,
  target,
} from '../build.ts';
import { describe, expect, test } from 'vitest';

import type { Journey } from '../../src/audit/measure/journey.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import {
  createJourneyTracker,
  restartJourneys,
  trackPod,
} from '../../src/auditor/open-journeys.ts';
import type { AnyObject } from '../../src/model/objects.ts';
import { annotation, label, resources } from '../../src/model/objects.ts';

const t0 = 1_800_000_000;

const settled = [service(), pod(), node(), endpoints(), slice()];

let version = 1;

/** A cluster that is followed; versions rise by themselves. */
function following(objects: readonly AnyObject[] = settled) {
  const ended: Journey[] = [];
  const onJourney = (journey: Journey): void => void ended.push(journey);
  const auditor = createAuditor({ ...auditorDefaults, onJourney });
  auditor.take({ kind: 'header', at: t0, kubernetes: 'v1.36.3', resources });
  const give = (type: 'added' | 'deleted', object: AnyObject, at: number, gap = false): void => {
    const resourceVersion = String(++version);
    const generation = version;
    const given = {
      ...object,
      resourceVersion,
      at: t0 + at,
      ...('portMap' in object ? { generation } : {}),
    };
    auditor.take({ kind: 'event', event: { ...event(type, given, t0 + at), gap } });
  };
  for (const object of objects) give('added', object, 0);
  for (const resource of resources) auditor.take({ kind: 'synced', at: t0, resource });
  return {
    auditor,
    ended,
    put: (at: number, ...changed: AnyObject[]) => {
      for (const object of changed) give('added', object, at);
    },
    listed: (at: number, object: AnyObject) => {
      give('added', object, at, true);
    },
    gone: (at: number, object: AnyObject) => {
      give('deleted', object, at);
    },
    open: () => [...auditor.journeys.open()],
    texts: () =>
      ended.map(({ pod: name, operation, quality, begun, stages, end }) => {
        const reached = stages.map(({ stage, at }) => `${stage} ${at - t0}`);
        return `${name} ${operation} ${quality} ${begun - t0}: ${reached.join(', ')}, ${end ?? ''}`;
      }),
  };
}

const notReady = (at: number) => pod({ ready: false, turnedAt: t0 + at });
const unready = endpoint({ ready: false, serving: false });
const endpointsNotReady = endpoints({ subsets: [subset([address({ ready: false })])] });

test('the journey of a Pod that becomes unready ends with both outputs', () => {
  const { put, texts, open, ended } = following();
  put(11.5, notReady(10));
  expect(open()).toHaveLength(1);
  put(12, slice({ endpoints: [unready] }));
  put(13, endpointsNotReady);
  expect(texts()).toEqual([
    'web-1 remove ok 10: arrival 11.5, endpointslices 12, endpoints 13, complete',
  ]);
  const objects = ended[0]?.stages.map(({ object }) => object);
  expect(objects).toEqual(['Pod shop/web-1', 'EndpointSlice shop/web-abcde', 'Endpoints shop/web']);
});

test('one write ends the journeys of many Pods, and their stages name it', () => {
  const { put, ended } = following();
  const others = ['web-2', 'web-3'].map((name, index) =>
    pod({ name, ips: [`10.0.0.${index + 2}`], turnedAt: t0 + 9 }),
  );
  put(10, ...others);
  const all = [
    endpoint(),
    ...others.map(({ name, ips }) => endpoint({ addresses: ips, target: target(name) })),
  ];
  put(12, slice({ endpoints: all }));
  const addresses = [
    address(),
    ...others.map(({ name, ips }) => address({ ip: ips[0] ?? '', target: target(name) })),
  ];
  put(13, endpoints({ subsets: [subset(addresses)] }));
  const writings = ended.map(({ stages }) =>
    stages.slice(1).map(({ object, resourceVersion }) => `${object} ${resourceVersion}`),
  );
  expect(writings).toHaveLength(2);
  expect(writings[0]).toEqual(writings[1]);
  expect(new Set(writings[0]).size).toBe(2);
});

test('outputs that arrive in a list after a lost watch show no lag', () => {
  const { put, listed, auditor, texts } = following();
  put(11.5, notReady(10));
  const annotations = { [annotation.triggerTime]: new Date((t0 + 10) * 1000).toISOString() };
  listed(70, slice({ endpoints: [unready], annotations }));
  listed(71, endpointsNotReady);
  expect(texts()).toEqual([
    'web-1 remove gap 10: arrival 11.5, endpointslices 70, endpoints 71, complete',
  ]);
  const { convergence, trigger, travel } = auditor.samples;
  const convergences = Object.values(convergence).flatMap((of) => Object.values(of));
  expect(convergences.filter(({ count }) => count > 0)).toEqual([]);
  expect(trigger.lag.endpointslices.count).toBe(0);
  expect(travel.removal.endpointslices.count + travel.removal.endpoints.count).toBe(0);
});

test('what a watch delivers just after a loss shows no lag', () => {
  const { auditor, put, texts } = following();
  const watch = (state: 'synced' | 'stale', at: number): void => {
    for (const resource of ['pods', 'endpoints', 'endpointslices'] as const) {
      auditor.take({ kind: 'watch', resource, state, at: t0 + at });
    }
  };
  watch('synced', 1);
  put(10, pod({ name: 'web-2', ips: ['10.0.0.2'], turnedAt: t0 + 10 }));
  watch('stale', 53);
  watch('synced', 54);
  const annotations = { [annotation.triggerTime]: new Date((t0 + 10) * 1000).toISOString() };
  const second = endpoint({ addresses: ['10.0.0.2'], target: target('web-2') });
  put(54.25, slice({ endpoints: [endpoint(), second], annotations }));
  const both = [address(), address({ ip: '10.0.0.2', target: target('web-2') })];
  put(54.5, endpoints({ subsets: [subset(both)] }));
  put(54.75, notReady(20));
  expect(texts()).toEqual([
    'web-2 add gap 10: arrival 10, endpointslices 54.25, endpoints 54.5, complete',
  ]);
  expect(auditor.journeys.openCount()).toBe(1);
  const { convergence, trigger, travel } = auditor.samples;
  expect(travel.begun.remove.gap).toBe(1);
  const convergences = Object.values(convergence).flatMap((of) => Object.values(of));
  expect(convergences.filter(({ count }) => count > 0)).toEqual([]);
  expect(trigger.lag.endpointslices.count).toBe(0);
  // Later writes are measured, however late they are.
  put(70, slice({ endpoints: [unready, second] }));
  expect(convergence.endpointslices.update.count).toBe(1);
});

describe('when a journey begins', () => {
  test('a deletion with a grace period: at the deletion request', () => {
    const { put, open } = following();
    put(10.25, pod({ deleting: true, turnedAt: t0 + 10 }));
    expect(open()).toMatchObject([{ operation: 'remove', quality: 'coarse', begun: t0 + 10 }]);
  });

  test('a deletion without a grace period: at its arrival', () => {
    const { gone, open } = following();
    gone(10.25, pod());
    expect(open()).toMatchObject([{ operation: 'remove', quality: 'arrival', begun: t0 + 10.25 }]);
  });

  test('new labels of a Pod that has been ready for long: at their arrival', () => {
    const { put, open } = following();
    const other = pod({ name: 'web-2', ips: ['10.0.0.2'], labels: {}, turnedAt: t0 - 9000 });
    put(5, other);
    expect(open()).toEqual([]);
    put(10, { ...other, labels: { app: 'web' } });
    expect(open()).toMatchObject([{ operation: 'add', quality: 'arrival', begun: t0 + 10 }]);
  });

  test('a change that arrived in a list has the quality gap', () => {
    const { listed, open } = following();
    listed(70, notReady(10));
    expect(open()).toMatchObject([{ quality: 'gap', begun: t0 + 10 }]);
  });

  test('a new address of a ready pod is an update', () => {
    const { put, open } = following();
    put(10, pod({ ips: ['10.0.0.9'] }));
    expect(open()).toMatchObject([{ operation: 'update', quality: 'arrival' }]);
    expect(open()[0]?.addresses).toEqual(['10.0.0.1', '10.0.0.9']);
  });
});

describe('a change without a journey', () => {
  const cases: [string, AnyObject[], AnyObject][] = [
    ['a pod that no Service selects', settled, pod({ name: 'x', ips: ['10.0.0.7'], labels: {} })],
    ['a pod that is not ready', settled, pod({ name: 'web-2', ips: ['10.0.0.2'], ready: false })],
    ['another version of the same', settled, pod({ hostname: 'other' })],
    [
      'readiness that is published anyhow',
      [service({ publishNotReadyAddresses: true }), pod(), node(), endpoints(), slice()],
      notReady(10),
    ],
    [
      'a Service whose endpoints another client writes',
      [service({ selector: null }), pod(), node(), endpoints(), slice()],
      notReady(10),
    ],
  ];
  test.each(cases)('%s', (_, objects, change) => {
    const { put, open, ended } = following(objects);
    put(11, change);
    expect([...open(), ...ended]).toEqual([]);
  });
});

test('a slice that arrives before its Pod ends the journey at once', () => {
  const { put, ended } = following();
  put(10, slice({ endpoints: [unready] }), endpointsNotReady);
  put(10.2, notReady(10));
  expect(ended).toMatchObject([{ end: 'complete', quality: 'coarse' }]);
  expect(ended[0]?.stages.map(({ within }) => within)).toEqual([0, null, null]);
});

test('a change that is reverted before any output followed is not measured', () => {
  const { put, texts, auditor } = following();
  put(11, notReady(11));
  put(14, pod({ turnedAt: t0 + 14 }));
  expect(texts()).toEqual(['web-1 remove coarse 11: arrival 11, overtaken']);
  const { readiness, removal } = auditor.samples.travel;
  expect([readiness.endpoints.count, removal.endpoints.count]).toEqual([0, 0]);
});

test('a Service that is deleted or loses its selector ends its journeys', () => {
  const { put, gone, texts } = following();
  put(11, notReady(11));
  gone(12, service());
  expect(texts()).toEqual(['web-1 remove coarse 11: arrival 11, gone']);
  const other = following();
  other.put(11, notReady(11));
  other.put(12, service({ selector: { app: 'none' } }), slice({ endpoints: [] }));
  other.put(13, endpoints({ subsets: [] }));
  expect(other.open()).toEqual([]);
});

test('a stage does not end while another difference is left', () => {
  const { put, open } = following();
  put(11, notReady(11));
  // The pod is listed as terminating, which it is not.
  put(12, slice({ endpoints: [{ ...unready, terminating: true }] }), endpointsNotReady);
  expect(open().flatMap(({ stages }) => stages.map(({ stage }) => stage))).toEqual([
    'arrival',
    'endpoints',
  ]);
});

test('a pod is not in Endpoints that do not exist yet', () => {
  const { put, texts } = following([service(), node()]);
  put(11, pod({ turnedAt: t0 + 11 }));
  put(12, slice());
  put(13, endpoints());
  expect(texts()).toEqual([
    'web-1 add coarse 11: arrival 11, endpointslices 12, endpoints 13, complete',
  ]);
});

test('a pod that truncated Endpoints may leave out does not wait for them', () => {
  const others = Array.from({ length: 1000 }, (_, index) =>
    pod({ name: `old-${index}`, ips: [`10.1.${index >> 8}.${index & 255}`] }),
  );
  const { put, texts } = following([service(), node(), ...others, endpoints(), slice()]);
  put(11, pod({ name: 'web-2', ips: ['10.0.0.2'], turnedAt: t0 + 11 }));
  put(12, slice({ endpoints: [endpoint({ addresses: ['10.0.0.2'], target: target('web-2') })] }));
  expect(texts()).toEqual(['web-2 add coarse 11: arrival 11, endpointslices 12, complete']);
});

test.each([
  ['nodes must follow a Service with a cluster IP', service(), []],
  ['a headless one', service({ clusterIP: 'None' }), ['complete']],
  ['one of another proxy', service({ labels: { [label.serviceProxyName]: 'x' } }), ['complete']],
])('%s', (_, of, want) => {
  const { auditor, put } = following([of, node(), endpoints(), slice()]);
  const services = auditor.serviceAuditor();
  if (services === null) throw new Error('No audit');
  const ends: unknown[] = [];
  const { listers } = auditor.store;
  const tracker = createJourneyTracker(listers, { onEnd: ({ end }) => ends.push(end) });
  restartJourneys(tracker, { services, release: auditor.released().release });
  tracker.nodes.add('node-1');
  put(11, pod());
  const after = listers.pods.get('shop/web-1') ?? null;
  trackPod(tracker, { resource: 'pods', before: null, after, at: t0 + 11 });
  expect(ends).toEqual(want);
});
