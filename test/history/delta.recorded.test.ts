// Deltas in a history: where a part of it is damaged or was never written, each object is one
// that existed, or it cannot be read.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { type Auditor, createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import { isFields } from '../../src/cluster/decode/json-fields.ts';
import { readRecording, type RecordingEntry } from '../../src/cluster/files/recording.ts';
import { framesIn, linesOf } from '../../src/history/frame.ts';
import { createAuditorHistory } from '../../src/history/history.ts';
import { openHistory } from '../../src/history/reader.ts';
import type { HistoryFiles } from '../../src/history/files.ts';
import { type AnyObject, outputResources } from '../../src/model/objects.ts';
import { auditorDefaults, endpoint, event, header, slice, synced, times } from '../build.ts';
import { type Fault, faultyFiles, randomOf } from './crash.ts';

const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');
const text = gunzipSync(readFileSync(path));

const entriesOf = (bytes: AsyncIterable<Uint8Array>, auditor: Auditor, problems: string[] = []) =>
  readRecording({ name: 'recording', bytes }, ({ message }) => problems.push(message), {
    previousPod: (key) => auditor.store.listers.pods.get(key),
    previousOutput: (resource, key) => auditor.store.objects[resource].get(key),
  });

/** All fields, in the order of their names. */
const textOf = (object: AnyObject): string =>
  JSON.stringify(object, (_, value: unknown) =>
    isFields(value) ? Object.fromEntries(Object.entries(value).sort()) : value,
  );

/** All pods, Endpoints and slices that an auditor has, by resource and key. */
const objectsOf = ({ store }: Auditor): ReadonlyMap<string, AnyObject> =>
  new Map(
    (['pods', ...outputResources] as const).flatMap((resource) =>
      [...store.objects[resource]].map(([key, object]) => [`${resource} ${key}`, object] as const),
    ),
  );

/** What an auditor had at a time. */
interface Truth {
  readonly at: number;
  readonly objects: ReadonlyMap<string, AnyObject>;
}

/** An entry comes again, late or repeated. A history does not know what was deleted long ago. */
function* withRepeats(
  entry: RecordingEntry,
  earlier: RecordingEntry[],
  random: () => number,
  { store }: Auditor,
) {
  yield entry;
  if (entry.kind !== 'event') return;
  earlier.push(entry);
  const again = earlier[Math.floor(random() * earlier.length)];
  if (random() > 0.2 || again?.kind !== 'event') return;
  const { resource, object } = again.event;
  if (!store.objects[resource].has(object.key)) return;
  const type = random() < 0.5 ? ('modified' as const) : ('deleted' as const);
  yield { ...again, event: { ...again.event, type, at: entry.event.at } };
}

/** Records a recording. It writes while entries come; the disk has one of the faults at times. */
async function record(seed: number, faults: readonly Fault[] = [], age = 400) {
  const random = randomOf(seed);
  const { files, stored, fail } = faultyFiles();
  const auditor = createAuditor(auditorDefaults);
  const history = createAuditorHistory(auditor, {
    files,
    limits: { size: 2 ** 40, age },
    now: () => auditor.now() ?? 0,
    pause: () => setImmediate(),
    onTrouble: () => undefined,
  });
  const truths: Truth[] = [];
  const earlier: RecordingEntry[] = [];
  let working: Promise<unknown> = Promise.resolve();
  for await (const entry of entriesOf(Readable.from([text]), auditor)) {
    if (entry.kind === 'node-rules' || entry.kind === 'node-config') continue;
    for (const each of withRepeats(entry, earlier, random, auditor)) {
      auditor.take(each);
      history.take(each);
    }
    if (random() < 0.3) working = Promise.all([working, history.work()]);
    if (random() < 0.3) await working;
    if (random() < 0.02) fail(faults[Math.floor(random() * 4)] ?? null);
    if (auditor.serviceAuditor() === null) continue;
    const at = auditor.now() ?? 0;
    if (truths.at(-1)?.at === at) truths.pop();
    truths.push({ at, objects: objectsOf(auditor) });
  }
  await history.close();
  return { files, stored, truths, random };
}

type Recorded = Awaited<ReturnType<typeof record>>;

/** What the history shows of a moment, and what it reports. */
async function readMoment(files: HistoryFiles, until: number) {
  const problems: string[] = [];
  const auditor = createAuditor(auditorDefaults);
  const onLoss = (_: string, message: string): void => void problems.push(message);
  const lines = await openHistory(files, until, onLoss);
  const entries = entriesOf(lines.bytes, auditor, problems);
  await replay(auditor, entries, { speed: Infinity, until });
  return { objects: objectsOf(auditor), problems };
}

/** How many lines of all segments are deltas. */
async function countDeltas(stored: ReadonlyMap<string, { readonly bytes: Buffer }>) {
  let count = 0;
  for (const [name, { bytes }] of stored) {
    for (const part of framesIn(bytes, Number(name.slice(0, 8)))) {
      if (!('frame' in part)) continue;
      const lines = Buffer.from(await linesOf(part.frame)).toString();
      count += lines.split('"kind":"delta"').length - 1;
    }
  }
  return count;
}

/** The problem of a delta without its base. */
const missing = 'The version before it is missing';

