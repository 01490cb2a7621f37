// Programs of a node, replaced by scripts.

import { describe, expect, test } from 'vitest';

import { collect, programs, runProgram } from '../../src/agent/collect.ts';
import { withPrograms } from '../processes.ts';

const [save] = programs;

const ruled = "printf '*nat\\n:PREROUTING ACCEPT [0:0]\\nCOMMIT\\n'";
const commented = `printf '# by iptables\\n'; ${ruled}`;
const listing = (...names: string[]): string => {
  const tables = names.map((name) => ({ table: { family: 'ip', name, handle: 1 } }));
  return `echo '${JSON.stringify({ nftables: [{ metainfo: {} }, ...tables] })}'`;
};

describe('one program', () => {
  test.each([
    ['sleep 30', { deadlineSeconds: 0.2 }, 'iptables-nft-save: did not end within 0.2 s'],
    ['yes', { maxBytes: 1000 }, 'iptables-nft-save: printed more than 1000 bytes'],
    ['echo "Permission denied" >&2; exit 4', {}, 'ended with 4: Permission denied'],
    ['exit 1', {}, 'iptables-nft-save: ended with 1'],
  ])('%s fails', async (script, more, problem) => {
    const limits = withPrograms({ 'iptables-nft-save': script }, more);
    // The scripts' own commands are found where the system has them.
    const path = `${limits.path}:/usr/bin:/bin`;
    const ran = await runProgram(save, { ...limits, path });
    expect(ran).toEqual({ state: 'failed', problem: expect.stringContaining(problem) as string });
  });

  test('has no environment but its own, and no input', async () => {
    process.env.SECRET_OF_THE_AGENT = 'x';
    const limits = withPrograms({
      'iptables-nft-save': 'export -p; read line && echo "got input"',
    });
    const ran = await runProgram(save, limits);
    delete process.env.SECRET_OF_THE_AGENT;
    const said = ran.state === 'failed' ? ran.problem : '';
    expect(said).toContain('ended with 1');
    const printed = await runProgram(save, withPrograms({ 'iptables-nft-save': 'export -p' }));
    const text = printed.state === 'read' ? printed.bytes.toString() : '';
    expect(text).toContain('PATH=');
    expect(text).not.toContain('SECRET');
  });

  test('that is not there is absent', async () => {
    expect(await runProgram(save, withPrograms({}))).toEqual({ state: 'absent' });
  });
});

describe('all programs', () => {
  test('write nothing: each is a save or a listing', () => {
    const commands = programs.map(({ name, args }) => [name, ...args].join(' '));
    expect(commands).toEqual([
      'iptables-nft-save',
      'ip6tables-nft-save',
      'iptables-legacy-save',
      'ip6tables-legacy-save',
      'nft -j list tables',
      'nft -j list ruleset',
    ]);
  });

  test('a missing program is reported, one that prints nothing is empty', async () => {
    const limits = withPrograms({
      'iptables-nft-save': commented,
      'iptables-legacy-save': 'true',
      nft: listing('nat'),
    });
    const { dumps, states, problems } = await collect(limits);
    expect(dumps.map(({ program }) => program.name)).toEqual(['iptables-nft-save']);
    expect(states).toEqual({
      'iptables-nft-save': 'read',
      'ip6tables-nft-save': 'absent',
      'iptables-legacy-save': 'empty',
      'ip6tables-legacy-save': 'absent',
      nft: 'read',
    });
    expect(problems).toEqual([]);
  });

  test.each([
    ['a table of its own', commented, ['nat', 'kube-proxy'], ['list ruleset']],
    ['a table that iptables could not show', 'true', ['nat'], ['list ruleset']],
    ['nothing but what iptables shows', commented, ['nat'], []],
    // A table of iptables-legacy has the same name and is another.
    ['nothing', 'true', [], []],
  ])('nft with %s', async (_, iptables, tables, asked) => {
    const script = `case "$3" in tables) ${listing(...tables)};; *) echo "$2 $3";; esac`;
    const { dumps } = await collect(
      withPrograms({
        'iptables-nft-save': iptables,
        'iptables-legacy-save': commented,
        nft: script,
      }),
    );
    const own = dumps.filter(({ program }) => program.name === 'nft');
    expect(own.map(({ bytes }) => bytes.toString().trim())).toEqual(asked);
  });

  test.each([
    ['first', (line: string): string => `${line}; ${ruled}`],
    ['between others', (line: string): string => `${commented}; ${line}; ${ruled}`],
  ])('where iptables does not show all of a table, and says so %s, nft is asked', async (_, by) => {
    const said = "# Table \\`nat' contains incompatible base-chains, use 'nft' tool to list them.";
    const nft = `case "$3" in tables) ${listing('nat')};; *) echo '{}';; esac`;
    const limits = withPrograms({ 'iptables-nft-save': by(`echo "${said}"`), nft });
    const { dumps } = await collect(limits);
    expect(dumps.map(({ program }) => program.prints)).toEqual(['iptables-save', 'nft']);
  });

  test('a warning of the other backend is a problem if no program can show it', async () => {
    const warning =
      '# Warning: iptables-legacy tables present, use iptables-legacy-save to see them';
    const warns = { 'iptables-nft-save': `echo '${warning}' >&2` };
    const { problems } = await collect(withPrograms(warns));
    expect(problems).toEqual([
      'iptables-legacy-save is not there: Warning: iptables-legacy tables present, ' +
        'use iptables-legacy-save to see them',
    ]);
    const shown = await collect(withPrograms({ ...warns, 'iptables-legacy-save': commented }));
    expect(shown.problems).toEqual([]);
  });

  test('none of them there is a problem, and so is one that fails', async () => {
    const { problems } = await collect(withPrograms({}));
    expect(problems).toEqual([expect.stringMatching(/^none of iptables-nft-save, .* is in /)]);
    const failed = await collect(withPrograms({ nft: 'exit 3' }));
    expect(failed.problems).toEqual(['nft: ended with 3']);
    expect(failed.states.nft).toBe('failed');
  });
});
