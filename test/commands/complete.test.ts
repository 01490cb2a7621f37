import { spawnSync } from 'node:child_process';
import { mkdtempSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Command, Option } from 'commander';
import { describe, expect, test } from 'vitest';

import { completionScript, completionsOf, shells } from '../../src/commands/complete.ts';

const program = new Command('x');
program.command('audit').addOption(new Option('-o, --output <format>', 'one of table, json'));
program.command('explain').option('-A, --all', 'everywhere').option('--at <time>', 'a moment');
program.command('__complete');

test.each<[string[], string[]]>([
  [[''], ['audit', 'explain']],
  [['a'], ['audit']],
  [['-'], ['--help', '-h']],
  [
    ['audit', '-'],
    ['--help', '--output', '-h', '-o'],
  ],
  [
    ['audit', '-o', ''],
    ['json', 'table'],
  ],
  [['audit', '--output', 'j'], ['json']],
  [
    ['explain', ''],
    ['ip/', 'node/', 'pod/', 'service/'],
  ],
  [['explain', '-A', 's'], ['service/']],
  [['explain', '--at', ''], []],
  [['audit', 'dump'], []],
])('%j', (words, want) => {
  expect(completionsOf(program, words)).toEqual(want);
});

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'complete-'));

/** Runs the program under another name. */
function runAs(name: string, ...args: string[]): string {
  const link = join(folder, name);
  symlinkSync(main, link);
  return spawnSync(process.execPath, [link, ...args], { encoding: 'utf8' }).stdout;
}

describe('the program', () => {
  test('completes its own name', () => {
    expect(runAs('endpoint-auditor', '__complete', '--', 'expl')).toBe('explain\n');
  });

  test('answers in the format of kubectl if kubectl calls it', () => {
    expect(runAs('kubectl-audit_endpoints', '--help')).toContain('Usage: kubectl audit-endpoints');
    expect(runAs('kubectl_complete-audit_endpoints', 'audit', '-o', 'j')).toBe('json\njunit\n:0\n');
  });
});

test.each(shells)('%s gets a script that asks the program', (shell) => {
  const script = completionScript(shell, 'endpoint-auditor');
  expect(script).toContain('endpoint-auditor __complete -- ');
});

test('the script works in bash', () => {
  const asks = `
    endpoint-auditor() { printf '%s\\n' "$@" > ${folder}/asked; printf 'one\\ntwo\\n'; }
    ${completionScript('bash', 'endpoint-auditor')}
    COMP_WORDS=(endpoint-auditor audit -o j); COMP_CWORD=3
    _endpoint_auditor; echo "\${COMPREPLY[1]}"; cat ${folder}/asked`;
  const { stdout } = spawnSync('bash', ['-c', asks], { encoding: 'utf8' });
  expect(stdout.split('\n')).toEqual(['two', '__complete', '--', 'audit', '-o', 'j', '']);
});
