// Reads the rules of a node by running the programs iptables-save and nft. Their arguments are
// written here only. They run without a shell, with an environment of their own, with a deadline
// and a limit of bytes. They never write: -save and list only read, and none of them waits for a
// lock.
//
// Which of the backends is in use is not asked first, as kubernetes-sigs/iptables-wrappers does to
// run the right one: both may contain rules, and both count. An empty dump is no failure: the
// programs of the unused backend print nothing. A missing program is reported. A program that
// fails, or whose output is too long, makes the node unknown.
//
// `nft -j list ruleset` also shows the tables of iptables-nft, which iptables-nft-save shows
// better, and costs the same again: it is run only where nft has a table that no dump has shown, or
// not all of it, as iptables-nft-save itself says.

import { execFile } from 'node:child_process';

export interface RulesProgram {
  /** The file, and what it is called in reports. */
  readonly name: string;
  readonly args: readonly string[];
  readonly prints: 'iptables-save' | 'nft tables' | 'nft';
  readonly family: 'ip' | 'ip6';
}

const save = (name: string, family: 'ip' | 'ip6'): RulesProgram => ({
  name,
  args: [],
  prints: 'iptables-save',
  family,
});

const listTables = ['-j', 'list', 'tables'];
const listRuleset = ['-j', 'list', 'ruleset'];

/** All programs, in the order in which they are run. */
export const programs: readonly RulesProgram[] = [
  save('iptables-nft-save', 'ip'),
  save('ip6tables-nft-save', 'ip6'),
  save('iptables-legacy-save', 'ip'),
  save('ip6tables-legacy-save', 'ip6'),
  { name: 'nft', args: listTables, prints: 'nft tables', family: 'ip' },
  { name: 'nft', args: listRuleset, prints: 'nft', family: 'ip' },
];

export interface ProgramLimits {
  readonly deadlineSeconds: number;
  readonly maxBytes: number;
  /** Folders in which programs are looked for. */
  readonly path: string;
}

export const defaultLimits: ProgramLimits = {
  deadlineSeconds: 60,
  maxBytes: 512 * 1024 * 1024,
  path: '/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin',
};

export type ProgramResult =
  /** `warning`: that other tables are there; null: it said no such thing. */
  | { readonly state: 'read'; readonly bytes: Buffer; readonly warning: string | null }
  | { readonly state: 'absent' }
  | { readonly state: 'failed'; readonly problem: string };

export interface CollectedDump {
  readonly program: RulesProgram;
  readonly bytes: Buffer;
}

export interface CollectedRules {
  /** Those that are not empty. */
  readonly dumps: readonly CollectedDump[];
  /** What became of each program: `read`, `empty`, `absent` or `failed`. */
  readonly states: Readonly<Record<string, string>>;
  /** Reasons why the dumps are incomplete; empty if they are complete. */
  readonly problems: readonly string[];
}

/** Runs one program. Never throws: what went wrong is the answer. */
export function runProgram(
  { name, args }: RulesProgram,
  limits: ProgramLimits,
): Promise<ProgramResult> {
  const { deadlineSeconds, maxBytes, path } = limits;
  return new Promise((resolve) => {
    const options = {
      encoding: 'buffer',
      env: { PATH: path, LC_ALL: 'C' },
      cwd: '/',
      timeout: deadlineSeconds * 1000,
      killSignal: 'SIGKILL',
      maxBuffer: maxBytes,
      shell: false,
    } as const;
    const child = execFile(name, args, options, (error, bytes, stderr) => {
      if (error === null) resolve({ state: 'read', bytes, warning: warningIn(stderr) });
      else if (error.code === 'ENOENT') resolve({ state: 'absent' });
      else resolve({ state: 'failed', problem: `${name}: ${problemOf(error, stderr, limits)}` });
    });
    child.stdin?.end();
  });
}

/** What iptables-nft-save says where iptables-legacy has tables. */
const warningIn = (stderr: Buffer): string | null =>
  /^# (Warning: .* tables present\b.*)/m.exec(stderr.toString())?.[1] ?? null;

