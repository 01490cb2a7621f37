// What tests need to run real programs beside them: Go that builds them, the place where they are
// kept, a free port, and their end.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

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

/** A free port of the loopback. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
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
