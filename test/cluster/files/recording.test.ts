import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { gunzipSync, gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Problem } from '../../../src/cluster/decode/problem.ts';
import { problemText, valueText } from '../../../src/cluster/decode/problem.ts';
import type { RecordingEnd, RecordingEntry } from '../../../src/cluster/files/recording.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import type { Pod } from '../../../src/model/objects.ts';
import * as build from '../../build.ts';
import { chunks, endpoint, slice } from '../../build.ts';

interface Got {
  readonly entries: RecordingEntry[];
  readonly end: RecordingEnd;
  readonly problems: string[];
}

async function read(content: string | Uint8Array, options = {}): Promise<Got> {
  const entries: RecordingEntry[] = [];
  const problems: Problem[] = [];
  const bytes = chunks(Buffer.from(content));
  const source = { name: 'shop', bytes };
  for await (const entry of readRecording(source, (problem) => problems.push(problem), options)) {
    entries.push(entry);
  }
  const end = entries.at(-1);
  if (end?.kind !== 'end') throw new Error('No end');
  return { entries: entries.slice(0, -1), end, problems: problems.map(problemText) };
}

/** An entry in a few words. */
function brief(entry: RecordingEntry): string {
  switch (entry.kind) {
    case 'event': {
      const { at, type, resource, object } = entry.event;
      return `${at} ${type} ${resource} ${object.key}`;
    }
    case 'unreadable': {
      const { resource, namespace, name } = entry.lost;
      const place = `${String(namespace)}/${String(name)}`;
      return `${entry.at} lost ${String(entry.type)} ${resource} ${place}`;
    }
    case 'synced':
      return `${entry.at} synced ${entry.resource}`;
    case 'header':
      return `${entry.at} header ${String(entry.kubernetes)} ${entry.resources.join()}`;
    default:
      return `${entry.at} ${entry.kind}`;
  }
}

const header = { kind: 'header', format: 1, at: 10, kubernetes: 'v1.36.3', resources: ['pods'] };

function pod(name: string, more = {}) {
  return { metadata: { name, namespace: 'shop', uid: `u-${name}` }, ...more };
}

function podLine(at: unknown, type: string, name: string, more = {}) {
  return { kind: 'object', at, resource: 'pods', type, object: pod(name, more) };
}

const recording = (...lines: unknown[]) =>
  [header, ...lines]
    .map((line) => (typeof line === 'string' ? line : JSON.stringify(line)))
    .join('\n') + '\n';

test('a recording is read as lists, events, node entries and an end', async () => {
  const got = await read(
    recording(
      podLine(10, 'SYNC', 'a'),
      { kind: 'synced', at: 10, resource: 'pods', resourceVersion: '7', count: 1 },
      '',
      { kind: 'node-config', at: 10.5, node: 'node-a', mode: 'iptables' },
      podLine(11.25, 'ADDED', 'b'),
      podLine(12, 'MODIFIED', 'a'),
      { ...podLine(13, 'BOOKMARK', ''), object: { metadata: { resourceVersion: '9' } } },
      { kind: 'node-rules', at: 12.5, node: 'node-a', text: '*nat' },
      podLine(14, 'DELETED', 'b'),
      { kind: 'end', at: 15 },
    ),
  );
  expect(got.entries.map(brief)).toEqual([
    '10 header v1.36.3 pods',
    '10 added pods shop/a',
    '10 synced pods',
    '10.5 node-config',
    '11.25 added pods shop/b',
    '12 modified pods shop/a',
    '13 clock',
    '13 clock',
    '14 deleted pods shop/b',
    '15 clock',
  ]);
  expect(got.problems).toEqual(['shop:9: family: Expected IPv4 or IPv6']);
  expect(got.end).toMatchObject({ at: 15, complete: true });
  expect([...got.end.skipped]).toEqual([['node-rules', 1]]);
});

const half = valueText(JSON.stringify(podLine(11, 'MODIFIED', 'a'))) ?? '';

