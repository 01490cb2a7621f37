// What proves a difference whose window has ended: streams that have reached that version, or a
// read that matches the cache.

import { describe, expect, test, vi } from 'vitest';

import type { FreshRead } from '../../../src/audit/pending/confirm.ts';
import { createConfirmer } from '../../../src/audit/pending/confirm.ts';
import type { Candidate } from '../../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { WatchProgress } from '../../../src/audit/pending/progress.ts';
import { createWatchProgress } from '../../../src/audit/pending/progress.ts';
import type { ServiceAuditor } from '../../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { AnyObject, EndpointSlice } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { contextOf, endpoints, node, pod, service, slice, storeOf } from '../../build.ts';

const web = service({ resourceVersion: '10' });
const one = pod({ resourceVersion: '20' });
const written = endpoints({ resourceVersion: '21' });
const sliced = slice({ resourceVersion: '22', endpoints: [] });
const all: AnyObject[] = [web, one, written, sliced, node({ resourceVersion: '5' })];

interface Confirming {
  readonly cut: WatchProgress;
  readonly store: ReturnType<typeof storeOf>;
  readonly confirmer: ReturnType<typeof createConfirmer>;
  readonly serviceAuditor: ServiceAuditor;
  /** Asks again for what waits, and says what has opened. */
  readonly opened: (now: number) => string[];
}

/** The slice lacks the pod since 100, and the window of 30 s ends at 130. */
function confirming(
  objects: readonly AnyObject[] = all,
  proxied: Parameters<typeof createConfirmer>[2] = null,
): Confirming {
  const cut = createWatchProgress();
  for (const resource of resources) {
    cut.setState(resource, 'listing', 90);
    cut.bookmark(resource, '50', 90);
    cut.setState(resource, 'synced', 90);
  }
  const current: { serviceAuditor: ServiceAuditor | null } = { serviceAuditor: null };
  const asked = { at: -Infinity };
  const store = storeOf(objects, resources);
  const context = contextOf(store);
  const confirmer = createConfirmer(cut, () => current.serviceAuditor, proxied);
  const settle = createPendingFindings({
    window: 30,
    keep: 9,
    burst: 256,
    admit: (due) => confirmer.admit(due, asked.at),
  });
  const serviceAuditor = createServiceAuditor({ context, settle });
  current.serviceAuditor = serviceAuditor;
  runToEnd(serviceAuditor.begin(100));
  return {
    cut,
    store,
    confirmer,
    serviceAuditor,
    opened(now) {
      asked.at = now;
      settle.advance(now);
      settle.retry(now);
      return settle.open().map(({ code, openedAt }) => `${code} ${openedAt}`);
    },
  };
}

const waiting = ({ serviceAuditor }: Confirming): Iterable<Candidate> =>
  serviceAuditor.settle.waiting();

function listed<T>(version: string, ...objects: T[]): { objects: T[]; version: string } {
  return { objects, version };
}

const asHeld: FreshRead = {
  services: listed('80', web),
  endpoints: listed('80', written),
  endpointslices: listed('80', sliced),
  pods: listed('80', one),
  version: '80',
};

/** The Nodes are read, and equal the cache. */
function readNodes({ confirmer, serviceAuditor }: Confirming, at: number): void {
  expect(confirmer.next(serviceAuditor.settle.waiting(), at)).toEqual(['/']);
  const nodes = listed('80', node({ resourceVersion: '5' }));
  confirmer.answer('/', { nodes, version: '80' });
}

