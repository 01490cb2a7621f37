// Cuts the power of a recorder at random bytes, restarts it, and compares what the history shows of
// random moments with what was true. `npm run crash -- 10000` does it 10,000 times.

import type { AppendFile, HistoryFiles } from '../../src/history/files.ts';
import { openHistory } from '../../src/history/reader.ts';
import { createHistoryRecorder } from '../../src/history/recorder.ts';
import { listSegments } from '../../src/history/segments.ts';

// Files in memory, which fail as a disk does: power is lost between any two bytes, what was not
// synced is lost in part, operations fail, and bytes change.

interface Stored {
  bytes: Buffer;
  /** How many of the bytes survive a loss of power. */
  synced: number;
}

export type Fault = 'ENOSPC' | 'EROFS' | 'EIO';

export class PowerLost extends Error {}

/** The result of a call as a promise, as of a disk. */
const later = <T>(call: () => T): Promise<T> => new Promise((resolve) => resolve(call()));

/** The power of a disk, which is lost after `budget` bytes, and its fault. */
function createPower(budget: number) {
  const state = { left: budget, fault: null as Fault | null, isLost: false };
  const check = (isWrite: boolean): void => {
    if (state.isLost) throw new PowerLost('The power is lost');
    if (!isWrite || state.fault === null) return;
    throw Object.assign(new Error(`${state.fault}: write`), { code: state.fault });
  };
  const spend = (bytes: number): number => {
    const spent = Math.min(bytes, state.left);
    state.left -= spent;
    if (spent < bytes || state.left === 0) state.isLost = true;
    return spent;
  };
  return { state, check, spend };
}

type Power = ReturnType<typeof createPower>;

const failure = (code: string) => Object.assign(new Error(code), { code });

function createFile(
  { check, spend }: Power,
  stored: Map<string, Stored>,
  name: string,
): AppendFile {
  check(true);
  if (stored.has(name)) throw failure('EEXIST');
  const file: Stored = { bytes: Buffer.alloc(0), synced: 0 };
  spend(1);
  stored.set(name, file);
  const append = (bytes: Uint8Array): void => {
    check(true);
    const spent = spend(bytes.length);
    file.bytes = Buffer.concat([file.bytes, bytes.subarray(0, spent)]);
    check(true);
  };
  const sync = (): void => {
    check(true);
    if (spend(1) === 0) return;
    file.synced = file.bytes.length;
    check(true);
  };
  return {
    append: (bytes) => later(() => append(bytes)),
    sync: () => later(sync),
    close: () => later(() => check(false)),
  };
}

function createFiles(power: Power, stored: Map<string, Stored>): HistoryFiles {
  const { check, spend } = power;
  const find = (name: string): Stored => {
    const file = stored.get(name);
    if (file === undefined) throw failure('ENOENT');
    return file;
  };
  const list = () => {
    check(false);
    return [...stored].map(([name, { bytes }]) => ({ name, bytes: bytes.length }));
  };
  const read = (name: string): Buffer => {
    check(false);
    return Buffer.from(find(name).bytes);
  };
  const rename = (from: string, to: string): void => {
    check(true);
    const file = find(from);
    if (spend(1) === 1) {
      stored.delete(from);
      stored.set(to, file);
    }
    check(true);
  };
  const remove = (name: string): void => {
    check(true);
    if (spend(1) === 1) stored.delete(name);
    check(true);
  };
  return {
    list: () => later(list),
    read: (name) => later(() => read(name)),
    create: (name) => later(() => createFile(power, stored, name)),
    rename: (from, to) => later(() => rename(from, to)),
    remove: (name) => later(() => remove(name)),
  };
}

/** Files whose power is lost after `budget` bytes, and that fail with `fault` if it is set. */
export function faultyFiles(budget = Infinity) {
  const stored = new Map<string, Stored>();
  const power = createPower(budget);
  const { state } = power;
  const files = createFiles(power, stored);
  return {
    files,
    stored,
    fail: (fault: Fault | null) => (state.fault = fault),
    isLost: () => state.isLost,
    /** Power returns: of what was not synced, `kept` (0 to 1) is there, and the rest is zeros. */
    restart(kept: number): void {
      Object.assign(state, { left: Infinity, isLost: false, fault: null });
      for (const file of stored.values()) {
        const unsynced = file.bytes.length - file.synced;
        const whole = file.synced + Math.floor(unsynced * kept);
        file.bytes = Buffer.from(file.bytes);
        file.bytes.fill(0, whole);
        file.synced = file.bytes.length;
      }
    },
  };
}

// The recorder of a counter.

