// What tests need to run real programs beside them: Go that builds them, the place where they are
// kept, a free port, and their end.

import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { ProgramLimits } from '../src/agent/collect.ts';
import { defaultLimits } from '../src/agent/collect.ts';

/** A folder of ours in the user's cache ($XDG_CACHE_HOME). */
export function cacheFolder(...names: readonly string[]): string {
  const base = process.env.XDG_CACHE_HOME ?? '';
  return join(base === '' ? join(homedir(), '.cache') : base, 'endpoint-auditor', ...names);
}

/** Where Go is, also where its installer puts it and the PATH does not lead there. */
export function goProgram(): string {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/local/go/bin'];
  const found = folders.map((folder) => join(folder, 'go')).find((path) => existsSync(path));
  if (found !== undefined) return found;
  const places = 'neither on the PATH nor in /usr/local/go/bin';
  throw new Error(`Go is missing, ${places}: Go 1.26 or later builds the programs of tests`);
}

const browsers = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];

/** Where Chromium is. Its headless shell takes half of the CPU time. CHROMIUM names another. */
export function browserProgram(): string {
  const { CHROMIUM: named } = process.env;
  const found = named ?? browsers.map((name) => `/usr/bin/${name}`).find(existsSync);
  if (found !== undefined) return found;
  throw new Error('No Chromium: install it (apt install chromium-headless-shell), or set CHROMIUM');
}

const portFolder = cacheFolder('ports');
const reservedPorts = new Set<number>();
process.once('exit', () => {
  for (const port of reservedPorts) rmSync(join(portFolder, String(port)), { force: true });
});

const isRunning = (pid: number): boolean => existsSync(`/proc/${pid}`);

/** Reserves a port until this process ends; false: another process has it. */
function reservePort(port: number): boolean {
  const file = join(portFolder, String(port));
  const owner = String(process.pid);
  mkdirSync(portFolder, { recursive: true });
  try {
    writeFileSync(file, owner, { flag: 'wx' });
  } catch {
    // An empty file has just been made. A process that was killed leaves its files.
    const other = readFileSync(file, 'utf8');
    if (other === '' || other === owner || isRunning(Number(other))) return false;
    writeFileSync(file, owner);
  }
  reservedPorts.add(port);
  return true;
}

/**
 * A port on which no program listens, and that no other process of these tests gets while this one
 * runs. It is below the range from which the kernel takes the ports of connections, so that none of
 * them takes it before the caller listens.
 */
export async function freePort(): Promise<number> {
  const port = randomInt(10_000, 32_000);
  if (!reservePort(port)) return freePort();
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    return freePort();
  }
  server.close();
  await once(server, 'close');
  return port;
}

/** Ends a program that may have ended by itself, and waits until it has. */
export async function endProgram(
  child: ChildProcess,
  signal: NodeJS.Signals = 'SIGTERM',
): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill(signal);
  await gone;
}

// Scripts that replace the programs of a node, in a folder of their own.

/** Limits with which only these scripts and the programs of every system are found. */
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
  return { ...defaultLimits, deadlineSeconds: 300, path: folder, maps: folder, ...more };
}

// A network namespace for a test, with the rules of a recorded node in it. It needs root, iproute2,
// iptables and nftables; where they are missing, tests say so and are left out, unless
// NETNS_TESTS=required.

/** Why there can be no namespace; null: there can. */
export function whyNot(): string | null {
  if (process.getuid?.() !== 0) return 'not root';
  for (const program of ['ip', 'iptables-nft-restore', 'ip6tables-nft-restore', 'nft']) {
    const paths = ['/usr/sbin', '/sbin', '/usr/bin', '/bin'];
    if (!paths.some((path) => existsSync(`${path}/${program}`))) return `no ${program}`;
  }
  const name = `ea-try-${process.pid}`;
  const made = spawnSync('ip', ['netns', 'add', name]);
  if (made.status !== 0) return made.stderr.toString().trim();
  const listed = spawnSync('ip', ['netns', 'exec', name, 'nft', 'list', 'ruleset']);
  spawnSync('ip', ['netns', 'delete', name]);
  return listed.status === 0 ? null : listed.stderr.toString().trim();
}

interface Namespace {
  /** A command and its arguments, to be run inside. */
  inside(...command: string[]): [string, string[]];
  /** Gives a recorded dump to a program inside, as a file behind its arguments. */
  load(dump: string, ...program: string[]): void;
  remove(): void;
}

/** A namespace with the addresses of the recorded nodes `a`. */
export function createNamespace(name: string): Namespace {
  const ip = (...args: string[]): void => {
    execFileSync('ip', args, { stdio: 'pipe' });
  };
  ip('netns', 'add', name);
  const link = (...args: string[]): void => {
    ip('-n', name, ...args);
  };
  link('link', 'set', 'lo', 'up');
  link('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'far0');
  link('addr', 'add', '172.18.0.2/24', 'dev', 'eth0');
  link('-6', 'addr', 'add', 'fd00:18::2/64', 'dev', 'eth0', 'nodad');
  link('link', 'set', 'far0', 'up');
  link('link', 'set', 'eth0', 'up');
  const inside: Namespace['inside'] = (...command) => ['ip', ['netns', 'exec', name, ...command]];
  return {
    inside,
    load(dump, ...program) {
      const text = gunzipSync(readFileSync(dump)).toString();
      // Accounting objects are made by kube-proxy, not by rules.
      const isListing = text.startsWith('{');
      const input = isListing ? inOrder(text) : text.replace(/ -m nfacct --nfacct-name +\S+/g, '');
      // As a file: nft cannot open a standard input that is a socket.
      const file = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-dump-')), 'dump');
      writeFileSync(file, input);
      const [command, args] = inside(...program, file);
      execFileSync(command, args, { stdio: 'pipe' });
    },
    remove() {
      ip('netns', 'delete', name);
    },
  };
}

const kinds = ['metainfo', 'table', 'chain', 'set', 'map', 'rule'];

/** A listing as nft takes it back: chains before the maps that lead to them. */
function inOrder(listing: string): string {
  const { nftables } = JSON.parse(listing) as { nftables: Readonly<Record<string, unknown>>[] };
  const place = (one: object): number => kinds.findIndex((kind) => kind in one);
  return JSON.stringify({ nftables: nftables.toSorted((a, b) => place(a) - place(b)) });
}