const textsOf = (objects: ReadonlyMap<string, AnyObject>): string[] =>
  [...objects].map(([name, object]) => `${name} ${textOf(object)}`).sort();

/** The same without arrivals: an earlier version that comes late is one that existed, too. */
const versionsOf = (objects: ReadonlyMap<string, AnyObject>): string[] =>
  [...objects].map(([name, object]) => `${name} ${textOf({ ...object, at: 0, ipsSince: 0 })}`);

/** The versions of all objects that existed. */
function versionsIn(truths: readonly Truth[]): ReadonlySet<string> {
  const all = new Map<AnyObject, string>();
  for (const { objects } of truths) for (const [name, object] of objects) all.set(object, name);
  return new Set([...all].flatMap(([object, name]) => versionsOf(new Map([[name, object]]))));
}

/** Changes bytes of a frame in the segment of a moment; returns what repairs them. */
function damage({ stored, random }: Recorded, at: number): () => void {
  const names = [...stored.keys()].sort();
  const name = names.findLast((it) => Number(it.slice(9, -8)) / 1000 <= at) ?? '';
  const file = stored.get(name);
  const parts = [...framesIn(file?.bytes ?? Buffer.alloc(0), Number(name.slice(0, 8)))];
  const frames = parts.flatMap((part) => ('frame' in part ? [part.frame] : []));
  const live = frames.filter((it) => it.kind === 'live' && it.at <= at);
  // Without the first one, the checkpoint is not complete.
  const frame = live[1 + Math.floor(random() * (live.length - 1))];
  const before = Buffer.from(file?.bytes ?? []);
  frame?.payload.fill(1);
  return () => {
    if (file !== undefined) file.bytes = before;
  };
}

test('an object is written whole after a deletion that cannot be read', async () => {
  const { files } = faultyFiles();
  const auditor = createAuditor(auditorDefaults);
  const history = createAuditorHistory(auditor, {
    files,
    limits: { size: 2 ** 40, age: 400 },
    now: () => auditor.now() ?? 0,
    pause: () => setImmediate(),
    onTrouble: () => undefined,
  });
  const take = (entry: RecordingEntry): void => {
    auditor.take(entry);
    history.take(entry);
  };
  const shared = endpoint();
  const version = (resourceVersion: string, at: number) =>
    slice({ resourceVersion, endpoints: [shared], bytes: 900, at });
  const { namespace, name, labels } = version('1', 1000);
  for (const entry of [header(1000), ...synced(1000)]) take(entry);
  take({ kind: 'event', event: event('added', version('1', 1000), 1000) });
  await history.work();
  const lost = { resource: 'endpointslices' as const, namespace, name, labels };
  take({ kind: 'unreadable', at: 1001, type: 'deleted', lost });
  expect(objectsOf(auditor).size).toBe(0);
  take({ kind: 'event', event: event('added', version('2', 1002), 1002) });
  await history.work();
  await history.close();
  const read = await readMoment(files, 1002);
  expect(read.problems.filter((it) => it === missing)).toEqual([]);
  expect(textsOf(read.objects)).toEqual(textsOf(objectsOf(auditor)));
});

describe('a history', () => {
  /** Some moments from the first checkpoint on. */
  function momentsIn({ stored, truths, random }: Recorded, count: number): readonly Truth[] {
    const [oldest = ''] = [...stored.keys()].sort();
    const recorded = truths.filter(({ at }) => at >= Number(oldest.slice(9, -8)) / 1000);
    expect(recorded.length).toBeGreaterThan(100);
    return times(count, () => recorded[Math.floor(random() * recorded.length)]).filter(
      (it) => it !== undefined,
    );
  }

  test('has each moment, also if entries come while it is written, late or twice', async () => {
    const recorded = await record(1);
    expect(await countDeltas(recorded.stored)).toBeGreaterThan(50);
    for (const { at, objects } of momentsIn(recorded, 8)) {
      const read = await readMoment(recorded.files, at);
      expect(textsOf(read.objects)).toEqual(textsOf(objects));
      expect(read.problems.filter((it) => it === missing)).toEqual([]);
    }
  });

  test('has only versions that existed if the disk fails at times', async () => {
    const recorded = await record(1, ['ENOSPC', 'EIO']);
    const versions = versionsIn(recorded.truths);
    for (const { at } of momentsIn(recorded, 8)) {
      const read = await readMoment(recorded.files, at);
      const shown = versionsOf(read.objects);
      expect(shown.filter((text) => !versions.has(text))).toEqual([]);
      expect(read.problems.filter((it) => it === missing)).toEqual([]);
    }
  });

  test('has only versions that existed if frames are damaged, and reports others', async () => {
    const recorded = await record(1, [], 1600);
    const versions = versionsIn(recorded.truths);
    let lost = 0;
    for (const { at } of momentsIn(recorded, 12)) {
      const repair = damage(recorded, at);
      const read = await readMoment(recorded.files, at);
      repair();
      const shown = versionsOf(read.objects);
      expect(shown.filter((text) => !versions.has(text))).toEqual([]);
      lost += read.problems.filter((it) => it === missing).length;
    }
    expect(lost).toBeGreaterThan(0);
  });
});
