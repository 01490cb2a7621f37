// Reads the rules of a node by running iptables-save and nft: without a shell, with an environment
// of their own, a deadline and a limit of bytes. They only read, and none of them waits for a lock.
//
// Both backends may contain rules, and both count. The programs of an unused backend print nothing,
// which is no failure. A missing program is reported. A program that fails, or whose output is too
// long, makes the node unknown.
//
// Maps of Cilium are read if they are pinned (cilium-maps.ts), or if only they are asked for.
//
// `nft -j list ruleset` also shows the tables of iptables-nft, which iptables-nft-save shows
// better. It costs the same again, so it runs only if nft has others.

import { execFile, type ExecFileException } from 'node:child_process';
import { createHash } from 'node:crypto';

import type { DataplaneChoice } from '../model/proxy-config.ts';
import { pinnedMaps } from './cilium-maps.ts';
import type { NodeFacts } from './node-facts.ts';

export interface RulesProgram {
  readonly name: string;
  readonly args: readonly string[];
  readonly prints: 'iptables-save' | 'nft tables' | 'nft' | 'bpf maps';
  readonly family: 'ip' | 'ip6';
}

/** The programs for rules, in the order in which they are run. Reports call them by these names. */
export const programs = [
  { name: 'iptables-nft-save', args: [], prints: 'iptables-save', family: 'ip' },
  { name: 'ip6tables-nft-save', args: [], prints: 'iptables-save', family: 'ip6' },
  { name: 'iptables-legacy-save', args: [], prints: 'iptables-save', family: 'ip' },
  { name: 'ip6tables-legacy-save', args: [], prints: 'iptables-save', family: 'ip6' },
  { name: 'nft', args: ['-j', 'list', 'tables'], prints: 'nft tables', family: 'ip' },
  { name: 'nft', args: ['-j', 'list', 'ruleset'], prints: 'nft', family: 'ip' },
] as const satisfies readonly RulesProgram[];

/** Reads maps, by commands on its standard input. */
export const mapsProgram: RulesProgram = {
  name: 'bpftool',
  args: ['-j', 'batch', 'file', '-'],
  prints: 'bpf maps',
  family: 'ip',
};

export const defaultLimits = {
  deadlineSeconds: 60,
  maxBytes: 512 * 1024 * 1024,
  path: '/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin',
  /** The folder in which Cilium pins its maps. */
  maps: '/sys/fs/bpf/tc/globals',
  dataplane: 'auto' as DataplaneChoice,
};

export type ProgramLimits = Readonly<typeof defaultLimits>;

type ProgramResult =
  /** `warning`: that the other backend has tables; `null` without this warning. */
  | { readonly state: 'read'; readonly bytes: Buffer; readonly warning: string | null }
  | { readonly state: 'absent' }
  | { readonly state: 'failed'; readonly problem: string };

/** The output of a program, which is not empty. */
export interface CollectedDump {
  readonly program: RulesProgram;
  readonly bytes: Buffer;
}

/** Runs one program. Never rejects: the result names the problem. */
export function runProgram({ name, args }: RulesProgram, limits: ProgramLimits, input = '') {
  const options = {
    encoding: 'buffer',
    env: { PATH: limits.path, LC_ALL: 'C' },
    cwd: '/',
    timeout: limits.deadlineSeconds * 1000,
    killSignal: 'SIGKILL',
    maxBuffer: limits.maxBytes,
  } as const;
  return new Promise<ProgramResult>((resolve) => {
    const child = execFile(name, args, options, (error, bytes, stderr) => {
      if (error === null) resolve({ state: 'read', bytes, warning: warningIn(stderr) });
      else if (error.code === 'ENOENT') resolve({ state: 'absent' });
      else {
        const said = errorIn(stderr, bytes);
        resolve({ state: 'failed', problem: `${name}: ${problemOf(error, said, limits)}` });
      }
    });
    // A program that ends early does not read it.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(input);
  });
}

/** What iptables-nft-save says where iptables-legacy has tables. */
const warningIn = (stderr: Buffer): string | null =>
  /^# (Warning: .* tables present\b.*)/m.exec(stderr.toString())?.[1] ?? null;

