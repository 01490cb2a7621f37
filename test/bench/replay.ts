// The recorded control plane at maximum speed: reading alone, auditing alone, and both as the
// program does it. The file is in memory, so the disk does not count, and arrives in chunks as
// from a disk.

import { auditorDefaults } from '../auditor-defaults.ts';
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import type { RecordingEntry } from '../../src/cluster/files/recording.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import type { Pod } from '../../src/model/objects.ts';
import { cpuMicros, sweep } from './measure.ts';

const file = new URL('../recordings/shop.ndjson.gz', import.meta.url);
const chunkBytes = 64 * 1024;

/** Microseconds of CPU for the whole recording, and what that was spent on. */
export interface ReplaySamples {
  readonly events: number;
  readonly lines: number;
  readonly bytes: number;
  readonly inflating: number[];
  readonly reading: number[];
  readonly auditing: number[];
  readonly together: number[];
  /** By the clock. */
  readonly elapsed: number[];
}

// eslint-disable-next-line @typescript-eslint/require-await -- a stream as a file's is one
async function* chunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += chunkBytes) {
    yield bytes.subarray(start, start + chunkBytes);
  }
}

function read(bytes: Uint8Array, previousPod: (key: string) => Pod | undefined) {
  const fail = (problem: unknown): never => {
    throw new Error(JSON.stringify(problem));
  };
  return readRecording({ name: file.pathname, bytes: chunks(bytes) }, fail, { previousPod });
}

/** Reads all entries, and knows the latest version of each pod as the store does. */
async function entriesOf(bytes: Uint8Array): Promise<RecordingEntry[]> {
  const pods = new Map<string, Pod>();
  const entries: RecordingEntry[] = [];
  for await (const entry of read(bytes, (key) => pods.get(key))) {
    entries.push(entry);
    if (entry.kind !== 'event' || entry.event.resource !== 'pods') continue;
    const { object, type } = entry.event;
    if (type === 'deleted') pods.delete(object.key);
    else pods.set(object.key, object as Pod);
  }
  return entries;
}

const newAuditor = (): Auditor => createAuditor({ ...auditorDefaults });

/** Runs the recording through, several times. */
export async function measureReplay(runs: number): Promise<ReplaySamples> {
  const packed = readFileSync(file);
  const plain = gunzipSync(packed);
  const entries = await entriesOf(plain);
  const samples: ReplaySamples = {
    events: entries.filter(({ kind }) => kind === 'event').length,
    lines: entries.length,
    bytes: plain.length,
    inflating: [],
    reading: [],
    auditing: [],
    together: [],
    elapsed: [],
  };
  for (let run = 0; run < runs; run++) {
    sweep();
    const begun = cpuMicros();
    gunzipSync(packed);
    const inflated = cpuMicros();
    await entriesOf(plain);
    const done = cpuMicros();
    const auditor = newAuditor();
    for (const entry of entries) auditor.take(entry);
    const audited = cpuMicros();
    samples.inflating.push(inflated - begun);
    samples.reading.push(done - inflated);
    samples.auditing.push(audited - done);
    sweep();
    await runTogether(packed, samples);
  }
  return samples;
}

async function runTogether(packed: Uint8Array, samples: ReplaySamples): Promise<void> {
  const auditor = newAuditor();
  const begun = cpuMicros();
  const began = performance.now();
  await replay(
    auditor,
    read(packed, (key) => auditor.store.listers.pods.get(key)),
    { speed: Infinity, until: null },
  );
  samples.elapsed.push((performance.now() - began) * 1000);
  samples.together.push(cpuMicros() - begun);
  if (auditor.serviceAuditor() === null) throw new Error('Expected a recording that is complete');
}
