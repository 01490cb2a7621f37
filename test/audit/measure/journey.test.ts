import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type {
  JourneyStart,
  Journey,
  JourneyEnd,
  JourneyOutput,
  JourneyQuality,
  OpenJourneys,
} from '../../../src/audit/measure/journey.ts';
import {
  createJourneys,
  journeyLength,
  journeyOutputs,
  journeyQuality,
  journeySeconds,
  lastOf,
} from '../../../src/audit/measure/journey.ts';

const t0 = 1_800_000_000;

const departure = (more: Partial<JourneyStart> = {}): JourneyStart => ({
  namespace: 'shop',
  service: 'web',
  pod: 'web-1',
  uid: 'u1',
  podNode: 'a',
  addresses: ['10.0.0.1'],
  operation: 'add',
  ownTime: t0,
  at: t0 + 1.5,
  gap: false,
  resourceVersion: '7',
  awaits: journeyOutputs,
  ...more,
});

function world(most?: number): { journeys: OpenJourneys; ended: Journey[] } {
  const ended: Journey[] = [];
  const onEnd = (journey: Journey): number => ended.push(journey);
  const journeys = createJourneys({ onEnd, ...(most === undefined ? {} : { most }) });
  return { journeys, ended };
}

const written = (stage: JourneyOutput, at: number) =>
  ({ stage, at, within: 0, object: `X shop/web`, resourceVersion: '8', node: null }) as const;

/** All journeys of the Service that await an output come to it. */
function arrive(
  journeys: OpenJourneys,
  output: JourneyOutput,
  at: number,
  nodes: readonly string[] = [],
): void {
  for (const one of journeys.awaiting('shop/web', output, null)) {
    journeys.reach(one, written(output, at), nodes);
  }
}

const never = (): boolean => false;

test('a journey is complete when both outputs and every node followed', () => {
  const { journeys, ended } = world();
  journeys.begin(departure());
  arrive(journeys, 'endpointslices', t0 + 2, ['a', 'b']);
  arrive(journeys, 'endpoints', t0 + 3);
  expect([...journeys.open()]).toHaveLength(1);
  journeys.atNode('a', { at: t0 + 4, before: t0 + 1, differs: never });
  // b was read without the endpoint, then with it.
  journeys.atNode('b', { at: t0 + 5, before: t0 + 4.5, differs: () => true });
  expect(ended).toEqual([]);
  journeys.atNode('b', { at: t0 + 9.5, before: t0 + 5, differs: never });
  expect([...journeys.open()]).toEqual([]);
  const [journey] = ended;
  expect(journey).toMatchObject({ begun: t0, quality: 'ok', end: 'complete', nodes: 2 });
  expect(
    journey?.stages.map(({ stage, at, within, node }) => [stage, at - t0, within, node]),
  ).toEqual([
    ['arrival', 1.5, 0, null],
    ['endpointslices', 2, 0, null],
    ['endpoints', 3, 0, null],
    ['node', 4, 2, 'a'],
    ['node', 9.5, 4.5, 'b'],
  ]);
  expect(journey === undefined ? null : journeyLength(journey)).toBe(9.5);
});

test('rules that were read before the slices arrived do not count', () => {
  const { journeys, ended } = world();
  journeys.begin(departure());
  arrive(journeys, 'endpoints', t0 + 2);
  arrive(journeys, 'endpointslices', t0 + 2, ['a']);
  journeys.atNode('a', { at: t0 + 1.9, before: t0, differs: never });
  expect(ended).toEqual([]);
  journeys.loseNode('a');
  expect(ended.map(({ end, nodes }) => [end, nodes])).toEqual([['complete', 0]]);
});

test('only a change of the same pod and Service overtakes', () => {
  const { journeys, ended } = world();
  journeys.begin(departure());
  journeys.begin(departure({ pod: 'web-2' }));
  journeys.begin(departure({ service: 'all' }));
  expect(ended).toEqual([]);
  journeys.begin(departure({ operation: 'remove', at: t0 + 3, ownTime: t0 + 2 }));
  expect(ended.map(({ operation, end }) => [operation, end])).toEqual([['add', 'overtaken']]);
  // A change that no output must follow ends what it overtakes, and is no journey.
  journeys.begin(departure({ awaits: [] }));
  expect([...journeys.open()].map(({ service, pod }) => `${service} ${pod}`)).toEqual([
    'web web-2',
    'all web-1',
  ]);
});

test('a journey is overtaken once', () => {
  const { journeys, ended } = world();
  journeys.begin(departure());
  const [journey] = journeys.awaiting('shop/web', 'endpoints', null);
  if (journey !== undefined) {
    journeys.overtake(journey);
    journeys.overtake(journey);
  }
  expect(ended.map(({ end }) => end)).toEqual(['overtaken']);
});

test('a released Service ends its journeys', () => {
  const { journeys, ended } = world();
  journeys.begin(departure({ awaits: ['endpointslices'] }));
  journeys.begin(departure({ pod: 'web-2' }));
  journeys.begin(departure({ service: 'all' }));
  journeys.release('shop/web');
  expect(ended.map(({ service, end }) => [service, end])).toEqual([
    ['web', 'gone'],
    ['web', 'gone'],
  ]);
  expect(journeys.ended).toEqual({ complete: 0, overtaken: 0, gone: 2, dropped: 0 });
});