const limits = { size: 400_000, age: 800 };

/** Deterministic numbers between 0 and 1. */
export function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5) | 0;
    return ((state ^ (state >>> 12)) >>> 0) / 2 ** 32;
  };
}

/** A counter in place of an auditor: its state is the number of its latest line. */
export function counterOn(
  files: ReturnType<typeof faultyFiles>['files'],
  more: Partial<typeof limits> = {},
) {
  const state = { now: 1000, count: 0 };
  const troubles: (string | null)[] = [];
  const recorder = createHistoryRecorder({
    files,
    limits: { ...limits, ...more },
    now: () => state.now,
    clock: () => ({ line: `${JSON.stringify({ kind: 'clock', at: state.now })}\n`, at: state.now }),
    openNote: () => line('open', state.count, state.now),
    checkpoint: () => ({ at: state.now, parts: [`${line('state', state.count, state.now)}\n`] }),
    pause: () => Promise.resolve(),
    onTrouble: (reason) => troubles.push(reason),
  });
  return {
    recorder,
    troubles,
    state,
    note: (): void => {
      state.count++;
      recorder.note(() => `${line('change', state.count, state.now)}\n`, state.now);
      // Frames of notes are between those of lines.
      if (state.count % 3 === 0) recorder.remark(line('note', state.count, state.now), state.now);
    },
  };
}

const line = (kind: string, count: number, at: number) => JSON.stringify({ kind, count, at });

interface Read {
  /** The number of the last line, by counting from the checkpoint. */
  readonly count: number;
  readonly at: number;
  readonly losses: readonly string[];
}

/** Reads the counter as of a moment; throws if a line is missing without a reported loss. */
export async function readCounter(
  files: ReturnType<typeof faultyFiles>['files'],
  until: number,
): Promise<Read> {
  const losses: string[] = [];
  const { bytes } = await openHistory(files, until, (name, text) => losses.push(`${name} ${text}`));
  const texts: string[] = [];
  for await (const part of bytes) texts.push(Buffer.from(part).toString());
  let [count, at] = [-1, 0];
  for (const text of texts.join('').trimEnd().split('\n')) {
    const found = JSON.parse(text) as { kind: string; count: number; at: number };
    if (found.at > until) break;
    at = found.at;
    if (found.kind === 'clock') continue;
    if (found.kind === 'change' && found.count !== count + 1 && losses.length === 0) {
      throw new Error(`${String(found.count)} follows ${String(count)}`);
    }
    count = found.count;
  }
  return { count, at, losses };
}

/** Small, so that a run has several segments and removes some. */
const small = { size: 4_000, age: 800 };

/** One run with a loss of power; returns the moments that the history shows wrongly. */
export async function crashAt(seed: number): Promise<string[]> {
  const random = randomOf(seed);
  const power = faultyFiles(Math.floor(random() * 12_000) + 1);
  const { recorder, state, note } = counterOn(power.files, small);
  const counts = new Map<number, number>();
  /** All until this moment must be on the disk. */
  let safe = -1;
  for (; !power.isLost() && state.now < 1300; state.now++) {
    for (let left = Math.floor(random() * 3); left > 0; left--) note();
    counts.set(state.now, state.count);
    await recorder.work();
    if (!power.isLost() && recorder.writtenAt() !== null) safe = state.now - 2;
  }
  power.restart(random());
  const after = counterOn(power.files, small);
  Object.assign(after.state, { now: state.now + 60, count: state.count });
  await after.recorder.work();
  await after.recorder.close();
  const oldest = (await listSegments(power.files))[0]?.start ?? Infinity;
  const moments = [...counts].filter(([at]) => at >= oldest && at <= safe);
  const chosen = moments.filter((_, index) => index === moments.length - 1 || random() < 0.1);
  const wrong = after.recorder.trouble() === null ? [] : [`seed ${seed}: nothing is recorded`];
  for (const [at, count] of chosen) {
    const read = await readCounter(power.files, at).catch((error: unknown) => String(error));
    if (typeof read !== 'string' && read.count === count) continue;
    wrong.push(`seed ${seed}, ${at}: expected ${count}, found ${JSON.stringify(read)}`);
  }
  return wrong;
}

if (import.meta.main) {
  const [runs = 10_000] = process.argv.slice(2).map(Number);
  let failed = 0;
  for (let seed = 0; seed < runs; seed++) {
    const wrong = await crashAt(seed);
    failed += Math.min(wrong.length, 1);
    for (const text of wrong) console.log(text);
  }
  console.log(`${runs - failed} losses of power passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}
