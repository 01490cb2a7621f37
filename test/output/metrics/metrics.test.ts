import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { beforeAll, describe, expect, test, vi } from 'vitest';

import { fillOf } from '../../../src/audit/measure/endpoint-counts.ts';
import { exemplify } from '../../../src/audit/measure/histogram.ts';
import { countConvergence, countTrigger, observeCreated } from '../../../src/audit/measure/lag.ts';
import { families } from '../../../src/output/metrics/families.ts';
import { createServiceRows, serviceFamilies } from '../../../src/output/metrics/service-rows.ts';
import { endpoint, slice } from '../../build.ts';
import { cardinality, processFamilies } from '../../documents.ts';
import { conformState, exposition, findingOf, moment, numbersOf, stateOf } from '../samples.ts';

interface Parsed {
  readonly type: string;
  readonly help: string;
  readonly samples: {
    readonly name: string;
    readonly labels: Record<string, string>;
    value: number;
  }[];
}

const headerLine = /^# (?<what>HELP|TYPE) (?<name>[a-z_0-9]+) (?<text>.+)$/;
const sampleLine = /^(?<name>[a-z_0-9]+)(?:\{(?<labels>.*)\})? (?<value>\S+)$/;
const suffixes = /_(?:bucket|sum|count)$/;

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  gc();
}

/** Reads the text format strictly: one HELP and TYPE per family, before its samples. */
function parse(text: string): Map<string, Parsed> {
  const parsed = new Map<string, Parsed>();
  let help: string | null = null;
  let current = '';
  expect(text.endsWith('\n')).toBe(true);
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const header = headerLine.exec(line)?.groups;
    if (header?.what === 'HELP') {
      expect(parsed.has(header.name ?? ''), line).toBe(false);
      help = header.text ?? '';
    } else if (header?.what === 'TYPE') {
      expect(help, line).not.toBeNull();
      current = header.name ?? '';
      parsed.set(current, { type: header.text ?? '', help: help ?? '', samples: [] });
      help = null;
    } else {
      const sample = sampleLine.exec(line)?.groups;
      expect(sample, line).toBeDefined();
      const name = sample?.name ?? '';
      const family = parsed.get(current);
      const isHistogram = family?.type === 'histogram';
      expect(isHistogram ? name.replace(suffixes, '') : name, line).toBe(current);
      const labels: Record<string, string> = {};
      for (const [, label = '', value = ''] of (sample?.labels ?? '').matchAll(
        /([a-z_]+)="([^"\\]*)"(?:,|$)/g,
      )) {
        labels[label] = value;
      }
      const rebuilt = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
      expect(rebuilt.join(','), line).toBe(sample?.labels ?? '');
      family?.samples.push({ name, labels, value: Number(sample?.value) });
    }
  }
  return parsed;
}

/** A Service with a value in every family. */
const troubled = numbersOf({
  impact: { misrouted: 0.25, unused: 0.5 },
  share: {
    ...numbersOf().share,
    verdicts: { endpoints: 'different', endpointslices: 'pending', mirrored: null },
    pendingSince: { endpointslices: moment - 5 },
    open: true,
  },
});

const rows = createServiceRows({ mode: 'all', max: 1 })({
  services: new Map([
    ['shop/web', troubled],
    ['shop/api', numbersOf({ name: 'api' })],
  ]),
  open: new Set(['shop/web']),
  stale: new Set(),
});
let step = rows.next();
while (step.done !== true) step = rows.next();

const findings = [findingOf(), findingOf({ code: 'node-rules-stale', service: '', node: 'a' })];
const state = stateOf({
  perService: step.value,
  summary: {
    ...stateOf().summary,
    findings: [...stateOf().summary.findings, ...findings.slice(1)],
  },
});
let parsed: Map<string, Parsed>;