/** bpftool with -j prints its error to standard output. A batch ends with it. */
function errorIn(stderr: Buffer, stdout: Buffer): string {
  const [first = ''] = stderr.toString().trim().split('\n');
  const end = stdout.subarray(-4096).toString('latin1');
  return first || ([...end.matchAll(/"error":\s*"([^"]*)"/g)].at(-1)?.[1] ?? '');
}

function problemOf(error: ExecFileException, text: string, limits: ProgramLimits): string {
  if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') {
    return `printed more than ${limits.maxBytes} bytes`;
  }
  if (error.killed === true) return `did not end within ${limits.deadlineSeconds} s`;
  const said = text.slice(0, 200);
  const how = error.signal ? `was ended by ${error.signal}` : `ended with ${String(error.code)}`;
  return said === '' ? how : `${how}: ${said}`;
}

export type CollectedRules = Awaited<ReturnType<typeof collect>>;

/** Reads all rules of the node. */
export async function collect(limits: ProgramLimits) {
  const began = performance.now();
  const { dataplane } = limits;
  const rules = dataplane === 'cilium' ? nothingRead : await collectRules(limits);
  const maps = dataplane === 'kube-proxy' ? nothingRead : await collectMaps(limits);
  /** The state of each program: `read`, `empty`, `absent` or `failed`. */
  const states: Record<string, string> = { ...rules.states, ...maps.states };
  const problems = [...rules.problems, ...maps.problems];
  if (problems.length === 0 && Object.values(states).every((state) => state === 'absent')) {
    problems.push(`none of ${Object.keys(states).join(', ')} is in ${limits.path}`);
  }
  /** How long the programs took. */
  const seconds = (performance.now() - began) / 1000;
  return { dumps: [...rules.dumps, ...maps.dumps], states, problems, seconds };
}

interface ReadDumps {
  readonly dumps: readonly CollectedDump[];
  readonly states: Readonly<Record<string, string>>;
  readonly problems: readonly string[];
}

const nothingRead: ReadDumps = { dumps: [], states: {}, problems: [] };

/** Without Cilium on the node, nothing; that is a problem only if its maps are asked for. */
async function collectMaps(limits: ProgramLimits): Promise<ReadDumps> {
  const { dataplane, maps: folder, path } = limits;
  const { commands, problem, failure: unread } = pinnedMaps(folder);
  if (problem !== null) return { ...nothingRead, problems: [problem] };
  if (commands === '') {
    const problems = dataplane === 'cilium' ? [unread ?? `Cilium has no maps in ${folder}`] : [];
    return { ...nothingRead, problems };
  }
  const ran = await runProgram(mapsProgram, limits, commands);
  const { name } = mapsProgram;
  const states = { [name]: ran.state };
  if (ran.state === 'read') {
    return { dumps: [{ program: mapsProgram, bytes: ran.bytes }], states, problems: [] };
  }
  const failure =
    ran.state === 'failed' ? ran.problem : `${name}, which reads ${folder}, is not in ${path}`;
  return { dumps: [], states, problems: [failure] };
}

async function collectRules(limits: ProgramLimits): Promise<ReadDumps> {
  const dumps: CollectedDump[] = [];
  const problems: string[] = [];
  const states: Record<string, string> = {};
  const warnings = new Map<string, string>();
  let isNftNeeded = false;
  // One after the other: an agent must not take two cores at once.
  for (const program of programs) {
    const { name, prints } = program;
    if (prints === 'nft' && !isNftNeeded) continue;
    const ran = await runProgram(program, limits);
    states[name] = ran.state;
    if (ran.state === 'failed') problems.push(ran.problem);
    if (ran.state !== 'read') continue;
    const { bytes, warning } = ran;
    if (warning !== null) warnings.set(name.replace('-nft-', '-legacy-'), warning);
    if (prints === 'nft tables') {
      const tables = tablesOf(bytes);
      isNftNeeded = tables === null || hasOthers(tables, dumps);
      if (tables?.length === 0) states[name] = 'empty';
    } else if (bytes.length === 0) states[name] = 'empty';
    else dumps.push({ program, bytes });
  }
  for (const [name, warning] of warnings) {
    if ((states[name] ?? 'absent') === 'absent') problems.push(`${name} is not there: ${warning}`);
  }
  return { dumps, states, problems };
}