describe('streams', () => {
  /** What each stream says. */
  const bookmark = ({ cut }: Confirming, version: string, at: number): void => {
    for (const resource of resources) cut.bookmark(resource, version, at);
  };

  test('confirm a difference without a read only if reads have failed for five minutes', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    bookmark(made, '77', 429);
    expect(made.opened(429)).toEqual([]);
    bookmark(made, '77', 430);
    expect(made.opened(430)).toEqual(['slice-endpoint-missing 430']);
  });

  test('that are not connected do not confirm it after five minutes either', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    bookmark(made, '77', 430);
    made.cut.setState('nodes', 'stale', 430);
    expect(made.opened(430)).toEqual([]);
    made.cut.setState('nodes', 'synced', 431);
    expect(made.opened(431)).toEqual(['slice-endpoint-missing 431']);
  });

  test('confirm no difference while the cache of the Service is newer than one of them', () => {
    const later = { ...sliced, resourceVersion: '90' };
    const made = confirming([...all.slice(0, 3), later, ...all.slice(4)]);
    expect(made.opened(130)).toEqual([]);
    readNodes(made, 130);
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', { ...asHeld, endpointslices: listed('90', later) });
    bookmark(made, '89', 131);
    expect(made.opened(131)).toEqual([]);
    bookmark(made, '90', 132);
    expect(made.opened(132)).toEqual(['slice-endpoint-missing 132']);
  });

  test('that owe what a read of another Service has shown confirm no difference', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    readNodes(made, 130);
    made.cut.lack('pods', 'shop/other', { version: '78', at: 130, isDeletion: false });
    expect(made.confirmer.next(waiting(made), 131)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(131)).toEqual([]);
    made.cut.observe('pods', { key: 'shop/other', resourceVersion: '78' }, 132);
    expect(made.opened(132)).toEqual(['slice-endpoint-missing 132']);
  });

  test('that are not connected confirm no difference', () => {
    const made = confirming();
    const { opened, cut, confirmer, serviceAuditor } = made;
    expect(opened(130)).toEqual([]);
    readNodes(made, 130);
    bookmark(made, '79', 131);
    cut.setState('nodes', 'stale', 131);
    const [first] = serviceAuditor.settle.waiting();
    if (first === undefined) throw new Error('Nothing waits');
    expect(confirmer.next([first], 132)).toEqual([]);
    confirmer.next([{ ...first, item: { ...first.item, output: 'endpoints' } }], 132);
    confirmer.answer('shop/web', asHeld);
    expect(opened(132)).toEqual([]);
    cut.setState('nodes', 'synced', 133);
    expect(opened(133)).toEqual(['slice-endpoint-missing 133']);
  });
});