describe('bad lines', () => {
  test.each<[string, unknown, string[], string[]]>([
    ['no JSON', 'oops', [], ['shop:2: Expected JSON: "oops"']],
    ['no object', '7', [], ['shop:2: Expected an object: 7']],
    [
      'another kind',
      { kind: 'node-metrics', at: 11 },
      ['11 clock'],
      ['shop:2: kind: Expected a kind of line: "node-metrics"'],
    ],
    ['no kind', { at: 11 }, ['11 clock'], ['shop:2: kind: Expected a kind of line']],
    [
      'another resource',
      { kind: 'object', at: 11, resource: 'secrets', type: 'ADDED', object: {} },
      ['11 clock'],
      ['shop:2: resource: Expected a resource: "secrets"'],
    ],
    [
      'another synced resource',
      { kind: 'synced', at: 11 },
      ['11 clock'],
      ['shop:2: resource: Expected a resource'],
    ],
    [
      'another type',
      podLine(11, 'ERROR', 'a'),
      ['11 lost null pods shop/a'],
      ['shop:2: Pod shop/a: type: Expected SYNC, ADDED, MODIFIED, DELETED or BOOKMARK: "ERROR"'],
    ],
    [
      'no time',
      podLine(undefined, 'ADDED', 'a'),
      ['10 added pods shop/a'],
      ['shop:2: at: Expected a time in Unix seconds'],
    ],
    [
      'an earlier time',
      podLine(9, 'ADDED', 'a'),
      ['10 added pods shop/a'],
      ['shop:2: at: Expected no time before that of the line above: 9'],
    ],
    [
      'an endless time',
      '{"kind":"synced","at":1e999,"resource":"pods"}',
      ['10 synced pods'],
      ['shop:2: at: Expected a time in Unix seconds: null'],
    ],
    [
      'an unreadable object',
      podLine(11, 'DELETED', 'a', { status: { podIPs: 'x' } }),
      ['11 lost deleted pods shop/a'],
      ['shop:2: Pod shop/a: status.podIPs: Expected a list: "x"'],
    ],
    [
      'half an object',
      JSON.stringify(podLine(11, 'MODIFIED', 'a')).slice(0, -5),
      ['10 lost modified pods shop/a'],
      [`shop:2: Pod shop/a: Expected JSON: ${half}`],
    ],
    [
      'a broken line about some pod',
      '"resource":"pods","type":"ADDED"',
      ['10 lost added pods null/null'],
      ['shop:2: Expected JSON: "\\"resource\\":\\"pods\\",\\"type\\":\\"ADDED\\""'],
    ],
    [
      'a broken bookmark',
      '{"resource":"pods","type":"BOOKMARK"',
      [],
      ['shop:2: Expected JSON: "{\\"resource\\":\\"pods\\",\\"type\\":\\"BOOKMARK\\""'],
    ],
  ])('%s', async (_, line, wantEntries, wantProblems) => {
    const got = await read(recording(line, podLine(20, 'ADDED', 'z')));
    expect(got.entries.slice(1).map(brief)).toEqual([...wantEntries, '20 added pods shop/z']);
    expect(got.problems).toEqual(wantProblems);
  });

  test('a line that is too long', async () => {
    const long = podLine(11, 'ADDED', 'a', { spec: { volumes: 'x'.repeat(5000) } });
    const got = await read(recording(long, podLine(20, 'ADDED', 'z')), { lineLimit: 1000 });
    expect(got.entries.slice(1).map(brief)).toEqual([
      '10 lost added pods shop/a',
      '20 added pods shop/z',
    ]);
    expect(got.problems).toEqual([
      `shop:2: Pod shop/a: Line too long: ${JSON.stringify(long).length}`,
    ]);
  });

  test('half a line at the end', async () => {
    const text = recording(podLine(11, 'ADDED', 'a'), podLine(12, 'ADDED', 'b'));
    const got = await read(text.slice(0, -3));
    expect(got.entries.slice(1).map(brief)).toEqual([
      '11 added pods shop/a',
      '11 lost added pods shop/b',
    ]);
    expect(got.problems[0]).toMatch(/^shop:3: Pod shop\/b: Unexpected end of line: /);
    expect(got.end.complete).toBe(false);
  });

  test('a whole line at the end that no newline ends is delivered', async () => {
    const got = await read(recording(podLine(11, 'ADDED', 'a')).trimEnd());
    expect(got.entries.slice(1).map(brief)).toEqual(['11 added pods shop/a']);
    expect(got.problems).toEqual([]);
  });

  test('a missing header is a problem, and the rest is read', async () => {
    const lines = `${JSON.stringify(podLine(11, 'ADDED', 'a'))}\n`;
    const got = await read(lines + lines);
    expect(got.entries.map(brief)).toEqual(['11 added pods shop/a', '11 added pods shop/a']);
    expect(got.problems).toEqual(['shop:1: Expected a header first']);
    expect((await read('')).problems).toEqual(['shop: Expected a header first']);
  });

  test('a header of another time', async () => {
    const text = JSON.stringify({ kind: 'header', format: 2, at: 1, resources: ['nodes', 'x'] });
    const got = await read(text);
    expect(got.entries.map(brief)).toEqual(['1 header null nodes']);
    expect(got.problems).toEqual([
      'shop:1: format: Expected format 1: 2',
      'shop:1: resource: Expected a resource: "x"',
    ]);
    expect((await read('{"kind":"header","format":1,"at":1}')).problems).toEqual([
      'shop:1: resources: Expected a list of resources',
    ]);
  });

  test('many of them are counted, but not all reported', async () => {
    const got = await read(recording(...Array.from({ length: 100 }, () => 'oops')));
    expect(got.problems).toHaveLength(21);
    expect(got.problems.at(-1)).toContain('more that are only counted');
  });

  test('errors of the source pass through', async () => {
    const bytes = createReadStream('/does/not/exist');
    const entries = readRecording({ name: 'x', bytes }, () => undefined);
    await expect(entries.next()).rejects.toThrow('ENOENT');
  });
});