type ProgramError = NonNullable<Parameters<NonNullable<Parameters<typeof execFile>[3]>>[0]>;

function problemOf(error: ProgramError, stderr: Buffer, limits: ProgramLimits): string {
  if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') {
    return `printed more than ${limits.maxBytes} bytes`;
  }
  if (error.killed === true) return `did not end within ${limits.deadlineSeconds} s`;
  const said = stderr.toString().trim().split('\n')[0]?.slice(0, 200) ?? '';
  const how = error.signal ? `was ended by ${error.signal}` : `ended with ${String(error.code)}`;
  return said === '' ? how : `${how}: ${said}`;
}

/** Reads all rules of the node; `all` are the programs. */
export async function collect(limits: ProgramLimits, all = programs): Promise<CollectedRules> {
  const dumps: CollectedDump[] = [];
  const problems: string[] = [];
  const states: Record<string, string> = {};
  const warnings = new Map<string, string>();
  let more = false;
  // One after the other: an agent must not take two cores at once.
  for (const program of all) {
    if (program.prints === 'nft' && !more) continue;
    const ran = await runProgram(program, limits);
    const { name } = program;
    states[name] = ran.state;
    if (ran.state === 'failed') problems.push(ran.problem);
    if (ran.state !== 'read') continue;
    const { bytes, warning } = ran;
    if (warning !== null) warnings.set(name.replace('-nft-', '-legacy-'), warning);
    if (program.prints === 'nft tables') {
      const tables = tablesOf(bytes);
      more = tables === null || hasOthers(tables, dumps);
      if (!more && tables?.length === 0) states[name] = 'empty';
    } else if (bytes.length === 0) states[name] = 'empty';
    else dumps.push({ program, bytes });
  }
  for (const [name, warning] of warnings) {
    if ((states[name] ?? 'absent') === 'absent') problems.push(`${name} is not there: ${warning}`);
  }
  if (Object.values(states).every((state) => state === 'absent')) {
    problems.push(`none of ${Object.keys(states).join(', ')} is in ${limits.path}`);
  }
  return { dumps, states, problems };
}

/** Tables as `ip nat`; null: the listing cannot be read. */
function tablesOf(bytes: Buffer): string[] | null {
  try {
    const { nftables } = JSON.parse(bytes.toString()) as {
      nftables: readonly { readonly table?: { readonly family: string; readonly name: string } }[];
    };
    return nftables.flatMap(({ table }) =>
      table === undefined ? [] : `${table.family} ${table.name}`,
    );
  } catch {
    return null;
  }
}

/** Whether nft has a table that no dump by iptables-nft-save has shown, or not all of it. */
function hasOthers(tables: readonly string[], dumps: readonly CollectedDump[]): boolean {
  const shown = new Set(
    dumps
      .filter(({ program }) => program.name.includes('-nft-'))
      .flatMap(({ program, bytes }) => shownIn(bytes).map((name) => `${program.family} ${name}`)),
  );
  return tables.some((table) => !shown.has(table));
}

/** The tables that are shown as a whole. */
function shownIn(bytes: Buffer): string[] {
  const partly = new Set(linesWith(bytes, '# Table `').map((line) => line.split("'", 1)[0]));
  return linesWith(bytes, '*').filter((name) => !partly.has(name));
}

/** The text after this prefix at the beginning of lines. */
function linesWith(bytes: Buffer, start: string): string[] {
  const lines: string[] = [];
  const keep = (from: number): void => {
    const end = bytes.indexOf('\n', from);
    lines.push(bytes.toString('latin1', from, end < 0 ? bytes.length : end));
  };
  if (bytes.toString('latin1', 0, start.length) === start) keep(start.length);
  const [line, size] = [`\n${start}`, start.length + 1];
  for (let at = bytes.indexOf(line); at >= 0; at = bytes.indexOf(line, at + 1)) keep(at + size);
  return lines;
}
