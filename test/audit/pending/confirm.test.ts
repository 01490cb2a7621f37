// What proves a difference whose window has ended: streams that have reached that version, or a
// read that matches the cache.

import { describe, expect, test } from 'vitest';

import type { FreshRead } from '../../../src/audit/pending/confirm.ts';
import { createConfirmer } from '../../../src/audit/pending/confirm.ts';
import type { Candidate } from '../../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { WatchProgress } from '../../../src/audit/pending/progress.ts';
import { createWatchProgress } from '../../../src/audit/pending/progress.ts';
import type { ServiceAuditor } from '../../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
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
  readonly confirmer: ReturnType<typeof createConfirmer>;
  readonly serviceAuditor: ServiceAuditor;
  /** Asks again for what waits, and says what has opened. */
  readonly opened: (now: number) => string[];
}

/** The slice lacks the pod since 100, and the window of 30 s ends at 130. */
function confirming(objects: readonly AnyObject[] = all): Confirming {
  const cut = createWatchProgress();
  for (const resource of resources) {
    cut.setState(resource, 'listing', 90);
    cut.bookmark(resource, '50', 90);
    cut.setState(resource, 'synced', 90);
  }
  const held: { serviceAuditor: ServiceAuditor | null } = { serviceAuditor: null };
  const context = contextOf(storeOf(objects, resources));
  const confirmer = createConfirmer(cut, () => held.serviceAuditor);
  const settle = createPendingFindings({
    window: 30,
    keep: 9,
    admit: (due) => confirmer.admit(due),
  });
  const serviceAuditor = createServiceAuditor({ context, settle });
  held.serviceAuditor = serviceAuditor;
  runToEnd(serviceAuditor.begin(100));
  return {
    cut,
    confirmer,
    serviceAuditor,
    opened(now) {
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
  service: web,
  endpoints: listed('60', written),
  slices: listed('60', sliced),
  pods: listed('60', one),
  version: '60',
};

describe('streams', () => {
  /** What each stream says. */
  const heard = ({ cut }: Confirming, version: string, at: number): void => {
    for (const resource of resources) cut.bookmark(resource, version, at);
  };

  /** A read of the Service at a version that is newer than the cache. */
  const read = (
    { confirmer }: Confirming,
    dues: Iterable<Candidate>,
    at: number,
    version: string,
  ) => {
    expect(confirmer.next(dues, at)).toEqual(['shop/web']);
    const newer = listed(version, { ...one, resourceVersion: '59' });
    confirmer.answer('shop/web', { ...asHeld, pods: newer, version });
  };

  test('that reached the version of a read confirm a difference, also earlier', () => {
    const made = confirming();
    heard(made, '90', 125);
    expect(made.opened(130)).toEqual([]);
    read(made, waiting(made), 130, '90');
    expect(made.opened(131)).toEqual(['slice-endpoint-missing 131']);
  });

  test('without a read confirm no difference, since all of them may lag', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    heard(made, '77', 131);
    expect(made.opened(189)).toEqual([]);
    heard(made, '78', 189);
    expect(made.opened(189)).toEqual([]);
  });

  test('without a read confirm a difference once none of them can lag any more', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    heard(made, '50', 190);
    expect(made.opened(190)).toEqual(['slice-endpoint-missing 190']);
  });

  test('confirm no difference while the cache of the Service is newer than one of them', () => {
    const made = confirming([
      ...all.slice(0, 3),
      { ...sliced, resourceVersion: '80' },
      ...all.slice(4),
    ]);
    expect(made.opened(130)).toEqual([]);
    read(made, waiting(made), 130, '60');
    heard(made, '79', 131);
    expect(made.opened(131)).toEqual([]);
    heard(made, '80', 132);
    expect(made.opened(132)).toEqual(['slice-endpoint-missing 132']);
  });

  test('must reach the newest version of a read after the window', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    const [first] = waiting(made);
    if (first === undefined) throw new Error('Nothing waits');
    expect(made.confirmer.next([{ ...first, service: 'api' }], 129)).toEqual(['shop/api']);
    made.confirmer.answer('shop/api', asHeld);
    heard(made, '84', 135);
    expect(made.opened(135)).toEqual([]);
    read(made, waiting(made), 135, '90');
    expect(made.opened(136)).toEqual([]);
    heard(made, '89', 140);
    expect(made.opened(140)).toEqual([]);
    heard(made, '90', 141);
    expect(made.opened(141)).toEqual(['slice-endpoint-missing 141']);
  });

  test('confirm a difference after a read of any Service', () => {
    const made = confirming();
    expect(made.opened(130)).toEqual([]);
    const [first] = waiting(made);
    if (first === undefined) throw new Error('Nothing waits');
    expect(made.confirmer.next([{ ...first, service: 'api' }], 130)).toEqual(['shop/api']);
    made.confirmer.answer('shop/api', { ...asHeld, version: '50', slices: listed('70') });
    heard(made, '69', 131);
    expect(made.opened(131)).toEqual([]);
    heard(made, '70', 132);
    expect(made.opened(132)).toEqual(['slice-endpoint-missing 132']);
  });

  test('confirm no difference until the last of them has reached the version', () => {
    const made = confirming();
    const { opened, cut } = made;
    expect(opened(130)).toEqual([]);
    read(made, waiting(made), 130, '77');
    cut.observe('pods', '90', 140);
    cut.observe('services', '80', 140);
    cut.observe('endpointslices', '81', 140);
    expect(opened(140)).toEqual([]);
    cut.bookmark('nodes', '77', 141);
    expect(opened(141)).toEqual(['slice-endpoint-missing 141']);
  });

  test('that are not connected confirm no difference', () => {
    const made = confirming();
    const { opened, cut, confirmer, serviceAuditor } = made;
    expect(opened(130)).toEqual([]);
    cut.setState('nodes', 'stale', 131);
    heard(made, '90', 132);
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
  const lagging = (objects?: readonly AnyObject[]): Confirming => {
    const made = confirming(objects);
    made.cut.observe('pods', '77', 120);
    expect(made.opened(130)).toEqual([]);
    return made;
  };

  const newer = <T extends AnyObject>(object: T, resourceVersion: string): T => ({
    ...object,
    resourceVersion,
  });
  const other = slice({ name: 'web-y', resourceVersion: '59', endpoints: [] });
  const cases: [string, Partial<FreshRead>, boolean][] = [
    ['of what is held confirms', {}, true],
    [
      'of an older version confirms: more has come since',
      { pods: listed('60', newer(one, '19')) },
      true,
    ],
    ['of a newer slice does not', { slices: listed('60', newer(sliced, '23')) }, false],
    ['of newer Endpoints confirms: slices do not rest on them', { endpoints: listed('60') }, true],
    ['of a newer pod does not', { pods: listed('60', newer(one, '23')) }, false],
    ['of another Service does not', { service: { ...web, uid: 'other' } }, false],
    ['of a changed Service does not', { service: newer(web, '11') }, false],
    ['of one slice more does not', { slices: listed('60', sliced, other) }, false],
    ['without the pod does not: its deletion is on its way', { pods: listed('60') }, false],
    ['without the slice, which was written after it, confirms', { slices: listed('21') }, true],
    ['that leaves the Endpoints out confirms', { endpoints: null }, true],
    ['of no Service at all does not', { service: null }, false],
  ];
  test.each(cases)('%s', (_name, more, want) => {
    const made = lagging();
    expect(made.confirmer.next(waiting(made), 130)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', { ...asHeld, ...more });
    expect(made.opened(130.2)).toEqual(want ? ['slice-endpoint-missing 130.2'] : []);
    expect(made.confirmer.counts).toEqual({
      asked: 1,
      confirmed: want ? 1 : 0,
      lagging: want ? 0 : 1,
      failed: 0,
    });
  });

  test('that is newer than the cache confirms once the stream has reached it', () => {
    const later = newer(sliced, '23');
    const made = lagging([web, one, written, later, node({ resourceVersion: '5' })]);
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', { ...asHeld, slices: listed('60', later) });
    expect(made.opened(131)).toEqual(['slice-endpoint-missing 131']);
  });

  test('is not repeated within a short time, but sooner if it failed', () => {
    const made = lagging();
    const next = (now: number): string | null => made.confirmer.next(waiting(made), now)[0] ?? null;
    expect([next(130), next(130), next(134.9)]).toEqual(['shop/web', null, null]);
    made.confirmer.answer('shop/web', null);
    expect(made.confirmer.counts.failed).toBe(1);
    expect(next(135)).toBe('shop/web');
    made.confirmer.answer('shop/web', { ...asHeld, pods: listed('60') });
    expect([next(140), next(164.9), next(165)]).toEqual([null, null, 'shop/web']);
  });

  test('that the cache has overtaken proves nothing and is soon repeated', () => {
    const later = { ...sliced, resourceVersion: '70' };
    const made = lagging([web, one, written, later, node({ resourceVersion: '5' })]);
    const next = (now: number): string | null => made.confirmer.next(waiting(made), now)[0] ?? null;
    next(130);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(130.1)).toEqual([]);
    expect([next(130.9), next(131)]).toEqual([null, 'shop/web']);
    made.confirmer.answer('shop/web', { ...asHeld, slices: listed('71', later), version: '71' });
    expect(made.opened(131.1)).toEqual(['slice-endpoint-missing 131.1']);
  });

  test('from before the end of the window proves nothing', () => {
    const made = lagging();
    made.confirmer.next(waiting(made), 130);
    made.confirmer.answer('shop/web', asHeld);
    // The clock of the difference is longer by a time in which nothing was seen.
    made.serviceAuditor.settle.delay(new Set(['endpointslices']), 120, 130, 5);
    expect(made.opened(139.9)).toEqual([]);
    expect(made.opened(140)).toEqual([]);
    expect(made.confirmer.next(waiting(made), 140)).toEqual(['shop/web']);
    made.confirmer.answer('shop/web', asHeld);
    expect(made.opened(140.1)).toEqual(['slice-endpoint-missing 140.1']);
  });
});
