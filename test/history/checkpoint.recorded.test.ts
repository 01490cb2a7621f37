// The history of every scenario and of recordings shows the same state at random moments as a
// replay of the whole recording to that moment.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { type Finding, openFindingKey } from '../../src/audit/finding/catalogue.ts';
import type { Incident } from '../../src/audit/incident/open-incident.ts';
import { type Auditor, createAuditor } from '../../src/auditor/auditor.ts';
import { createReport } from '../../src/auditor/queries.ts';
import { replay } from '../../src/auditor/replay.ts';
import { isFields } from '../../src/cluster/decode/json-fields.ts';
import { listsOf } from '../../src/cluster/files/parts.ts';
import { readRecording, type RecordingEntry } from '../../src/cluster/files/recording.ts';
import { checkpointOf } from '../../src/history/checkpoint.ts';
import { createAuditorHistory } from '../../src/history/history.ts';
import { openHistory } from '../../src/history/reader.ts';
import { listSegments } from '../../src/history/segments.ts';
import { label, resources } from '../../src/model/objects.ts';
import type { ReportedFinding } from '../../src/output/text/format.ts';
import * as build from '../build.ts';
import { auditorDefaults } from '../build.ts';
import { parseScenario } from '../scenarios/parse.ts';
import { linesOf, scenarioFolder, scenarioNames } from '../verify/verify.ts';
import { faultyFiles, randomOf } from './crash.ts';

type Options = Partial<typeof auditorDefaults>;

const newAuditor = (options: Options): Auditor => createAuditor({ ...auditorDefaults, ...options });

const entriesOf = (bytes: AsyncIterable<Uint8Array>, auditor: Auditor, problems: string[]) =>
  readRecording({ name: 'recording', bytes }, ({ message }) => problems.push(message), {
    previousPod: (key) => auditor.store.listers.pods.get(key),
    previousOutput: (resource, key) => auditor.store.objects[resource].get(key),
  });

/** Replays a recording, and records it as history; `isWork` says after which entries it writes. */
async function recordHistory(text: string, options: Options, isWork: () => boolean) {
  const { files, stored } = faultyFiles();
  const auditor = newAuditor(options);
  const history = createAuditorHistory(auditor, {
    files,
    limits: { size: 2 ** 40, age: 40 },
    now: () => auditor.now() ?? 0,
    pause: () => Promise.resolve(),
    onTrouble(reason) {
      if (reason !== null) throw new Error(reason);
    },
  });
  const moments: number[] = [];
  const entries = entriesOf(Readable.from([Buffer.from(text)]), auditor, []);
  for await (const entry of entries) {
    if (isOfNode(entry)) continue;
    auditor.take(entry);
    history.take(entry);
    if (isWork()) await history.work();
    if (auditor.serviceAuditor() !== null) moments.push(auditor.now() ?? 0);
  }
  await history.close();
  return { files, stored, moments };
}

const isOfNode = ({ kind }: RecordingEntry): boolean =>
  kind === 'node-rules' || kind === 'node-config';

/** All fields, in the order of their names. */
const sortedText = (object: unknown): string =>
  JSON.stringify(object, (_, value: unknown) =>
    isFields(value) ? Object.fromEntries(Object.entries(value).sort()) : value,
  );

/** What an auditor shows: open findings, objects, and the verdicts on all outputs. */
function stateOf(auditor: Auditor) {
  const { findings, services, verdicts, unknown } = createReport(auditor, {
    kind: 'replay',
    sources: [],
    namespace: null,
    problems: [],
  });
  const open = findings.filter(({ resolvedAt }) => resolvedAt === null);
  const { pods, nodes, endpoints, endpointslices, ...other } = auditor.store.objects;
  const objects = [other.services, pods, nodes, endpoints, endpointslices].flatMap((map) =>
    [...map.values()].map((it) => sortedText(it)),
  );
  return {
    findings: open.map(textOf).sort(),
    pending: auditor.findings
      .pending()
      .map(({ at, item }) => `${at} ${item.difference.code} ${item.since} ${item.cause ?? ''}`)
      .sort(),
    doubts: doubtsOf(auditor).sort(),
    objects: objects.sort(),
    resolved: auditor.findings.resolved().map(resolvedText).sort(),
    ...incidentsOf(auditor),
    lag: lagOf(auditor),
    rest: { services, verdicts, unknown },
  };
}