describe('a read', () => {
  const lagging = (...of: Parameters<typeof confirming>): Confirming => {
    const made = confirming(...of);
    made.cut.observe('pods', newer(one, '77'), 120);
    expect(made.opened(130)).toEqual([]);
    readNodes(made, 130);
    return made;
  };

  const newer = <T extends AnyObject>(object: T, resourceVersion: string): T => ({
    ...object,
    resourceVersion,
  });
  const other = slice({ name: 'web-y', resourceVersion: '59', endpoints: [] });
  // The stream of pods claims to be complete up to 77, the others up to 50.
  const cases: [string, Partial<FreshRead>, boolean, string?][] = [
    ['of what is cached confirms', {}, true],
    [
      'of an older version confirms: a newer one has come since',
      { pods: listed('19', newer(one, '19')) },
      true,
    ],
    [
      'of an older version than the cache had at that time proves that etcd was restored',
      { pods: listed('80', newer(one, '19')) },
      false,
      'pods shop/web-1',
    ],
    [
      'of a newer slice that the stream has yet to deliver does not',
      { endpointslices: listed('80', newer(sliced, '51')) },
      false,
    ],
    [
      'of a newer slice that the stream claims to have delivered proves a gap',
      { endpointslices: listed('80', newer(sliced, '23')) },
      false,
      'endpointslices shop/web-abcde',
    ],
    ['of newer Endpoints confirms: slices do not rest on them', { endpoints: listed('80') }, true],
    [
      'of a newer pod that the stream claims to have delivered proves a gap',
      { pods: listed('80', newer(one, '23')) },
      false,
      'pods shop/web-1',
    ],
    [
      'of a Service with another uid proves a gap',
      { services: listed('80', { ...web, uid: 'other' }) },
      false,
      'services shop/web',
    ],
    ['of a changed Service does not', { services: listed('80', newer(web, '51')) }, false],
    [
      'by an earlier selector of the Service proves nothing about its pods',
      { services: listed('9', { ...newer(web, '9'), selector: { a: 'b' } }), pods: listed('77') },
      false,
    ],
    [
      'by a later selector of the Service proves nothing about its pods',
      { services: listed('76', { ...newer(web, '51'), selector: { a: 'b' } }), pods: listed('77') },
      false,
    ],
    ['of one slice more does not', { endpointslices: listed('80', sliced, other) }, false],
    [
      'without the pod proves a gap: its deletion should have come',
      { pods: listed('77') },
      false,
      'pods shop/web-1',
    ],
    ['without the pod does not while its deletion may come', { pods: listed('78') }, false],
    [
      'without the slice, which was written after it, confirms',
      { endpointslices: listed('21') },
      true,
    ],
    ['that leaves the Endpoints out confirms', { endpoints: null }, true],
    ['of no Service at all does not', { services: listed('80') }, false],
    [
      'of a version that cannot be compared does not',
      { pods: listed('x', newer(one, 'y')) },
      false,
    ],
  ];
  test.each(cases)('%s', (_name, changes, want, gap) => {
    const made = lagging();
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', { ...asHeld, ...changes });
    expect(made.opened(130.2)).toEqual(want ? ['slice-endpoint-missing 130.2'] : []);
    const gaps = [...made.confirmer.gaps].map((words) => words.join(' '));
    expect(gaps).toEqual(gap === undefined ? [] : [gap]);
    const { asked, confirmed, lagging: behind, failed } = made.confirmer.counts;
    expect([asked, confirmed + behind, failed]).toEqual([2, 2, 0]);
  });

  test('with a pod that is not cached proves a gap only if it is read again', () => {
    const made = lagging();
    const added = pod({ name: 'web-9', resourceVersion: '59' });
    const read = { ...asHeld, pods: listed('80', one, added) };
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', read);
    expect([...made.confirmer.gaps]).toEqual([]); // it may have been deleted since
    made.confirmer.next(waiting(made), 131);
    made.confirmer.answer('shop/web', read);
    expect(made.opened(131)).toEqual([]);
    expect([...made.confirmer.gaps]).toEqual([['pods', 'shop/web-9']]);
  });

  test('proves a gap if a stream does not deliver for two minutes what was read', () => {
    const made = lagging();
    made.confirmer.next(waiting(made), 130);
    const slices = listed('80', newer(sliced, '51'));
    made.confirmer.answer('shop/web', { ...asHeld, endpointslices: slices });
    for (let now = 131; now < 250; now++) made.confirmer.next([], now);
    expect([...made.confirmer.gaps]).toEqual([]);
    made.confirmer.next([], 251);
    expect([...made.confirmer.gaps]).toEqual([['endpointslices', 'shop/web-abcde']]);
  });

  test('that is older than what a stream has shown is a failure', () => {
    const made = lagging();
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.confirmer.counts.failed).toBe(0);
    made.cut.observe('pods', newer(one, '90'), 131);
    made.confirmer.next(waiting(made), 160);
    made.confirmer.answer('shop/web', { ...asHeld, version: '89' });
    expect(made.confirmer.counts.failed).toBe(1);
  });

  test('comes in turn without a difference, every ten seconds', () => {
    const manual = service({ resourceVersion: '10', selector: null });
    const made = confirming([manual, node({ resourceVersion: '5' })]);
    const turns = (from: number, to: number): string[] => {
      const keys: string[] = [];
      for (let now = from; now < to; now++) keys.push(...made.confirmer.next([], now));
      return keys;
    };
    expect(turns(100, 110)).toEqual([]);
    expect(turns(110, 111)).toEqual(['shop/web']);
    const services = listed('80', newer(manual, '59'));
    made.confirmer.answer('shop/web', { services, version: '80' });
    expect([...made.confirmer.gaps]).toEqual([]);
    made.cut.bookmark('services', '77', 112);
    made.confirmer.next([], 112);
    expect([...made.confirmer.gaps]).toEqual([['services', 'shop/web']]);
    expect(new Set(turns(113, 1000))).toEqual(new Set(['shop/web', '/']));
  });

  test('that is newer than the cache confirms once the stream has reached it', () => {
    const later = newer(sliced, '23');
    const made = lagging([web, one, written, later, node({ resourceVersion: '5' })]);
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', { ...asHeld, endpointslices: listed('80', later) });
    expect(made.opened(131)).toEqual(['slice-endpoint-missing 131']);
  });

  test('shows its version: what a stream delivers a second later is late if it is older', () => {
    const made = lagging();
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', { ...asHeld, version: '90' });
    expect(made.cut.observe('endpoints', newer(written, '85'), 132)).toBe('late');
  });

  test('counts as confirmed if it equals the cache, else as lagging', () => {
    const made = lagging();
    expect(made.confirmer.counts).toMatchObject({ confirmed: 1, lagging: 0 });
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.confirmer.counts).toMatchObject({ confirmed: 2, lagging: 0 });
    made.confirmer.next(waiting(made), 160);
    made.confirmer.answer('shop/web', { ...asHeld, endpointslices: listed('80') });
    expect(made.confirmer.counts).toMatchObject({ confirmed: 2, lagging: 1 });
  });

  test('is not asked for again for forty seconds if no answer comes', () => {
    const made = lagging();
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['shop/web']);
    expect(made.confirmer.next(waiting(made), 169.9)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 170)).toEqual(['shop/web']);
  });

  test('of the Service alone confirms differences of Endpoints', () => {
    const unlisted = newer(endpoints({ subsets: [] }), '21');
    const made = confirming([web, one, unlisted, node({ resourceVersion: '5' })]);
    expect(made.opened(130)).toEqual([]);
    const [first] = [...waiting(made)].filter(({ item }) => item.output === 'endpoints');
    if (first === undefined) throw new Error('Nothing waits');
    expect(made.confirmer.next([first], 130)).toEqual(['shop/web']);
    const parts = {
      endpoints: listed('80', unlisted),
      endpointslices: listed<EndpointSlice>('80'),
    };
    made.confirmer.answer('shop/web', { ...asHeld, ...parts });
    expect(made.opened(131)).toEqual(['endpoints-address-missing 131']);
  });

  test('of a Service is needed for a difference of a node only if a Service can confirm it', () => {
    const made = lagging();
    const [first] = waiting(made);
    if (first === undefined) throw new Error('Nothing waits');
    const { confirmer } = made;
    const item = { ...first.item, output: 'node' } as const;
    const whole = { ...first, namespace: '', service: '' };
    expect(confirmer.admit({ ...whole, item }, 130)).toBe(true);
    const byService = { ...whole, item: { ...item, witness: 'shop/web' } };
    expect(confirmer.admit(byService, 130)).toBe(false);
    expect(confirmer.next([byService], 130)).toEqual(['shop/web']);
    confirmer.answer('shop/web', asHeld);
    expect(confirmer.admit(byService, 130)).toBe(true);
    made.cut.setState('services', 'stale', 131);
    expect([confirmer.admit({ ...whole, item }, 130), confirmer.admit(byService, 130)]).toEqual([
      false,
      false,
    ]);
  });

  test('of a Service of another shard is compared with what kube-proxies know of it', () => {
    const shop = { namespace: 'other', name: 'api' };
    const foreign = service({ ...shop, resourceVersion: '30' });
    const cached = slice({
      ...{ namespace: 'other', name: 'api-1', resourceVersion: '31' },
      labels: { 'kubernetes.io/service-name': 'api' },
    });
    const { listers } = storeOf([foreign, cached]);
    const read = (list: FreshRead['endpointslices']): boolean => {
      const made = lagging(all, { ...listers, slicesOf: () => [cached] });
      const [first] = waiting(made);
      if (first === undefined) throw new Error('Nothing waits');
      const item = { ...first.item, output: 'node', witness: 'other/api' } as const;
      const candidate = { ...first, namespace: '', service: '', item };
      const { confirmer } = made;
      expect(confirmer.next([candidate], 131)).toEqual(['other/api']);
      confirmer.answer('other/api', {
        services: listed('80', foreign),
        endpoints: listed('80', endpoints({ ...shop, resourceVersion: '32' })),
        endpointslices: list ?? null,
        pods: listed('80', pod({ namespace: 'other', resourceVersion: '33' })),
        version: '80',
      });
      // The Endpoints and Pods of another shard are not cached, which is no gap.
      expect([...confirmer.gaps]).toEqual([]);
      return confirmer.admit(candidate, 131);
    };
    expect(read(listed('80', { ...cached, resourceVersion: '60' }))).toBe(false);
    expect(read(listed('80', cached))).toBe(true);
  });

  test('is repeated if a stream had to catch up for more than five seconds', () => {
    const made = lagging();
    expect(made.opened(130)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    const lack = { version: '60', at: 130, isDeletion: false };
    made.cut.lack('pods', 'shop/other', lack);
    expect(made.opened(135)).toEqual([]);
    made.cut.observe('pods', { key: 'shop/other', resourceVersion: '60' }, 136);
    expect(made.confirmer.next(waiting(made), 136)).toEqual([]);
    expect(made.opened(136)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 136)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(137)).toEqual(['slice-endpoint-missing 137']);
  });

  test('is repeated after five seconds also if no other read could be requested', () => {
    const made = lagging();
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    made.cut.lack('pods', 'shop/other', { version: '60', at: 130, isDeletion: false });
    expect(made.opened(131)).toEqual([]);
    made.cut.observe('pods', { key: 'shop/other', resourceVersion: '60' }, 160);
    expect(made.opened(160)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 160)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(161)).toEqual(['slice-endpoint-missing 161']);
  });

  test('of Services that confirm differences of whole nodes is of one namespace', () => {
    const made = lagging();
    const [first] = waiting(made);
    if (first === undefined) throw new Error('Nothing waits');
    const whole = ['a/v', 'b/v', 'a/w', 'b/w', 'a/x', 'a/y', 'a/z'].map((witness) => {
      const item = { ...first.item, output: 'node', witness } as const;
      return { ...first, namespace: '', service: '', item };
    });
    expect(made.confirmer.next(whole, 131)).toEqual(['a/v', 'a/w', 'a/x', 'a/y', 'a/z']);
    expect(made.confirmer.next(whole, 131)).toEqual(['b/v']);
  });

  test('is repeated if the Nodes could only be read much later', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['/']);
    expect(made.confirmer.next(waiting(made), 131)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    made.confirmer.answer('/', null);
    readNodes(made, 137);
    expect(made.opened(137)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 137)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(138)).toEqual(['slice-endpoint-missing 138']);
  });

  test('is not repeated within a short time, but sooner if it failed', () => {
    const made = lagging();
    const next = (now: number): string | null => made.confirmer.next(waiting(made), now)[0] ?? null;
    expect([next(130), next(130), next(134.9)]).toEqual(['shop/web', null, null]);
    made.confirmer.answer('shop/web', null);
    expect(made.confirmer.counts.failed).toBe(1);
    expect(next(135)).toBe('shop/web');
    made.confirmer.answer('shop/web', { ...asHeld, pods: listed('80') });
    expect([next(140), next(164.9), next(165)]).toEqual([null, null, 'shop/web']);
  });

  test('of the Service does not confirm what a Node can explain without one of the Nodes', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['/']);
    expect(made.confirmer.next(waiting(made), 131)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(131)).toEqual([]);
    const answer = (version: string): void => {
      made.confirmer.answer('/', {
        nodes: listed('80', node({ resourceVersion: version })),
        version: '80',
      });
    };
    answer('51');
    expect(made.opened(132)).toEqual([]);
    const object = node({ resourceVersion: '51' });
    made.cut.observe('nodes', object, 133);
    made.store.apply({ resource: 'nodes', type: 'modified', object, at: 133 });
    expect(made.confirmer.next(waiting(made), 170)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(171)).toEqual(['slice-endpoint-missing 171']);
  });

  const many = (count: number): AnyObject[] =>
    Array.from({ length: count }, (_, n) =>
      service({ name: `web-${n}`, uid: `uid-${n}`, resourceVersion: '10' }),
    );
  const crowd = (count: number): AnyObject[] =>
    Array.from({ length: count }, (_, n) =>
      pod({ name: `p-${n}`, labels: {}, ips: [], resourceVersion: '10' }),
    );
  const elsewhere = service({ namespace: 'other', resourceVersion: '10' });
  test.each([
    ['of four Services asks for each alone', [...many(4), one], 1],
    ['of five Services of a namespace asks for all', [...many(5), one], 5],
    ['of a namespace with 5,000 pods asks for all', [...many(5), ...crowd(5000)], 5],
    ['of a namespace with more pods asks for each alone', [...many(5), ...crowd(5001)], 1],
  ])('%s', (_, objects, want) => {
    const made = confirming([...objects, elsewhere, node({ resourceVersion: '5' })]);
    made.opened(130);
    const next = (now: number) => made.confirmer.next(waiting(made), now);
    const first = next(130);
    const keys = first[0] === '/' ? next(131) : first;
    expect(keys).toHaveLength(want);
    expect(keys.every((key) => key.startsWith('shop/'))).toBe(true);
    for (const key of keys) made.confirmer.answer(key, null);
    if (want > 1) expect(next(136)).toHaveLength(1);
  });

  test('that the cache lags behind is compared again, about 1,000 objects at a time', () => {
    const made = confirming([...many(30), node({ resourceVersion: '5' })]);
    made.opened(130);
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['/']);
    const slices = Array.from({ length: 100 }, (_, n) =>
      slice({ name: `web-y${n}`, resourceVersion: '70', endpoints: [] }),
    );
    const keys = made.confirmer.next(waiting(made), 131);
    expect(keys).toHaveLength(30);
    for (const key of keys) {
      made.confirmer.answer(key, { endpointslices: listed('80', ...slices), version: '80' });
    }
    const lack = vi.spyOn(made.cut, 'lack');
    const compared = [140, 140.1, 140.2, 140.3, 140.4, 140.5].map((now) => {
      lack.mockClear();
      made.confirmer.next([], now);
      return lack.mock.calls.length;
    });
    // The cache has not changed, so nothing is compared twice.
    expect(compared).toEqual([1000, 1000, 1000, 0, 0, 0]);
  });

  test('is chosen among 1,000 differences, and is of all that wait in its namespace', () => {
    const spread = many(1500).map((object, n) => {
      const namespace = `shop-${n % 300}`;
      return { ...object, namespace, key: `${namespace}/${object.name}` };
    });
    const made = confirming([...spread, node({ resourceVersion: '5' })]);
    for (let left = 12; left > 0; left--) made.opened(130);
    let looked = 0;
    const counted = function* (): Generator<Candidate> {
      for (const candidate of waiting(made)) {
        looked++;
        yield candidate;
      }
    };
    readNodes(made, 130);
    const sizes: number[] = [];
    const asked = new Set<string>();
    for (let now = 131; now < 146; now += 0.05) {
      const keys = made.confirmer.next(waiting(made), now);
      if (keys.length > 0) sizes.push(keys.length);
      for (const key of keys) asked.add(key);
      made.opened(now);
    }
    expect([asked.size, sizes.length, new Set(sizes)]).toEqual([1500, 300, new Set([5])]);
    // All have been requested, so none is due.
    expect(made.confirmer.next(counted(), 146)).toEqual([]);
    expect(looked).toBe(1001);
  });

  test('in turn is of a Service with a finding every other time', () => {
    const others = many(3).map((object) => ({ ...object, selector: null }));
    const made = lagging([...all, ...others]);
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(131)).toEqual(['slice-endpoint-missing 131']);
    const keys: string[] = [];
    for (let now = 200; now < 600; now += 10) keys.push(...made.confirmer.next([], now));
    const count = (name: string): number => keys.filter((key) => key === `shop/${name}`).length;
    expect(count('web')).toBeGreaterThan(count('web-0') + 2);
    expect(count('web-0')).toBeGreaterThan(2);
  });

  test('that the cache has overtaken proves nothing and is soon repeated', () => {
    const later = { ...sliced, resourceVersion: '90' };
    const made = lagging([web, one, written, later, node({ resourceVersion: '5' })]);
    const next = (now: number): string | null => made.confirmer.next(waiting(made), now)[0] ?? null;
    next(130);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(130.1)).toEqual([]);
    expect([next(130.9), next(131)]).toEqual([null, 'shop/web']);
    made.confirmer.answer('shop/web', {
      ...asHeld,
      endpointslices: listed('91', later),
      version: '91',
    });
    expect(made.opened(131.1)).toEqual(['slice-endpoint-missing 131.1']);
  });

  test('from before the end of the window proves nothing', () => {
    const made = lagging();
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', asHeld);
    // The clock of the difference is longer by a time in which nothing was seen.
    runToEnd(
      made.serviceAuditor.settle.delay({
        outputs: new Set(['endpointslices']),
        from: 120,
        to: 130,
        least: 5,
      }),
    );
    expect(made.opened(139.9)).toEqual([]);
    expect(made.opened(140)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 140)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(140.1)).toEqual(['slice-endpoint-missing 140.1']);
  });
});
