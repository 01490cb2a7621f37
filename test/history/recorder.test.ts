// The recorder and the reader on files that fail.

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { counterOn, crashAt, type Fault, faultyFiles, randomOf, readCounter } from './crash.ts';
import { openFolder } from '../../src/history/files.ts';
import { createFrame, encodeFrame, formatVersion, framesIn } from '../../src/history/frame.ts';
import { createHistoryRecorder } from '../../src/history/recorder.ts';
import { latestMoment, openHistory } from '../../src/history/reader.ts';
import {
  changesLimit,
  isSegmentDue,
  listSegments,
  segmentName,
} from '../../src/history/segments.ts';

describe('a recorder', () => {
  test('begins segments by their age, and each moment is read from one of them', async () => {
    const { files } = faultyFiles();
    const { recorder, state, note } = counterOn(files);
    const counts = new Map<number, number>();
    for (; state.now < 1450; state.now++) {
      note();
      counts.set(state.now, state.count);
      await recorder.work();
    }
    await recorder.close();
    const segments = await listSegments(files);
    expect(segments.length).toBe(5);
    for (const [at, count] of counts) {
      const read = await readCounter(files, at);
      expect([at, read.count, read.losses]).toEqual([at, count, []]);
    }
    expect(recorder.stored).toMatchObject({ segments: 5, oldest: 1000 });
  });

  test('begins a segment when the changes have a sixth of the checkpoint', async () => {
    const { files } = faultyFiles();
    const state = { now: 1000 };
    const clock = () => ({ line: '{"kind":"clock"}\n', at: state.now });
    const checkpoint = { bytes: 11.25 * 1024 * 1024 };
    const recorder = createHistoryRecorder({
      files,
      limits: { size: 2 ** 40, age: 2 ** 40 },
      now: () => state.now,
      clock,
      checkpoint: () => ({ at: state.now, parts: [randomBytes(checkpoint.bytes).toString('hex')] }),
      pause: () => Promise.resolve(),
      onTrouble: () => undefined,
    });
    const begun: number[] = [];
    const count = async () => (await listSegments(files)).length;
    for (; state.now < 1040; state.now++) {
      recorder.note(() => randomBytes(256 * 1024).toString('hex'), state.now);
      const before = await count();
      await recorder.work();
      if ((await count()) > before) begun.push(state.now - 1000);
      checkpoint.bytes = state.now < 1010 ? checkpoint.bytes : 1024;
    }
    await recorder.close();
    // 8 times 256 KiB are more than a sixth of 11.25 MiB. Of a small one, the limit is 128 KiB.
    expect(begun).toEqual([0, 8, 16, ...Array.from({ length: 23 }, (_, index) => 17 + index)]);
  });

  test('begins a segment when the changes above a large checkpoint have an eighth', () => {
    const segment = 12.5 * 1024 * 1024;
    expect(changesLimit(60 * 1024 * 1024, segment)).toBe(10 * 1024 * 1024);
    expect(changesLimit(90 * 1024 * 1024, segment)).toBe(segment);
  });

  test('begins a segment in a storm when its checkpoint took a twentieth of the time', () => {
    const limits = { size: 2 ** 31, age: 86_400 };
    const checkpoint = { base: 6 * 2 ** 23, baseSeconds: 5 };
    const isDueAt = (age: number, changes: number): boolean =>
      isSegmentDue(
        { start: 1000, ...checkpoint, bytes: checkpoint.base + changes },
        limits,
        1000 + age,
      );
    expect(isDueAt(3599, 2 ** 23 - 1)).toBe(false);
    expect(isDueAt(3600, 0)).toBe(true);
    expect([isDueAt(99, 2 ** 23), isDueAt(100, 2 ** 23)]).toEqual([false, true]);
    // The space for the changes of a segment is full.
    expect([isDueAt(1, 2 ** 28 - 1), isDueAt(1, 2 ** 28)]).toEqual([false, true]);
  });

  test('begins segments at most as often as slow checkpoints allow', async () => {
    const { files } = faultyFiles();
    const state = { now: 1000 };
    const text = (kibibytes: number) => randomBytes(kibibytes * 512).toString('hex');
    const recorder = createHistoryRecorder({
      files,
      limits: { size: 2 ** 40, age: 2 ** 40 },
      now: () => state.now,
      clock: () => ({ line: '{"kind":"clock"}\n', at: state.now }),
      checkpoint: () => ({ at: state.now, parts: [600, 600, 600, 600].map(text) }),
      pause: () => Promise.resolve(void state.now++),
      onTrouble: () => undefined,
    });
    for (; state.now < 1250; state.now++) {
      recorder.note(() => text(128), state.now);
      await recorder.work();
    }
    await recorder.close();
    const starts = (await listSegments(files)).map(({ start }) => start);
    // Each takes 4 s. The changes of 16 s would be enough for the next one.
    expect(starts).toEqual([1000, 1080, 1160, 1240]);
  });

  test('removes the oldest segments above the size, and those that are too old', async () => {
    const { files } = faultyFiles();
    const { recorder, state, note } = counterOn(files, { size: 8_000 });
    for (; state.now < 3000; state.now++) {
      note();
      await recorder.work();
      const sum = [...(await files.list())].reduce((bytes, file) => bytes + file.bytes, 0);
      // The search index may have the eighth that is left.
      expect(sum).toBeLessThan(7_200);
    }
    const segments = await listSegments(files);
    expect(segments.at(-1)?.number).toBeGreaterThan(segments.length + 5);
    expect(recorder.counts.removedSegments).toBeGreaterThan(5);
  });

  test('reports a segment that is too large, and reads those before it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
    const files = openFolder(folder);
    const { recorder, state, note } = counterOn(files);
    for (; state.now < 1010; state.now++) {
      note();
      await recorder.work();
    }
    await recorder.close();
    const sparse = join(folder, segmentName(9, 1005));
    writeFileSync(sparse, '');
    truncateSync(sparse, 2 ** 30);
    const read = await readCounter(files, 1009);
    expect(read.count).toBe(10);
    expect(read.losses.join()).toContain('It has 1073741824 bytes');
    expect(await latestMoment(files)).toBe(1010);
    const next = counterOn(files, { size: 2 ** 40 });
    next.state.now = 1020;
    await next.recorder.work();
    expect(next.troubles).toEqual([]);
    expect((await listSegments(files)).length).toBe(3);
    await next.recorder.close();
    rmSync(folder, { recursive: true });
  });

  test('keeps all segments if the clock is set forward, and goes on', async () => {
    const { files } = faultyFiles();
    const { recorder, state, note } = counterOn(files);
    const before = async () => (await listSegments(files)).length;
    for (; state.now < 1300; state.now++) {
      note();
      await recorder.work();
    }
    const count = await before();
    state.now += 10_000_000;
    note();
    await recorder.work();
    expect(await before()).toBe(count + 1);
    const read = await readCounter(files, 5_000_000);
    expect(read.losses.join()).toContain('Nothing was recorded');
  });

  test('after a restart with an earlier clock, the later recording is read', async () => {
    const { files } = faultyFiles();
    const first = counterOn(files);
    for (; first.state.now < 1050; first.state.now++) {
      first.note();
      await first.recorder.work();
    }
    await first.recorder.close();
    const second = counterOn(files);
    Object.assign(second.state, { now: 1020, count: 500 });
    await second.recorder.work();
    second.note();
    await second.recorder.close();
    expect(await readCounter(files, 1021)).toMatchObject({ count: 501, losses: [] });
    expect(await readCounter(files, 1019)).toMatchObject({ count: 20, losses: [] });
  });

  test.each<Fault>(['ENOSPC', 'EROFS', 'EIO'])('goes on after %s, and counts', async (fault) => {
    const { files, fail } = faultyFiles();
    const { recorder, state, note, troubles } = counterOn(files);
    const seconds = async (many: number): Promise<void> => {
      for (let left = many; left > 0; left--) {
        state.now++;
        note();
        await recorder.work();
      }
    };
    await seconds(60);
    fail(fault);
    await seconds(60);
    expect(recorder.trouble()).toContain(fault);
    fail(null);
    await seconds(60);
    expect(recorder.trouble()).toBe(null);
    expect(troubles).toEqual([`${fault}: write`, null]);
    expect(recorder.counts.droppedLines).toBeGreaterThanOrEqual(59);
    expect(await readCounter(files, state.now)).toMatchObject({ count: state.count, losses: [] });
    expect((await readCounter(files, 1090)).losses.join()).toContain('Nothing was recorded');
  });

  test('on a full disk removes the oldest segment to go on', async () => {
    const { files, fail } = faultyFiles();
    const { recorder, state, note } = counterOn(files);
    for (; state.now < 1350; state.now++) {
      note();
      await recorder.work();
    }
    const [oldest] = await listSegments(files);
    fail('ENOSPC');
    const remove = files.remove.bind(files);
    // A full disk can still remove a file.
    files.remove = (name) => {
      fail(null);
      return remove(name);
    };
    note();
    await recorder.work();
    expect((await listSegments(files)).map(({ name }) => name)).not.toContain(oldest?.name);
  });

  test('drops what waits if the disk does not answer, and does not grow', async () => {
    const { files } = faultyFiles();
    const { recorder, state } = counterOn(files);
    await recorder.work();
    const text = `${'x'.repeat(1024 * 1024)}\n`;
    for (let left = 40; left > 0; left--) recorder.note(() => text, state.now);
    expect(recorder.trouble()).toContain('too slow');
    expect(recorder.counts.droppedLines).toBe(40);
  });

  test('refuses a folder of a newer version, and leaves it as it was', async () => {
    const { files, stored } = faultyFiles();
    const { recorder } = counterOn(files);
    const old = counterOn(files);
    await old.recorder.work();
    await old.recorder.close();
    const [[name, file] = []] = [...stored];
    file?.bytes.writeUInt16LE(formatVersion + 1, 4);
    file?.bytes.writeUInt32LE(crc32(file.bytes.subarray(0, 36)), 36);
    await recorder.work();
    expect(recorder.trouble()).toContain('newer version');
    expect([...stored.keys()]).toEqual([name]);
    await expect(readCounter(files, 2000)).rejects.toThrow('No checkpoint');
  });

  test('records nothing beside a segment with the highest number', async () => {
    const { files, stored } = faultyFiles();
    const highest = '99999999-1000000.segment';
    await files.create(highest);
    const { recorder } = counterOn(files);
    await recorder.work();
    expect(recorder.trouble()).toContain(`No number follows ${highest}`);
    expect([...stored.keys()]).toEqual([highest]);
  });

  test('removes partial segments, and no other partial file', async () => {
    const { files, stored } = faultyFiles();
    await files.create('00000004-999000.segment.partial');
    await files.create('download.partial');
    const { recorder } = counterOn(files);
    await recorder.work();
    expect([...stored.keys()]).toEqual(['download.partial', '00000002-1000000.segment']);
  });

  test('reads nothing of a format that no release has written', async () => {
    const { files, stored } = faultyFiles();
    const { recorder, note, state } = counterOn(files);
    await recorder.work();
    note();
    await recorder.close();
    const [{ bytes } = { bytes: Buffer.alloc(0) }] = [...stored.values()];
    let frames = 0;
    for (let at = 0; at >= 0; at = bytes.indexOf('EPAH', at + 1)) {
      bytes.writeUInt16LE(1, at + 4);
      bytes.writeUInt32LE(crc32(bytes.subarray(at, at + 36)), at + 36);
      frames++;
    }
    expect(frames).toBeGreaterThan(2);
    const text = 'No checkpoint before that moment is whole';
    await expect(readCounter(files, state.now)).rejects.toThrow(text);
  });

  test.each([0, 7, 15])('goes on if bit %d of the version is damaged', async (bit) => {
    const { files, stored } = faultyFiles();
    const old = counterOn(files);
    await old.recorder.work();
    await old.recorder.close();
    const [file] = [...stored.values()];
    file?.bytes.writeUInt16LE(file.bytes.readUInt16LE(4) ^ (1 << bit), 4);
    const { recorder, state } = counterOn(files);
    Object.assign(state, { now: 1100, count: 7 });
    await recorder.work();
    expect(recorder.trouble()).toBe(null);
    expect(await readCounter(files, 1100)).toMatchObject({ count: 7, losses: [] });
  });
});