/** Differences that ended at one moment may be in any order. */
function resolvedText({ object, field, expected, actual, differences, ...finding }: Finding) {
  const parts = [object, field, expected, actual].map((it) => it?.split('; ').sort() ?? null);
  const details = differences.map((it) => sortedText(it)).sort();
  return sortedText({ ...finding, parts, details });
}

/** Open and resolved incidents, with all of what their answers have. */
function incidentsOf({ incidents }: Auditor) {
  const textOf = (incident: Incident): string => {
    const { findings, services, objects, changes, ...rest } = incident;
    const lists = [findings.map(openFindingKey), [...services], objects, changes.map(sortedText)];
    return sortedText({ ...rest, lists: lists.map((list) => list.toSorted()) });
  };
  return {
    incidents: incidents.list().map(textOf).sort(),
    resolvedIncidents: incidents.resolved().map(textOf),
    unread: incidents.unread().map(sortedText).sort(),
  };
}

/** What was measured, without the journeys of pods and the work of the process. */
function lagOf({ samples, store, now }: Auditor) {
  const { convergence, trigger, skew, sizes, opened, history, worst } = samples;
  const services = [...store.objects.services.keys()].sort();
  return {
    ...{ convergence, trigger, skew, sizes, opened },
    series: history.series(),
    services: services.map((key) => history.ofService(key)),
    worst: worst.convergence.list(now() ?? 0),
  };
}

/** Since when no other difference may continue the clocks of open findings. */
const doubtsOf = (auditor: Auditor): string[] =>
  [...(auditor.serviceAuditor()?.audited ?? [])].flatMap(([key, { items }]) =>
    [...items].flatMap(([unit, all]) =>
      all.flatMap(({ difference: { code, subject }, since, doubtedAt }) =>
        doubtedAt === undefined ? [] : [[key, unit, code, subject, since, doubtedAt].join(' ')],
      ),
    ),
  );

/** A finding as text; differences that opened at one moment may be in any order. */
function textOf({ expected, actual, differences, ...finding }: ReportedFinding): string {
  const parts = [expected, actual].map((text) => text?.split('; ').sort() ?? null);
  const details = differences.map((it) => JSON.stringify(it)).sort();
  return JSON.stringify({ ...finding, parts, details });
}

/** The state at a moment, by a replay of the recording from its beginning. */
async function stateByReplay(text: string, options: Options, until: number) {
  const auditor = newAuditor(options);
  async function* withoutNodes() {
    for await (const entry of entriesOf(Readable.from([Buffer.from(text)]), auditor, [])) {
      if (!isOfNode(entry)) yield entry;
    }
  }
  await replay(auditor, withoutNodes(), { speed: Infinity, until });
  return stateOf(auditor);
}

/** The state at a moment, by the history, and what the reader reports. */
async function stateByHistory(
  files: Parameters<typeof openHistory>[0],
  options: Options,
  until: number,
) {
  const problems: string[] = [];
  const auditor = newAuditor(options);
  const { bytes } = await openHistory(files, until, (_, message) => problems.push(message));
  await replay(auditor, entriesOf(bytes, auditor, problems), { speed: Infinity, until });
  return { state: stateOf(auditor), problems };
}

/** Longer scenarios are about size. */
const mostLines = 200;

