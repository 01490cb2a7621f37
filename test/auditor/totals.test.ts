// Sums that are updated with each change equal the sums of all Services.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { NodesSummary } from '../../src/audit/node/nodes.ts';
import type { PendingFindings } from '../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import { summarize } from '../../src/audit/summary.ts';
import type { ServiceTotals } from '../../src/auditor/totals.ts';
import {
  countHints,
  createServiceTotals,
  markChanged,
  refreshTotals,
  summaryOfTotals,
} from '../../src/auditor/totals.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import type { AnyObject, Key, Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import {
  contextOf,
  endpoint,
  endpoints,
  event,
  foreign,
  node,
  pod,
  service,
  slice,
  storeOf,
  times,
} from '../build.ts';
import type { Step } from '../random-cluster.ts';
import { eventsOf, steps } from '../random-cluster.ts';

const max = 2;

interface Followed {
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  readonly totals: ServiceTotals;
}

/** A service auditor with totals, as the event loop connects them. */
function followed(store: Store): Followed {
  const context = contextOf(store, { maxEndpointsPerSlice: max });
  const totals = createServiceTotals(context.release, max);
  const note = (key: Key): void => {
    markChanged(totals, serviceAuditor, key);
  };
  const settle: PendingFindings = createPendingFindings({
    window: 3,
    keep: 0,
    onOpenDifference: ({ namespace, service }) => {
      note(`${namespace}/${service}`);
    },
  });
  const serviceAuditor: ServiceAuditor = createServiceAuditor({ context, settle, onChange: note });
  return { store, serviceAuditor, totals };
}

function give({ store, serviceAuditor }: Followed, ...objects: AnyObject[]): void {
  for (const object of objects) {
    const change = store.apply(event('modified', object, 1));
    if (change !== null) serviceAuditor.apply(change);
  }
}

/** Verdicts on nodes, which are no sum over Services. */
const nodes: NodesSummary = {
  verdicts: new Map([
    [
      'node-1',
      [
        { port: 'web:http TCP IPv4', namespace: 'shop', verdict: 'conform', reason: null },
        { port: 'db TCP IPv4', namespace: 'shop', verdict: 'pending', reason: null },
      ],
    ],
    ['node-2', [{ port: '', namespace: '', verdict: 'unknown', reason: 'rules-not-known' }]],
  ]),
  pendingSince: 7,
  reading: () => null,
};

/** All sums, those of single Services left out. */
function sums({ totals, serviceAuditor }: Followed, stale: ReadonlySet<Resource>) {
  refreshTotals(totals, serviceAuditor);
  const { fill, duplicates, conditions, capacity } = totals;
  return {
    summary: summaryOfTotals(totals, serviceAuditor, stale, nodes),
    fill: { ...fill },
    duplicates: { ...duplicates },
    conditions: { ...conditions },
    capacity: structuredClone(capacity),
    hints: countHints(totals, serviceAuditor),
    open: [...totals.open].sort(),
    services: [...totals.services]
      .map(([key, { fill: one, duplicates: twice }]) => ({ key, one, twice }))
      .sort((a, b) => (a.key < b.key ? -1 : 1)),
  };
}

/** The same from totals that recount everything. */
function recounted({ serviceAuditor, store }: Followed, stale: ReadonlySet<Resource>) {
  const totals = createServiceTotals(contextOf(store).release, max);
  for (const key of serviceAuditor.audited.keys()) markChanged(totals, serviceAuditor, key);
  return sums({ serviceAuditor, store, totals }, stale);
}

function expectTrue(followed: Followed, stale: ReadonlySet<Resource>): void {
  const kept = sums(followed, stale);
  expect(kept).toEqual(recounted(followed, stale));
  const { findings, ...summary } = summarize(followed.serviceAuditor, { stale, nodes });
  expect(kept.summary).toEqual(summary);
  const open = new Set(findings.map(({ namespace, service }) => `${namespace}/${service}`));
  expect(new Set(kept.open)).toEqual(open);
}

const numRuns = Number(process.env.RUNS ?? 300);