test('awaiting filters by Service, output and addresses', () => {
  const { journeys } = world();
  journeys.begin(departure());
  journeys.begin(departure({ pod: 'web-2', addresses: ['10.0.0.2', 'fd00::2'] }));
  const pods = (output: JourneyOutput, addresses: string[] | null, service = 'shop/web') =>
    journeys
      .awaiting(service, output, addresses === null ? null : new Set(addresses))
      .map(({ pod }) => pod);
  expect(pods('endpoints', ['fd00::2'])).toEqual(['web-2']);
  expect(pods('endpoints', null)).toEqual(['web-1', 'web-2']);
  expect(pods('endpoints', null, 'shop/other')).toEqual([]);
  arrive(journeys, 'endpoints', t0 + 2);
  expect(pods('endpoints', null)).toEqual([]);
  expect(pods('endpointslices', ['10.0.0.1', '10.9.9.9'])).toEqual(['web-1']);
});

describe('the quality of the beginning', () => {
  const cases: [string, number | null, boolean, JourneyQuality][] = [
    ['a pod time, two seconds before', -2, false, 'ok'],
    ['a pod time, a second before', -1, false, 'ok'],
    ['a pod time, within its resolution', -0.999, false, 'coarse'],
    ['a pod time, in the same second by a clock that is a little ahead', 1, false, 'coarse'],
    ['a pod time, by a clock that is ahead', 1.01, false, 'skewed'],
    ['no pod time', null, false, 'arrival'],
    ['listed', -2, true, 'gap'],
  ];
  test.each(cases)('%s: %s', (_, own, gap, want) => {
    expect(journeyQuality(own === null ? null : t0 + own, t0, gap)).toBe(want);
  });

  test('no lag is negative', () => {
    const { journeys, ended } = world();
    journeys.begin(departure({ ownTime: t0 + 1, at: t0 + 0.2, awaits: ['endpoints'] }));
    arrive(journeys, 'endpoints', t0 + 0.5);
    const [journey] = ended;
    const stage = journey === undefined ? undefined : lastOf(journey, 'endpoints');
    expect(stage?.at).toBe(t0 + 0.5);
    if (journey === undefined || stage === undefined) return;
    expect(journeySeconds(journey, stage)).toBe(0);
  });
});

test('of many nodes, the first few and the last are stored', () => {
  const { journeys, ended } = world();
  journeys.begin(departure());
  arrive(journeys, 'endpoints', t0 + 2);
  const names = Array.from({ length: 40 }, (_, at) => `node-${String(at)}`);
  arrive(journeys, 'endpointslices', t0 + 2, names);
  for (const [index, name] of names.entries())
    journeys.atNode(name, { at: t0 + 3 + index, before: t0, differs: never });
  const [journey] = ended;
  const nodes = journey?.stages.flatMap(({ node }) => node ?? []) ?? [];
  expect(nodes).toHaveLength(8);
  expect([nodes[0], nodes.at(-1)]).toEqual(['node-0', 'node-39']);
  expect(journey?.nodes).toBe(40);
});

test('the number of open journeys is bounded, and each ends once', () => {
  const ways: readonly JourneyEnd[] = ['complete', 'overtaken', 'gone', 'dropped'];
  const step = fc.oneof(
    fc.record({ kind: fc.constant('begin' as const), pod: fc.nat(9), service: fc.nat(1) }),
    fc.record({
      kind: fc.constant('write' as const),
      output: fc.constantFrom(...journeyOutputs),
      service: fc.nat(1),
      to: fc.nat(3),
    }),
    fc.record({ kind: fc.constant('node' as const), to: fc.nat(3) }),
    fc.record({ kind: fc.constant('lose' as const), to: fc.nat(3) }),
    fc.record({ kind: fc.constant('release' as const), service: fc.nat(1) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { journeys, ended } = world(6);
      let begun = 0;
      for (const [index, one] of steps.entries()) {
        const at = t0 + index;
        if (one.kind === 'begin') {
          begun++;
          const [pod, service] = [`p${String(one.pod)}`, `s${String(one.service)}`];
          journeys.begin(departure({ pod, service, at, ownTime: null }));
        } else if (one.kind === 'node')
          journeys.atNode(`n${String(one.to)}`, { at: at, before: null, differs: never });
        else if (one.kind === 'lose') journeys.loseNode(`n${String(one.to)}`);
        else if (one.kind === 'release') journeys.release(`shop/s${String(one.service)}`);
        else {
          const nodes = Array.from({ length: one.to }, (_, n) => `n${String(n)}`);
          const key = `shop/s${String(one.service)}`;
          for (const open of journeys.awaiting(key, one.output, null)) {
            journeys.reach(open, written(one.output, at), nodes);
          }
        }
        expect([...journeys.open()].length).toBeLessThanOrEqual(6);
      }
      expect(new Set(ended).size).toBe(ended.length);
      expect(ended.length + [...journeys.open()].length).toBe(begun);
      for (const way of ways) {
        expect(ended.filter(({ end }) => end === way)).toHaveLength(journeys.ended[way]);
      }
      for (const { end, stages } of ended) {
        const times = stages.map(({ at }) => at);
        expect(times).toEqual(times.toSorted((a, b) => a - b));
        if (end !== 'complete') continue;
        expect(stages.map(({ stage }) => stage)).toEqual(
          expect.arrayContaining(['arrival', ...journeyOutputs]),
        );
      }
    }),
  );
});
