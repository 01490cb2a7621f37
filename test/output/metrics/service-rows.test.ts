import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { verdictWords } from '../../../src/audit/finding/verdicts.ts';
import type {
  PerServiceOptions,
  ServiceNumbers,
  ServiceRowsInput,
  ServiceSeries,
  ServiceSeriesState,
} from '../../../src/output/metrics/service-rows.ts';
import {
  createServiceRows,
  serviceFamilies,
  verdictLabels,
} from '../../../src/output/metrics/service-rows.ts';
import { numbersOf } from '../samples.ts';

const named = (name: string, open = false): ServiceNumbers =>
  numbersOf({ name, share: { ...numbersOf().share, open } });

function knownOf(
  services: readonly ServiceNumbers[],
  more: Partial<ServiceRowsInput> = {},
): ServiceRowsInput {
  const keyed = services.map((one) => [`${one.namespace}/${one.name}`, one] as const);
  const open = keyed.filter(([, { share }]) => share.open).map(([key]) => key);
  return {
    services: new Map(keyed),
    open: new Set(open),
    stale: new Set(),
    ...more,
  };
}

/** Rows with the number of texts that were made for them. */
function rowsFor(
  options: PerServiceOptions,
): (known: ServiceRowsInput) => ServiceSeries & { made: number } {
  const rows = createServiceRows(options);
  return (known) => {
    const steps = rows(known);
    let made = 0;
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) made++;
    return { ...step.value, made };
  };
}

const names = ({ rows }: ServiceSeries): (string | undefined)[] =>
  rows.map((row) => /service="([^"]*)"/.exec(row.join(''))?.[1]);

describe('the Services with series', () => {
  const services = [named('web', true), named('api'), named('db', true)];

  test.each([
    ['findings', ['web', 'db']],
    ['all', ['web', 'api', 'db']],
    ['off', []],
  ] as const)('%s', (mode, want) => {
    const got = rowsFor({ mode, max: 10 })(knownOf(services));
    expect([names(got), got.leftOut]).toEqual([want, 0]);
  });

  test('a name without a Service has no series', () => {
    const share = { ...numbersOf().share, exists: false, open: true };
    const orphan = numbersOf({ name: 'gone', share });
    for (const mode of ['all', 'findings'] as const) {
      expect(names(rowsFor({ mode, max: 10 })(knownOf([orphan, ...services])))).not.toContain(
        'gone',
      );
    }
  });

  test('a Service keeps its series, and the others wait for a free place', () => {
    const rows = rowsFor({ mode: 'findings', max: 2 });
    const [a, b, c] = [named('a', true), named('b', true), named('c', true)];
    expect(names(rows(knownOf([b, c])))).toEqual(['b', 'c']);
    const crowded = rows(knownOf([a, b, c]));
    expect([names(crowded), crowded.leftOut]).toEqual([['b', 'c'], 1]);
    const after = rows(knownOf([a, named('b'), c]));
    expect([names(after), after.leftOut]).toEqual([['c', 'a'], 0]);
  });

  test('at most the allowed number of Services has series, and the others are counted', () => {
    const some = fc.uniqueArray(fc.record({ name: fc.nat(9), open: fc.boolean() }), {
      selector: ({ name }) => name,
    });
    const mode = fc.constantFrom('findings' as const, 'all' as const);
    const property = fc.property(mode, fc.nat(5), fc.array(some), (mode, max, moments) => {
      const rows = rowsFor({ mode, max });
      for (const moment of moments) {
        const services = moment.map(({ name, open }) => named(`s${String(name)}`, open));
        const got = rows(knownOf(services));
        const wanted = services.filter(({ share }) => mode === 'all' || share.open);
        expect(got.rows.length).toBe(Math.min(max, wanted.length));
        expect(got.leftOut).toBe(wanted.length - got.rows.length);
        const known = wanted.map(({ name }) => name);
        for (const name of names(got)) expect(known).toContain(name);
      }
    });
    fc.assert(property);
  });
});