describe('sums that are updated', () => {
  test('equal the sums of all Services after any changes, with any stale resource', () => {
    const stale = fc.constantFrom<Resource[]>([], ['pods'], ['endpoints'], ['endpointslices']);
    const all = fc.array(steps, { minLength: 1, maxLength: 20 });
    const property = fc.property(all, fc.nat(10), stale, (all: readonly Step[], head, unseen) => {
      const store = storeOf([], resources);
      const one = followed(store);
      const context = contextOf(store, { maxEndpointsPerSlice: max });
      for (const [index, step] of all.entries()) {
        if (index === head) runToEnd(one.serviceAuditor.begin(index));
        for (const event of eventsOf(store, context, step, index + 1)) {
          const change = store.apply(event);
          if (change !== null && index >= head) one.serviceAuditor.apply(change);
        }
        one.serviceAuditor.settle.advance(index + 1);
        if (index >= head && index % 3 === 0) expectTrue(one, new Set(unseen));
      }
      if (head >= all.length) runToEnd(one.serviceAuditor.begin(all.length));
      one.serviceAuditor.settle.advance(all.length + 10);
      expectTrue(one, new Set(unseen));
    });
    fc.assert(property, { numRuns });
  });

  test('follow objects that become unreadable and readable', () => {
    const one = followed(storeOf([service(), pod(), node(), endpoints(), slice()]));
    runToEnd(one.serviceAuditor.begin(1));
    const lost = { resource: 'pods', namespace: 'shop', name: 'web-2', labels: null } as const;
    runToEnd(one.serviceAuditor.markUnreadable(lost, 2));
    expectTrue(one, new Set());
    expect(summaryOfTotals(one.totals, one.serviceAuditor, new Set(), null).unknown).toEqual({
      'object-unreadable': 2,
    });
    runToEnd(one.serviceAuditor.markReadable(lost, 3));
    expectTrue(one, new Set());
    expect(summaryOfTotals(one.totals, one.serviceAuditor, new Set(), null).unknown).toEqual({});
  });

  test('are right for more Services than may wait to be recounted', () => {
    const one = followed(storeOf([]));
    runToEnd(one.serviceAuditor.begin(1));
    for (const index of times(600, (index) => index))
      give(one, foreign({ name: `s-${String(index)}`, labels: {} }));
    give(one, ...times(600, (index) => service({ name: `s-${String(index)}` })));
    expect(one.totals.services.size).toBe(600 - 256);
    expectTrue(one, new Set());
    expect(one.totals.services.size).toBe(600);
  });
});

describe('one Service', () => {
  test('has its numbers, in a new object after a change', () => {
    const one = followed(storeOf([service(), pod(), node(), endpoints({ bytes: 300 })]));
    runToEnd(one.serviceAuditor.begin(1));
    give(one, slice({ bytes: 400 }), service({ name: 'api', selector: { app: 'none' } }));
    refreshTotals(one.totals, one.serviceAuditor);
    const before = one.totals.services.get('shop/web');
    expect(before).toMatchObject({
      namespace: 'shop',
      name: 'web',
      slices: 1,
      surplus: 0,
      bytes: { endpoints: 300, endpointslices: 400 },
      conditions: { ready: 1 },
      share: { exists: true, verdicts: { endpoints: 'conform', endpointslices: 'conform' } },
    });
    give(one, service({ name: 'api', selector: { app: 'web' } }));
    refreshTotals(one.totals, one.serviceAuditor);
    expect(one.totals.services.get('shop/web')).toBe(before);
    give(one, slice({ name: 'web-copy', endpoints: [endpoint()], bytes: 100 }));
    refreshTotals(one.totals, one.serviceAuditor);
    const after = one.totals.services.get('shop/web');
    expect(after).toMatchObject({ slices: 2, bytes: { endpointslices: 500 } });
    expect(after?.audits).toBe((before?.audits ?? 0) + 1);
  });

  test('has no numbers after its deletion', () => {
    const one = followed(storeOf([]));
    runToEnd(one.serviceAuditor.begin(1));
    give(one, service());
    const deleted = one.store.apply(event('deleted', service(), 2));
    if (deleted !== null) one.serviceAuditor.apply(deleted);
    refreshTotals(one.totals, one.serviceAuditor);
    expect([one.totals.services.size, one.totals.open.size]).toEqual([0, 0]);
  });
});

describe('hints', () => {
  const hinted = (name: string, more: Parameters<typeof service>[0], zones: string[] | null) => [
    service({ name, selector: { app: name }, ...more }),
    slice({
      name: `${name}-a`,
      labels: { ...slice().labels, 'kubernetes.io/service-name': name },
      endpoints: [endpoint({ forZones: zones })],
    }),
  ];

  test('are counted by how many endpoints have them, or by why they are absent', () => {
    const one = followed(storeOf([node()]));
    runToEnd(one.serviceAuditor.begin(1));
    give(
      one,
      ...hinted('auto', { topologyAuto: true }, null),
      ...hinted('close', { trafficDistribution: 'PreferClose' }, ['zone-a']),
      ...hinted('plain', {}, null),
      service({ name: 'empty', selector: { app: 'empty' }, topologyAuto: true }),
    );
    refreshTotals(one.totals, one.serviceAuditor);
    expect(countHints(one.totals, one.serviceAuditor)).toEqual({
      auto: { all: 0, some: 0, absent: { 'one-zone': 1, 'no-ready-endpoints': 1 } },
      zone: { all: 1, some: 0, absent: {} },
      node: { all: 0, some: 0, absent: {} },
    });
  });
});
