import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { TriggerQuality } from '../../../src/audit/measure/lag.ts';
import {
  countConvergence,
  countTrigger,
  createClockSkew,
  createConvergenceLag,
  createTriggerLag,
  observeCreated,
  skewSeconds,
  triggerSample,
} from '../../../src/audit/measure/lag.ts';
import type { EndpointSlice, Endpoints, Labels } from '../../../src/model/objects.ts';
import { endpoints, foreign, mirror, service, slice } from '../../build.ts';

test('convergence is counted by output and operation', () => {
  const lag = createConvergenceLag();
  countConvergence(lag, { output: 'mirrored', operation: 'remove', seconds: 0.02 });
  countConvergence(lag, { output: 'mirrored', operation: 'remove', seconds: 700 });
  expect(lag.mirrored.remove).toMatchObject({ count: 2, largest: 700 });
  expect(lag.mirrored.add.count).toBe(0);
  expect(lag.endpoints.remove.count).toBe(0);
});

// Seconds after 2026-01-01T10:00:00Z.
const t0 = Date.UTC(2026, 0, 1, 10) / 1000;
const rfc3339 = (seconds: number): string =>
  new Date((t0 + seconds) * 1000).toISOString().replace('.000Z', 'Z');
const stamp = (seconds: number | null): Labels =>
  seconds === null ? {} : { 'endpoints.kubernetes.io/last-change-trigger-time': rfc3339(seconds) };

const written = (trigger: number | null, at: number): EndpointSlice =>
  slice({ annotations: stamp(trigger), at: t0 + at });

/** A Service of a day before, which arrived then. */
const old = service({ created: t0 - 86_400, at: t0 - 86_400 });

describe('the quality of a trigger time', () => {
  interface Case {
    readonly what: string;
    /** Trigger time and arrival of the version before; null: there was none. */
    readonly before: readonly [number | null, number] | null;
    readonly trigger: number | null;
    readonly at: number;
    readonly service?: ReturnType<typeof service>;
    readonly want: TriggerQuality;
    readonly seconds?: number;
  }
  const young = service({ created: t0, at: t0 + 0.2 });
  const changed = service({ created: t0 - 86_400, at: t0 + 500 });
  const cases: Case[] = [
    {
      what: 'a pod became ready',
      before: [null, -600],
      trigger: 0,
      at: 2.5,
      want: 'ok',
      seconds: 2.5,
    },
    {
      what: 'below the resolution',
      before: [null, -600],
      trigger: 0,
      at: 0.4,
      want: 'coarse',
      seconds: 0.4,
    },
    {
      what: 'slightly before it',
      before: [null, -600],
      trigger: 0,
      at: -0.9,
      want: 'coarse',
      seconds: -0.9,
    },
    { what: 'a clock that is ahead', before: [null, -600], trigger: 0, at: -1.1, want: 'skewed' },
    { what: 'the controller hung for long', before: [-700, -600], trigger: 0, at: 900, want: 'ok' },
    { what: 'one that lags behind churn', before: [10, 99], trigger: 11, at: 100, want: 'ok' },
    { what: 'a pod was deleted', before: [0, 1], trigger: null, at: 5, want: 'absent' },
    { what: 'another pod of that second', before: [0, 0.5], trigger: 0, at: 1.5, want: 'ok' },
    { what: 'an edit that kept it', before: [0, 0.5], trigger: 0, at: 30, want: 'absent' },
    {
      what: 'the first sync after a restart',
      before: [-9000, -8999],
      trigger: -86_400,
      at: 5,
      want: 'restarted',
    },
    {
      what: 'an edit after that',
      before: [-86_400, -3600],
      trigger: -86_400,
      at: 5,
      want: 'absent',
    },
    { what: 'a new Service', before: null, trigger: 0, at: 0.4, service: young, want: 'coarse' },
    { what: 'a new Service, slowly', before: null, trigger: 0, at: 3, service: young, want: 'ok' },
    {
      what: 'its first pod, in the same second',
      before: [0, 0.3],
      trigger: 0,
      at: 0.9,
      service: young,
      want: 'coarse',
    },
    {
      what: 'a selector that takes in old pods',
      before: [-9000, -8999],
      trigger: 0,
      at: 501,
      service: changed,
      want: 'absent',
    },
    {
      what: 'a pod ready after the change',
      before: [-9000, -8999],
      trigger: 500,
      at: 502,
      service: changed,
      want: 'ok',
    },
    {
      what: 'the second writing after it',
      before: [0, 501],
      trigger: 490,
      at: 503,
      service: changed,
      want: 'ok',
    },
    {
      what: 'an old pod that got the label',
      before: [-7300, -7200],
      trigger: -9000,
      at: 5,
      want: 'absent',
    },
    {
      what: 'another one, soon after it',
      before: [-9000, 0],
      trigger: -8000,
      at: 5,
      want: 'absent',
    },
    { what: 'a new slice', before: null, trigger: 0, at: 2, want: 'ok' },
  ];
  test.each(cases)('$what: $want', ({ before, trigger, at, want, seconds, ...more }) => {
    const sample = triggerSample(
      before === null ? null : written(...before),
      written(trigger, at),
      more.service ?? old,
      t0 + at,
    );
    expect(sample).toMatchObject({ resource: 'endpointslices', quality: want });
    if (seconds !== undefined) expect(sample?.seconds).toBeCloseTo(seconds, 6);
    expect(sample?.seconds === null).toBe(want === 'absent');
  });
});