beforeAll(async () => {
  Object.assign(state.fill, fillOf([slice({ endpoints: [endpoint()] })], 100));
  countConvergence(state.convergence, { output: 'endpoints', operation: 'add', seconds: 0.3 });
  countConvergence(state.convergence, { output: 'endpoints', operation: 'add', seconds: 1000 });
  countTrigger(state.trigger, { resource: 'endpoints', quality: 'ok', seconds: 3 });
  observeCreated(state.skew, moment - 2, moment - 1);
  // A garbage collection is in /metrics once there has been one that was observed.
  await exposition(state);
  collectGarbage();
  await vi.waitFor(
    async () => {
      expect(await exposition(state)).toMatch(/^nodejs_gc_duration_seconds_count\{/m);
    },
    { timeout: 120_000 },
  );
  parsed = parse(await exposition(state));
});

describe('/metrics is equal to the catalogue', () => {
  test('in their names', () => {
    const known = [...families, ...serviceFamilies, ...processFamilies].map(({ name }) => name);
    expect([...parsed.keys()].sort()).toEqual(known.sort());
  });

  test.each(families)('in the series of $name', (family) => {
    const got = parsed.get(family.name);
    expect(got).toMatchObject({ type: family.type, help: family.help });
    const extra = family.type === 'histogram' ? ['le'] : [];
    for (const { labels, name } of got?.samples ?? []) {
      const want = Object.keys(family.labels).concat(name.endsWith('_bucket') ? extra : []);
      expect(Object.keys(labels).sort()).toEqual(want.sort());
      for (const [label, values] of Object.entries(family.labels)) {
        if (values.length > 0) expect(values).toContain(labels[label]);
      }
    }
    expect(got?.samples.length).toBeGreaterThan(0);
    expect(got?.samples.length).toBeLessThanOrEqual(cardinality(family) ?? findings.length);
  });

  test.each(serviceFamilies)('in the series of $name', (family) => {
    const got = parsed.get(family.name);
    expect(got).toMatchObject({ type: family.type, help: family.help });
    for (const { labels } of got?.samples ?? []) {
      const { namespace, service, ...own } = labels;
      expect([namespace, service]).toEqual(['shop', 'web']);
      expect(Object.keys(own)).toEqual(Object.keys(family.labels));
      for (const [label, value] of Object.entries(own)) {
        expect(family.labels[label]).toContain(value);
      }
    }
    expect(got?.samples.length).toBeGreaterThan(0);
    expect(got?.samples.length).toBeLessThanOrEqual(cardinality(family) ?? 0);
  });

  test.each(processFamilies)('in the series of $name', ({ name, type, labels }) => {
    const got = parsed.get(name);
    expect(got?.type).toBe(type);
    for (const sample of got?.samples ?? []) {
      const own = Object.keys(sample.labels).filter((label) => label !== 'le');
      expect(own.sort()).toEqual([...labels].sort());
    }
  });

  test('in every combination of labels before the first event', async () => {
    const fresh = parse(await exposition(conformState()));
    for (const family of families) {
      const got = fresh.get(family.name)?.samples ?? [];
      // A ratio needs slices, a clock offset something that was created.
      const isAbsent = /fill_ratio|clock_/.test(family.name);
      expect(got.length, family.name).toBe(isAbsent ? 0 : (cardinality(family) ?? 0));
    }
  });
});

describe('the exposition', () => {
  test('has each series once', async () => {
    const lines = (await exposition(state)).split('\n').filter((line) => /^[a-z]/.test(line));
    const series = lines.map((line) => line.slice(0, line.lastIndexOf(' ')));
    expect(new Set(series).size).toBe(series.length);
  });

  test('has buckets whose counts never decrease and end with the count', () => {
    for (const { type, samples } of parsed.values()) {
      if (type !== 'histogram') continue;
      const seen = new Map<string, { last: number; le: number }>();
      for (const { name, labels, value } of samples) {
        const { le, ...rest } = labels;
        const key = JSON.stringify(rest);
        const before = seen.get(key) ?? { last: 0, le: -Infinity };
        if (name.endsWith('_bucket')) {
          const bound = le === '+Inf' ? Infinity : Number(le);
          expect(value).toBeGreaterThanOrEqual(before.last);
          expect(bound).toBeGreaterThan(before.le);
          seen.set(key, { last: value, le: bound });
        } else if (name.endsWith('_count')) {
          expect(before).toEqual({ last: value, le: Infinity });
        }
      }
    }
  });

  const valueOf = (name: string, labels: Record<string, string> = {}): number | undefined => {
    const family = [...parsed].find(([key]) => name.startsWith(key) && parsed.has(key));
    const samples = parsed.get(name)?.samples ?? family?.[1].samples ?? [];
    return samples.find(
      (one) => one.name === name && JSON.stringify(one.labels) === JSON.stringify(labels),
    )?.value;
  };

  test('has the values of the state', () => {
    const p = 'endpoint_auditor_';
    const add = { output: 'endpoints', operation: 'add' };
    const lag = parsed.get(`${p}convergence_lag_seconds`)?.samples ?? [];
    const bucket = (le: string): number | undefined =>
      lag.find(({ labels }) => JSON.stringify(labels) === JSON.stringify({ ...add, le }))?.value;
    expect([bucket('0.25'), bucket('0.5'), bucket('600'), bucket('+Inf')]).toEqual([0, 1, 1, 2]);
    expect(lag.find(({ name }) => name.endsWith('_sum'))?.value).toBeCloseTo(1000.3);
    expect(valueOf(`${p}services`)).toBe(21);
    expect(valueOf(`${p}outputs`, { output: 'mirrored', verdict: 'unknown' })).toBe(1);
    expect(valueOf(`${p}outputs_unknown`, { reason: 'nodes-not-known' })).toBe(1);
    expect(valueOf(`${p}outputs_unknown`, { reason: 'pods-not-known' })).toBe(0);
    expect(valueOf(`${p}pending_oldest_seconds`, { output: 'endpoints' })).toBe(12);
    expect(valueOf(`${p}pending_oldest_seconds`, { output: 'mirrored' })).toBe(0);
    expect(valueOf(`${p}services_with_series`)).toBe(1);
    expect(valueOf(`${p}services_without_series`)).toBe(1);
    expect(valueOf(`${p}fill_ratio`)).toBe(0.01);
    expect(valueOf(`${p}dropped_total`, { reason: 'stale' })).toBe(3);
    expect(valueOf(`${p}build_info`, { version: '1.2.3' })).toBe(1);
    expect(valueOf(`${p}shards`, { shard: '0' })).toBe(1);
    expect(valueOf(`${p}release_info`, { release: '1.36', verified: 'true' })).toBe(1);
    const code = 'slice-endpoint-unexpected';
    expect(valueOf(`${p}findings`, { code, severity: 'critical' })).toBe(1);
    expect(valueOf(`${p}findings`, { code, severity: 'info' })).toBe(1);
    expect(valueOf(`${p}findings`, { code: 'slice-orphaned', severity: 'warning' })).toBe(0);
  });

  test('has exemplars with trace ids in OpenMetrics only', async () => {
    const own = stateOf();
    const { add } = own.convergence.endpoints;
    countConvergence(own.convergence, { output: 'endpoints', operation: 'add', seconds: 1000 });
    exemplify(add, { traceId: 'ab'.repeat(16), value: 1000, at: moment + 0.5 });
    const text = await exposition(own);
    const open = await exposition(own, 'openmetrics');
    expect(text).not.toContain(' # {');
    const lines = open.split('\n').filter((line) => line.includes(' # {'));
    const labels = 'output="endpoints",operation="add",le="+Inf"';
    expect(lines).toEqual([
      `endpoint_auditor_convergence_lag_seconds_bucket{${labels}} 1 ` +
        `# {trace_id="${'ab'.repeat(16)}"} 1000 ${moment}.5`,
    ]);
  });

  test('has no fill ratio without slices', async () => {
    const text = await exposition({ ...stateOf(), fill: { max: 100, ...fillOf([], 100) } });
    expect(text).not.toContain('fill_ratio');
  });
});
