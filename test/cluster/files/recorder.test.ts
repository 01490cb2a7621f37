// What is written is read back as it was delivered.

import { describe, expect, test } from 'vitest';

import type { LiveEntry } from '../../../src/cluster/decode/entry.ts';
import { jsonBytes, project } from '../../../src/cluster/decode/json-objects.ts';
import { createRecorder } from '../../../src/cluster/files/recorder.ts';
import { createRedactor } from '../../../src/cluster/files/redactor.ts';
import type { RecordingEntry } from '../../../src/cluster/files/recording.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import type { Pod, WatchEvent } from '../../../src/model/objects.ts';
import { slice } from '../../build.ts';
import { rawPod } from '../../live-cluster.ts';

const raw = { ...rawPod, metadata: { ...rawPod.metadata, uid: 'u', resourceVersion: '7' } };

function podAt(at: number): Pod {
  const projection = project('pods', raw, at);
  if (projection.problem !== undefined) throw new Error(projection.problem.message);
  return projection.object;
}

const event = (type: WatchEvent['type'], at: number, more: Partial<WatchEvent> = {}) =>
  ({
    kind: 'event',
    event: { resource: 'pods', type, object: podAt(at), at, ...more, raw },
  }) as const;

const delivered: LiveEntry[] = [
  { kind: 'header', at: 1, kubernetes: 'v1.36.3', resources: ['pods'] },
  { kind: 'watch', at: 1, resource: 'pods', state: 'listing' },
  event('added', 2),
  { kind: 'synced', at: 3, resource: 'pods' },
  { kind: 'progress', at: 3, resource: 'pods', resourceVersion: '9' },
  event('modified', 4),
  { kind: 'watch', at: 5, resource: 'pods', state: 'stale' },
  event('modified', 6, { gap: true }),
  {
    kind: 'unreadable',
    at: 7,
    type: 'modified',
    lost: { resource: 'pods', namespace: 'shop', name: 'web-2', labels: { app: 'web' } },
  },
  {
    kind: 'event',
    event: { resource: 'pods', type: 'deleted', object: podAt(8), at: 8, gap: true },
  },
];

test('a recording has deletions from before the first lists are complete', async () => {
  const recorder = createRecorder(null);
  const entries = [event('added', 2), event('modified', 3), event('deleted', 4)];
  const read = await readBack(entries.map((entry) => recorder.line(entry)).join(''));
  const types = read.map((entry) => (entry.kind === 'event' ? entry.event.type : entry.kind));
  expect(types).toEqual(['added', 'added', 'deleted', 'end']);
});

test('a recording has the permissions in a namespace, without its name if redacted', async () => {
  const place = { kind: 'access', at: 2, resource: 'pods', namespace: 'shop' } as const;
  const entries = [false, true].map((permitted) => ({ ...place, permitted }));
  for (const redactor of [null, createRedactor()]) {
    const recorder = createRecorder(redactor);
    const lines = entries.map((entry) => recorder.line(entry)).join('');
    const namespace = redactor?.name('shop') ?? 'shop';
    expect(lines.includes('shop')).toBe(redactor === null);
    const read = (await readBack(lines)).slice(0, -1);
    expect(read).toEqual(entries.map((entry) => ({ ...entry, namespace })));
  }
});

async function readBack(text: string): Promise<RecordingEntry[]> {
  const bytes = (async function* () {
    yield await Promise.resolve(Buffer.from(text));
  })();
  const entries: RecordingEntry[] = [];
  for await (const entry of readRecording({ name: 'x', bytes }, () => undefined)) {
    entries.push(entry);
  }
  return entries;
}