/** What a round has instead of rules that cannot be collected. */
export const nothingCollected = (problem: string): CollectedRules => ({
  dumps: [],
  states: {},
  problems: [problem],
  seconds: 0,
});

/** Seconds in which all programs must end, and the process that runs them. */
export const deadlineOf = ({ deadlineSeconds }: ProgramLimits): number =>
  (programs.length + 1) * deadlineSeconds + spareSeconds;

const spareSeconds = 120;

/** Tables as `ip nat`; `null` if the list cannot be parsed. */
function tablesOf(bytes: Buffer): string[] | null {
  try {
    const { nftables } = JSON.parse(bytes.toString()) as {
      nftables: readonly { readonly table?: { readonly family: string; readonly name: string } }[];
    };
    return nftables.flatMap(({ table }) => (table ? `${table.family} ${table.name}` : []));
  } catch {
    return null;
  }
}

const [newline, hashSign, colon, star, minus] = [10, 35, 58, 42, 45];

/** Whether nft has a table that iptables-nft-save did not show, or not all of it. */
function hasOthers(tables: readonly string[], dumps: readonly CollectedDump[]): boolean {
  const shown = dumps.flatMap(({ program, bytes }) => {
    if (!program.name.includes('-nft-')) return [];
    const partly = linesWith(bytes, '# Table `').map((line) => line.split("'", 1)[0]);
    const whole = linesWith(bytes, '*').filter((name) => !partly.includes(name));
    return whole.map((name) => `${program.family} ${name}`);
  });
  return tables.some((table) => !shown.includes(table));
}

function linesWith(bytes: Buffer, start: string): string[] {
  const lines: string[] = [];
  for (let at = bytes.indexOf(start); at >= 0; at = bytes.indexOf(start, at + 1)) {
    if (at > 0 && bytes[at - 1] !== newline) continue;
    const end = bytes.indexOf(newline, at);
    lines.push(bytes.toString('latin1', at + start.length, end < 0 ? bytes.length : end));
  }
  return lines;
}

/**
 * A hash of what a round reads; `null` if not all rules are known. Comments of iptables-save, which
 * contain the time, and counters of base chains, which precede the rules, are left out (iptables
 * 1.8, iptables/iptables-save.c and nft-shared.c). Counters of nft only cost another parse.
 */
export function fingerprintOf(
  rules: Omit<CollectedRules, 'seconds'>,
  facts: NodeFacts,
): string | null {
  const { dumps, states, problems } = rules;
  if (problems.length > 0) return null;
  const hash = createHash('sha256').update(JSON.stringify([states, facts]));
  for (const { program, bytes } of dumps) {
    hash.update(`\n${program.name}\n`);
    const parts = program.prints === 'iptables-save' ? lastingIn(bytes) : [bytes];
    for (const part of parts) hash.update(part);
  }
  return hash.digest('base64url');
}

function* lastingIn(bytes: Buffer): Generator<Buffer> {
  let from = 0;
  let at = 0;
  while (at < bytes.length) {
    const found = bytes.indexOf(newline, at);
    const end = found < 0 ? bytes.length : found;
    const counters = bytes[at] === colon ? bytes.indexOf(' [', at) : end;
    const isBase = bytes[at] === colon && counters < end && bytes[counters - 1] !== minus;
    if (bytes[at] === hashSign || isBase) {
      yield bytes.subarray(from, isBase ? counters : at);
      from = end;
    } else if (bytes[at] !== star) {
      // After the base chains, nothing changes by itself until the end of the table.
      const comment = bytes.indexOf('\n#', at);
      at = comment < 0 ? bytes.length : comment + 1;
      continue;
    }
    at = end + 1;
  }
  yield bytes.subarray(Math.min(from, bytes.length));
}
