// A process whose thread waits for a disk that never answers. A pipe without a writer is like one.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { expect, test } from 'vitest';

import { endDespiteDisk } from '../../../src/commands/shared/process.ts';

const program = join(import.meta.dirname, '../../../src/commands/shared/process.ts');

test('a process ends although a disk does not answer', async () => {
  const pipe = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'pipe');
  execFileSync('mkfifo', [pipe]);
  const script = `
    import { open } from 'node:fs/promises';
    import { ${endDespiteDisk.name} } from ${JSON.stringify(pathToFileURL(program).href)};
    void open(${JSON.stringify(pipe)}, 'r');
    setTimeout(${endDespiteDisk.name}, 200);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script]);
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
  expect([code, signal]).toEqual([null, 'SIGKILL']);
});