describe('objects with a trigger time', () => {
  const cases: [string, Endpoints | EndpointSlice | null, typeof old | null, boolean][] = [
    ['a slice of the controller', written(0, 2), old, true],
    ['even if its Service is not known', written(0, 2), null, true],
    ['Endpoints of a Service with a selector', endpoints({ annotations: stamp(0) }), old, true],
    ['Endpoints of one without', endpoints(), service({ selector: null }), false],
    ['Endpoints without a Service', endpoints(), null, false],
    ['a mirrored slice', mirror(), old, false],
    ['a slice of another manager', foreign(), old, false],
    ['a deletion', null, old, false],
  ];
  test.each(cases)('%s', (_, after, of, counts) => {
    const sample = triggerSample(null, after, of, t0 + 2);
    expect(sample !== null).toBe(counts);
    if (after !== null && sample !== null) {
      expect(sample.resource).toBe('subsets' in after ? 'endpoints' : 'endpointslices');
    }
  });
});

describe('the format of trigger times', () => {
  const cases: [string, number | null][] = [
    ['2026-01-01T10:00:00Z', t0],
    ['2026-01-01T10:00:00.25Z', t0 + 0.25],
    ['2026-01-01T10:00:00.123456789Z', t0 + 0.123],
    ['2026-01-01T12:00:00+02:00', t0],
    ['', null],
    ['1', null],
    ['yesterday', null],
    ['2026-13-01T10:00:00Z', null],
  ];
  test.each(cases)('%s', (text, want) => {
    const annotations = { 'endpoints.kubernetes.io/last-change-trigger-time': text };
    const sample = triggerSample(null, slice({ annotations }), old, t0 + 2);
    expect(sample?.quality === 'absent').toBe(want === null);
    expect(sample?.seconds).toBe(want === null ? null : t0 + 2 - want);
  });
});

test('all qualities are counted, ok and coarse are measured', () => {
  const lag = createTriggerLag();
  const resource = 'endpointslices';
  countTrigger(lag, { resource, quality: 'ok', seconds: 3 });
  countTrigger(lag, { resource, quality: 'coarse', seconds: -0.5 });
  countTrigger(lag, { resource, quality: 'absent', seconds: null });
  countTrigger(lag, { resource, quality: 'restarted', seconds: 86_400 });
  countTrigger(lag, { resource, quality: 'skewed', seconds: -20 });
  const one = { ok: 1, coarse: 1, absent: 1, restarted: 1, skewed: 1 };
  expect(lag.counts.endpointslices).toEqual(one);
  expect(lag.lag.endpointslices).toMatchObject({ count: 2, sum: 3, largest: 3 });
  expect(lag.lag.endpointslices.counts[0]).toBe(1);
  expect(lag.lag.endpoints.count).toBe(0);
});

describe('clock skew', () => {
  const t0 = 1_800_000_000;

  test('is unknown before the first object', () => {
    expect(skewSeconds(createClockSkew(), t0)).toBeNull();
  });

  test('is never too low, and too high by a second and the delay at most', () => {
    const object = fc.record({
      // When it was created by the true time, and how long it took to arrive.
      created: fc.double({ min: 0, max: 800, noNaN: true }),
      way: fc.double({ min: 0, max: 3, noNaN: true }),
    });
    const ahead = fc.double({ min: -50, max: 50, noNaN: true });
    fc.assert(
      fc.property(fc.array(object, { minLength: 1 }), ahead, (objects, distance) => {
        const skew = createClockSkew();
        const arrivals = objects
          .map(({ created, way }) => ({
            created: Math.floor(t0 + created),
            at: t0 + created + way + distance,
          }))
          .sort((a, b) => a.at - b.at);
        for (const { created, at } of arrivals) observeCreated(skew, created, at);
        const got = skewSeconds(skew, arrivals.at(-1)?.at ?? 0) ?? Number.NaN;
        const least = Math.min(...objects.map(({ way }) => way));
        expect(got).toBeGreaterThanOrEqual(distance - 1e-6);
        expect(got).toBeLessThanOrEqual(distance + least + 1 + 1e-6);
      }),
    );
  });

  test('follows a clock that was set', () => {
    const skew = createClockSkew();
    observeCreated(skew, t0, t0 + 0.5 - 20);
    expect(skewSeconds(skew, t0)).toBeCloseTo(-19.5);
    // The clock is put right; a while later nothing of it is left.
    observeCreated(skew, t0 + 100, t0 + 100.5);
    expect(skewSeconds(skew, t0 + 100)).toBeCloseTo(-19.5);
    for (let at = 0; at <= 2000; at += 100) observeCreated(skew, t0 + at, t0 + at + 0.5);
    expect(skewSeconds(skew, t0 + 2000)).toBeCloseTo(0.5);
  });

  test('is unknown if the last object is old', () => {
    const skew = createClockSkew();
    observeCreated(skew, t0, t0 + 0.5);
    expect(skewSeconds(skew, t0 + 1000)).toBeCloseTo(0.5);
    expect(skewSeconds(skew, t0 + 2000)).toBeNull();
    observeCreated(skew, t0 + 5000, t0 + 5003);
    expect(skewSeconds(skew, t0 + 5003)).toBeCloseTo(3);
  });
});
