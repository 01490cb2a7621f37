// The search index: filled from notes, again when it is damaged, and bounded by the segments.

import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

import { beforeEach, describe, expect, test } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { createDatabaseFile, openFolder } from '../../src/history/files.ts';
import { findingNote, type HistoryNote } from '../../src/history/notes.ts';
import { createHistoryRecorder } from '../../src/history/recorder.ts';
import { openIndex } from '../../src/history/search-index.ts';
import { findingOf } from '../output/samples.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
});

/** A recorder on the folder, on a clock of its own. */
function recorderAt(start: number, open: () => HistoryNote | null = () => null) {
  const state = { now: start };
  const clock = () => ({ line: `{"kind":"clock","at":${state.now}}\n`, at: state.now });
  const recorder = createHistoryRecorder({
    files: openFolder(folder),
    limits: { size: 1e9, age: 80 },
    now: () => state.now,
    clock,
    checkpoint: () => ({ at: state.now, parts: [`{"kind":"header","at":${state.now}}\n`] }),
    openNote: () => {
      const note = open();
      return note && `${JSON.stringify(note)}\n`;
    },
    pause: () => Promise.resolve(),
    onTrouble: (reason) => expect(reason).toBe(null),
  });
  return {
    state,
    recorder,
    note: (finding: Finding) => {
      const note = finding.resolvedAt === null ? 'opened' : 'resolved';
      recorder.remark(findingNote(note, finding, state.now), state.now);
    },
    wait: async (seconds: number): Promise<void> => {
      for (let left = seconds; left > 0; left--) {
        state.now++;
        await recorder.work();
      }
    },
  };
}

const opened = (service: string, openedAt: number): Finding =>
  findingOf({ service, openedAt, since: openedAt - 30, resolvedAt: null });

const nothingElse = { findings: [], incidents: [], size: 1e9 };

/** A note of 4 kB of each of these findings, and of as many intervals of lag. */
function fill({ recorder, note }: ReturnType<typeof recorderAt>, findings: number, lags: number) {
  const [difference] = findingOf({}).differences;
  if (difference === undefined) throw new Error('Expected a difference');
  const differences = [{ ...difference, object: 'x'.repeat(4000) }];
  for (let index = 0; index < findings; index++) {
    const finding = { ...opened(`web-${String(index)}`, 1000 + index / 100), differences };
    note({ ...finding, resolvedAt: 1006 });
  }
  const values = { ['x-'.repeat(1000)]: 1 };
  const interval = { changes: 1, median: values, longest: {} };
  for (let at = 0; at < lags; at++) {
    recorder.remark(`${JSON.stringify({ note: 'lag', at, interval })}\n`, 1001);
  }
}

async function found(from = 0, to = 1e9): Promise<(readonly [string, number, number | null])[]> {
  const index = await openIndex(folder);
  const rows = index.findings(from, to);
  index.close();
  return rows.map(({ service, openedAt, resolvedAt }) => [service, openedAt, resolvedAt]);
}

