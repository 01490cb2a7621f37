// Which reader a recording gets; what replay says of it is tested by the command line.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { recordingOf } from '../../src/commands/replay.ts';
import { auditorOf } from '../build.ts';

const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));

async function read(name: string, content: string): Promise<{ kinds: string[]; said: string[] }> {
  const path = join(folder, name);
  writeFileSync(path, content);
  const said: string[] = [];
  const kinds: string[] = [];
  const { auditor } = auditorOf(0);
  const entries = await recordingOf(path, auditor, ({ message }) => said.push(message));
  for await (const { kind } of entries) kinds.push(kind);
  return { kinds, said };
}

test('a recording is read line by line', async () => {
  const header = '{"kind":"header","format":1,"at":1,"resources":["pods"]}\n';
  expect(await read('a.ndjson', header)).toEqual({ kinds: ['header', 'end'], said: [] });
});

test('YAML that kwok did not record is read as a recording, which reports the format', async () => {
  await expect(read('a.yaml', 'kind: Pod\n')).rejects.toThrow(
    /a\.yaml: .*: use "audit .*a\.yaml"$/,
  );
});

test('a path that does not exist is an error', async () => {
  const { auditor } = auditorOf(0);
  await expect(recordingOf(join(folder, 'none'), auditor, () => undefined)).rejects.toThrow('none');
});