/** Compares some random moments of a recording; the number of clocks that are in doubt at them. */
async function compareMoments(
  text: string,
  options: Parameters<typeof stateByReplay>[1],
  count: number,
  seed = 1,
): Promise<number> {
  const random = randomOf(seed);
  const { files, moments } = await recordHistory(text, options, () => random() < 0.5);
  expect((await files.list()).length).toBeGreaterThan(0);
  let doubts = 0;
  for (let left = count; left > 0; left--) {
    const moment = moments[Math.floor(random() * moments.length)] ?? 0;
    const until = moment + (random() < 0.5 ? 0 : Math.floor(random() * 100) / 100);
    const known = await stateByHistory(files, options, until).catch((error: unknown) => {
      if (String(error).includes('The history begins at')) return null;
      throw error;
    });
    if (known === null) continue;
    const want = await stateByReplay(text, options, until);
    doubts += want.doubts.length;
    expect({ until, ...known.state }).toEqual({ until, ...want });
    // The recorder writes only after some entries, so that times without a line are long.
    const expected = /^Nothing was recorded|^The recorder could not read the object/;
    expect(known.problems.filter((problem) => !expected.test(problem))).toEqual([]);
  }
  return doubts;
}

describe('the state at random moments equals that of a replay', () => {
  test.each(scenarioNames())('%s', async (name) => {
    const scenario = parseScenario(name, readFileSync(join(scenarioFolder, name), 'utf8'));
    const text = [...linesOf(scenario)].map((line) => `${JSON.stringify(line)}\n`).join('');
    const { window: settle, release, maxEndpointsPerSlice } = scenario;
    await compareMoments(text, { settle, release, maxEndpointsPerSlice }, 3);
  });

  test('also if earlier changes of objects were missed while findings were open', async () => {
    let doubts = 0;
    for (const name of scenarioNames()) {
      const scenario = parseScenario(name, readFileSync(join(scenarioFolder, name), 'utf8'));
      const lines = [...linesOf(scenario)];
      if (lines.length > mostLines) continue;
      const random = randomOf(1);
      const text = lines.map((line) => {
        const isGap = 'type' in line && line.type !== 'SYNC' && random() < 0.5;
        return `${JSON.stringify(isGap ? { ...line, gap: true } : line)}\n`;
      });
      const { window: settle, release, maxEndpointsPerSlice } = scenario;
      const options = { settle, release, maxEndpointsPerSlice };
      doubts += await compareMoments(text.join(''), options, 5);
    }
    expect(doubts).toBeGreaterThan(10);
  });

  const chaos = join(import.meta.dirname, '../recordings/chaos');
  const recordings = readdirSync(chaos).filter((name) => name.endsWith('.gz'));
  test.each(recordings)('chaos %s', async (name) => {
    const text = gunzipSync(readFileSync(join(chaos, name))).toString();
    await compareMoments(text, { settle: 10 }, 6);
  });

  test.each(resources)('also after the watch of %s has ended', async (resource) => {
    const [name = ''] = recordings;
    const lines = gunzipSync(readFileSync(join(chaos, name)))
      .toString()
      .trimEnd()
      .split('\n');
    const middle = Math.floor(lines.length / 2);
    const { at } = JSON.parse(lines[middle] ?? '') as { at: number };
    lines.splice(middle, 0, JSON.stringify({ kind: 'watch', at, resource, state: 'off' }));
    await compareMoments(lines.map((line) => `${line}\n`).join(''), { settle: 10 }, 20);
  });
});

test('the pods of a Service are just before its Endpoints and slices, each once', () => {
  const pods = ['a-1', 'b-1', 'lone', 'b-2'].map((name) => build.pod({ name }));
  const outputsOf = (name: string, targets: readonly string[]) => [
    build.endpoints({
      name,
      subsets: [build.subset(targets.map((it) => build.address({ target: build.target(it) })))],
    }),
    build.slice({
      name: `${name}-slice`,
      labels: { ...build.sliceLabels, [label.serviceName]: name },
      endpoints: targets.map((it) => build.endpoint({ target: build.target(it) })),
    }),
  ];
  const others = [build.service({ name: 'a' }), build.node()];
  const outputs = [...outputsOf('a', ['a-1', 'gone']), ...outputsOf('b', ['b-1', 'b-2'])];
  const stray = build.slice({ name: 'stray', labels: {}, endpoints: [] });
  const { auditor } = build.auditorOf(30);
  auditor.take(build.header(1));
  for (const object of [...pods, ...others, ...outputs, stray]) {
    auditor.take({ kind: 'event', event: build.event('added', object, 1) });
  }
  for (const entry of build.synced(2)) auditor.take(entry);
  const names = [...(checkpointOf(auditor, 3)?.parts ?? [])].flatMap((line) => {
    const { object } = JSON.parse(line) as { object?: { metadata: { name: string } } };
    return object?.metadata.name ?? [];
  });
  const wanted = 'node-a a a-1 a a-slice b-1 b-2 b b-slice stray lone';
  expect(names).toEqual(wanted.split(' '));
});