describe('the index', () => {
  test('has what was open in a time span', async () => {
    const { recorder, note, wait } = recorderAt(1000);
    await wait(2);
    const finding = opened('web', 1002);
    note(finding);
    note(opened('db', 1002));
    await wait(3);
    expect(await found()).toEqual([
      ['db', 1002, null],
      ['web', 1002, null],
    ]);
    note({ ...finding, resolvedAt: 1006 });
    await wait(3);
    await recorder.close();
    const both = [
      ['db', 1002, null],
      ['web', 1002, 1006],
    ];
    expect(await found()).toEqual(both);
    expect(await found(1006, 1007)).toEqual(both);
    expect(await found(1007, 1008)).toEqual([['db', 1002, null]]);
    expect(await found(900, 1001)).toEqual([]);
  });

  test('ends what is no longer open after a restart', async () => {
    const first = recorderAt(1000);
    await first.wait(2);
    first.note(opened('web', 1002));
    first.note(opened('db', 1002));
    await first.wait(2);
    await first.recorder.close();
    const second = recorderAt(2000, () => {
      return { note: 'open', at: 2001, ...nothingElse, findings: [opened('db', 1002)] };
    });
    await second.wait(2);
    await second.recorder.close();
    expect(await found()).toEqual([
      ['db', 1002, null],
      ['web', 1002, 2001],
    ]);
  });

  test('ends nothing by a note that lacks a finding', async () => {
    const first = recorderAt(1000);
    await first.wait(2);
    first.note(opened('web', 1002));
    await first.wait(2);
    await first.recorder.close();
    const other = { ...opened('db', 1002), code: 'of-another-version' as Finding['code'] };
    const second = recorderAt(2000, () => {
      return { note: 'open', at: 2001, ...nothingElse, findings: [other] };
    });
    await second.wait(2);
    await second.recorder.close();
    expect(await found()).toEqual([['web', 1002, null]]);
  });

  test('leaves out notes that are no notes, and reports them each time', async () => {
    const { recorder, note, wait, state } = recorderAt(1000);
    await wait(2);
    const finding = opened('web', 1002);
    const incident = { id: 'a', openedAt: 1002, resolvedAt: null };
    for (const value of [{ finding: {} }, { finding: { ...finding, since: '1' } }, finding]) {
      recorder.remark(`${JSON.stringify({ note: 'opened', at: 1002, ...value })}\n`, state.now);
    }
    recorder.remark('{"note":\n', state.now);
    recorder.remark(`${JSON.stringify({ note: 'incident', at: 1002, incident })}\n`, state.now);
    recorder.remark('{"note":"toString","at":1}\n', state.now);
    note(finding);
    await wait(2);
    const [segment = ''] = readdirSync(folder).sort();
    const open = async () => {
      const losses: string[] = [];
      const index = await openIndex(folder, (name, text) => losses.push(`${name} ${text}`));
      const rows = [...index.findings(0, 1e9), ...index.incidents(0, 1e9)];
      index.close();
      return { losses, rows: rows.length };
    };
    const losses = [`${segment} 6 notes cannot be read: incidents may be missing`];
    for (let left = 3; left > 0; left--) expect(await open()).toEqual({ losses, rows: 1 });
    // The segment is removed.
    await wait(200);
    expect(readdirSync(folder)).not.toContain(segment);
    expect(await open()).toEqual({ losses: [], rows: 1 });
    await recorder.close();
  });

  test('is filled again if another program has changed it', async () => {
    const { recorder, note, wait } = recorderAt(1000);
    await wait(2);
    note(opened('web', 1002));
    await wait(2);
    await recorder.close();
    const row = `('web', 1, NULL, 1, '{"code":"x"}')`;
    const endless = 'WITH RECURSIVE all_of(x) AS (SELECT 1 UNION ALL SELECT x FROM all_of)';
    const finding = `SELECT x AS name, x AS opened, x AS resolved, x AS json FROM all_of`;
    for (const change of [
      `INSERT INTO finding VALUES ${row}; INSERT INTO incident VALUES ${row}`,
      `INSERT INTO finding VALUES ('db', 1, 'never', 1, '{}'), ('x', 1, NULL, 1, '[')`,
      `DROP TABLE finding; CREATE VIEW finding AS ${endless} ${finding}`,
      'DROP TABLE position',
      `CREATE TRIGGER more AFTER INSERT ON finding BEGIN DELETE FROM finding; END;
       DELETE FROM finding; UPDATE position SET frame = 0`,
    ]) {
      expect(await found()).toEqual([['web', 1002, null]]);
      const database = new DatabaseSync(join(folder, 'index.sqlite'));
      database.exec(change);
      database.close();
    }
    expect(await found()).toEqual([['web', 1002, null]]);
  });

  test('is opened without a journal that names a further file', () => {
    const path = join(folder, 'index.sqlite');
    const end = Buffer.from('d9d505f920a163d7', 'hex');
    const own = Buffer.concat([end, Buffer.alloc(600, 'x')]);
    writeFileSync(`${path}-journal`, own);
    createDatabaseFile(path);
    expect(readFileSync(`${path}-journal`)).toEqual(own);
    // SQLite 3.50 deletes the file of that name when it opens the database.
    writeFileSync(`${path}-journal`, Buffer.concat([own, Buffer.from('/etc/hosts'), end]));
    createDatabaseFile(path);
    expect(existsSync(`${path}-journal`)).toBe(false);
  });

  test('does not wait for a pipe in the place of its journal', async () => {
    const path = join(folder, 'index.sqlite');
    (await openIndex(folder)).close();
    execFileSync('mkfifo', [`${path}-journal`]);
    createDatabaseFile(path);
    expect(existsSync(`${path}-journal`)).toBe(false);
  });

  test('does not change a database elsewhere to which its name is a link', async () => {
    const elsewhere = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'other');
    writeFileSync(elsewhere, '');
    symlinkSync(elsewhere, join(folder, 'index.sqlite'));
    const index = await openIndex(folder);
    expect(index.findings(-Infinity, Infinity)).toEqual([]);
    index.close();
    expect(statSync(elsewhere).size).toBe(0);
  });

  test.each(['missing', 'damaged', 'of another version'])('is filled again if %s', async (how) => {
    const { recorder, note, wait } = recorderAt(1000);
    await wait(2);
    note(opened('web', 1002));
    await wait(1);
    await recorder.close();
    const before = await found();
    expect(before).toHaveLength(1);
    const name = join(folder, 'index.sqlite');
    expect(statSync(name).mode & 0o777).toBe(0o600);
    if (how === 'missing') rmSync(name);
    else writeFileSync(name, how === 'damaged' ? 'x'.repeat(5000) : '');
    expect(await found()).toEqual(before);
    expect(existsSync(name)).toBe(true);
  });

  test('removes the oldest rows above its part of the bytes, and keeps what is open', async () => {
    const writer = recorderAt(1000, () => {
      return { note: 'open', at: 1001, ...nothingElse, findings: [opened('db', 900)], size: 1e6 };
    });
    await writer.wait(1);
    fill(writer, 600, 0);
    await writer.wait(2);
    await writer.recorder.close();
    const names = (await found()).map(([service]) => service);
    const bytes = statSync(join(folder, 'index.sqlite')).size;
    expect(bytes).toBeGreaterThan(500_000);
    expect(bytes).toBeLessThanOrEqual(1024 * 1024);
    expect(names).toContain('db');
    expect(names).toContain('web-599');
    expect(names).not.toContain('web-0');
    // It is not filled with them again.
    expect((await found()).map(([service]) => service)).toEqual(names);
  });

  test('may have an eighth of the size, although the segments are small', async () => {
    const writer = recorderAt(1000, () => ({ note: 'open', at: 1001, ...nothingElse }));
    await writer.wait(1);
    fill(writer, 600, 300);
    await writer.wait(2);
    await writer.recorder.close();
    expect((await found()).length).toBe(600);
    const index = await openIndex(folder);
    expect(index.lag(0, 1e9)).toHaveLength(300);
    index.close();
  });

  test('removes lag before findings and incidents', async () => {
    const writer = recorderAt(1000, () => ({ note: 'open', at: 1001, ...nothingElse, size: 1e6 }));
    await writer.wait(1);
    fill(writer, 150, 300);
    await writer.wait(2);
    await writer.recorder.close();
    expect((await found()).length).toBe(150);
    const index = await openIndex(folder);
    const times = index.lag(0, 1e9).map(({ at }) => at);
    index.close();
    expect(times.length).toBeGreaterThan(10);
    expect(times).not.toContain(0);
    expect(times).toContain(299);
  });

  test('forgets what ended in segments that are removed, and keeps what is open', async () => {
    const stillOpen = opened('db', 1002);
    const { recorder, note, wait } = recorderAt(1000, () => {
      return { note: 'open', at: 1001, ...nothingElse, findings: [stillOpen] };
    });
    await wait(2);
    const finding = opened('web', 1002);
    note(finding);
    note(stillOpen);
    await wait(2);
    note({ ...finding, resolvedAt: 1004 });
    await wait(2);
    expect(await found()).toEqual([
      ['db', 1002, null],
      ['web', 1002, 1004],
    ]);
    await wait(200);
    await recorder.close();
    const [oldest = ''] = readdirSync(folder)
      .filter((it) => it.endsWith('.segment'))
      .sort();
    expect(Number(oldest.slice(0, 8))).toBeGreaterThan(1);
    expect(await found()).toEqual([['db', 1002, null]]);
  });
});
