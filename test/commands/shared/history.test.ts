// How commands find a moment of a history, and the settings of the auditor that recorded it.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { beforeEach, describe, expect, test } from 'vitest';

import { openMoment } from '../../../src/commands/shared/history.ts';
import { openFolder } from '../../../src/history/files.ts';
import { createHistoryRecorder } from '../../../src/history/recorder.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
});

const json = (fields: object): string => `${JSON.stringify(fields)}\n`;

/** A day and a half in Unix seconds: 12:00 of the second day. */
const noon = 1.5 * 86_400;

/** Records a history from noon to a minute later, with these settings. */
async function record(settings: unknown): Promise<void> {
  const state = { now: noon };
  const recorder = createHistoryRecorder({
    files: openFolder(folder),
    limits: { size: 1e9, age: 86_400 },
    now: () => state.now,
    clock: () => ({ line: json({ kind: 'clock', at: state.now }), at: state.now }),
    checkpoint: () => {
      return { at: state.now, parts: [json({ kind: 'header', at: state.now, settings })] };
    },
    pause: () => Promise.resolve(),
    onTrouble: (reason) => expect(reason).toBe(null),
  });
  for (; state.now <= noon + 60; state.now++) await recorder.work();
  await recorder.close();
}

const open = (moment: Parameters<typeof openMoment>[1]) =>
  openMoment(folder, moment, ({ message }) => {
    throw new Error(message);
  });

describe('a moment', () => {
  test('is the end of the history, a time, or the last such time of day', async () => {
    await record({});
    expect((await open(null)).until).toBe(noon + 61);
    expect((await open(noon + 5)).until).toBe(noon + 5);
    expect((await open({ ofDay: 43_200 })).until).toBe(noon);
    await expect(open({ ofDay: 50_000 })).rejects.toThrow('begins at 1970-01-02T12:00:00.000Z');
  });

  test('has the settings of the auditor that recorded it', async () => {
    await record({ settle: 7, maxEndpointsPerSlice: 50, minor: 35 });
    const { settings } = await open(null);
    expect(settings).toMatchObject({ settle: 7, maxEndpointsPerSlice: 50, release: { minor: 35 } });
  });

  test.each([null, 'text', { settle: '7', maxEndpointsPerSlice: {}, minor: 'x' }])(
    'has the default settings if its own have another form: %j',
    async (settings) => {
      await record(settings);
      expect((await open(null)).settings.settle).toBe(undefined);
    },
  );

  test('of an empty folder does not exist', async () => {
    await expect(open(null)).rejects.toThrow('The folder has no history');
  });
});
