// Frames that an attacker has written: they cost no more than others of their size.

import { crc32 } from 'node:zlib';

import { expect, test } from 'vitest';

import { createFrame, encodeFrame, framesIn, linesOf } from '../../src/history/frame.ts';

const frameOf = async (number: number, lines: string): Promise<Buffer> =>
  encodeFrame(await createFrame({ kind: 'live', segment: 1, number, at: 1e9 }, Buffer.from(lines)));

test('frames that are inflated more than 200 times are refused from 16 MiB on', async () => {
  const small = await frameOf(0, '{}\n');
  const blank = await frameOf(1, '\n'.repeat(8 * 1024 * 1024));
  const more = await frameOf(2, '\n'.repeat(9 * 1024 * 1024));
  const parts = [...framesIn(Buffer.concat([small, blank, more]), 1)];
  expect(parts.map((it) => ('frame' in it ? it.frame.number : it))).toEqual([
    0,
    1,
    { lost: 'damaged', bytes: more.length },
  ]);
});

test('headers that all claim the rest of the file do not need quadratic time', async () => {
  const first = await frameOf(0, '{}\n');
  const count = 20_000;
  const headers = Buffer.alloc(count * 40);
  for (let at = 0; at < headers.length; at += 40) {
    first.copy(headers, at, 0, 40);
    headers.writeUInt32LE(headers.length - at - 40, at + 16);
    headers.writeUInt32LE(crc32(headers.subarray(at, at + 36)), at + 36);
  }
  const began = process.cpuUsage();
  const parts = [...framesIn(Buffer.concat([first, headers]), 1)];
  const { user, system } = process.cpuUsage(began);
  expect(parts.map((it) => ('frame' in it ? it.frame.number : it.lost))).toEqual([0, 'cut']);
  // They had 8 GB of payloads together.
  expect((user + system) / 1e6).toBeLessThan(1);
});

test('lines that no recorder writes are refused', async () => {
  const linesIn = async (lines: string) =>
    linesOf(
      await createFrame({ kind: 'live', segment: 1, number: 0, at: 1e9 }, Buffer.from(lines)),
    );
  await expect(linesIn('\n'.repeat(2000))).rejects.toThrow('too short');
  await expect(linesIn('{}\n'.repeat(1000))).rejects.toThrow('too short');
  const clock = '{"kind":"clock","at":1}\n'.repeat(1000);
  expect(Buffer.from(await linesIn(clock)).toString()).toBe(clock);
});