describe('values that only the reader knows', () => {
  const sliceLine = (object: object) => ({
    kind: 'object',
    at: 11,
    resource: 'endpointslices',
    type: 'SYNC',
    object: { metadata: { name: 'ü', namespace: 'shop' }, addressType: 'IPv4', ...object },
  });

  test.each([
    ['as the recorder writes it', (line: object) => JSON.stringify(line)],
    ['with spaces', (line: object) => JSON.stringify(line).replace(':', ': ')],
    ['with another order', (line: object) => JSON.stringify({ at: 11, ...line })],
    ['with a carriage return', (line: object) => `${JSON.stringify(line)}\r`],
    [
      'with managedFields',
      (line: object) =>
        JSON.stringify(line).replace('"metadata":{', '"metadata":{"managedFields":[{}],'),
    ],
  ])('the size of the object, %s', async (_, write) => {
    const line = sliceLine({ endpoints: [{ addresses: ['10.0.0.1'] }] });
    const got = await read(recording(write(line)));
    const [, entry] = got.entries;
    expect(entry).toMatchObject({
      event: { object: { bytes: Buffer.byteLength(JSON.stringify(line.object)) } },
    });
  });

  test('since when a pod has its addresses', async () => {
    const pods = new Map<string, Pod>();
    const since: number[] = [];
    const ips = (...ips: string[]) => ({ status: { podIPs: ips.map((ip) => ({ ip })) } });
    const text = recording(
      podLine(11, 'ADDED', 'a', ips()),
      podLine(12, 'MODIFIED', 'a', ips('10.0.0.1')),
      podLine(13, 'MODIFIED', 'a', ips('10.0.0.1')),
    );
    const source = { name: 'shop', bytes: chunks(Buffer.from(text)) };
    const options = { previousPod: (key: string) => pods.get(key) };
    for await (const entry of readRecording(source, () => undefined, options)) {
      if (entry.kind !== 'event') continue;
      const pod = entry.event.object as Pod;
      pods.set(pod.key, pod);
      since.push(pod.ipsSince);
    }
    expect(since).toEqual([11, 12, 12]);
  });
});

