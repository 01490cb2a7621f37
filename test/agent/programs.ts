// Programs that stand in for those of a node: scripts in a folder of their own.

import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { ProgramLimits } from '../../src/agent/collect.ts';
import { defaultLimits } from '../../src/agent/collect.ts';

/** Limits with which these scripts are found, and besides only what every system has. */
export function withPrograms(
  scripts: Readonly<Record<string, string>>,
  more: Partial<ProgramLimits> = {},
): ProgramLimits {
  const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-programs-'));
  for (const [name, script] of Object.entries(scripts)) {
    const path = join(folder, name);
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
  }
  return { ...defaultLimits, deadlineSeconds: 300, path: folder, ...more };
}