test('has pods by what differs from another one, and a part of it has whole pods', () => {
  const { auditor } = build.auditorOf(30);
  auditor.take(build.header(1));
  for (const name of ['a-1', 'a-2', 'a-3']) {
    const pod = build.pod({ name, uid: name, resourceVersion: '7' });
    auditor.take({ kind: 'event', event: build.event('added', pod, 1) });
  }
  for (const entry of build.synced(2)) auditor.take(entry);
  const podsIn = (checkpoint: ReturnType<typeof checkpointOf>): unknown[] =>
    [...(checkpoint?.parts ?? [])]
      .map((line) => JSON.parse(line) as Record<'kind' | 'resource', unknown>)
      .filter(({ kind, resource }) => kind === 'pod' || resource === 'pods')
      .map(({ kind }) => kind);
  const synced = 'synced';
  expect(podsIn(checkpointOf(auditor, 3))).toEqual(['object', 'pod', 'pod', synced]);
  const part = { includes: () => true, redactor: null };
  expect(podsIn(checkpointOf(auditor, 3, part))).toEqual(['object', 'object', 'object', synced]);
});

test('is not written while an entry is taken in partly', async () => {
  const auditor = newAuditor({ live: true });
  const { files } = faultyFiles();
  const history = createAuditorHistory(auditor, {
    files,
    limits: { size: 2 ** 40, age: 3600 },
    now: () => auditor.now() ?? 0,
    pause: () => Promise.resolve(),
    onTrouble: (reason) => expect(reason).toBeNull(),
  });
  const later = [...build.watches(102, 'stale'), ...build.watches(110, 'synced')];
  const [last, ...rest] = [...build.lively(), ...later].reverse();
  for (const entry of rest.reverse()) auditor.take(entry);
  if (last === undefined) throw new Error('There is no entry');
  // The end of the outage delays a window, in steps.
  const steps = auditor.takeInSteps(last);
  expect(steps.next().done).toBe(false);
  await history.work();
  expect(await listSegments(files)).toEqual([]);
  expect(steps.next().done).toBe(true);
  await history.work();
  expect(await listSegments(files)).toHaveLength(1);
  await history.close();
});

test('Endpoints and slices refer to their pods', async () => {
  const auditor = newAuditor({});
  const text = gunzipSync(readFileSync(join(import.meta.dirname, '../recordings/shop.ndjson.gz')));
  for await (const entry of entriesOf(Readable.from([text]), auditor, [])) auditor.take(entry);
  const lines = [...(checkpointOf(auditor, auditor.now() ?? 0)?.parts ?? [])]
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { kind: string; resource?: string; pods?: unknown });
  const outputs = lines.filter(
    ({ kind, resource = '' }) => kind === 'object' && resource.startsWith('endpoint'),
  );
  expect(outputs.filter(({ pods }) => pods === undefined)).toEqual([]);
  const { endpoints, endpointslices } = auditor.store.objects;
  const all = [...endpoints.values(), ...endpointslices.values()].flatMap(listsOf).flat();
  const written = JSON.stringify(outputs).match(/"targetRef"/g) ?? [];
  expect(all.length).toBeGreaterThan(100);
  expect(written.length).toBeLessThan(all.length / 10);
});
