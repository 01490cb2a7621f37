// Archives as dumps: what is read from them, what is skipped, and where their limits are.

import { createWriteStream, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';

import { describe, expect, test } from 'vitest';
import { type Header, pack } from 'tar-stream';

import { archivedFiles, isArchive } from '../../../src/cluster/files/archive.ts';
import { readDump } from '../../../src/cluster/files/dump.ts';
import { problemText } from '../../../src/cluster/decode/problem.ts';
import type { UnreadableObject } from '../../../src/model/objects.ts';

const folder = mkdtempSync(join(tmpdir(), 'archive-'));

const pod = (name: string): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'shop', uid: name },
  });

type Member = readonly [Partial<Header> & { name: string }, string];

async function save(name: string, members: readonly Member[]): Promise<string> {
  const path = join(folder, name);
  const archive = pack();
  for (const [header, text] of members) archive.entry(header, text);
  archive.finalize();
  if (name.endsWith('.tar')) await pipeline(archive, createWriteStream(path));
  else await pipeline(archive, createGzip(), createWriteStream(path));
  return path;
}

async function read(path: string) {
  const problems: string[] = [];
  const names: string[] = [];
  for await (const entry of readDump([path], (problem) => problems.push(problemText(problem)))) {
    if (entry.kind === 'object') names.push(entry.event.object.name);
  }
  return { names, problems };
}

const log = 'a line of a log\n'.repeat(100_000);

const members: readonly Member[] = [
  [{ name: 'must-gather/namespaces/shop/core/pods.json' }, pod('web-1')],
  [{ name: 'must-gather/namespaces/shop/pods/web-1/current.log' }, pod('in-a-log')],
  [{ name: 'must-gather/README' }, log],
  [{ name: 'must-gather/.hidden.json' }, pod('hidden')],
  [{ name: '../../outside.json' }, pod('web-2')],
  [{ name: 'must-gather/link.json', type: 'symlink', linkname: '/etc/passwd' }, ''],
  [{ name: 'must-gather/more.yaml' }, 'kind: Pod\nmetadata: {name: web-3, namespace: shop}\n'],
];

test.each(['gather.tar', 'gather.tar.gz', 'gather.tgz'])(
  '%s is read as a directory',
  async (name) => {
    const path = await save(name, members);
    expect(isArchive(path)).toBe(true);
    const { names, problems } = await read(path);
    expect(names.sort()).toEqual(['web-1', 'web-2', 'web-3']);
    expect(problems).toEqual([]);
  },
);

test('a problem names the archive and the file in it', async () => {
  const path = await save('typo.tar', [[{ name: 'a.json' }, '{"kind":"Pod",']]);
  const { problems } = await read(path);
  expect(problems).toEqual([expect.stringContaining(`${path}/a.json:1: Pod: Unexpected end`)]);
});

describe('an archive that is not whole', () => {
  test.each(['cut.tar', 'cut.tar.gz'])(
    '%s: the rest is read, and the end reported',
    async (name) => {
      const path = await save(name, [...members.slice(0, 1), ...members.slice(2, 3)]);
      const whole = readFileSync(path);
      writeFileSync(path, whole.subarray(0, whole.length - 1500 - (name === 'cut.tar' ? 1024 : 0)));
      const { names, problems } = await read(path);
      expect(names).toEqual(['web-1']);
      expect(problems.join('\n')).toMatch(/Unexpected end/);
    },
  );

  test('any object may be in the rest', async () => {
    const path = await save('rest.tar', members.slice(0, 3));
    const whole = readFileSync(path);
    const lost: UnreadableObject[] = [];
    for (const length of [whole.length - 1024, whole.length - 2048]) {
      writeFileSync(path, whole.subarray(0, length));
      for await (const entry of readDump([path], () => undefined)) {
        if (entry.kind === 'unreadable') lost.push(entry.lost);
      }
    }
    // The first one lacks only the end mark.
    expect(lost).toEqual([{ resource: 'pods', namespace: null, name: null, labels: null }]);
  });

  test('what is no archive at all is reported', async () => {
    const path = join(folder, 'none.tar');
    writeFileSync(path, 'x'.repeat(2048));
    expect(await read(path)).toEqual({
      names: [],
      problems: [expect.stringContaining('Cannot read the rest of the archive')],
    });
  });
});

test.each([
  [{ entries: 2, bytes: 1e9 }, 'Too many entries in the archive'],
  [{ entries: 100, bytes: 2000 }, 'Archive too large'],
])('the limits %j end it', async (limits, message) => {
  const path = await save('large.tar', members);
  const damage: (string | null)[] = [];
  const files = archivedFiles(path, (_, value) => damage.push(value), limits);
  for await (const { bytes } of files) for await (const chunk of bytes) expect(chunk).toBeDefined();
  expect(damage).toEqual([message]);
});
