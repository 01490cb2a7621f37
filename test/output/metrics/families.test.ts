import { unservedReasons } from '../../../src/audit/service/unserved.ts';
import { describe, expect, test } from 'vitest';

import {
  countProgrammed,
  createJourneyLag,
  createJourneys,
} from '../../../src/audit/measure/journey.ts';
import { createClockSkew, observeCreated } from '../../../src/audit/measure/lag.ts';
import { createSizes, trackSize } from '../../../src/audit/measure/size.ts';
import { failureReasons, newErrorCounts } from '../../../src/model/connection.ts';
import { families } from '../../../src/output/metrics/families.ts';
import { serviceFamilies } from '../../../src/output/metrics/service-rows.ts';
import type { WatchCounts } from '../../../src/output/metrics/state.ts';
import { noHintCounts } from '../../../src/output/metrics/state.ts';
import { noTracingCounts } from '../../../src/output/traces/settings.ts';
import { endpoints, event } from '../../build.ts';
import { metricsDocument, processFamilies } from '../../documents.ts';
import { moment, seriesOf, stateOf } from '../samples.ts';

describe('the name follows the rules of promtool check metrics', () => {
  test.each([...families, ...serviceFamilies])('in $name', ({ name, type, help, unit, labels }) => {
    expect(name).toMatch(/^endpoint_auditor_[a-z]+(?:_[a-z]+)*$/);
    expect(name.endsWith('_total')).toBe(type === 'counter');
    expect(name).not.toMatch(/gauge|counter|histogram|summary/);
    expect(name).not.toMatch(/_(?:count|sum|bucket)$/);
    expect(name).not.toMatch(/milliseconds|minutes|kilobytes|percent/);
    if (unit !== 'none') expect(name).toMatch(new RegExp(`_${unit}(?:_|$)`));
    else expect(name).not.toMatch(/_(?:seconds|bytes|ratio)(?:_|$)/);
    expect(help).toMatch(/^[A-Z].*\.$/);
    for (const label of Object.keys(labels)) {
      expect(label).toMatch(/^[a-z]+$/);
      expect(['le', 'quantile', 'type', 'job', 'instance', 'pod']).not.toContain(label);
      const isLimited = /_(?:service_findings|node_findings|incident_services)$/.test(name);
      if (!isLimited) expect(['namespace', 'service', 'node', 'incident']).not.toContain(label);
    }
  });
});

// `vitest run -u` writes the document.
test('docs/metrics.md is equal to the generated document', async () => {
  await expect(metricsDocument()).toMatchFileSnapshot('../../../docs/metrics.md');
});

test('the document names every metric and every label', () => {
  const text = metricsDocument();
  for (const { name } of [...families, ...serviceFamilies, ...processFamilies])
    expect(text).toContain(`\`${name}\``);
  for (const { labels, help } of [...families, ...serviceFamilies]) {
    if (help.startsWith('Deprecated')) continue;
    for (const [label, values] of Object.entries(labels)) {
      expect(text).toContain(`| \`${label}\` `);
      if (label !== 'cause' && values.length < 12)
        for (const value of values) expect(text).toContain(`\`${value}\``);
    }
  }
});

test('a deprecated name has the samples of the new one, and names it', async () => {
  const hints = noHintCounts();
  hints.zone.all = 2;
  expect(await seriesOf('services_hinted{mode="zone",endpoints="all"', { hints })).toEqual(['} 2']);
  const old = families.filter(({ help }) => help.startsWith('Deprecated'));
  expect(old).toHaveLength(12);
  for (const { name, help } of old) {
    const [, now = ''] = /^Deprecated: use (\w+)\.$/.exec(help) ?? [];
    expect(families.map((family) => family.name)).toContain(now);
    const short = (text: string): string => text.replace('endpoint_auditor_', '');
    const [before, after] = [await seriesOf(short(name)), await seriesOf(short(now))];
    expect(before).toHaveLength(after.length);
  }
});

test('Services without endpoints are counted, with a series for every reason', async () => {
  const { summary } = stateOf();
  const unserved = { ...summary.unserved, no_ready_pod: 3 };
  const series = await seriesOf('services_without_endpoints', {
    summary: { ...summary, unserved },
  });
  expect(series).toHaveLength(unservedReasons.length);
  expect(series).toContain('{reason="no_ready_pod"} 3');
  expect(series).toContain('{reason="selector_matches_nothing"} 0');
});

test('the oldest pending difference on a node has an age', async () => {
  const { summary } = stateOf();
  const pendingSince = { node: moment - 7 };
  const got = await seriesOf('pending_oldest_seconds{', { summary: { ...summary, pendingSince } });
  expect(got).toContain('output="node"} 7');
});

