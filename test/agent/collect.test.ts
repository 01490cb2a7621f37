// Programs of a node, replaced by scripts.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { collect, programs, runProgram } from '../../src/agent/collect.ts';
import type { DataplaneChoice } from '../../src/model/proxy-config.ts';
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

type Scripts = Readonly<Record<string, string>>;

describe('maps of Cilium', () => {
  const folder = mkdtempSync(join(tmpdir(), 'cilium-maps-'));
  const pin = (...names: string[]): string => {
    const maps = mkdtempSync(join(folder, 'globals-'));
    for (const name of names) writeFileSync(join(maps, name), '');
    return maps;
  };
  const lb4 = ['cilium_lb4_services_v2', 'cilium_lb4_backends_v3', 'cilium_lb_affinity_match'];
  const scripts = { 'iptables-nft-save': commented, bpftool: '/bin/cat' };
  const collected = (maps: string, dataplane: DataplaneChoice, programs: Scripts = scripts) =>
    collect({ ...withPrograms(programs), maps, dataplane });

  test('are read by one bpftool, by commands that only dump', async () => {
    const maps = pin(...lb4, 'cilium_lb4_affinity', 'cilium_ct4_global');
    const { dumps, states, problems } = await collected(maps, 'cilium');
    expect(problems).toEqual([]);
    expect(states).toEqual({ bpftool: 'read' });
    expect(dumps.map(({ program }) => program.args)).toEqual([['-j', 'batch', 'file', '-']]);
    const commands = [...lb4].sort().map((name) => `map dump pinned ${maps}/${name}\n`);
    expect(dumps.map(({ bytes }) => bytes.toString())).toEqual([commands.join('')]);
  });

  test.each<[DataplaneChoice, readonly string[]]>([
    ['auto', ['iptables-save', 'bpf maps']],
    ['kube-proxy', ['iptables-save']],
    ['cilium', ['bpf maps']],
  ])('%s reads %s', async (dataplane, prints) => {
    const { dumps } = await collected(pin(...lb4), dataplane);
    expect(dumps.map(({ program }) => program.prints)).toEqual(prints);
  });

  test.each<[string, string[], DataplaneChoice, Scripts, RegExp | null]>([
    ['no maps', [], 'cilium', {}, /^Cilium has no maps in /],
    ['no maps', [], 'auto', { 'iptables-nft-save': commented }, null],
    [
      'maps of a newer layout',
      ['cilium_lb4_services_v3'],
      'auto',
      scripts,
      /cilium_lb4_services_v3$/,
    ],
    ['older maps beside those', [...lb4, 'cilium_lb4_backends_v2'], 'auto', scripts, null],
    ['no bpftool', lb4, 'cilium', {}, /^bpftool, which reads .* is not in /],
    [
      'a pin that cannot be opened',
      lb4,
      'cilium',
      { bpftool: `echo '{"error":"bpf obj get (x): Operation not permitted"}'; exit 255` },
      /^bpftool: ended with 255: bpf obj get \(x\): Operation not permitted$/,
    ],
  ])('%s', async (_, names, dataplane, programs, problem) => {
    const { problems } = await collected(pin(...names), dataplane, programs);
    if (problem === null) expect(problems).toEqual([]);
    else expect(problems).toEqual([expect.stringMatching(problem)]);
  });
});