describe('a loss of power', () => {
  test('at 100 random bytes loses at most two seconds', async () => {
    for (let seed = 0; seed < 100; seed++) expect(await crashAt(seed)).toEqual([]);
  }, 120_000);

  test('in the first changes after a checkpoint loses only them', async () => {
    const { files, stored } = faultyFiles();
    const { recorder, state, note } = counterOn(files);
    await recorder.work();
    const [file] = [...stored.values()];
    const complete = file?.bytes.length ?? 0;
    state.now++;
    note();
    await recorder.work();
    file?.bytes.fill(0, complete + 5);
    expect(await readCounter(files, 1000)).toMatchObject({ count: 0 });
  });
});

describe('damage', () => {
  async function recorded(seconds = 300) {
    const power = faultyFiles();
    const { recorder, state, note } = counterOn(power.files);
    const counts = new Map<number, number>();
    for (; state.now < 1000 + seconds; state.now++) {
      note();
      counts.set(state.now, state.count);
      await recorder.work();
    }
    await recorder.close();
    return { ...power, counts };
  }

  test('of any byte is reported, or the state is right', async () => {
    const { files, stored, counts } = await recorded();
    const names = [...stored.keys()].sort();
    const random = randomOf(7);
    let reported = 0;
    for (let round = 0; round < 300; round++) {
      const file = stored.get(names[Math.floor(random() * names.length)] ?? '');
      if (file === undefined) continue;
      const at = Math.floor(random() * file.bytes.length);
      const before = file.bytes[at] ?? 0;
      file.bytes[at] = before ^ (1 << Math.floor(random() * 8));
      const moment = 1000 + Math.floor(random() * 300);
      const read = await readCounter(files, moment).catch((error: unknown) => String(error));
      if (typeof read === 'string') expect(read).toContain('No checkpoint before');
      else if (read.losses.length === 0) expect(read.count).toBe(counts.get(moment));
      else reported++;
      file.bytes[at] = before;
    }
    expect(reported).toBeGreaterThan(20);
  });

  test('of the version of a frame loses that frame only', async () => {
    const { stored, files } = await recorded(10);
    const [segment] = await listSegments(files);
    const bytes = stored.get(segment?.name ?? '')?.bytes ?? Buffer.alloc(0);
    const parts = () => [...framesIn(bytes, segment?.number ?? 0)];
    const whole = parts().length;
    expect(whole).toBeGreaterThan(5);
    bytes.writeUInt16LE(formatVersion + 1, 4);
    const [first, ...others] = parts();
    expect(first).toMatchObject({ lost: 'damaged' });
    expect(others.filter((part) => 'frame' in part)).toHaveLength(whole - 1);
  });

  test('of a checkpoint: the segment before and the live lines show the state', async () => {
    const { files, stored, counts } = await recorded();
    const [, second] = [...stored.keys()].sort();
    stored.get(second ?? '')?.bytes.fill(1, 60, 64);
    const read = await readCounter(files, 1190);
    expect(read.losses[0]).toContain('in its checkpoint');
    expect(read.count).toBe(counts.get(1190));
  });

  test('a missing segment leaves a time without history, which is reported', async () => {
    const { files, stored, counts } = await recorded();
    const [, second = ''] = [...stored.keys()].sort();
    stored.delete(second);
    expect(await readCounter(files, 1290)).toMatchObject({ count: counts.get(1290), losses: [] });
    expect((await readCounter(files, 1150)).losses.join()).toContain('Nothing was recorded from');
  });

  test('before the first moment there is no history', async () => {
    const { files } = await recorded(10);
    await expect(readCounter(files, 10)).rejects.toThrow('The history begins at 1970-01-01T00:16');
    await expect(readCounter(faultyFiles().files, 10)).rejects.toThrow('has no history');
  });

  test('of a frame whose checksum matches is reported, and the others are read', async () => {
    const { files, stored, counts } = await recorded(20);
    const [[, file] = []] = [...stored];
    const all = [...framesIn(file?.bytes ?? Buffer.alloc(0), 2)].flatMap((it) =>
      'frame' in it ? [it.frame] : [],
    );
    const [, spoilt] = all.filter(({ kind }) => kind === 'live');
    const [first] = all;
    if (first === undefined || file === undefined) throw new Error('Expected a frame');
    const payload = Buffer.from('not zstd');
    const frames = all.map((it) => encodeFrame(it === spoilt ? { ...it, payload } : it));
    file.bytes = Buffer.concat(frames);
    const read = await readCounter(files, 1100);
    expect(read.losses.join()).toContain('cannot be decompressed');
    expect(read.count).toBe(counts.get(1019));
    file.bytes = encodeFrame({ ...first, kind: 'live', payload });
    const { header } = await openHistory(files, 1100, () => undefined);
    expect(header).toBe(null);
  });

  test('of a time that no Date can have loses that frame', async () => {
    const frame = await createFrame(
      { kind: 'live', segment: 1, number: 0, at: 1e300 },
      Buffer.from('{}\n'),
    );
    const bytes = encodeFrame(frame);
    expect([...framesIn(bytes, 1)]).toEqual([{ lost: 'cut', bytes: bytes.length }]);
  });

  test('of a payload whose checksum matches is no more than its header promises', () => {
    const frame = { kind: 'live' as const, segment: 1, number: 0, at: 1, plainBytes: 5 };
    const bytes = encodeFrame({ ...frame, payload: Buffer.from('not zstd') });
    expect([...framesIn(bytes, 1)]).toHaveLength(1);
    expect([...framesIn(bytes, 2)]).toEqual([{ lost: 'cut', bytes: bytes.length }]);
  });
});