describe('texts', () => {
  test('are rendered once per change', () => {
    const rows = rowsFor({ mode: 'all', max: 10 });
    const [web, api] = [named('web'), named('api')];
    expect(rows(knownOf([web, api])).made).toBe(2);
    expect(rows(knownOf([web, api])).made).toBe(0);
    const changed = rows(knownOf([{ ...web, audits: 5 }, api]));
    expect(changed.made).toBe(1);
    expect(changed.rows[0]?.join('')).toContain(
      'endpoint_auditor_service_audits_total{namespace="shop",service="web"} 5\n',
    );
  });

  test('are rendered again when an input becomes stale, and when it is back', () => {
    const rows = rowsFor({ mode: 'all', max: 10 });
    const services = [named('web'), named('api')];
    rows(knownOf(services));
    const blind = rows(knownOf(services, { stale: new Set(['pods']) }));
    expect(blind.made).toBe(2);
    expect(blind.rows[0]?.join('')).toContain('output="endpoints",verdict="unknown"} 1');
    expect(rows(knownOf(services)).rows[0]?.join('')).toContain('verdict="ok"} 1');
  });

  test('escape names, so that no name ends a label', () => {
    const hostile = numbersOf({ name: 'a"} 1\nx{b="' });
    const row = rowsFor({ mode: 'all', max: 1 })(knownOf([hostile])).rows[0]?.join('') ?? '';
    expect(row).toContain('service="a\\"} 1\\nx{b=\\""');
    expect(
      row
        .trimEnd()
        .split('\n')
        .every((line) => line.startsWith('endpoint_auditor_')),
    ).toBe(true);
  });
});

function shown(more: Partial<ServiceSeriesState> = {}): Record<string, [string, unknown][]> {
  const nothing: ServiceSeriesState = { numbers: numbersOf(), stale: new Set() };
  const state = { ...nothing, ...more };
  return Object.fromEntries(
    serviceFamilies.map(({ name, collect }) => [
      name.replace('endpoint_auditor_service_', ''),
      collect(state).map(({ labels, value }) => [Object.values(labels).join(' '), value]),
    ]),
  );
}

test('a Service that conforms has about ten series', () => {
  expect(shown()).toEqual({
    verdict: [
      ['endpoints ok', 1],
      ['endpointslices ok', 1],
    ],
    pending_since_timestamp_seconds: [],
    misrouted_connections_ratio: [],
    unused_capacity_ratio: [],
    audits_total: [['', 4]],
    endpoints: [
      ['ready', 2],
      ['terminating-serving', 0],
      ['terminating', 0],
      ['not-ready', 0],
    ],
    endpointslices: [['', 1]],
    endpointslices_surplus: [['', 0]],
    object_bytes: [
      ['endpoints', 700],
      ['endpointslices', 900],
    ],
  });
});

test('an output with a stale input is unknown for any verdict', () => {
  expect(shown({ stale: new Set(['endpoints']) }).verdict).toEqual([
    ['endpoints unknown', 1],
    ['endpointslices ok', 1],
  ]);
});

test('a Service with a finding has its impact on traffic', () => {
  const got = shown({ numbers: numbersOf({ impact: { misrouted: 0.25, unused: 0.5 } }) });
  expect(got.misrouted_connections_ratio).toEqual([['', 0.25]]);
  expect(got.unused_capacity_ratio).toEqual([['', 0.5]]);
});

test('a pending output has the start of its oldest difference', () => {
  const share = { ...numbersOf().share, pendingSince: { endpoints: 17 } };
  const got = shown({ numbers: numbersOf({ share }) });
  expect(got.pending_since_timestamp_seconds).toEqual([['endpoints', 17]]);
});

test('the label values of verdicts are the words that people read', () => {
  const words = Object.entries(verdictLabels).map(([word, verdict]) => [verdict, word] as const);
  expect(Object.fromEntries(words)).toEqual(verdictWords);
});

test('no family declares the labels namespace and service', () => {
  for (const { labels } of serviceFamilies) {
    expect(Object.keys(labels)).not.toContain('namespace');
    expect(Object.keys(labels)).not.toContain('service');
  }
});