describe('a line with what has changed', () => {
  const web = build.pod({ name: 'web', resourceVersion: '7', ips: ['10.0.0.1'], ready: true });
  const before = slice({
    resourceVersion: '7',
    endpoints: [endpoint(), endpoint({ addresses: ['10.0.0.2'] })],
  });
  const { namespace } = web;
  const head = { kind: 'delta', at: 12, type: 'MODIFIED', base: '7' };
  const metadata = { name: 'web', namespace, resourceVersion: '8' };
  const podDelta = { ...head, resource: 'pods', metadata, ready: false, turnedAt: 11 };
  const sliceDelta = {
    ...head,
    resource: 'endpointslices',
    metadata: { ...metadata, name: before.name },
    generation: 5,
    parts: [[1, { of: 1, ready: false, serving: true, terminating: true }]],
    endpoints: [{ addresses: ['10.0.0.3'] }],
  };
  const known = {
    previousPod: (key: string) => (key === web.key ? web : undefined),
    previousOutput: (_: string, key: string) => (key === before.key ? before : undefined),
  };
  const objectIn = ([, entry]: readonly RecordingEntry[]) => {
    if (entry?.kind !== 'event') throw new Error('No event');
    return entry.event;
  };

  test('has the rest of the pod', async () => {
    const got = await read(recording({ ...podDelta, gap: true }), known);
    expect(got.problems).toEqual([]);
    const object = { ...web, resourceVersion: '8', ready: false, turnedAt: 11 };
    expect(objectIn(got.entries)).toMatchObject({ type: 'modified', at: 12, gap: true, object });
  });

  test('has addresses of a pod since it arrived', async () => {
    const got = await read(recording({ ...podDelta, ips: ['10.0.0.9'] }), known);
    expect(objectIn(got.entries).object).toMatchObject({ ips: ['10.0.0.9'], ipsSince: 12 });
  });

  test('has the rest of the slice', async () => {
    const got = await read(recording(sliceDelta), known);
    expect(got.problems).toEqual([]);
    const { object } = objectIn(got.entries);
    const conditions = { ready: false, serving: true, terminating: true };
    const endpoints = [{ addresses: ['10.0.0.3'] }, { addresses: ['10.0.0.2'], ...conditions }];
    const { portMap, labels, bytes } = before;
    expect(object).toMatchObject({ at: 12, generation: 5, endpoints, portMap, labels, bytes });
  });

  const missing = 'The version before it is missing';
  test.each<[string, object, string]>([
    ['with another version before', { ...podDelta, base: '6' }, missing],
    ['without a version', { ...podDelta, base: undefined }, missing],
    ['of another pod', { ...podDelta, metadata: { ...metadata, name: 'other' } }, missing],
    ['of a Service', { ...podDelta, resource: 'services' }, missing],
    ['of a deletion', { ...podDelta, type: 'DELETED' }, 'Expected ADDED or MODIFIED'],
    ['of no type', { ...podDelta, type: 'ALL' }, 'Expected ADDED or MODIFIED'],
    ['with a word for a flag', { ...podDelta, ready: 'true' }, 'Expected a boolean'],
    ['with a word for a time', { ...podDelta, turnedAt: 'now' }, 'Expected a number'],
    ['in the year 10000', { ...podDelta, turnedAt: 253_402_300_800 }, 'a time of RFC 3339'],
    ['with numbers for addresses', { ...podDelta, ips: [1] }, 'Expected a string'],
    [
      'with another version than a text',
      { ...podDelta, metadata: { ...metadata, resourceVersion: 8 } },
      'Expected a string',
    ],
    ['without parts', { ...sliceDelta, parts: undefined }, 'Expected parts'],
    ['with endpoints that are none', { ...sliceDelta, endpoints: [1] }, 'readable endpoints'],
  ])('is lost %s', async (_, line, problem) => {
    const got = await read(recording(line), known);
    expect(got.entries.map(brief)[1]).toMatch(/^12 lost /);
    expect(got.problems).toHaveLength(1);
    expect(got.problems[0]).toContain(problem);
  });

  test('is lost without a name', async () => {
    const got = await read(recording({ ...podDelta, metadata: 'web' }), known);
    const lost = { resource: 'pods', namespace: null, name: null, labels: null };
    expect(got.entries[1]).toMatchObject({ kind: 'unreadable', lost });
  });

  test('names its object if it is cut off', async () => {
    const text = JSON.stringify(podDelta);
    const got = await read(recording(text.slice(0, text.indexOf('"ready"'))), known);
    expect(got.entries[1]).toMatchObject({ kind: 'unreadable', lost: { name: 'web', namespace } });
  });
});