const watchSeries = async (...more: Parameters<typeof stateOf>): Promise<string[]> =>
  (await seriesOf('', ...more)).filter((line) => /^(?:watch|confirm)_\w+\{/.test(line));

/** Each count is different, so that a swap is visible. */
const counts: WatchCounts = {
  lists: 1,
  watches: 2,
  events: 3,
  repeated: 4,
  stale: 5,
  bookmarks: 6,
  bytes: 7,
  badFrames: 8,
  unreadable: 9,
  throttled: 10,
  unauthorised: 11,
  denied: 12,
  relists: { gone: 13, expired: 14, reset: 15, disorder: 16, gap: 24, starved: 25 },
  reconnects: {
    ...{ eof: 17, timeout: 18, reset: 19, idle: 20, status: 21, frame: 22, older: 23 },
    endless: 26,
  },
};

test('a watch without its first list is unseen since the start of the auditor', async () => {
  const got = await watchSeries({
    startedAt: moment - 30,
    watches: {
      inputs: new Map([['pods', { state: 'listing', blindSince: moment - 29, version: '' }]]),
      confirmations: { asked: 0, confirmed: 0, lagging: 0, failed: 0 },
      counters: new Map([['nodes', counts]]),
      errors: newErrorCounts(),
    },
  });
  expect(got).toContain('watch_unseen_seconds{resource="nodes"} 30');
  expect(got).toContain('watch_unseen_seconds{resource="pods"} 29');
  // It is not watched.
  expect(got).toContain('watch_unseen_seconds{resource="services"} 0');
});

test('a lost watch has the seconds since its loss, and each counter its series', async () => {
  const got = await watchSeries({
    watches: {
      inputs: new Map([
        ['pods', { state: 'stale', blindSince: moment - 12, version: '7' }],
        ['services', { state: 'synced', blindSince: null, version: '9' }],
      ]),
      confirmations: { asked: 6, confirmed: 3, lagging: 2, failed: 1 },
      counters: new Map([['nodes', counts]]),
      errors: { ...newErrorCounts(), version: { ...newErrorCounts().version, dial: 14 } },
    },
  });
  const notNodes = got.filter((line) => !line.includes('resource="nodes"'));
  expect(notNodes.filter((line) => line.endsWith(' 1'))).toEqual([
    'watch_state{resource="services",state="synced"} 1',
    'watch_state{resource="pods",state="stale"} 1',
    'confirm_reads_total{result="failed"} 1',
  ]);
  // It has not been listed yet.
  expect(got).toContain('watch_state{resource="nodes",state="listing"} 1');
  expect(got).toContain('watch_unseen_seconds{resource="pods"} 12');
  expect(got).toContain('watch_unseen_seconds{resource="services"} 0');
  expect(got).toContain('confirm_reads_total{result="lagging"} 2');
  expect(got).toContain('watch_errors_total{resource="version",reason="dial"} 14');
  const names = new Map(
    got
      .filter((line) => /(?<!errors)_total\{resource="nodes"/.test(line))
      .map((line) => [Number(line.split(' ')[1]), line.replace('watch_', '')]),
  );
  expect(names.get(23)).toBe('reconnects_total{resource="nodes",reason="older"} 23');
  expect(names.get(16)).toBe('relists_total{resource="nodes",reason="disorder"} 16');
  expect(names.get(8)).toBe('frames_total{resource="nodes",result="decode-error"} 8');
  expect([...names.keys()].sort((a, b) => a - b)).toEqual(
    Array.from({ length: 26 }, (_, index) => index + 1),
  );
});

test('input that is not live has every series of watches, all 0', async () => {
  const got = await watchSeries();
  const { length: reasons } = failureReasons;
  expect(got).toHaveLength(5 * (5 + 1 + 26) + 3 + 6 * reasons);
  expect(got.filter((line) => !line.endsWith(' 0'))).toEqual([]);
});

async function agentValues(...more: Parameters<typeof stateOf>): Promise<Record<string, number>> {
  const series = await seriesOf('', ...more);
  const pairs = series
    .filter((line) => /^(?:agent_[br]|node_(?:agents|report|service_ports_d))/.test(line))
    .map((line) => line.split(' '))
    .map(([name = '', value]) => [name.replace(/\{\w+="([\w-]+)"\}/, ' $1'), Number(value)]);
  return Object.fromEntries(pairs) as Record<string, number>;
}

test('without agents, all series of agents are 0', async () => {
  const values = await agentValues();
  expect(Object.keys(values)).toHaveLength(11);
  expect(new Set(Object.values(values))).toEqual(new Set([0]));
});

test('the series of agents have the counts of the state', async () => {
  const agents = {
    states: { answering: 3, stale: 1, refused: 0, absent: 2 },
    oldestSeenAt: moment - 40,
    divergent: 9,
    visits: { seen: 8, early: 1, refused: 0, silent: 5 },
    bytes: 1234,
  };
  expect(await agentValues({ agents })).toMatchObject({
    'node_agents answering': 3,
    'node_agents absent': 2,
    node_report_oldest_seconds: 40,
    node_service_ports_divergent: 9,
    'agent_requests_total no-answer': 5,
    agent_bytes_total: 1234,
  });
});

test('a shard has its index as a label, and the number of all shards', async () => {
  expect(await seriesOf('shards', { shard: { index: 1, count: 3 } })).toEqual(['{shard="1"} 3']);
});

test('the programming lag has one sum per bound', async () => {
  const travel = createJourneyLag();
  countProgrammed(travel, { least: 0.2, most: 5 });
  expect(await seriesOf('node_programming_lag_seconds_sum', { travel })).toEqual([
    '{bound="lower"} 0.2',
    '{bound="upper"} 5',
  ]);
});

test('open journeys are counted, and ended journeys by their end', async () => {
  const journeys = createJourneys();
  const departure = {
    namespace: 'shop',
    service: 'web',
    uid: 'u',
    podNode: 'a',
    addresses: ['10.0.0.1'],
    operation: 'add',
    ownTime: null,
    at: moment,
    gap: false,
    resourceVersion: '1',
    awaits: ['endpoints'],
  } as const;
  for (const pod of ['web-1', 'web-1', 'web-2']) journeys.begin({ ...departure, pod });
  expect(await seriesOf('pod_changes_open', { journeys })).toEqual([' 2']);
  expect(await seriesOf('pod_changes_ended_total{', { journeys })).toEqual([
    'end="complete"} 0',
    'end="superseded"} 1',
    'end="deleted"} 0',
    'end="dropped"} 0',
  ]);
});

test('the skew of the clocks has no series while it is unknown', async () => {
  expect(await seriesOf('clock_offset_seconds')).toEqual([]);
  const skew = createClockSkew();
  observeCreated(skew, moment, moment - 3.5);
  expect(await seriesOf('clock_offset_seconds', { skew })).toEqual([' -3.5']);
});

test('every count of traces has a series', async () => {
  const tracing = noTracingCounts();
  Object.assign(tracing.journeys, { slow: 1, ratio: 2, none: 3 });
  tracing.exported = 4;
  Object.assign(tracing.dropped, { queue: 5, export: 6, shutdown: 7 });
  expect(await seriesOf('pod_changes_traced_total{', { tracing })).toEqual([
    'choice="slow"} 1',
    'choice="ratio"} 2',
    'choice="none"} 3',
  ]);
  expect(await seriesOf('spans_', { tracing })).toEqual([
    'exported_total 4',
    'dropped_total{reason="queue"} 5',
    'dropped_total{reason="export"} 6',
    'dropped_total{reason="shutdown"} 7',
  ]);
});

test('endpoints are counted by condition', async () => {
  const conditions = {
    ready: 5,
    'terminating-serving': 1,
    terminating: 2,
    'not-ready': 3,
    hinted: 4,
  };
  expect(await seriesOf('endpoints{', { conditions })).toEqual([
    'condition="ready"} 5',
    'condition="terminating-serving"} 1',
    'condition="terminating"} 2',
    'condition="not-ready"} 3',
  ]);
});

test('Services with hints are counted by mode, and those without by reason', async () => {
  const hints = noHintCounts();
  hints.auto.absent['one-zone'] = 3;
  hints.zone.all = 2;
  hints.node.some = 1;
  const hinted = await seriesOf('services_with_hints{', { hints });
  expect(hinted.filter((line) => !line.endsWith(' 0'))).toEqual([
    'mode="zone",coverage="all"} 2',
    'mode="node",coverage="some"} 1',
  ]);
  const unhinted = await seriesOf('services_without_hints{', { hints });
  expect(unhinted.filter((line) => !line.endsWith(' 0'))).toEqual([
    'mode="auto",reason="one-zone"} 3',
  ]);
});

test('objects at their limits are counted by resource', async () => {
  const capacity = { truncated: 2, over: { endpoints: 1, endpointslices: 4 } };
  expect(await seriesOf('truncated_objects', { capacity })).toEqual([' 2']);
  expect(await seriesOf('over_capacity_objects{', { capacity })).toEqual([
    'resource="endpoints"} 1',
    'resource="endpointslices"} 4',
  ]);
});

test('object_bytes counts every version, and its maximum only existing objects', async () => {
  const sizes = createSizes();
  const first = endpoints({ bytes: 2000 });
  const second = endpoints({ bytes: 500 });
  const { resource, at } = event('added', first);
  trackSize(sizes, { resource, before: null, after: first, at }, null);
  trackSize(sizes, { resource, before: first, after: second, at }, null);
  expect(
    (await seriesOf('object_bytes_bucket', { sizes })).filter((line) =>
      line.includes('"endpoints"'),
    ),
  ).toEqual([
    '{resource="endpoints",le="1024"} 1',
    '{resource="endpoints",le="10240"} 2',
    '{resource="endpoints",le="102400"} 2',
    '{resource="endpoints",le="524288"} 2',
    '{resource="endpoints",le="1258291"} 2',
    '{resource="endpoints",le="1572864"} 2',
    '{resource="endpoints",le="+Inf"} 2',
  ]);
  expect(await seriesOf('object_max_bytes{resource="endpoints"', { sizes })).toEqual(['} 500']);
});
