// The cost of a large node for its agent: `npm run -s bench -- node [SERVICES]`. The rules of
// SERVICES Services with 15 endpoints each are loaded for real in a network namespace, which needs
// root; a process of its own reads what iptables-legacy-save prints there and walks all frontends,
// as the agent does in every round; then the agent itself runs there and reports. For a tenth of
// the Services iptables-nft-save runs beside it, for the ratio of both.
//
// Times are of the CPU: of programs by the shell's `times`.

import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { build } from 'esbuild';

import { readerFlags } from '../../src/agent/schedule.ts';
import { measureAlike } from './alike.ts';
import { generateDump } from './dump.ts';
import { round } from './measure.ts';
import { buildBundle } from './program.ts';
import type { Walked } from './walking.ts';

const endpoints = 15;

type Backend = 'legacy' | 'nft';

interface Space {
  readonly run: (command: readonly string[], input?: string) => string;
  readonly inside: (command: readonly string[]) => string[];
}

/** Does something in a namespace that holds these rules. */
async function within<T>(backend: Backend, text: string, work: (space: Space) => T | Promise<T>) {
  const name = `ea-bench-${process.pid}`;
  const inside = (command: readonly string[]): string[] => ['netns', 'exec', name, ...command];
  const call = (args: readonly string[], input = ''): string => {
    const done = spawnSync('ip', args, { input, maxBuffer: 2 ** 29 });
    if (done.status === 0) return done.stdout.toString();
    throw new Error(`${args.join(' ')}: ${done.stderr.toString().slice(0, 500)}`);
  };
  call(['netns', 'add', name]);
  try {
    call(inside(['ip', 'link', 'set', 'lo', 'up']));
    call(inside([`iptables-${backend}-restore`]), text);
    return await work({ run: (command, input) => call(inside(command), input), inside });
  } finally {
    call(['netns', 'delete', name]);
  }
}

/** CPU seconds of a command's children, by the shell. */
function cost({ run }: Space, command: string): number {
  const times = run(['bash', '-c', `${command} >/dev/null; times`])
    .trim()
    .split('\n');
  const seconds = [...(times[1] ?? '').matchAll(/(\d+)m([\d.]+)s/g)];
  return seconds.reduce((sum, [, minutes, rest]) => sum + Number(minutes) * 60 + Number(rest), 0);
}

/** Bundles what reads and walks once, as the agent is; returns its path. */
async function bundleWalking(): Promise<string> {
  const outfile = join(await mkdtemp(join(tmpdir(), 'endpoint-auditor-bench-')), 'walking.cjs');
  const entryPoints = [join(import.meta.dirname, 'walking.ts')];
  await build({
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node22',
    entryPoints,
    outfile,
  });
  return outfile;
}

/** The least of several processes, started as the agent starts what reads for it. */
function walked(walking: string, dump: string, rounds = 1): Walked {
  const runs = Array.from({ length: 5 }, () => {
    const args = [...readerFlags, walking, String(rounds)];
    const done = spawnSync(process.execPath, args, { input: dump, maxBuffer: 2 ** 29 });
    if (done.status !== 0) throw new Error(done.stderr.toString());
    return JSON.parse(done.stdout.toString()) as Walked;
  });
  return runs.reduce((least, one) => {
    return one.parse + one.walk < least.parse + least.walk ? one : least;
  });
}

interface AgentCost {
  readonly idleMiB: number;
  readonly peakMiB: number;
  /** Of the process that reads. */
  readonly readerMiB: number;
  readonly report: number;
  readonly unchanged: number;
}

/** A figure of a process; 0: it has ended. */
function mebibytes(pid: number, name: string): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0) / 1024);
  } catch {
    return 0;
  }
}

async function agentIn({ inside }: Space): Promise<AgentCost> {
  const main = await buildBundle();
  const args = ['agent', '--listen', '127.0.0.1:9466', '--pod-cidrs', '10.244.0.0/24'];
  const child = spawn('ip', inside([process.execPath, main, ...args]), {
    stdio: 'ignore',
  });
  const url = 'http://127.0.0.1:9466/v1/report';
  const script = `const one = await fetch('${url}'); const text = await one.text();
    const again = await fetch('${url}', { headers: { 'if-none-match': one.headers.get('etag') } });
    const size = [...again.headers].join('').length + (await again.text()).length;
    console.log(JSON.stringify({ status: one.status, report: text.length, unchanged: size }));`;
  const { pid = 0 } = child;
  let readerMiB = 0;
  try {
    for (;;) {
      await sleep(1000);
      const [reader] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ');
      if (reader) readerMiB = Math.max(readerMiB, mebibytes(Number(reader), 'VmHWM'));
      const asking = inside([process.execPath, '--input-type=module', '-e', script]);
      const asked = spawnSync('ip', asking).stdout.toString();
      const said = JSON.parse(asked || '{}') as Record<string, number>;
      if (said.status !== 200) continue;
      // Until what reads has ended.
      await sleep(8000);
      const sizes = { report: said.report ?? 0, unchanged: said.unchanged ?? 0 };
      const own = { idleMiB: mebibytes(pid, 'VmRSS'), peakMiB: mebibytes(pid, 'VmHWM') };
      return { ...own, readerMiB, ...sizes };
    }
  } finally {
    child.kill('SIGTERM');
  }
}

export type NodeRow = readonly [name: string, reached: number, most: number | ''];

/** Measures a node with a number of Services. Throws if it cannot create a namespace. */
export async function measureNode(services: number): Promise<NodeRow[]> {
  const few = Math.ceil(services / 10);
  const walking = await bundleWalking();
  const large = generateDump(services, endpoints, 1).text;
  const [at, agent] = await within('legacy', large, async (space) => {
    const dump = space.run(['iptables-legacy-save']);
    return [walked(walking, dump), await agentIn(space)] as const;
  });
  const small = generateDump(few, endpoints, 1).text;
  const [own, compiled, theirs, smaller] = await within('nft', small, async (space) => {
    const saved = Math.min(...[1, 2, 3].map(() => cost(space, 'iptables-nft-save')));
    const dump = space.run(['iptables-nft-save']);
    const each = [walked(walking, dump), walked(walking, dump, 10)] as const;
    return [...each, saved, await agentIn(space)] as const;
  });
  return [
    [`dump of ${services} Services, MB`, round(at.bytes / 1e6), ''],
    ['frontends', at.frontends, ''],
    ['parse, CPU s', round(at.parse), ''],
    ['walk of all frontends from a pod, CPU s', round(at.walk), ''],
    ['digests of all frontends, CPU s', round(at.digests), ''],
    ['fingerprint of the dump, CPU s', round(at.fingerprint), ''],
    ['parse and walk, CPU s', round(at.parse + at.walk), 0.8],
    ['agent, idle, MiB', agent.idleMiB, 60],
    ['agent, peak, MiB', agent.peakMiB, ''],
    ['what reads for it, while it does, peak, MiB', agent.readerMiB, ''],
    ['report, bytes', agent.report, ''],
    ['unchanged report, bytes', agent.unchanged, 32 * 1024],
    [`agent with ${few} Services, idle, MiB`, smaller.idleMiB, 60],
    [`iptables-nft-save of ${few} Services, CPU s`, round(theirs), ''],
    [`parse and walk of ${few} Services, CPU s`, round(own.parse + own.walk), ''],
    ['the latter in per cent of the former', round((100 * (own.parse + own.walk)) / theirs), 25],
    ['the tenth time in one process, CPU s', round(compiled.parse + compiled.walk), ''],
    ...measureAlike(Math.ceil(services / 5)),
  ];
}