describe('a recording of a real control plane', () => {
  const path = new URL('../../recordings/shop.ndjson.gz', import.meta.url);

  test('is read whole and without problems', async () => {
    const got = await read(await readFile(path));
    expect(got.problems).toEqual([]);
    expect(got.end).toMatchObject({ at: 1795258869.521, complete: true });
    expect(got.end.skipped.size).toBe(0);
    const counts = new Map<string, number>();
    for (const entry of got.entries) {
      const event = entry.kind === 'event' ? ` ${entry.event.type} ${entry.event.resource}` : '';
      counts.set(entry.kind + event, (counts.get(entry.kind + event) ?? 0) + 1);
    }
    expect(Object.fromEntries(counts)).toEqual({
      header: 1,
      'node-config': 3,
      'node-rules': 195,
      'event added nodes': 9,
      'event modified nodes': 129,
      'event added services': 21,
      'event modified services': 1,
      'event deleted services': 1,
      'event added pods': 1350,
      'event modified pods': 598,
      'event deleted pods': 137,
      'event added endpoints': 20,
      'event modified endpoints': 437,
      'event deleted endpoints': 1,
      'event added endpointslices': 33,
      'event modified endpointslices': 611,
      'event deleted endpointslices': 1,
      synced: 5,
      clock: 26,
    });
    const times = got.entries.map((entry) => (entry.kind === 'event' ? entry.event.at : entry.at));
    expect(times).toEqual(times.toSorted((a, b) => a - b));
  });

  test('is read as far as it goes, wherever it is cut off', async () => {
    const whole = gunzipSync(await readFile(path)).subarray(0, 100_000);
    const lines = whole.toString().split('\n').slice(0, 40);
    const zipped = gzipSync(lines.map((line) => `${line}\n`).join(''));
    const want = (await read(lines.join('\n'))).entries.map(brief);
    expect(want).toHaveLength(40);
    let delivered = 0;
    for (let length = 2; length < zipped.length; length += 13) {
      const cut = zipped.subarray(0, length);
      const inflated = gunzipSync(cut, { finishFlush: 2 }).toString();
      const got = await read(cut);
      const events = got.entries.filter((entry) => entry.kind !== 'unreadable').map(brief);
      const complete = inflated.split('\n').length - 1;
      expect(events).toEqual(want.slice(0, events.length));
      expect(events.length).toBeGreaterThanOrEqual(complete);
      expect(got.problems).toHaveLength(1);
      expect(got.problems[0]).toMatch(/^shop(:\d+)?: Unexpected end of gzip data$/);
      expect(got.end.complete).toBe(false);
      delivered = Math.max(delivered, events.length);
    }
    expect(delivered).toBeGreaterThan(30);
  });
});

test('every good line is delivered between bad ones', async () => {
  const good = fc.record({
    name: fc.constantFrom('a', 'b', 'c'),
    type: fc.constantFrom('SYNC', 'ADDED', 'MODIFIED', 'DELETED'),
    at: fc.integer({ min: 0, max: 100 }),
  });
  const bad = fc.oneof(
    fc.string(),
    fc.json(),
    fc.jsonValue().map((object) => JSON.stringify({ kind: 'object', resource: 'pods', object })),
    fc.record({ kind: fc.string(), at: fc.jsonValue() }).map((line) => JSON.stringify(line)),
  );
  const line = fc.oneof(good, bad);
  const flip = fc.record({ position: fc.nat(), bit: fc.nat({ max: 7 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(line), fc.option(flip), async (lines, flip) => {
      const text = recording(
        ...lines.map((line) =>
          typeof line === 'string'
            ? line.replaceAll('\n', ' ')
            : podLine(line.at, line.type, line.name),
        ),
      );
      const bytes = Buffer.from(text);
      if (flip !== null) {
        const position = flip.position % bytes.length;
        bytes[position] = (bytes[position] ?? 0) ^ (1 << flip.bit);
      }
      const got = await read(bytes);
      if (flip !== null) return;
      const events = got.entries.filter((entry) => entry.kind === 'event');
      const want = lines.filter((line) => typeof line !== 'string').map((line) => line.name);
      expect(events.map(({ event }) => event.object.name)).toEqual(want);
      const times = events.map(({ event }) => event.at);
      expect(times).toEqual(times.toSorted((a, b) => a - b));
    }),
    { numRuns: 500 },
  );
});