describe('a recording', () => {
  const recorder = createRecorder(null);
  const lines = delivered.map((entry) => recorder.line(entry));

  test('has a line for every entry, in the form that people and sizes rely on', () => {
    expect(lines.join('')).not.toContain('managedFields');
    expect(lines[2]).toMatch(/^\{"kind":"object","at":2,"resource":"pods","type":"SYNC","object":/);
    expect(lines[4]).toContain('"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}');
    expect(lines[5]).toContain('"type":"MODIFIED","object":');
    expect(lines.every((one) => one.endsWith('\n') && one.indexOf('\n') === one.length - 1)).toBe(
      true,
    );
  });

  test('is read back as it was delivered', async () => {
    const entries = await readBack(lines.join('') + recorder.end(9));
    const want = delivered.map((entry): unknown => {
      if (entry.kind === 'progress') return { kind: 'clock', at: entry.at };
      if (entry.kind === 'event') return { ...entry, event: { ...entry.event, raw: undefined } };
      return entry;
    });
    const last = entries.splice(-2);
    expect(last).toMatchObject([
      { kind: 'clock', at: 9 },
      { kind: 'end', at: 9, complete: true },
    ]);
    expect(entries.slice(0, -1)).toEqual(want.slice(0, -1));
    // Of an object whose deletion was not seen, the name is enough.
    expect(entries.at(-1)).toMatchObject({
      kind: 'event',
      event: { type: 'deleted', gap: true, object: { key: 'shop/web-1', resourceVersion: '7' } },
    });
  });

  test('reads back the deletion of a slice that no watch delivered, also redacted', async () => {
    const object = slice({ resourceVersion: '7' });
    const event = {
      resource: 'endpointslices',
      type: 'deleted',
      object,
      at: 8,
      gap: true,
    } as const;
    for (const redactor of [null, createRedactor()]) {
      const synced = { kind: 'synced', at: 1, resource: 'endpointslices' } as const;
      const all = [synced, { kind: 'event', event } as const];
      const recorder = createRecorder(redactor);
      const text = all.map((entry) => recorder.line(entry)).join('');
      const [, read] = await readBack(text);
      expect(read).toMatchObject({
        kind: 'event',
        event: { type: 'deleted', gap: true, object: { uid: object.uid, addressType: 'IPv4' } },
      });
    }
  });

  test('never goes back in time, though the entries of two streams do', () => {
    const recorder = createRecorder(null);
    const lines = [event('added', 2.0104), event('modified', 2.003)].map((it) => recorder.line(it));
    const times = [...lines, recorder.end(2)].map((line) => /"at":([\d.]+)/.exec(line)?.[1]);
    expect(times).toEqual(['2.01', '2.01', '2.01']);
  });

  test('that is redacted has the sizes of the objects', async () => {
    const metadata = { name: 'web', namespace: 'shop', annotations: { note: 'x'.repeat(5000) } };
    const raw = { metadata, addressType: 'IPv4' };
    const { object } = project('endpointslices', raw, 1, { bytes: jsonBytes(raw) });
    if (object === undefined) throw new Error('unreadable');
    const event = { resource: 'endpointslices', type: 'added', object, at: 1, raw } as const;
    for (const redactor of [null, createRedactor()]) {
      const [read] = await readBack(createRecorder(redactor).line({ kind: 'event', event }));
      expect(read).toMatchObject({ kind: 'event', event: { object: { bytes: object.bytes } } });
    }
  });

  test('that is redacted names nothing', () => {
    const redactor = createRedactor();
    const redacted = createRecorder(redactor);
    const all = delivered.map((entry) => redacted.line(entry)).join('');
    expect(all).not.toMatch(/shop|web|app"|node-a|secret/);
    expect(all).toContain(redactor.name('web-2'));
  });
});

test('what is wrong in such lines is said', async () => {
  const problems: string[] = [];
  const bytes = (async function* () {
    yield await Promise.resolve(
      Buffer.from(
        '{"kind":"header","format":1,"at":1,"resources":["pods"]}\n' +
          '{"kind":"watch","at":2,"resource":"pods","state":"asleep"}\n' +
          '{"kind":"watch","at":2,"resource":"jobs","state":"stale"}\n' +
          '{"kind":"unreadable","at":3,"resource":"pods","name":7,"labels":{"a":1}}\n',
      ),
    );
  })();
  const entries: RecordingEntry[] = [];
  for await (const entry of readRecording({ name: 'x', bytes }, ({ message, value }) =>
    problems.push(`${message} ${value ?? ''}`),
  )) {
    entries.push(entry);
  }
  expect(problems).toEqual([
    'Expected a state "asleep"',
    'Expected a resource "jobs"',
    'The recorder could not read the object ',
  ]);
  expect(entries[3]).toEqual({
    kind: 'unreadable',
    at: 3,
    type: null,
    lost: { resource: 'pods', namespace: null, name: null, labels: null },
  });
});
